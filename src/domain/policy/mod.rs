//! The policy of a repository: limits, clocks, agents and rules (R-P1, R-P4), with the defaults that hold without a file.

pub mod case;
pub mod command;
pub mod compat;
pub mod condition;
pub mod decide;
pub mod kinds;
pub mod people;
pub mod sections;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::budget::{Budget, Limits, Price};
use super::failure::Code;
use super::machine::Word as _;
use super::quantity::Millis;
use super::task::Protocol;
use crate::words;
pub use sections::{
    ActionClocks, ActionRules, ActionType, ApprovalTerms, BreakerRules, Capacity, Ceiling, Keep, Person, Right,
    SendLimit,
};

/// The version of the policy that holds without a file. No file may have it.
pub const BUILT_IN: &str = "built-in";

/// A policy with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Names one content (R-F5).
    pub version: String,
    /// Limits that no task may loosen.
    pub budgets: Budget,
    /// From which share of a limit on a run warns, in thousandths.
    #[serde(default = "warn_permille")]
    pub warn_permille: u32,
    /// Clocks.
    pub timeouts: Timeouts,
    /// How long a holder may be silent.
    pub leases: Leases,
    /// When and how often agentrun tries again.
    pub retry: RetryRules,
    /// Agents by name.
    pub agents: BTreeMap<String, AgentRules>,
    /// Environment variables that command and qa steps see beside the defaults.
    pub env: Vec<String>,
    /// Bytes kept of one log.
    pub logs_max: u64,
    /// How long an idempotency key of `start` lives.
    pub retention_start: Millis,
    /// How long finished runs are kept.
    pub retention_runs: Millis,
    /// How long the record of other kinds of work lives: `inbound` or the word of an [`ActionType`].
    pub retention: BTreeMap<String, Keep>,
    /// Clocks of side effects.
    pub actions: ActionRules,
    /// What goes on at the same time.
    pub concurrency: Capacity,
    /// When a provider is left alone.
    #[serde(default)]
    pub breaker: BreakerRules,
    /// How much is sent: `default` or the word of an [`ActionType`].
    pub send_budget: BTreeMap<String, SendLimit>,
    /// Who may do what; `None` is one tenant whose owner may do all.
    pub people: Option<BTreeMap<String, Person>>,
    /// Rules over actions; kept as they stand.
    pub rules: Vec<Rule>,
}

/// Clocks (R-R5); call < step < attempt < run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// One HTTP or status call of agentrun's own.
    pub call: Millis,
    /// One step.
    pub step: Millis,
    /// One attempt.
    pub attempt: Millis,
    /// The run, with back-off and queue, without waiting for a person.
    pub run: Millis,
    /// Silence of an agent.
    pub idle: Millis,
    /// Until an agent's first byte.
    pub first_output: Millis,
    /// Between the result and the end of the process.
    pub exit: Millis,
    /// Between the polite signal and the next harder one.
    pub grace: Millis,
}

/// How long a holder may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// After this the run may be taken over.
    pub ttl: Millis,
    /// How often the holder says that it lives.
    pub heartbeat: Millis,
}

/// Back-off `min(base · 2^n, max)` with jitter, or fixed delays (R-R3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRules {
    /// The first wait.
    pub base: Millis,
    /// The longest wait in the process; a longer one parks the run.
    pub max: Millis,
    /// Share of the wait that is random, in thousandths.
    pub jitter_permille: u32,
    /// All waits together.
    pub total: Millis,
    /// Instead of base and max.
    pub delays: Vec<Millis>,
    /// Codes that are tried again.
    pub retryable: Vec<Code>,
    /// Ceilings by kind of work: `run`, `job`, `webhook` or the word of an [`ActionType`].
    pub per: BTreeMap<String, Ceiling>,
}

words! {
    /// What an agent may touch.
    pub enum Sandbox {
        /// Read only.
        ReadOnly = "read-only",
        /// Write in the workspace.
        WorkspaceWrite = "workspace-write",
        /// Everything; only inside an outer sandbox.
        DangerFullAccess = "danger-full-access",
    }
}

words! {
    /// Whose login and settings an agent uses.
    pub enum AgentHome {
        /// The user's login, not the user's configuration.
        User = "user",
        /// A home of its own below the state folder; for CI with a key.
        Private = "private",
    }
}

