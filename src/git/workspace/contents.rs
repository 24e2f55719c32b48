//! The commit that stands for a run's contents wherever they are named to others: the same contents on the same base are the
//! same commit, whichever run made them and whenever. Snapshots are not: each says its run and its time.

use git2::{Signature, Time};

use super::{Workspace, durable};
use crate::git::error::{GitError, Result};

impl Workspace {
    /// The commit of a snapshot's contents on top of `base`; the base itself where nothing differs.
    pub fn contents(&self, base: &str, snapshot: &str) -> Result<String> {
        const DOING: &str = "naming the contents";
        let repository = self.store()?;
        let find =
            |id: &str| repository.revparse_single(id).and_then(|o| o.peel_to_commit()).map_err(GitError::git(DOING));
        let (base, snapshot) = (find(base)?, find(snapshot)?);
        if base.tree_id() == snapshot.tree_id() {
            return Ok(base.id().to_string());
        }
        let tree = snapshot.tree().map_err(GitError::git(DOING))?;
        let at = Time::new(base.time().seconds(), 0);
        let who = Signature::new("agentrun", "agentrun@localhost", &at).map_err(GitError::git(DOING))?;
        let commit = repository.commit(None, &who, &who, "agentrun: the contents of a run", &tree, &[&base]);
        let commit = commit.map_err(GitError::git(DOING))?;
        durable::settle(&self.repo, &[commit])?;
        Ok(commit.to_string())
    }
}
