//! Why something about git could not be done. It carries the code of the catalogue and, where the repository itself is
//! the reason, the way out; it says nothing about what the caller should do next.

use std::io;
use std::path::{Path, PathBuf};

use crate::domain::failure::Code;

/// Short for results of this room.
pub type Result<T, E = GitError> = std::result::Result<T, E>;

/// Why something about git could not be done.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No repository at or above the folder.
    #[error("`{}` is in no git repository", path.display())]
    NotARepository {
        /// Where the search began.
        path: PathBuf,
    },
    /// A repository without working files.
    #[error("the repository `{}` is bare: it has no working files", path.display())]
    Bare {
        /// Its git folder.
        path: PathBuf,
    },
    /// HEAD points to a branch without a commit.
    #[error("the repository has no commit yet")]
    NoCommit,
    /// A feature that libgit2, or the safe use of it, does not cover.
    #[error("the repository uses {what}")]
    Unsupported {
        /// The feature.
        what: &'static str,
        /// What the user can do.
        way_out: &'static str,
    },
    /// A name that leads to no commit.
    #[error("revision `{rev}` names no commit")]
    RevNotFound {
        /// As it was given.
        rev: String,
    },
    /// A branch or ref stands at another commit than expected.
    #[error("ref `{name}` is at {found}, not at {}", expected.as_deref().unwrap_or("nothing"))]
    RefExists {
        /// The full name.
        name: String,
        /// Where it is.
        found: String,
        /// Where it should have been.
        expected: Option<String>,
    },
    /// A patch or a merge does not fit.
    #[error("the changes do not apply: {reason}{}", list(paths))]
    PatchFailed {
        /// What libgit2 said, or what collides.
        reason: String,
        /// The paths that collide, where they are known.
        paths: Vec<String>,
    },
    /// Something that must not change was changed.
    #[error("{what}")]
    Tampered {
        /// The thing, in words.
        what: String,
    },
    /// Uncommitted or conflicted files stand in the way.
    #[error("the checkout has uncommitted work{}", list(paths))]
    Dirty {
        /// Which files.
        paths: Vec<String>,
    },
    /// The run's working copy is gone or only a part of it is left.
    #[error("the working copy `{}` is gone or incomplete", path.display())]
    WorkspaceLost {
        /// Where it was.
        path: PathBuf,
    },
    /// Somebody else holds a git lock.
    #[error("`{}` is held by another git process", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("`{}`: {source}", path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// libgit2 refused.
    #[error("{doing}: {message}")]
    Git {
        /// What was being done.
        doing: String,
        /// libgit2's words.
        message: String,
    },
}

impl GitError {
    /// The code of the catalogue.
    pub fn code(&self) -> Code {
        match self {
            Self::NotARepository { .. } => Code::NotARepository,
            Self::Bare { .. } | Self::NoCommit | Self::Unsupported { .. } => Code::RepositoryUnsupported,
            Self::RevNotFound { .. } => Code::NotFound,
            Self::RefExists { .. } => Code::InvalidState,
            Self::PatchFailed { .. } => Code::PatchFailed,
            Self::Tampered { .. } => Code::GitTamper,
            Self::Dirty { .. } => Code::WorktreeDirty,
            Self::WorkspaceLost { .. } => Code::WorkspaceLost,
            Self::Locked { .. } => Code::Busy,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::StoreFull,
                io::ErrorKind::ReadOnlyFilesystem => Code::StoreReadonly,
                _ => Code::StoreIo,
            },
            // libgit2 hands the operating system's words on, and nothing else of its error.
            Self::Git { message, .. } => {
                let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
                if says(&["No space left on device", "Disk quota exceeded", "File too large"]) {
                    Code::StoreFull
                } else if says(&["Read-only file system"]) {
                    Code::StoreReadonly
                } else if says(&["Too many open files"]) {
                    Code::EnvLimit
                } else {
                    Code::StoreIo
                }
            }
        }
    }

    /// What the user can do about a repository that does not fit.
    pub fn way_out(&self) -> Option<&'static str> {
        match self {
            Self::Unsupported { way_out, .. } => Some(way_out),
            Self::Bare { .. } => Some("run it in a clone with working files, or in a linked worktree"),
            Self::NoCommit => Some("make a first commit; `agentrun init --commit` makes one of its own files alone"),
            _ => None,
        }
    }

    /// For `map_err` after an operation on `path`.
    pub(super) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.as_ref().to_owned(), source }
    }

    /// For `map_err` after a call into libgit2.
    pub(super) fn git(doing: &str) -> impl FnOnce(git2::Error) -> Self {
        move |error| Self::from_git(doing, &error)
    }

    /// Finds the meaning in libgit2's error, where it has one of ours.
    pub(super) fn from_git(doing: &str, error: &git2::Error) -> Self {
        let message = error.message();
        if message.contains("mandatory extension: 'link'") {
            return split_index();
        }
        if message.contains("mandatory extension: 'sdir'") {
            return sparse_index();
        }
        if error.code() == git2::ErrorCode::Locked {
            let path = message.split('\'').nth(1).unwrap_or(message);
            return Self::Locked { path: path.into() };
        }
        Self::Git { doing: doing.to_owned(), message: message.to_owned() }
    }
}

fn split_index() -> GitError {
    GitError::Unsupported {
        what: "a split index",
        way_out: "git config core.splitIndex false && git update-index --no-split-index",
    }
}

fn sparse_index() -> GitError {
    GitError::Unsupported { what: "a sparse index", way_out: "git sparse-checkout reapply --no-sparse-index" }
}

/// `: a, b, c and 4 more`.
fn list(paths: &[String]) -> String {
    const SHOWN: usize = 5;
    if paths.is_empty() {
        return String::new();
    }
    let shown = paths[..paths.len().min(SHOWN)].join(", ");
    match paths.len().saturating_sub(SHOWN) {
        0 => format!(": {shown}"),
        more => format!(": {shown} and {more} more"),
    }
}
