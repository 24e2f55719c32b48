//! Whether going on with a run is safe: the record against what is there now (R-S5). Looks, and changes nothing.

use super::error::EngineError;
use super::facts::Given;
use super::host::Host;
use super::workspace::{START_PIN, index_path};
use crate::artifacts::digest::verify;
use crate::domain::artifact::FaultKind;
use crate::domain::failure::Code;
use crate::domain::plan::resume::{Difference, DifferenceCode as D, ResumeVerdict as V};
use crate::domain::record::{ArtifactType, RunView};
use crate::domain::run::RunStatus;
use crate::domain::task::WorkspaceKind;
use crate::git::Workspace;

/// Every difference, in the order of the contract. `given` is what the files say now, where they can still be read.
pub fn differences(host: &Host<'_>, view: &RunView, given: Option<&Given>) -> Result<Vec<Difference>, EngineError> {
    let mut found = Vec::new();
    base_commit(host, view, &mut found)?;
    if let Some(given) = given {
        files(view, given, &mut found);
    }
    artifacts(host, view, &mut found)?;
    worktree(host, view, &mut found)?;
    Ok(found)
}

fn difference(code: D, old: Option<String>, new: Option<String>, verdict: V, note: &str) -> Difference {
    Difference { code, old, new, verdict, note: note.to_owned() }
}

fn base_commit(host: &Host<'_>, view: &RunView, found: &mut Vec<Difference>) -> Result<(), EngineError> {
    let base = &view.run.components.base_commit;
    if !host.repo.commit_exists(base) {
        let note = "the commit that the run began from is gone from the repository";
        found.push(difference(D::BaseCommitChanged, Some(base.clone()), None, V::ResumeBlocked, note));
        return Ok(());
    }
    if view.inputs.spec.workspace == WorkspaceKind::InPlace {
        let head = host.repo.head()?.commit;
        let known = [Some(base), view.run.snapshot.as_ref()];
        if !known.contains(&Some(&head)) {
            let note = "the checkout that the run works in stands on another commit";
            found.push(difference(D::BaseCommitChanged, Some(base.clone()), Some(head), V::ReviewRequired, note));
        }
    }
    Ok(())
}

/// Task, prompts and policy as their files read now. The run has copies of its own, so none of these is in the way.
fn files(view: &RunView, given: &Given, found: &mut Vec<Difference>) {
    let hash = |text: &str| crate::domain::hash::encoding::Sha256Hash::of(text.as_bytes()).to_string();
    let (old, new) = (view.inputs.spec.meaning(), given.spec.meaning());
    if old != new {
        let note = "the run goes on with the task as recorded; --accept TASK_SPEC_CHANGED takes the new one";
        found.push(difference(D::TaskSpecChanged, Some(hash(&old)), Some(hash(&new)), V::Valid, note));
    }
    for (step, prompt) in &given.prompts {
        let old = view.inputs.prompts.get(step);
        if old.is_none_or(|old| old.sha256 != prompt.sha256) {
            let note = format!("step `{step}` goes on with the prompt as recorded");
            let old = old.map(|p| p.version.clone());
            found.push(difference(D::PromptVersionChanged, old, Some(prompt.version.clone()), V::Valid, &note));
        }
    }
    if view.inputs.policy_sha256 != given.policy_sha256 {
        let rules_changed = view.inputs.policy.rules != given.policy.rules;
        let (verdict, note) = if rules_changed {
            (V::ReviewRequired, "the policy's rules are others; a person must agree to go on")
        } else {
            (V::Valid, "only limits and settings differ; the new limits hold from here on")
        };
        let (old, new) = (view.inputs.policy.version.clone(), given.policy.version.clone());
        found.push(difference(D::PolicyChanged, Some(old), Some(new), verdict, note));
    }
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
                difference(D::ArtifactMissing, Some(path), None, V::ResumeBlocked, note)
            }
            FaultKind::Changed { old, new } => {
                let note = "a file that the run kept has other content";
                let (old, new) = (format!("{path} {old}"), format!("{path} {new}"));
                difference(D::ArtifactChanged, Some(old), Some(new), V::ResumeBlocked, note)
            }
        });
    }
    Ok(())
}

/// The working copy against the snapshot at the end of the last attempt. After a kill there is no such snapshot of what the
/// cut step did; then the step's own recovery looks.
fn worktree(host: &Host<'_>, view: &RunView, found: &mut Vec<Difference>) -> Result<(), EngineError> {
    // By a kill, or by a machine that failed; a signal leaves a snapshot.
    let failed_under_it = view.run.status == RunStatus::Interrupted && view.run.code != Some(Code::Interrupted);
    let was_cut = view.run.status == RunStatus::Running || failed_under_it;
    let Some(snapshot) = view.run.snapshot.as_ref().filter(|_| !was_cut) else { return Ok(()) };
    let opened = match view.inputs.spec.workspace {
        WorkspaceKind::InPlace => {
            Workspace::in_place(host.repo, &index_path(host, &view.run.id)?).map(Workspace::looked_at)
        }
        WorkspaceKind::Isolated => Workspace::look(host.repo, &host.home.work_dir(&view.run.id)?),
    };
    // Put away, or lost: the next attempt makes it anew from the snapshot.
    let Ok(workspace) = opened else { return Ok(()) };
    let start = host.repo.pinned(view.run.id.as_str(), START_PIN)?;
    let start = start.as_ref().unwrap_or(&view.run.components.base_commit);
    let present = workspace.snapshot(start, "validation")?;
    if host.repo.tree_of(&present.commit)? == host.repo.tree_of(snapshot)? {
        return Ok(());
    }
    let changed = host.repo.changes(snapshot, &present.commit)?;
    let paths: Vec<_> = changed.iter().map(|c| c.path.clone()).collect();
    let note = format!("the run's working copy was changed since: {}", paths.join(", "));
    let short = |commit: &str| Some(commit[..12].to_owned());
    found.push(difference(D::WorktreeChanged, short(snapshot), short(&present.commit), V::ReviewRequired, &note));
    let locks = view.inputs.lockfiles.keys().filter(|name| paths.contains(name));
    for lock in locks {
        let note = "a dependency lock file in the working copy was changed since";
        found.push(difference(D::LockfileChanged, Some(lock.clone()), Some(lock.clone()), V::ReviewRequired, note));
    }
    Ok(())
}
