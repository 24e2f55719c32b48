//! The three facts about a run's outcome (contract §9) and the exit code it stands for (contract §7), read from the
//! record. What a run's state means to a person stands in [`super::meaning`].

use crate::domain::failure::{Code, Exit};
use crate::domain::outcome::{Outcome, ProcessFact, Verification};
use crate::domain::record::{ExecutionRecord, RunRecord, RunView};
use crate::domain::run::RunStatus;
use crate::domain::step::StepState;
use crate::domain::task::StepKind;

/// The three facts. Success needs all of them: the run says so and no check is red or open.
pub fn outcome(view: &RunView) -> Outcome {
    let verification = verification(view);
    let checked = matches!(verification, Verification::Passed | Verification::None);
    let success = view.run.status == RunStatus::Succeeded && checked;
    Outcome { process: process(view), verification, success }
}

/// What the checks said. A check that `when` skipped was not required; one that could not be carried out leaves open
/// whether the work is good, which is no success.
fn verification(view: &RunView) -> Verification {
    let checks = view.steps.iter().filter(|s| s.kind == StepKind::Qa && s.state != StepState::Skipped);
    let states: Vec<_> = checks.map(|s| s.state).collect();
    if states.is_empty() {
        Verification::None
    } else if states.contains(&StepState::Failed) {
        Verification::Failed
    } else if states.iter().all(|s| *s == StepState::Succeeded) {
        Verification::Passed
    } else {
        Verification::Unknown
    }
}

/// How the newest agent process ended; without an agent, the newest process of any step.
fn process(view: &RunView) -> ProcessFact {
    let is_agent = |e: &&ExecutionRecord| view.steps.iter().any(|s| s.key == e.step && s.kind == StepKind::Agent);
    let newest = view.executions.iter().rev().find(is_agent);
    let Some(execution) = newest.or_else(|| view.executions.iter().rev().find(|e| e.end.is_some())) else {
        return ProcessFact::None;
    };
    match &execution.end {
        Some(end) => end.fact(),
        None if execution.finished_at.is_none() && view.run.status == RunStatus::Running => ProcessFact::None,
        None => ProcessFact::Vanished,
    }
}

/// The exit code that a run stands for: what a `start` that finds it in this state ends with (contract §7, §14).
pub fn exit(run: &RunRecord) -> Exit {
    match run.status {
        RunStatus::Succeeded => Exit::Ok,
        RunStatus::Pending | RunStatus::Running => Exit::Busy,
        RunStatus::Retrying => Exit::RetryLater,
        RunStatus::WaitingApproval => Exit::NeedsApproval,
        RunStatus::ReviewRequired | RunStatus::Blocked => careful(run.code, Exit::ReviewRequired),
        RunStatus::OutcomeUnknown => careful(run.code, Exit::OutcomeUnknown),
        RunStatus::BudgetExceeded => careful(run.code, Exit::BudgetExceeded),
        RunStatus::Interrupted => Exit::Interrupted,
        RunStatus::Failed => careful(run.code, Exit::RunFailed),
        // A dead letter is one number whatever buried it; the code beside it says why.
        RunStatus::DeadLetter => Exit::RunFailed,
        RunStatus::Canceled => Exit::Canceled,
    }
}

