//! The life of a run (R-M8) and of its attempts, and the phase that says where in the delivery it stands (R-M5).

use super::machine::{Machine, Row};
use crate::words;

words! {
    /// Where a run stands.
    pub enum RunStatus {
        /// Accepted; queued or held back.
        Pending = "PENDING",
        /// A process holds it and works.
        Running = "RUNNING",
        /// A retryable failure; waits for `retry_at`.
        Retrying = "RETRYING",
        /// Parked on a durable approval request.
        WaitingApproval = "WAITING_APPROVAL",
        /// A difference or decision that only a person may accept.
        ReviewRequired = "REVIEW_REQUIRED",
        /// An effect outside may have happened.
        OutcomeUnknown = "OUTCOME_UNKNOWN",
        /// Something stands in the way that going on cannot remove.
        Blocked = "BLOCKED",
        /// Stopped by a signal or found without a living holder; resumable.
        Interrupted = "INTERRUPTED",
        /// Stopped at a limit; state and work kept.
        BudgetExceeded = "BUDGET_EXCEEDED",
        /// Done. Final.
        Succeeded = "SUCCEEDED",
        /// Ran to its end and failed.
        Failed = "FAILED",
        /// Failed as often as it may; a person requeues it.
        DeadLetter = "DEAD_LETTER",
        /// Stopped for good. Final.
        Canceled = "CANCELED",
    }
}

words! {
    /// What can happen to a run.
    pub enum RunEvent {
        /// A process claims it and opens its first attempt.
        Start = "start",
        /// A process claims it again and opens a further attempt.
        Resume = "resume",
        /// A process takes it over from a holder that is dead or has lost its lease.
        TakeOver = "take_over",
        /// A retryable failure: wait until `retry_at`.
        Retry = "retry",
        /// Parked on an approval.
        Park = "park",
        /// A person must look.
        Review = "review",
        /// An effect may have happened.
        LoseOutcome = "lose_outcome",
        /// Blocked.
        Block = "block",
        /// A signal stopped it.
        Interrupt = "interrupt",
        /// A limit stopped it.
        ExceedBudget = "exceed_budget",
        /// Everything is done.
        Succeed = "succeed",
        /// It failed.
        Fail = "fail",
        /// Attempts are used up.
        BuryDead = "bury_dead",
        /// A person puts a dead letter back.
        Requeue = "requeue",
        /// Stopped for good.
        Cancel = "cancel",
    }
}

use RunEvent as E;
use RunStatus as S;

/// The table of R-M8.
pub static RUN: Machine<RunStatus, RunEvent> = Machine {
    name: "run",
    initial: S::Pending,
    rows: &[
        Row { from: &[S::Pending], event: E::Start, to: S::Running, needs: None },
        Row {
            from: &[
                S::Failed,
                S::Interrupted,
                S::BudgetExceeded,
                S::Retrying,
                S::WaitingApproval,
                S::ReviewRequired,
                S::OutcomeUnknown,
                S::Blocked,
            ],
            event: E::Resume,
            to: S::Running,
            needs: Some("a new attempt"),
        },
        Row { from: &[S::Running], event: E::TakeOver, to: S::Running, needs: Some("the lease is free") },
        Row {
            from: &[S::Running, S::Failed, S::Interrupted, S::BudgetExceeded],
            event: E::Retry,
            to: S::Retrying,
            needs: None,
        },
        Row { from: &[S::Running], event: E::Park, to: S::WaitingApproval, needs: None },
        Row { from: &[S::Running], event: E::Review, to: S::ReviewRequired, needs: None },
        Row { from: &[S::Running], event: E::LoseOutcome, to: S::OutcomeUnknown, needs: None },
        Row { from: &[S::Running], event: E::Block, to: S::Blocked, needs: None },
        Row { from: &[S::Running], event: E::Interrupt, to: S::Interrupted, needs: None },
        Row { from: &[S::Running], event: E::ExceedBudget, to: S::BudgetExceeded, needs: None },
        Row { from: &[S::Running], event: E::Succeed, to: S::Succeeded, needs: None },
        Row {
            from: &[S::Running, S::WaitingApproval, S::ReviewRequired, S::OutcomeUnknown, S::Blocked],
            event: E::Fail,
            to: S::Failed,
            needs: None,
        },
        Row {
            from: &[S::Running, S::Failed, S::Interrupted, S::BudgetExceeded, S::Retrying],
            event: E::BuryDead,
            to: S::DeadLetter,
            needs: Some("attempts used up"),
        },
        Row { from: &[S::DeadLetter], event: E::Requeue, to: S::Retrying, needs: Some("a person, with a reason") },
        Row {
            from: &[
                S::Pending,
                S::Running,
                S::Failed,
                S::Interrupted,
                S::BudgetExceeded,
                S::Retrying,
                S::WaitingApproval,
                S::ReviewRequired,
                S::OutcomeUnknown,
                S::Blocked,
            ],
            event: E::Cancel,
            to: S::Canceled,
            needs: None,
        },
    ],
};

