//! What an agent can do over the Model Context Protocol: the same as with the commands, by the same functions. How messages
//! look is not known here.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::OpsError;
use super::inside::Inside;
use super::place::{Place, Vars};
use super::request::{Answered, Patience, RequestOptions, look, request};
use super::show::{self, Shown};
use crate::domain::failure::Code;
use crate::engine::host::Who;
use crate::report::record_json::budget_json;
use crate::report::requested::{Requested, action_json};
use crate::report::run_json::{StatusEntry, status_json};
use crate::words;

words! {
    /// A tool.
    pub enum Tool {
        /// Asks for a side effect.
        RequestAction = "request_action",
        /// Looks at one that was asked for.
        ActionStatus = "action_status",
        /// Where the run stands.
        RunStatus = "run_status",
        /// What is left of the limits.
        Budget = "budget",
    }
}

/// Who calls, and from where.
pub struct Caller<'a> {
    /// The program inside a run.
    pub inside: &'a Inside,
    /// By which command.
    pub who: &'a Who,
    /// The folder that it was started in.
    pub dir: &'a Path,
    /// Its environment.
    pub vars: &'a Vars,
}

/// The arguments of `request_action`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(rename = "type")]
    kind: String,
    target: String,
    account: Option<String>,
    #[serde(default)]
    subject: BTreeMap<String, String>,
    input: Option<Map<String, Value>>,
    contract: Option<String>,
    instance: Option<String>,
    wait: Option<bool>,
}

/// The arguments of `action_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    id: String,
}

/// The arguments of a tool that has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Calls a tool; the answer is the document that the command of the same meaning prints with `--json`. `conversation` is the
/// agent's, where it says so. Refused with `VALIDATION_ERROR` where the arguments do not fit, else as the command would.
pub fn call(caller: &Caller<'_>, tool: Tool, given: (Value, Option<String>)) -> Result<Value, OpsError> {
    let (arguments, conversation) = given;
    match tool {
        Tool::RequestAction => {
            let options = RequestOptions { conversation, ..options(read(arguments)?) };
            Ok(document(&request(caller.inside, caller.who, &options)?))
        }
        Tool::ActionStatus => {
            let named: Named = read(arguments)?;
            Ok(document(&look(caller.inside, &named.id)?))
        }
        Tool::RunStatus => {
            let Nothing {} = read(arguments)?;
            let shown = own(caller)?;
            let entry = StatusEntry { view: &shown.view, meaning: &shown.meaning, branch: shown.branch.as_deref() };
            Ok(status_json(&[entry], &[]))
        }
        Tool::Budget => {
            let Nothing {} = read(arguments)?;
            let shown = own(caller)?;
            Ok(budget_json(&shown.view, &shown.limits))
        }
    }
}

/// The caller's own run, and no other.
fn own(caller: &Caller<'_>) -> Result<Shown, OpsError> {
    let store = caller.inside.records()?;
    caller.inside.hold(&store)?;
    let place = Place::find(caller.dir, caller.vars.clone())?;
    show::of(&place, &store, store.view(&caller.inside.run)?)
}

fn options(asked: Asked) -> RequestOptions {
    RequestOptions {
        kind: asked.kind,
        target: asked.target,
        account: asked.account,
        subject: asked.subject,
        input: asked.input.map(Value::Object),
        contract: asked.contract,
        instance: asked.instance,
        patience: if asked.wait == Some(false) { Patience::Recorded } else { Patience::Answer },
        ..RequestOptions::default()
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, OpsError> {
    let unfit = |error| OpsError::failed(Code::ValidationError, format!("the arguments do not fit: {error}"));
    serde_json::from_value(arguments).map_err(unfit)
}

fn document(answered: &Answered) -> Value {
    let Answered { action, told, duplicate, look_again } = answered;
    action_json(&Requested { action, told: *told, duplicate: *duplicate, look_again: *look_again })
}