/// The number of the code, unless it would say "done" or "in progress" of a run that is neither, or is less careful than
/// what the state alone demands.
fn careful(code: Option<Code>, state: Exit) -> Exit {
    let Some(exit) = code.map(|c| c.entry().exit) else { return state };
    match exit {
        Exit::Ok | Exit::Busy => state,
        _ if state == Exit::RunFailed => exit,
        _ if exit.care() < state.care() => exit,
        _ => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::machine::Word as _;
    use crate::domain::outcome::ProcessEnd;
    use crate::domain::sample::{run, view};

    #[test]
    fn fr_c5_every_status_has_its_exit_code() {
        let expected = [
            (RunStatus::Pending, 7),
            (RunStatus::Running, 7),
            (RunStatus::Retrying, 18),
            (RunStatus::WaitingApproval, 3),
            (RunStatus::ReviewRequired, 17),
            (RunStatus::OutcomeUnknown, 4),
            (RunStatus::Blocked, 17),
            (RunStatus::Interrupted, 130),
            (RunStatus::BudgetExceeded, 6),
            (RunStatus::Succeeded, 0),
            (RunStatus::Failed, 1),
            (RunStatus::DeadLetter, 1),
            (RunStatus::Canceled, 9),
        ];
        assert_eq!(expected.map(|(status, _)| status).as_slice(), RunStatus::ALL);
        for (status, code) in expected {
            assert_eq!(exit(&run(status)).code(), code, "{status}");
        }
    }

    #[test]
    fn fr_c5_no_code_makes_a_run_that_did_not_succeed_exit_0() {
        for status in RunStatus::ALL.iter().filter(|s| **s != RunStatus::Succeeded) {
            for code in Code::ALL.iter().copied().map(Some).chain([None]) {
                let run = RunRecord { code, ..run(*status) };
                assert_ne!(exit(&run), Exit::Ok, "{status} {code:?}");
            }
        }
    }

    #[test]
    fn a_failed_run_exits_with_its_codes_number_and_a_parked_one_only_with_a_more_careful_one() {
        let with = |status, code| exit(&RunRecord { code: Some(code), ..run(status) });
        assert_eq!(with(RunStatus::Failed, Code::CommandNotFound), Exit::EnvUnsupported);
        assert_eq!(with(RunStatus::Failed, Code::PolicyDenied), Exit::PolicyDenied);
        assert_eq!(with(RunStatus::ReviewRequired, Code::GitTamper), Exit::SecurityStop);
        assert_eq!(with(RunStatus::ReviewRequired, Code::ModelTimeout), Exit::ReviewRequired);
        assert_eq!(with(RunStatus::DeadLetter, Code::RateLimit), Exit::RunFailed);
    }

    #[test]
    fn the_three_facts_are_kept_apart() {
        let done = outcome(&view(RunStatus::Succeeded));
        assert_eq!((done.process, done.verification, done.success), (ProcessFact::Exited, Verification::Passed, true));
        let failed = outcome(&view(RunStatus::Failed));
        assert_eq!(
            (failed.process, failed.verification, failed.success),
            (ProcessFact::Exited, Verification::Failed, false)
        );
    }

    #[test]
    fn fr_c7_a_bad_exit_after_a_good_result_stays_a_fact_of_its_own() {
        let mut view = view(RunStatus::Succeeded);
        view.executions[0].end = Some(ProcessEnd::Exited { code: 1 });
        assert!(outcome(&view).success);
        view.executions[0].end = Some(ProcessEnd::Signalled { signal: 9 });
        assert_eq!(outcome(&view).process, ProcessFact::Signalled);
    }

    #[test]
    fn could_not_tell_is_not_success() {
        for state in StepState::ALL {
            let mut view = view(RunStatus::Succeeded);
            view.steps[2].state = *state;
            let outcome = outcome(&view);
            let (verification, success) = match state {
                StepState::Succeeded => (Verification::Passed, true),
                StepState::Skipped => (Verification::None, true),
                StepState::Failed => (Verification::Failed, false),
                _ => (Verification::Unknown, false),
            };
            assert_eq!((outcome.verification, outcome.success), (verification, success), "{state}");
        }
    }

    #[test]
    fn an_end_that_nobody_saw_is_not_the_end_that_is_hoped_for() {
        let mut lost = view(RunStatus::Interrupted);
        lost.executions[0].end = None;
        assert_eq!(outcome(&lost).process, ProcessFact::Vanished);
        let mut running = view(RunStatus::Running);
        (running.executions[0].end, running.executions[0].finished_at) = (None, None);
        assert_eq!(outcome(&running).process, ProcessFact::None);
        running.executions.clear();
        assert_eq!(outcome(&running).process, ProcessFact::None);
    }
}
