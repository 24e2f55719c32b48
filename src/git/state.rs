//! What is uncommitted in the user's checkout, as `git status` would say it. It takes no lock and writes no index, so
//! that looking never disturbs a git command that runs meanwhile (F85, FR-I8).

use git2::{Delta, DiffOptions, ErrorCode, IndexEntryExtendedFlag, Repository, RepositoryState};
use rustix::fs::FileType;

use super::beneath::Beneath;
use super::error::{GitError, Result};
use super::repo::Repo;
use super::{glance, paths};

/// What is uncommitted. Each list is sorted; a path may be in several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorktreeState {
    /// Differs between HEAD and index.
    pub staged: Vec<String>,
    /// Differs between index and disk.
    pub unstaged: Vec<String>,
    /// On disk and not in the index; a repository of its own ends with `/`.
    pub untracked: Vec<String>,
    /// Left open by a merge.
    pub conflicted: Vec<String>,
    /// `merge`, `rebase`, … where one was begun and not ended.
    pub in_progress: Option<&'static str>,
    /// All of them as git has them: the texts above cannot be turned back into bytes.
    pub(super) changed: Vec<Vec<u8>>,
}

impl WorktreeState {
    /// True when nothing is uncommitted and nothing is in progress.
    pub fn is_clean(&self) -> bool {
        self.changed.is_empty() && self.in_progress.is_none()
    }

    /// Every uncommitted path once, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.changed.iter().map(|path| paths::text(path)).collect()
    }
}

impl Repo {
    /// What is uncommitted in the checkout. Paths that are, or are below, one of `ignored_prefixes` do not count: a
    /// prefix is a file's name or a folder's with `/` behind.
    pub fn state(&self, ignored_prefixes: &[&str]) -> Result<WorktreeState> {
        const DOING: &str = "reading the state of the checkout";
        // A handle of its own: the index and its memory go with it.
        let repository = self.open_at(self.root())?;
        let written_at = glance::written_at(&self.git_dir().join("index"));
        let index = repository.index().map_err(GitError::git(DOING))?;
        let head = match repository.head().and_then(|head| head.peel_to_tree()) {
            Ok(tree) => Some(tree),
            Err(error) if error.code() == ErrorCode::UnbornBranch => None,
            Err(error) => return Err(GitError::from_git(DOING, &error)),
        };
        let mut state = WorktreeState { in_progress: in_progress(&repository), ..WorktreeState::default() };
        let mut all = Vec::new();

        let staged = repository.diff_tree_to_index(head.as_ref(), Some(&index), Some(&mut options()));
        for delta in staged.map_err(GitError::git(DOING))?.deltas() {
            let Some(path) = path_of(&delta).filter(|path| !paths::is_below(path, ignored_prefixes)) else { continue };
            if delta.status() != Delta::Conflicted {
                state.staged.push(paths::text(path));
                all.push(path.to_vec());
            }
        }
        let suspects = written_at.and_then(|at| glance::suspects(self.root(), &index, at));
        // No path at all would mean every path.
        if suspects.as_ref().is_none_or(|suspects| !suspects.is_empty()) {
            let unstaged = repository.diff_index_to_workdir(Some(&index), Some(&mut options_for(suspects.as_deref())));
            for delta in unstaged.map_err(GitError::git(DOING))?.deltas() {
                let Some(path) = path_of(&delta).filter(|path| !paths::is_below(path, ignored_prefixes)) else {
                    continue;
                };
                let list = match delta.status() {
                    Delta::Conflicted => &mut state.conflicted,
                    Delta::Untracked => &mut state.untracked,
                    Delta::Deleted if index.get_path(paths::path(path), 0).is_some_and(|entry| is_masked(&entry)) => {
                        continue;
                    }
                    _ => &mut state.unstaged,
                };
                list.push(paths::text(path));
                all.push(path.to_vec());
            }
        }
        for path in present_but_masked(self, &index)? {
            if !paths::is_below(&path, ignored_prefixes) {
                state.unstaged.push(paths::text(&path));
                all.push(path);
            }
        }
        for list in [&mut state.staged, &mut state.unstaged, &mut state.untracked, &mut state.conflicted] {
            list.sort();
            list.dedup();
        }
        all.sort();
        all.dedup();
        state.changed = all;
        Ok(state)
    }
}

/// Options of every comparison with a working copy: untracked files one by one, submodules said elsewhere.
pub(super) fn options() -> DiffOptions {
    let mut options = DiffOptions::new();
    options.include_untracked(true).recurse_untracked_dirs(true).include_typechange(true).ignore_submodules(true);
    options
}

/// The same, for some paths alone.
fn options_for(paths: Option<&[Vec<u8>]>) -> DiffOptions {
    let mut options = options();
    if let Some(paths) = paths {
        options.disable_pathspec_match(true);
        for path in paths {
            options.pathspec(path.as_slice());
        }
    }
    options
}

/// The path of a difference: the new one, or of a deleted file the old one.
pub(super) fn path_of<'d>(delta: &git2::DiffDelta<'d>) -> Option<&'d [u8]> {
    delta.new_file().path_bytes().or_else(|| delta.old_file().path_bytes())
}

/// True for an entry whose file need not be on disk: outside a sparse checkout, or said to be unchanged. libgit2 calls
/// those deleted.
pub(super) fn is_masked(entry: &git2::IndexEntry) -> bool {
    /// `assume unchanged`.
    const VALID: u16 = 0x8000;
    is_sparse(entry) || entry.flags & VALID != 0
}

fn is_sparse(entry: &git2::IndexEntry) -> bool {
    IndexEntryExtendedFlag::from_bits_truncate(entry.flags_extended).contains(IndexEntryExtendedFlag::SKIP_WORKTREE)
}

/// Files outside the sparse checkout that are on disk all the same and differ: git looks at those, libgit2 does not.
fn present_but_masked(repo: &Repo, index: &git2::Index) -> Result<Vec<Vec<u8>>> {
    let mut changed = Vec::new();
    if !repo.settings()?.is_sparse() {
        return Ok(changed);
    }
    let root = repo.root();
    let beneath = Beneath::open(root).map_err(GitError::io(root))?;
    for entry in index.iter().filter(is_sparse) {
        let found = beneath.find(&entry.path).map_err(GitError::io(root))?;
        if !found.is_some_and(|found| matches!(found.kind, FileType::RegularFile | FileType::Symlink)) {
            continue;
        }
        let bytes = beneath.read(&entry.path).map_err(GitError::io(root))?;
        let id = git2::Oid::hash_object(git2::ObjectType::Blob, &bytes).map_err(GitError::git("hashing a file"))?;
        if id != entry.id {
            changed.push(entry.path);
        }
    }
    Ok(changed)
}

fn in_progress(repository: &Repository) -> Option<&'static str> {
    match repository.state() {
        RepositoryState::Clean => None,
        RepositoryState::Merge => Some("merge"),
        RepositoryState::Revert | RepositoryState::RevertSequence => Some("revert"),
        RepositoryState::CherryPick | RepositoryState::CherryPickSequence => Some("cherry-pick"),
        RepositoryState::Bisect => Some("bisect"),
        RepositoryState::Rebase | RepositoryState::RebaseInteractive | RepositoryState::RebaseMerge => Some("rebase"),
        RepositoryState::ApplyMailbox | RepositoryState::ApplyMailboxOrRebase => Some("am"),
    }
}
