//! Goes on with an accepted run in the background.

use std::path::Path;

use super::error::OpsError;
use super::place::Place;
use crate::domain::failure::Code;
use crate::domain::ids::RunId;
use crate::engine::host::Who;
use crate::process::start_detached;

/// Starts `agentrun resume RUN` detached. What it has to say stands in the run's record and logs.
pub fn go_on(place: &Place, own_program: &Path, who: &Who, run: &RunId) -> Result<(), OpsError> {
    let root = place.repo.root().as_os_str();
    let words = ["--quiet", "--no-input", "--request-id", who.request_id.as_str(), "resume", run.as_str()];
    let mut args = vec!["-C".into(), root.to_owned()];
    args.extend(words.into_iter().map(Into::into));
    start_detached(own_program, &args).map_err(|error| {
        let message = format!("run {run} was accepted but could not be sent to the background: {error}");
        OpsError::about(run, Code::EnvUnsupported, message)
    })
}
