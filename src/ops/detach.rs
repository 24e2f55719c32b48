//! Goes on with an accepted run in the background: a process of its own session that no terminal and no job can take down
//! by closing.

use std::path::Path;
use std::process::{Command, Stdio};

use super::error::OpsError;
use super::place::Place;
use crate::domain::failure::Code;
use crate::domain::ids::RunId;
use crate::engine::host::Who;

/// Starts `agentrun resume RUN` detached. What it has to say stands in the run's record and log.
pub fn go_on(place: &Place, own_program: &Path, who: &Who, run: &RunId) -> Result<(), OpsError> {
    let mut command = Command::new("setsid");
    command
        .arg("--fork")
        .arg(own_program)
        .arg("-C")
        .arg(place.repo.root())
        .args(["--quiet", "--no-input", "--request-id", who.request_id.as_str(), "resume", run.as_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(run, &status.to_string())),
        Err(error) => Err(failed(run, &error.to_string())),
    }
}

fn failed(run: &RunId, why: &str) -> OpsError {
    OpsError::about(
        run,
        Code::EnvUnsupported,
        format!("run {run} was accepted but could not be sent to the background: {why}"),
    )
}
