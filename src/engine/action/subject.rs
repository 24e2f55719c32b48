//! Everything that an approval covers, looked at now: before a person is asked, and again right before the send (R-A9, R-S8).
//! A script that was changed after it was approved gives another digest (F49).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::call::{self, words_of};
use super::{Outside, OwnCommands};
use crate::adapters::{self, Files, Machine};
use crate::domain::action::approval::Subject;
use crate::domain::action::contract::Channel;
use crate::domain::action::record::ReleaseRecord;
use crate::domain::action::{ActionRequest, Contract};
use crate::domain::delivery::EnvironmentState;
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::quantity::Millis;
use crate::domain::record::RunInputs;
use crate::domain::task::CommandLine;
use crate::engine::error::EngineError;
use crate::process::lookup::find_program;

/// A file that is named on a command line is looked at up to this size; a larger one is no script.
const LARGEST_SCRIPT: u64 = 16 << 20;

/// How long a command that tells the state of an environment may take.
const STATE_WITHIN: Millis = Millis(60_000);

/// What is looked at. Owned, so that whoever sends can look again.
#[derive(Debug, Clone)]
pub struct Looked {
    /// The request.
    pub request: ActionRequest,
    /// The contract.
    pub contract: Contract,
    /// Commands of the step's own.
    pub own: OwnCommands,
    /// Where the step's commands stand.
    pub dir: PathBuf,
    /// Where the contract's commands stand.
    pub root: PathBuf,
    /// What commands see of the environment.
    pub vars: BTreeMap<OsString, OsString>,
    /// The contents that the run has reached: tree and base commit.
    pub commit: String,
    /// The release, as it was recorded.
    pub release: Option<ReleaseRecord>,
    /// The folder with the release's artifacts.
    pub kept: PathBuf,
    /// What the environment's configuration is.
    pub environment_state: Vec<EnvironmentState>,
    /// Version and SHA-256 of the policy.
    pub policy: String,
    /// Why a person wants it, in one line.
    pub title: String,
}

/// Version and content of a run's policy, as an approval names it.
pub fn policy_of(inputs: &RunInputs) -> String {
    format!("{} {}", inputs.policy.version, inputs.policy_sha256)
}

/// Looks.
pub fn look(outside: &Outside<'_>, at: &Looked) -> Result<Subject, EngineError> {
    let line = command_of(at);
    let command = line.as_ref().map(|(line, _)| words_of(line));
    let programs = line.map(|(line, dir)| programs(&line, &dir, &at.vars)).transpose()?.unwrap_or_default();
    let release = at.release.as_ref();
    Ok(Subject {
        title: at.title.clone(),
        kind: at.request.kind.to_string(),
        target: Some(at.request.target.clone()),
        account: at.request.account.clone(),
        environment: Some(at.request.environment.to_string()),
        request: Some(at.request.hash()),
        command,
        programs,
        commit: Some(at.commit.clone()),
        release: release.map(|release| format!("{} at {}", release.id, release.commit)),
        artifacts: release.map(|release| artifacts(release, &at.kept)).transpose()?.unwrap_or_default(),
        contract: Some(format!("{} {}", at.contract.name, at.contract.sha256)),
        environment_state: environment_state(outside, at)?,
        policy: at.policy.clone(),
    })
}

/// The command that carries it out, and where it stands; `None` for a call over the network.
fn command_of(at: &Looked) -> Option<(CommandLine, PathBuf)> {
    if let Some(run) = &at.own.run {
        return Some((run.clone(), at.dir.clone()));
    }
    match &at.contract.send {
        Some(Channel::Command { run }) => Some((run.clone(), at.root.clone())),
        _ => None,
    }
}

