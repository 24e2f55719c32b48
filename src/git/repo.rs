//! The user's repository, opened so that nothing in it runs code or leads elsewhere, and the plain questions to it. It
//! changes no file of the user's.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use git2::{Commit, ErrorCode, Oid, Repository, Tree};

use super::context::walk;
use super::discover::{Places, partial_clone};
use super::error::{GitError, Result};
use super::paths;
use super::settings::{Settings, UserGit};

/// The user's repository.
///
/// It is opened by its explicit git folder, with a configuration of its own that takes over data keys only: no hook, no
/// filter, no fsmonitor runs, and `core.worktree` leads nowhere. It can be sent to another thread, not shared between two.
///
/// It is found at once and opened with the first question: a command that only reads agentrun's own record asks none, and
/// opening costs more than all the rest of such a command.
pub struct Repo {
    places: Places,
    user: UserGit,
    settings: OnceCell<Settings>,
    inner: OnceCell<Repository>,
}

/// Where HEAD points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The commit, 40 hex digits.
    pub commit: String,
    /// The branch without `refs/heads/`; none where HEAD is detached.
    pub branch: Option<String>,
}

impl Repo {
    /// Finds the repository at or above a folder, without the user's own configuration (see [`Self::discover_for`]).
    pub fn discover(from: &Path) -> Result<Self> {
        Self::discover_for(from, &UserGit::default())
    }

    /// Finds the repository at or above a folder; the user's own ignore rules, data keys and identity count.
    pub fn discover_for(from: &Path, user: &UserGit) -> Result<Self> {
        let places = Places::find(from)?;
        places.check()?;
        Ok(Self { places, user: user.clone(), settings: OnceCell::new(), inner: OnceCell::new() })
    }

    /// The root of the working files.
    pub fn root(&self) -> &Path {
        &self.places.root
    }

    /// The main worktree's root: `.ai-runs` lives there.
    pub fn main_root(&self) -> PathBuf {
        self.places.main_root()
    }

    /// The git folder of this worktree.
    pub fn git_dir(&self) -> &Path {
        &self.places.git_dir
    }

    /// The git folder that all worktrees share.
    pub fn common_dir(&self) -> &Path {
        &self.places.common_dir
    }

    /// A second handle on the same repository, for another thread or for a working copy.
    pub fn reopen(&self) -> Result<Self> {
        Ok(Self {
            places: self.places.clone(),
            user: self.user.clone(),
            // What was read once holds: a run may have changed the files meanwhile.
            settings: OnceCell::from(self.settings()?.clone()),
            inner: OnceCell::new(),
        })
    }

    /// Where HEAD points.
    pub fn head(&self) -> Result<Head> {
        let head = match self.inner()?.head() {
            Ok(head) => head,
            Err(error) if error.code() == ErrorCode::UnbornBranch => return Err(GitError::NoCommit),
            Err(error) => return Err(GitError::from_git("reading HEAD", &error)),
        };
        let commit = head.peel_to_commit().map_err(GitError::git("reading HEAD"))?.id().to_string();
        let name = head.name_bytes();
        Ok(Head { commit, branch: name.strip_prefix(b"refs/heads/").map(paths::text) })
    }

    /// The commit that a revision names, 40 hex digits.
    pub fn resolve(&self, rev: &str) -> Result<String> {
        let found = self.inner()?.revparse_single(rev).and_then(|object| object.peel_to_commit());
        found.map(|commit| commit.id().to_string()).map_err(|_| GitError::RevNotFound { rev: rev.to_owned() })
    }

    /// True when the commit is in the repository.
    pub fn commit_exists(&self, hex: &str) -> bool {
        self.commit(hex).is_ok()
    }

    /// The tree of a commit, 40 hex digits. Two commits with the same tree have the same files.
    pub fn tree_of(&self, commit: &str) -> Result<String> {
        Ok(self.commit(commit)?.tree_id().to_string())
    }

    /// A file's bytes in a commit; a link's target; nothing where the commit has no such file.
    pub fn read_file_at(&self, commit: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let tree = self.tree(commit)?;
        let is_below = |part| matches!(part, std::path::Component::Normal(_));
        if path.is_empty() || !Path::new(path).components().all(is_below) {
            return Ok(None);
        }
        let entry = match tree.get_path(Path::new(path)) {
            Ok(entry) => entry,
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(GitError::from_git(&format!("reading `{path}`"), &error)),
        };
        if entry.kind() != Some(git2::ObjectType::Blob) {
            return Ok(None);
        }
        let blob = self.inner()?.find_blob(entry.id()).map_err(GitError::git(&format!("reading `{path}`")))?;
        Ok(Some(blob.content().to_vec()))
    }

