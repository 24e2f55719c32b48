//! `--on-end`: a command of the user's that learns how a run ended.

use super::error::OpsError;
use super::place::Place;
use super::show::Shown;
use crate::domain::failure::Code;
use crate::report::action_json::Keys;
use crate::report::run_json::{Extras, run_json};

/// Runs the command once, with the run's JSON on its standard input.
pub fn tell(place: &Place, command: &str, shown: &Shown) -> Result<(), OpsError> {
    let failed = |why: String| OpsError::about(&shown.view.run.id, Code::CommandFailed, why);
    let extras = Extras {
        via: None,
        meaning: &shown.meaning,
        branch: shown.branch.as_deref(),
        warnings: &shown.warnings,
        keys: Keys::Hashed,
    };
    let text = run_json(&shown.view, &extras).to_string();
    let status = crate::process::tell(command, place.repo.root(), text.as_bytes());
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("`{command}` ended with {status}"))),
        Err(error) => Err(failed(format!("`{command}` could not be started: {error}"))),
    }
}
