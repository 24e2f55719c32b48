//! Reading and writing files below one folder without ever leaving it: every component of a path is opened by itself and
//! never through a symbolic link, so that a link which an agent left, or swaps in meanwhile, leads nowhere (R-W5, T11).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// File, link, folder or something else.
    pub(super) kind: FileType,
    /// True when the owner may execute it.
    pub(super) executable: bool,
    /// Bytes.
    pub(super) size: u64,
    /// Last change of the contents, milliseconds since 1970.
    pub(super) modified_ms: i64,
}

/// What to write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    /// A file.
    File { bytes: &'a [u8], executable: bool },
    /// A symbolic link with this target.
    Link(&'a [u8]),
}

/// A folder that nothing here leaves.
pub(super) struct Beneath {
    root: OwnedFd,
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Beneath {
    /// Opens the folder. The way to it may have links; it belongs to the caller.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let root = fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
        Ok(Self { root, path: path.to_owned() })
    }

    /// The folder's own path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When something was last added to or removed from the folder itself, milliseconds since 1970.
    pub(super) fn modified_ms(&self) -> io::Result<i64> {
        Ok(found(&fs::fstat(&self.root)?).modified_ms)
    }

    /// What stands at `path`, or nothing.
    pub(super) fn find(&self, path: &[u8]) -> io::Result<Option<Found>> {
        let (folder, name) = match self.parent(path, Missing::Fail) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(found(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The bytes of a regular file, or the target of a link.
    pub(super) fn read(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (folder, name) = self.parent(path, Missing::Fail)?;
        let stat = fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Ok(fs::readlinkat(&folder, name, Vec::new())?.into_bytes()),
            FileType::RegularFile => {
                // Not blocking: between the look and the opening it may have become a pipe.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let mut file = File::from(fs::openat(&folder, name, flags, Mode::empty())?);
                let mut bytes = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or(0));
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a link")),
        }
    }

    /// Puts a file or link at `path`, in place of a file or link there, and makes the folders above it.
    pub(super) fn write(&self, path: &[u8], content: Content<'_>) -> io::Result<()> {
        let (folder, name) = self.parent(path, Missing::Create)?;
        match fs::unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        match content {
            Content::Link(target) => Ok(fs::symlinkat(OsStr::from_bytes(target), &folder, name)?),
            Content::File { bytes, executable } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = if executable { Mode::from_raw_mode(0o777) } else { Mode::from_raw_mode(0o666) };
                File::from(fs::openat(&folder, name, flags, mode)?).write_all(bytes)
            }
        }
    }

    /// Removes a file, link or folder with all below it, and the folders above it that became empty.
    pub(super) fn remove(&self, path: &[u8]) -> io::Result<()> {
        match self.parent(path, Missing::Fail) {
            Ok((folder, name)) => remove_at(&folder, name)?,
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
        match path.iter().rposition(|byte| *byte == b'/') {
            Some(end) => self.remove_if_empty(&path[..end]),
            None => Ok(()),
        }
    }

    /// Removes a folder, and those above it, as long as nothing is in them.
    pub(super) fn remove_if_empty(&self, mut path: &[u8]) -> io::Result<()> {
        loop {
            match self.parent(path, Missing::Fail) {
                Ok((folder, name)) => match fs::unlinkat(&folder, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(_) => return Ok(()),
                },
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
            match path.iter().rposition(|byte| *byte == b'/') {
                Some(end) => path = &path[..end],
                None => return Ok(()),
            }
        }
    }

    /// Removes the folders below and at `path` that hold no file.
    pub(super) fn prune(&self, path: &[u8]) -> io::Result<()> {
        match self.parent(path, Missing::Fail) {
            Ok((folder, name)) => prune_at(&folder, name)?,
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Every file and link below `folder` but what is in a `.git`, as paths below the root.
    pub(super) fn files_below(&self, folder: &[u8], into: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let (above, name) = self.parent(folder, Missing::Fail)?;
        let opened = fs::openat(&above, name, FOLDER, Mode::empty())?;
        for entry in fs::Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name.eq_ignore_ascii_case(b".git") {
                continue;
            }
            let path = [folder, b"/", name].concat();
            match FileType::from_raw_mode(fs::statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
                FileType::Directory => self.files_below(&path, into)?,
                FileType::RegularFile | FileType::Symlink => into.push(path),
                _ => {}
            }
        }
        Ok(())
    }

    /// The folder of `path`, opened, and the last component.
    fn parent<'p>(&self, path: &'p [u8], missing: Missing) -> io::Result<(OwnedFd, &'p OsStr)> {
        let mut folder = self.root.try_clone()?;
        let mut components = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = components.next() {
            if matches!(part, b"." | b"..") || path.first() == Some(&b'/') {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of the folder"));
            }
            let part = OsStr::from_bytes(part);
            if components.peek().is_none() {
                return Ok((folder, part));
            }
            folder = match fs::openat(&folder, part, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) if matches!(missing, Missing::Create) => {
                    fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777))?;
                    fs::openat(&folder, part, FOLDER, Mode::empty())?
                }
                opened => opened?,
            };
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty path"))
    }
}

/// What to do about a folder on the way that does not exist.
#[derive(Clone, Copy)]
enum Missing {
    Create,
    Fail,
}

/// True when the error says that nothing is there: also when a file or link stands where a folder would have to be.
pub(super) fn is_absent(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

fn found(stat: &fs::Stat) -> Found {
    Found {
        kind: FileType::from_raw_mode(stat.st_mode),
        executable: stat.st_mode & 0o100 != 0,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ms: stat.st_mtime * 1000 + i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0),
    }
}

fn remove_at(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let opened = match fs::openat(folder, name, FOLDER, Mode::empty()) {
        // A folder without rights: a build leaves them (Go's module cache, Bazel). It is ours, so we may change that.
        Err(Errno::ACCESS) => {
            fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            fs::openat(folder, name, FOLDER, Mode::empty())?
        }
        opened => opened?,
    };
    let _ = fs::fchmod(&opened, Mode::RWXU);
    for entry in fs::Dir::read_from(&opened)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            remove_at(&opened, OsStr::from_bytes(name))?;
        }
    }
    Ok(fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

fn prune_at(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let opened = match fs::openat(folder, name, FOLDER, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(()),
        opened => opened?,
    };
    for entry in fs::Dir::read_from(&opened)? {
        let entry = entry?;
        let inner = entry.file_name().to_bytes();
        if !matches!(inner, b"." | b"..") && matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            prune_at(&opened, OsStr::from_bytes(inner))?;
        }
    }
    // Refused by the system where something is left in it.
    let _ = fs::unlinkat(folder, name, AtFlags::REMOVEDIR);
    Ok(())
}

/// The bytes of a regular file; links on the way are followed. A pipe or device in its place is an error, not a wait.
pub(super) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    /// Far above any file that is read this way: configurations, refs, hooks.
    const MAX_BYTES: u64 = 64 << 20;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
