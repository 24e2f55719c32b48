//! What whoever asked for an action inside a run is told: where it stands, and what to do now. Written for a program that
//! would otherwise ask again.

use super::record::ActionRecord;
use super::state::ActionState;
use crate::domain::failure::Exit;
use crate::words;

words! {
    /// Where something stands that was asked for.
    pub enum Told {
        /// It has happened.
        Done = "done",
        /// It is being done, or about to be.
        InProgress = "in_progress",
        /// A person must decide first.
        WaitsForPerson = "waits_for_person",
        /// It has not happened, and that is known.
        Failed = "failed",
        /// A person said no, or it was withdrawn.
        Withdrawn = "withdrawn",
        /// It may have happened.
        Unknown = "unknown",
    }
}

/// Where a record stands, for whoever asked for it.
pub fn told(action: &ActionRecord) -> Told {
    match action.state {
        ActionState::Succeeded | ActionState::Compensating | ActionState::Compensated => Told::Done,
        ActionState::WaitingApproval => Told::WaitsForPerson,
        ActionState::Ready if action.review.is_some() => Told::WaitsForPerson,
        ActionState::Ready | ActionState::Started | ActionState::InProgress => Told::InProgress,
        ActionState::Failed => Told::Failed,
        ActionState::Canceled => Told::Withdrawn,
        ActionState::OutcomeUnknown => Told::Unknown,
    }
}

/// Whether waiting a little longer tells nothing more. What is held is being worked on, whatever its state says.
pub fn is_said(action: &ActionRecord) -> bool {
    match told(action) {
        Told::Done | Told::WaitsForPerson | Told::Withdrawn => true,
        Told::InProgress => action.review.is_some(),
        Told::Failed | Told::Unknown => action.lease.is_none(),
    }
}

impl Told {
    /// What to do now, in words.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Done => "it is done; asking again does nothing more",
            Self::InProgress => {
                "it goes on without you; look at it later by its id, and do not ask for it in another way meanwhile"
            }
            Self::WaitsForPerson => {
                "a person must decide; do not ask again and do not do it in another way: go on with other work, or end"
            }
            Self::Failed => {
                "it has not happened; do not ask again in this attempt: say in your answer that it failed, and why"
            }
            Self::Withdrawn => {
                "a person said no, or it was withdrawn; do not ask again and do not do it in another way"
            }
            Self::Unknown => "it may have happened; do not repeat it in any way: agentrun asks what became of it",
        }
    }

    /// The exit status of a command that answers with it.
    pub fn exit(self) -> Exit {
        match self {
            Self::Done => Exit::Ok,
            Self::InProgress => Exit::Busy,
            Self::WaitsForPerson => Exit::NeedsApproval,
            Self::Failed => Exit::RunFailed,
            Self::Withdrawn => Exit::Canceled,
            Self::Unknown => Exit::OutcomeUnknown,
        }
    }
}
