//! The JSON of a run (contract §11): `agentrun/run/1` for start, resume, show and `result.json`, `agentrun/status/1` for
//! status. Field for field the promise of the contract; more fields may come, none may go.

use serde_json::{Map, Value, json};

use super::action_json::{Keys, action_json, approval_json};
use super::amount::{usd_or_null, utc, utc_or_null};
use super::providers::{ProviderLine, providers_json};
use crate::domain::outcome::ProcessEnd;
use crate::domain::plan::meaning::Meaning;
use crate::domain::plan::verdict;
use crate::domain::quantity::Millis;
use crate::domain::record::{ExecutionRecord, RunView, StepRecord};
use crate::words;

words! {
    /// How a command came to its run.
    pub enum Via {
        /// It made it.
        New = "new",
        /// It found a finished equal one and returns its result.
        Reused = "reused",
        /// It follows one in progress.
        Attached = "attached",
        /// It went on with it.
        Resumed = "resumed",
    }
}

/// What the record does not hold.
#[derive(Debug, Clone, Copy)]
pub struct Extras<'a> {
    /// How the command came to the run; `None` when it only shows it.
    pub via: Option<Via>,
    /// What the run's state means; the next command comes from here.
    pub meaning: &'a Meaning,
    /// The branch with the run's changes, once there is one.
    pub branch: Option<&'a str>,
    /// What a reader should know and no state shows.
    pub warnings: &'a [String],
    /// Whether the keys of actions are told.
    pub keys: Keys,
}

/// The document of one run.
pub fn run_json(view: &RunView, extras: &Extras<'_>) -> Value {
    let mut document = Map::new();
    document.insert("schema".into(), "agentrun/run/1".into());
    document.append(&mut common(view, extras.branch, extras.meaning));
    let reused = extras.via == Some(Via::Reused);
    document.insert("via".into(), json!(extras.via));
    document.insert("reused".into(), reused.into());
    document.insert("steps".into(), view.steps.iter().map(|s| step(view, s)).collect());
    document.insert("executions".into(), view.executions.iter().map(execution).collect());
    document.insert("actions".into(), view.actions.iter().map(|a| action_json(a, extras.keys)).collect());
    document.insert("approvals".into(), view.approvals.iter().map(approval_json).collect());
    document.insert("artifacts".into(), view.artifacts.iter().map(super::record_json::artifact).collect());
    document.insert("warnings".into(), json!(extras.warnings));
    Value::Object(document)
}

/// One line of status.
#[derive(Debug, Clone, Copy)]
pub struct StatusEntry<'a> {
    /// The run.
    pub view: &'a RunView,
    /// What its state means.
    pub meaning: &'a Meaning,
    /// The branch with its changes.
    pub branch: Option<&'a str>,
}

/// The document of status: what is going on, in meaning.
pub fn status_json(entries: &[StatusEntry<'_>], providers: &[ProviderLine]) -> Value {
    let line = |entry: &StatusEntry<'_>| {
        let mut fields = common(entry.view, entry.branch, entry.meaning);
        fields.insert("meaning".into(), entry.meaning.word.to_string().into());
        fields.insert("reading".into(), json!(entry.meaning.reading));
        fields.insert("sentence".into(), entry.meaning.sentence.clone().into());
        fields.insert("since".into(), utc(entry.meaning.since).into());
        fields.insert("goes_on_by_itself".into(), entry.meaning.goes_on_by_itself.into());
        Value::Object(fields)
    };
    json!({ "schema": "agentrun/status/1", "runs": entries.iter().map(line).collect::<Vec<_>>(), "providers": providers_json(providers) })
}

