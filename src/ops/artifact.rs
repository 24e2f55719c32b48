//! A run's kept files: which, and whether they are still what was recorded (R-S7).

use super::error::OpsError;
use super::find;
use super::place::Place;
use crate::artifacts::digest;
use crate::domain::artifact::ArtifactFault;
use crate::domain::record::RunView;

/// The run with its artifacts.
pub fn list(place: &Place, name: &str) -> Result<RunView, OpsError> {
    Ok(super::show::show(place, name)?.view)
}

/// Compares every kept file with its record.
pub fn verify(place: &Place, name: &str) -> Result<(RunView, Vec<ArtifactFault>), OpsError> {
    let records = place.records()?;
    let run = find::run(place, records.as_ref(), name)?;
    let view = super::show::show(place, run.id.as_str())?.view;
    let dir = place.home()?.run_dir(&view.run.id)?;
    let faults = digest::verify(&dir, &view.artifacts)?;
    Ok((view, faults))
}
