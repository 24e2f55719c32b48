//! The providers of status: which is left alone, until when and why, how many wait (R-R8). Pure text and JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::amount::{counted, utc_or_null};
use super::text::Style;
use crate::domain::breaker::{Breaker, BreakerState, Cause};
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::text::neutral_line;

/// A provider about which there is something to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderLine {
    /// Its name.
    pub provider: String,
    /// What keeps calls from it, if anything does.
    pub breaker: Option<Breaker>,
    /// Runs that wait for it.
    pub waiting: u64,
    /// Calls under way.
    pub calls: u64,
}

/// The lines below the table of status; empty when every provider may be called and nobody calls one.
pub fn provider_lines(providers: &[ProviderLine], now: UtcMs, style: &Style) -> String {
    let mut out = String::new();
    for line in providers {
        let traffic = format!("{} under way, {} waiting", counted(line.calls, "call"), counted(line.waiting, "run"));
        let provider = neutral_line(&line.provider);
        let Some(breaker) = &line.breaker else {
            let _ = writeln!(out, "provider {provider}: {traffic}");
            continue;
        };
        let agent = breaker.agent.as_ref().map(|a| format!(", agent {}", neutral_line(a))).unwrap_or_default();
        let _ = writeln!(out, "provider {provider}{agent}: {}; {traffic}", state(breaker, now, style));
        let why = neutral_line(&breaker.message);
        let _ = writeln!(out, "    because {}: {why} ({})", breaker.code, breaker.run);
        if breaker.state == BreakerState::Open {
            let _ = writeln!(out, "    next: {}", way_out(breaker));
        }
    }
    out
}

fn state(breaker: &Breaker, now: UtcMs, style: &Style) -> String {
    let left = Millis::between(now, breaker.until);
    match breaker.state {
        BreakerState::Closed => "may be called".to_owned(),
        BreakerState::HalfOpen => "one call tries whether it answers again".to_owned(),
        BreakerState::Open if left.0 == 0 => "the next call tries whether it answers again".to_owned(),
        BreakerState::Open => format!("left alone until {} (for {})", style.time(breaker.until), left.rough()),
    }
}

fn way_out(breaker: &Breaker) -> String {
    let (run, code) = (&breaker.run, breaker.code);
    match breaker.cause {
        Cause::Person => format!("see to it (agentrun explain {code}), then: agentrun resume {run}"),
        _ => format!("wait; or try at once: agentrun resume {run} --now"),
    }
}

/// The same for `agentrun/status/1`.
pub fn providers_json(providers: &[ProviderLine]) -> Value {
    let line = |line: &ProviderLine| {
        let b = line.breaker.as_ref();
        json!({
            "provider": line.provider, "agent": b.and_then(|b| b.agent.as_deref()),
            "state": b.map_or(BreakerState::Closed, |b| b.state), "cause": b.map(|b| b.cause), "code": b.map(|b| b.code),
            "message": b.map(|b| &b.message), "run": b.map(|b| &b.run), "since": utc_or_null(b.map(|b| b.since)),
            "until": utc_or_null(b.map(|b| b.until)), "waiting": line.waiting, "calls": line.calls,
        })
    };
    providers.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::Code;
    use crate::domain::sample::{self, at};

    fn line(state: BreakerState, cause: Cause, code: Code) -> ProviderLine {
        let message = "step `code`: \u{1b}[31mslow down".into();
        let breaker = Breaker { state, cause, code, message, ..sample::breaker() };
        ProviderLine { provider: "openai".into(), breaker: Some(breaker), waiting: 2, calls: 1 }
    }

    #[test]
    fn r_r8_status_says_which_provider_until_when_why_how_many_wait_and_the_way_out() {
        let lines = [
            line(BreakerState::Open, Cause::Limit, Code::RateLimit),
            line(BreakerState::Open, Cause::Person, Code::AuthFailed),
            line(BreakerState::HalfOpen, Cause::Outage, Code::ModelTimeout),
            ProviderLine { breaker: None, ..line(BreakerState::Closed, Cause::Outage, Code::Internal) },
        ];
        insta::assert_snapshot!(provider_lines(&lines, at(118), &Style::plain()));
        assert_eq!(provider_lines(&[], at(0), &Style::plain()), "");
    }
}
