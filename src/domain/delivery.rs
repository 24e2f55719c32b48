//! The steps of a task that reach the outside: what they are told, how they belong together, and how they read to people.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::StepKey;
use super::plan::pipeline::rests_on;
use super::policy::ActionType;
use super::task::{CommandLine, StepBody, StepSpec, TaskSpec};

/// How a release reaches an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploySpec {
    /// The environment.
    pub environment: String,
    /// Executes it.
    pub run: CommandLine,
    /// Says what became of it; without it an unknown outcome needs a person.
    pub status: Option<CommandLine>,
    /// The release: a template over run and inputs; `None` is the one of [`release_step`].
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
    /// The arguments: an object whose texts are templates over run, release, task and inputs.
    pub input: serde_json::Value,
    /// What identifies the intent: templates by the names of [`ActionType::identity`]. Only `event` and `document` may be
    /// absent; the engine gives those the value `<task>/<step>/<release or commit>`.
    pub subject: BTreeMap<String, String>,
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

/// The release step whose release a step is about where it names none: the last one in the task that the step rests on.
pub fn release_step<'s>(spec: &'s TaskSpec, step: &StepKey) -> Option<&'s StepSpec> {
    let is_release = |s: &&StepSpec| matches!(s.body, StepBody::Release { .. });
    spec.steps.iter().rev().filter(is_release).find(|release| rests_on(spec, step, &release.key))
}

/// The step that looks whether a deployment is good. A deployment without one is done when it was executed.
pub fn verification<'s>(spec: &'s TaskSpec, deploy: &StepKey) -> Option<&'s StepSpec> {
    spec.steps.iter().find(|s| matches!(&s.body, StepBody::Verify(verify) if verify.of.as_ref() == Some(deploy)))
}

/// What such a step does, in words for people; `None` for a step that stays inside.
pub fn in_words(body: &StepBody) -> Option<String> {
    Some(match body {
        StepBody::Release { release } => format!("names the release {release}"),
        StepBody::Deploy(deploy) => deploy_in_words(deploy),
        StepBody::Verify(verify) => {
            let looks = verify.health.iter().cloned().chain(verify.smoke.as_ref().map(CommandLine::shown));
            let of = verify.of.as_ref().map(|key| format!(" of {key}")).unwrap_or_default();
            format!("looks at the result{of}: {}", looks.collect::<Vec<_>>().join(", then "))
        }
        StepBody::Action(action) => {
            let by = match (&action.run, &action.contract) {
                (Some(run), _) => format!(" by {}", run.shown()),
                (None, Some(contract)) => format!(" under the contract {contract}"),
                (None, None) => String::new(),
            };
            let account = action.account.as_ref().map(|account| format!(" as {account}")).unwrap_or_default();
            format!("{} to {}{account}{by}{}", action.action, action.target, once(action.irreversible))
        }
        StepBody::Approval { ask, terms } => {
            let by = if terms.approvers.is_empty() { "a person".to_owned() } else { terms.approvers.join(" or ") };
            let expires = terms.expires.map(|time| format!(" (the answer counts for {time})")).unwrap_or_default();
            format!("asks {by}: {ask}{expires}")
        }
        StepBody::Context
        | StepBody::Report
        | StepBody::Agent { .. }
        | StepBody::Qa { .. }
        | StepBody::Command { .. } => return None,
    })
}

fn deploy_in_words(deploy: &DeploySpec) -> String {
    let release = deploy.release.as_deref().unwrap_or("the release");
    let environment = &deploy.environment;
    let status = deploy.status.as_ref().map(|status| format!(", asks {}", status.shown())).unwrap_or_default();
    let moved = if deploy.rollback {
        format!("takes {environment} back to {release}")
    } else {
        format!("brings {release} to {environment}")
    };
    format!("{moved} by {}{status}{}", deploy.run.shown(), once(deploy.irreversible))
}

fn once(irreversible: bool) -> &'static str {
    if irreversible { "; cannot be undone, so it is never tried again by itself" } else { "" }
}
