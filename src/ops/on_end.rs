//! `--on-end`: a command of the user's that learns how a run ended.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::error::OpsError;
use super::place::Place;
use super::show::Shown;
use crate::domain::failure::Code;
use crate::report::run_json::{Extras, run_json};

/// Runs the command once, with the run's JSON on its standard input.
pub fn tell(place: &Place, command: &str, shown: &Shown) -> Result<(), OpsError> {
    let failed = |why: String| OpsError::about(&shown.view.run.id, Code::CommandFailed, why);
    let extras =
        Extras { via: None, meaning: &shown.meaning, branch: shown.branch.as_deref(), warnings: &shown.warnings };
    let text = run_json(&shown.view, &extras).to_string();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(place.repo.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| failed(format!("`{command}` could not be started: {e}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read is no failure.
        let _ = stdin.write_all(text.as_bytes());
    }
    let status = child.wait().map_err(|e| failed(format!("`{command}`: {e}")))?;
    if status.success() { Ok(()) } else { Err(failed(format!("`{command}` ended with {status}"))) }
}
