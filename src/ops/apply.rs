//! Brings a finished run's changes into the checkout: clean, or refused.

use super::error::OpsError;
use super::find;
use super::place::Place;
use crate::domain::failure::Code;
use crate::domain::record::RunRecord;
use crate::engine::facts::OWN_PATHS;
use crate::engine::workspace::START_PIN;
use crate::git::WorktreeState;

/// What was done.
#[derive(Debug)]
pub struct Applied {
    /// The run.
    pub run: RunRecord,
    /// The branch that holds the changes.
    pub branch: String,
    /// Paths that changed in the checkout; empty with `--branch`.
    pub paths: Vec<String>,
}

/// Applies, or with `only_branch` says where the changes are.
pub fn apply(place: &Place, name: &str, only_branch: bool) -> Result<Applied, OpsError> {
    let records = place.records()?;
    let run = find::run(place, records.as_ref(), name)?;
    let (Some(start), Some(tip)) =
        (place.repo.pinned(run.id.as_str(), START_PIN)?, place.repo.pinned(run.id.as_str(), "branch")?)
    else {
        let message = format!("run {} has no changes to apply", run.id);
        return Err(OpsError::about(&run.id, Code::NotFound, message));
    };
    let branch = format!("agentrun/{}", run.id);
    if only_branch {
        return Ok(Applied { run, branch, paths: Vec::new() });
    }
    let state = place.repo.state(&[".ai-runs/"])?;
    let dirty = in_the_way(place, &state, (&start, &tip))?;
    if !dirty.is_empty() || state.in_progress.is_some() {
        let message = format!("the checkout has uncommitted changes: {}", dirty.join(", "));
        return Err(OpsError::about(&run.id, Code::WorktreeDirty, message));
    }
    let paths = place.repo.apply_to_checkout(&start, &tip)?;
    Ok(Applied { run, branch, paths })
}

/// Uncommitted paths that an apply could mix with: all but agentrun's own files, and of those the ones that the run changed.
fn in_the_way(place: &Place, state: &WorktreeState, (start, tip): (&str, &str)) -> Result<Vec<String>, OpsError> {
    let changed: Vec<String> = place.repo.changes(start, tip)?.into_iter().map(|c| c.path).collect();
    let own = |path: &str| OWN_PATHS.iter().any(|own| path == *own || (own.ends_with('/') && path.starts_with(own)));
    Ok(state.paths().into_iter().filter(|path| !own(path) || changed.contains(path)).collect())
}
