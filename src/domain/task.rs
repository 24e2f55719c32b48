//! A task as it is meant: read from a file or made from a prompt, every default filled in, every path relative to the
//! repository. What counts for the fingerprint and what is only a limit or wording is told apart here (R-F2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::delivery::{ActionSpec, DeploySpec, VerifySpec};
use super::ids::{StepKey, TaskId};
use super::policy::ApprovalTerms;
use super::quantity::Millis;
use crate::words;

words! {
    /// Where a run works.
    pub enum WorkspaceKind {
        /// In a working copy of its own that shares objects.
        Isolated = "isolated",
        /// In the checkout itself; for CI.
        InPlace = "in-place",
    }
}

words! {
    /// What becomes of the changes of a failed attempt (R-W3).
    pub enum KeepChanges {
        /// Saved as a patch, then a clean base.
        Save = "save",
        /// A person decides.
        Review = "review",
    }
}

words! {
    /// What a start does when another run of its concurrency group is in progress (R-W6).
    pub enum WhenBusy {
        /// Waits for its turn.
        Queue = "queue",
        /// Follows the other run instead.
        Join = "join",
        /// Gives up.
        Refuse = "refuse",
    }
}

words! {
    /// What kind of stage a step is.
    pub enum StepKind {
        /// Gathers and records the context.
        Context = "context",
        /// Runs an agent.
        Agent = "agent",
        /// Runs a check.
        Qa = "qa",
        /// Runs a command.
        Command = "command",
        /// Writes the report.
        Report = "report",
        /// Binds a name to the run's commit and artifacts.
        Release = "release",
        /// Brings the release into an environment.
        Deploy = "deploy",
        /// Looks whether a deployment is good.
        Verify = "verify",
        /// Any other effect outside.
        Action = "action",
        /// Waits for a person.
        Approval = "approval",
    }
}

/// A task with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its id.
    pub task: TaskId,
    /// For people only.
    pub title: Option<String>,
    /// A word of the user's; part of the fingerprint.
    pub mode: String,
    /// Values for templates and, as `AGENTRUN_INPUT_<NAME>`, for commands.
    pub inputs: BTreeMap<String, String>,
    /// Where the run works.
    pub workspace: WorkspaceKind,
    /// What a failed attempt leaves.
    pub keep_changes: KeepChanges,
    /// At most one run of a group at a time.
    pub concurrency: Option<Concurrency>,
    /// What counts into the context hash.
    pub context: ContextSpec,
    /// The task's own limits; the policy's hold as well.
    pub budget: Budget,
    /// In the order of the file.
    pub steps: Vec<StepSpec>,
}

/// A concurrency group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// A branch, an environment, a subject.
    pub group: String,
    /// What a start does when the group is busy.
    pub when_busy: WhenBusy,
}

/// The files that count: globs relative to the repository's root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContextSpec {
    /// Relevant files; listed for the agent.
    pub files: Vec<String>,
    /// Rules such as AGENTS.md.
    pub rules: Vec<String>,
}

/// One stage of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpec {
    /// Unique within the task.
    pub key: StepKey,
    /// Steps that must have succeeded before; by default the one before in the file.
    pub needs: Vec<StepKey>,
    /// True when the file names `needs`: only then the step may run beside others.
    pub explicit_needs: bool,
    /// Its own clock.
    pub timeout: Option<Millis>,
    /// Whether it runs at all.
    pub when: When,
    /// What is kept of its work.
    pub artifacts: Vec<ArtifactSpec>,
    /// Environment of its own.
    pub env: BTreeMap<String, String>,
    /// What it does.
    pub body: StepBody,
}

/// When a step runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// When everything it needs succeeded.
    NeedsSucceeded,
    /// Whatever happened before.
    Always,
    /// Only when something before it failed.
    OnFailure,
    /// When everything it needs succeeded and the expression over inputs, run and `steps.<key>.state` is true.
    Expression(String),
}

/// Files to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactSpec {
    /// A glob in the working copy.
    pub glob: String,
    /// True when no match is fine.
    pub optional: bool,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepBody {
    /// Gathers and records the context.
    Context,
    /// Runs an agent.
    Agent {
        /// Which, and how.
        agent: AgentSpec,
        /// What it is told.
        prompt: PromptRef,
    },
    /// Runs a check.
    Qa {
        /// The check.
        run: CommandLine,
        /// What a red check leads to.
        on_fail: Option<SendBack>,
    },
    /// Runs a command.
    Command {
        /// The command.
        run: CommandLine,
    },
    /// Writes the report.
    Report,
    /// Binds a name to the run's commit and to the step's artifacts (R-A19).
    Release {
        /// The name: a template over run, task and inputs.
        release: String,
    },
    /// Brings a release into an environment (R-A10).
    Deploy(DeploySpec),
    /// Looks whether a deployment is good; never executes it again.
    Verify(VerifySpec),
    /// Any other effect outside.
    Action(ActionSpec),
    /// Waits for a person.
    Approval {
        /// What is asked: a template over run, release, task and inputs.
        ask: String,
        /// Who may decide, and for how long it counts.
        terms: ApprovalTerms,
    },
}

