//! LAYER 1: child processes. One place starts them, one place waits for them, one place stops them.
//!
//! - [`spec`] says what is to be started, [`event`] what is told about it.
//! - [`supervisor`] is the handle; its one thread starts (`launch`), waits for (`roster`), reads (`capture`), stops
//!   (`ladder`) and cleans up after (`sweep`) each child (`tend`).
//! - [`leftovers`] ends what a killed agentrun left behind; [`identity`] makes sure that it is not somebody else.
//! - [`signals`] listens to whoever stops agentrun itself and hardens its process.
//! - [`locks`] tells who has a file in use.
//! - [`environment`] and [`lookup`] are what must be known before a spec can be made; [`redact`] keeps secrets out.
//!
//! Nothing here knows what an agent, a step or a run is. Linux only: the guarantees are the kernel's.

mod aside;
mod capture;
pub mod environment;
pub mod event;
pub mod identity;
mod ladder;
mod launch;
pub mod leftovers;
mod lines;
pub mod locks;
pub mod lookup;
mod probe;
mod proc_table;
pub mod redact;
mod roster;
pub mod signals;
pub mod spec;
mod streams;
pub mod supervisor;
mod sweep;
mod tend;
mod watch;

pub use aside::{start_detached, tell};
pub use event::{Activity, ChildEvent, ChildId, Ending, Haste, LogFailure, StartProblem, Status, StopReport};
pub use probe::{Probe, probe};
pub use supervisor::Supervisor;

use std::io;

/// The variable by which a process is known to belong to a child, also after it left its group, session and parent.
///
/// Its value must be unique in the world, not only within one repository: leftovers are found by it in the whole process
/// table, and two repositories may both have a `run_182_001`.
pub const MARKER: &str = "AGENTRUN_MARKER";

/// Why this room could not do its work. A child that fails to start is no error but an [`Ending`].
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The thread, its runtime or its signal handler could not be made: a limit of the system.
    #[error("cannot start the thread that supervises child processes: {0}")]
    Supervisor(#[source] io::Error),
    /// The listener for stop signals could not be made.
    #[error("cannot listen for stop signals: {0}")]
    Signals(#[source] io::Error),
    /// The process could not be closed to others.
    #[error("cannot protect the memory of this process: {0}")]
    Harden(#[source] io::Error),
    /// The kernel does not tell about processes.
    #[error("cannot read {path}: {source}")]
    Proc {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ProcessError {
    /// The code of the catalogue.
    pub fn code(&self) -> crate::domain::failure::Code {
        use crate::domain::failure::Code;
        match self {
            Self::Supervisor(_) | Self::Signals(_) => Code::EnvLimit,
            Self::Harden(_) | Self::Proc { .. } => Code::EnvUnsupported,
        }
    }
}
