//! The life of a step (R-M3).

use super::machine::{Machine, Row};
use crate::words;

words! {
    /// Where a step stands.
    pub enum StepState {
        /// Not begun.
        Pending = "PENDING",
        /// Being executed.
        Running = "RUNNING",
        /// Done; never executed again by resume or retry (R-S2).
        Succeeded = "SUCCEEDED",
        /// Executed, and failed.
        Failed = "FAILED",
        /// Its `when` says no. Final.
        Skipped = "SKIPPED",
        /// Its run was canceled. Final.
        Canceled = "CANCELED",
        /// A step before it failed.
        Blocked = "BLOCKED",
        /// Waits for a person.
        WaitingApproval = "WAITING_APPROVAL",
        /// Its effect may or may not have happened.
        Unknown = "UNKNOWN",
    }
}

words! {
    /// What can happen to a step.
    pub enum StepEvent {
        /// Its execution begins.
        Begin = "begin",
        /// It waits for a person.
        Ask = "ask",
        /// It waits for a person in a new attempt, after it had failed or was blocked.
        AskAgain = "ask_again",
        /// The person agreed.
        Approve = "approve",
        /// Its `when` says no.
        Skip = "skip",
        /// A step before it failed.
        Block = "block",
        /// Its run was canceled.
        Cancel = "cancel",
        /// Its execution succeeded.
        Succeed = "succeed",
        /// Its execution failed.
        Fail = "fail",
        /// The outcome of its execution was lost.
        LoseOutcome = "lose_outcome",
        /// Its execution was cut off by a signal or found without a holder.
        Interrupt = "interrupt",
        /// A new attempt executes it again.
        BeginAgain = "begin_again",
        /// A failed QA step is checked again after its agent was sent back.
        Recheck = "recheck",
        /// Reconciling found that it succeeded.
        ProveSuccess = "prove_success",
        /// Reconciling found that it failed.
        ProveFailure = "prove_failure",
        /// The one edge that leads back: an agent step, from a failed QA step of the same run, bounded by `rounds` (R-M4).
        SendBack = "send_back",
    }
}

impl StepEvent {
    /// Whether an execution begins with it.
    pub fn begins(self) -> bool {
        matches!(self, Self::Begin | Self::BeginAgain | Self::Recheck | Self::Approve)
    }

    /// What happens in its place where a person must agree first; `None` where there is nothing to ask.
    pub fn asked_first(self) -> Option<Self> {
        match self {
            Self::Begin => Some(Self::Ask),
            Self::BeginAgain => Some(Self::AskAgain),
            _ => None,
        }
    }
}

use StepEvent as E;
use StepState as S;

/// The table of R-M3.
pub static STEP: Machine<StepState, StepEvent> = Machine {
    name: "step",
    initial: S::Pending,
    rows: &[
        Row { from: &[S::Pending], event: E::Begin, to: S::Running, needs: None },
        Row { from: &[S::Pending], event: E::Ask, to: S::WaitingApproval, needs: None },
        Row {
            from: &[S::Failed, S::Blocked],
            event: E::AskAgain,
            to: S::WaitingApproval,
            needs: Some("a new attempt"),
        },
        Row { from: &[S::WaitingApproval], event: E::Approve, to: S::Running, needs: None },
        Row { from: &[S::Pending], event: E::Skip, to: S::Skipped, needs: None },
        Row { from: &[S::Pending, S::WaitingApproval], event: E::Block, to: S::Blocked, needs: None },
        Row { from: &[S::Pending, S::WaitingApproval, S::Running], event: E::Cancel, to: S::Canceled, needs: None },
        Row { from: &[S::Running], event: E::Succeed, to: S::Succeeded, needs: None },
        Row { from: &[S::Running], event: E::Fail, to: S::Failed, needs: None },
        Row { from: &[S::Running], event: E::LoseOutcome, to: S::Unknown, needs: None },
        Row { from: &[S::Running], event: E::Interrupt, to: S::Pending, needs: None },
        Row { from: &[S::Failed, S::Blocked], event: E::BeginAgain, to: S::Running, needs: Some("a new attempt") },
        Row { from: &[S::Failed], event: E::Recheck, to: S::Running, needs: Some("its agent was sent back") },
        Row { from: &[S::Unknown], event: E::ProveSuccess, to: S::Succeeded, needs: None },
        Row { from: &[S::Unknown], event: E::ProveFailure, to: S::Failed, needs: None },
        Row {
            from: &[S::Succeeded],
            event: E::SendBack,
            to: S::Pending,
            needs: Some("an agent step, a failed QA step, rounds left"),
        },
    ],
};
