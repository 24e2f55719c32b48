//! Finds the user's repository from a folder, the way git does, and refuses the kinds that cannot be worked with. It is
//! used on the user's side only: from a run's working copy nothing is ever discovered (T6).

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::error::{GitError, Result};
use super::{beneath, config_text};

/// The folders of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// The root of the working files.
    pub(super) root: PathBuf,
    /// Of this worktree.
    pub(super) git_dir: PathBuf,
    /// Of all worktrees together.
    pub(super) common_dir: PathBuf,
}

impl Places {
    /// Walks up from `from`. Like git, it stops at the border of a file system.
    pub(super) fn find(from: &Path) -> Result<Self> {
        let start = fs::canonicalize(from).map_err(GitError::io(from))?;
        let device = fs::metadata(&start).map_err(GitError::io(&start))?.dev();
        for folder in start.ancestors() {
            if fs::metadata(folder).map_or(true, |found| found.dev() != device) {
                break;
            }
            if let Some(git_dir) = git_dir_of(folder)? {
                let common_dir = common_dir_of(&git_dir)?;
                return Ok(Self { root: folder.to_owned(), git_dir, common_dir });
            }
            if is_git_dir(folder) {
                return Err(GitError::Bare { path: folder.to_owned() });
            }
        }
        Err(GitError::NotARepository { path: start })
    }

    /// The root of the main worktree, where `.ai-runs` lies. Where there is none (a bare repository with linked
    /// worktrees, not named `.git` or `.bare` in a folder of its own) it is this worktree's own root.
    pub(super) fn main_root(&self) -> PathBuf {
        let linked = self.common_dir != self.git_dir;
        let named = self.common_dir.file_name().is_some_and(|name| name == ".git" || name == ".bare");
        match self.common_dir.parent() {
            Some(parent) if linked && named => parent.to_owned(),
            _ => self.root.clone(),
        }
    }

    /// True when objects may be missing because a remote promised to send them later.
    pub(super) fn is_partial(&self) -> bool {
        let text = beneath::read_regular(&self.common_dir.join("config")).unwrap_or_default();
        let is_promisor = |entry: &config_text::Entry| {
            entry.key.starts_with("remote.") && entry.key.ends_with(".promisor") && is_true(&entry.value)
        };
        config_text::entries(&text).iter().any(is_promisor)
    }

    /// Refuses what libgit2, or the safe use of it, does not cover. Read before libgit2 opens anything.
    pub(super) fn check(&self) -> Result<()> {
        let file = self.common_dir.join("config");
        let text = beneath::read_regular(&file).map_err(GitError::io(&file))?;
        let entries = config_text::entries(&text);
        let last = |key: &str| entries.iter().rev().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
        let is_linked = self.common_dir != self.git_dir;
        if last("core.bare").is_some_and(is_true) && !is_linked {
            return Err(GitError::Bare { path: self.git_dir.clone() });
        }
        let refused = |what, way_out| Err(GitError::Unsupported { what, way_out });
        if last("extensions.objectformat").is_some_and(|format| !format.eq_ignore_ascii_case("sha1")) {
            return refused("SHA-256 object names", "use a repository with SHA-1 object names");
        }
        if last("extensions.refstorage").is_some_and(|format| !format.eq_ignore_ascii_case("files")) {
            return refused(
                "reftable for its refs",
                "git refs migrate --ref-format=files (git 2.48 or newer), or a fresh clone with --ref-format=files",
            );
        }
        // libgit2 does not open those at all. Newer ones have only `remote.<name>.promisor`; see `is_partial`.
        if last("extensions.partialclone").is_some() {
            return Err(partial_clone());
        }
        Ok(())
    }
}

/// A clone that lacks objects which git would fetch when they are asked for.
pub(super) fn partial_clone() -> GitError {
    GitError::Unsupported {
        what: "a partial clone, where objects are missing",
        way_out: "git config --unset-all remote.origin.partialclonefilter; git fetch --refetch origin; git config --unset-all extensions.partialclone || true",
    }
}

/// The git folder that `folder/.git` is or names, or nothing where there is no `.git`.
fn git_dir_of(folder: &Path) -> Result<Option<PathBuf>> {
    let dot_git = folder.join(".git");
    let Ok(found) = fs::metadata(&dot_git) else { return Ok(None) };
    if found.is_dir() {
        let git_dir = fs::canonicalize(&dot_git).map_err(GitError::io(&dot_git))?;
        return Ok(is_git_dir(&git_dir).then_some(git_dir));
    }
    if !found.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&dot_git).map_err(GitError::io(&dot_git))?;
    let Some(target) = text.strip_prefix("gitdir:") else { return Ok(None) };
    let git_dir = folder.join(target.trim());
    fs::canonicalize(&git_dir).map(Some).map_err(GitError::io(&git_dir))
}

/// The folder that a linked worktree shares with the others, or the git folder itself.
fn common_dir_of(git_dir: &Path) -> Result<PathBuf> {
    let file = git_dir.join("commondir");
    match fs::read_to_string(&file) {
        Ok(text) => {
            let common = git_dir.join(text.trim_end_matches(['\n', '\r']));
            fs::canonicalize(&common).map_err(GitError::io(&common))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(git_dir.to_owned()),
        Err(error) => Err(GitError::io(&file)(error)),
    }
}

fn is_git_dir(folder: &Path) -> bool {
    let has_objects = folder.join("objects").is_dir() && folder.join("refs").is_dir();
    folder.join("HEAD").is_file() && (has_objects || folder.join("commondir").is_file())
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "true" | "yes" | "on" | "1")
}
