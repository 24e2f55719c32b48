//! `start --prompt "…"`: a task without a file, so that the first run in a repository needs no YAML.

use super::super::error::ConfigError;
use super::raw::RawAgent;
use super::steps::DEFAULT_ROUNDS;
use super::{DEFAULT_AGENT, DEFAULT_MODE, TaskContext, agent, option_inputs};
use crate::domain::budget::Budget;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{StepKey, TaskId};
use crate::domain::machine::Word as _;
use crate::domain::task::{
    CommandLine, ContextSpec, KeepChanges, PromptRef, SendBack, StepBody, StepSpec, TaskSpec, When, WorkspaceKind,
};

/// The longest part of an id that comes from words.
const MAX_SLUG: usize = 40;

/// Makes a task of a prompt and, maybe, a check: context, agent, qa with two rounds, report.
pub fn task_from_prompt(text: &str, qa: Option<&str>, context: &TaskContext<'_>) -> Result<TaskSpec, ConfigError> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err(ConfigError::option("--prompt", "the prompt is empty or contains a NUL character"));
    }
    let name = context.overrides.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let agent = agent::of_option(RawAgent { name: name.to_owned(), ..RawAgent::default() }, context.policy)?;
    let mut bodies = vec![StepBody::Context, StepBody::Agent { agent, prompt: PromptRef::Text(text.to_owned()) }];
    if let Some(line) = qa {
        if line.trim().is_empty() || line.contains('\0') {
            return Err(ConfigError::option("--qa", "the check is empty or contains a NUL character"));
        }
        let back = SendBack { send_back_to: StepKey::recorded("agent"), rounds: DEFAULT_ROUNDS };
        bodies.push(StepBody::Qa { run: CommandLine::Shell(line.to_owned()), on_fail: Some(back) });
    }
    bodies.push(StepBody::Report);
    Ok(TaskSpec {
        task: id(text)?,
        title: Some(title(text)),
        mode: DEFAULT_MODE.to_owned(),
        inputs: option_inputs(context.overrides)?,
        workspace: WorkspaceKind::Isolated,
        keep_changes: KeepChanges::Save,
        concurrency: None,
        context: ContextSpec::default(),
        budget: Budget::default(),
        steps: in_a_row(bodies),
    })
}

fn in_a_row(bodies: Vec<StepBody>) -> Vec<StepSpec> {
    let mut steps: Vec<StepSpec> = Vec::new();
    for body in bodies {
        let needs = steps.last().map(|s| s.key.clone()).into_iter().collect();
        let mut step = StepSpec {
            key: StepKey::recorded(""),
            needs,
            explicit_needs: false,
            timeout: None,
            when: When::NeedsSucceeded,
            artifacts: Vec::new(),
            env: std::collections::BTreeMap::new(),
            body,
        };
        step.key = StepKey::recorded(step.kind().word());
        steps.push(step);
    }
    steps
}

/// The first words, for people, and six digits of the hash, so that the same text is the same task.
fn id(text: &str) -> Result<TaskId, ConfigError> {
    let lower = text.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = words.take(5).collect::<Vec<_>>().join("-");
    slug.truncate(MAX_SLUG);
    let slug = slug.trim_end_matches('-');
    let slug = if slug.is_empty() { "prompt" } else { slug };
    let hash = Sha256Hash::of(text.as_bytes()).hex();
    TaskId::new(&format!("{slug}-{}", &hash[..6])).map_err(|e| ConfigError::option("--prompt", e.to_string()))
}

/// The first line, at most 72 characters.
fn title(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    if line.chars().count() <= 72 { line.to_owned() } else { line.chars().take(71).chain(['…']).collect() }
}
