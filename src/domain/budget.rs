//! Limits and what was used of them (R-R4), as plain arithmetic: nothing here stops anything.

use serde::{Deserialize, Serialize};

use super::quantity::Millis;
use crate::words;

words! {
    /// What can be limited.
    pub enum LimitKind {
        /// Uncached input plus output tokens.
        Tokens = "tokens",
        /// All tokens, the cached ones too.
        TotalTokens = "total_tokens",
        /// Time in which a step was active, in milliseconds.
        Time = "time",
        /// Tool calls of the agent.
        ToolCalls = "tool_calls",
        /// Cost, in millionths of a dollar.
        Cost = "cost",
        /// Attempts that ended in failure or crash.
        Attempts = "attempts",
    }
}

impl LimitKind {
    /// An amount in this kind's unit, for people.
    pub fn amount(self, n: u64) -> String {
        match self {
            Self::Time => Millis(n).to_string(),
            Self::Cost => format!("{}.{:06} USD", n / 1_000_000, n % 1_000_000),
            _ => n.to_string(),
        }
    }
}

words! {
    /// Over what a limit counts.
    pub enum Scope {
        /// One attempt.
        Attempt = "attempt",
        /// The task: all its runs since its last verified success.
        Task = "task",
    }
}

/// A set of limits; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// See [`LimitKind::Tokens`].
    pub tokens: Option<u64>,
    /// See [`LimitKind::TotalTokens`].
    pub total_tokens: Option<u64>,
    /// See [`LimitKind::Time`].
    pub time: Option<Millis>,
    /// See [`LimitKind::ToolCalls`].
    pub tool_calls: Option<u64>,
    /// See [`LimitKind::Cost`].
    pub cost_micros: Option<u64>,
    /// See [`LimitKind::Attempts`].
    pub attempts: Option<u64>,
}

/// The limits of an attempt and of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Per attempt.
    pub attempt: Limits,
    /// For the task over all its runs.
    pub task: Limits,
}

/// What was used. Counters only grow (I9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// All input tokens, the cached ones included.
    pub input: u64,
    /// The cached part of `input`.
    pub cached: u64,
    /// All output tokens, reasoning included.
    pub output: u64,
    /// Cost in millionths of a dollar; `None` when nothing said a cost.
    pub cost_micros: Option<u64>,
    /// Tool calls.
    pub tool_calls: u64,
    /// Time in which steps were active.
    pub active: Millis,
    /// Attempts that ended in failure or crash.
    pub failed_attempts: u64,
}

/// A limit that was crossed: which, by how much (R-R4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// Attempt or task.
    pub scope: Scope,
    /// Tokens, time …
    pub kind: LimitKind,
    /// The limit.
    pub limit: u64,
    /// What was used.
    pub used: u64,
}

/// The price of a million tokens, in millionths of a dollar each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Uncached input.
    pub input: u64,
    /// Cached input.
    pub cached: u64,
    /// Output.
    pub output: u64,
}

impl Price {
    /// The cost of one response in millionths of a dollar, rounded up: a limit must not be reached by rounding down.
    pub fn cost_micros(&self, input: u64, cached: u64, output: u64) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum =
            part(input.saturating_sub(cached), self.input) + part(cached, self.cached) + part(output, self.output);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

impl Usage {
    /// Uncached input plus output: what a context that is re-sent at each call really costs.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_sub(self.cached).saturating_add(self.output)
    }

    /// The cached part added.
    pub fn total_tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Both together. A cost is known when one of them is.
    pub fn plus(&self, other: &Self) -> Self {
        let cost_micros = match (self.cost_micros, other.cost_micros) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
            cost_micros,
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            active: Millis(self.active.0.saturating_add(other.active.0)),
            failed_attempts: self.failed_attempts.saturating_add(other.failed_attempts),
        }
    }

    /// How much of one kind was used.
    pub fn of(&self, kind: LimitKind) -> u64 {
        match kind {
            LimitKind::Tokens => self.tokens(),
            LimitKind::TotalTokens => self.total_tokens(),
            LimitKind::Time => self.active.0,
            LimitKind::ToolCalls => self.tool_calls,
            LimitKind::Cost => self.cost_micros.unwrap_or(0),
            LimitKind::Attempts => self.failed_attempts,
        }
    }
}

impl Limits {
    /// The limit of one kind.
    pub fn of(&self, kind: LimitKind) -> Option<u64> {
        match kind {
            LimitKind::Tokens => self.tokens,
            LimitKind::TotalTokens => self.total_tokens,
            LimitKind::Time => self.time.map(|t| t.0),
            LimitKind::ToolCalls => self.tool_calls,
            LimitKind::Cost => self.cost_micros,
            LimitKind::Attempts => self.attempts,
        }
    }

