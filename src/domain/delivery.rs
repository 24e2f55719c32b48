//! The steps of a task that reach the outside: what they are told.

use serde::{Deserialize, Serialize};

use super::ids::StepKey;
use super::policy::ActionType;
use super::task::CommandLine;

/// How a release reaches an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploySpec {
    /// The environment.
    pub environment: String,
    /// Executes it.
    pub run: CommandLine,
    /// Says what became of it; without it an unknown outcome needs a person.
    pub status: Option<CommandLine>,
    /// The release: a template; `None` is the one that a release step before it made.
    pub release: Option<String>,
    /// What the environment's configuration is, for the approval: files at the run's commit, or the output of a command.
    pub environment_state: Vec<EnvironmentState>,
    /// The contract that holds for `run` and `status`.
    pub contract: Option<String>,
    /// Tells two equal ones apart that are both meant.
    pub instance: Option<String>,
    /// True when nothing undoes it.
    pub irreversible: bool,
    /// True for `kind: deploy` with `rollback: true`: the release that is there goes back to the named one.
    pub rollback: bool,
}

/// One part of what an environment's configuration is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentState {
    /// A file in the working copy.
    File(String),
    /// What a command prints.
    Command(CommandLine),
}

/// How a deployment is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifySpec {
    /// The deploy step that it belongs to; `None` looks at nothing in particular.
    pub of: Option<StepKey>,
    /// An address that must answer 2xx.
    pub health: Option<String>,
    /// A command that must end with 0, after the health check.
    pub smoke: Option<CommandLine>,
}

/// An effect that is neither a deployment nor a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionSpec {
    /// The type.
    pub action: ActionType,
    /// What it reaches: a template.
    pub target: String,
    /// On whose account; `None` is the contract's.
    pub account: Option<String>,
    /// The arguments: an object whose texts are templates over run, release and inputs.
    pub input: serde_json::Value,
    /// The contract; `None` needs a `run`.
    pub contract: Option<String>,
    /// Tells two equal ones apart that are both meant.
    pub instance: Option<String>,
    /// True when nothing undoes it.
    pub irreversible: bool,
    /// Carries it out, instead of what the contract says.
    pub run: Option<CommandLine>,
    /// Says what became of it, instead of what the contract says.
    pub status: Option<CommandLine>,
}
