//! How work on files fails, told apart by what the caller can do. Hints for people stand in the command line alone.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::domain::failure::{Code, Failure};

/// A failure of the file layer.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// There is no state folder yet.
    #[error("there is no state folder {}", .0.display())]
    NoHome(PathBuf),
    /// The state folder or one below it is somebody else's, open to others, or not a folder of its own.
    #[error("{} {why}", .path.display())]
    Insecure {
        /// The folder.
        path: PathBuf,
        /// What is wrong, to be read after the path.
        why: String,
    },
    /// The state folder lies where a database cannot (F16).
    #[error("{} lies on {name}, where the records are not safe: they need a disk of this machine", .path.display())]
    FileSystem {
        /// The folder.
        path: PathBuf,
        /// The kind of file system.
        name: String,
    },
    /// A file of agentrun's own is not what it must be.
    #[error("{} is damaged: {why}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A path or name leads out of the folder it belongs to.
    #[error("the path {path} leads out of its folder")]
    Escapes {
        /// As it was given.
        path: String,
    },
    /// A glob cannot be read.
    #[error("the glob {glob} cannot be read: {why}")]
    Glob {
        /// As it was given.
        glob: String,
        /// What is wrong.
        why: String,
    },
    /// A kept file already has that path, and kept files are never replaced.
    #[error("{} is already there", .0.display())]
    Exists(PathBuf),
    /// No room is left.
    #[error("there is no room left to write {}", .0.display())]
    NoSpace(PathBuf),
    /// The file system cannot be written.
    #[error("{} cannot be written: {source}", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
    /// This process, or the machine, has as many open files as it may have.
    #[error("{} cannot be opened: {source}", .path.display())]
    Limit {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
    /// The kernel has no `openat2`, without which a path cannot be opened safely (T11).
    #[error("the kernel cannot open files without following links (openat2)")]
    NoOpenat2,
    /// Anything else that the operating system refused.
    #[error("{} failed: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
}

impl ArtifactError {
    /// Sorts an error of the operating system.
    pub fn io(path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.as_ref().to_owned(), source.into());
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::NoSpace(path),
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Self::ReadOnly { path, source },
            Some(Errno::MFILE | Errno::NFILE) => Self::Limit { path, source },
            Some(Errno::EXIST) => Self::Exists(path),
            Some(Errno::NOSYS) => Self::NoOpenat2,
            _ => Self::Io { path, source },
        }
    }

    /// What follows from it.
    pub fn code(&self) -> Code {
        match self {
            Self::NoHome(_) => Code::NotFound,
            Self::Insecure { .. } => Code::InsecureHome,
            Self::Damaged { .. } => Code::StateCorrupt,
            Self::FileSystem { .. } => Code::EnvFsUnsupported,
            Self::Escapes { .. } => Code::ArtifactPath,
            Self::Glob { .. } => Code::ConfigInvalid,
            Self::Exists(_) => Code::IdempotencyConflict,
            Self::NoSpace(_) => Code::ArtifactNoSpace,
            Self::ReadOnly { .. } => Code::StoreReadonly,
            Self::Limit { .. } => Code::EnvLimit,
            Self::NoOpenat2 => Code::EnvUnsupported,
            Self::Io { .. } => Code::StoreIo,
        }
    }

    /// The same as it is recorded.
    pub fn failure(&self) -> Failure {
        Failure::new(self.code(), self.to_string())
    }
}
