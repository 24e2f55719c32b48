//! What lies in git and in the run's working copy, against the record: the base commit, the files that count, the contents of
//! the copy, the dependency lock files.

use std::collections::{BTreeMap, BTreeSet};

use super::difference;
use crate::domain::failure::Code;
use crate::domain::hash::context::{ContextFile, files_hash};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::plan::resume::{Difference, DifferenceCode as D, ResumeVerdict as V};
use crate::domain::record::{Dirty, RunView};
use crate::domain::run::RunStatus;
use crate::domain::task::WorkspaceKind;
use crate::engine::error::EngineError;
use crate::engine::facts;
use crate::engine::host::Host;
use crate::engine::workspace::{START_PIN, index_path};
use crate::git::Workspace;

/// Answers whether the base commit is there at all.
pub(super) fn base_commit(host: &Host<'_>, view: &RunView, found: &mut Vec<Difference>) -> Result<bool, EngineError> {
    let base = &view.run.components.base_commit;
    if !host.repo.commit_exists(base) {
        let note = "the commit that the run began from is gone from the repository";
        found.push(difference(D::BaseCommitChanged, (Some(base.clone()), None), V::ResumeBlocked, note));
        return Ok(false);
    }
    if view.inputs.spec.workspace == WorkspaceKind::InPlace {
        let head = host.repo.head()?.commit;
        let known = [Some(base), view.run.snapshot.as_ref()];
        if !known.contains(&Some(&head)) {
            let note = "the checkout that the run works in stands on another commit";
            found.push(difference(D::BaseCommitChanged, (Some(base.clone()), Some(head)), V::ReviewRequired, note));
        }
    }
    Ok(true)
}

/// The relevant files and rules at the pinned base commit, never where the developer's checkout has moved to. A commit does not
/// change: what differs here is the record, or what the repository gives out under the commit's name. Included uncommitted
/// files were never in the commit.
pub(super) fn context(host: &Host<'_>, view: &RunView, found: &mut Vec<Difference>) -> Result<(), EngineError> {
    let inputs = &view.inputs;
    let [files, rules] = facts::context_at(host.repo, &view.run.components.base_commit, &inputs.spec)?;
    let uncommitted: BTreeSet<&str> = match &inputs.dirty {
        Dirty::Included { files } => files.iter().map(|f| f.path.as_str()).collect(),
        Dirty::Clean | Dirty::Ignored { .. } => BTreeSet::new(),
    };
    let hash = |files: &[ContextFile]| {
        let committed = files.iter().filter(|f| !uncommitted.contains(f.path.as_str()));
        files_hash(&committed.cloned().collect::<Vec<_>>())
    };
    for (what, old, new) in [("files", &inputs.files, &files), ("rules", &inputs.rules, &rules)] {
        let (old, new) = (hash(old), hash(new));
        if old != new {
            let values = (Some(format!("{what} {old}")), Some(format!("{what} {new}")));
            let note = format!("the {what} that count are not those of the base commit");
            found.push(difference(D::ContextChanged, values, V::ReviewRequired, &note));
        }
    }
    Ok(())
}

/// The working copy against the snapshot at the end of the last attempt. After a kill there is no such snapshot of what the
/// cut step did; then the step's own recovery looks. Answers the copy as a commit, where it could be looked at.
pub(super) fn working_copy(
    host: &Host<'_>,
    view: &RunView,
    found: &mut Vec<Difference>,
) -> Result<Option<String>, EngineError> {
    // By a kill, or by a machine that failed; a signal leaves a snapshot.
    let failed_under_it = view.run.status == RunStatus::Interrupted && view.run.code != Some(Code::Interrupted);
    let was_cut = view.run.status == RunStatus::Running || failed_under_it;
    let Some(snapshot) = view.run.snapshot.as_ref().filter(|_| !was_cut) else { return Ok(None) };
    let short = |commit: &str| Some(commit[..12].to_owned());
    if !host.repo.commit_exists(snapshot) {
        let note = "the run's last snapshot is gone from the repository";
        found.push(difference(D::WorktreeChanged, (short(snapshot), None), V::ResumeBlocked, note));
        return Ok(None);
    }
    let opened = match view.inputs.spec.workspace {
        WorkspaceKind::InPlace => {
            Workspace::in_place(host.repo, &index_path(host, &view.run.id)?).map(Workspace::looked_at)
        }
        WorkspaceKind::Isolated => Workspace::look(host.repo, &host.home.work_dir(&view.run.id)?),
    };
    let workspace = match opened {
        Ok(workspace) => workspace,
        Err(error) => {
            let (verdict, what) = match view.inputs.spec.workspace {
                WorkspaceKind::Isolated => (V::Valid, "it is made again from the snapshot"),
                WorkspaceKind::InPlace => (V::ReviewRequired, "nobody knows what changed in it"),
            };
            let note = format!("the working copy cannot be used ({error}): {what}");
            found.push(difference(D::WorktreeChanged, (short(snapshot), None), verdict, &note));
            return Ok(None);
        }
    };
    let start = host.repo.pinned(view.run.id.as_str(), START_PIN)?;
    let start = start.as_ref().unwrap_or(&view.run.components.base_commit);
    let present = workspace.snapshot(start, "validation")?.commit;
    if host.repo.tree_of(&present)? != host.repo.tree_of(snapshot)? {
        let changed = host.repo.changes(snapshot, &present)?;
        let paths: Vec<_> = changed.iter().map(|c| c.path.clone()).collect();
        let note = format!("the run's working copy was changed since: {}", paths.join(", "));
        found.push(difference(D::WorktreeChanged, (short(snapshot), short(&present)), V::ReviewRequired, &note));
    }
    Ok(Some(present))
}

/// Dependency lock files in three places: as recorded, in the run's last snapshot, and in its copy now. From the first to the
/// second the run itself changed them, which is its work; from the second to the third somebody else did.
pub(super) fn lockfiles(
    host: &Host<'_>,
    view: &RunView,
    present: Option<String>,
    found: &mut Vec<Difference>,
) -> Result<(), EngineError> {
    let at = |commit: &str| facts::lockfiles(host.repo, commit);
    let recorded = &view.inputs.lockfiles;
    let base = at(&view.run.components.base_commit)?;
    let note = "a dependency lock file of the base commit is not the recorded one";
    compare((recorded, &base), (V::ReviewRequired, note), found);
    let Some(snapshot) = view.run.snapshot.as_ref().filter(|commit| host.repo.commit_exists(commit)) else {
        return Ok(());
    };
    let kept = at(snapshot)?;
    compare((&base, &kept), (V::Valid, "the run itself has changed a dependency lock file"), found);
    if let Some(present) = present {
        let note = "a dependency lock file in the working copy was changed since";
        compare((&kept, &at(&present)?), (V::ReviewRequired, note), found);
    }
    Ok(())
}

type Hashes = BTreeMap<String, Sha256Hash>;

fn compare((old, new): (&Hashes, &Hashes), (verdict, note): (V, &str), found: &mut Vec<Difference>) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
        let shown = |hash: Option<&Sha256Hash>| hash.map(|hash| format!("{name} {hash}"));
        found.push(difference(D::LockfileChanged, (shown(old.get(name)), shown(new.get(name))), verdict, note));
    }
}
