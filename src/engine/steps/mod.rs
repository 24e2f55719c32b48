//! How each kind of step is carried out. A step either is done at once (context, report) or has a child process whose
//! messages it is then asked about (agent, qa, command).

pub mod agent;
pub mod command;
pub mod context;
pub mod effect;
pub mod gate;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::EngineError;
use super::host::Host;
use super::token::RunToken;
use crate::artifacts::run_dir::{self, RunDir, StepFile};
use crate::domain::failure::Code;
use crate::domain::ids::StepKey;
use crate::domain::quantity::Millis;
use crate::domain::record::RunInputs;
use crate::process::MARKER;
use crate::process::lookup::find_program;
use crate::process::spec::{Capture, Lines};
use crate::store::Hold;

/// One execution of a step: which, where its output goes, and what its child sees.
#[derive(Debug, Clone)]
pub struct Execution {
    /// The step.
    pub step: StepKey,
    /// The attempt.
    pub attempt: u32,
    /// The n-th execution of this step within the attempt, from 1.
    pub nth: u32,
    /// The n-th execution of this step in the whole run, from 1.
    pub number: u32,
    /// By what its programs show that they belong to the attempt.
    pub token: Option<RunToken>,
}

impl Execution {
    /// As its files are named.
    pub fn files(&self) -> run_dir::Execution<'_> {
        run_dir::Execution { attempt: self.attempt, step: &self.step, nth: self.nth }
    }
}

/// The variables that every child gets (contract §10), with the marker by which leftovers are found. With the token a program
/// may ask for actions of this run and look at them, and nothing else.
pub fn own_vars(host: &Host<'_>, hold: &Hold, execution: &Execution) -> Vec<(OsString, OsString)> {
    let text = |s: &str| OsString::from(s);
    let token = execution.token.as_ref().map(|token| (text("AGENTRUN_TOKEN"), text(token.reveal())));
    let own = vec![
        (text("AGENTRUN_HOME"), host.home.root().into()),
        (text("AGENTRUN_RUN_ID"), text(hold.run.as_str())),
        (text("AGENTRUN_ATTEMPT"), text(&hold.attempt.to_string())),
        (text("AGENTRUN_STEP"), text(execution.step.as_str())),
        (text("AGENTRUN_REQUEST_ID"), text(host.who.request_id.as_str())),
        (text(MARKER), text(&marker(host, hold))),
    ];
    own.into_iter().chain(token).collect()
}

/// The marker of a run's children: unique over all state folders of a machine (FR-I7).
pub fn marker(host: &Host<'_>, hold: &Hold) -> String {
    let home = host.home.root().to_string_lossy();
    let home = crate::domain::hash::encoding::Sha256Hash::of(home.as_bytes()).hex();
    format!("{}/{}", &home[..16], hold.run)
}

/// Where the output of an execution goes, and what must not get there.
pub fn capture(dir: &RunDir, execution: &Execution, inputs: &RunInputs, agent: bool, secrets: Vec<String>) -> Capture {
    let stdout = if agent { StepFile::Events } else { StepFile::Stdout };
    Capture {
        stdout: dir.step_file(execution.files(), stdout),
        stderr: dir.step_file(execution.files(), StepFile::Stderr),
        max_bytes: inputs.policy.logs_max,
        lines: if agent { Lines::HandOver } else { Lines::Keep },
        secrets,
    }
}

/// What must not get into the logs of an execution: [`secrets`], and its token.
pub fn hidden(vars: &BTreeMap<OsString, OsString>, execution: &Execution) -> Vec<String> {
    let token = execution.token.as_ref().map(|token| token.reveal().to_owned());
    secrets(vars).into_iter().chain(token).collect()
}

/// The values of allow-listed variables whose names say that they are secret.
pub fn secrets(vars: &BTreeMap<OsString, OsString>) -> Vec<String> {
    const TELLING: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];
    let secret = |name: &OsString| {
        let name = name.to_string_lossy().to_ascii_uppercase();
        TELLING.iter().any(|t| name.contains(t))
    };
    let values = vars.iter().filter(|(name, _)| secret(name)).filter_map(|(_, value)| value.to_str());
    values.map(ToOwned::to_owned).collect()
}

/// The clock of a step: its own, or the policy's.
pub fn step_limit(inputs: &RunInputs, step: &StepKey) -> Millis {
    inputs.spec.step(step).and_then(|s| s.timeout).unwrap_or(inputs.policy.timeouts.step)
}

/// The program of a command line: a name is looked up on the child's own PATH, a path begins in the working copy.
pub fn lookup(name: &str, vars: &BTreeMap<OsString, OsString>, dir: &Path) -> Result<PathBuf, EngineError> {
    let path = vars.get(&OsString::from("PATH")).map(OsString::as_os_str);
    find_program(name.as_ref(), path, dir).map_err(|e| EngineError::failed(Code::CommandNotFound, e.to_string()))
}
