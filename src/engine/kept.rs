//! What a finished step keeps of the working copy: the files that its `artifacts:` name (R-S7).

use std::collections::BTreeMap;
use std::path::Path;

use super::error::EngineError;
use super::held::Held;
use super::host::Host;
use crate::artifacts::collect::{Collection, collect};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::Failure;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::task::StepSpec;

/// Keeps them and stages their records; the failure is for a glob without a match, or a file that may not be kept.
pub fn keep_artifacts(
    host: &Host<'_>,
    held: &mut Held,
    step: &StepSpec,
    dir: &Path,
) -> Result<Result<BTreeMap<String, Sha256Hash>, Failure>, EngineError> {
    if step.artifacts.is_empty() {
        return Ok(Ok(BTreeMap::new()));
    }
    let run = &held.hold.run;
    let collected = collect(&Collection {
        workspace: dir,
        home: host.home,
        run_dir: &host.home.run_dir(run)?,
        step: &step.key,
        attempt: held.hold.attempt,
        wanted: &step.artifacts,
        recorded: &held.store().view(run)?.artifacts,
    });
    let collected = match collected {
        Ok(collected) => collected,
        Err(error) => return Ok(Err(Failure::new(error.code(), error.to_string()))),
    };
    for skipped in &collected.skipped {
        let remark = format!("{} was not kept: {}", skipped.path, skipped.reason);
        held.note(EventKind::WarningRaised, Some(&step.key), &remark)?;
    }
    if let Some(failure) = collected.failure() {
        return Ok(Err(failure));
    }
    let hashes = collected.kept.iter().map(|a| (a.path.clone(), a.sha256)).collect();
    for artifact in collected.kept {
        held.stage(Change::Artifact(artifact))?;
    }
    Ok(Ok(hashes))
}