/// The fields that both documents have.
fn common(view: &RunView, branch: Option<&str>, meaning: &Meaning) -> Map<String, Value> {
    let run = &view.run;
    let value = json!({
        "run": run.id, "task": run.task, "title": view.inputs.spec.title, "instance": run.instance,
        "status": run.status, "phase": run.phase, "attempt": run.attempt,
        "code": run.code, "message": run.message, "exit": verdict::exit(run).code(),
        "fingerprint": run.fingerprint.to_string(),
        "base_commit": run.components.base_commit, "prompt_version": run.components.prompt_version,
        "context_hash": run.components.context_hash.to_string(),
        "policy_version": run.components.policy_version, "mode": run.components.mode,
        "group": run.group, "outcome": verdict::outcome(view), "usage": usage(view),
        "attempts": attempts(view), "checkpoints": checkpoints(view),
        "request_id": run.request_id, "support_code": run.support_code, "cancel_requested": run.cancel_requested,
        "created_at": utc(run.created_at), "started_at": utc_or_null(run.started_at),
        "finished_at": utc_or_null(run.finished_at), "last_heartbeat_at": utc_or_null(run.heartbeat_at),
        "retry_at": utc_or_null(run.retry_at), "snapshot": run.snapshot,
        "audit": { "count": view.chain.count, "head": view.chain.head.to_string() },
        "branch": branch, "next": meaning.next,
    });
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// `tokens` is uncached input plus output, `total_tokens` adds the cached part, `wall_ms` is time in which a step was
/// active: what the limits of the same names count. The estimated part is in all of them (R-R4).
fn usage(view: &RunView) -> Value {
    let used = &view.usage;
    json!({
        "tokens": used.tokens(), "total_tokens": used.total_tokens(), "tool_calls": used.tool_calls,
        "cost_usd": usd_or_null(used.cost()), "wall_ms": used.active, "task_tokens": view.task_usage.tokens(),
        "task_cost_usd": usd_or_null(view.task_usage.cost()), "failed_attempts": used.failed_attempts,
        "estimated_tokens": used.estimated.tokens(), "estimated_total_tokens": used.estimated.total_tokens(),
    })
}

fn step(view: &RunView, step: &StepRecord) -> Value {
    let duration = step.started_at.zip(step.finished_at).map(|(from, to)| Millis::between(from, to));
    json!({
        "id": view.run.id.step(&step.key), "key": step.key, "kind": step.kind, "state": step.state,
        "attempt": step.attempt, "runs": step.runs, "rounds": step.rounds, "duration_ms": duration,
        "code": step.code, "message": step.message,
        "started_at": utc_or_null(step.started_at), "finished_at": utc_or_null(step.finished_at),
    })
}

/// The process's end and its exit code are facts of their own, kept beside what the run made of them (FR-C7).
fn execution(execution: &ExecutionRecord) -> Value {
    let exit_code = match execution.end {
        Some(ProcessEnd::Exited { code }) => Some(code),
        _ => None,
    };
    json!({
        "step": execution.step, "number": execution.number, "attempt": execution.attempt,
        "end": execution.end.as_ref().map(ProcessEnd::fact), "exit_code": exit_code,
        "session": execution.session, "model": execution.model, "has_result": execution.result.is_some(),
        "active_ms": execution.active, "estimated_tokens": execution.estimated,
        "started_at": utc(execution.started_at), "finished_at": utc_or_null(execution.finished_at),
    })
}

fn attempts(view: &RunView) -> Value {
    let attempt = |a: &crate::domain::record::AttemptRecord| {
        json!({
            "attempt": a.number, "state": a.state, "code": a.code, "opened_by": a.opened_by,
            "started_at": utc(a.started_at), "finished_at": utc_or_null(a.finished_at),
        })
    };
    view.attempts.iter().map(attempt).collect()
}

fn checkpoints(view: &RunView) -> Value {
    let checkpoint = |c: &crate::domain::record::CheckpointRecord| {
        json!({
            "name": c.name, "step": c.step, "attempt": c.attempt, "commit": c.commit,
            "policy_version": c.policy_version, "at": utc(c.at),
        })
    };
    view.checkpoints.iter().map(checkpoint).collect()
}
