//! What the model remembers: the record of one run as far as moves depend on it, and what each worker has in its memory.

use agentrun::domain::run::{AttemptState, RUN, RunEvent, RunStatus};
use agentrun::domain::step::{STEP, StepState};

use crate::task::STEPS;

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub run: RunStatus,
    pub fence: u8,
    pub attempt: u8,
    /// Of the newest attempt.
    pub tried: AttemptState,
    /// Attempts that failed or were lost.
    pub failed: u8,
    /// Executions of the agent whose usage was counted.
    pub used: u8,
    pub cancel_requested: bool,
    /// Who took the lease that stands in the record.
    pub holder: Option<usize>,
    pub lease_ran_out: bool,
    pub steps: [Step; STEPS],
    pub workers: [Worker; 2],
    pub left: Left,
}

/// How often fate may still strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub pauses: u8,
    pub crashes: u8,
    pub signals: u8,
    pub cancels: u8,
}

/// The record of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub state: StepState,
    pub attempt: u8,
    pub runs: u8,
    pub rounds: u8,
    pub sent_back: bool,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub life: Life,
    pub task: Doing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Alive,
    Stopped,
    Dead,
}

/// What a worker is at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    /// Nothing; it may look at the run.
    Idle,
    /// It has read the run and decided to claim it in this way.
    Saw { event: RunEvent, fence: u8 },
    /// It claimed the run.
    Holds(Memory),
}

/// What a holder believes: its own copy of the steps, which is the record's until somebody takes the run over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub fence: u8,
    pub attempt: u8,
    pub steps: [Step; STEPS],
    /// What an earlier holder left was looked at.
    pub settled: bool,
    /// It works under an attempt that the limit still allowed.
    pub may_work: bool,
    pub cancel_seen: bool,
}

impl State {
    /// A run that was just accepted.
    pub(crate) fn first(left: Left) -> Self {
        let step = Step { state: STEP.initial, attempt: 0, runs: 0, rounds: 0, sent_back: false };
        let worker = Worker { life: Life::Alive, task: Doing::Idle };
        Self {
            run: RUN.initial,
            fence: 0,
            attempt: 0,
            tried: AttemptState::Parked,
            failed: 0,
            used: 0,
            cancel_requested: false,
            holder: None,
            lease_ran_out: false,
            steps: [step; STEPS],
            workers: [worker.clone(), worker],
            left,
        }
    }

    /// Nothing goes on by itself, and nothing is left half done.
    pub(crate) fn is_at_rest(&self) -> bool {
        RUN.is_final(self.run) || matches!(self.run, RunStatus::Failed | RunStatus::DeadLetter)
    }
}
