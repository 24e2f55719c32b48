//! What the holder of a run wants recorded. One call of the store writes a list of these, with their audit events, in one
//! transaction; either all of them are there afterwards or none.

use std::collections::BTreeMap;

use serde_json::Value;

use super::budget::Certainty;
use super::event::EventKind;
use super::failure::Failure;
use super::hash::encoding::Sha256Hash;
use super::ids::{ApprovalId, StepKey};
use super::outcome::ProcessEnd;
use super::quantity::{Millis, UtcMs};
use super::record::{ArtifactRecord, Identity};
use super::run::{AttemptEvent, PhaseEvent, RunEvent};
use super::step::StepEvent;

/// One fact to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The run's status moves. An event that leaves RUNNING releases the lease.
    Run {
        /// By what.
        event: RunEvent,
        /// Why, if it did not go well.
        failure: Option<Failure>,
        /// When it may be tried again.
        retry_at: Option<UtcMs>,
    },
    /// The phase moves.
    Phase(PhaseEvent),
    /// The attempt ends.
    Attempt {
        /// How.
        event: AttemptEvent,
        /// Why.
        failure: Option<Failure>,
    },
    /// A step moves, with everything that ends or begins with it.
    Step(StepMove),
    /// The running execution of a step has a child process.
    Child {
        /// The step.
        step: StepKey,
        /// The process.
        child: Identity,
    },
    /// The running execution of an agent step has a conversation.
    Session {
        /// The step.
        step: StepKey,
        /// The agent's id of it.
        session: String,
        /// The model.
        model: Option<String>,
    },
    /// The running execution of a step used something. Repeated names replace and never lower a counter (I9).
    Usage {
        /// The step.
        step: StepKey,
        /// What.
        items: Vec<MeterItem>,
        /// Time the execution has been active so far.
        active: Millis,
    },
    /// A file was kept. The same path again replaces the record (a report of a later attempt).
    Artifact(ArtifactRecord),
    /// The newest snapshot is this commit.
    Snapshot {
        /// The commit.
        commit: String,
        /// The step around which it was taken.
        step: Option<StepKey>,
    },
    /// The task's ledger begins anew: a verified success (R-R4).
    CloseLedger,
    /// The run goes on with other inputs: an accepted new task spec, a raised limit, a policy that may change.
    Inputs(Box<super::record::RunInputs>),
    /// An approval lets its step go, and counts no more. It stands in the same list as the step's own move.
    UseApproval {
        /// The approval.
        approval: ApprovalId,
        /// What would begin now: another digest refuses all changes.
        digest: Sha256Hash,
    },
    /// Something happened that changes no state.
    Note {
        /// What.
        kind: EventKind,
        /// The step it belongs to.
        step: Option<StepKey>,
        /// Why, in words.
        reason: String,
        /// The rest.
        body: Value,
    },
}

/// A move of a step: one fact, one event, however much it brings along. `Begin`, `BeginAgain` and `Recheck` open an execution and
/// clear the step's own `sent_back`; `SendBack` of an agent step counts a round of the QA step named in `because_of` and
/// sets that step's `sent_back`. (SendBack of a qa or command step between them only puts it back to PENDING.) A take-over
/// (`claim`) leaves RUNNING steps as they are: the engine then records for each of them either that it was finished after
/// all, or `Interrupt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepMove {
    /// Which.
    pub step: StepKey,
    /// By what.
    pub event: StepEvent,
    /// Why, if it did not go well.
    pub failure: Option<Failure>,
    /// The step that is the reason: the failed one for `Block`, the QA step for `SendBack`.
    pub because_of: Option<StepKey>,
    /// How the execution ended that this move closes; `None` for a step without a process.
    pub ended: Option<ExecutionEnd>,
    /// The checkpoint that is reached with it (R-S3).
    pub checkpoint: Option<Reached>,
}

impl StepMove {
    /// A move and nothing else.
    pub fn new(step: &StepKey, event: StepEvent) -> Self {
        Self { step: step.clone(), event, failure: None, because_of: None, ended: None, checkpoint: None }
    }
}

/// What a step reached by succeeding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// CONTEXT_PREPARED, CODE_GENERATED, QA_PASSED, or the step's key.
    pub name: String,
    /// The snapshot, where one was taken.
    pub commit: Option<String>,
    /// The policy under which it was reached.
    pub policy_version: String,
    /// The artifacts recorded with it: path and content.
    pub artifacts: BTreeMap<String, Sha256Hash>,
}

/// How an execution of a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionEnd {
    /// How its process ended.
    pub end: ProcessEnd,
    /// The agent's last word. It is kept with the execution, not in the log (R-A16).
    pub result: Option<String>,
    /// Time it was active.
    pub active: Millis,
}

/// One counted thing: a model response, a tool call, or what is estimated where nobody told a figure. What was told only
/// grows and takes the place of an estimate; an estimate takes the place of an earlier one, and of nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterItem {
    /// Unique within the run.
    pub name: String,
    /// All input tokens.
    pub input: u64,
    /// The cached part.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Cost in millionths of a dollar.
    pub cost_micros: Option<u64>,
    /// Tool calls: 1 for a tool call, 0 for a response.
    pub tool_calls: u64,
    /// Whether somebody said these figures.
    pub certainty: Certainty,
}
