//! The copy that a run works in. It is made here and only here, and its contents are read without trusting its own `.git`:
//! objects go straight into the user's repository, and the index lies beside the copy, out of the agent's way (T5, T6).
//!
//! `skeleton` writes a git folder, `copy` makes the isolated copy, `index` compares with the disk, `commits` takes over
//! what the agent committed itself, `loose_ends` what it left in git besides, `snapshot` and `restore` go from disk to commit and back.

mod commits;
mod contents;
mod copy;
mod durable;
mod index;
mod loose_ends;
mod raw_object;
mod restore;
pub(in crate::git) mod skeleton;
mod snapshot;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use git2::Repository;

pub use loose_ends::{BroughtHome, LooseEnd};
pub(in crate::git) use raw_object::is_safe_name;
pub use snapshot::Snapshot;

use super::beneath::{Beneath, is_absent};
use super::error::{GitError, Result};
use super::guard::GuardPrint;
use super::patch_dir::apply_patch_to_dir;
use super::paths;
use super::repo::Repo;

/// The working files of a run.
#[derive(Debug)]
pub struct Workspace {
    repo: Repo,
    dir: PathBuf,
    /// The private index. A stat cache: losing it costs time, not work.
    index: PathBuf,
    kind: Kind,
    /// False for a copy that is only looked at.
    keeps_index: bool,
}

/// Whose files they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A copy of the run's own, with a `.git` of its own.
    Isolated,
    /// The user's checkout.
    InPlace,
}

impl Workspace {
    /// Makes an isolated copy of a commit at `dir`, which must not exist; its parent must. It is complete or not there:
    /// it is built beside its place and renamed. A user's sparse checkout makes no difference: the copy has every file of
    /// the commit, so that an agent and its tests never miss one.
    pub fn create(repo: &Repo, dir: &Path, commit: &str) -> Result<Self> {
        let workspace = Self::isolated(repo, dir)?;
        copy::make(&workspace, commit)?;
        Ok(workspace)
    }

    /// Opens an isolated copy again. [`GitError::WorkspaceLost`] where it is gone or most of it is.
    pub fn open(repo: &Repo, dir: &Path) -> Result<Self> {
        // The run's lease is ours, so a lock on the private index is a dead process's.
        let _ = fs::remove_file(sibling(dir, ".index.lock"));
        Self::isolated(repo, dir)?.complete()
    }

    /// Opens an isolated copy for somebody who does not hold its run: the private index is the holder's to write.
    pub fn look(repo: &Repo, dir: &Path) -> Result<Self> {
        Self::isolated(repo, dir)?.looked_at().complete()
    }

    /// An isolated copy of which most may be gone: to keep what is left of it, and for nothing else.
    pub fn salvage(repo: &Repo, dir: &Path) -> Result<Self> {
        Ok(Self::isolated(repo, dir)?.looked_at())
    }

    /// The same copy for somebody who does not hold its run.
    #[must_use]
    pub fn looked_at(self) -> Self {
        Self { keeps_index: false, ..self }
    }

    fn complete(self) -> Result<Self> {
        let is_there = fs::symlink_metadata(&self.dir).is_ok_and(|found| found.is_dir());
        if !is_there || index::is_mostly_gone(&self)? {
            return Err(GitError::WorkspaceLost { path: self.dir });
        }
        Ok(self)
    }

    /// The user's checkout as a working copy, for a machine that has nothing else to do. `private_index` is a file of the
    /// run's own; HEAD and index of the checkout stay the user's, only working files are ever written.
    pub fn in_place(repo: &Repo, private_index: &Path) -> Result<Self> {
        let repo = repo.reopen()?;
        let theirs = repo.git_dir().join("index");
        if !private_index.exists() && theirs.exists() {
            fs::copy(&theirs, private_index).map_err(GitError::io(private_index))?;
        }
        let dir = repo.root().to_owned();
        let workspace = Self { repo, dir, index: private_index.to_owned(), kind: Kind::InPlace, keeps_index: true };
        workspace.repo.check_complete(&workspace.repo.head()?.commit)?;
        // Refuses a split or sparse index now rather than after the agent ran.
        index::load(&workspace, &workspace.store()?, None)?;
        Ok(workspace)
    }

