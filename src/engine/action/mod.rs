//! Side effects, carried out: one committed move at a time, in the order that the domain gives (R-A1). What was sent and not
//! answered is unknown until it is known.
//!
//! - `want` makes a request of a step or of somebody's wish, asks the policy, and records the intent
//! - `subject` looks at everything that an approval covers
//! - `health` asks an address whether it is well
//! - `admission` leaves a provider alone that fails too often
//! - `claim` takes the right to act; `carry` brings an action to rest by `call`s; `errand` does so on a thread of its own, until a `stop`
//! - `mailbox` finds what programs inside the run want

mod admission;
mod call;
pub mod carry;
pub mod claim;
pub mod errand;
pub mod health;
pub mod mailbox;
pub mod stop;
pub mod subject;
pub mod want;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::EngineError;
use super::host::{Host, Who};
use crate::artifacts::home::Home;
use crate::domain::ids::RunId;
use crate::domain::quantity::Millis;
use crate::domain::record::RunInputs;
use crate::domain::task::{CommandLine, StepBody, StepSpec, WorkspaceKind};
use crate::process::Supervisor;

/// What carrying an action out needs of the machine. Unlike [`Host`] it can be shared with a thread: it has no repository.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// The state folder.
    pub home: &'a Home,
    /// The one that starts and stops children.
    pub supervisor: &'a Supervisor,
    /// agentrun's own environment: adapters take from it what contracts and policy name.
    pub vars: &'a BTreeMap<OsString, OsString>,
    /// The root of the user's checkout: commands of contracts stand there.
    pub root: &'a Path,
    /// Who asked, and by which command.
    pub who: &'a Who,
}

impl<'a> Outside<'a> {
    /// The same machine, without the repository.
    pub fn of(host: &'a Host<'_>) -> Self {
        Self { home: host.home, supervisor: host.supervisor, vars: host.vars, root: host.repo.root(), who: &host.who }
    }
}

/// The commands of a step that carries its action out by itself, instead of what a contract says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCommands {
    /// Carries it out.
    pub run: Option<CommandLine>,
    /// Says what became of it.
    pub status: Option<CommandLine>,
    /// Environment of the step's own.
    pub env: BTreeMap<String, String>,
}

impl OwnCommands {
    /// How long after a send an empty answer of a status command begins to mean something, where no contract says.
    pub const SETTLE: Millis = Millis(10_000);

    /// Those of a step.
    pub fn of(step: &StepSpec) -> Self {
        let (run, status) = match &step.body {
            StepBody::Deploy(deploy) => (Some(deploy.run.clone()), deploy.status.clone()),
            StepBody::Action(action) => (action.run.clone(), action.status.clone()),
            _ => (None, None),
        };
        Self { run, status, env: step.env.clone() }
    }
}

/// The folder in which the commands of a run's steps stand.
pub fn work_dir(home: &Home, root: &Path, (run, inputs): (&RunId, &RunInputs)) -> Result<PathBuf, EngineError> {
    match inputs.spec.workspace {
        WorkspaceKind::Isolated => Ok(home.work_dir(run)?),
        WorkspaceKind::InPlace => Ok(root.to_path_buf()),
    }
}
