//! From disk to commit: the working copy as it stands, kept in the user's repository. Nothing in the copy is changed.

use git2::{Commit, Repository, Signature};

use super::commits::{self, AgentHead};
use super::{Kind, Workspace};
use super::{durable, index};
use crate::git::beneath::Beneath;
use crate::git::error::{GitError, Result};
use crate::git::paths;
use crate::git::repo::oid;
use crate::git::state::path_of;

/// A working copy as a commit. It is not pinned yet: `git gc` may take it until somebody does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit: the agent's own where that has exactly these files, the base where nothing changed, else a new one.
    pub commit: String,
    /// Its tree.
    pub tree: String,
    /// How many commits the agent made itself; they are the ancestors of `commit`.
    pub agent_commits: usize,
    /// Where so many files are gone that they were kept and not recorded as deleted: how many, of how many tracked ones.
    pub gone: Option<(usize, usize)>,
    /// True when the files differ from the base's.
    pub changed: bool,
    /// What could not be kept or believed, in words.
    pub warnings: Vec<String>,
}

impl Workspace {
    /// Keeps the working copy as a commit on top of `base` and of what the agent committed on it. A tree that is mostly
    /// gone is kept with its old files and a warning: a crash in the middle of a removal must never become a deletion of
    /// everything (FR-H28).
    pub fn snapshot(&self, base: &str, message: &str) -> Result<Snapshot> {
        let repository = self.store()?;
        let base = find_commit(&repository, base)?;
        let AgentHead { commit: head, count, copied: mut objects, mut warnings } =
            commits::take_over(self, &repository, base.id())?;
        let parent = match head {
            Some(head) => repository.find_commit(head).map_err(GitError::git("reading the agent's commit"))?,
            None => base.clone(),
        };
        let base_tree = base.tree().map_err(GitError::git("reading the base's tree"))?;
        let parent_tree = parent.tree().map_err(GitError::git("reading the agent's tree"))?;
        let mut survey = index::survey(self, &repository, &base_tree)?;
        warnings.append(&mut survey.warnings);
        // What the agent committed as deleted is meant.
        let mass = survey.mass_deletion(|path| parent_tree.get_path(paths::path(path)).is_ok());
        match mass {
            Some((gone, tracked)) => warnings.push(format!(
                "{gone} of {tracked} tracked files are gone from the working copy; they were kept, not recorded as deleted"
            )),
            None => survey.delete()?,
        }
        let tree = survey.index.write_tree_to(&repository).map_err(GitError::git("writing the snapshot"))?;
        if self.keeps_index {
            survey.index.write().map_err(GitError::git("writing the run's index"))?;
        }
        let commit = if tree == parent.tree_id() {
            parent.id()
        } else {
            let tree = repository.find_tree(tree).map_err(GitError::git("reading the snapshot"))?;
            let who =
                Signature::now("agentrun", "agentrun@localhost").map_err(GitError::git("signing the snapshot"))?;
            let written = repository.commit(None, &who, &who, message, &tree, &[&parent]);
            written.map_err(GitError::git("writing the snapshot"))?
        };
        objects.push(commit);
        objects.extend(&survey.came);
        durable::new_trees(&repository, tree, Some(parent.tree_id()), &mut objects)?;
        durable::settle(&self.repo, &objects)?;
        Ok(Snapshot {
            commit: commit.to_string(),
            tree: tree.to_string(),
            agent_commits: count,
            gone: mass,
            changed: tree != base.tree_id(),
            warnings,
        })
    }

    /// When a file that differs from `base` was last changed, milliseconds since 1970; nothing where none differs. For a
    /// deleted file the folder that it was in tells.
    pub fn newest_change_ms(&self, base: &str) -> Result<Option<i64>> {
        Ok(self.change_times(base)?.into_iter().filter_map(|(_, time)| time).max())
    }

    /// The files that differ from `base` and were changed after a moment, by path.
    pub fn changed_since(&self, base: &str, ms: i64) -> Result<Vec<String>> {
        let times = self.change_times(base)?.into_iter();
        Ok(times.filter(|(_, time)| time.is_some_and(|time| time > ms)).map(|(path, _)| path).collect())
    }

    /// Where HEAD of the working copy is, if that commit was made after a moment and is not in the history of `known`. Its
    /// objects are in the user's repository then.
    pub fn commit_since(&self, base: &str, known: &str, ms: i64) -> Result<Option<String>> {
        let repository = self.store()?;
        let Some(head) = commits::take_over(self, &repository, oid(base)?)?.commit else { return Ok(None) };
        let is_known = head == oid(known)? || commits::commits_since(&repository, head, oid(known)?).is_some();
        let commit = repository.find_commit(head).map_err(GitError::git("reading a commit"))?;
        let made = commit.time().seconds().saturating_mul(1000);
        Ok((!is_known && made > ms).then(|| head.to_string()))
    }

    fn change_times(&self, base: &str) -> Result<Vec<(String, Option<i64>)>> {
        let repository = self.store()?;
        let tree = find_commit(&repository, base)?.tree().map_err(GitError::git("reading the base's tree"))?;
        let mut survey = index::survey(self, &repository, &tree)?;
        survey.delete()?;
        let beneath = Beneath::open(&self.dir).map_err(GitError::io(&self.dir))?;
        let diff = repository.diff_tree_to_index(Some(&tree), Some(&survey.index), None);
        let mut times = Vec::new();
        for delta in diff.map_err(GitError::git("comparing with the base"))?.deltas() {
            let path = path_of(&delta).unwrap_or_default();
            times.push((paths::text(path), changed_ms(&beneath, path).map_err(GitError::io(&self.dir))?));
        }
        Ok(times)
    }

    /// True when so many files of `base` are gone that the copy looks half removed. Files that were only moved are there.
    pub fn is_half_deleted(&self, base: &str) -> Result<bool> {
        let repository = self.store()?;
        let tree = find_commit(&repository, base)?.tree().map_err(GitError::git("reading the base's tree"))?;
        Ok(index::survey(self, &repository, &tree)?.mass_deletion(|_| true).is_some())
    }

    /// True for a copy of the run's own.
    pub(super) fn is_isolated(&self) -> bool {
        self.kind == Kind::Isolated
    }
}

/// When a path was last changed; of one that is gone, the nearest folder above it.
fn changed_ms(beneath: &Beneath, mut path: &[u8]) -> std::io::Result<Option<i64>> {
    loop {
        if let Some(found) = beneath.find(path)? {
            return Ok(Some(found.modified_ms));
        }
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(end) => path = &path[..end],
            None => return beneath.modified_ms().map(Some),
        }
    }
}

pub(super) fn find_commit<'r>(repository: &'r Repository, hex: &str) -> Result<Commit<'r>> {
    repository.find_commit(oid(hex)?).map_err(|_| GitError::RevNotFound { rev: hex.to_owned() })
}
