//! Opens files that an agent, or a process it left, could swap at any time (T11): never through a link, never out of the
//! folder, never a file that hangs, and never one of the database's own files, whose mere closing would drop SQLite's
//! locks (T2).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dev, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;

use super::ArtifactError;
use crate::words;

words! {
    /// Why a file was not taken.
    pub enum SkipReason {
        /// It, or a folder on its path, is a symbolic link.
        Symlink = "symbolic_link",
        /// It has another name elsewhere: what it shows may not be the working copy's.
        HardLink = "hard_link",
        /// A named pipe.
        Fifo = "fifo",
        /// A socket.
        Socket = "socket",
        /// A device.
        Device = "device",
        /// Larger than [`super::collect::MAX_BYTES`].
        TooLarge = "too_large",
        /// It belongs to agentrun's own state.
        State = "state_folder",
        /// It belongs to a git repository's own folder.
        Git = "git_folder",
        /// Its name is no UTF-8 or has control characters.
        OddName = "odd_name",
        /// It changed or vanished while it was being read.
        Changed = "changed_while_read",
        /// It may not be read.
        Unreadable = "unreadable",
        /// Deeper than agentrun looks.
        TooDeep = "too_deep",
        /// More files than [`super::collect::MAX_FILES`].
        TooMany = "too_many_files",
    }
}

/// Device and inode: what a file is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    device: Dev,
    inode: u64,
}

impl FileId {
    /// Of an open file.
    pub fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// A folder below which files are opened.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A file that was looked at without being opened: what it is cannot change any more.
#[derive(Debug)]
pub struct Seen {
    fd: OwnedFd,
    /// Its facts.
    pub stat: Stat,
}

impl Root {
    /// Opens the folder itself. Links on the way to it are the caller's own and are followed.
    pub fn open(path: &Path) -> Result<Self, ArtifactError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty()).map(Self).map_err(|e| ArtifactError::io(path, e))
    }

    /// What the folder is.
    pub fn id(&self, path: &Path) -> Result<FileId, ArtifactError> {
        fstat(&self.0).map(|stat| FileId::of(&stat)).map_err(|e| ArtifactError::io(path, e))
    }

    /// Looks at something below the folder. A path that leads out of it is an error, for no honest one does.
    pub fn see(&self, path: &Path) -> Result<Looked, ArtifactError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = match retried(|| openat2(&self.0, path, flags, Mode::empty(), resolve)) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Looked::Absent),
            Err(Errno::LOOP) => return Ok(Looked::Skip(SkipReason::Symlink)),
            Err(Errno::XDEV) => return Err(ArtifactError::Escapes { path: path.display().to_string() }),
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Looked::Skip(SkipReason::Unreadable)),
            Err(Errno::NAMETOOLONG) => return Ok(Looked::Skip(SkipReason::TooDeep)),
            Err(e) => return Err(ArtifactError::io(path, e)),
        };
        let stat = fstat(&fd).map_err(|e| ArtifactError::io(path, e))?;
        Ok(Looked::At(Seen { fd, stat }))
    }
}

/// What a look found.
#[derive(Debug)]
pub enum Looked {
    /// Nothing is there.
    Absent,
    /// It cannot be reached safely.
    Skip(SkipReason),
    /// This.
    At(Seen),
}

impl Seen {
    /// Its kind.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// What it is.
    pub fn id(&self) -> FileId {
        FileId::of(&self.stat)
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// Why it is not a regular file of one name, if it is not.
    pub fn unfit(&self) -> Option<SkipReason> {
        match self.kind() {
            FileType::RegularFile if self.stat.st_nlink > 1 => Some(SkipReason::HardLink),
            FileType::RegularFile => None,
            FileType::Symlink => Some(SkipReason::Symlink),
            FileType::Fifo => Some(SkipReason::Fifo),
            FileType::Socket => Some(SkipReason::Socket),
            FileType::BlockDevice | FileType::CharacterDevice => Some(SkipReason::Device),
            _ => Some(SkipReason::Unreadable),
        }
    }

    /// Opens exactly the file that was looked at, for reading, without ever waiting for another side.
    pub fn read(&self) -> Result<File, Errno> {
        reopen(self.fd.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC).map(File::from)
    }

    /// Opens exactly the folder that was looked at, for listing.
    pub fn list(&self) -> Result<rustix::fs::Dir, Errno> {
        let fd = reopen(self.fd.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        rustix::fs::Dir::read_from(fd)
    }
}

/// Through the kernel's own name of the open file, so that nothing can be swapped between the look and the opening.
fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    retried(|| rustix::fs::openat(CWD, name.as_str(), flags, Mode::empty()))
}

/// `openat2` answers EAGAIN when something was renamed meanwhile; it is tried again a bounded number of times.
fn retried<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut result = call();
    for _ in 0..100 {
        match result {
            Err(Errno::INTR | Errno::AGAIN) => result = call(),
            _ => break,
        }
    }
    result
}
