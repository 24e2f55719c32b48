//! Where a command runs: the repository, its state folder, its database, and the environment it was called in.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::OpsError;
use crate::artifacts::file_system::FileSystem;
use crate::artifacts::home::{HOME_NAME, Home};
use crate::config::env_vars;
use crate::engine::host::{Host, Who};
use crate::git::{Repo, UserGit};
use crate::process::Supervisor;
use crate::store::Store;

/// Environment variables, as they were when the program began.
pub type Vars = BTreeMap<OsString, OsString>;

/// A repository and agentrun's state for it.
pub struct Place {
    /// The user's repository.
    pub repo: Repo,
    /// The environment.
    pub vars: Vars,
    home: PathBuf,
}

impl Place {
    /// The repository that contains `dir`, and the state folder of its main worktree, or the one that `AGENTRUN_HOME` names.
    pub fn find(dir: &Path, vars: Vars) -> Result<Self, OpsError> {
        let user = UserGit::from_env(|name| vars.get(&OsString::from(name)).cloned());
        let repo = Repo::discover_for(dir, &user)?;
        let home = match text(&vars, env_vars::AGENTRUN_HOME) {
            Some(path) => dir.join(path),
            None => repo.main_root().join(HOME_NAME),
        };
        Ok(Self { repo, vars, home })
    }

    /// The path of the state folder, whether it exists or not.
    pub fn home_path(&self) -> &Path {
        &self.home
    }

    /// The state folder, made if there is none.
    pub fn home(&self) -> Result<Home, OpsError> {
        self.file_system()?.check(&self.home)?;
        Ok(Home::open_or_create(&self.home)?)
    }

    /// The state folder, if there is one.
    pub fn existing_home(&self) -> Result<Option<Home>, OpsError> {
        if !self.home.exists() {
            return Ok(None);
        }
        self.file_system()?.check(&self.home)?;
        Ok(Some(Home::open(&self.home)?))
    }

    /// The kind of file system that the state folder lies on, or would.
    pub fn file_system(&self) -> Result<FileSystem, OpsError> {
        #[cfg(feature = "test-fakes")]
        if let Some(number) = self.var("AGENTRUN_TEST_FILE_SYSTEM") {
            return Ok(FileSystem(number.parse().unwrap_or_default()));
        }
        Ok(FileSystem::of(&self.home)?)
    }

    /// The database, for writing.
    pub fn store(&self) -> Result<Store, OpsError> {
        Ok(Store::open(&self.home()?.database())?)
    }

    /// The database, for reading only: nothing is created, nothing is written.
    pub fn records(&self) -> Result<Option<Store>, OpsError> {
        match self.existing_home()? {
            Some(home) => Ok(Store::open_read_only(&home.database())?),
            None => Ok(None),
        }
    }

    /// What a run needs of this machine: for whoever asked, and agentrun's own program.
    pub fn host<'a>(
        &'a self,
        home: &'a Home,
        supervisor: &'a Supervisor,
        (who, own_program): (&Who, &'a Path),
    ) -> Host<'a> {
        Host { repo: &self.repo, home, supervisor, vars: &self.vars, own_program, who: who.clone() }
    }

    /// A variable as text, if it is set and not empty.
    pub fn var(&self, name: &str) -> Option<String> {
        text(&self.vars, name)
    }
}

/// A variable as text, if it is set and not empty.
pub fn text(vars: &Vars, name: &str) -> Option<String> {
    vars.get(&OsString::from(name)).and_then(|v| v.to_str()).filter(|v| !v.is_empty()).map(ToOwned::to_owned)
}
