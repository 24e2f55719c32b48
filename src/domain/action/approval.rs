//! A person's agreement, bound to exactly what was shown (R-A9, R-S8).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::ApprovalState;
use crate::domain::hash::encoding::{Encoder, Sha256Hash};
use crate::domain::ids::{ActionId, ApprovalId, RunId, StepKey};
use crate::domain::policy::ApprovalTerms;
use crate::domain::quantity::UtcMs;

/// Everything that an approval covers. When any of it is another, the approval no longer counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// In one line, for people.
    pub title: String,
    /// The type of the action, or `step` for a gate.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it reaches.
    pub target: Option<String>,
    /// On whose account.
    pub account: Option<String>,
    /// Live or test.
    pub environment: Option<String>,
    /// The hash of the normalized request; `None` for a gate.
    pub request: Option<Sha256Hash>,
    /// The command line, where a command carries it out.
    pub command: Option<Vec<String>>,
    /// Programs and scripts that the command names: path and SHA-256.
    pub programs: BTreeMap<String, String>,
    /// The commit that the run has reached.
    pub commit: Option<String>,
    /// The release.
    pub release: Option<String>,
    /// The release's artifacts: path and SHA-256.
    pub artifacts: BTreeMap<String, String>,
    /// The contract: name and SHA-256.
    pub contract: Option<String>,
    /// The configuration of the environment (`environment_state`): what was looked at, and its SHA-256.
    pub environment_state: BTreeMap<String, String>,
    /// Version and SHA-256 of the policy.
    pub policy: String,
}

impl Subject {
    /// The digest that a person approves. Covers every field.
    pub fn digest(&self) -> Sha256Hash {
        let mut encoder = Encoder::new("agentrun-approval/1");
        let text = serde_json::to_value(self).map(|value| value.to_string()).unwrap_or_default();
        encoder.field("subject", Some(&text));
        encoder.finish()
    }

    /// What differs from another one, by the names of the fields.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let fields = |subject: &Self| match serde_json::to_value(subject) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (one, two) = (fields(self), fields(other));
        one.keys().filter(|name| one.get(*name) != two.get(*name)).cloned().collect()
    }
}

/// An approval as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRecord {
    /// Its id.
    pub id: ApprovalId,
    /// The action that it lets go; `None` for a gate.
    pub action: Option<ActionId>,
    /// The run.
    pub run: RunId,
    /// The step; `None` for what an agent asked for.
    pub step: Option<StepKey>,
    /// Where it stands.
    pub state: ApprovalState,
    /// What it covers.
    pub subject: Subject,
    /// The digest of it.
    pub digest: Sha256Hash,
    /// By whom, and for how long.
    pub terms: ApprovalTerms,
    /// The rule that asks for it; `None` when no rule names the action.
    pub rule: Option<String>,
    /// Asked for.
    pub asked_at: UtcMs,
    /// From then on it counts no more, decided or not.
    pub expires_at: Option<UtcMs>,
    /// Decided, revoked, expired or used.
    pub decided_at: Option<UtcMs>,
    /// By whom.
    pub decided_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl ApprovalRecord {
    /// Whether it is over by its own time.
    pub fn is_over(&self, present: UtcMs) -> bool {
        self.expires_at.is_some_and(|at| at <= present)
    }

    /// Whether it lets this go now.
    pub fn covers(&self, digest: &Sha256Hash, present: UtcMs) -> bool {
        self.state == ApprovalState::Approved && self.digest == *digest && !self.is_over(present)
    }
}
