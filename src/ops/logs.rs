//! The output of a run's steps, in the order in which they were executed, also while it grows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::OpsError;
use super::place::Place;
use crate::agents::{self, Reader, ReaderRequest};
use crate::artifacts::run_dir::{Execution, StepFile};
use crate::domain::agent_event::AgentEvent;
use crate::domain::failure::Code;
use crate::domain::policy::AgentRules;
use crate::domain::record::RunView;
use crate::domain::run::RunStatus;
use crate::domain::task::{Protocol, StepBody};
use crate::domain::text::neutral;
use crate::report::command_json::LogName;

/// How a log is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// The bytes as they are.
    Raw,
    /// For people: an agent's events in words, control characters made visible (F94).
    Readable,
}

/// One log file of one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    step: String,
    attempt: u32,
    stream: &'static str,
    path: PathBuf,
    /// Set for the stream of an agent.
    protocol: Option<Protocol>,
}

impl Log {
    /// Its name.
    pub fn label(&self) -> LogName<'_> {
        LogName { step: &self.step, attempt: self.attempt, stream: self.stream }
    }
}

/// Something new in a log.
#[derive(Debug)]
pub struct Piece {
    /// Which log.
    pub log: Log,
    /// Set where another log begins.
    pub title: Option<String>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Reads the logs of a run, from the beginning, piece by piece.
pub struct Reading<'a> {
    place: &'a Place,
    name: &'a str,
    step: Option<&'a str>,
    tone: Tone,
    sources: BTreeMap<PathBuf, Source>,
    last: Option<PathBuf>,
}

/// How far one log was read, and what turns it into words.
struct Source {
    offset: u64,
    rest: Vec<u8>,
    agent: Option<Box<dyn Reader>>,
}

impl<'a> Reading<'a> {
    /// Of one run, or of one step of it.
    pub fn new(place: &'a Place, name: &'a str, step: Option<&'a str>, tone: Tone) -> Self {
        Self { place, name, step, tone, sources: BTreeMap::new(), last: None }
    }

    /// What is new since the last call. An unfinished last line waits as long as the run is `live`.
    pub fn next(&mut self, live: bool) -> Result<Vec<Piece>, OpsError> {
        let mut pieces = Vec::new();
        for log in logs(self.place, self.name, self.step)? {
            let source = self.sources.entry(log.path.clone()).or_insert_with(|| Source::of(&log));
            let bytes = match self.tone {
                Tone::Raw => source.read(&log)?,
                Tone::Readable => source.words(&log, live)?,
            };
            if bytes.is_empty() {
                continue;
            }
            let is_new = self.last.as_ref() != Some(&log.path);
            let title = is_new.then(|| format!("{} {} (attempt {})", log.step, log.stream, log.attempt));
            self.last = Some(log.path.clone());
            pieces.push(Piece { log, title, bytes });
        }
        Ok(pieces)
    }
}

impl Source {
    fn of(log: &Log) -> Self {
        Self { offset: 0, rest: Vec::new(), agent: log.protocol.map(reader) }
    }

    fn read(&mut self, log: &Log) -> Result<Vec<u8>, OpsError> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let io = |e: std::io::Error| OpsError::failed(Code::StoreIo, e.to_string());
        let mut file = fs_err::File::open(&log.path).map_err(io)?;
        file.seek(SeekFrom::Start(self.offset)).map_err(io)?;
        let mut bytes = Vec::new();
        self.offset += file.read_to_end(&mut bytes).map_err(io)? as u64;
        Ok(bytes)
    }

    fn words(&mut self, log: &Log, live: bool) -> Result<Vec<u8>, OpsError> {
        let new = self.read(log)?;
        self.rest.extend(new);
        let whole = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let until = if live { whole } else { self.rest.len() };
        let ready: Vec<u8> = self.rest.drain(..until).collect();
        let text = match &mut self.agent {
            None => neutral(&String::from_utf8_lossy(&ready)).into_owned(),
            Some(agent) => ready.split(|b| *b == b'\n').flat_map(|line| agent.stdout_line(line)).map(said).collect(),
        };
        Ok(text.into_bytes())
    }
}

/// A reader that knows nothing but the stream: what the log itself says.
fn reader(protocol: Protocol) -> Box<dyn Reader> {
    agents::reader(&ReaderRequest {
        protocol,
        session: None,
        env: &BTreeMap::new(),
        private_home: Path::new("/nonexistent"),
        rules: &AgentRules::known(protocol),
        execution: 1,
        prompt_bytes: 0,
    })
}

/// One event in words; nothing for those that are only for the record.
fn said(event: AgentEvent) -> String {
    let line = match event {
        AgentEvent::Message { text } => text,
        AgentEvent::ToolCall { summary, .. } => format!("> {summary}"),
        AgentEvent::ToolResult { ok: Some(false), .. } => "> failed".to_owned(),
        AgentEvent::Warning { text } => format!("warning: {text}"),
        AgentEvent::Error(failure) => format!("error[{}]: {}", failure.code, failure.message),
        AgentEvent::Session { .. }
        | AgentEvent::ToolResult { .. }
        | AgentEvent::Usage(_)
        | AgentEvent::Result { .. } => {
            return String::new();
        }
    };
    format!("{}\n", neutral(&line))
}

/// The log files that exist.
fn logs(place: &Place, name: &str, step: Option<&str>) -> Result<Vec<Log>, OpsError> {
    let view = super::show::show(place, name)?.view;
    refuse_unknown(&view, step)?;
    let Some(home) = place.existing_home()? else { return Ok(Vec::new()) };
    let dir = home.run_dir(&view.run.id)?;
    let mut found = Vec::new();
    let mut nth = BTreeMap::new();
    for execution in &view.executions {
        let n = nth.entry((execution.step.clone(), execution.attempt)).or_insert(0_u32);
        *n += 1;
        if step.is_some_and(|key| key != execution.step.as_str()) {
            continue;
        }
        let protocol = match view.inputs.spec.step(&execution.step).map(|s| &s.body) {
            Some(StepBody::Agent { agent, .. }) => Some(agent.protocol),
            _ => None,
        };
        let out = if protocol.is_some() { ("events", StepFile::Events) } else { ("stdout", StepFile::Stdout) };
        for (stream, file) in [out, ("stderr", StepFile::Stderr)] {
            let named = Execution { attempt: execution.attempt, step: &execution.step, nth: *n };
            let path = dir.step_file(named, file);
            if path.exists() {
                let protocol = protocol.filter(|_| stream == "events");
                found.push(Log {
                    step: execution.step.to_string(),
                    attempt: execution.attempt,
                    stream,
                    path,
                    protocol,
                });
            }
        }
    }
    Ok(found)
}

fn refuse_unknown(view: &RunView, step: Option<&str>) -> Result<(), OpsError> {
    let Some(key) = step.filter(|key| !view.steps.iter().any(|s| s.key.as_str() == *key)) else { return Ok(()) };
    let known: Vec<_> = view.steps.iter().map(|s| s.key.as_str()).collect();
    let message = format!("run {} has no step `{key}`; it has {}", view.run.id, known.join(", "));
    Err(OpsError::about(&view.run.id, Code::NotFound, message))
}

/// True while more may come.
pub fn is_live(place: &Place, name: &str) -> Result<bool, OpsError> {
    let status = super::show::show(place, name)?.view.run.status;
    Ok(matches!(status, RunStatus::Running | RunStatus::Pending))
}
