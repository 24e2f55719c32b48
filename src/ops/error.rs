//! What can go wrong in a command. The code decides the exit; the words name the thing; hints are the caller's.

use crate::artifacts::ArtifactError;
use crate::config::ConfigError;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::RunId;
use crate::engine::error::EngineError;
use crate::git::GitError;
use crate::process::ProcessError;
use crate::store::StoreError;

/// A command that could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum OpsError {
    /// A file of the user was refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// While acting.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Something that has a code of its own, about a run where there is one.
    #[error("{}", .failure.message)]
    Failed {
        /// Code and words.
        failure: Failure,
        /// The run that it is about.
        run: Option<RunId>,
    },
}

macro_rules! through_engine {
    ($($error:ty),+) => {
        $(impl From<$error> for OpsError {
            fn from(error: $error) -> Self {
                Self::Engine(error.into())
            }
        })+
    };
}

through_engine!(StoreError, GitError, ArtifactError, ProcessError);

impl OpsError {
    /// A failure by code and words.
    pub fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed { failure: Failure::new(code, message), run: None }
    }

    /// A failure about a run.
    pub fn about(run: &RunId, code: Code, message: impl Into<String>) -> Self {
        Self::Failed { failure: Failure::new(code, message), run: Some(run.clone()) }
    }

    /// Its code.
    pub fn code(&self) -> Code {
        match self {
            Self::Config(e) => e.code(),
            Self::Engine(e) => e.code(),
            Self::Failed { failure, .. } => failure.code,
        }
    }

    /// The run that it is about.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Failed { run, .. } => run.as_ref(),
            Self::Engine(EngineError::CutOff { run, .. }) => Some(run),
            Self::Engine(EngineError::Store(
                StoreError::Held { run, .. } | StoreError::Fenced { run, .. } | StoreError::GroupBusy { run, .. },
            )) => Some(run),
            _ => None,
        }
    }

    /// What to do about it, where the place of the error knows better than the code: a git feature with its way out.
    pub fn way_out(&self) -> Option<String> {
        match self {
            Self::Engine(EngineError::Git(e)) => e.way_out().map(ToOwned::to_owned),
            Self::Engine(EngineError::Store(StoreError::NotInside { .. })) => Some(
                "only what the run's present attempt has started may ask; whoever is outside: agentrun status"
                    .to_owned(),
            ),
            Self::Config(e) if e.code() == Code::NotFound => Some(
                "name a task of tasks/*.yml by its id, or a file by its path; begin with: agentrun init".to_owned(),
            ),
            _ => None,
        }
    }

    /// The lines of a file that the error points at.
    pub fn excerpt(&self) -> Option<String> {
        match self {
            Self::Config(e) => e.excerpt(),
            _ => None,
        }
    }
}