/// The program and every file that the line names, with their contents.
fn programs(
    line: &CommandLine,
    dir: &Path,
    vars: &BTreeMap<OsString, OsString>,
) -> Result<BTreeMap<String, String>, EngineError> {
    let path = vars.get(&OsString::from("PATH")).map(OsString::as_os_str);
    let words: Vec<String> = match line {
        CommandLine::List(list) => list.clone(),
        // Which words of a shell line are files is not for us to say: every one that is a file counts.
        CommandLine::Shell(text) => {
            let is_break =
                |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '&' | '|' | '(' | ')' | '<' | '>' | '=');
            text.split(is_break).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
        }
    };
    let mut found = BTreeMap::new();
    for (at, word) in words.iter().enumerate() {
        let program = if at == 0 { find_program(word.as_ref(), path, dir).ok() } else { None };
        let Some(file) = program.or_else(|| file_at(dir, word)) else { continue };
        if let Some(hash) = content_of(&file)? {
            found.insert(file.display().to_string(), hash.hex());
        }
    }
    Ok(found)
}

fn file_at(dir: &Path, word: &str) -> Option<PathBuf> {
    let path = dir.join(word);
    path.is_file().then_some(path)
}

fn content_of(path: &Path) -> Result<Option<Sha256Hash>, EngineError> {
    let unread = |e: std::io::Error| EngineError::failed(Code::StoreIo, format!("{}: {e}", path.display()));
    let size = fs_err::metadata(path).map_err(unread)?.len();
    if size > LARGEST_SCRIPT {
        return Ok(None);
    }
    Ok(Some(Sha256Hash::of(&fs_err::read(path).map_err(unread)?)))
}

/// The release's artifacts as they lie there now: one that is gone or changed is no longer what was released (R-A19).
fn artifacts(release: &ReleaseRecord, kept: &Path) -> Result<BTreeMap<String, String>, EngineError> {
    let mut found = BTreeMap::new();
    for (path, recorded) in &release.artifacts {
        let file = kept.join(path);
        let read = fs_err::read(&file);
        let now = read.map(|bytes| Sha256Hash::of(&bytes)).map_err(|e| {
            EngineError::failed(Code::ArtifactMissing, format!("release {}: {path} cannot be read: {e}", release.id))
        })?;
        if now != *recorded {
            let message = format!("release {}: {path} is {now}, and was released as {recorded}", release.id);
            return Err(EngineError::failed(Code::ArtifactChanged, message));
        }
        found.insert(path.clone(), now.hex());
    }
    Ok(found)
}

fn environment_state(outside: &Outside<'_>, at: &Looked) -> Result<BTreeMap<String, String>, EngineError> {
    let mut found = BTreeMap::new();
    for state in &at.environment_state {
        let (name, bytes) = match state {
            EnvironmentState::File(path) => {
                let read = fs_err::read(at.dir.join(path));
                let missing =
                    |e: std::io::Error| EngineError::failed(Code::ConfigInvalid, format!("environment_state: {e}"));
                (path.clone(), read.map_err(missing)?)
            }
            EnvironmentState::Command(line) => (words_of(line).join(" "), output_of(line, (outside, at))?),
        };
        found.insert(name, Sha256Hash::of(&bytes).hex());
    }
    Ok(found)
}

fn output_of(line: &CommandLine, (outside, at): (&Outside<'_>, &Looked)) -> Result<Vec<u8>, EngineError> {
    let failed = |what: String| EngineError::failed(Code::CommandFailed, format!("environment_state: {what}"));
    let folder = tempfile::tempdir().map_err(|e| failed(e.to_string()))?;
    let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
    let stop = AtomicBool::new(false);
    let machine = Machine {
        supervisor: outside.supervisor,
        child: call::next_child(),
        environment: outside.vars,
        vars: &at.vars,
        secrets: &[],
        dir: &at.dir,
        files: Files { request: &stdout, stdout: &stdout, stderr: &stderr, max_bytes: LARGEST_SCRIPT },
        grace: Millis(1_000),
        stop: &stop,
    };
    adapters::output(&machine, line, STATE_WITHIN).map_err(failed)
}
