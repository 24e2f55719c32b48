//! The policy file as it is written: every documented key, typed, optional. Also read for each included file alone.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::fields::{Conditions, Count, Field, Money, Share, Size};
use crate::domain::budget::{Budget, Limits};
use crate::domain::policy::{AgentHome, Right, Sandbox};
use crate::domain::quantity::Millis;

type Time = Option<Field<Millis>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "the keys of a policy")]
pub(super) struct RawPolicy {
    pub(super) version: Option<String>,
    /// Taken from the tree, where each path has its place; here only its type is checked.
    include: Vec<String>,
    pub(super) budgets: RawPolicyBudgets,
    pub(super) timeouts: RawTimeouts,
    pub(super) actions: RawActions,
    pub(super) leases: RawLeases,
    pub(super) retry: RawRetry,
    pub(super) agents: BTreeMap<String, RawAgent>,
    pub(super) concurrency: RawConcurrency,
    pub(super) breaker: RawBreaker,
    pub(super) send_budget: BTreeMap<String, RawSendLimit>,
    pub(super) retention: BTreeMap<String, String>,
    pub(super) people: Option<BTreeMap<String, RawPerson>>,
    pub(super) env: Vec<String>,
    pub(super) logs: RawLogs,
    pub(super) rules: Vec<RawRule>,
}

/// A policy's limits, and from which share on it warns. (`flatten` would lose the places of unknown keys.)
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`attempt` and `task` with their limits, and `warn`")]
pub(super) struct RawPolicyBudgets {
    attempt: RawAttemptLimits,
    task: RawTaskLimits,
    pub(super) warn: Option<Field<Share>>,
}

impl RawPolicyBudgets {
    /// The limits without the rest.
    pub(super) fn limits(self) -> RawBudget {
        RawBudget { attempt: self.attempt, task: self.task }
    }
}

/// Limits, of the policy and of a task.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`attempt` and `task` with their limits")]
pub(in crate::config) struct RawBudget {
    attempt: RawAttemptLimits,
    task: RawTaskLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "limits such as tokens and time")]
struct RawAttemptLimits {
    tokens: Option<Field<Count>>,
    total_tokens: Option<Field<Count>>,
    time: Time,
    tool_calls: Option<Field<Count>>,
    cost: Option<Field<Money>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "limits such as tokens and time")]
struct RawTaskLimits {
    tokens: Option<Field<Count>>,
    total_tokens: Option<Field<Count>>,
    time: Time,
    tool_calls: Option<Field<Count>>,
    cost: Option<Field<Money>>,
    attempts: Option<Field<Count>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "times such as `step: 15m`")]
pub(super) struct RawTimeouts {
    pub(super) call: Time,
    pub(super) step: Time,
    pub(super) attempt: Time,
    pub(super) run: Time,
    pub(super) idle: Time,
    pub(super) first_output: Time,
    pub(super) exit: Time,
    pub(super) grace: Time,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "times, and action types with times of their own")]
pub(super) struct RawActions {
    pub(super) answer: Time,
    pub(super) call: Time,
    pub(super) r#try: Time,
    pub(super) expire: Time,
    pub(super) deploy: Option<RawClocks>,
    pub(super) rollback: Option<RawClocks>,
    pub(super) notification: Option<RawClocks>,
    pub(super) export: Option<RawClocks>,
    pub(super) pull_request: Option<RawClocks>,
    pub(super) webhook: Option<RawClocks>,
    pub(super) migration: Option<RawClocks>,
    pub(super) feature_flag: Option<RawClocks>,
    pub(super) generic: Option<RawClocks>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "times such as `try: 45s`")]
pub(super) struct RawClocks {
    pub(super) answer: Time,
    pub(super) call: Time,
    pub(super) r#try: Time,
    pub(super) expire: Time,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`ttl` and `heartbeat`")]
pub(super) struct RawLeases {
    pub(super) ttl: Time,
    pub(super) heartbeat: Time,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "retry rules such as `base: 10s`")]
