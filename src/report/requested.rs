//! What something inside a run is told about an action: as JSON, and in words.

use serde_json::{Value, json};

use super::amount;
use crate::domain::action::ActionRecord;
use crate::domain::action::told::Told;
use crate::domain::quantity::UtcMs;
use crate::domain::text::neutral_line;

/// An action, and what is said of it.
#[derive(Debug, Clone, Copy)]
pub struct Requested<'a> {
    /// The record.
    pub action: &'a ActionRecord,
    /// Where it stands.
    pub told: Told,
    /// True when it was on record before.
    pub duplicate: bool,
    /// When it is worth looking again.
    pub look_again: Option<UtcMs>,
}

/// `agentrun/action/1`: the answer of `action request`. The key is not in it: whoever asks for an action has no use for it.
pub fn action_json(requested: &Requested<'_>) -> Value {
    let Requested { action, told, duplicate, look_again } = *requested;
    json!({
        "schema": "agentrun/action/1",
        "id": action.id,
        "type": action.kind,
        "target": action.target,
        "account": action.account,
        "environment": action.environment,
        "state": action.state,
        "answer": told,
        "duplicate": duplicate,
        "advice": told.advice(),
        "code": action.code,
        "message": action.message.as_ref().or(action.review.as_ref()).or(action.summary.as_ref()),
        "reference": action.reference,
        "approval": if told == Told::WaitsForPerson { action.approval.as_ref() } else { None },
        "look_again": look_again.map(amount::utc),
        "tries": action.tries,
    })
}

/// The same for people and models: the state first, then what to do.
pub fn action_words(requested: &Requested<'_>) -> String {
    let Requested { action, told, duplicate, look_again } = *requested;
    let mut text = format!("{told}: {} to {} ({})", action.kind, neutral_line(&action.target), action.id);
    if duplicate {
        text.push_str("; it was asked for before, and this is the same one");
    }
    let mut line = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            text.push_str(&format!("\n  {name}: {}", neutral_line(value)));
        }
    };
    line("reference", action.reference.as_deref());
    line("why", action.message.as_deref().or(action.review.as_deref()));
    if told == Told::WaitsForPerson {
        line("approval", action.approval.as_ref().map(AsRef::as_ref));
    }
    line("look again", look_again.map(amount::utc).as_deref());
    line("now", Some(told.advice()));
    text.push('\n');
    text
}
