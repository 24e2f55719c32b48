//! LAYER 2: one file per agent. Each builds the agent's command and turns its stream and side files into
//! [`AgentEvent`]s. Nothing here starts a process.
//!
//! | room | what |
//! | --- | --- |
//! | `program` | finds a program on the PATH that the agent will have |
//! | [`codex`] | `codex exec --json` and its session files |
//! | [`agentrun_protocol`] | JSON lines of our own, for any program |
//! | [`replay`] | plays a recording in that protocol |
//! | [`text`] | standard output is the answer |
//! | `endings`, `tools`, `figures`, `tail`, `wording` | what they share: the verdict, the tally of tool calls, believable numbers, growing files, foreign texts |

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::domain::agent_event::AgentEvent;
use crate::domain::budget::Estimate;
use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::ProcessEnd;
use crate::domain::policy::AgentRules;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::task::{AgentSpec, Protocol};
use crate::process::spec::{PoliteSignal, Stdin};

pub mod agentrun_protocol;
pub mod codex;
mod endings;
mod figures;
mod program;
pub mod replay;
mod tail;
pub mod text;
mod tools;
mod wording;

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
    /// The environment the agent will get (allow-listed already); PATH, HOME and `CODEX_HOME` are looked up here.
    pub env: &'a BTreeMap<OsString, OsString>,
    /// agentrun's own program, which plays recordings and answers over MCP.
    pub own_program: &'a Path,
    /// agentrun's own tools, where this run may ask for a side effect.
    pub tools: Option<OwnTools<'a>>,
}

/// What an agent needs to be given agentrun's own tools.
#[derive(Debug, Clone, Copy)]
pub struct OwnTools<'a> {
    /// The longest time until a request is answered.
    pub answer: Millis,
    /// The names of the variables by which the tools know for whom they are; they are in the agent's environment.
    pub vars: &'a [String],
}

/// How to start an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCommand {
    /// The program, looked up.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set beside the allow-listed ones; they win over those.
    pub env: Vec<(OsString, OsString)>,
    /// Folders that must exist before it starts, with mode 0700; nothing but the agent uses them.
    pub folders: Vec<PathBuf>,
    /// Its standard input.
    pub stdin: Stdin,
    /// How it is asked to stop.
    pub polite: PoliteSignal,
}

/// Why no command can be built, or nothing can be read.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Code `COMMAND_NOT_FOUND`.
    #[error("the program `{0}` of the agent is not on the PATH that the agent gets, or not executable")]
    ProgramNotFound(String),
    /// Code `CONFIG_INVALID`.
    #[error("the agent `{0}` has no `run:` in the policy, so there is nothing to start")]
    NothingToRun(String),
    /// Code `CONFIG_INVALID`.
    #[error("the agent `replay` needs `events:`, the recording to play")]
    NoRecording,
    /// Code `ENV_UNSUPPORTED`.
    #[error("neither CODEX_HOME nor HOME is set for the agent, so its home is unknown")]
    NoHome,
    /// Code `ENV_UNSUPPORTED`: Codex refuses to make its sandbox there, and then every command fails silently.
    #[error("the agent's home `{home}` lies below the temporary folder `{temp}`, where its sandbox does not work")]
    HomeBelowTemp {
        /// The home.
        home: PathBuf,
        /// The temporary folder.
        temp: PathBuf,
    },
    /// Code `INVALID_STATE`: anything else than an id would silently begin a new conversation.
    #[error("`{0}` is not the id of a Codex conversation")]
    BadSession(String),
    /// Code `INTERNAL`.
    #[error("the path `{0}` is not absolute")]
    NotAbsolute(PathBuf),
    /// Code `STORE_IO`.
    #[error("`{path}` cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl AgentError {
    /// The code of the catalogue.
    pub fn code(&self) -> Code {
        match self {
            Self::ProgramNotFound(_) => Code::CommandNotFound,
            Self::NothingToRun(_) | Self::NoRecording => Code::ConfigInvalid,
            Self::NoHome | Self::HomeBelowTemp { .. } => Code::EnvUnsupported,
            Self::BadSession(_) => Code::InvalidState,
            Self::NotAbsolute(_) => Code::Internal,
            Self::Unreadable { .. } => Code::StoreIo,
        }
    }
}

