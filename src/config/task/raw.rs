//! The task file as it is written: every documented key of every kind, typed, optional.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::fields::{Count, Field, TextOr, TextOrList};
use super::super::policy::RawBudget;
use crate::domain::quantity::Millis;
use crate::domain::task::{KeepChanges, WhenBusy, WorkspaceKind};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the keys of a task")]
pub(super) struct RawTask {
    pub(super) task: String,
    pub(super) title: Option<String>,
    pub(super) mode: Option<String>,
    #[serde(default)]
    pub(super) inputs: BTreeMap<String, String>,
    pub(super) workspace: Option<Field<WorkspaceKind>>,
    pub(super) keep_changes: Option<Field<KeepChanges>>,
    pub(super) concurrency: Option<RawConcurrency>,
    #[serde(default)]
    pub(super) context: RawContext,
    #[serde(default)]
    pub(super) budget: RawBudget,
    pub(super) steps: Vec<TextOr<RawStep>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`group` and `when_busy`")]
pub(super) struct RawConcurrency {
    pub(super) group: String,
    pub(super) when_busy: Option<Field<WhenBusy>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`files` and `rules`")]
pub(super) struct RawContext {
    pub(super) files: Vec<String>,
    pub(super) rules: Vec<String>,
}

/// A step with the keys of all kinds; which belong to which kind is checked in `keys`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a word such as `context`, or the keys of a step")]
pub(super) struct RawStep {
    pub(super) key: Option<String>,
    pub(super) kind: String,
    pub(super) needs: Option<Vec<String>>,
    pub(super) timeout: Option<Field<Millis>>,
    pub(super) when: Option<String>,
    pub(super) artifacts: Vec<TextOr<RawArtifact>>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) agent: Option<TextOr<RawAgent>>,
    pub(super) prompt: Option<String>,
    pub(super) run: Option<TextOrList>,
    pub(super) on_fail: Option<RawSendBack>,
    pub(super) release: Option<String>,
    pub(super) environment: Option<String>,
    pub(super) status: Option<TextOrList>,
    pub(super) verify: Option<RawVerify>,
    pub(super) environment_state: Vec<TextOrList>,
    pub(super) contract: Option<String>,
    pub(super) instance: Option<String>,
    pub(super) irreversible: bool,
    pub(super) rollback: bool,
    pub(super) health: Option<String>,
    pub(super) smoke: Option<TextOrList>,
    pub(super) of: Option<String>,
    pub(super) r#type: Option<String>,
    pub(super) target: Option<String>,
    pub(super) account: Option<String>,
    /// What it holds is read from the tree, which keeps the texts.
    pub(super) input: Option<IgnoredAny>,
    pub(super) subject: BTreeMap<String, String>,
    pub(super) ask: Option<String>,
    pub(super) approvers: Vec<String>,
    pub(super) expires: Option<Field<Millis>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`health` and `smoke`")]
pub(super) struct RawVerify {
    pub(super) health: Option<String>,
    pub(super) smoke: Option<TextOrList>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`glob` and `optional`")]
pub(super) struct RawArtifact {
    pub(super) glob: String,
    #[serde(default)]
    pub(super) optional: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an agent's name, or `name`, `model`, `args`")]
pub(super) struct RawAgent {
    pub(super) name: String,
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    pub(super) events: Option<String>,
    pub(super) patch: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`send_back_to` and `rounds`")]
pub(super) struct RawSendBack {
    pub(super) send_back_to: String,
    pub(super) rounds: Option<Field<Count>>,
}
