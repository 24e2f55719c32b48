//! The working copy of a run: made ready, kept as snapshots, put back, and brought home (R-W2, R-W3). Nothing that an agent
//! wrote is thrown away before it is kept as a patch.

use super::error::EngineError;
use super::held::Held;
use super::host::Host;
use super::keep::keep;
use crate::artifacts::home::make_private;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::{RunId, StepKey};
use crate::domain::record::{ArtifactRecord, ArtifactType, Dirty};
use crate::domain::task::WorkspaceKind;
use crate::failpoints::{self, When};
use crate::git::{GuardPrint, Snapshot, Workspace};

/// The pin that keeps the base commit from being collected.
pub const BASE_PIN: &str = "base";
/// The pin of the commit that the run's own changes are counted from: the base, or the base with the included changes.
pub const START_PIN: &str = "start";

/// The pin that remembers what the run's branch was last set to: a branch that somebody moved is not overwritten.
pub const BRANCH_PIN: &str = "branch";

/// The copy and what its changes are counted from.
pub struct Copy {
    /// The copy itself.
    pub workspace: Workspace,
    /// The run's changes are the difference from this commit.
    pub start: String,
    guard: GuardPrint,
    own_guard: GuardPrint,
}

impl Copy {
    /// Makes the copy ready: the one that is there, or a new one at the newest snapshot.
    pub fn prepare(host: &Host<'_>, held: &mut Held, base: &str) -> Result<Self, EngineError> {
        let run = held.hold.run.clone();
        let fresh = host.repo.pinned(run.as_str(), BASE_PIN)?.is_none();
        if fresh {
            host.repo.pin(run.as_str(), BASE_PIN, base)?;
        }
        // The copy goes there, or the index that stands beside one.
        make_private(&host.home.work_root())?;
        let workspace = match held.inputs.spec.workspace {
            WorkspaceKind::InPlace => Workspace::in_place(host.repo, &index_path(host, &run)?)?,
            WorkspaceKind::Isolated => isolated(host, held, base)?,
        };
        let start = match host.repo.pinned(run.as_str(), START_PIN)? {
            Some(start) => start,
            None => first_commit(host, held, &workspace, base)?,
        };
        let (guard, own_guard) = (host.repo.guard()?, workspace.guard()?);
        Ok(Self { workspace, start, guard, own_guard })
    }

    /// Keeps the copy's contents as a commit in the user's repository.
    pub fn snapshot(&self, host: &Host<'_>, held: &mut Held, step: Option<&StepKey>) -> Result<Snapshot, EngineError> {
        let run = &held.hold.run.clone();
        let label = step.map_or_else(|| "end of attempt".to_owned(), ToString::to_string);
        let snapshot = self.workspace.snapshot(&self.start, &format!("{run}: {label}"))?;
        host.repo.pin(run.as_str(), &snapshot_pin(&snapshot.commit), &snapshot.commit)?;
        for warning in &snapshot.warnings {
            held.note(EventKind::WarningRaised, step, warning)?;
        }
        held.stage(Change::Snapshot { commit: snapshot.commit.clone(), step: step.cloned() })?;
        Ok(snapshot)
    }

    /// What was changed in the user's own git folder under the run, if anything was (F81). The copy's git folder is the
    /// agent's to change: that is told, and neutral, because nothing here obeys it.
    pub fn check_guard(&self, host: &Host<'_>, held: &mut Held, step: &StepKey) -> Result<Option<String>, EngineError> {
        let own = crate::git::tampering(&self.own_guard, &self.workspace.guard()?);
        if !own.is_empty() && held.inputs.spec.workspace == WorkspaceKind::Isolated {
            held.note(EventKind::WarningRaised, Some(step), &format!("git_config_changed: {}", own.join(", ")))?;
        }
        let changes = crate::git::changes(&self.guard, &host.repo.guard()?);
        let named = |dangerous: bool| {
            let those = changes.iter().filter(|c| c.is_dangerous == dangerous).map(|c| c.what.clone());
            those.collect::<Vec<_>>().join(", ")
        };
        // A person may fetch or name a branch meanwhile; only what can run code or lead elsewhere stops the run.
        let (harmless, dangerous) = (named(false), named(true));
        if !harmless.is_empty() {
            held.note(
                EventKind::WarningRaised,
                Some(step),
                &format!("the repository's git folder changed: {harmless}"),
            )?;
        }
        let told = || format!("the repository's git folder was changed during the run: {dangerous}");
        Ok((!dangerous.is_empty()).then(told))
    }

    /// Saves what lies in the copy beyond `commit` as a patch, then makes the copy equal to it.
    pub fn save_and_restore(
        &self,
        host: &Host<'_>,
        held: &mut Held,
        commit: &str,
        step: Option<&StepKey>,
    ) -> Result<(), EngineError> {
        let left = self.snapshot(host, held, step)?;
        if host.repo.tree_of(&left.commit)? != host.repo.tree_of(commit)? {
            let patch = host.repo.patch(commit, &left.commit)?;
            let name = format!("saved-attempt-{}-{}.patch", held.hold.attempt, &left.commit[..12]);
            let kept = keep(host, held, &name, &patch)?;
            let reason = format!("kept as {} before the workspace was rebuilt", kept.path);
            held.stage(Change::Artifact(ArtifactRecord {
                kind: ArtifactType::SavedWork,
                path: kept.path,
                sha256: kept.sha256,
                size: kept.size,
                step: step.cloned(),
                attempt: held.hold.attempt,
            }))?;
            held.note(EventKind::WorkSaved, step, &reason)?;
            held.commit()?;
            let _ = failpoints::reached(When::Before, "restore");
            self.workspace.restore(commit)?;
            let _ = failpoints::reached(When::After, "restore");
        }
        held.note(EventKind::WorkspaceRestored, step, &format!("made equal to {}", &commit[..12]))?;
        held.stage(Change::Snapshot { commit: commit.to_owned(), step: step.cloned() })
    }

