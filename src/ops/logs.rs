//! The output of a run's steps, in the order in which they were executed, also while it grows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::OpsError;
use super::place::Place;
use crate::artifacts::run_dir::{Execution, StepFile};
use crate::artifacts::transcript::{Follower, Rest};
use crate::domain::failure::Code;
use crate::domain::record::RunView;
use crate::domain::run::RunStatus;
use crate::domain::task::StepKind;
use crate::report::command_json::LogName;

/// Whether control characters are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As they are.
    Raw,
    /// Made visible: output must not command the terminal (F94).
    Neutral,
}

/// One log file of one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    step: String,
    attempt: u32,
    stream: &'static str,
    path: PathBuf,
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
    neutral: BTreeMap<PathBuf, Follower>,
    raw: BTreeMap<PathBuf, u64>,
    last: Option<PathBuf>,
}

impl<'a> Reading<'a> {
    /// Of one run, or of one step of it.
    pub fn new(place: &'a Place, name: &'a str, step: Option<&'a str>, tone: Tone) -> Self {
        Self { place, name, step, tone, neutral: BTreeMap::new(), raw: BTreeMap::new(), last: None }
    }

    /// What is new since the last call. An unfinished last line waits as long as the run is `live`.
    pub fn next(&mut self, live: bool) -> Result<Vec<Piece>, OpsError> {
        let mut pieces = Vec::new();
        for log in logs(self.place, self.name, self.step)? {
            let bytes = match self.tone {
                Tone::Raw => self.raw_bytes(&log)?,
                Tone::Neutral => {
                    let follower = self.neutral.entry(log.path.clone()).or_insert_with(|| Follower::new(&log.path));
                    let mut out = Vec::new();
                    follower.copy(&mut out, if live { Rest::Later } else { Rest::Too })?;
                    out
                }
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

    fn raw_bytes(&mut self, log: &Log) -> Result<Vec<u8>, OpsError> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let io = |e: std::io::Error| OpsError::failed(Code::StoreIo, e.to_string());
        let offset = self.raw.entry(log.path.clone()).or_insert(0);
        let mut file = fs_err::File::open(&log.path).map_err(io)?;
        file.seek(SeekFrom::Start(*offset)).map_err(io)?;
        let mut bytes = Vec::new();
        *offset += file.read_to_end(&mut bytes).map_err(io)? as u64;
        Ok(bytes)
    }
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
        let is_agent = view.steps.iter().any(|s| s.key == execution.step && s.kind == StepKind::Agent);
        let out = if is_agent { ("events", StepFile::Events) } else { ("stdout", StepFile::Stdout) };
        for (stream, file) in [out, ("stderr", StepFile::Stderr)] {
            let named = Execution { attempt: execution.attempt, step: &execution.step, nth: *n };
            let path = dir.step_file(named, file);
            if path.exists() {
                found.push(Log { step: execution.step.to_string(), attempt: execution.attempt, stream, path });
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
