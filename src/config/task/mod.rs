//! Task files and the tasks that the command line makes of a prompt, as [`TaskSpec`]s with every default filled in.
//! A task is checked against its policy: it may be stricter, never looser (R-R4), and its clocks lie inside each other
//! (R-R5). Whether the files that it names exist is not looked at here.

mod agent;
mod delivery;
mod find;
mod from_prompt;
mod graph;
mod keys;
mod limits;
mod raw;
mod steps;
mod templates;

use std::collections::BTreeMap;

pub use find::{FoundTask, TASKS_FOLDER, find_task};
pub use from_prompt::task_from_prompt;

use crate::domain::ids::TaskId;
use crate::domain::task::{Concurrency, ContextSpec, KeepChanges, TaskSpec, WhenBusy, WorkspaceKind};
use crate::yaml::Document;

use super::check::{inner_glob, input_name, join, refused, refused_key};
use super::error::ConfigError;
use super::policy::LoadedPolicy;
use raw::{RawConcurrency, RawContext, RawTask};

/// The user's word where the task has none.
pub const DEFAULT_MODE: &str = "implement";

/// The agent where neither the step nor the command line names one.
pub const DEFAULT_AGENT: &str = "codex";

/// What the command line says about a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// `--agent`: for every agent step. Another agent than the file's takes no `model` and `args` of the file.
    pub agent: Option<String>,
    /// `--input k=v`.
    pub inputs: BTreeMap<String, String>,
}

impl Overrides {
    /// Takes one `--input` of the command line.
    pub fn add_input(&mut self, text: &str) -> Result<(), ConfigError> {
        let wrong = |message: String| ConfigError::option("--input", message);
        let (name, value) = text.split_once('=').ok_or_else(|| wrong(format!("`{text}` is not name=value")))?;
        match self.inputs.insert(name.to_owned(), value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(wrong(format!("`{name}` is given twice"))),
        }
    }
}

/// What a task is read against.
#[derive(Debug, Clone, Copy)]
pub struct TaskContext<'a> {
    /// Limits, clocks and agents.
    pub policy: &'a LoadedPolicy,
    /// The command line.
    pub overrides: &'a Overrides,
    /// The names of the contracts that there are; `None` where they were not read, and then every name is taken.
    pub contracts: Option<&'a [String]>,
}

/// Reads a task file.
pub fn load_task(path: &str, bytes: &[u8], context: &TaskContext<'_>) -> Result<TaskSpec, ConfigError> {
    let doc = Document::read(path, bytes)?;
    keys::check(&doc)?;
    let raw: RawTask = doc.deserialize()?;
    let inputs = inputs(&doc, raw.inputs, context.overrides)?;
    let steps = steps::steps(&doc, raw.steps, &inputs, context)?;
    let task = TaskId::new(&raw.task).map_err(|e| refused(&doc, &["task".into()], e.to_string()))?;
    Ok(TaskSpec {
        task,
        title: raw.title,
        mode: mode(&doc, raw.mode)?,
        inputs,
        workspace: raw.workspace.map_or(WorkspaceKind::Isolated, |f| f.0),
        keep_changes: raw.keep_changes.map_or(KeepChanges::Save, |f| f.0),
        concurrency: raw.concurrency.map(|c| concurrency(&doc, c)).transpose()?,
        context: context_files(&doc, &raw.context)?,
        budget: limits::budget(&doc, &raw.budget, context.policy)?,
        steps,
    })
}

fn mode(doc: &Document, found: Option<String>) -> Result<String, ConfigError> {
    let mode = found.unwrap_or_else(|| DEFAULT_MODE.to_owned());
    if mode.trim().is_empty() || mode.contains(char::is_control) {
        return Err(refused(doc, &["mode".into()], "`mode` must be a word"));
    }
    Ok(mode)
}

/// The inputs of the file with those of the command line over them. Names are one name when only their case differs,
/// because both would be one environment variable.
fn inputs(
    doc: &Document,
    file: BTreeMap<String, String>,
    overrides: &Overrides,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for name in file.keys() {
        let at = ["inputs".into(), name.as_str().into()];
        input_name(name).map_err(|message| refused_key(doc, &at, message))?;
        if let Some(other) = seen.insert(name.to_ascii_uppercase(), name) {
            return Err(refused_key(doc, &at, format!("inputs `{other}` and `{name}` differ only in case")));
        }
    }
    for name in overrides.inputs.keys() {
        if let Some(other) = seen.get(&name.to_ascii_uppercase()).filter(|other| *other != name) {
            return Err(ConfigError::option("--input", format!("the task's input is written `{other}`, not `{name}`")));
        }
    }
    let mut merged = option_inputs(overrides)?;
    for (name, value) in file {
        merged.entry(name).or_insert(value);
    }
    Ok(merged)
}

/// The inputs of the command line, checked.
fn option_inputs(overrides: &Overrides) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut seen = BTreeMap::new();
    for (name, value) in &overrides.inputs {
        input_name(name).map_err(|message| ConfigError::option("--input", message))?;
        if value.contains('\0') {
            return Err(ConfigError::option("--input", format!("the value of `{name}` contains a NUL character")));
        }
        if let Some(other) = seen.insert(name.to_ascii_uppercase(), name) {
            return Err(ConfigError::option("--input", format!("`{other}` and `{name}` differ only in case")));
        }
    }
    Ok(overrides.inputs.clone())
}

fn concurrency(doc: &Document, raw: RawConcurrency) -> Result<Concurrency, ConfigError> {
    if raw.group.trim().is_empty() {
        return Err(refused(doc, &["concurrency".into(), "group".into()], "a concurrency group needs a name"));
    }
    Ok(Concurrency { group: raw.group, when_busy: raw.when_busy.map_or(WhenBusy::Queue, |f| f.0) })
}

fn context_files(doc: &Document, raw: &RawContext) -> Result<ContextSpec, ConfigError> {
    let globs = |key: &'static str, found: &[String]| -> Result<Vec<String>, ConfigError> {
        let at = ["context".into(), key.into()];
        let one = |(i, text): (usize, &String)| inner_glob(text).map_err(|m| refused(doc, &join(&at, i), m));
        found.iter().enumerate().map(one).collect()
    };
    Ok(ContextSpec { files: globs("files", &raw.files)?, rules: globs("rules", &raw.rules)? })
}

#[cfg(test)]
mod tests;