/// A command: with a shell or without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// Runs under `sh -c`.
    Shell(String),
    /// Runs as it is.
    List(Vec<String>),
}

impl CommandLine {
    /// As people know it.
    pub fn shown(&self) -> String {
        match self {
            Self::Shell(line) => line.clone(),
            Self::List(list) => list.join(" "),
        }
    }
}

/// Sends the agent back with the failing output (R-R2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendBack {
    /// The agent step.
    pub send_back_to: StepKey,
    /// How often at most.
    pub rounds: u32,
}

/// An agent, resolved from the task, the policy and the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// `codex`, `replay`, or a name from the policy.
    pub name: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// The model; `None` is the agent's own default.
    pub model: Option<String>,
    /// Appended to its command line: the policy's, then the task's.
    pub args: Vec<String>,
    /// For `replay`: the recorded events, relative to the repository.
    pub events: Option<String>,
    /// For `replay`: the patch to apply, relative to the repository.
    pub patch: Option<String>,
}

words! {
    /// How an agent is spoken to.
    pub enum Protocol {
        /// OpenAI Codex CLI: `codex exec --json`.
        Codex = "codex",
        /// Plays a recorded event file; no account, no network.
        Replay = "replay",
        /// The agentrun agent protocol on standard output.
        Agentrun = "agentrun",
        /// Standard output is the answer.
        Text = "text",
    }
}

/// Where the prompt comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptRef {
    /// A file, relative to the repository.
    File(String),
    /// The text itself (`start --prompt`).
    Text(String),
}

/// A prompt as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// The file, or [`Prompt::COMMAND_LINE`].
    pub path: String,
    /// The version in its front matter, or `sha256-` and twelve digits of the text.
    pub version: String,
    /// SHA-256 of the whole file, in hex.
    pub sha256: String,
    /// The template.
    pub template: String,
}

/// The environment variable by which commands see an input.
pub fn input_variable(name: &str) -> String {
    format!("AGENTRUN_INPUT_{}", name.to_ascii_uppercase())
}

impl Prompt {
    /// The `path` of a prompt that was given as text. Such a text is no template: it is passed as it is.
    pub const COMMAND_LINE: &'static str = "(command line)";
}

impl StepKind {
    /// Whether it acts on the outside, or asks whether something may: such a step begins only after the policy was asked.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Deploy | Self::Action | Self::Approval)
    }
}

impl StepSpec {
    /// Its kind.
    pub fn kind(&self) -> StepKind {
        match self.body {
            StepBody::Context => StepKind::Context,
            StepBody::Agent { .. } => StepKind::Agent,
            StepBody::Qa { .. } => StepKind::Qa,
            StepBody::Command { .. } => StepKind::Command,
            StepBody::Report => StepKind::Report,
            StepBody::Release { .. } => StepKind::Release,
            StepBody::Deploy(_) => StepKind::Deploy,
            StepBody::Verify(_) => StepKind::Verify,
            StepBody::Action(_) => StepKind::Action,
            StepBody::Approval { .. } => StepKind::Approval,
        }
    }
}

impl TaskSpec {
    /// One step by its key.
    pub fn step(&self, key: &StepKey) -> Option<&StepSpec> {
        self.steps.iter().find(|s| s.key == *key)
    }

    /// The part that counts for the fingerprint, as canonical JSON: sorted keys, no blanks, and without limits and
    /// wording (title, budget, timeouts, concurrency, what is kept of a failed attempt).
    pub fn meaning(&self) -> String {
        let steps: Vec<_> = self
            .steps
            .iter()
            .map(|s| {
                serde_json::json!({
                    "key": s.key, "needs": s.needs, "when": s.when, "artifacts": s.artifacts, "env": s.env, "body": s.body,
                })
            })
            .collect();
        serde_json::json!({
            "task": self.task, "mode": self.mode, "inputs": self.inputs, "workspace": self.workspace,
            "context": self.context, "steps": steps,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn r_f2_canonical_json_has_sorted_keys_whatever_other_crates_switch_on() {
        let value = serde_json::json!({ "b": 1, "a": { "d": 2, "c": 3 } });
        assert_eq!(value.to_string(), r#"{"a":{"c":3,"d":2},"b":1}"#);
    }
}
