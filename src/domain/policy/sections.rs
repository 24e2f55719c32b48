//! The sections of a policy that speak about side effects, people and sharing. They are kept as data: what acts on them
//! comes with the feature, and until then an effect is denied.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::machine::Word as _;
use crate::domain::quantity::Millis;
use crate::words;

words! {
    /// The types of side effect that come with agentrun.
    pub enum ActionType {
        /// A release reaches an environment.
        Deploy = "deploy",
        /// An earlier release comes back.
        Rollback = "rollback",
        /// A message to people.
        Notification = "notification",
        /// Data leaves.
        Export = "export",
        /// A pull request is opened or changed.
        PullRequest = "pull_request",
        /// A call of somebody's endpoint.
        Webhook = "webhook",
        /// A database changes its shape.
        Migration = "migration",
        /// A flag is switched.
        FeatureFlag = "feature_flag",
        /// Anything else.
        Generic = "generic",
    }
}

/// Clocks of one side effect: call < answer, one try < expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionClocks {
    /// Until whoever asked gets an answer, if only "in progress".
    pub answer: Millis,
    /// One call of the provider.
    pub call: Millis,
    /// One try.
    #[serde(rename = "try")]
    pub one_try: Millis,
    /// From acceptance until it is given up.
    pub expire: Millis,
}

/// The clocks of all side effects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActionRules {
    /// For every type that has none of its own.
    pub clocks: ActionClocks,
    /// Types with clocks of their own.
    pub types: BTreeMap<ActionType, ActionClocks>,
}

/// How much goes on at the same time (R-R8).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Runs on this machine; `None` is no limit.
    pub runs: Option<u64>,
    /// Calls to one provider.
    pub providers: BTreeMap<String, u64>,
}

/// When a provider is left alone, and for how long (R-R8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerRules {
    /// So many timeouts and server errors …
    pub failures: u64,
    /// … within this time.
    pub per: Millis,
    /// The first wait; twice as long after every trial that fails.
    pub open: Millis,
    /// The longest; also the wait after a refusal that names no end.
    pub max: Millis,
}

/// At most `max` sends in `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendLimit {
    /// How many.
    pub max: u64,
    /// In how long.
    pub per: Millis,
}

impl SendLimit {
    /// What holds where the policy says nothing (R-A15).
    pub const UNSET: Self = Self { max: 3, per: Millis::mins(5) };
}

impl super::Policy {
    /// How many actions of a type may be sent to one target, and in how long.
    pub fn send_limit(&self, kind: ActionType) -> SendLimit {
        let own = self.send_budget.get(kind.word());
        own.or_else(|| self.send_budget.get("default")).copied().unwrap_or(SendLimit::UNSET)
    }
}

words! {
    /// What a person may do.
    pub enum Right {
        /// See tasks, runs and results.
        View = "view",
        /// Start and resume runs.
        Start = "start",
        /// Cancel runs.
        Cancel = "cancel",
        /// Decide approvals.
        Approve = "approve",
        /// Settle what has an unknown outcome.
        Resolve = "resolve",
    }
}

/// A person of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Person {
    /// Groups, for approvals.
    pub groups: Vec<String>,
    /// Rights.
    pub may: Vec<Right>,
}

/// How long something is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// For a time.
    For(Millis),
    /// As long as its release is the one in use.
    Release,
}

/// How often one kind of work is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Attempts at most.
    pub attempts: u64,
}

/// What a rule with `approve` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ApprovalTerms {
    /// How long an approval counts.
    pub expires: Option<Millis>,
    /// Persons or groups; empty is anybody with the right.
    pub approvers: Vec<String>,
}

impl Default for BreakerRules {
    /// The window is longer than `timeouts.idle`: agents that fall silent one after the other must add up.
    fn default() -> Self {
        Self { failures: 5, per: Millis::mins(10), open: Millis::secs(30), max: Millis::mins(10) }
    }
}

impl ActionRules {
    /// The clocks of a type.
    pub fn of(&self, kind: ActionType) -> ActionClocks {
        self.types.get(&kind).copied().unwrap_or(self.clocks)
    }
}

impl Default for ActionClocks {
    fn default() -> Self {
        let (answer, call) = (Millis::secs(8), Millis::secs(6));
        Self { answer, call, one_try: Millis::secs(45), expire: Millis::mins(15) }
    }
}
