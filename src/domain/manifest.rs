//! The resume manifest (R-S4): what a person or program outside the database sees of how far a run got. The database
//! wins; the manifest proves that it is not older than what was once said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::ChainHead;
use super::hash::encoding::Sha256Hash;
use super::ids::{RunId, StepKey, TaskId};
use super::record::RunView;
use super::run::RunStatus;
use super::step::StepState;

/// The version of the manifest's own format.
pub const MANIFEST_VERSION: u32 = 1;

/// The file `manifest.yml` of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// [`MANIFEST_VERSION`].
    pub manifest_version: u32,
    /// The last event it shows.
    pub generation: u64,
    /// The lease under which it was written.
    pub fence: u64,
    /// The end of the audit chain at `generation`.
    pub audit_head: Sha256Hash,
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// Its status.
    pub status: RunStatus,
    /// Its attempt.
    pub attempt: u32,
    /// SHA-256 of the task's meaning.
    pub task_spec_hash: Sha256Hash,
    /// The pinned base.
    pub base_commit: String,
    /// The prompt.
    pub prompt_version: Option<String>,
    /// The policy.
    pub policy_version: String,
    /// The context.
    pub context_hash: Sha256Hash,
    /// The user's word.
    pub mode: String,
    /// Lock files at the base commit.
    pub lockfiles: BTreeMap<String, Sha256Hash>,
    /// The release that the run made.
    pub release: Option<String>,
    /// The environment it deploys to.
    pub environment: Option<String>,
    /// Steps that succeeded.
    pub completed_steps: Vec<StepKey>,
    /// The step that comes next.
    pub next_step: Option<StepKey>,
    /// The newest snapshot.
    pub snapshot: Option<String>,
    /// Kept files: path and content.
    pub artifacts: BTreeMap<String, Sha256Hash>,
    /// Approvals that the run holds.
    pub approvals: Vec<String>,
}

impl Manifest {
    /// The manifest that shows a run as it is recorded.
    pub fn of(view: &RunView) -> Self {
        let done = |s: &&super::record::StepRecord| s.state == StepState::Succeeded;
        let open = |s: &&super::record::StepRecord| !matches!(s.state, StepState::Succeeded | StepState::Skipped);
        Self {
            manifest_version: MANIFEST_VERSION,
            generation: view.chain.count,
            fence: view.run.fence,
            audit_head: view.chain.head,
            run_id: view.run.id.clone(),
            task_id: view.run.task.clone(),
            status: view.run.status,
            attempt: view.run.attempt,
            task_spec_hash: Sha256Hash::of(view.inputs.spec.meaning().as_bytes()),
            base_commit: view.run.components.base_commit.clone(),
            prompt_version: view.run.components.prompt_version.clone(),
            policy_version: view.run.components.policy_version.clone(),
            context_hash: view.run.components.context_hash,
            mode: view.run.components.mode.clone(),
            lockfiles: view.inputs.lockfiles.clone(),
            release: None,
            environment: None,
            completed_steps: view.steps.iter().filter(done).map(|s| s.key.clone()).collect(),
            next_step: view.steps.iter().find(open).map(|s| s.key.clone()),
            snapshot: view.run.snapshot.clone(),
            artifacts: view.artifacts.iter().map(|a| (a.path.clone(), a.sha256)).collect(),
            approvals: Vec::new(),
        }
    }

    /// Where the audit chain stood when this was written.
    pub fn anchor(&self) -> ChainHead {
        ChainHead { count: self.generation, head: self.audit_head }
    }
}
