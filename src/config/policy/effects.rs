//! The sections about side effects, sharing and people: checked and kept as data (see `domain::policy::sections`).

use std::collections::BTreeMap;

use super::super::check::{refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::{Field, FromText as _, unknown_word};
use super::check_order;
use super::limits::known_kind;
use super::raw::{RawActions, RawBreaker, RawClocks, RawConcurrency, RawPerson, RawSendLimit};
use crate::domain::machine::Word as _;
use crate::domain::policy::{
    ActionClocks, ActionRules, ActionType, AgentRules, BreakerRules, Capacity, Keep, Person, Policy, SendLimit,
};
use crate::domain::quantity::Millis;
use crate::yaml::{Document, Seg};

pub(super) fn actions(doc: &Document, raw: &RawActions) -> Result<ActionRules, ConfigError> {
    let own = RawClocks { answer: raw.answer, call: raw.call, r#try: raw.r#try, expire: raw.expire };
    let clocks = clocks(doc, &["actions".into()], own, ActionClocks::default())?;
    let mut types = BTreeMap::new();
    for kind in ActionType::ALL {
        if let Some(own) = raw.of(*kind) {
            let at = ["actions".into(), kind.word().into()];
            types.insert(*kind, self::clocks(doc, &at, own, clocks)?);
        }
    }
    Ok(ActionRules { clocks, types })
}

fn clocks(doc: &Document, at: &[Seg<'_>], raw: RawClocks, base: ActionClocks) -> Result<ActionClocks, ConfigError> {
    let or = |own: Option<Field<Millis>>, base: Millis| own.map_or(base, |f| f.0);
    let clocks = ActionClocks {
        answer: or(raw.answer, base.answer),
        call: or(raw.call, base.call),
        one_try: or(raw.r#try, base.one_try),
        expire: or(raw.expire, base.expire),
    };
    check_order(doc, at, ("call", clocks.call), ("answer", clocks.answer))?;
    check_order(doc, at, ("try", clocks.one_try), ("expire", clocks.expire))?;
    Ok(clocks)
}

impl RawActions {
    fn of(&self, kind: ActionType) -> Option<RawClocks> {
        match kind {
            ActionType::Deploy => self.deploy,
            ActionType::Rollback => self.rollback,
            ActionType::Notification => self.notification,
            ActionType::Export => self.export,
            ActionType::PullRequest => self.pull_request,
            ActionType::Webhook => self.webhook,
            ActionType::Migration => self.migration,
            ActionType::FeatureFlag => self.feature_flag,
            ActionType::Generic => self.generic,
        }
    }
}

/// A limit for a provider that no agent calls would limit nothing.
pub(super) fn capacity(
    doc: &Document,
    raw: RawConcurrency,
    agents: &BTreeMap<String, AgentRules>,
) -> Result<Capacity, ConfigError> {
    let known: Vec<&str> = agents.iter().filter_map(|(name, rules)| rules.provider(name)).collect();
    let mut providers = BTreeMap::new();
    for (name, limit) in raw.providers {
        let at: [Seg<'_>; 3] = ["concurrency".into(), "providers".into(), name.as_str().into()];
        if !known.contains(&name.as_str()) {
            return Err(refused_key(doc, &at, unknown_word(&name, known.iter().copied())));
        }
        providers.insert(name, limit.0.0);
    }
    Ok(Capacity { runs: raw.runs.map(|f| f.0.0), providers })
}

pub(super) fn breaker(doc: &Document, raw: &RawBreaker) -> Result<BreakerRules, ConfigError> {
    let base = BreakerRules::default();
    let or = |own: Option<Field<Millis>>, base: Millis| own.map_or(base, |f| f.0);
    let rules = BreakerRules {
        failures: raw.failures.map_or(base.failures, |f| f.0.0),
        per: or(raw.per, base.per),
        open: or(raw.open, base.open),
        max: or(raw.max, base.max),
    };
    if rules.open > rules.max {
        let message = format!("`open` {} must not be longer than `max` {}", rules.open, rules.max);
        return Err(refused_key(doc, &["breaker".into(), "open".into()], message));
    }
    Ok(rules)
}

pub(super) fn send_budget(
    doc: &Document,
    raw: BTreeMap<String, RawSendLimit>,
) -> Result<BTreeMap<String, SendLimit>, ConfigError> {
    let mut limits = BTreeMap::new();
    for (kind, limit) in raw {
        known_kind(&kind, &["default"])
            .map_err(|message| refused_key(doc, &["send_budget".into(), kind.as_str().into()], message))?;
        limits.insert(kind, SendLimit { max: limit.max.0.0, per: limit.per.0 });
    }
    Ok(limits)
}

/// `start` and `runs` have fields of their own; both are times.
pub(super) fn retention(doc: &Document, raw: BTreeMap<String, String>, policy: &mut Policy) -> Result<(), ConfigError> {
    for (kind, text) in raw {
        let at: [Seg<'_>; 2] = ["retention".into(), kind.as_str().into()];
        known_kind(&kind, &["start", "runs", "inbound"]).map_err(|message| refused_key(doc, &at, message))?;
        let time = || Millis::from_text(&text).map_err(|message| refused(doc, &at, message));
        match kind.as_str() {
            "start" => policy.retention_start = time()?,
            "runs" => policy.retention_runs = time()?,
            _ => {
                let keep = if text == "release" { Keep::Release } else { Keep::For(time()?) };
                policy.retention.insert(kind, keep);
            }
        }
    }
    Ok(())
}

pub(super) fn people(
    doc: &Document,
    raw: Option<BTreeMap<String, RawPerson>>,
) -> Result<Option<BTreeMap<String, Person>>, ConfigError> {
    let Some(raw) = raw else { return Ok(None) };
    let mut people = BTreeMap::new();
    for (name, person) in raw {
        if let Some(i) = person.groups.iter().position(|g| g.trim().is_empty()) {
            let at = ["people".into(), name.as_str().into(), "groups".into(), i.into()];
            return Err(refused(doc, &at, "a group needs a name"));
        }
        let may = person.may.into_iter().map(|f| f.0).collect();
        people.insert(name, Person { groups: person.groups, may });
    }
    Ok(Some(people))
}
