//! The contract file as it is written: every documented key, typed, optional.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::fields::{Field, TextOrList};
use crate::domain::action::contract::{Automatic, Dedupe, Environment, Meaning};
use crate::domain::policy::ActionType;
use crate::domain::quantity::Millis;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the keys of a contract")]
pub(super) struct RawContract {
    pub(super) version: String,
    pub(super) environment: Option<Field<Environment>>,
    pub(super) account: Option<String>,
    #[serde(default)]
    pub(super) actions: Vec<Field<ActionType>>,
    pub(super) dedupe: Option<Field<Dedupe>>,
    pub(super) key: Option<RawKey>,
    pub(super) automatic: Option<Field<Automatic>>,
    pub(super) irreversible: Option<bool>,
    pub(super) look_first: Option<bool>,
    pub(super) atomic: Option<bool>,
    pub(super) send: Option<RawChannel>,
    #[serde(default)]
    pub(super) answers: BTreeMap<String, Field<Meaning>>,
    pub(super) reference: Option<String>,
    pub(super) message: Option<String>,
    pub(super) query: Option<RawQuery>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`header` and `lifetime`")]
pub(super) struct RawKey {
    pub(super) header: Option<String>,
    pub(super) lifetime: Option<Field<Millis>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`http` or `run`")]
pub(super) struct RawChannel {
    pub(super) http: Option<RawHttp>,
    pub(super) run: Option<TextOrList>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an HTTP request with `url`")]
pub(super) struct RawHttp {
    pub(super) method: Option<String>,
    pub(super) url: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) secret_headers: BTreeMap<String, RawSecret>,
    /// Taken from the tree, which keeps the texts.
    pub(super) body: Option<IgnoredAny>,
    pub(super) form: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) inside: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`env`, the variable that holds the secret, and `prefix`")]
pub(super) struct RawSecret {
    #[serde(default)]
    pub(super) prefix: String,
    pub(super) env: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`http` or `run`, and `settle`")]
pub(super) struct RawQuery {
    pub(super) http: Option<RawHttp>,
    pub(super) run: Option<TextOrList>,
    pub(super) settle: Field<Millis>,
    pub(super) find: Option<RawFind>,
    #[serde(default)]
    pub(super) absent: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`list`, `equals`, `contains` and `state`")]
pub(super) struct RawFind {
    pub(super) list: Option<String>,
    pub(super) more: Option<String>,
    pub(super) equals: BTreeMap<String, String>,
    pub(super) contains: BTreeMap<String, String>,
    pub(super) state: Option<RawState>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`at` and `words`")]
pub(super) struct RawState {
    pub(super) at: String,
    pub(super) words: BTreeMap<String, Field<Meaning>>,
}
