//! Bringing changes into files that are already there: a run's result into the user's checkout (three-way, all or
//! nothing), and a patch into a folder. It writes no commit and moves no branch.

use std::path::Path;

use git2::build::CheckoutBuilder;
use git2::{ApplyLocation, CheckoutNotificationType, Diff, Index, MergeOptions, Repository};

use super::error::{GitError, Result};
use super::paths;
use super::repo::Repo;
use super::settings::Settings;
use super::state::path_of;
use super::workspace::skeleton;

impl Repo {
    /// Brings the changes between two commits into the checkout and its index, three-way onto HEAD, and answers the paths
    /// that it changed. The caller has checked that the checkout is clean. Where something collides the error names the
    /// paths and nothing was changed.
    pub fn apply_to_checkout(&self, base: &str, tip: &str) -> Result<Vec<String>> {
        const DOING: &str = "applying the changes";
        let repository = self.open_at(self.root())?;
        let lock = self.git_dir().join("index.lock");
        if lock.exists() {
            return Err(GitError::Locked { path: lock });
        }
        let head = self.tree(&self.head()?.commit)?;
        let mut merged = repository
            .merge_trees(&self.tree(base)?, &head, &self.tree(tip)?, Some(MergeOptions::new().find_renames(true)))
            .map_err(GitError::git(DOING))?;
        let conflicts = conflicts(&merged)?;
        if !conflicts.is_empty() {
            return Err(GitError::PatchFailed { reason: "both sides changed the same lines".into(), paths: conflicts });
        }
        let tree =
            merged.write_tree_to(&repository).and_then(|id| repository.find_tree(id)).map_err(GitError::git(DOING))?;
        let changed: Vec<Vec<u8>> = {
            let diff = repository.diff_tree_to_tree(Some(&head), Some(&tree), None).map_err(GitError::git(DOING))?;
            diff.deltas().filter_map(|delta| path_of(&delta).map(<[u8]>::to_vec)).collect()
        };
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let mut blocked = Vec::new();
        let mut checkout = CheckoutBuilder::new();
        // Only these paths: a sparse checkout stays as it is elsewhere.
        checkout.safe().recreate_missing(true).disable_pathspec_match(true);
        checkout.notify_on(CheckoutNotificationType::CONFLICT);
        checkout.notify(|_, path, _, _, _| {
            blocked.extend(path.map(|path| paths::text(paths::bytes(path))));
            true
        });
        for path in &changed {
            checkout.path(paths::path(path));
        }
        let done = repository.checkout_tree(tree.as_object(), Some(&mut checkout));
        drop(checkout);
        match done {
            Ok(()) => Ok(changed.iter().map(|path| paths::text(path)).collect()),
            Err(error) if error.code() == git2::ErrorCode::Conflict => {
                blocked.sort();
                Err(GitError::PatchFailed { reason: "files in the checkout stand in the way".into(), paths: blocked })
            }
            Err(error) => Err(GitError::from_git(DOING, &error)),
        }
    }
}

/// Applies a patch to the files of a folder, all or nothing, and answers the paths in it. The folder's own git, if it has
/// any, is neither read nor changed; nothing outside the folder is touched.
pub fn apply_patch_to_dir(dir: &Path, patch: &[u8]) -> Result<Vec<String>> {
    let scratch = tempfile::tempdir().map_err(GitError::io(std::env::temp_dir()))?;
    let git_dir = scratch.path().join("git");
    skeleton::make(&git_dir, &skeleton::Head::Branch("patch"), "[core]\n\tbare = false\n")?;
    let repository = Repository::open_bare(&git_dir).map_err(GitError::git("preparing to apply a patch"))?;
    Settings::none().replace_in(&repository)?;
    repository.set_workdir(dir, false).map_err(GitError::git("preparing to apply a patch"))?;
    let failed = |error: &git2::Error| GitError::PatchFailed { reason: error.message().to_owned(), paths: Vec::new() };
    let diff = Diff::from_buffer(patch).map_err(|error| failed(&error))?;
    let mut touched: Vec<_> = diff.deltas().filter_map(|delta| path_of(&delta).map(paths::text)).collect();
    repository.apply(&diff, ApplyLocation::WorkDir, None).map_err(|error| failed(&error))?;
    touched.sort();
    touched.dedup();
    Ok(touched)
}

fn conflicts(merged: &Index) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for conflict in merged.conflicts().map_err(GitError::git("applying the changes"))? {
        let conflict = conflict.map_err(GitError::git("applying the changes"))?;
        let side = conflict.our.or(conflict.their).or(conflict.ancestor);
        paths.extend(side.map(|entry| paths::text(&entry.path)));
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}
