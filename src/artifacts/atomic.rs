//! A file is there whole or not at all (faults rule 7): a private temporary file beside it, fsync, rename, fsync of the
//! folder. Nothing here decides what is written.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::ArtifactError;

/// What a temporary file's name begins with; whatever carries it and is old is litter of a crash.
pub const TEMP_PREFIX: &str = ".agentrun-tmp-";

/// What happens when the target exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Replaced in one step: the manifest and reports.
    Replace,
    /// Refused: what is kept as evidence.
    Refuse,
}

/// Writes a whole file.
pub fn write(path: &Path, bytes: &[u8], if_exists: IfExists) -> Result<(), ArtifactError> {
    let mut pending = Pending::create(path)?;
    pending.write_all(bytes).map_err(|e| ArtifactError::io(path, e))?;
    pending.commit(if_exists)
}

/// A file that is being written. Dropped without [`Pending::commit`], it leaves nothing behind.
#[derive(Debug)]
pub struct Pending {
    file: File,
    temp: Option<PathBuf>,
    target: PathBuf,
}

impl Pending {
    /// Begins a file for `target`, in the same folder, readable by its owner alone.
    pub fn create(target: &Path) -> Result<Self, ArtifactError> {
        let folder = folder_of(target);
        let name = target.file_name().ok_or_else(|| ArtifactError::Escapes { path: target.display().to_string() })?;
        let (file, temp) = create_temp(folder, name).map_err(|e| ArtifactError::io(target, e))?;
        Ok(Self { file, temp: Some(temp), target: target.to_owned() })
    }

    /// Makes it durable and gives it its name.
    pub fn commit(mut self, if_exists: IfExists) -> Result<(), ArtifactError> {
        let target = self.target.clone();
        let result = self.sync_and_rename(if_exists);
        // If we die before the rename: a temporary file is left, no record names it, the sweep removes it.
        // If we die after it: the file is whole, and the record that comes next is missing, which is the safe order.
        result.map_err(|e| ArtifactError::io(target, e))
    }

    fn sync_and_rename(&mut self, if_exists: IfExists) -> io::Result<()> {
        self.file.sync_all()?;
        let Some(temp) = self.temp.as_deref() else { return Ok(()) };
        match if_exists {
            IfExists::Replace => fs_err::rename(temp, &self.target)?,
            IfExists::Refuse => rename_new(temp, &self.target)?,
        }
        self.temp = None;
        sync_folder(folder_of(&self.target))
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(temp) = self.temp.take() {
            // Nothing can be done about a failure here: the sweep finds it by its name.
            let _ = std::fs::remove_file(temp);
        }
    }
}

/// Makes the entries of a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name is unique among processes by pid and within one by trying: `create_new` never opens what is there.
fn create_temp(folder: &Path, name: &OsStr) -> io::Result<(File, PathBuf)> {
    let pid = std::process::id();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    for n in 0..1000_u32 {
        // The target's name is not part of it: it may be as long as a name can be.
        let temp = folder.join(format!("{TEMP_PREFIX}{pid}-{}-{n}", name.len()));
        match options.open(&temp) {
            Ok(file) => return Ok((file, temp)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many temporary files"))
}

/// Renames without replacing. File systems that cannot do it in one step get a hard link, which never replaces either.
fn rename_new(temp: &Path, target: &Path) -> io::Result<()> {
    match renameat_with(CWD, temp, CWD, target, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs_err::hard_link(temp, target)?;
            fs_err::remove_file(temp)
        }
        result => Ok(result?),
    }
}
