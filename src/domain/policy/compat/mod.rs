//! Whether a run may go on under a policy that changed since it began (R-S6): the old one, the new one and what the run did
//! give the list of differences, each with a verdict. What is stricter or unrelated goes on; what would forbid what the run
//! did, or loosens a rule that it was approved under, needs a person. A changed limit is no rule, whichever way it went.

mod agents;
mod rules;

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;

use super::{Policy, sections::Person};
use crate::domain::budget::{LimitKind, Limits, Scope};
use crate::domain::machine::Word as _;
use crate::domain::plan::resume::{Difference, DifferenceCode, ResumeVerdict};
use crate::domain::quantity::Millis;

/// What a run did that a policy speaks about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conduct {
    /// The agents of its task by name. What the policy says of any other does not concern it.
    pub agents: BTreeMap<String, Work>,
}

/// Whether an agent of the task has worked in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// It was executed.
    Done,
    /// Its turn has not come.
    Ahead,
}

/// Every difference between the policy that a run was given and the one that holds now, in the order of the file.
pub fn differences(old: &Policy, new: &Policy, conduct: &Conduct) -> Vec<Difference> {
    let mut found = Found::default();
    // Taken apart whole, so that a new section cannot be forgotten here.
    let Policy {
        version,
        budgets,
        warn_permille,
        timeouts,
        leases,
        retry,
        agents,
        env,
        logs_max,
        retention_start,
        retention_runs,
        breaker,
        retention,
        actions,
        concurrency,
        send_budget,
        people,
        rules,
    } = old;
    found.unrelated("version", version, &new.version);
    found.limits(Scope::Task, &budgets.task, &new.budgets.task);
    found.limits(Scope::Attempt, &budgets.attempt, &new.budgets.attempt);
    found.setting("budgets.warn", warn_permille, &new.warn_permille);
    for (name, of) in CLOCKS {
        found.setting(&format!("timeouts.{name}"), &of(timeouts), &of(&new.timeouts));
    }
    found.setting("leases.ttl", &leases.ttl, &new.leases.ttl);
    found.setting("leases.heartbeat", &leases.heartbeat, &new.leases.heartbeat);
    found.section("retry", retry, &new.retry);
    agents::compare(&mut found, agents, &new.agents, conduct);
    found.names("env", env, &new.env);
    found.setting("logs.max", logs_max, &new.logs_max);
    found.setting("retention.start", retention_start, &new.retention_start);
    found.setting("retention.runs", retention_runs, &new.retention_runs);
    found.section("retention", retention, &new.retention);
    found.section("actions", actions, &new.actions);
    found.section("breaker", breaker, &new.breaker);
    found.section("concurrency", concurrency, &new.concurrency);
    found.section("send_budget", send_budget, &new.send_budget);
    compare_people(&mut found, people.as_ref(), new.people.as_ref());
    rules::compare(&mut found, rules, &new.rules);
    found.0
}

type Clock = (&'static str, fn(&super::Timeouts) -> Millis);

const CLOCKS: [Clock; 8] = [
    ("call", |t| t.call),
    ("step", |t| t.step),
    ("attempt", |t| t.attempt),
    ("run", |t| t.run),
    ("idle", |t| t.idle),
    ("first_output", |t| t.first_output),
    ("exit", |t| t.exit),
    ("grace", |t| t.grace),
];

/// What a change means for a run that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It speaks of nothing that the run has to do with.
    Unrelated,
    /// A limit, a clock or a price: no rule.
    Setting,
    /// Less is allowed.
    Stricter,
    /// What the run did would be forbidden.
    Forbids,
    /// More is allowed, or it cannot be told.
    Looser,
}

impl Effect {
    fn verdict(self) -> ResumeVerdict {
        match self {
            Self::Unrelated | Self::Setting | Self::Stricter => ResumeVerdict::Valid,
            Self::Forbids | Self::Looser => ResumeVerdict::ReviewRequired,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Unrelated => "the run has nothing to do with it",
            Self::Setting => "a limit or setting; the new one holds from here on",
            Self::Stricter => "stricter than before; it holds from here on",
            Self::Forbids => "it would forbid what the run did",
            Self::Looser => "it may allow more than the run was approved under",
        }
    }
}

#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    /// One difference of the section `name`.
    fn add(&mut self, name: &str, (old, new): (Option<String>, Option<String>), effect: Effect) {
        let named = |value: Option<String>| value.map(|value| format!("{name}: {value}"));
        self.0.push(Difference {
            code: DifferenceCode::PolicyChanged,
            old: named(old),
            new: named(new),
            verdict: effect.verdict(),
            note: format!("policy `{name}`: {}", effect.words()),
        });
    }

    fn unrelated(&mut self, name: &str, old: &impl Display, new: &impl Display) {
        self.pair(name, &old.to_string(), &new.to_string(), Effect::Unrelated);
    }

    fn setting(&mut self, name: &str, old: &impl Display, new: &impl Display) {
        self.pair(name, &old.to_string(), &new.to_string(), Effect::Setting);
    }

    /// A section of settings as a whole.
    fn section(&mut self, name: &str, old: &impl Serialize, new: &impl Serialize) {
        self.pair(name, &text(old), &text(new), Effect::Setting);
    }

    fn pair(&mut self, name: &str, old: &str, new: &str, effect: Effect) {
        if old != new {
            self.add(name, (Some(old.to_owned()), Some(new.to_owned())), effect);
        }
    }

    fn limits(&mut self, scope: Scope, old: &Limits, new: &Limits) {
        let shown = |kind: LimitKind, amount: Option<u64>| amount.map_or_else(|| "none".to_owned(), |n| kind.amount(n));
        for kind in LimitKind::ALL {
            let (old, new) = (shown(*kind, old.of(*kind)), shown(*kind, new.of(*kind)));
            self.setting(&format!("budgets.{scope}.{kind}"), &old, &new);
        }
    }

    /// A list of names that are let through: one more is looser, one less stricter.
    fn names(&mut self, name: &str, old: &[String], new: &[String]) {
        let more = |these: &[String], than: &[String]| these.iter().any(|name| !than.contains(name));
        let effect = match (more(new, old), more(old, new)) {
            (true, _) => Effect::Looser,
            (false, true) => Effect::Stricter,
            (false, false) => return,
        };
        self.pair(name, &text(&old), &text(&new), effect);
    }
}

/// As it is written in JSON; what cannot be is still told apart by its name.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Whether every one of `these` is among `those`.
fn are_among<T: PartialEq>(these: &[T], those: &[T]) -> bool {
    these.iter().all(|one| those.contains(one))
}

/// Who may do what. Without the section the owner may do all, and nobody else is known.
fn compare_people(found: &mut Found, old: Option<&BTreeMap<String, Person>>, new: Option<&BTreeMap<String, Person>>) {
    let (old, new) = match (old, new) {
        (Some(old), Some(new)) => (old, new),
        (None, None) => return,
        (Some(_), None) => return found.pair("people", "named", "the owner may do all", Effect::Looser),
        (None, Some(_)) => return found.pair("people", "the owner may do all", "named", Effect::Stricter),
    };
    let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (before, after) = (old.get(name), new.get(name));
        if before == after {
            continue;
        }
        let effect = match (before, after) {
            (Some(_), None) => Effect::Stricter,
            (Some(before), Some(after))
                if are_among(&after.may, &before.may) && are_among(&after.groups, &before.groups) =>
            {
                Effect::Stricter
            }
            _ => Effect::Looser,
        };
        found.add(&format!("people.{name}"), (before.map(text), after.map(text)), effect);
    }
}

#[cfg(test)]
mod tests;