    /// Sets the limit of one kind.
    pub fn set(&mut self, kind: LimitKind, value: Option<u64>) {
        match kind {
            LimitKind::Tokens => self.tokens = value,
            LimitKind::TotalTokens => self.total_tokens = value,
            LimitKind::Time => self.time = value.map(Millis),
            LimitKind::ToolCalls => self.tool_calls = value,
            LimitKind::Cost => self.cost_micros = value,
            LimitKind::Attempts => self.attempts = value,
        }
    }

    /// The stricter of both, kind by kind: a task may only be stricter than its policy.
    pub fn stricter(&self, other: &Self) -> Self {
        use super::machine::Word as _;
        let mut out = Self::default();
        for kind in LimitKind::ALL {
            let both = [self.of(*kind), other.of(*kind)];
            out.set(*kind, both.into_iter().flatten().min());
        }
        out
    }

    /// The kinds in which `self` allows more than `other`.
    pub fn looser_than(&self, other: &Self) -> Vec<LimitKind> {
        use super::machine::Word as _;
        let looser = |kind: &LimitKind| matches!((self.of(*kind), other.of(*kind)), (Some(a), Some(b)) if a > b);
        LimitKind::ALL.iter().copied().filter(looser).collect()
    }

    /// The first limit that `used` has reached. A limit of N allows N: it is crossed above N, except attempts and tool
    /// calls, which are checked before the next one begins (see [`Limits::exhausted`]).
    pub fn breach(&self, scope: Scope, used: &Usage) -> Option<Breach> {
        use super::machine::Word as _;
        LimitKind::ALL.iter().filter(|k| **k != LimitKind::Attempts).find_map(|kind| {
            let limit = self.of(*kind)?;
            let used = used.of(*kind);
            (used > limit).then_some(Breach { scope, kind: *kind, limit, used })
        })
    }

    /// The first limit that leaves no room for anything more: a new agent call must not begin.
    pub fn exhausted(&self, scope: Scope, used: &Usage) -> Option<Breach> {
        use super::machine::Word as _;
        LimitKind::ALL.iter().find_map(|kind| {
            let limit = self.of(*kind)?;
            let used = used.of(*kind);
            (used >= limit).then_some(Breach { scope, kind: *kind, limit, used })
        })
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let amount = |n: u64| self.kind.amount(n);
        let over = self.used.saturating_sub(self.limit);
        let (scope, kind) = (self.scope, self.kind);
        write!(
            f,
            "{scope}.{kind} is limited to {}, used {}, {} over",
            amount(self.limit),
            amount(self.used),
            amount(over)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, output: u64) -> Usage {
        Usage { input, cached, output, ..Usage::default() }
    }

    #[test]
    fn fr_f13_cached_tokens_are_counted_apart() {
        let used = usage(6000, 3100, 180);
        assert_eq!((used.tokens(), used.total_tokens()), (3080, 6180));
    }

    #[test]
    fn r_r4_a_breach_names_the_limit_and_the_overshoot() {
        let limits = Limits { tokens: Some(1000), ..Limits::default() };
        assert_eq!(limits.breach(Scope::Task, &usage(1000, 0, 0)), None);
        let breach = limits.breach(Scope::Task, &usage(1500, 0, 50)).unwrap();
        assert_eq!(breach.to_string(), "task.tokens is limited to 1000, used 1550, 550 over");
    }

    #[test]
    fn a_task_can_only_be_stricter() {
        let policy = Limits { tokens: Some(100), time: Some(Millis(5)), ..Limits::default() };
        let task = Limits { tokens: Some(200), tool_calls: Some(3), ..Limits::default() };
        let both = policy.stricter(&task);
        assert_eq!((both.tokens, both.time, both.tool_calls), (Some(100), Some(Millis(5)), Some(3)));
        assert_eq!(task.looser_than(&policy), [LimitKind::Tokens]);
    }

    #[test]
    fn an_unknown_cost_stays_unknown_until_somebody_says_one() {
        let known = Usage { cost_micros: Some(5), ..Usage::default() };
        assert_eq!(Usage::default().plus(&Usage::default()).cost_micros, None);
        assert_eq!(Usage::default().plus(&known).cost_micros, Some(5));
    }

    #[test]
    fn a_price_never_rounds_down() {
        let price = Price { input: 1_250_000, cached: 125_000, output: 10_000_000 };
        assert_eq!(price.cost_micros(1_000_000, 0, 0), 1_250_000);
        assert_eq!(price.cost_micros(1, 1, 0), 1);
    }
}
