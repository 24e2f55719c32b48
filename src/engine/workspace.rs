//! The working copy of a run: made ready, kept as snapshots, put back, and brought home (R-W2, R-W3). Nothing that an agent
//! wrote is thrown away before it is kept as a patch.

use super::error::EngineError;
use super::guard::Guard;
use super::held::Held;
use super::host::Host;
use super::keep::keep;
use crate::artifacts::home::make_private;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::{RunId, StepKey};
use crate::domain::record::{ArtifactRecord, ArtifactType, Dirty, RunView};
use crate::domain::task::WorkspaceKind;
use crate::failpoints::{self, When};
use crate::git::{BroughtHome, GitError, KEPT, LooseEnd, Snapshot, Workspace};
use crate::store::EventFilter;

/// The pin that keeps the base commit from being collected.
pub const BASE_PIN: &str = "base";
/// The pin of the commit that the run's own changes are counted from: the base, or the base with the included changes.
pub const START_PIN: &str = "start";

/// The pin that remembers what the run's branch was last set to: a branch that somebody moved is not overwritten.
pub const BRANCH_PIN: &str = "branch";

/// The pin of the state in which an agent step began its newest execution.
pub fn before_pin(step: &StepKey) -> String {
    format!("before-{step}")
}

/// Why a step whose copy has lost most of its files is no success: what was checked is not what would be brought home.
pub fn mostly_gone((gone, tracked): (usize, usize)) -> Failure {
    let message = format!(
        "{gone} of {tracked} tracked files are gone from the working copy, and no commit in it says that this is meant; \
         they are still on the run's branch"
    );
    Failure::new(Code::ReviewRequired, message)
}

/// The copy and what its changes are counted from.
pub struct Copy {
    /// The copy itself.
    pub workspace: Workspace,
    /// The run's changes are the difference from this commit.
    pub start: String,
    /// What the user's git folder and the copy's own must still be.
    pub guard: Guard,
}

