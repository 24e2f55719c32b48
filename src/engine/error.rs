//! What can go wrong while acting. Each names its code; what the code means for the run is the domain's business.

use crate::agents::AgentError;
use crate::artifacts::ArtifactError;
use crate::domain::failure::{Code, Exit, Failure};
use crate::domain::ids::RunId;
use crate::git::GitError;
use crate::process::ProcessError;
use crate::store::StoreError;

/// A failure of agentrun's own work, as opposed to a failed step, which is a fact to record.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The record.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The repository or the working copy.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Kept files.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// Child processes.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// An agent that cannot be started as it is described.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A prompt or condition that cannot be filled in.
    #[error(transparent)]
    Template(#[from] crate::domain::template::TemplateError),
    /// The machine failed under a run, which was stopped for it.
    #[error("{}", .failure.message)]
    CutOff {
        /// The run.
        run: RunId,
        /// Why, and how it stands.
        failure: Failure,
    },
    /// Something that has a code of its own.
    #[error("{}", .0.message)]
    Failed(Failure),
}

impl EngineError {
    /// A failure by code and words.
    pub fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed(Failure::new(code, message))
    }

    /// Its code.
    pub fn code(&self) -> Code {
        match self {
            Self::Store(e) => e.code(),
            Self::Git(e) => e.code(),
            Self::Artifact(e) => e.code(),
            Self::Process(e) => e.code(),
            Self::Agent(e) => e.code(),
            Self::Template(_) => Code::ConfigInvalid,
            Self::CutOff { failure, .. } | Self::Failed(failure) => failure.code,
        }
    }

    /// Whether it says nothing about the run: its record cannot be written, or the machine has no room for it. Nothing is
    /// recorded as failed for such a reason (T1).
    pub fn is_no_verdict(&self) -> bool {
        let code = self.code();
        matches!(self, Self::Store(_)) || code == Code::EnvLimit || code.entry().exit == Exit::Storage
    }

    /// As a failure to record.
    pub fn failure(&self) -> Failure {
        match self {
            Self::CutOff { failure, .. } | Self::Failed(failure) => failure.clone(),
            other => Failure::new(other.code(), other.to_string()),
        }
    }
}