    /// Brings the changes home: a branch and a patch (R-W2). Answers whether there were any.
    pub fn bring_home(&self, host: &Host<'_>, held: &mut Held, tip: &str) -> Result<bool, EngineError> {
        let run = held.hold.run.clone();
        if host.repo.tree_of(tip)? == host.repo.tree_of(&self.start)? && tip == self.start {
            return Ok(false);
        }
        if held.inputs.spec.workspace == WorkspaceKind::Isolated {
            // A branch that stands at a snapshot of this run was set by it, even if we died before that was noted.
            let ours = match host.repo.branch(run.as_str())? {
                Some(found) => host.repo.pinned(run.as_str(), &snapshot_pin(&found))?,
                None => None,
            };
            let before = ours.map_or_else(|| host.repo.pinned(run.as_str(), BRANCH_PIN), |ours| Ok(Some(ours)))?;
            host.repo.set_branch(run.as_str(), tip, before.as_deref())?;
            host.repo.pin(run.as_str(), BRANCH_PIN, tip)?;
        }
        let patch = host.repo.patch(&self.start, tip)?;
        let kept = keep(host, held, "changes.patch", &patch)?;
        held.stage(Change::Artifact(ArtifactRecord {
            kind: ArtifactType::Patch,
            path: kept.path,
            sha256: kept.sha256,
            size: kept.size,
            step: None,
            attempt: held.hold.attempt,
        }))?;
        Ok(true)
    }
}

/// The pin of a snapshot.
fn snapshot_pin(commit: &str) -> String {
    format!("snapshot-{}", &commit[..12])
}

/// The index of the run's own for the user's checkout.
pub fn index_path(host: &Host<'_>, run: &RunId) -> Result<std::path::PathBuf, EngineError> {
    let mut path = host.home.work_dir(run)?.into_os_string();
    path.push(".index");
    Ok(path.into())
}

/// The copy that is there, or a new one at the newest snapshot.
fn isolated(host: &Host<'_>, held: &mut Held, base: &str) -> Result<Workspace, EngineError> {
    let dir = host.home.work_dir(&held.hold.run)?;
    if dir.exists() {
        if let Ok(workspace) = Workspace::open(host.repo, &dir) {
            return Ok(workspace);
        }
        set_aside(&dir)?;
    }
    let newest = held.store().find_run(&held.hold.run)?.and_then(|run| run.snapshot);
    let commit = newest.as_deref().unwrap_or(base);
    let workspace = Workspace::create(host.repo, &dir, commit)?;
    held.note(EventKind::WorkspacePrepared, None, &format!("isolated copy at {}", &commit[..12]))?;
    Ok(workspace)
}

/// A copy that cannot be opened is moved out of the way, never deleted: somebody's work may be in it (FR-H4, FR-H11).
fn set_aside(dir: &std::path::Path) -> Result<(), EngineError> {
    for n in 1..1000 {
        let mut aside = dir.as_os_str().to_owned();
        aside.push(format!(".broken-{n}"));
        let aside = std::path::PathBuf::from(aside);
        if !aside.exists() {
            let moved = fs_err::rename(dir, &aside);
            return moved.map_err(|e| EngineError::failed(Code::StoreIo, e.to_string()));
        }
    }
    Err(EngineError::failed(Code::WorkspaceLost, format!("{} cannot be moved aside", dir.display())))
}

/// The commit that changes are counted from; with included changes it is a commit of its own.
fn first_commit(host: &Host<'_>, held: &mut Held, workspace: &Workspace, base: &str) -> Result<String, EngineError> {
    let run = held.hold.run.clone();
    let kind = held.inputs.spec.workspace;
    let with_changes = || workspace.snapshot(base, &format!("{run}: uncommitted changes of the checkout"));
    let start = match (&held.inputs.dirty, kind) {
        (Dirty::Included { files }, _) => {
            let state = host.repo.state(super::facts::own_paths(kind))?;
            // They count in the fingerprint: a run that waited for its turn must not begin with others.
            if host.repo.dirty_files(&state)? != *files {
                let what = "the uncommitted changes of the checkout are others than when the run was accepted";
                return Err(EngineError::failed(Code::WorktreeDirty, what));
            }
            if kind == WorkspaceKind::Isolated {
                workspace.overlay_dirty(host.repo, &state)?;
            }
            with_changes()?.commit
        }
        // In place they stay where they are: they are not the run's, and a rebuilt workspace has them again.
        (Dirty::Ignored { .. }, WorkspaceKind::InPlace) => with_changes()?.commit,
        (Dirty::Clean | Dirty::Ignored { .. }, _) => base.to_owned(),
    };
    host.repo.pin(run.as_str(), START_PIN, &start)?;
    held.stage(Change::Snapshot { commit: start.clone(), step: None })?;
    Ok(start)
}
