//! What `start` does when the fingerprint already has a run (contract §14).

use super::verdict;
use crate::domain::failure::Exit;
use crate::domain::lease::Holding;
use crate::domain::record::RunRecord;
use crate::domain::run::RunStatus;

/// What the caller allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// Follow a run that is under way, or only tell of it.
    pub follow: Follow,
    /// Go on after a failure (`--resume`), or only offer it.
    pub after_failure: AfterFailure,
}

/// Whether a running run is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Until its end.
    ToTheEnd,
    /// Not at all (`--no-wait`, `--detach`).
    No,
}

/// What a failed run leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Resume is offered.
    Offer,
    /// Resume is done.
    Resume,
}

/// What to do with the run that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Return its result.
    Reuse,
    /// Follow it to its end.
    Attach,
    /// Tell that it is in progress.
    TellBusy,
    /// Go on with it, as `resume` would.
    TakeOver,
    /// Nothing runs; its state is the answer.
    Tell(Exit),
}

/// Decides by the state of the newest instance.
pub fn existing(run: &RunRecord, holding: Holding, wishes: Wishes) -> Existing {
    let failed = |exit| match wishes.after_failure {
        AfterFailure::Resume => Existing::TakeOver,
        AfterFailure::Offer => Existing::Tell(exit),
    };
    match run.status {
        RunStatus::Succeeded => Existing::Reuse,
        RunStatus::Canceled => Existing::Tell(Exit::Canceled),
        RunStatus::Interrupted => Existing::TakeOver,
        RunStatus::Pending | RunStatus::Running => match (holding, wishes.follow) {
            (Holding::Free, _) if run.status == RunStatus::Pending => Existing::TakeOver,
            (Holding::Abandoned | Holding::Free, _) => Existing::TakeOver,
            (_, Follow::ToTheEnd) => Existing::Attach,
            (_, Follow::No) => Existing::TellBusy,
        },
        RunStatus::WaitingApproval => Existing::Tell(Exit::NeedsApproval),
        RunStatus::Retrying => Existing::Tell(Exit::RetryLater),
        RunStatus::OutcomeUnknown => Existing::Tell(Exit::OutcomeUnknown),
        RunStatus::ReviewRequired => Existing::Tell(Exit::ReviewRequired),
        RunStatus::Failed | RunStatus::DeadLetter | RunStatus::BudgetExceeded | RunStatus::Blocked => {
            failed(verdict::exit(run))
        }
    }
}
