//! Agents under a changed policy: those of the run's task count, others do not.

use std::collections::BTreeMap;

use super::{Conduct, Effect, Found, Work, text};
use crate::domain::policy::{AgentHome, AgentRules, Sandbox};

pub(super) fn compare(
    found: &mut Found,
    old: &BTreeMap<String, AgentRules>,
    new: &BTreeMap<String, AgentRules>,
    conduct: &Conduct,
) {
    let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let key = format!("agents.{name}");
        match (conduct.agents.get(name), old.get(name), new.get(name)) {
            (_, before, after) if before == after => {}
            (Some(work), Some(before), Some(after)) => one(found, &key, (before, after), *work),
            (Some(_), before, None) => found.add(&key, (before.map(text), None), Effect::Forbids),
            // The task could not have been read without it, so nobody agreed to what it says now.
            (Some(_), None, after) => found.add(&key, (None, after.map(text)), Effect::Looser),
            (None, before, after) => found.add(&key, (before.map(text), after.map(text)), Effect::Unrelated),
        }
    }
}

fn one(found: &mut Found, key: &str, (old, new): (&AgentRules, &AgentRules), work: Work) {
    let AgentRules { protocol, run, bin, sandbox, env, args, home, price, provider } = old;
    let at = |part: &str| format!("{key}.{part}");
    found.pair(&at("protocol"), &protocol.to_string(), &new.protocol.to_string(), Effect::Looser);
    found.pair(&at("run"), &text(run), &text(&new.run), Effect::Looser);
    found.pair(&at("bin"), &text(bin), &text(&new.bin), Effect::Looser);
    found.pair(
        &at("sandbox"),
        &sandbox.to_string(),
        &new.sandbox.to_string(),
        sandboxed((*sandbox, new.sandbox), work),
    );
    found.names(&at("env"), env, &new.env);
    // An argument may name a model or open a sandbox: which of these cannot be told.
    found.pair(&at("args"), &text(args), &text(&new.args), Effect::Looser);
    let home_effect = if new.home == AgentHome::Private { Effect::Stricter } else { Effect::Looser };
    found.pair(&at("home"), &home.to_string(), &new.home.to_string(), home_effect);
    found.pair(&at("provider"), &text(provider), &text(&new.provider), Effect::Setting);
    found.pair(&at("price"), &text(price), &text(&new.price), Effect::Setting);
}

/// A tighter sandbox is stricter for work that is ahead; for work that is done it is a line that was crossed.
fn sandboxed((old, new): (Sandbox, Sandbox), work: Work) -> Effect {
    if new > old {
        return Effect::Looser;
    }
    match work {
        Work::Ahead => Effect::Stricter,
        Work::Done => Effect::Forbids,
    }
}
