//! Plays a recorded agent: its events to standard output, its patch into the working copy. A real child process like any
//! other agent, so that everything around it is real as well.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::error::OpsError;
use crate::agents::replay::{Step, script};
use crate::domain::failure::Code;

/// Plays `events` and applies `patch` to the current folder before the last event.
pub fn replay(dir: &Path, events: &Path, patch: Option<&Path>, out: &mut dyn Write) -> Result<(), OpsError> {
    let read = |path: &Path| {
        fs_err::read(path)
            .map_err(|e| OpsError::failed(Code::ConfigInvalid, format!("the recording cannot be read: {e}")))
    };
    let text = String::from_utf8_lossy(&read(events)?).into_owned();
    let steps = script(&text).map_err(|e| OpsError::failed(Code::ConfigInvalid, e.to_string()))?;
    if let Some(patch) = patch {
        crate::git::apply_patch_to_dir(dir, &read(patch)?)?;
    }
    for step in steps {
        match step {
            Step::Wait(length) => std::thread::sleep(Duration::from_millis(length.0)),
            Step::Line(line) => {
                let written = writeln!(out, "{line}").and_then(|()| out.flush());
                written.map_err(|e| {
                    OpsError::failed(Code::StoreIo, format!("the reader of the recording is gone: {e}"))
                })?;
            }
        }
    }
    Ok(())
}
