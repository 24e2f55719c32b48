//! Which agent a step runs: from the step, the policy and the command line.

use super::super::check::{inner_path, join, refused};
use super::super::error::ConfigError;
use super::super::fields::{TextOr, unknown_word};
use super::super::policy::{LoadedPolicy, NOT_YET, not_yet};
use super::raw::RawAgent;
use super::{DEFAULT_AGENT, TaskContext};
use crate::domain::policy::AgentRules;
use crate::domain::task::{AgentSpec, Protocol};
use crate::yaml::{Document, Seg};

/// The agent of a step of a file.
pub(super) fn of_step(
    doc: &Document,
    at: &[Seg<'_>],
    raw: Option<TextOr<RawAgent>>,
    context: &TaskContext<'_>,
) -> Result<AgentSpec, ConfigError> {
    let at = join(at, "agent");
    let long = matches!(raw, Some(TextOr::Keys(_)));
    let mut raw = match raw {
        Some(TextOr::Keys(agent)) => agent,
        Some(TextOr::Text(name)) => RawAgent { name, ..RawAgent::default() },
        None => RawAgent { name: DEFAULT_AGENT.to_owned(), ..RawAgent::default() },
    };
    let key_at = |key: &'static str| if long { join(&at, key) } else { at.clone() };
    for (key, path) in [("events", &mut raw.events), ("patch", &mut raw.patch)] {
        if let Some(text) = path {
            *path = Some(inner_path(text).map_err(|message| refused(doc, &key_at(key), message))?);
        }
    }
    match &context.overrides.agent {
        Some(name) if *name != raw.name => {
            // Model and arguments were written for the other agent.
            let other = RawAgent { name: name.clone(), events: raw.events, patch: raw.patch, ..RawAgent::default() };
            of_option(other, context.policy)
        }
        _ => {
            let rules = rules(&raw.name, context.policy).map_err(|m| refused(doc, &key_at("name"), m))?;
            spec(raw, rules).map_err(|message| refused(doc, &at, message))
        }
    }
}

/// An agent that the command line names.
pub(super) fn of_option(mut raw: RawAgent, policy: &LoadedPolicy) -> Result<AgentSpec, ConfigError> {
    let rules = rules(&raw.name, policy).map_err(|message| ConfigError::option("--agent", message))?;
    if rules.protocol != Protocol::Replay {
        (raw.events, raw.patch) = (None, None);
    }
    spec(raw, rules).map_err(|message| ConfigError::option("--agent", message))
}

fn rules<'p>(name: &str, policy: &'p LoadedPolicy) -> Result<&'p AgentRules, String> {
    if NOT_YET.contains(&name) {
        return Err(not_yet(name));
    }
    let agents = &policy.policy.agents;
    agents.get(name).ok_or_else(|| format!("agent {}", unknown_word(name, agents.keys().map(String::as_str))))
}

fn spec(raw: RawAgent, rules: &AgentRules) -> Result<AgentSpec, String> {
    let replay = rules.protocol == Protocol::Replay;
    if replay && raw.events.is_none() {
        return Err(format!("agent `{}` needs `events`: the recording to play", raw.name));
    }
    if !replay && (raw.events.is_some() || raw.patch.is_some()) {
        return Err(format!("`events` and `patch` are for replay; `{}` speaks {}", raw.name, rules.protocol));
    }
    let args = rules.args.iter().cloned().chain(raw.args).collect();
    let (name, protocol, model) = (raw.name, rules.protocol, raw.model);
    Ok(AgentSpec { name, protocol, model, args, events: raw.events, patch: raw.patch })
}
