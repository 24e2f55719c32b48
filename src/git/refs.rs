//! The refs that are agentrun's own in the user's repository: pins that keep snapshots alive, and the branch that brings
//! a run's changes home. No other ref is ever written.

use std::thread;
use std::time::Duration;

use git2::{ErrorCode, Oid};

use super::error::{GitError, Result};
use super::paths;
use super::repo::{Repo, oid};
use crate::failpoints::{self, When};

impl Repo {
    /// The runs that have a pin or a branch, sorted: their numbers are never given again (R-M2).
    pub fn run_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for prefix in ["refs/agentrun/", "refs/heads/agentrun/"] {
            let refs = self.inner()?.references_glob(&format!("{prefix}*")).map_err(GitError::git("listing refs"))?;
            for reference in refs {
                let reference = reference.map_err(GitError::git("listing refs"))?;
                let rest = reference.name_bytes().strip_prefix(prefix.as_bytes()).unwrap_or_default();
                names.extend(rest.split(|byte| *byte == b'/').next().map(paths::text));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Keeps a commit alive as `refs/agentrun/<run>/<name>`, also through `git gc --prune=now`. A pin of that name moves.
    pub fn pin(&self, run: &str, name: &str, commit: &str) -> Result<()> {
        let id = self.commit(commit)?.id();
        let name = pin_name(run, name);
        let git = self.inner()?;
        patiently(|| git.reference(&name, id, true, "agentrun: pin").map(drop))
            .map_err(GitError::git(&format!("writing `{name}`")))
    }

    /// The commit of a pin.
    pub fn pinned(&self, run: &str, name: &str) -> Result<Option<String>> {
        Ok(self.target(&pin_name(run, name))?.map(|id| id.to_string()))
    }

    /// Removes every pin of a run. Its branch stays.
    pub fn unpin(&self, run: &str) -> Result<()> {
        let doing = format!("removing `refs/agentrun/{run}`");
        let refs = self.inner()?.references_glob(&format!("refs/agentrun/{run}/*")).map_err(GitError::git(&doing))?;
        for reference in refs {
            let mut reference = reference.map_err(GitError::git(&doing))?;
            patiently(|| match reference.delete() {
                Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
                deleted => deleted,
            })
            .map_err(GitError::git(&doing))?;
        }
        Ok(())
    }

    /// The commit of the branch `agentrun/<run>`.
    pub fn branch(&self, run: &str) -> Result<Option<String>> {
        Ok(self.target(&branch_name(run))?.map(|id| id.to_string()))
    }

    /// Sets the branch `agentrun/<run>`. It must be at `expected` (nothing: it must not exist) or already at `commit`;
    /// a branch that somebody else moved is never overwritten.
    pub fn set_branch(&self, run: &str, commit: &str, expected: Option<&str>) -> Result<()> {
        let id = self.commit(commit)?.id();
        let name = branch_name(run);
        let message = format!("agentrun: {run}");
        let git = self.inner()?;
        let written = match expected {
            Some(expected) => {
                let expected = oid(expected)?;
                patiently(|| git.reference_matching(&name, id, true, expected, &message).map(drop))
            }
            None => patiently(|| git.reference(&name, id, false, &message).map(drop)),
        };
        let Err(error) = written else { return Ok(()) };
        match self.target(&name)? {
            Some(found) if found == id => Ok(()),
            Some(found) if matches!(error.code(), ErrorCode::Exists | ErrorCode::Modified) => {
                Err(GitError::RefExists { name, found: found.to_string(), expected: expected.map(ToOwned::to_owned) })
            }
            _ => Err(GitError::from_git(&format!("writing `{name}`"), &error)),
        }
    }

    fn target(&self, name: &str) -> Result<Option<Oid>> {
        match self.inner()?.refname_to_id(name) {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(GitError::from_git(&format!("reading `{name}`"), &error)),
        }
    }
}

fn pin_name(run: &str, name: &str) -> String {
    format!("refs/agentrun/{run}/{name}")
}

fn branch_name(run: &str) -> String {
    format!("refs/heads/agentrun/{run}")
}

/// Repeats a write of a ref while another process holds its lock: `git gc` and `git pack-refs` do for moments.
fn patiently(write: impl FnMut() -> std::result::Result<(), git2::Error>) -> std::result::Result<(), git2::Error> {
    // If we die before or after: the record does not know of the ref yet, and whoever goes on sets it to the same commit.
    let _ = failpoints::reached(When::Before, "ref");
    let written = while_locked(write);
    let _ = failpoints::reached(When::After, "ref");
    written
}

fn while_locked(
    mut write: impl FnMut() -> std::result::Result<(), git2::Error>,
) -> std::result::Result<(), git2::Error> {
    const TRIES: u32 = 8;
    for attempt in 0..TRIES {
        match write() {
            Err(error) if error.code() == ErrorCode::Locked => thread::sleep(Duration::from_millis(5 << attempt)),
            done => return done,
        }
    }
    write()
}
