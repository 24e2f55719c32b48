//! What a run needs of the machine it runs on, put together once by the caller, and the inbox through which everything
//! reaches the engine thread.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::action::carry::Carried;
use super::action::errand::For;
use super::error::EngineError;
use crate::artifacts::home::Home;
use crate::domain::failure::Failure;
use crate::domain::ids::{ActionId, RequestId, StepKey};
use crate::domain::quantity::{BootId, Now, UtcMs};
use crate::git::Repo;
use crate::process::signals::StopSignal;
use crate::process::{ChildEvent, Supervisor};
use crate::store::{Context, StoreError};

/// What a run needs of its machine.
pub struct Host<'a> {
    /// The user's repository.
    pub repo: &'a Repo,
    /// The state folder.
    pub home: &'a Home,
    /// The one that starts and stops children.
    pub supervisor: &'a Supervisor,
    /// agentrun's own environment, from which children get what they may see.
    pub vars: &'a BTreeMap<OsString, OsString>,
    /// agentrun's own program; plays recordings.
    pub own_program: &'a Path,
    /// Who asked, and by which command.
    pub who: Who,
}

/// Who asked, and by which command.
#[derive(Debug, Clone)]
pub struct Who {
    /// The system user.
    pub actor: String,
    /// The command.
    pub request_id: RequestId,
}

impl Who {
    /// The context of a write at this moment.
    pub fn context(&self) -> Context {
        Context { now: now(), actor: self.actor.clone(), request_id: self.request_id.clone() }
    }
}

/// The present. A machine that does not tell its boot id has told it before: nothing runs on one that never did.
pub fn now() -> Now {
    #[cfg(feature = "test-fakes")]
    if let Some(simulated) = SIMULATED.with_borrow(Clone::clone) {
        return simulated;
    }
    crate::process::identity::now().unwrap_or_else(|_| Now {
        utc: UtcMs::default(),
        boot: crate::process::identity::boot_ms(),
        boot_id: BootId(String::new()),
    })
}

#[cfg(feature = "test-fakes")]
thread_local! {
    static SIMULATED: std::cell::RefCell<Option<Now>> = const { std::cell::RefCell::new(None) };
}

/// From here on the present of this thread is what a simulation says. Not part of the program.
#[cfg(feature = "test-fakes")]
pub fn simulate(present: Now) {
    SIMULATED.set(Some(present));
}

/// Something that the engine thread must react to.
#[derive(Debug)]
pub enum Message {
    /// From the child of a step.
    Child(StepKey, ChildEvent),
    /// An action has come to rest.
    Carried(For, Box<Result<Carried, EngineError>>),
    /// A program inside the run wants this action.
    Wished(ActionId),
    /// A deployment was looked at: nothing is wrong with it, or this.
    Verified(StepKey, Option<Failure>),
    /// agentrun was told to stop.
    Signal(StopSignal),
    /// Another process has taken the run over.
    LeaseLost,
    /// Somebody asked for the run to be canceled.
    CancelRequested,
    /// Somebody set the wall clock.
    ClockSet {
        /// By so many milliseconds; negative for back.
        by: i64,
    },
    /// No sign of life could be recorded for nearly a whole lease, for this reason: soon others may take the run.
    RecordFails(StoreError),
}

/// The one inbox of an engine thread. Bounded: a flood of output slows the flooding child down, not the memory of
/// agentrun up.
pub struct Inbox {
    /// For everybody who has something to tell.
    pub sender: SyncSender<Message>,
    /// For the engine thread.
    pub receiver: Receiver<Message>,
}

impl Inbox {
    /// An empty one.
    pub fn new() -> Self {
        let (sender, receiver) = sync_channel(32);
        Self { sender, receiver }
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}
