//! Side effects in words, for a terminal.

use std::fmt::Write as _;

use super::amount::utc;
use crate::domain::action::record::{ReadingRecord, WantedRecord};
use crate::domain::action::{ActionRecord, ActionState};
use crate::domain::failure::Failure;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::text::neutral_line;

/// One line each, with what a person should know of those that wait.
pub fn action_lines(actions: &[ActionRecord], present: UtcMs) -> String {
    actions.iter().fold(String::new(), |mut out, action| {
        let age = Millis::between(action.created_at, present).rough();
        let _ = writeln!(out, "{} {:<16} {} {age}", action.id, action.state, title(action));
        for line in waiting(action) {
            let _ = writeln!(out, "    {line}");
        }
        out
    })
}

/// Everything about one.
pub fn known_text(action: &ActionRecord, readings: &[ReadingRecord], wanted: &[WantedRecord]) -> String {
    let mut out = format!("{}: {} {}\n", action.id, title(action), action.state);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "  {name:<13} {}", neutral_line(&value));
        }
    };
    add("why", action.code.map(|code| format!("{code}: {}", action.message.as_deref().unwrap_or_default())));
    add("last fact", Some(action.last_fact.clone()));
    add("reference", action.reference.clone());
    add("said", action.summary.clone());
    add("key", Some(action.key.clone()));
    add("request", Some(format!("{} in {}", action.request_hash, action.request_file)));
    add("contract", Some(action.contract.name.clone()));
    add("environment", Some(action.environment.to_string()));
    add("account", action.account.clone());
    add("release", action.release.as_ref().map(ToString::to_string));
    add("approval", action.approval.as_ref().map(ToString::to_string));
    add("run", Some(action.run.to_string()));
    add("sent", action.sent_at.map(|at| format!("{} times, last at {}", action.tries, utc(at))));
    add("trusted from", action.query_from.map(utc));
    add("must look", action.review.clone());
    add("owner", action.owner.clone());
    add("due", action.due.map(utc));
    for reading in readings {
        add("seen", Some(format!("{} by {}: {}", utc(reading.at), reading.source, reading_words(reading))));
    }
    for wish in wanted {
        let step = wish.by.step.as_ref().map_or_else(|| "an agent".to_owned(), ToString::to_string);
        add("wanted", Some(format!("{} by {step} of {} ({})", utc(wish.at), wish.by.run, wish.answer)));
    }
    out
}

/// What asking brought.
pub fn reconciled_line(before: ActionState, action: &ActionRecord, hindered: Option<&Failure>) -> String {
    let mut out = format!("{} {}: {before} → {}\n", action.id, title(action), action.state);
    if let Some(failure) = hindered {
        let _ = writeln!(out, "    could not be asked about: {}", neutral_line(&failure.message));
    }
    let _ = writeln!(out, "    {}", neutral_line(&action.last_fact));
    for line in waiting(action) {
        let _ = writeln!(out, "    {line}");
    }
    let next = match action.state {
        ActionState::OutcomeUnknown => {
            format!("look at the other side, then: agentrun action resolve {} --as … --reason …", action.id)
        }
        _ => format!("agentrun resume {}", action.run),
    };
    let _ = writeln!(out, "    next: {next}");
    out
}

fn title(action: &ActionRecord) -> String {
    neutral_line(&format!("{} {}", action.kind, action.target)).into_owned()
}

/// Who must look, why and until when; and since what it is unknown.
fn waiting(action: &ActionRecord) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(review) = &action.review {
        let owner = action.owner.as_deref().unwrap_or("nobody");
        let due = action.due.map(|at| format!(" until {}", utc(at))).unwrap_or_default();
        lines.push(format!("{owner} must look{due}: {}", neutral_line(review)));
    }
    if action.state == ActionState::OutcomeUnknown {
        let from = action.query_from.map(|at| format!("; an empty answer counts from {}", utc(at))).unwrap_or_default();
        lines.push(format!("last fact: {}{from}", neutral_line(&action.last_fact)));
    }
    if let (ActionState::WaitingApproval, Some(approval)) = (action.state, &action.approval) {
        lines.push(format!("agentrun approve {approval}"));
    }
    lines
}

fn reading_words(reading: &ReadingRecord) -> String {
    use crate::domain::action::Reading as R;
    match &reading.reading {
        R::Succeeded { reference } => format!("it is there {}", reference.as_deref().unwrap_or_default()),
        R::Failed { message } => format!("it failed: {message}"),
        R::InProgress { .. } => "it is under way".to_owned(),
        R::NotFound => "it is not found".to_owned(),
        R::Several { matches } => format!("{matches} fit"),
        R::Unclear { message, .. } => format!("no answer: {message}"),
    }
}
