//! From commit to disk: a working copy made equal to a commit, for a retry that begins from the last snapshot (R-W3), and
//! the user's uncommitted changes laid over a fresh copy. Whether what is there is saved is the caller's to know.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use git2::build::CheckoutBuilder;
use git2::{Delta, Repository, Tree};
use rustix::fs::FileType;

use super::copy::write_git_dir;
use super::snapshot::find_commit;
use super::{Workspace, index, sibling};
use crate::git::beneath::{Beneath, Content, is_absent};
use crate::git::context::expand;
use crate::git::error::{GitError, Result};
use crate::git::paths;
use crate::git::repo::Repo;
use crate::git::state::{WorktreeState, path_of};

impl Workspace {
    /// Makes the working files equal to a commit's: changed and missing ones are written, others removed. Ignored files
    /// stay (build caches). An isolated copy also gets a fresh `.git` at the commit; the agent's old one, if it has
    /// objects, is kept beside the copy until [`Self::remove`]. In place, HEAD and index stay as they are.
    pub fn restore(&self, commit: &str) -> Result<()> {
        let beneath = Beneath::open(&self.dir).map_err(|_| GitError::WorkspaceLost { path: self.dir.clone() })?;
        let repository = self.store()?;
        let tree = find_commit(&repository, commit)?.tree().map_err(GitError::git("reading the commit's tree"))?;
        // What is ignored, and how lines end, is said by files of the tree itself: these first, or an agent's own
        // `.gitignore` would keep its leftovers.
        if self.restore_files(&repository, &tree, &beneath, is_rule)? {
            let again = self.store()?;
            let tree = again.find_tree(tree.id()).map_err(GitError::git("reading the commit's tree"))?;
            self.restore_files(&again, &tree, &beneath, |_| true)?;
        } else {
            self.restore_files(&repository, &tree, &beneath, |_| true)?;
        }
        if self.is_isolated() { self.renew_git_dir(commit) } else { Ok(()) }
    }

    /// Gives an isolated copy a fresh `.git` at a commit, whatever was committed in it since; the files stay as they are. The old
    /// one is kept beside the copy.
    pub fn forget_commits(&self, commit: &str) -> Result<()> {
        if self.is_isolated() { self.renew_git_dir(commit) } else { Ok(()) }
    }

    /// Lays the user's uncommitted changes over an isolated copy of the same commit, links as links. `repo` is the
    /// checkout that `state` was read from.
    pub fn overlay_dirty(&self, repo: &Repo, state: &WorktreeState) -> Result<()> {
        let from = Beneath::open(repo.root()).map_err(GitError::io(repo.root()))?;
        let to = Beneath::open(&self.dir).map_err(GitError::io(&self.dir))?;
        for path in expand(&from, state)? {
            let at = || GitError::io(from.path().join(paths::path(&path)));
            let found = from.find(&path).map_err(at())?;
            make_way(&to, &path)?;
            let copied = match found.map(|found| (found.kind, found.executable)) {
                None => to.remove(&path),
                Some((FileType::Symlink, _)) => to.write(&path, Content::Link(&from.read(&path).map_err(at())?)),
                Some((FileType::RegularFile, executable)) => {
                    to.write(&path, Content::File { bytes: &from.read(&path).map_err(at())?, executable })
                }
                Some(_) => Ok(()),
            };
            copied.map_err(GitError::io(to.path().join(paths::path(&path))))?;
        }
        Ok(())
    }

