//! The context step: what counted when the run began, as a file that reviewers and agents can read.

use crate::domain::change::Change;
use crate::domain::record::{ArtifactRecord, ArtifactType};
use crate::engine::error::EngineError;
use crate::engine::held::Held;
use crate::engine::host::Host;
use crate::engine::keep::keep;

/// Writes `artifacts/context.json` and stages its record.
pub fn carry_out(host: &Host<'_>, held: &mut Held, step: &crate::domain::ids::StepKey) -> Result<(), EngineError> {
    let inputs = &held.inputs;
    let document = serde_json::json!({
        "schema": "agentrun/context/1",
        "task": inputs.spec.task,
        "files": inputs.files,
        "rules": inputs.rules,
        "lockfiles": inputs.lockfiles,
        "notes": inputs.notes,
    });
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    let kept = keep(host, held, "context.json", text.as_bytes())?;
    held.stage(Change::Artifact(ArtifactRecord {
        kind: ArtifactType::Context,
        path: kept.path,
        sha256: kept.sha256,
        size: kept.size,
        step: Some(step.clone()),
        attempt: held.hold.attempt,
    }))
}
