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

/// Whether somebody said a figure, or agentrun had to think of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The agent said it.
    #[default]
    Told,
    /// Nobody did: a careful estimate, which the next figure of the same name replaces.
    Estimated,
}

/// Tokens and cost that nobody wrote down: a call that was cut, an agent without figures. Kept apart from what was told, so
/// that every sum can say how much of it is a guess; counted like everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// All input tokens.
    pub input: u64,
    /// The cached part.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Cost in millionths of a dollar, where there is a price.
    pub cost_micros: Option<u64>,
}

impl Estimate {
    /// Uncached input plus output.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_sub(self.cached).saturating_add(self.output)
    }

    /// The cached part added.
    pub fn total_tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
            cost_micros: either(self.cost_micros, other.cost_micros),
        }
    }

    /// How much of one kind is estimated.
    pub fn of(&self, kind: LimitKind) -> u64 {
        match kind {
            LimitKind::Tokens => self.tokens(),
            LimitKind::TotalTokens => self.total_tokens(),
            LimitKind::Cost => self.cost_micros.unwrap_or(0),
            LimitKind::Time | LimitKind::ToolCalls | LimitKind::Attempts => 0,
        }
    }
}

/// A sum is known when one of its parts is.
fn either(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    }
}

/// What was used. What was told only grows (I9); an estimate gives way to the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// All input tokens that were told, the cached ones included.
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
    /// What nobody told; every sum below contains it.
    #[serde(default)]
    pub estimated: Estimate,
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
        let told = self.input.saturating_sub(self.cached).saturating_add(self.output);
        told.saturating_add(self.estimated.tokens())
    }

    /// The cached part added.
    pub fn total_tokens(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.estimated.total_tokens())
    }

    /// Millionths of a dollar; `None` when nothing said a cost and there is no price.
    pub fn cost(&self) -> Option<u64> {
        either(self.cost_micros, self.estimated.cost_micros)
    }

    /// Both together. A cost is known when one of them is.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached: self.cached.saturating_add(other.cached),
            output: self.output.saturating_add(other.output),
            cost_micros: either(self.cost_micros, other.cost_micros),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            active: Millis(self.active.0.saturating_add(other.active.0)),
            failed_attempts: self.failed_attempts.saturating_add(other.failed_attempts),
            estimated: self.estimated.plus(&other.estimated),
        }
    }

    /// How much of one kind was used.
    pub fn of(&self, kind: LimitKind) -> u64 {
        match kind {
            LimitKind::Tokens => self.tokens(),
            LimitKind::TotalTokens => self.total_tokens(),
            LimitKind::Time => self.active.0,
            LimitKind::ToolCalls => self.tool_calls,
            LimitKind::Cost => self.cost().unwrap_or(0),
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

    /// The limits of which this share (in thousandths) is used, and that still hold: worth a warning.
    pub fn nearly(&self, scope: Scope, used: &Usage, permille: u32) -> Vec<Breach> {
        use super::machine::Word as _;
        let near = |kind: &LimitKind| {
            let (limit, used) = (self.of(*kind)?, used.of(*kind));
            let reached = u128::from(used) * 1000 >= u128::from(limit) * u128::from(permille);
            (reached && used > 0 && used <= limit).then_some(Breach { scope, kind: *kind, limit, used })
        };
        LimitKind::ALL.iter().filter_map(near).collect()
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

impl Breach {
    /// As long as it is none: how far the limit is used, and what is left.
    pub fn warning(&self) -> String {
        let share = u128::from(self.used) * 100 / u128::from(self.limit.max(1));
        let (scope, kind, left) = (self.scope, self.kind, self.limit.saturating_sub(self.used));
        let [limit, used, left] = [self.limit, self.used, left].map(|n| self.amount(n));
        format!("{scope}.{kind}: {share} % of {limit} are used ({used}), {left} left")
    }

    fn amount(&self, n: u64) -> String {
        self.kind.amount(n)
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let amount = |n: u64| self.amount(n);
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
#[path = "budget_tests.rs"]
mod tests;
