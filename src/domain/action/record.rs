//! Side effects as they stand in the database. No request, no secret: hashes and references (R-A16). The request itself lies
//! in the folder of the run that first wanted it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::answer::Reading;
use super::contract::{Contract, Environment};
use super::state::{ActionState, DeploymentState};
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ApprovalId, ReleaseId, RequestId, RunId, StepKey};
use crate::domain::policy::ActionType;
use crate::domain::quantity::UtcMs;
use crate::domain::record::Lease;
use crate::words;

/// One intended side effect (R-M9). It belongs to no run alone: whoever wants the same is led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// The operation id: agentrun's own, a UUID v7.
    pub id: ActionId,
    /// The type.
    pub kind: ActionType,
    /// What it reaches.
    pub target: String,
    /// On whose account.
    pub account: Option<String>,
    /// Live or test.
    pub environment: Environment,
    /// The idempotency key: unique in its tenant. Sent to the other side; shown in the local JSON and in `action show` alone.
    pub key: String,
    /// The hash of the normalized request.
    pub request_hash: Sha256Hash,
    /// The version of the normal form under which that hash was made.
    pub normal_version: u32,
    /// Where the request lies: in the state folder, relative to it.
    pub request_file: String,
    /// Where it stands.
    pub state: ActionState,
    /// Why, if it did not go well.
    pub code: Option<Code>,
    /// The same in words.
    pub message: Option<String>,
    /// The run that first wanted it.
    pub run: RunId,
    /// The step of that run; `None` where an agent asked for it.
    pub step: Option<StepKey>,
    /// The contract as it was when it was first wanted.
    pub contract: Contract,
    /// True when it cannot be undone.
    pub irreversible: bool,
    /// The approval that counts for it: open or approved, or the one that was used.
    pub approval: Option<ApprovalId>,
    /// What an approval must cover: [`super::approval::Subject::digest`] at the last look.
    pub digest: Option<Sha256Hash>,
    /// How often it was sent.
    pub tries: u32,
    /// The other side's name of it.
    pub reference: Option<String>,
    /// What the other side said, in words.
    pub summary: Option<String>,
    /// The release, for deploy and rollback.
    pub release: Option<ReleaseId>,
    /// The action that this one corrects.
    pub corrects: Option<ActionId>,
    /// The command that first wanted it.
    pub request_id: RequestId,
    /// First wanted.
    pub created_at: UtcMs,
    /// First sent.
    pub started_at: Option<UtcMs>,
    /// Last sent.
    pub sent_at: Option<UtcMs>,
    /// Settled.
    pub finished_at: Option<UtcMs>,
    /// When it may be tried again, or is worth asking about.
    pub retry_at: Option<UtcMs>,
    /// Until when it must be settled, or else it is unknown or given up.
    pub deadline: UtcMs,
    /// From then on the key is expired; `None` is never (a deployment's lives as long as its release).
    pub expires_at: Option<UtcMs>,
    /// From when an empty answer to a query is evidence.
    pub query_from: Option<UtcMs>,
    /// Who must look at it, once nothing can be done without a person.
    pub owner: Option<String>,
    /// Until when.
    pub due: Option<UtcMs>,
    /// Why a person must look; `None` while agentrun can go on by itself.
    pub review: Option<String>,
    /// The last fact that is confirmed, in words.
    pub last_fact: String,
    /// The number of the last right to send or settle it.
    pub fence: u64,
    /// Who has that right, and until when.
    pub lease: Option<Lease>,
}

/// One reading of what became of an action: each a row, with the account and environment that were asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadingRecord {
    /// When.
    pub at: UtcMs,
    /// What was seen.
    pub reading: Reading,
    /// `query`, `late` (the answer that a fenced sender got), `webhook`, `person`.
    pub source: String,
    /// Which send it is about.
    pub tries: u32,
}

/// Who wanted an action, and when: tracing, never identity (R-A2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedBy {
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: u32,
    /// The step.
    pub step: Option<StepKey>,
    /// The agent's id of its tool call.
    pub call: Option<String>,
    /// The agent's conversation.
    pub conversation: Option<String>,
    /// The command.
    pub request_id: RequestId,
}

words! {
    /// What whoever wanted an action was told.
    pub enum WantedAnswer {
        /// It was not there: it is recorded.
        New = "new",
        /// It was there: this is its record.
        Known = "known",
        /// It had been withdrawn, and is wanted again.
        Renewed = "renewed",
        /// Its key stands for another request.
        Conflict = "conflict",
        /// Its key has expired.
        Expired = "expired",
    }
}

/// One wish for an action, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRecord {
    /// Who.
    pub by: WantedBy,
    /// When.
    pub at: UtcMs,
    /// What they were told.
    pub answer: WantedAnswer,
}

/// A name for one content (R-A19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    /// Its name.
    pub id: ReleaseId,
    /// The commit.
    pub commit: String,
    /// The artifacts: path in the run's folder and content.
    pub artifacts: BTreeMap<String, Sha256Hash>,
    /// The run that built it.
    pub run: RunId,
    /// When.
    pub created_at: UtcMs,
}

/// One release in one environment (R-A10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentRecord {
    /// The environment.
    pub environment: String,
    /// The release.
    pub release: ReleaseId,
    /// Where it stands.
    pub state: DeploymentState,
    /// The action that executes it.
    pub action: ActionId,
    /// Whether health and smoke test said that it is good; `None` where there are none.
    pub verified: Option<bool>,
    /// Last moved.
    pub at: UtcMs,
}
