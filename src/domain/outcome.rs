//! How things ended: three facts kept apart (contract §9): how the process ended, what verification said, and whether a
//! caller should treat it as success.

use serde::{Deserialize, Serialize};

use crate::words;

words! {
    /// The layers that have a clock (R-R5). An inner one is always shorter than an outer one.
    pub enum TimeoutLayer {
        /// One call of agentrun's own.
        Call = "call",
        /// No first byte of the agent.
        FirstOutput = "first_output",
        /// Silence in the middle of work.
        Idle = "idle",
        /// The result is there, the process stays.
        Exit = "exit",
        /// One step.
        Step = "step",
        /// One attempt.
        Attempt = "attempt",
        /// The whole run.
        Run = "run",
    }
}

/// How a child process ended: one enum, told apart by who ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum ProcessEnd {
    /// By itself, with a code.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// By a signal that agentrun did not send.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// Stopped by agentrun: a clock ran out.
    TimedOut {
        /// Which clock.
        layer: TimeoutLayer,
    },
    /// Stopped by agentrun: over a limit.
    OverBudget,
    /// Stopped by agentrun: for good.
    Canceled,
    /// Stopped by agentrun, because a signal stopped agentrun itself.
    Interrupted,
    /// It never ran.
    FailedToStart {
        /// The operating system's words.
        message: String,
    },
    /// Stopped by agentrun: another process has taken the run over.
    LeaseLost,
    /// Nobody saw its end: agentrun was gone.
    Vanished,
}

impl ProcessEnd {
    /// True when something from outside ended it in the middle of its work, so that its last words may be missing.
    pub fn was_cut(&self) -> bool {
        !matches!(self, Self::Exited { .. } | Self::FailedToStart { .. })
    }
}

words! {
    /// How the agent's process ended, as the JSON of a run says it.
    pub enum ProcessFact {
        /// By itself.
        Exited = "exited",
        /// By a foreign signal.
        Signalled = "signalled",
        /// A clock ran out.
        TimedOut = "timed_out",
        /// Over a limit.
        OverBudget = "over_budget",
        /// Canceled.
        Canceled = "canceled",
        /// agentrun was interrupted.
        Interrupted = "interrupted",
        /// It never ran.
        FailedToStart = "failed_to_start",
        /// Fenced off.
        LeaseLost = "lease_lost",
        /// Nobody saw its end.
        Vanished = "vanished",
        /// The run has not come to a process, or is still in it.
        None = "none",
    }
}

words! {
    /// What the checks said.
    pub enum Verification {
        /// Every required check is green.
        Passed = "passed",
        /// A check is red.
        Failed = "failed",
        /// The task has no check.
        None = "none",
        /// It could not be told; not success.
        Unknown = "unknown",
    }
}

/// The three facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the agent's (or last) process ended.
    pub process: ProcessFact,
    /// What the checks said.
    pub verification: Verification,
    /// Whether a caller should treat the run as success.
    pub success: bool,
}

impl ProcessEnd {
    /// The short word for it.
    pub fn fact(&self) -> ProcessFact {
        match self {
            Self::Exited { .. } => ProcessFact::Exited,
            Self::Signalled { .. } => ProcessFact::Signalled,
            Self::TimedOut { .. } => ProcessFact::TimedOut,
            Self::OverBudget => ProcessFact::OverBudget,
            Self::Canceled => ProcessFact::Canceled,
            Self::Interrupted => ProcessFact::Interrupted,
            Self::FailedToStart { .. } => ProcessFact::FailedToStart,
            Self::LeaseLost => ProcessFact::LeaseLost,
            Self::Vanished => ProcessFact::Vanished,
        }
    }

    /// True for exit code 0.
    pub fn is_clean(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "ended with exit code {code}"),
            Self::Signalled { signal } => write!(f, "was killed by signal {signal}"),
            Self::TimedOut { layer } => write!(f, "was stopped by the {layer} timeout"),
            Self::OverBudget => f.write_str("was stopped at a limit"),
            Self::Canceled => f.write_str("was canceled"),
            Self::Interrupted => f.write_str("was interrupted"),
            Self::FailedToStart { message } => write!(f, "could not be started: {message}"),
            Self::LeaseLost => f.write_str("was stopped because another process took the run over"),
            Self::Vanished => f.write_str("ended unseen"),
        }
    }
}