/// What an agent's file can be asked before it is used: for `doctor` and for checks before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent answers, each read by its name")]
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

/// What became of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionFate {
    /// It can be continued, as far as is known.
    #[default]
    Kept,
    /// The agent does not know it any more: begin a new one with a handoff, never ask for it again (FR-D4, FR-D5).
    Lost,
    /// Another process still holds it: find and end that one (FR-D13).
    Held,
}

/// The end of an agent's execution, read from what it said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentEnd {
    /// The last word, when the agent says that it is done.
    pub result: Option<String>,
    /// Why it is no success. `None` with a result is success.
    pub failure: Option<Failure>,
    /// Worth telling: a good result with a bad exit code, for example.
    pub warnings: Vec<String>,
    /// What became of the conversation.
    pub session: SessionFate,
}

/// Reads one execution of an agent.
pub trait Reader: Send {
    /// One line of standard output, without its end.
    fn stdout_line(&mut self, line: &[u8]) -> Vec<AgentEvent>;

    /// What the side files have grown by since the last call. Called when a watched folder changed and now and then.
    fn side_files(&mut self) -> Vec<AgentEvent>;

    /// The folder whose changes are worth waking up for, once it is known.
    fn watch(&self) -> Option<PathBuf>;

    /// Bytes of side files seen so far: while it grows the agent is not silent, even without an event.
    fn side_bytes(&self) -> u64 {
        0
    }

    /// What it cost beyond everything that was told, when it ended like this: a model call that was cut has no figures
    /// anywhere, and some agents never tell any. Careful, within reason; `None` when everything is known.
    fn untold(&self, end: &ProcessEnd) -> Option<Estimate>;

    /// The verdict, after the process ended and everything was read: `side_files` was called once more after the end.
    /// `stderr` is the end of standard error.
    fn finish(&mut self, end: &ProcessEnd, stderr: &str) -> AgentEnd;
}

/// What a reader needs to know. Made before the process starts: what is in the side files by then belongs to earlier
/// executions and is not reported again.
#[derive(Debug, Clone, Copy)]
pub struct ReaderRequest<'a> {
    /// How the agent is spoken to.
    pub protocol: Protocol,
    /// The conversation that is continued, if any.
    pub session: Option<&'a str>,
    /// The environment the agent gets, before [`AgentCommand::env`].
    pub env: &'a BTreeMap<OsString, OsString>,
    /// As in [`AgentRequest`].
    pub private_home: &'a Path,
    /// The policy's entry for the agent.
    pub rules: &'a AgentRules,
    /// The size of its prompt: what a first call costs at least, when nobody says what it cost.
    pub prompt_bytes: u64,
    /// The number of the step's execution within the run: makes names unique that the agent keeps unique only within
    /// one execution.
    pub execution: u32,
}

/// What is needed to look into an execution whose end nobody saw.
#[derive(Debug, Clone, Copy)]
pub struct InspectRequest<'a> {
    /// As the live reader got it; `session` is the conversation as far as it was recorded.
    pub reader: ReaderRequest<'a>,
    /// The working copy: finds a conversation whose id was not recorded in time.
    pub workspace: &'a Path,
    /// When the execution began. What happened before belongs to earlier ones. `None`: everything counts.
    pub started_at: Option<UtcMs>,
    /// What was kept of its standard output.
    pub transcript: Option<&'a Path>,
}

/// What an earlier execution of an agent, whose end nobody saw, left in its own records (R-W4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Everything that can be read of it; usage and tool calls are named as the live reader would name them.
    pub events: Vec<AgentEvent>,
    /// How far it got.
    pub progress: Progress,
    /// As [`Reader::untold`] of a process whose end nobody saw.
    pub untold: Option<Estimate>,
    /// The time of its last record, in milliseconds since the epoch.
    pub last_record_at: Option<i64>,
}

