//! The promises and the tests that show them. `tests/promises.txt` holds one promise a line: id, state, words. The state is
//! `due` (a test must name it), `open` (due, and no test names it yet) or `later` (not in this version).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Page, files_below, read};

struct Promise {
    id: String,
    state: String,
    words: String,
}

pub(crate) fn pages() -> Vec<Page> {
    vec![Page { path: "docs/promises.md", text: text() }]
}

fn promises() -> Vec<Promise> {
    let text = read("tests/promises.txt");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let parts: Vec<_> = line.splitn(3, '|').map(|part| part.trim().to_owned()).collect();
        let [id, state, words] = parts.try_into().unwrap_or_else(|_| panic!("`id | state | words`, not `{line}`"));
        assert!(["due", "open", "later"].contains(&state.as_str()), "{id}: `{state}`");
        Promise { id, state, words }
    };
    lines.map(parse).collect()
}

/// For each id the tests that name it, in their name (`r_f1_…`) or their text (`R-F1`): `file::test`.
fn named() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files_below("src", ".rs").into_iter().chain(files_below("tests", ".rs")) {
        let text = read(&path);
        for part in text.split("#[test]").skip(1) {
            let Some(name) = part.split("fn ").nth(1).and_then(|rest| rest.split('(').next()) else { continue };
            let mut ids: Vec<String> = ids_in_name(name).into_iter().chain(ids_in_text(part)).collect();
            ids.sort();
            ids.dedup();
            for id in ids {
                found.entry(id).or_default().push(format!("{path}::{name}"));
            }
        }
    }
    found
}

fn ids_in_name(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let pairs = words.windows(2).filter(|pair| pair[0] == "r" && is_number(pair[1]));
    pairs.map(|pair| format!("R-{}", pair[1].to_uppercase())).collect()
}

fn ids_in_text(text: &str) -> Vec<String> {
    let end = |rest: &str| rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    // `FR-F16` is a field report, no promise.
    let alone = |at: &usize| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let after = text.match_indices("R-").map(|(at, _)| at).filter(alone).map(|at| &text[at + 2..]);
    after
        .map(|rest| &rest[..end(rest)])
        .filter(|id| is_number(&id.to_lowercase()))
        .map(|id| format!("R-{id}"))
        .collect()
}

/// `f1`, `a20`.
fn is_number(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| "mfwsraepu".contains(c)) && word.len() > 1 && chars.all(|c| c.is_ascii_digit())
}

fn text() -> String {
    let (promises, named) = (promises(), named());
    let mut out = "# Promises and their tests\n\nWhat agentrun promises, and the tests that show it. \"Not yet\" is said here as plainly as \"shown\".\n".to_owned();
    let groups =
        [("due", "Shown by tests"), ("open", "Due, and named by no test yet"), ("later", "Not in this version")];
    for (state, title) in groups {
        let rows: Vec<_> = promises.iter().filter(|p| effective(p, &named) == state).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(out, "\n## {title}\n");
        for promise in rows {
            let _ = write!(out, "\n- **{}** {}\n", promise.id, promise.words);
            for test in named.get(&promise.id).into_iter().flatten() {
                let _ = writeln!(out, "  - `{test}`");
            }
        }
    }
    out
}

/// A promise that was open is shown as soon as a test names it.
fn effective<'p>(promise: &'p Promise, named: &BTreeMap<String, Vec<String>>) -> &'p str {
    if promise.state == "open" && named.contains_key(&promise.id) { "due" } else { &promise.state }
}

#[test]
fn every_promise_that_is_due_is_named_by_a_test() {
    let named = named();
    let promises = promises();
    let unnamed: Vec<_> =
        promises.iter().filter(|p| p.state == "due" && !named.contains_key(&p.id)).map(|p| &p.id).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}; write one, or say `open` in tests/promises.txt");
    let unknown: Vec<_> = named.keys().filter(|id| !promises.iter().any(|p| p.id == **id)).collect();
    assert!(unknown.is_empty(), "tests name promises that tests/promises.txt does not have: {unknown:?}");
    let open: Vec<_> = promises.iter().filter(|p| effective(p, &named) == "open").map(|p| p.id.as_str()).collect();
    println!("due and named by no test yet: {}", open.join(", "));
}

#[test]
fn promises_are_there_once() {
    let mut ids: Vec<_> = promises().into_iter().map(|p| p.id).collect();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert_eq!(count, 76, "ids stay for good: none is removed, a new one changes this number");
}
