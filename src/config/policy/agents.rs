//! The agents of a policy: settings for the known ones over their defaults, and programs of the user's own.

use std::collections::BTreeMap;

use super::super::check::{env_name, join, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::unknown_word;
use super::raw::{RawAgent, RawPrice};
use crate::domain::budget::Price;
use crate::domain::machine::Word as _;
use crate::domain::policy::AgentRules;
use crate::domain::task::Protocol;
use crate::yaml::{Document, Seg};

/// Agents that the documentation names and this version does not run.
pub(in crate::config) const NOT_YET: &[&str] = &["claude", "gemini", "opencode"];

pub(super) fn agents(
    doc: &Document,
    raw: BTreeMap<String, RawAgent>,
    mut agents: BTreeMap<String, AgentRules>,
) -> Result<BTreeMap<String, AgentRules>, ConfigError> {
    for (name, entry) in raw {
        let rules = agent(doc, &name, entry, agents.get(&name))?;
        agents.insert(name, rules);
    }
    Ok(agents)
}

fn agent(doc: &Document, name: &str, raw: RawAgent, known: Option<&AgentRules>) -> Result<AgentRules, ConfigError> {
    let at: [Seg<'_>; 2] = ["agents".into(), name.into()];
    check_agent_name(name).map_err(|message| refused_key(doc, &at, message))?;
    let protocol = protocol(doc, &at, raw.protocol.as_deref(), known)?;
    let mut rules = known.cloned().unwrap_or_else(|| AgentRules::known(protocol));
    check_program(doc, &at, &raw, protocol)?;
    if let Some(env) = raw.env {
        check_env(doc, &join(&at, "env"), &env)?;
        rules.env = env;
    }
    rules.run = raw.run.unwrap_or_default();
    rules.bin = raw.bin.or(rules.bin);
    rules.args = raw.args.unwrap_or_default();
    rules.sandbox = raw.sandbox.map_or(rules.sandbox, |f| f.0);
    rules.home = raw.home.map_or(rules.home, |f| f.0);
    rules.price = raw.price.as_ref().map(price);
    if let Some(provider) = &raw.provider {
        check_name(provider, "provider").map_err(|message| refused(doc, &join(&at, "provider"), message))?;
    }
    rules.provider = raw.provider;
    Ok(rules)
}

fn check_agent_name(name: &str) -> Result<(), String> {
    if NOT_YET.contains(&name) {
        return Err(not_yet(name));
    }
    check_name(name, "agent")
}

fn check_name(name: &str, of: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 64 && name.chars().all(allowed);
    let article = if of.starts_with('a') { "an" } else { "a" };
    let refusal = || format!("`{name}` is no name of {article} {of}: use letters, digits, `-`, `_`, `.`");
    if good { Ok(()) } else { Err(refusal()) }
}

/// The message for an agent or protocol of a later version.
pub(in crate::config) fn not_yet(name: &str) -> String {
    format!("this version does not run `{name}` yet")
}

fn protocol(
    doc: &Document,
    at: &[Seg<'_>],
    found: Option<&str>,
    known: Option<&AgentRules>,
) -> Result<Protocol, ConfigError> {
    let here = join(at, "protocol");
    match (found, known) {
        (None, Some(known)) => Ok(known.protocol),
        (None, None) => Err(refused(doc, at, "an agent of your own needs `protocol` (agentrun, text or codex)")),
        (Some(word), _) if NOT_YET.contains(&word) => Err(refused(doc, &here, not_yet(word))),
        (Some(word), known) => {
            let words = Protocol::ALL.iter().map(|p| p.word());
            let protocol =
                Protocol::from_word(word).ok_or_else(|| refused(doc, &here, unknown_word(word, words.clone())))?;
            match known {
                Some(known) if known.protocol != protocol => {
                    Err(refused(doc, &here, format!("this agent speaks `{}`; give yours another name", known.protocol)))
                }
                _ => Ok(protocol),
            }
        }
    }
}

/// A program of the user's own has a command line; a known one has at most another `bin`.
fn check_program(doc: &Document, at: &[Seg<'_>], raw: &RawAgent, protocol: Protocol) -> Result<(), ConfigError> {
    let own = matches!(protocol, Protocol::Agentrun | Protocol::Text);
    match &raw.run {
        None if own => Err(refused(doc, at, format!("an agent with protocol `{protocol}` needs `run`"))),
        Some(run) if run.first().is_none_or(String::is_empty) => {
            Err(refused(doc, &join(at, "run"), "`run` must name a program"))
        }
        Some(_) if !own => Err(refused(doc, &join(at, "run"), format!("`{protocol}` takes `bin`, not `run`"))),
        _ => Ok(()),
    }
}

/// Checks names of environment variables.
pub(super) fn check_env(doc: &Document, at: &[Seg<'_>], names: &[String]) -> Result<(), ConfigError> {
    for (i, name) in names.iter().enumerate() {
        env_name(name).map_err(|message| refused(doc, &join(at, i), message))?;
    }
    Ok(())
}

/// Without a price of their own, cached tokens cost as much as others: a limit must not be met too late.
fn price(raw: &RawPrice) -> Price {
    let input = raw.input.0.0;
    Price { input, cached: raw.cached.map_or(input, |f| f.0.0), output: raw.output.0.0 }
}