/// How far an unseen execution got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It had finished, well or badly; this was its end.
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

/// What an agent of this protocol can do.
pub fn abilities(protocol: Protocol) -> Abilities {
    match protocol {
        Protocol::Codex => Abilities { reports_tokens: true, reports_tools: true, reports_cost: false, resumes: true },
        Protocol::Replay | Protocol::Agentrun => {
            Abilities { reports_tokens: true, reports_tools: true, reports_cost: true, resumes: true }
        }
        Protocol::Text => {
            Abilities { reports_tokens: false, reports_tools: false, reports_cost: false, resumes: false }
        }
    }
}

/// Whether an agent of this protocol is given agentrun's own tools where its run may ask for something.
pub fn gets_tools(protocol: Protocol) -> bool {
    protocol == Protocol::Codex
}

/// How to start the agent.
pub fn command(request: &AgentRequest<'_>) -> Result<AgentCommand, AgentError> {
    match request.agent.protocol {
        Protocol::Codex => codex::command(request),
        Protocol::Replay => replay::command(request),
        Protocol::Agentrun => agentrun_protocol::command(request),
        Protocol::Text => text::command(request),
    }
}

/// A reader for one execution.
pub fn reader(request: &ReaderRequest<'_>) -> Box<dyn Reader> {
    match request.protocol {
        Protocol::Codex => Box::new(codex::CodexReader::new(request)),
        Protocol::Replay | Protocol::Agentrun => Box::new(agentrun_protocol::ProtocolReader::new(request)),
        Protocol::Text => Box::new(text::TextReader::new(request)),
    }
}

/// Looks into an execution whose end nobody saw.
pub fn inspect(request: &InspectRequest<'_>) -> Result<Inspection, AgentError> {
    match request.reader.protocol {
        Protocol::Codex => codex::inspect(request),
        Protocol::Replay | Protocol::Agentrun => agentrun_protocol::inspect(request),
        Protocol::Text => text::inspect(request),
    }
}

/// A command that ends with 0 when the agent's sandbox works on this machine; `None` when the agent has none. For
/// `doctor` and before a first run.
pub fn probe(request: &AgentRequest<'_>) -> Result<Option<AgentCommand>, AgentError> {
    match request.agent.protocol {
        Protocol::Codex => codex::probe(request),
        Protocol::Replay | Protocol::Agentrun | Protocol::Text => Ok(None),
    }
}

/// A program, arguments that make it print its version, and variables that keep it from leaving something in the user's
/// home meanwhile.
pub type VersionCommand = (PathBuf, Vec<OsString>, Vec<(OsString, OsString)>);

/// How an agent is asked for its version; `None` when it has none.
pub fn version_command(request: &AgentRequest<'_>) -> Result<Option<VersionCommand>, AgentError> {
    match request.agent.protocol {
        Protocol::Codex => {
            let env = vec![("CODEX_HOME".into(), request.private_home.into())];
            Ok(Some((codex::program(request)?, vec!["--version".into()], env)))
        }
        Protocol::Replay | Protocol::Agentrun | Protocol::Text => Ok(None),
    }
}

/// The version in what [`version_command`] printed.
pub fn parse_version(protocol: Protocol, stdout: &str) -> Option<String> {
    let word = stdout.lines().next()?.split_whitespace().last()?;
    let plausible = protocol == Protocol::Codex && word.starts_with(|c: char| c.is_ascii_digit()) && word.len() <= 64;
    plausible.then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_last_word_of_the_first_line() {
        assert_eq!(parse_version(Protocol::Codex, "codex-cli 0.171.0\n").as_deref(), Some("0.171.0"));
        for odd in ["", "\n", "codex-cli", "error: unexpected argument '--version' found"] {
            assert_eq!(parse_version(Protocol::Codex, odd), None, "{odd}");
        }
    }
}