words! {
    /// Where one try of a run stands.
    pub enum AttemptState {
        /// Under way.
        Running = "RUNNING",
        /// The run's work was done in it.
        Succeeded = "SUCCEEDED",
        /// It failed; uses up one of the attempts.
        Failed = "FAILED",
        /// Its process died or lost the lease; uses up one of the attempts.
        Lost = "LOST",
        /// Stopped by a signal or parked; uses up none.
        Parked = "PARKED",
        /// Stopped at a limit; uses up none.
        BudgetExceeded = "BUDGET_EXCEEDED",
        /// Stopped for good.
        Canceled = "CANCELED",
    }
}

words! {
    /// How an attempt ends.
    pub enum AttemptEvent {
        /// The run's work is done.
        Succeed = "succeed",
        /// It failed.
        Fail = "fail",
        /// The holder is gone.
        Lose = "lose",
        /// A signal, an approval, a review: nothing failed.
        Park = "park",
        /// A limit.
        ExceedBudget = "exceed_budget",
        /// For good.
        Cancel = "cancel",
    }
}

/// An attempt ends once.
pub static ATTEMPT: Machine<AttemptState, AttemptEvent> = Machine {
    name: "attempt",
    initial: AttemptState::Running,
    rows: &[
        Row { from: &[AttemptState::Running], event: AttemptEvent::Succeed, to: AttemptState::Succeeded, needs: None },
        Row { from: &[AttemptState::Running], event: AttemptEvent::Fail, to: AttemptState::Failed, needs: None },
        Row { from: &[AttemptState::Running], event: AttemptEvent::Lose, to: AttemptState::Lost, needs: None },
        Row { from: &[AttemptState::Running], event: AttemptEvent::Park, to: AttemptState::Parked, needs: None },
        Row {
            from: &[AttemptState::Running],
            event: AttemptEvent::ExceedBudget,
            to: AttemptState::BudgetExceeded,
            needs: None,
        },
        Row { from: &[AttemptState::Running], event: AttemptEvent::Cancel, to: AttemptState::Canceled, needs: None },
    ],
};

words! {
    /// Who opened an attempt.
    pub enum OpenedBy {
        /// The first one.
        Start = "start",
        /// By itself, after a retryable failure.
        Retry = "retry",
        /// By a person or job that said `resume`.
        Resume = "resume",
        /// From a dead or silent holder.
        Takeover = "takeover",
    }
}

words! {
    /// Where in the delivery a run stands (R-M5). A phase without a step in the pipeline is left out.
    pub enum Phase {
        /// Checks are ahead.
        QaPending = "QA_PENDING",
        /// All checks are green.
        QaPassed = "QA_PASSED",
        /// A check is red.
        QaFailed = "QA_FAILED",
        /// A release is bound to commit and artifacts.
        ReleaseReady = "RELEASE_READY",
        /// A deployment is under way.
        Deploying = "DEPLOYING",
        /// The deployment is being verified.
        Verifying = "VERIFYING",
    }
}

words! {
    /// What moves the phase.
    pub enum PhaseEvent {
        /// All checks are green.
        PassQa = "pass_qa",
        /// A check is red.
        FailQa = "fail_qa",
        /// The checks are run again.
        RecheckQa = "recheck_qa",
        /// A release record was made.
        MakeRelease = "make_release",
        /// A deployment begins.
        Deploy = "deploy",
        /// A deployment was executed.
        Verify = "verify",
    }
}

