//! Clocks, leases and retry rules of a policy over the built-in ones, with the order that R-R5 asks for.

use super::super::check::{refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::{Field, unknown_word};
use super::check_order;
use super::raw::{RawLeases, RawRetry, RawTimeouts};
use crate::domain::machine::Word as _;
use crate::domain::policy::{ActionType, Ceiling, Leases, RetryRules, Timeouts};
use crate::domain::quantity::Millis;
use crate::yaml::Document;

/// A clock with its key.
pub(super) type Clock = (&'static str, Millis);

pub(super) fn timeouts(doc: &Document, raw: &RawTimeouts, base: Timeouts) -> Result<Timeouts, ConfigError> {
    let or = |own: Option<Field<Millis>>, base: Millis| own.map_or(base, |f| f.0);
    let t = Timeouts {
        call: or(raw.call, base.call),
        step: or(raw.step, base.step),
        attempt: or(raw.attempt, base.attempt),
        run: or(raw.run, base.run),
        idle: or(raw.idle, base.idle),
        first_output: or(raw.first_output, base.first_output),
        exit: or(raw.exit, base.exit),
        grace: or(raw.grace, base.grace),
    };
    let order: [Clock; 4] = [("call", t.call), ("step", t.step), ("attempt", t.attempt), ("run", t.run)];
    for pair in order.windows(2) {
        check_order(doc, &["timeouts".into()], pair[0], pair[1])?;
    }
    Ok(t)
}

pub(super) fn leases(doc: &Document, raw: &RawLeases, base: Leases) -> Result<Leases, ConfigError> {
    let ttl = raw.ttl.map_or(base.ttl, |f| f.0);
    let heartbeat = raw.heartbeat.map_or(base.heartbeat, |f| f.0);
    check_order(doc, &["leases".into()], ("heartbeat", heartbeat), ("ttl", ttl))?;
    Ok(Leases { ttl, heartbeat })
}

pub(super) fn retry(doc: &Document, raw: RawRetry, base: RetryRules) -> Result<RetryRules, ConfigError> {
    let mut rules = RetryRules {
        base: raw.base.map_or(base.base, |f| f.0),
        max: raw.max.map_or(base.max, |f| f.0),
        jitter_permille: raw.jitter.map_or(base.jitter_permille, |f| f.0.0),
        total: raw.total.map_or(base.total, |f| f.0),
        delays: raw.delays.unwrap_or_default().into_iter().map(|f| f.0).collect(),
        ..base
    };
    if rules.base > rules.max {
        let message = format!("`base` {} must not be longer than `max` {}", rules.base, rules.max);
        return Err(refused_key(doc, &["retry".into(), "base".into()], message));
    }
    if let Some(codes) = raw.retryable {
        rules.retryable = codes.into_iter().map(|f| f.0).collect();
    }
    // The catalogue decides what may be tried again at all (R-R1); a policy can only take something away.
    for (i, code) in rules.retryable.iter().enumerate() {
        if !code.entry().retryable {
            let message = format!("{code} is never tried again, whatever the policy says");
            return Err(refused(doc, &["retry".into(), "retryable".into(), i.into()], message));
        }
    }
    for (kind, ceiling) in raw.per {
        known_kind(&kind, &["run", "job"])
            .map_err(|message| refused_key(doc, &["retry".into(), "per".into(), kind.as_str().into()], message))?;
        rules.per.insert(kind, Ceiling { attempts: ceiling.attempts.0.0 });
    }
    Ok(rules)
}

/// A key that is the word of an action type or one of some more.
pub(super) fn known_kind(found: &str, more: &[&'static str]) -> Result<(), String> {
    let words: Vec<&str> = more.iter().copied().chain(ActionType::ALL.iter().map(|t| t.word())).collect();
    if words.contains(&found) { Ok(()) } else { Err(unknown_word(found, words.iter().copied())) }
}
