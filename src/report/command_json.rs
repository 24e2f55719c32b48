//! JSON of commands that are about no single record: a plan, an application, a piece of a log, the whole catalogue.

use serde_json::{Value, json};

use super::machine_json::explain_json;
use crate::domain::failure::Code;
use crate::domain::hash::fingerprint::Components;
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::task::StepKind;

/// `agentrun/plan/1`: what `start --dry-run` would do. `existing` is the run that the fingerprint has, and what becomes of it.
pub fn plan_json(
    components: &Components,
    steps: &[(String, StepKind, String)],
    existing: Option<(&RunId, &str)>,
) -> Value {
    let step = |(key, kind, what): &(String, StepKind, String)| json!({ "key": key, "kind": kind, "what": what });
    json!({
        "schema": "agentrun/plan/1",
        "fingerprint": components.fingerprint().to_string(),
        "components": components.fields().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "steps": steps.iter().map(step).collect::<Vec<_>>(),
        "run": existing.map(|(run, _)| run),
        "would": existing.map_or("start a new run", |(_, would)| would),
    })
}

/// `agentrun/apply/1`.
pub fn apply_json(run: &RunId, branch: &str, paths: &[String]) -> Value {
    json!({ "schema": "agentrun/apply/1", "run": run, "branch": branch, "paths": paths })
}

/// `agentrun/log/1`: one line of the stream that `logs --json` is.
pub fn log_json(log: &LogName<'_>, text: &str) -> Value {
    json!({
        "schema": "agentrun/log/1", "step": log.step, "attempt": log.attempt, "stream": log.stream, "text": text,
    })
}

/// Which log a piece comes from.
#[derive(Debug, Clone, Copy)]
pub struct LogName<'a> {
    /// The step.
    pub step: &'a str,
    /// The attempt.
    pub attempt: u32,
    /// `stdout`, `stderr` or `events`.
    pub stream: &'a str,
}

/// `agentrun/catalogue/1`: every code.
pub fn explain_all_json(hint: &dyn Fn(Code) -> String) -> Value {
    let one = |code: &Code| {
        let mut entry = explain_json(*code, Some(&hint(*code)));
        entry.as_object_mut().map(|o| o.remove("schema"));
        entry
    };
    json!({ "schema": "agentrun/catalogue/1", "codes": Code::ALL.iter().map(one).collect::<Vec<_>>() })
}
