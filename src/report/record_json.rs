//! JSON of what is recorded beside the run itself: fingerprint, the verdict of resume, a comparison, artifacts, audit
//! events, the budget.

use serde_json::{Value, json};

use super::amount::utc;
use super::compare::Comparison;
use crate::domain::artifact::{ArtifactFault, FaultKind};
use crate::domain::budget::{Budget, LimitKind, Limits, Scope, Usage};
use crate::domain::event::{ChainFault, Event};
use crate::domain::hash::context::{ContextFile, files_hash};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::hash::fingerprint::{Components, Difference};
use crate::domain::ids::{RunId, StepKey};
use crate::domain::machine::Word as _;
use crate::domain::record::{ArtifactRecord, RunView};

/// What a fingerprint is made of, down to the files.
#[derive(Debug, Clone, Copy)]
pub struct FingerprintDocument<'a> {
    /// The six components.
    pub components: &'a Components,
    /// The task's meaning as canonical JSON.
    pub task_meaning: &'a str,
    /// The relevant files.
    pub files: &'a [ContextFile],
    /// The rules.
    pub rules: &'a [ContextFile],
    /// What differs from an earlier run.
    pub against: Option<(&'a RunId, &'a [Difference])>,
}

/// `agentrun/fingerprint/1`.
pub fn fingerprint_json(document: &FingerprintDocument<'_>) -> Value {
    let component = |(name, value): (&str, Option<String>)| {
        let sha256 = value.as_deref().map(|v| Sha256Hash::of(v.as_bytes()).to_string());
        json!({ "name": name, "value": value, "sha256": sha256 })
    };
    json!({
        "schema": "agentrun/fingerprint/1",
        "fingerprint": document.components.fingerprint().to_string(),
        "context_hash": document.components.context_hash.to_string(),
        "components": document.components.fields().into_iter().map(component).collect::<Vec<_>>(),
        "context": {
            "task": document.task_meaning, "task_sha256": Sha256Hash::of(document.task_meaning.as_bytes()).to_string(),
            "files_sha256": files_hash(document.files).to_string(), "files": document.files,
            "rules_sha256": files_hash(document.rules).to_string(), "rules": document.rules,
        },
        "against": document.against.map(|(run, _)| run),
        "differences": document.against.map(|(_, differences)| differences),
    })
}

/// The verdict of resume.
#[derive(Debug, Clone, Copy)]
pub struct ResumeDocument<'a> {
    /// The run.
    pub run: &'a RunId,
    /// VALID, REVIEW_REQUIRED or RESUME_BLOCKED.
    pub verdict: &'a str,
    /// The step that comes next.
    pub next_step: Option<&'a StepKey>,
    /// The revision that the policy is read from; nothing is the checkout.
    pub policy_ref: Option<&'a str>,
    /// Everything that is not as it was.
    pub differences: &'a [ResumeDifference],
    /// The next command.
    pub next: Option<&'a str>,
}

/// One thing that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeDifference {
    /// BASE_COMMIT_CHANGED, TASK_SPEC_CHANGED …
    pub code: String,
    /// As recorded.
    pub old: Option<String>,
    /// As found.
    pub new: Option<String>,
    /// What it alone leads to.
    pub verdict: String,
    /// Why, in words.
    pub note: String,
}

/// `agentrun/resume/1`.
pub fn resume_json(resume: &ResumeDocument<'_>) -> Value {
    let difference = |d: &ResumeDifference| json!({ "code": d.code, "old": d.old, "new": d.new, "verdict": d.verdict, "note": d.note });
    json!({
        "schema": "agentrun/resume/1", "run": resume.run, "verdict": resume.verdict, "next_step": resume.next_step,
        "policy_ref": resume.policy_ref,
        "differences": resume.differences.iter().map(difference).collect::<Vec<_>>(), "next": resume.next,
    })
}

/// `agentrun/diff/1`.
pub fn diff_json(comparison: &Comparison) -> Value {
    let artifact = |a: &super::compare::ArtifactDifference| json!({ "path": a.path, "old": a.old.map(|h| h.hex()), "new": a.new.map(|h| h.hex()) });
    let step = |s: &super::compare::StepComparison| json!({ "key": s.key, "old": s.old, "new": s.new });
    let figure = |u: &super::compare::UsageComparison| json!({ "name": u.name, "old": u.old, "new": u.new });
    json!({
        "schema": "agentrun/diff/1", "left": comparison.left, "right": comparison.right,
        "components": comparison.components, "same_patch": comparison.same_patch,
        "artifacts": comparison.artifacts.iter().map(artifact).collect::<Vec<_>>(),
        "steps": comparison.steps.iter().map(step).collect::<Vec<_>>(),
        "usage": comparison.usage.iter().map(figure).collect::<Vec<_>>(),
    })
}

