//! The kinds of the steps and the keys that belong to each, checked on the tree before anything is typed: so a step of a
//! later version is named as that, and not as a step with unknown keys.

use super::super::check::{join, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::unknown_word;
use crate::domain::machine::Word as _;
use crate::domain::task::StepKind;
use crate::yaml::{Document, Node, NodeKind, Seg, nearest};

/// Kinds that the documentation names and this version does not run.
const NOT_YET: &[&str] = &["release", "deploy", "verify", "action", "approval"];

/// Keys that every step may have.
const COMMON: &[&str] = &["key", "kind", "needs", "timeout", "when", "artifacts"];

fn own_keys(kind: StepKind) -> &'static [&'static str] {
    match kind {
        StepKind::Context | StepKind::Report => &[],
        StepKind::Agent => &["agent", "prompt"],
        StepKind::Qa => &["run", "on_fail", "env"],
        StepKind::Command => &["run", "env"],
        StepKind::Release | StepKind::Deploy | StepKind::Verify | StepKind::Action | StepKind::Approval => &[],
    }
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
    let allowed: Vec<&str> = COMMON.iter().chain(own_keys(kind)).copied().collect();
    for entry in doc.find(at).into_iter().flat_map(Node::entries) {
        let key = entry.key.as_str();
        if allowed.contains(&key) {
            continue;
        }
        if StepKind::ALL.iter().any(|k| own_keys(*k).contains(&key)) {
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
    if NOT_YET.contains(&word) {
        return Err(format!("this version does not run steps of kind `{word}` yet"));
    }
    let kinds = StepKind::ALL.iter().map(|k| k.word()).chain(NOT_YET.iter().copied());
    StepKind::from_word(word).ok_or_else(|| format!("kind {}", unknown_word(word, kinds)))
}
