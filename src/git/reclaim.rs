//! What a killed holder of a run left locked (F84). A lock file belongs to nobody once its process is dead, and git itself
//! never removes one; whoever holds the run's lease may, for these names are written by a run's holder alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{GitError, Result};
use super::repo::Repo;

impl Repo {
    /// Removes the stale locks of a run's own refs and of its copy's private index. Only for the one who holds the run, and
    /// only after its leftovers have ended. Answers how many there were.
    pub fn reclaim_locks(&self, run: &str, copy: &Path) -> Result<usize> {
        let mut locks = locks_in(&self.common_dir().join("refs/agentrun").join(run))?;
        locks.push(self.common_dir().join("refs/heads/agentrun").join(format!("{run}.lock")));
        let mut index = copy.as_os_str().to_owned();
        index.push(".index.lock");
        locks.push(index.into());
        let mut removed = 0;
        for lock in locks {
            match fs::remove_file(&lock) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(GitError::io(&lock)(error)),
            }
        }
        Ok(removed)
    }
}

fn locks_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(GitError::io(folder))?,
    };
    let paths = entries.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>();
    let is_lock = |path: &PathBuf| path.extension().is_some_and(|e| e == "lock");
    Ok(paths.map_err(GitError::io(folder))?.into_iter().filter(is_lock).collect())
}
