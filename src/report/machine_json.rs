//! JSON of what is about this machine or this program rather than about one run: errors, doctor, explain, gc, init.

use serde_json::{Value, json};

use super::amount::utc_or_null;
use crate::domain::failure::{Code, Exit};
use crate::domain::ids::{RunId, SupportCode};
use crate::domain::quantity::UtcMs;
use crate::words;

/// An error as the command line reports it, also before a run exists.
#[derive(Debug, Clone, Copy)]
pub struct ErrorDocument<'a> {
    /// What kind; retry and effect follow from it.
    pub code: Code,
    /// The number that the command ends with.
    pub exit: Exit,
    /// What failed, naming the thing.
    pub message: &'a str,
    /// The run it is about.
    pub run: Option<&'a RunId>,
    /// The action it is about.
    pub action: Option<&'a str>,
    /// The next command or change.
    pub hint: Option<&'a str>,
    /// What led to it, nearest first.
    pub causes: &'a [String],
    /// When trying again makes sense, where that is known.
    pub retry_at: Option<UtcMs>,
    /// For people.
    pub support_code: &'a SupportCode,
}

/// `agentrun/error/1`.
pub fn error_json(error: &ErrorDocument<'_>) -> Value {
    let entry = error.code.entry();
    json!({
        "schema": "agentrun/error/1", "code": error.code, "exit": error.exit.code(), "message": error.message,
        "retry": entry.retry, "effect": entry.effect, "run": error.run, "action": error.action,
        "hint": error.hint, "causes": error.causes, "retry_at": utc_or_null(error.retry_at),
        "support_code": error.support_code,
    })
}

words! {
    /// What a check of this machine found.
    pub enum CheckState {
        /// Fit.
        Ok = "ok",
        /// Works, with a loss.
        Warning = "warning",
        /// Does not work.
        Failed = "failed",
    }
}

/// One check of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorCheck {
    /// Names it: `git`, `agent.codex`, `kernel.openat2`.
    pub name: String,
    /// What it found.
    pub state: CheckState,
    /// In words.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// `agentrun/doctor/1`.
pub fn doctor_json(version: &str, checks: &[DoctorCheck]) -> Value {
    let fit = checks.iter().all(|c| c.state != CheckState::Failed);
    let check = |c: &DoctorCheck| json!({ "name": c.name, "state": c.state, "message": c.message, "hint": c.hint });
    json!({
        "schema": "agentrun/doctor/1", "version": version, "fit": fit,
        "checks": checks.iter().map(check).collect::<Vec<_>>(),
    })
}

/// `agentrun/explain/1`: one entry of the catalogue.
pub fn explain_json(code: Code, hint: Option<&str>) -> Value {
    let entry = code.entry();
    json!({
        "schema": "agentrun/explain/1", "code": code, "meaning": entry.meaning, "retryable": entry.retryable,
        "retry": entry.retry, "effect": entry.effect, "exit": entry.exit.code(), "hint": hint,
    })
}

/// What gc did, or would do.
#[derive(Debug, Clone, Copy)]
pub struct GcDocument<'a> {
    /// True when nothing was deleted.
    pub dry_run: bool,
    /// What went.
    pub removed: &'a [GcItem],
    /// What could have gone and stays, and why.
    pub kept: &'a [GcItem],
}

/// One thing that gc looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcItem {
    /// Its run, if it has one.
    pub run: Option<RunId>,
    /// `run`, `working_copy`, `refs`, `temporary` …
    pub what: String,
    /// Relative to the state folder, or a ref.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Why.
    pub reason: String,
}

/// `agentrun/gc/1`.
pub fn gc_json(gc: &GcDocument<'_>) -> Value {
    let item = |i: &GcItem| json!({ "run": i.run, "what": i.what, "path": i.path, "size": i.size, "reason": i.reason });
    json!({
        "schema": "agentrun/gc/1", "dry_run": gc.dry_run,
        "removed": gc.removed.iter().map(item).collect::<Vec<_>>(),
        "kept": gc.kept.iter().map(item).collect::<Vec<_>>(),
        "freed_bytes": gc.removed.iter().map(|i| i.size).sum::<u64>(),
    })
}

/// What init did.
#[derive(Debug, Clone, Copy)]
pub struct InitDocument<'a> {
    /// The repository's root.
    pub root: &'a str,
    /// Files written.
    pub written: &'a [String],
    /// Files that were there and were left alone.
    pub kept: &'a [String],
    /// The commit that was made of them.
    pub commit: Option<&'a str>,
    /// The next command.
    pub next: Option<&'a str>,
}

/// `agentrun/init/1`.
pub fn init_json(init: &InitDocument<'_>) -> Value {
    json!({
        "schema": "agentrun/init/1", "root": init.root, "written": init.written, "kept": init.kept,
        "commit": init.commit, "next": init.next,
    })
}
