//! Bringing a run's result into the user's checkout: three-way, all or nothing. It writes no commit and moves no branch.

use git2::build::CheckoutBuilder;
use git2::{CheckoutNotificationType, Index, MergeOptions};

use super::beneath::Beneath;
use super::error::{GitError, Result};
use super::paths;
use super::repo::Repo;
use super::state::path_of;
use super::ways::Ways;

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
        let (changed, mut blocked): (Vec<Vec<u8>>, _) = {
            let diff = repository.diff_tree_to_tree(Some(&head), Some(&tree), None).map_err(GitError::git(DOING))?;
            let changed = diff.deltas().filter_map(|delta| path_of(&delta).map(<[u8]>::to_vec)).collect();
            (changed, Ways::of(&diff).blocked(&Beneath::open(self.root()).map_err(GitError::io(self.root()))?)?)
        };
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let in_the_way =
            |paths| GitError::PatchFailed { reason: "files in the checkout stand in the way".into(), paths };
        if !blocked.is_empty() {
            return Err(in_the_way(blocked));
        }
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
                Err(in_the_way(blocked))
            }
            Err(error) => Err(GitError::from_git(DOING, &error)),
        }
    }
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