/// How one agent is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRules {
    /// How it is spoken to.
    pub protocol: Protocol,
    /// For a program that is not one of the known agents: its command line.
    pub run: Vec<String>,
    /// A name on PATH, or a path; `None` is the agent's usual name.
    pub bin: Option<String>,
    /// Its sandbox.
    pub sandbox: Sandbox,
    /// Environment variables it sees beside the defaults; everything else is withheld.
    pub env: Vec<String>,
    /// Appended to its command line.
    pub args: Vec<String>,
    /// Whose login.
    pub home: AgentHome,
    /// For cost limits of an agent that reports no cost.
    pub price: Option<Price>,
    /// Whom it calls, where that is not what [`AgentRules::provider`] takes for granted.
    #[serde(default)]
    pub provider: Option<String>,
}

words! {
    /// What a rule says.
    pub enum Verdict {
        /// Never.
        Deny = "deny",
        /// A person must approve.
        Approve = "approve",
        /// Goes.
        Allow = "allow",
    }
}

/// One rule over actions; see [`decide`] for what holds without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Names it in explanations.
    pub id: String,
    /// What it says.
    pub verdict: Verdict,
    /// The action type.
    pub action: String,
    /// Conditions by attribute, as canonical JSON; see [`condition::Condition`].
    pub when: BTreeMap<String, String>,
    /// For `approve`: by whom, and for how long.
    pub approval: Option<ApprovalTerms>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Millis::secs(60),
            step: Millis::mins(15),
            attempt: Millis::mins(25),
            run: Millis::mins(120),
            idle: Millis::mins(5),
            first_output: Millis::mins(2),
            exit: Millis::secs(5),
            grace: Millis::secs(5),
        }
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self { ttl: Millis::secs(60), heartbeat: Millis::secs(15) }
    }
}

impl Default for RetryRules {
    fn default() -> Self {
        let retryable = Code::ALL.iter().copied().filter(|c| c.entry().retryable).collect();
        Self {
            base: Millis::secs(10),
            max: Millis::mins(5),
            jitter_permille: 200,
            total: Millis::mins(15),
            delays: Vec::new(),
            retryable,
            per: BTreeMap::new(),
        }
    }
}

impl AgentRules {
    /// The defaults for one of the agents that agentrun knows by name.
    pub fn known(protocol: Protocol) -> Self {
        let env: &[&str] = match protocol {
            Protocol::Codex => &["CODEX_HOME", "OPENAI_API_KEY", "CODEX_API_KEY"],
            Protocol::Replay | Protocol::Agentrun | Protocol::Text => &[],
        };
        Self {
            protocol,
            run: Vec::new(),
            bin: None,
            sandbox: Sandbox::WorkspaceWrite,
            env: env.iter().map(|s| (*s).to_owned()).collect(),
            args: Vec::new(),
            home: AgentHome::User,
            price: None,
            provider: None,
        }
    }

    /// The provider that an agent of this name calls: what breakers, holds and limits go by. A recording calls nobody; a
    /// program of the user's own is its own provider unless the policy names another.
    pub fn provider<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        match (&self.provider, self.protocol) {
            (Some(provider), _) => Some(provider),
            (None, Protocol::Codex) => Some("openai"),
            (None, Protocol::Replay) => None,
            (None, Protocol::Agentrun | Protocol::Text) => Some(name),
        }
    }
}

/// Four fifths: early enough to raise a limit before it strikes.
fn warn_permille() -> u32 {
    800
}

impl Default for Policy {
    /// The policy that holds without a file: 3 attempts and 30 minutes a task, effects denied (R-R4).
    fn default() -> Self {
        let task = Limits { time: Some(Millis::mins(30)), attempts: Some(3), ..Limits::default() };
        let agents = [("codex", Protocol::Codex), ("replay", Protocol::Replay)];
        Self {
            version: BUILT_IN.to_owned(),
            budgets: Budget { attempt: Limits::default(), task },
            warn_permille: warn_permille(),
            timeouts: Timeouts::default(),
            leases: Leases::default(),
            retry: RetryRules::default(),
            agents: agents.into_iter().map(|(name, p)| (name.to_owned(), AgentRules::known(p))).collect(),
            env: Vec::new(),
            logs_max: 64 << 20,
            retention_start: Millis::mins(24 * 60),
            retention_runs: Millis::mins(90 * 24 * 60),
            retention: BTreeMap::new(),
            actions: ActionRules::default(),
            concurrency: Capacity::default(),
            breaker: BreakerRules::default(),
            send_budget: BTreeMap::new(),
            people: None,
            rules: Vec::new(),
        }
    }
}
