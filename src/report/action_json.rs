//! Side effects as documents: what is known of each, in the fields of contract §11 and §13.

use serde_json::{Value, json};

use super::amount::{utc, utc_or_null};
use crate::domain::action::approval::ApprovalRecord;
use crate::domain::action::record::{ReadingRecord, WantedRecord};
use crate::domain::action::{ActionRecord, ActionState};
use crate::domain::failure::Failure;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::quantity::{Millis, UtcMs};

/// Whether keys are told. They stand in the documents of the command line and in no file, log or page (R-A16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// As they are.
    Shown,
    /// By a short hash.
    Hashed,
}

/// One action.
pub fn action_json(action: &ActionRecord, keys: Keys) -> Value {
    json!({
        "id": action.id, "type": action.kind, "target": action.target, "state": action.state,
        "idempotency_key": (keys == Keys::Shown).then_some(&action.key), "key_hash": short_hash(&action.key),
        "environment": action.environment, "account": action.account, "reference": action.reference, "tries": action.tries,
        "run": action.run, "step": action.step, "contract": action.contract.name, "release": action.release,
        "irreversible": action.irreversible, "code": action.code, "message": action.message, "summary": action.summary,
        "request_hash": action.request_hash.to_string(), "approval": action.approval, "review": action.review,
        "owner": action.owner, "due": utc_or_null(action.due), "last_fact": action.last_fact,
        "query_trusted_from": utc_or_null(action.query_from), "retry_at": utc_or_null(action.retry_at),
        "deadline": utc(action.deadline), "expires_at": utc_or_null(action.expires_at),
        "created_at": utc(action.created_at), "started_at": utc_or_null(action.started_at),
        "finished_at": utc_or_null(action.finished_at),
    })
}

/// The same in a list of what is open: with its age.
pub fn listed_action_json(action: &ActionRecord, present: UtcMs) -> Value {
    let mut document = action_json(action, Keys::Shown);
    document["age_s"] = json!(Millis::between(action.created_at, present).0 / 1000);
    document
}

/// One approval. Its subject is what a person reads before deciding.
pub fn approval_json(approval: &ApprovalRecord) -> Value {
    json!({
        "id": approval.id, "action": approval.action, "run": approval.run, "step": approval.step, "state": approval.state,
        "subject": approval.subject, "digest": approval.digest.to_string(), "approvers": approval.terms.approvers,
        "rule": approval.rule, "asked_at": utc(approval.asked_at), "expires_at": utc_or_null(approval.expires_at),
        "decided_at": utc_or_null(approval.decided_at), "decided_by": approval.decided_by, "reason": approval.reason,
    })
}

/// A key as it may be told everywhere.
pub fn short_hash(key: &str) -> String {
    Sha256Hash::of(key.as_bytes()).hex()[..12].to_owned()
}

/// The document of a list.
pub fn actions_json(actions: &[ActionRecord], present: UtcMs) -> Value {
    let list: Vec<Value> = actions.iter().map(|action| listed_action_json(action, present)).collect();
    json!({ "schema": "agentrun/actions/1", "actions": list })
}

/// The document of one action, with what was seen of it and who wanted it.
pub fn action_document(action: &ActionRecord, readings: &[ReadingRecord], wanted: &[WantedRecord]) -> Value {
    let mut document = action_json(action, Keys::Shown);
    document["schema"] = json!("agentrun/action-record/1");
    document["readings"] = readings
        .iter()
        .map(|r| json!({ "at": utc(r.at), "reading": r.reading, "source": r.source, "tries": r.tries }))
        .collect();
    document["wanted"] = wanted
        .iter()
        .map(|w| {
            json!({
                "at": utc(w.at), "answer": w.answer, "run": w.by.run, "attempt": w.by.attempt, "step": w.by.step,
                "call": w.by.call, "conversation": w.by.conversation, "request_id": w.by.request_id,
            })
        })
        .collect();
    document
}

/// What `reconcile` found.
pub struct ReconcileDocument<'a> {
    /// What was in question: where it stood, where it stands, and what stood in the way of asking.
    pub asked: &'a [(ActionState, &'a ActionRecord, Option<&'a Failure>)],
    /// How many approvals were over.
    pub expired: usize,
    /// Approved and done, without a name at the other side.
    pub nameless: &'a [ActionRecord],
}

/// The document of `reconcile`.
pub fn reconcile_json(found: &ReconcileDocument<'_>) -> Value {
    let one = |(before, action, hindered): &(ActionState, &ActionRecord, Option<&Failure>)| {
        let mut document = action_json(action, Keys::Shown);
        document["before"] = json!(before);
        document["hindered"] = json!(hindered.map(|failure| &failure.message));
        document
    };
    json!({
        "schema": "agentrun/reconcile/1",
        "actions": found.asked.iter().map(one).collect::<Vec<_>>(),
        "expired_approvals": found.expired,
        "without_reference": found.nameless.iter().map(|action| json!(action.id)).collect::<Vec<_>>(),
    })
}
