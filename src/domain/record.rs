//! The committed record as it is read back: what every view, every decision about going on and every report is made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::action::approval::ApprovalRecord;
use super::action::{ActionRecord, Contract};
use super::budget::{Budget, Usage};
use super::event::ChainHead;
use super::failure::Code;
use super::hash::context::ContextFile;
use super::hash::encoding::Sha256Hash;
use super::hash::fingerprint::Components;
use super::ids::{RequestId, RunId, StepKey, SupportCode, TaskId};
use super::outcome::ProcessEnd;
use super::policy::Policy;
use super::quantity::{BootId, BootMs, Millis, UtcMs};
use super::run::{AttemptState, OpenedBy, Phase, RunStatus};
use super::step::StepState;
use super::task::{Prompt, StepKind, TaskSpec};
use crate::words;

/// Everything that a run was given, copied at its start: what an agent changes later does not count (contract §5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInputs {
    /// The task.
    pub spec: TaskSpec,
    /// The policy.
    pub policy: Policy,
    /// SHA-256 of the policy's content.
    pub policy_sha256: Sha256Hash,
    /// The prompts by step key.
    pub prompts: BTreeMap<StepKey, Prompt>,
    /// The relevant files.
    pub files: Vec<ContextFile>,
    /// The rules.
    pub rules: Vec<ContextFile>,
    /// Dependency lock files at the base commit: path and SHA-256.
    pub lockfiles: BTreeMap<String, Sha256Hash>,
    /// Uncommitted changes of the checkout, and what was done about them.
    pub dirty: Dirty,
    /// What a reader of the report should know about the repository: submodules, LFS pointers.
    pub notes: Vec<String>,
    /// Limits that a person raised since: they hold whatever the files say.
    #[serde(default)]
    pub raised: Budget,
    /// What the command line chose.
    #[serde(default)]
    pub chosen: Chosen,
    /// The contracts by name, read where the policy was read.
    #[serde(default)]
    pub contracts: BTreeMap<String, Contract>,
}

/// What the command line of `start` chose beside the files: whoever goes on reads them in the same way (FR-D7).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chosen {
    /// The task as it was named; `None` where it was made from a prompt.
    pub task: Option<String>,
    /// The agent in place of the task's own.
    pub agent: Option<String>,
    /// The revision that the policy was read from; `None` is the checkout.
    pub policy_ref: Option<String>,
}

/// Uncommitted changes in the checkout at the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "dirty", rename_all = "snake_case")]
pub enum Dirty {
    /// There were none.
    #[default]
    Clean,
    /// They are part of the run (`--include-dirty`) and of its context hash; kept as a commit.
    Included {
        /// The files.
        files: Vec<ContextFile>,
    },
    /// They are no part of the run (`--ignore-dirty`).
    Ignored {
        /// The paths.
        paths: Vec<String>,
    },
}

/// A process, so that nobody else's is ever taken for it: pids come round again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot, as the kernel tells it.
    pub start_ticks: u64,
    /// The boot.
    pub boot_id: BootId,
}

/// Who may work on a run, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The process.
    pub holder: Identity,
    /// Until this reading of the boot clock of `holder.boot_id`.
    pub until: BootMs,
}

/// A run, without its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Its task.
    pub task: TaskId,
    /// Its number within the task.
    pub number: u32,
    /// The instance of its fingerprint: 1, and one more for each `--new`.
    pub instance: u32,
    /// Where it stands.
    pub status: RunStatus,
    /// Where in the delivery.
    pub phase: Option<Phase>,
    /// The newest attempt; 0 before the first.
    pub attempt: u32,
    /// The number of the last lease; every write of its holder names it (R-R7).
    pub fence: u64,
    /// What makes it this run.
    pub fingerprint: Sha256Hash,
    /// The fingerprint's components.
    pub components: Components,
    /// Its concurrency group.
    pub group: Option<String>,
    /// Why it stands where it stands.
    pub code: Option<Code>,
    /// The same in words.
    pub message: Option<String>,
    /// When it may be tried again.
    pub retry_at: Option<UtcMs>,
    /// The command that created it.
    pub request_id: RequestId,
    /// For people.
    pub support_code: SupportCode,
    /// The caller's idempotency key, hashed; the key itself is never stored (R-A16).
    pub key_hash: Option<Sha256Hash>,
    /// True once somebody asked for it to be canceled.
    pub cancel_requested: bool,
    /// The newest snapshot.
    pub snapshot: Option<String>,
    /// Accepted.
    pub created_at: UtcMs,
    /// First claimed.
    pub started_at: Option<UtcMs>,
    /// Came to rest.
    pub finished_at: Option<UtcMs>,
    /// The holder's last sign of life.
    pub heartbeat_at: Option<UtcMs>,
    /// Who holds it.
    pub lease: Option<Lease>,
}

/// One try of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// From 1.
    pub number: u32,
    /// Where it stands.
    pub state: AttemptState,
    /// Why.
    pub code: Option<Code>,
    /// Who opened it.
    pub opened_by: OpenedBy,
    /// Began.
    pub started_at: UtcMs,
    /// Ended.
    pub finished_at: Option<UtcMs>,
}

