//! Cases for `policy test`: `policies/cases/*.yml`. Each says what is wanted and what the rules must say of it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::check::{inner_path, join, refused};
use super::error::ConfigError;
use super::fields::{Conditions, Field, TextOrList};
use super::source::Source;
use crate::domain::policy::Verdict;
use crate::domain::policy::case::{PolicyCase, Wanted};
use crate::domain::policy::decide::Asked;
use crate::domain::task::CommandLine;
use crate::yaml::{Document, Node, Seg};

/// Where cases are looked for.
pub const CASES_FOLDER: &str = "policies/cases";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`cases` with a list of cases")]
struct RawCases {
    cases: Vec<RawCase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a case with `name`, `action` or `command`, and `expect`")]
struct RawCase {
    name: String,
    action: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "taken from the tree, which keeps the texts; here only its shape is checked")]
    with: Conditions,
    command: Option<TextOrList>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    expect: Field<Verdict>,
    rule: Option<String>,
}

/// The files of the folder, by their paths.
pub fn case_files(source: &dyn Source) -> Result<Vec<String>, ConfigError> {
    let names = source.list(CASES_FOLDER)?.into_iter();
    let is_case = |name: &String| std::path::Path::new(name).extension().is_some_and(|e| e == "yml");
    Ok(names.filter(is_case).map(|name| format!("{CASES_FOLDER}/{name}")).collect())
}

/// Reads one file of cases.
pub fn load_cases(source: &dyn Source, path: &str) -> Result<Vec<PolicyCase>, ConfigError> {
    let path = inner_path(path).map_err(|message| ConfigError::not_found(format!("no file of cases: {message}")))?;
    let bytes = source.read(&path)?;
    let bytes = bytes.ok_or_else(|| ConfigError::not_found(format!("there is no file of cases `{path}`")))?;
    let doc = Document::read(&path, &bytes)?;
    let raw: RawCases = doc.deserialize()?;
    raw.cases.into_iter().enumerate().map(|(i, raw)| case(&doc, &["cases".into(), i.into()], raw)).collect()
}

fn case(doc: &Document, at: &[Seg<'_>], raw: RawCase) -> Result<PolicyCase, ConfigError> {
    let attributes = || {
        let entries = doc.find(&join(at, "with")).into_iter().flat_map(Node::entries);
        entries.map(|e| (e.key.clone(), e.value.canonical())).collect::<BTreeMap<_, _>>()
    };
    let wanted = match (raw.action, raw.command) {
        (Some(action), None) if raw.env.is_empty() => Wanted::Action(Asked { action, values: attributes() }),
        (None, Some(command)) if attributes().is_empty() => {
            let line = match command {
                TextOrList::Text(text) => CommandLine::Shell(text),
                TextOrList::List(list) => CommandLine::List(list),
            };
            Wanted::Command(line, raw.env)
        }
        (Some(_), None) => return Err(refused(doc, &join(at, "env"), "`env` belongs to a command, not to an action")),
        (None, Some(_)) => {
            return Err(refused(doc, &join(at, "with"), "`with` belongs to an action, not to a command"));
        }
        _ => return Err(refused(doc, at, format!("case `{}` needs exactly one of action, command", raw.name))),
    };
    let position = doc.at(at);
    let place = format!("{}:{}", position.file, position.line);
    Ok(PolicyCase { name: raw.name, place, wanted, verdict: raw.expect.0, rule: raw.rule })
}