pub(super) struct RawRetry {
    pub(super) base: Time,
    pub(super) max: Time,
    pub(super) jitter: Option<Field<Share>>,
    pub(super) total: Time,
    pub(super) delays: Option<Vec<Field<Millis>>>,
    pub(super) per: BTreeMap<String, RawCeiling>,
    pub(super) retryable: Option<Vec<Field<crate::domain::failure::Code>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`attempts: 3`")]
pub(super) struct RawCeiling {
    pub(super) attempts: Field<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "the keys of an agent")]
pub(super) struct RawAgent {
    pub(super) protocol: Option<String>,
    pub(super) run: Option<Vec<String>>,
    pub(super) bin: Option<String>,
    pub(super) sandbox: Option<Field<Sandbox>>,
    pub(super) env: Option<Vec<String>>,
    pub(super) args: Option<Vec<String>>,
    pub(super) home: Option<Field<AgentHome>>,
    pub(super) price: Option<RawPrice>,
    pub(super) provider: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`input`, `cached` and `output`")]
pub(super) struct RawPrice {
    pub(super) input: Field<Money>,
    pub(super) cached: Option<Field<Money>>,
    pub(super) output: Field<Money>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`runs` and `providers`")]
pub(super) struct RawConcurrency {
    pub(super) runs: Option<Field<Count>>,
    pub(super) providers: BTreeMap<String, Field<Count>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`failures`, `per`, `open` and `max`")]
pub(super) struct RawBreaker {
    pub(super) failures: Option<Field<Count>>,
    pub(super) per: Time,
    pub(super) open: Time,
    pub(super) max: Time,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`max` and `per`")]
pub(super) struct RawSendLimit {
    pub(super) max: Field<Count>,
    pub(super) per: Field<Millis>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`groups` and `may`")]
pub(super) struct RawPerson {
    pub(super) groups: Vec<String>,
    pub(super) may: Vec<Field<Right>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`max`")]
pub(super) struct RawLogs {
    pub(super) max: Option<Field<Size>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a rule with `id` and one of deny, approve, allow")]
pub(super) struct RawRule {
    pub(super) id: String,
    pub(super) deny: Option<String>,
    pub(super) approve: Option<String>,
    pub(super) allow: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "taken from the tree, which keeps the text; here only its shape is checked")]
    when: Conditions,
    pub(super) approval: Option<RawApproval>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "`expires` and `approvers`")]
pub(super) struct RawApproval {
    pub(super) expires: Time,
    pub(super) approvers: Vec<String>,
}

impl RawBudget {
    /// These limits over others: what is not written stays as it was.
    pub(in crate::config) fn over(&self, base: Budget) -> Budget {
        let (a, t) = (&self.attempt, &self.task);
        let count = |own: Option<Field<Count>>, base: Option<u64>| own.map(|f| f.0.0).or(base);
        let attempt = Limits {
            tokens: count(a.tokens, base.attempt.tokens),
            total_tokens: count(a.total_tokens, base.attempt.total_tokens),
            time: a.time.map(|f| f.0).or(base.attempt.time),
            tool_calls: count(a.tool_calls, base.attempt.tool_calls),
            cost_micros: a.cost.map(|f| f.0.0).or(base.attempt.cost_micros),
            attempts: base.attempt.attempts,
        };
        let task = Limits {
            tokens: count(t.tokens, base.task.tokens),
            total_tokens: count(t.total_tokens, base.task.total_tokens),
            time: t.time.map(|f| f.0).or(base.task.time),
            tool_calls: count(t.tool_calls, base.task.tool_calls),
            cost_micros: t.cost.map(|f| f.0.0).or(base.task.cost_micros),
            attempts: count(t.attempts, base.task.attempts),
        };
        Budget { attempt, task }
    }
}
