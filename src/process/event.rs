//! What is told about a child while it runs and when it ended: plain values. What they mean for a step is decided
//! elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::quantity::BootMs;
use crate::domain::record::Identity;

/// Names a child towards its supervisor. Chosen by the caller, unique among the children of one [`super::Supervisor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildId(pub u64);

/// How fast a child has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// The ladder: the polite signal, grace, SIGTERM, grace, SIGKILL.
    Polite,
    /// SIGKILL to the whole tree at once.
    Now,
}

/// Something that happened to a child. The last one is always [`ChildEvent::Ended`], and it always comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildEvent {
    /// It runs, and this is who it is. Told at once of what dies with its parent; of other children only if they stay for a
    /// moment.
    Started(Identity),
    /// A complete line of standard output, without its newline. The last one may lack it.
    Line(Vec<u8>),
    /// A line that was too long to be handed over; it is in the file.
    LineTooLong {
        /// Its length in bytes, without the newline.
        bytes: u64,
    },
    /// Something changed in a folder that is watched.
    FilesChanged,
    /// It is over: nothing of it runs any more, apart from `survivors`.
    Ended(Ending),
}

/// How a child ended. When this is told, everything it left behind is gone as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// How the child itself ended.
    pub status: Status,
    /// What was done to stop it, when it was stopped.
    pub stop: Option<StopReport>,
    /// True when somebody outside its tree still held its output open two seconds after everything was over.
    pub leaked: bool,
    /// Processes that it left behind and that were killed.
    pub orphans_killed: u32,
    /// Processes that could not be killed (another user's, or stuck in the kernel).
    pub survivors: Vec<i32>,
    /// Bytes it wrote to standard output.
    pub stdout_bytes: u64,
    /// Bytes it wrote to standard error.
    pub stderr_bytes: u64,
    /// True when a log file holds less than was written.
    pub truncated: bool,
    /// The first failure to write a log file, after which that file got nothing more.
    pub log_failure: Option<LogFailure>,
    /// The last 16 KiB of standard output, redacted.
    pub stdout_tail: Vec<u8>,
    /// The last 16 KiB of standard error, redacted.
    pub stderr_tail: Vec<u8>,
}

/// How the child itself ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// By itself, with a code.
    Exited(i32),
    /// By a signal, ours or a foreign one: [`Ending::stop`] tells.
    Signalled(i32),
    /// Nobody can tell: its status was lost, or the kernel would not end it (then it is among the survivors).
    Vanished,
    /// It never ran.
    FailedToStart {
        /// The operating system's words, naming the program.
        message: String,
        /// What kind of failure.
        problem: StartProblem,
    },
}

/// Why a child did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartProblem {
    /// No such program (or its interpreter, or its folder).
    NotFound,
    /// It is there, but may not be executed or is no program.
    NotExecutable,
    /// The system has no process, file descriptor or memory left.
    Limit,
    /// It was started, could not be listened to, and was killed at once: the one problem after which it may have done something.
    Unwatched,
    /// Anything else.
    Other,
}

/// What was done to stop a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopReport {
    /// The polite signal was sent.
    pub polite_sent: bool,
    /// More than the polite signal was needed (or asked for).
    pub escalated: bool,
    /// SIGKILL was sent.
    pub killed: bool,
}

/// A log file could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFailure {
    /// True when the disk, the quota or the allowed file size is exhausted.
    pub no_space: bool,
    /// The operating system's words, naming the file.
    pub message: String,
}

/// When a child last gave a sign of life on one of its two streams.
#[derive(Debug, Clone, Default)]
pub struct Activity(Arc<AtomicU64>);

impl Activity {
    /// The boot clock at its last byte; `None` before the first one.
    pub fn last(&self) -> Option<BootMs> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(BootMs(ms)),
        }
    }

    /// Notes a byte.
    pub(super) fn note(&self, at: BootMs) {
        self.0.store(at.0.max(1), Ordering::Relaxed);
    }
}

impl Ending {
    /// The end of a child that never began.
    pub(super) fn not_started(problem: StartProblem, message: String) -> Self {
        Self {
            status: Status::FailedToStart { message, problem },
            stop: None,
            leaked: false,
            orphans_killed: 0,
            survivors: Vec::new(),
            stdout_bytes: 0,
            stderr_bytes: 0,
            truncated: false,
            log_failure: None,
            stdout_tail: Vec::new(),
            stderr_tail: Vec::new(),
        }
    }
}