impl Copy {
    /// Makes the copy ready: the one that is there, or a new one at the newest snapshot.
    pub fn prepare(host: &Host<'_>, held: &mut Held, view: &RunView) -> Result<Self, EngineError> {
        let base = &view.run.components.base_commit;
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
        let guard = Guard::begin(host, held, view, &workspace)?;
        Ok(Self { workspace, start, guard })
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
            let path = save(host, held, (commit, &left.commit), step)?;
            held.stage(Change::Note {
                kind: EventKind::WorkSaved,
                step: step.cloned(),
                reason: format!("kept as {path} before the workspace was rebuilt"),
                body: serde_json::json!({ REBUILDS_TO: commit }),
            })?;
            // If we die after this, whoever takes over finishes the rebuilding before anything else.
            held.commit()?;
            let _ = failpoints::reached(When::Before, "restore");
            self.workspace.restore(commit)?;
            let _ = failpoints::reached(When::After, "restore");
        }
        held.note(EventKind::WorkspaceRestored, step, &format!("made equal to {}", &commit[..12]))?;
        held.stage(Change::Snapshot { commit: commit.to_owned(), step: step.cloned() })
    }

    /// Finishes a rebuilding in whose middle a holder died: half of one state and half of another is no state to go on in.
    pub fn finish_restore(&self, host: &Host<'_>, held: &mut Held) -> Result<(), EngineError> {
        let newest = |kind| {
            let run = Some(held.hold.run.clone());
            held.store().events(&EventFilter { run, kind: Some(kind), limit: Some(1), ..EventFilter::default() })
        };
        let (begun, done) = (newest(EventKind::WorkSaved)?, newest(EventKind::WorkspaceRestored)?);
        let Some(begun) = begun.last().filter(|begun| done.last().is_none_or(|done| done.n < begun.n)) else {
            return Ok(());
        };
        let body: serde_json::Value = serde_json::from_str(&begun.body).unwrap_or_default();
        let Some(commit) = body[REBUILDS_TO].as_str().map(ToOwned::to_owned) else { return Ok(()) };
        held.note(EventKind::WarningRaised, None, "the rebuilding of the workspace was cut off, and is finished now")?;
        self.save_and_restore(host, held, &commit, None)?;
        held.commit()
    }

    /// Pins what git alone holds in the copy: stashes, other branches, staged contents. Answers what could not be.
    pub fn keep_loose_ends(&self, host: &Host<'_>, held: &mut Held) -> Result<Vec<String>, EngineError> {
        let run = held.hold.run.clone();
        let tip = held.store().find_run(&run)?.and_then(|run| run.snapshot);
        let tip = tip.as_deref().unwrap_or(&self.start);
        let BroughtHome { ends, left } = self.workspace.bring_loose_ends(&self.start, tip)?;
        for LooseEnd { what, commit } in ends {
            let pin = format!("{KEPT}{}", &commit[..12]);
            host.repo.pin(run.as_str(), &pin, &commit)?;
            let remark = format!("{what} of the working copy is kept as refs/agentrun/{run}/{pin}");
            held.note(EventKind::WorkSaved, None, &remark)?;
            held.note(EventKind::WarningRaised, None, &remark)?;
        }
        held.commit()?;
        Ok(left)
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

/// In the event of work that was saved: the commit that the copy is made equal to next.
const REBUILDS_TO: &str = "rebuilds_to";

/// Keeps what differs between two commits as a patch, and answers its path.
fn save(
    host: &Host<'_>,
    held: &mut Held,
    (from, left): (&str, &str),
    step: Option<&StepKey>,
) -> Result<String, EngineError> {
    let patch = host.repo.patch(from, left)?;
    let name = format!("saved-attempt-{}-{}.patch", held.hold.attempt, &left[..12]);
    let kept = keep(host, held, &name, &patch)?;
    held.stage(Change::Artifact(ArtifactRecord {
        kind: ArtifactType::SavedWork,
        path: kept.path.clone(),
        sha256: kept.sha256,
        size: kept.size,
        step: step.cloned(),
        attempt: held.hold.attempt,
    }))?;
    Ok(kept.path)
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
    let newest = held.store().find_run(&held.hold.run)?.and_then(|run| run.snapshot);
    let commit = newest.unwrap_or_else(|| base.to_owned());
    if dir.exists() {
        match Workspace::open(host.repo, &dir) {
            Ok(workspace) => return Ok(workspace),
            Err(why) => salvage(host, held, (&dir, &commit), &why)?,
        }
    }
    let commit = commit.as_str();
    let workspace = Workspace::create(host.repo, &dir, commit)?;
    held.note(EventKind::WorkspacePrepared, None, &format!("isolated copy at {}", &commit[..12]))?;
    Ok(workspace)
}

/// A copy that cannot be used, most of the time because most of its files are gone (FR-H28). What was added or changed in it is
/// kept as a patch, and nothing as deleted: nobody knows who deleted, and in the middle of what. Then it makes room.
fn salvage(
    host: &Host<'_>,
    held: &mut Held,
    (dir, newest): (&std::path::Path, &str),
    why: &GitError,
) -> Result<(), EngineError> {
    let run = held.hold.run.clone();
    let left = Workspace::salvage(host.repo, dir).and_then(|left| left.snapshot(newest, &format!("{run}: salvaged")));
    let saved = match left {
        Err(_) => "nothing in it could be read".to_owned(),
        Ok(left) => {
            for warning in &left.warnings {
                held.note(EventKind::WarningRaised, None, warning)?;
            }
            if host.repo.tree_of(&left.commit)? == host.repo.tree_of(newest)? {
                "nothing in it was new".to_owned()
            } else {
                host.repo.pin(run.as_str(), &snapshot_pin(&left.commit), &left.commit)?;
                let saved =
                    format!("what was new in it is kept as {}", save(host, held, (newest, &left.commit), None)?);
                held.note(EventKind::WorkSaved, None, &saved)?;
                saved
            }
        }
    };
    let aside = set_aside(dir)?;
    let text = format!("the working copy could not be used ({why}): {saved}; it lies at {}", aside.display());
    held.note(EventKind::WarningRaised, None, &text)?;
    held.commit()
}

/// A copy that cannot be opened is moved out of the way, never deleted: somebody's work may be in it (FR-H4, FR-H11).
fn set_aside(dir: &std::path::Path) -> Result<std::path::PathBuf, EngineError> {
    for n in 1..1000 {
        let mut aside = dir.as_os_str().to_owned();
        aside.push(format!(".broken-{n}"));
        let aside = std::path::PathBuf::from(aside);
        if !aside.exists() {
            let moved = fs_err::rename(dir, &aside);
            return moved.map(|()| aside).map_err(|e| EngineError::failed(Code::StoreIo, e.to_string()));
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
