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
use crate::failpoints::{self, When};

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
    pub fn commit(self, if_exists: IfExists) -> Result<(), ArtifactError> {
        let target = self.target.clone();
        self.commit_unsynced(if_exists)?;
        sync_folder(folder_of(&target)).map_err(|e| ArtifactError::io(target, e))
    }

    /// The same, but the caller makes the folder durable with [`sync_folder`] before anything is recorded: one time for
    /// many files instead of once for each.
    pub fn commit_unsynced(mut self, if_exists: IfExists) -> Result<(), ArtifactError> {
        let target = self.target.clone();
        let result = self.sync_and_rename(if_exists);
        // If we die before the rename: a temporary file is left, no record names it, the sweep removes it.
        // If we die after it: the file is whole, and the record that comes next is missing, which is the safe order.
        result.map_err(|e| ArtifactError::io(target, e))
    }

    fn sync_and_rename(&mut self, if_exists: IfExists) -> io::Result<()> {
        self.file.sync_all()?;
        let Some(temp) = self.temp.as_deref() else { return Ok(()) };
        failpoints::reached(When::Before, "file")?;
        match if_exists {
            IfExists::Replace => fs_err::rename(temp, &self.target)?,
            IfExists::Refuse => rename_new(temp, &self.target)?,
        }
        self.temp = None;
        failpoints::reached(When::After, "file")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::Code;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn f21_what_is_kept_is_never_replaced_and_what_tells_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, b"one", IfExists::Refuse).unwrap();
        let error = write(&path, b"two", IfExists::Refuse).unwrap_err();
        assert_eq!(error.code(), Code::IdempotencyConflict);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        write(&path, b"three", IfExists::Replace).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(names(dir.path()), ["f"], "no temporary file is left");
    }

    #[test]
    fn f21_an_unfinished_file_has_no_name_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut pending = Pending::create(&path).unwrap();
        pending.write_all(b"half").unwrap();
        assert!(!path.exists());
        assert_eq!(names(dir.path()).len(), 1);
        drop(pending);
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn fr_i5_a_reader_sees_the_old_file_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifest.yml");
        let versions = [vec![b'a'; 100_000], vec![b'b'; 50_000]];
        write(&path, &versions[0], IfExists::Replace).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0_u32;
                while !done.load(Ordering::Relaxed) || reads == 0 {
                    let seen = std::fs::read(&path).unwrap();
                    assert!(versions.contains(&seen), "{} bytes", seen.len());
                    reads += 1;
                }
            });
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| (0..20).for_each(|n| write(&path, &versions[n % 2], IfExists::Replace).unwrap()))
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(names(dir.path()), ["manifest.yml"]);
    }

    #[test]
    fn errors_name_the_file_that_was_meant() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(&dir.path().join("no/such/folder"), b"", IfExists::Replace).unwrap_err();
        assert_eq!(error.code(), Code::StoreIo);
        assert!(error.to_string().contains("no/such/folder"), "{error}");
        let long = dir.path().join("x".repeat(255));
        write(&long, b"", IfExists::Replace).unwrap();
    }
}
