//! LAYER 2: one file per agent. Each builds the agent's command and turns its stream and side files into
//! [`AgentEvent`]s. Nothing here starts a process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::domain::agent_event::AgentEvent;
use crate::domain::failure::Failure;
use crate::domain::outcome::ProcessEnd;
use crate::domain::policy::AgentRules;
use crate::domain::quantity::Millis;
use crate::domain::task::AgentSpec;
use crate::process::spec::{PoliteSignal, Stdin};

/// What an agent's file needs to know to build the command.
#[derive(Debug, Clone)]
pub struct AgentRequest<'a> {
    /// Which agent, with model and arguments.
    pub agent: &'a AgentSpec,
    /// The policy's entry for it.
    pub rules: &'a AgentRules,
    /// The working copy.
    pub workspace: &'a Path,
    /// The root of the repository that the user works in: relative paths of `replay` start here.
    pub repository: &'a Path,
    /// The rendered prompt, as a file.
    pub prompt_file: &'a Path,
    /// The conversation to continue, if any.
    pub session: Option<&'a str>,
    /// A folder for a home of the agent's own (`home: private`), below the state folder, never below the temporary one.
    pub private_home: &'a Path,
    /// The environment the agent will get (allow-listed already); PATH, HOME and CODEX_HOME are looked up here.
    pub env: &'a BTreeMap<OsString, OsString>,
    /// agentrun's own program, which plays recordings.
    pub own_program: &'a Path,
}

/// How to start an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    /// The program, looked up.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set beside the allow-listed ones.
    pub env: Vec<(OsString, OsString)>,
    /// Its standard input.
    pub stdin: Stdin,
    /// How it is asked to stop.
    pub polite: PoliteSignal,
}

/// What an agent's file can be asked before it is used: for `doctor` and for checks before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// It reports tokens.
    pub reports_tokens: bool,
    /// It reports tool calls.
    pub reports_tools: bool,
    /// It reports a cost of its own.
    pub reports_cost: bool,
    /// A conversation can be continued.
    pub resumes: bool,
}

/// The end of an agent's execution, read from what it said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentEnd {
    /// The last word, when the agent says that it is done.
    pub result: Option<String>,
    /// Why it is no success. `None` with a result is success.
    pub failure: Option<Failure>,
    /// Worth telling: a good result with a bad exit code, for example.
    pub warnings: Vec<String>,
}

/// Reads one execution of an agent.
pub trait Reader: Send {
    /// One line of standard output, without its end.
    fn stdout_line(&mut self, line: &[u8]) -> Vec<AgentEvent>;

    /// What the side files have grown by since the last call. Called when a watched folder changed and now and then.
    fn side_files(&mut self) -> Vec<AgentEvent>;

    /// The folder whose changes are worth waking up for, once it is known.
    fn watch(&self) -> Option<PathBuf>;

    /// The verdict, after the process ended and everything was read. `stderr` is the end of standard error.
    fn finish(&mut self, end: &ProcessEnd, stderr: &str) -> AgentEnd;
}

/// What an earlier execution of an agent, whose end nobody saw, left in its own records (R-W4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Everything that can be read of it; usage is named as the live reader would name it.
    pub events: Vec<AgentEvent>,
    /// How far it got.
    pub progress: Progress,
    /// The time of its last record, in milliseconds since the epoch.
    pub last_record_at: Option<i64>,
}

/// How far an unseen execution got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It had finished; this was its end.
    Finished(AgentEnd),
    /// It was cut off; its conversation can be continued.
    Continuable,
    /// It was cut off, and there is nothing to continue.
    Lost,
}

/// How long an agent may take over its first byte, its silence and its end: the policy's clocks, for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// Until the first byte.
    pub first_output: Millis,
    /// Silence.
    pub idle: Millis,
    /// From the result to the end of the process.
    pub exit: Millis,
}
