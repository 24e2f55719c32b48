//! What a person may want to see while a run works. The engine tells; somebody else decides whether and how to show it.

use crate::domain::action::approval::ApprovalRecord;
use crate::domain::budget::{Budget, Usage};
use crate::domain::failure::Failure;
use crate::domain::ids::{RunId, StepKey};
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::run::OpenedBy;
use crate::domain::step::StepState;
use crate::domain::task::StepKind;

/// One thing to tell. Told after it was recorded, never before.
#[derive(Debug)]
pub enum Notice<'a> {
    /// An attempt began.
    AttemptBegan {
        /// The run.
        run: &'a RunId,
        /// Its number.
        attempt: u32,
        /// Who opened it.
        opened_by: OpenedBy,
        /// All steps of the run, in order.
        steps: &'a [StepKey],
        /// The limits that hold.
        budget: &'a Budget,
    },
    /// A step began.
    StepBegan {
        /// Its key.
        step: &'a StepKey,
        /// Its kind.
        kind: StepKind,
        /// The agent or command, in short.
        what: String,
    },
    /// A step came to a state of rest.
    StepEnded {
        /// Its key.
        step: &'a StepKey,
        /// The state.
        state: StepState,
        /// How long it took.
        took: Millis,
        /// Why, if it did not go well.
        failure: Option<&'a Failure>,
    },
    /// The agent said something.
    Said {
        /// The step.
        step: &'a StepKey,
        /// The text.
        text: &'a str,
    },
    /// The agent uses a tool.
    Tool {
        /// The step.
        step: &'a StepKey,
        /// What it does.
        summary: &'a str,
    },
    /// Something was used.
    Used {
        /// By this attempt.
        attempt: &'a Usage,
        /// By the task.
        task: &'a Usage,
    },
    /// Worth a look.
    Warning {
        /// The text.
        text: &'a str,
    },
    /// Everything is being stopped.
    Stopping {
        /// Why.
        why: &'a str,
    },
    /// A person must agree before something is done.
    NeedsApproval {
        /// The step that waits; `None` for what a program inside the run asked for.
        step: Option<&'a StepKey>,
        /// What is asked.
        approval: &'a ApprovalRecord,
    },
    /// Others come first.
    Queued {
        /// What is waited for.
        what: &'a str,
        /// How many.
        ahead: u64,
    },
    /// Nothing happens until then.
    Waiting {
        /// Until when.
        until: UtcMs,
        /// For what.
        why: &'a str,
    },
}

/// Somebody who is told.
pub trait Observer {
    /// Tells.
    fn notice(&mut self, notice: &Notice<'_>);
}