    /// The names in a folder of a commit, folders with `/` behind; empty where there is no such folder. `""` is the root.
    pub fn list_at(&self, commit: &str, dir: &str) -> Result<Vec<String>> {
        let tree = self.tree(commit)?;
        let dir = dir.trim_matches('/');
        let folder = if dir.is_empty() {
            tree
        } else {
            let git = self.inner()?;
            let object = tree.get_path(Path::new(dir)).and_then(|entry| entry.to_object(git));
            match object.map(git2::Object::into_tree) {
                Ok(Ok(folder)) => folder,
                _ => return Ok(Vec::new()),
            }
        };
        let name = |entry: git2::TreeEntry<'_>| {
            let slash = if entry.kind() == Some(git2::ObjectType::Tree) { "/" } else { "" };
            paths::text(entry.name_bytes()) + slash
        };
        Ok(folder.iter().map(name).collect())
    }

    /// Refuses a partial clone that lacks a file of the commit. Costs nothing in any other repository.
    pub fn check_complete(&self, commit: &str) -> Result<()> {
        if !self.places.is_partial() {
            return Ok(());
        }
        let odb = self.inner()?.odb().map_err(GitError::git("opening the objects"))?;
        let exists = |id| odb.exists_ext(id, git2::OdbLookupFlags::NO_REFRESH);
        let walked = walk(self.inner()?, &self.tree(commit)?, &mut |_| true, &mut |_, entry| {
            let is_there = entry.kind() == Some(git2::ObjectType::Commit) || exists(entry.id());
            if is_there { Ok(()) } else { Err(partial_clone()) }
        });
        // A folder that cannot be read is one that was not fetched.
        walked.map_err(|_| partial_clone())
    }

    /// libgit2's handle.
    pub(super) fn inner(&self) -> Result<&Repository> {
        made_once(&self.inner, || open(&self.places.git_dir, &self.places.root, self.settings()?))
    }

    /// What was taken over from the user's configuration.
    pub(super) fn settings(&self) -> Result<&Settings> {
        let Places { git_dir, common_dir, .. } = &self.places;
        made_once(&self.settings, || Settings::read(&self.user, common_dir, git_dir))
    }

    /// The same repository with other working files, a run's copy. What is written there is not settled on the disk.
    pub(super) fn open_at(&self, workdir: &Path) -> Result<Repository> {
        open(&self.places.git_dir, workdir, &self.settings()?.without_sync())
    }

    /// A commit by its 40 hex digits.
    pub(super) fn commit(&self, hex: &str) -> Result<Commit<'_>> {
        let id = oid(hex)?;
        self.inner()?.find_commit(id).map_err(|_| GitError::RevNotFound { rev: hex.to_owned() })
    }

    /// The tree of a commit.
    pub(super) fn tree(&self, commit: &str) -> Result<Tree<'_>> {
        self.commit(commit)?.tree().map_err(GitError::git(&format!("reading the tree of `{commit}`")))
    }
}

impl std::fmt::Debug for Repo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repo").field("places", &self.places).finish_non_exhaustive()
    }
}

/// Reads 40 hex digits; never a name, so that a branch named like a commit is not taken for one.
pub(super) fn oid(hex: &str) -> Result<Oid> {
    let is_full = hex.len() == 40 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parsed = is_full.then(|| Oid::from_str(hex).ok()).flatten();
    parsed.ok_or_else(|| GitError::RevNotFound { rev: hex.to_owned() })
}

/// What a cell holds; made now where it holds nothing yet.
fn made_once<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// Opens a git folder as it is, without looking for one, and puts the own configuration in place of all others.
fn open(git_dir: &Path, workdir: &Path, settings: &Settings) -> Result<Repository> {
    let doing = format!("opening `{}`", git_dir.display());
    // `open_bare` neither searches nor believes `core.worktree`; which files belong to it is said afterwards.
    let repository = Repository::open_bare(git_dir).map_err(GitError::git(&doing))?;
    settings.replace_in(&repository)?;
    repository.set_workdir(workdir, false).map_err(GitError::git(&doing))?;
    Ok(repository)
}
