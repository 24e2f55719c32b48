//! Whether going on with a run is safe: the record against what is there now (R-S5). Looks, and changes nothing.
//!
//! `files` compares what people write (task, prompts, policy), `tree` what lies in git and in the working copy.

mod files;
mod tree;

pub use files::{Present, PresentPolicy, TaskAndPrompts};

use super::error::EngineError;
use super::host::Host;
use crate::artifacts::digest::verify;
use crate::domain::artifact::FaultKind;
use crate::domain::plan::resume::{Difference, DifferenceCode as D, ResumeVerdict as V};
use crate::domain::record::{ArtifactType, RunView};

/// Every difference, in the order of the contract. `present` is what the files say now.
pub fn differences(host: &Host<'_>, view: &RunView, present: &Present) -> Result<Vec<Difference>, EngineError> {
    let mut found = Vec::new();
    let has_base = tree::base_commit(host, view, &mut found)?;
    files::task(view, present, &mut found);
    files::prompts(view, present, &mut found);
    if has_base {
        tree::context(host, view, &mut found)?;
    }
    files::policy(view, present, &mut found);
    // Without its base nothing can be compared, and nothing needs to be: the run is blocked.
    let kept = if has_base { tree::working_copy(host, view, &mut found)? } else { None };
    artifacts(host, view, &mut found)?;
    if has_base {
        tree::lockfiles(host, view, kept, &mut found)?;
    }
    Ok(found)
}

fn difference(code: D, (old, new): (Option<String>, Option<String>), verdict: V, note: &str) -> Difference {
    Difference { code, old, new, verdict, note: note.to_owned() }
}

/// Kept files. Reports and results are drawn anew at every end, so they are no part of it.
fn artifacts(host: &Host<'_>, view: &RunView, found: &mut Vec<Difference>) -> Result<(), EngineError> {
    let redrawn = |t: ArtifactType| matches!(t, ArtifactType::Report | ArtifactType::Result | ArtifactType::Junit);
    let kept: Vec<_> = view.artifacts.iter().filter(|a| !redrawn(a.kind)).cloned().collect();
    for fault in verify(&host.home.run_dir(&view.run.id)?, &kept)? {
        let path = fault.path;
        found.push(match fault.what {
            FaultKind::Missing => {
                let note = "a file that the run kept is gone";
                difference(D::ArtifactMissing, (Some(path), None), V::ResumeBlocked, note)
            }
            FaultKind::Changed { old, new } => {
                let note = "a file that the run kept has other content";
                let values = (Some(format!("{path} {old}")), Some(format!("{path} {new}")));
                difference(D::ArtifactChanged, values, V::ResumeBlocked, note)
            }
        });
    }
    Ok(())
}
