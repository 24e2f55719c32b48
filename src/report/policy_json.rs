//! JSON of what the policy says: its types of action, its cases, its reasons.

use serde_json::{Value, json};

use crate::domain::policy::Keep;
use crate::domain::policy::case::PolicyCase;
use crate::domain::policy::decide::{Asked, Decision, RuleReading};
use crate::domain::policy::kinds::KindTerms;

/// A policy that was checked.
#[derive(Debug, Clone, Copy)]
pub struct PolicyCheckDocument<'a> {
    /// Its version.
    pub version: &'a str,
    /// Its content hash.
    pub sha256: &'a str,
    /// The revision that it was read from.
    pub rev: Option<&'a str>,
    /// The files that were read.
    pub files: &'a [String],
    /// Number of rules.
    pub rules: usize,
    /// Number of cases.
    pub cases: usize,
    /// What holds for each type of action.
    pub types: &'a [KindTerms],
    /// What is worth a look.
    pub remarks: &'a [String],
}

/// `agentrun/policy-check/1`.
pub fn policy_check_json(document: &PolicyCheckDocument<'_>) -> Value {
    json!({
        "schema": "agentrun/policy-check/1", "version": document.version, "sha256": document.sha256,
        "policy_ref": document.rev, "files": document.files, "rules": document.rules, "cases": document.cases,
        "types": document.types.iter().map(kind).collect::<Vec<_>>(), "remarks": document.remarks,
    })
}

fn kind(terms: &KindTerms) -> Value {
    let clocks = &terms.clocks;
    let retention = terms.retention.map(|keep| match keep {
        Keep::For(time) => time.to_string(),
        Keep::Release => "release".to_owned(),
    });
    json!({
        "type": terms.kind, "class": terms.class, "key": terms.key, "tries": terms.tries, "unknown": terms.unknown,
        "clocks": {
            "answer_ms": clocks.answer.0, "call_ms": clocks.call.0, "try_ms": clocks.one_try.0, "expire_ms": clocks.expire.0,
        },
        "sends": terms.sends.map(|limit| json!({ "max": limit.max, "per_ms": limit.per.0 })),
        "retention": retention, "approval": decision(&terms.approval), "missing": terms.missing,
    })
}

fn decision(decision: &Decision) -> Value {
    json!({
        "verdict": decision.verdict, "rule": decision.rule, "why": decision.why,
        "approvers": decision.terms.approvers, "expires_ms": decision.terms.expires.map(|time| time.0),
    })
}

/// `agentrun/policy-test/1`: every case, with what is wrong with it.
pub fn policy_test_json(version: &str, cases: &[(PolicyCase, Option<String>)]) -> Value {
    let failed = cases.iter().filter(|(_, failure)| failure.is_some()).count();
    let case = |(case, failure): &(PolicyCase, Option<String>)| {
        json!({
            "name": case.name, "place": case.place, "expected": case.verdict, "rule": case.rule, "failure": failure,
        })
    };
    json!({
        "schema": "agentrun/policy-test/1", "version": version, "passed": cases.len() - failed, "failed": failed,
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
    })
}

/// `agentrun/policy-explain/1`: the decision, and how each rule was read.
pub fn policy_explain_json(version: &str, decided: &Decision, effects: &[(Asked, Vec<RuleReading>)]) -> Value {
    let effect = |(asked, rules): &(Asked, Vec<RuleReading>)| json!({ "action": asked.action, "attributes": asked.values, "rules": rules });
    json!({
        "schema": "agentrun/policy-explain/1", "version": version, "decision": decision(decided),
        "effects": effects.iter().map(effect).collect::<Vec<_>>(),
    })
}
