//! Looks into programs of other languages for what they name: a push, a statement that writes. Nothing is followed there; what is
//! found is opaque.

use serde_json::Value;

use super::database::{is_production, mentions_write};
use super::decode::hidden;
use super::shell::Shell;
use super::words::UNKNOWN;
use super::{DATABASE_WRITE, GIT_PUSH};

/// How much of a program is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// A few words on a command line: what it names, it means.
    Inline,
    /// A whole file, in which words stand far apart by chance.
    File,
}

/// How far apart `git` and `push` may stand in a file to be one thing.
const WINDOW: usize = 40;

/// Texts by which a program makes code out of data.
const DECODERS: [&str; 7] = ["b64decode", "fromhex", "atob(", "unpack(", "codecs.decode", "base64_decode", "decode64"];

/// Looks into a program.
pub(super) fn read(shell: &mut Shell, text: &str, extent: Extent) {
    if text.contains(UNKNOWN) {
        return shell.all_opaque();
    }
    let decoded = hidden(text);
    let hides = extent == Extent::Inline && decoded.is_empty() && DECODERS.iter().any(|word| text.contains(word));
    if hides {
        return shell.all_opaque();
    }
    let texts: Vec<&str> = std::iter::once(text).chain(decoded.iter().map(String::as_str)).collect();
    if texts.iter().any(|text| mentions_push(text, extent)) {
        shell.opaque(GIT_PUSH);
    }
    if texts.iter().any(|text| mentions_write(text)) {
        let mut values = std::collections::BTreeMap::from([("opaque".to_owned(), Value::Bool(true))]);
        if texts.iter().any(|text| is_production(text)) {
            values.insert("environment".to_owned(), "production".into());
        }
        shell.effect(DATABASE_WRITE, values);
    }
}

/// Whether a text names a push to a git remote.
pub(super) fn mentions_push(text: &str, extent: Extent) -> bool {
    let words = positions(text);
    let is = |wanted: &'static str| words.iter().filter(move |(_, word)| *word == wanted).map(|(at, _)| *at);
    let far = |git: usize, push: usize| extent == Extent::File && (push < git || push - git > WINDOW);
    is("git").any(|git| is("push").any(|push| !far(git, push))) || text.contains("send-pack")
}

fn positions(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut found = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        found.push((at, word));
        // The character between two words has at least one byte.
        at += word.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    found
}