/// The table of R-M5. The way from "no phase" into the first one is the run's birth.
pub static PHASE: Machine<Phase, PhaseEvent> = Machine {
    name: "phase",
    initial: Phase::QaPending,
    rows: &[
        Row { from: &[Phase::QaPending], event: PhaseEvent::PassQa, to: Phase::QaPassed, needs: None },
        Row { from: &[Phase::QaPending], event: PhaseEvent::FailQa, to: Phase::QaFailed, needs: None },
        Row { from: &[Phase::QaFailed], event: PhaseEvent::RecheckQa, to: Phase::QaPending, needs: None },
        Row { from: &[Phase::QaPassed], event: PhaseEvent::MakeRelease, to: Phase::ReleaseReady, needs: None },
        Row {
            from: &[Phase::QaPassed, Phase::ReleaseReady],
            event: PhaseEvent::Deploy,
            to: Phase::Deploying,
            needs: Some("DEPLOY_EXECUTE and an approval"),
        },
        Row { from: &[Phase::Deploying], event: PhaseEvent::Verify, to: Phase::Verifying, needs: None },
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::machine::Word as _;

    /// Every pair of states that some event joins.
    fn pairs<W: crate::domain::machine::Word, E: crate::domain::machine::Word>(machine: &Machine<W, E>) -> Vec<String> {
        let mut pairs: Vec<String> = Vec::new();
        for row in machine.rows {
            pairs.extend(row.from.iter().map(|from| format!("{} {}", from.word(), row.to.word())));
        }
        pairs.sort();
        pairs.dedup();
        pairs
    }

    fn expected(lines: &[(&str, &str)]) -> Vec<String> {
        let mut pairs: Vec<String> = Vec::new();
        for (from, to) in lines {
            for from in from.split(' ') {
                pairs.extend(to.split(' ').map(|to| format!("{from} {to}")));
            }
        }
        pairs.sort();
        pairs.dedup();
        pairs
    }

    #[test]
    fn r_m8_a_run_moves_as_promised_and_in_no_other_way() {
        assert_eq!(RunStatus::ALL.len(), 13);
        let all_but_pending = "RUNNING RETRYING WAITING_APPROVAL REVIEW_REQUIRED OUTCOME_UNKNOWN BLOCKED INTERRUPTED \
                               BUDGET_EXCEEDED SUCCEEDED FAILED DEAD_LETTER CANCELED";
        let promised = expected(&[
            ("PENDING", "RUNNING CANCELED"),
            ("RUNNING", all_but_pending),
            ("FAILED INTERRUPTED BUDGET_EXCEEDED", "RETRYING RUNNING DEAD_LETTER CANCELED"),
            ("RETRYING", "RUNNING DEAD_LETTER CANCELED"),
            ("WAITING_APPROVAL REVIEW_REQUIRED OUTCOME_UNKNOWN BLOCKED", "RUNNING FAILED CANCELED"),
            ("DEAD_LETTER", "RETRYING"),
        ]);
        assert_eq!(pairs(&RUN), promised);
        for last in [RunStatus::Succeeded, RunStatus::Canceled] {
            assert!(RUN.is_final(last));
        }
    }

    #[test]
    fn r_m5_the_phase_moves_as_promised_and_in_no_other_way() {
        let promised = expected(&[
            ("QA_PENDING", "QA_PASSED QA_FAILED"),
            ("QA_FAILED", "QA_PENDING"),
            ("QA_PASSED", "RELEASE_READY DEPLOYING"),
            ("RELEASE_READY", "DEPLOYING"),
            ("DEPLOYING", "VERIFYING"),
        ]);
        assert_eq!(pairs(&PHASE), promised);
        let deploy = PHASE.rows.iter().find(|row| row.event == PhaseEvent::Deploy).unwrap();
        assert!(deploy.needs.is_some_and(|needs| needs.contains("DEPLOY_EXECUTE")));
    }
}