    /// Restores the files that `is_meant`; true where any differed.
    fn restore_files(
        &self,
        repository: &Repository,
        tree: &Tree<'_>,
        beneath: &Beneath,
        is_meant: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        const DOING: &str = "restoring the working copy";
        let mut survey = index::survey(self, repository, tree)?;
        survey.delete()?;
        let (mut remove, mut write) = (Vec::new(), Vec::new());
        {
            let diff = repository.diff_tree_to_index(Some(tree), Some(&survey.index), None);
            for delta in diff.map_err(GitError::git(DOING))?.deltas() {
                let Some(path) = path_of(&delta).filter(|path| is_meant(path)) else { continue };
                if delta.status() == Delta::Added { remove.push(path.to_vec()) } else { write.push(path.to_vec()) }
            }
        }
        for path in &remove {
            beneath.remove(path).map_err(GitError::io(self.dir.join(paths::path(path))))?;
            survey.index.remove_path(paths::path(path)).map_err(GitError::git(DOING))?;
        }
        self.clear_nested(tree, beneath, &remove, &survey.nested)?;
        let mut checkout = CheckoutBuilder::new();
        checkout.force().recreate_missing(true).disable_pathspec_match(true);
        for path in &write {
            make_way(beneath, path)?;
            checkout.path(paths::path(path));
        }
        if !write.is_empty() {
            repository.checkout_tree(tree.as_object(), Some(&mut checkout)).map_err(GitError::git(DOING))?;
        }
        survey.index.write().map_err(GitError::git("writing the run's index"))?;
        Ok(!remove.is_empty() || !write.is_empty())
    }

    /// Takes the `.git` out of folders that the commit does not have, so that these can go as well.
    fn clear_nested(&self, tree: &Tree<'_>, beneath: &Beneath, removed: &[Vec<u8>], nested: &[Vec<u8>]) -> Result<()> {
        let mut folders: BTreeSet<&[u8]> = nested.iter().map(Vec::as_slice).collect();
        for path in removed {
            folders.extend(path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &path[..end]));
        }
        // The deepest first, so that a folder is empty when its turn comes.
        for folder in folders.into_iter().rev().filter(|folder| tree.get_path(paths::path(folder)).is_err()) {
            let at = || GitError::io(self.dir.join(paths::path(folder)));
            let git_dir = [folder, b"/.git"].concat();
            if beneath.find(&git_dir).map_err(at())?.is_some() {
                self.set_aside(&self.dir.join(paths::path(&git_dir)))?;
            }
            beneath.prune(folder).map_err(at())?;
        }
        Ok(())
    }

    fn renew_git_dir(&self, commit: &str) -> Result<()> {
        let git_dir = self.dir.join(".git");
        self.set_aside(&git_dir)?;
        write_git_dir(self, &git_dir, commit)
    }

    /// Moves a `.git` beside the copy if it has objects, which may be nowhere else, and removes it if not.
    fn set_aside(&self, git_dir: &Path) -> Result<()> {
        if has_objects(&git_dir.join("objects")) {
            let mut number = 1;
            let mut aside = sibling(&self.dir, ".git.1");
            while aside.exists() {
                number += 1;
                aside = sibling(&self.dir, &format!(".git.{number}"));
            }
            return fs::rename(git_dir, &aside).map_err(GitError::io(&aside));
        }
        let folder = git_dir.parent().unwrap_or(&self.dir);
        Beneath::open(folder).and_then(|beneath| beneath.remove(b".git")).map_err(GitError::io(git_dir))
    }
}

/// Files that say how others are read.
fn is_rule(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    matches!(name, b".gitignore" | b".gitattributes")
}

/// Removes what stands where a file, or a folder above it, has to be: a link or file on the way, a folder at its end.
fn make_way(beneath: &Beneath, path: &[u8]) -> Result<()> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    for end in ends.chain([path.len()]) {
        let part = &path[..end];
        let at = || GitError::io(beneath.path().join(paths::path(part)));
        let Some(found) = beneath.find(part).map_err(at())? else { return Ok(()) };
        let is_folder = found.kind == FileType::Directory;
        if is_folder == (end == path.len()) {
            beneath.remove(part).map_err(at())?;
            if end < path.len() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// True where something was committed or added: objects that may be nowhere else.
fn has_objects(objects: &Path) -> bool {
    let entries = match fs::read_dir(objects) {
        Ok(entries) => entries,
        Err(error) => return !is_absent(&error),
    };
    entries.flatten().any(|entry| {
        let is_info = entry.file_name() == "info";
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        !is_info && (!is_folder || fs::read_dir(entry.path()).is_ok_and(|mut below| below.next().is_some()))
    })
}
