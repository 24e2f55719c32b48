//! The first commit of a repository that has none: a run needs a commit to begin from.

use git2::Signature;

use super::error::{GitError, Result};
use super::repo::Repo;

impl Repo {
    /// Commits exactly `paths` of the checkout as the first commit of the checked-out branch. Refused where there is one.
    pub fn first_commit(&self, paths: &[&str], message: &str) -> Result<String> {
        let git = self.inner()?;
        let mut index = git.index().map_err(GitError::git("the index cannot be opened"))?;
        for path in paths {
            index.add_path(std::path::Path::new(path)).map_err(GitError::git("a file cannot be added"))?;
        }
        index.write().map_err(GitError::git("the index cannot be written"))?;
        let tree = index.write_tree().map_err(GitError::git("the tree cannot be written"))?;
        let tree = git.find_tree(tree).map_err(GitError::git("the tree cannot be read"))?;
        let who = Signature::now("agentrun", "agentrun@localhost").map_err(GitError::git("no time for a commit"))?;
        let commit = git.commit(Some("HEAD"), &who, &who, message, &tree, &[]);
        commit.map(|id| id.to_string()).map_err(GitError::git("the commit cannot be written"))
    }
}
