//! Who calls from inside a run: the run, the secret of its present attempt, and the state folder, all from the environment.
//! It opens nothing of the repository, for it may be called anywhere in a working copy.

use std::path::Path;

use super::error::OpsError;
use super::place::{Vars, text};
use crate::artifacts::home::Home;
use crate::config::env_vars;
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::RunId;
use crate::store::{By, Hold, Store};

/// A program inside a run.
pub struct Inside {
    /// The state folder.
    pub home: Home,
    /// The run.
    pub run: RunId,
    token: Sha256Hash,
}

impl Inside {
    /// From the environment; refused where this is no program of a run.
    pub fn find(vars: &Vars) -> Result<Self, OpsError> {
        let var = |name: &str| {
            let refused = || {
                let message = format!("this is no program of a run: {name} is not set");
                OpsError::failed(Code::Usage, message)
            };
            text(vars, name).ok_or_else(refused)
        };
        let run = RunId::recorded(var(env_vars::AGENTRUN_RUN_ID)?);
        let token = Sha256Hash::of(var(env_vars::AGENTRUN_TOKEN)?.as_bytes());
        let home = Home::open(Path::new(&var(env_vars::AGENTRUN_HOME)?))?;
        Ok(Self { home, run, token })
    }

    /// By what right it asks.
    pub fn by(&self) -> By<'_> {
        By::Inside { run: &self.run, token: self.token }
    }

    /// The database, for writing; nothing is created.
    pub fn store(&self) -> Result<Store, OpsError> {
        Store::open_existing(&self.home.database())?.ok_or_else(|| self.no_record())
    }

    /// The database, for looking alone.
    pub fn records(&self) -> Result<Store, OpsError> {
        Store::open_read_only(&self.home.database())?.ok_or_else(|| self.no_record())
    }

    /// The right under which the run is held; refused where the secret is not that of its present attempt.
    pub fn hold(&self, store: &Store) -> Result<Hold, OpsError> {
        Ok(store.inside(&self.run, &self.token)?)
    }

    fn no_record(&self) -> OpsError {
        OpsError::about(&self.run, Code::NotFound, format!("run {} is not in the database", self.run))
    }
}