    /// The root of the working files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The print of the git folder that commands in this working copy use: the copy's own, or the user's.
    pub fn guard(&self) -> Result<GuardPrint> {
        match self.kind {
            Kind::InPlace => self.repo.guard(),
            Kind::Isolated => {
                let git_dir = self.dir.join(".git");
                let is_real = fs::symlink_metadata(&git_dir).is_ok_and(|found| found.is_dir());
                let mut print = if is_real { GuardPrint::of(&git_dir)? } else { GuardPrint::default() };
                print.add_pointer(&self.dir)?;
                Ok(print)
            }
        }
    }

    /// Applies a patch to the working files alone, all or nothing, and answers its paths.
    pub fn apply_patch(&self, patch: &[u8]) -> Result<Vec<String>> {
        apply_patch_to_dir(&self.dir, patch)
    }

    /// Removes an isolated copy and what lies beside it. Refused where it is not below `root`, or a link. The user's
    /// checkout is left alone; only the private index goes. Whether its changes are safe is the caller's to know.
    pub fn remove(self, root: &Path) -> Result<()> {
        if self.kind == Kind::InPlace {
            return remove_file(&self.index);
        }
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let root = fs::canonicalize(root).map_err(GitError::io(root))?;
        let real_parent = match fs::canonicalize(parent) {
            Err(error) if is_absent(&error) => return Ok(()),
            found => found.map_err(GitError::io(parent))?,
        };
        let is_link = fs::symlink_metadata(&self.dir).is_ok_and(|found| found.is_symlink());
        if is_link || !real_parent.starts_with(&root) {
            let what = format!("`{}` is not a folder below `{}`", self.dir.display(), root.display());
            return Err(GitError::Tampered { what });
        }
        let beneath = Beneath::open(&real_parent).map_err(GitError::io(&real_parent))?;
        for name in self.names_beside(&real_parent)? {
            beneath.remove(paths::bytes(Path::new(&name))).map_err(GitError::io(real_parent.join(&name)))?;
        }
        Ok(())
    }

    /// The names in the parent folder that belong to this copy, the copy itself last: a crash leaves it findable.
    fn names_beside(&self, parent: &Path) -> Result<Vec<OsString>> {
        let name = self.dir.file_name().unwrap_or_default();
        let mut names = Vec::new();
        for entry in fs::read_dir(parent).map_err(GitError::io(parent))? {
            let found = entry.map_err(GitError::io(parent))?.file_name();
            let suffix = paths::bytes(Path::new(&found)).strip_prefix(paths::bytes(Path::new(name)));
            // Run ids have no dot at these places: `run_1` never takes `run_1.2`'s copy for its own.
            let is_ours =
                |suffix: &[u8]| matches!(suffix, b".index" | b".index.lock" | b".new") || suffix.starts_with(b".git.");
            if suffix.is_some_and(is_ours) {
                names.push(found);
            }
        }
        names.push(name.to_owned());
        Ok(names)
    }

    fn isolated(repo: &Repo, dir: &Path) -> Result<Self> {
        let index = sibling(dir, ".index");
        Ok(Self { repo: repo.reopen()?, dir: dir.to_owned(), index, kind: Kind::Isolated, keeps_index: true })
    }

    /// The user's repository with this copy's files: what is written lands in the user's objects.
    fn store(&self) -> Result<Repository> {
        self.repo.open_at(&self.dir)
    }
}

/// `<path><suffix>`.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if !is_absent(&error) => Err(GitError::io(path)(error)),
        _ => Ok(()),
    }
}
