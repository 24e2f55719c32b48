//! What a person is asked for, as JSON and in words: everything that the digest covers, the risk first. Foreign text is
//! neutral (F94), each value on a line of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::amount::{utc, utc_or_null};
use super::text::Style;
use crate::domain::action::approval::ApprovalRecord;
use crate::domain::action::record::ActionRecord;
use crate::domain::action::state::ApprovalState;
use crate::domain::text::neutral_line;

/// An approval with what belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalDocument<'a> {
    /// The record.
    pub approval: &'a ApprovalRecord,
    /// The action that it lets go.
    pub action: Option<&'a ActionRecord>,
    /// The arguments as they would be sent.
    pub input: Option<&'a Value>,
    /// Who may decide.
    pub may: &'a [String],
}

/// The document of one approval.
pub fn approval_json(document: &ApprovalDocument<'_>) -> Value {
    let mut value = fields(document.approval);
    value["schema"] = "agentrun/approval/1".into();
    value["action_state"] = json!(document.action.map(|action| action.state));
    value["irreversible"] = document.action.is_some_and(|action| action.irreversible).into();
    value["input"] = json!(document.input);
    value["who_may"] = json!(document.may);
    value
}

/// The document of a list of them.
pub fn approvals_json(approvals: &[ApprovalRecord]) -> Value {
    json!({ "schema": "agentrun/approvals/1", "approvals": approvals.iter().map(fields).collect::<Vec<_>>() })
}

fn fields(approval: &ApprovalRecord) -> Value {
    json!({
        "approval": approval.id, "action": approval.action, "run": approval.run, "step": approval.step,
        "state": approval.state, "subject": approval.subject, "digest": format!("sha256:{}", approval.digest.hex()),
        "approvers": approval.terms.approvers, "rule": approval.rule, "asked_at": utc(approval.asked_at),
        "expires_at": utc_or_null(approval.expires_at), "decided_at": utc_or_null(approval.decided_at),
        "decided_by": approval.decided_by, "reason": approval.reason, "next": next(approval),
    })
}

/// What is to be done next, as a command.
fn next(approval: &ApprovalRecord) -> String {
    match approval.state {
        ApprovalState::Open => format!("agentrun approve {}", approval.id),
        ApprovalState::Approved | ApprovalState::Expired | ApprovalState::Void => {
            format!("agentrun resume {}", approval.run)
        }
        ApprovalState::Rejected | ApprovalState::Revoked | ApprovalState::Used => {
            format!("agentrun show {}", approval.run)
        }
    }
}

/// Everything that it covers, for the person who decides.
pub fn approval_text(document: &ApprovalDocument<'_>, style: &Style) -> String {
    let (approval, subject) = (document.approval, &document.approval.subject);
    let mut out = format!("{}\n", neutral_line(&subject.title));
    if document.action.is_some_and(|action| action.irreversible) {
        out.push_str("  risk         cannot be undone\n");
    }
    let mut line = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            let _ = writeln!(out, "  {name:<12} {}", neutral_line(value));
        }
    };
    line("environment", subject.environment.as_deref());
    line("type", Some(&subject.kind));
    line("target", subject.target.as_deref());
    line("account", subject.account.as_deref());
    let command = subject.command.as_ref().map(|words| json!(words).to_string());
    line("command", command.as_deref());
    each(&mut line, "program", &subject.programs);
    line("contents", subject.commit.as_deref());
    line("release", subject.release.as_deref());
    each(&mut line, "artifact", &subject.artifacts);
    line("contract", subject.contract.as_deref());
    each(&mut line, "state", &subject.environment_state);
    line("policy", Some(&subject.policy));
    let input = document.input.map(Value::to_string);
    line("arguments", input.as_deref());
    line("request", subject.request.map(|hash| format!("sha256:{}", hash.hex())).as_deref());
    let asked = approval.step.as_ref().map_or_else(|| approval.run.to_string(), |step| approval.run.step(step));
    line("asked by", Some(&asked));
    line("rule", Some(approval.rule.as_deref().unwrap_or("none names it: then a person is asked")));
    line("who may", Some(&document.may.join(", ")));
    let expires = approval.expires_at.map(|at| style.time(at));
    line("counts until", Some(expires.as_deref().unwrap_or("it is used")));
    line("stands", Some(&stands(approval, style)));
    line("digest", Some(&format!("sha256:{}", approval.digest.hex())));
    out
}

fn each(line: &mut impl FnMut(&str, Option<&str>), name: &str, values: &BTreeMap<String, String>) {
    for (path, hash) in values {
        line(name, Some(&format!("{path} {hash}")));
    }
}

/// Where it stands, with who decided and why.
fn stands(approval: &ApprovalRecord, style: &Style) -> String {
    let by = approval.decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let at = approval.decided_at.map(|at| format!(", {}", style.time(at))).unwrap_or_default();
    let why = approval.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{}{by}{at}{why}", approval.state)
}

/// A list of them, one a line.
pub fn approvals_table(approvals: &[ApprovalRecord], style: &Style) -> String {
    let mut out = String::new();
    for approval in approvals {
        let step = approval.step.as_ref().map_or_else(|| approval.run.to_string(), |step| approval.run.step(step));
        let _ = writeln!(
            out,
            "{} {:<9} {step} – {}, asked {}",
            approval.id,
            approval.state.to_string(),
            neutral_line(&approval.subject.title),
            style.time(approval.asked_at)
        );
    }
    if out.is_empty() { "nothing waits for an approval\n".to_owned() } else { out }
}
