//! The kinds of the steps and the keys that belong to each, checked on the tree before anything is typed: so a key of another
//! kind is named as that, and not as an unknown one.

use super::super::check::{join, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::unknown_word;
use crate::domain::machine::Word as _;
use crate::domain::task::StepKind;
use crate::yaml::{Document, Node, NodeKind, Seg, nearest};

/// Keys that every step may have.
const COMMON: &[&str] = &["key", "kind", "needs", "timeout", "when", "artifacts"];

fn own_keys(kind: StepKind) -> &'static [&'static str] {
    match kind {
        StepKind::Context | StepKind::Report => &[],
        StepKind::Agent => &["agent", "prompt"],
        StepKind::Qa => &["run", "on_fail", "env"],
        StepKind::Command => &["run", "env"],
        StepKind::Release => &["release"],
        StepKind::Deploy => &[
            "environment",
            "run",
            "status",
            "verify",
            "environment_state",
            "release",
            "contract",
            "instance",
            "irreversible",
            "rollback",
            "env",
        ],
        StepKind::Verify => &["health", "smoke", "of", "env"],
        StepKind::Action => &[
            "type",
            "target",
            "account",
            "input",
            "subject",
            "contract",
            "instance",
            "irreversible",
            "run",
            "status",
            "env",
        ],
        StepKind::Approval => &["ask", "approvers", "expires"],
    }
}

/// All keys of a kind. A gate is no work: it has no clock (its answer has one, `expires`) and makes nothing.
fn all_keys(kind: StepKind) -> Vec<&'static str> {
    let is_work = |key: &&&str| kind != StepKind::Approval || !matches!(**key, "timeout" | "artifacts");
    COMMON.iter().filter(is_work).chain(own_keys(kind)).copied().collect()
}

/// Checks kinds and keys of all steps.
pub(super) fn check(doc: &Document) -> Result<(), ConfigError> {
    let steps = doc.find(&["steps".into()]).map_or(&[][..], Node::items);
    for (i, step) in steps.iter().enumerate() {
        let at: [Seg<'_>; 2] = ["steps".into(), i.into()];
        match step.text() {
            Some(word) => drop(kind(word).map_err(|message| refused(doc, &at, message))?),
            None if !matches!(step.kind, NodeKind::Map(_)) => {}
            None => keys(doc, &at)?,
        }
    }
    Ok(())
}

fn keys(doc: &Document, at: &[Seg<'_>]) -> Result<(), ConfigError> {
    let kind_at = join(at, "kind");
    let word = doc.text(&kind_at).ok_or_else(|| {
        let kinds = StepKind::ALL.iter().map(|k| k.word()).collect::<Vec<_>>().join(", ");
        refused(doc, at, format!("a step needs `kind`, one of {kinds}"))
    })?;
    let kind = kind(word).map_err(|message| refused(doc, &kind_at, message))?;
    let allowed = all_keys(kind);
    for entry in doc.find(at).into_iter().flat_map(Node::entries) {
        let key = entry.key.as_str();
        if allowed.contains(&key) {
            continue;
        }
        if StepKind::ALL.iter().any(|k| all_keys(*k).contains(&key)) {
            let message = format!("`{key}` does not belong to a step of kind {kind}; it takes {}", allowed.join(", "));
            return Err(refused_key(doc, &join(at, key), message));
        }
        let near = nearest(key, allowed.iter().copied());
        let known = if near.is_some() { String::new() } else { format!("; known are {}", allowed.join(", ")) };
        let error = doc.error(entry.position.clone(), format!("unknown key `{key}`{known}"));
        return Err(error.with_nearest(near).into());
    }
    Ok(())
}

/// The kind of a word, or why it is none.
pub(super) fn kind(word: &str) -> Result<StepKind, String> {
    let kinds = StepKind::ALL.iter().map(|k| k.word());
    StepKind::from_word(word).ok_or_else(|| format!("kind {}", unknown_word(word, kinds)))
}
