//! Where configuration files come from: the checkout, or (made by the caller) a commit. The disk arm follows no link out
//! of the repository and opens nothing but regular files: a policy must not be a pipe that somebody else writes to.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use crate::yaml::MAX_BYTES;

/// Files by paths relative to the repository.
pub trait Source {
    /// The bytes of a file; `None` when there is nothing of that name. Whatever exists and is no readable file is an error.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ConfigError>;

    /// The names of what is in a folder, sorted; none when there is no such folder.
    fn list(&self, folder: &str) -> Result<Vec<String>, ConfigError>;
}

/// The checkout.
#[derive(Debug, Clone)]
pub struct DiskSource {
    root: PathBuf,
}

impl DiskSource {
    /// Files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The real path of something that exists, if it is inside the repository. A dangling link exists.
    fn resolve(&self, path: &str) -> Result<Option<PathBuf>, ConfigError> {
        let io = |e: std::io::Error| ConfigError::unreadable(path, reason(&e));
        let joined = self.root.join(path);
        match joined.symlink_metadata() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io(e)),
            Ok(_) => {}
        }
        let root = self.root.canonicalize().map_err(io)?;
        let real = joined.canonicalize().map_err(io)?;
        if real.starts_with(&root) {
            Ok(Some(real))
        } else {
            Err(ConfigError::unreadable(path, "it is a link that leaves the repository"))
        }
    }
}

impl Source for DiskSource {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ConfigError> {
        self.resolve(path)?.map(|real| read_regular(path, &real)).transpose()
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, ConfigError> {
        let Some(real) = self.resolve(folder)? else { return Ok(Vec::new()) };
        let io = |e: std::io::Error| ConfigError::unreadable(folder, reason(&e));
        let entries = std::fs::read_dir(real).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
        let mut names: Vec<_> = entries.into_iter().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Opens without blocking, so that a pipe cannot hang us, and looks at what was opened, not at what was there before.
fn read_regular(path: &str, real: &Path) -> Result<Vec<u8>, ConfigError> {
    let io = |e: std::io::Error| ConfigError::unreadable(path, reason(&e));
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(real).map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        return Err(ConfigError::unreadable(path, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() > MAX_BYTES {
        return Err(ConfigError::unreadable(path, format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// `permission denied` instead of `Permission denied (os error 13)`.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f90_what_is_no_plain_file_of_the_repository_is_an_error_and_not_missing() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("p.yml"), "a: 1").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("good.yml"), "a: 1").unwrap();
        std::fs::write(at("big.yml"), vec![b' '; MAX_BYTES + 1]).unwrap();
        std::fs::create_dir(at("folder.yml")).unwrap();
        std::os::unix::fs::symlink(at("good.yml"), at("inside.yml")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("p.yml"), at("outside.yml")).unwrap();
        std::os::unix::fs::symlink("/nowhere", at("dangling.yml")).unwrap();
        std::os::unix::fs::symlink("loop.yml", at("loop.yml")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo.yml"), rustix::fs::Mode::RUSR).unwrap();
        let source = DiskSource::new(dir.path());
        assert_eq!(source.read("missing.yml").unwrap(), None);
        assert_eq!(source.read("good.yml").unwrap().unwrap(), b"a: 1");
        assert_eq!(source.read("inside.yml").unwrap().unwrap(), b"a: 1");
        for name in ["big", "folder", "outside", "dangling", "loop", "fifo", "good.yml/x"] {
            let name = format!("{name}.yml");
            let error = source.read(&name).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        }
        assert!(source.list("good.yml").is_err());
        assert!(source.list("nothing").unwrap().is_empty());
        assert!(source.list(".").unwrap().contains(&"good.yml".to_owned()));
    }
}