/// One stage of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its key.
    pub key: StepKey,
    /// Its kind.
    pub kind: StepKind,
    /// Where it stands.
    pub state: StepState,
    /// The attempt of its newest execution; 0 before the first.
    pub attempt: u32,
    /// How often it was executed over all attempts.
    pub runs: u32,
    /// How often its agent was sent back because of it (QA steps).
    pub rounds: u32,
    /// True from the moment its agent was sent back until it is checked again. A flag, not a comparison of times: the wall
    /// clock may jump in between (F40).
    pub sent_back: bool,
    /// Why.
    pub code: Option<Code>,
    /// The same in words.
    pub message: Option<String>,
    /// Began (newest execution).
    pub started_at: Option<UtcMs>,
    /// Ended (newest execution).
    pub finished_at: Option<UtcMs>,
}

/// One time that a step was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionRecord {
    /// The step.
    pub step: StepKey,
    /// From 1, over all attempts of the run.
    pub number: u32,
    /// The attempt.
    pub attempt: u32,
    /// The child process, once it is known.
    pub child: Option<Identity>,
    /// The agent's conversation, once it is known.
    pub session: Option<String>,
    /// The model, where the agent says it.
    pub model: Option<String>,
    /// How the process ended; `None` while it runs, or when nobody saw it.
    pub end: Option<ProcessEnd>,
    /// The agent's last word.
    pub result: Option<String>,
    /// Time in which it was active.
    pub active: Millis,
    /// How many of its tokens are an estimate.
    pub estimated: u64,
    /// Began.
    pub started_at: UtcMs,
    /// Ended.
    pub finished_at: Option<UtcMs>,
}

words! {
    /// What kind of file an artifact is.
    pub enum ArtifactType {
        /// A report for people.
        Report = "REPORT",
        /// The run's JSON.
        Result = "RESULT",
        /// Test results.
        Junit = "JUNIT",
        /// The run's changes.
        Patch = "PATCH",
        /// Changes that a failed or cut attempt left.
        SavedWork = "SAVED_WORK",
        /// The list of relevant files.
        Context = "CONTEXT",
        /// The agent's last word.
        Message = "MESSAGE",
        /// A file that the task asked to keep.
        File = "FILE",
    }
}

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRecord {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ArtifactType,
    /// Relative to the run's folder; never absolute.
    pub path: String,
    /// Its content.
    pub sha256: Sha256Hash,
    /// Its size in bytes.
    pub size: u64,
    /// The step that made it.
    pub step: Option<StepKey>,
    /// The attempt that made it.
    pub attempt: u32,
}

/// What is recorded with the commit that ends a succeeded step (R-S3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// CONTEXT_PREPARED, CODE_GENERATED, QA_PASSED, or the step's key.
    pub name: String,
    /// The step.
    pub step: StepKey,
    /// The attempt.
    pub attempt: u32,
    /// The snapshot, where one was taken.
    pub commit: Option<String>,
    /// The policy under which it was reached.
    pub policy_version: String,
    /// The artifacts recorded with it: path and content.
    pub artifacts: BTreeMap<String, Sha256Hash>,
    /// When.
    pub at: UtcMs,
}

impl RunRecord {
    /// Whether somebody has claimed it or decided about it since it was read as `earlier`.
    pub fn is_other_than(&self, earlier: &Self) -> bool {
        (self.fence, self.status) != (earlier.fence, earlier.status)
    }
}

impl RunInputs {
    /// The limits that hold: the policy's and the task's, the stricter of both.
    pub fn budget(&self) -> Budget {
        let (policy, task) = (&self.policy.budgets, &self.spec.budget);
        Budget { attempt: policy.attempt.stricter(&task.attempt), task: policy.task.stricter(&task.task) }
    }
}

/// A run with everything below it, read in one consistent snapshot of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// The run.
    pub run: RunRecord,
    /// What it was given.
    pub inputs: RunInputs,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptRecord>,
    /// Its steps in the order of the task.
    pub steps: Vec<StepRecord>,
    /// Their executions, oldest first.
    pub executions: Vec<ExecutionRecord>,
    /// Its artifacts.
    pub artifacts: Vec<ArtifactRecord>,
    /// Its checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointRecord>,
    /// What the run used.
    pub usage: Usage,
    /// What its newest attempt used.
    pub attempt_usage: Usage,
    /// What the task used since its last verified success, all runs together.
    pub task_usage: Usage,
    /// Attempts of the task that are under way, those of its other runs too: each is set aside from the limit of attempts.
    pub open_attempts: u64,
    /// The side effects that it wanted, oldest first.
    pub actions: Vec<ActionRecord>,
    /// The approvals that it asked for, oldest first.
    pub approvals: Vec<ApprovalRecord>,
    /// The end of its audit chain.
    pub chain: ChainHead,
}

/// A run in a list: without its inputs, but with what a status line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub run: RunRecord,
    /// Title of the task.
    pub title: Option<String>,
    /// The step that is being executed, or the one that ended last with an error.
    pub step: Option<StepKey>,
    /// What the run used.
    pub usage: Usage,
}

impl RunView {
    /// Whether the newest attempt took the run from a holder that was lost.
    pub fn was_taken_over(&self) -> bool {
        self.attempts.last().is_some_and(|attempt| attempt.opened_by == OpenedBy::Takeover)
    }

    /// Which execution of its step this one is within its attempt, from 1: names its files.
    pub fn nth(&self, execution: &ExecutionRecord) -> u32 {
        let same = |e: &&ExecutionRecord| e.step == execution.step && e.attempt == execution.attempt;
        let nth = self.executions.iter().filter(same).filter(|e| e.number <= execution.number).count();
        u32::try_from(nth).unwrap_or(u32::MAX)
    }
}