/// A kept file; its hash as 64 hex digits.
pub(super) fn artifact(record: &ArtifactRecord) -> Value {
    json!({
        "type": record.kind, "path": record.path, "sha256": record.sha256.hex(), "size": record.size,
        "step": record.step, "attempt": record.attempt,
    })
}

/// `agentrun/artifacts/1`. `verified` is null when nothing was compared.
pub fn artifacts_json(run: &RunId, artifacts: &[ArtifactRecord], faults: Option<&[ArtifactFault]>) -> Value {
    let fault = |f: &ArtifactFault| {
        let (old, new) = match f.what {
            FaultKind::Missing => (None, None),
            FaultKind::Changed { old, new } => (Some(old.hex()), Some(new.hex())),
        };
        json!({ "path": f.path, "code": f.what.word(), "old": old, "new": new })
    };
    json!({
        "schema": "agentrun/artifacts/1", "run": run,
        "artifacts": artifacts.iter().map(artifact).collect::<Vec<_>>(),
        "verified": faults.map(<[_]>::is_empty),
        "faults": faults.unwrap_or_default().iter().map(fault).collect::<Vec<_>>(),
    })
}

/// `agentrun/events/1`: the audit log, or a part of it. `faults` is null when the chains were not checked.
pub fn events_json(events: &[Event], faults: Option<&[ChainFault]>) -> Value {
    let event = |e: &Event| {
        json!({
            "id": e.id, "chain": e.chain, "n": e.n, "at": utc(e.at), "kind": e.kind, "version": e.version,
            "actor": e.actor, "request_id": e.request_id, "run": e.run, "attempt": e.attempt, "step": e.step,
            "reason": e.reason, "body": serde_json::from_str::<Value>(&e.body).unwrap_or_default(),
            "prev": e.prev.hex(), "hash": e.hash.hex(),
        })
    };
    json!({
        "schema": "agentrun/events/1", "events": events.iter().map(event).collect::<Vec<_>>(), "faults": faults,
    })
}

/// One limit and how far it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitLine {
    /// Over what it counts.
    pub scope: Scope,
    /// What it limits.
    pub kind: LimitKind,
    /// The limit; `None` is no limit.
    pub limit: Option<u64>,
    /// What was used; `None` when nothing said so.
    pub used: Option<u64>,
    /// What is set aside for something under way: an attempt that has begun.
    pub reserved: u64,
    /// The part of `used` that nobody told.
    pub estimated: u64,
    /// What may still be used; `None` without a limit, and when nobody knows what was used.
    pub left: Option<u64>,
}

/// Every limit and every figure, attempt and task, in a fixed order.
pub fn limit_lines(view: &RunView, limits: &Budget) -> Vec<LimitLine> {
    let attempt = lines((Scope::Attempt, 0), &limits.attempt, &view.attempt_usage);
    attempt.into_iter().chain(lines((Scope::Task, view.open_attempts), &limits.task, &view.task_usage)).collect()
}

fn lines((scope, open_attempts): (Scope, u64), limits: &Limits, usage: &Usage) -> Vec<LimitLine> {
    let line = |kind: &LimitKind| {
        let limit = limits.of(*kind);
        let unknown = *kind == LimitKind::Cost && usage.cost().is_none();
        let used = (!unknown).then(|| usage.of(*kind));
        let reserved = if *kind == LimitKind::Attempts { open_attempts } else { 0 };
        let left = limit.zip(used).map(|(limit, used)| limit.saturating_sub(used).saturating_sub(reserved));
        LimitLine { scope, kind: *kind, limit, used, reserved, estimated: usage.estimated.of(*kind), left }
    };
    let meaningful = |l: &LimitLine| !(scope == Scope::Attempt && l.kind == LimitKind::Attempts);
    LimitKind::ALL.iter().map(line).filter(meaningful).collect()
}

/// `agentrun/budget/1`: limit, used, reserved and left, never a bare amount (FR-F35). Time in milliseconds, cost in
/// millionths of a dollar. An attempt is reserved when it begins and used up when it fails; the rest is counted as it is used.
pub fn budget_json(view: &RunView, limits: &Budget) -> Value {
    let line = |l: LimitLine| {
        json!({
            "scope": l.scope, "kind": l.kind, "limit": l.limit, "used": l.used, "estimated": l.estimated,
            "reserved": l.reserved, "left": l.left,
        })
    };
    let lines = limit_lines(view, limits).into_iter().map(line).collect::<Vec<_>>();
    json!({ "schema": "agentrun/budget/1", "run": view.run.id, "task": view.run.task, "limits": lines })
}
