//! Finds a program the way a shell would, on a given PATH. It starts nothing and reads no environment of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Why there is no such program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Nowhere.
    #[error("program `{0}` is not on the PATH")]
    NotFound(String),
    /// A file of that name is there, but is not a program.
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
}

/// Finds `program`. One with a slash is a path, relative to `dir`; any other is looked up on `path`.
///
/// Entries of the PATH that are not absolute are passed over: they would mean the working copy, where an agent may put
/// a program of any name.
pub fn find_program(program: &OsStr, path: Option<&OsStr>, dir: &Path) -> Result<PathBuf, LookupError> {
    let mut not_executable = None;
    for candidate in candidates(program, path, dir) {
        match kind_of(&candidate) {
            Kind::Program => return Ok(candidate),
            Kind::OtherFile => not_executable = not_executable.or(Some(candidate)),
            Kind::Nothing => {}
        }
    }
    Err(not_executable
        .map_or_else(|| LookupError::NotFound(program.to_string_lossy().into_owned()), LookupError::NotExecutable))
}

enum Kind {
    Program,
    OtherFile,
    Nothing,
}

fn candidates(program: &OsStr, path: Option<&OsStr>, dir: &Path) -> Vec<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return vec![dir.join(program)];
    }
    if program.is_empty() {
        return Vec::new();
    }
    let folders = std::env::split_paths(path.unwrap_or_default());
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(program)).collect()
}

fn kind_of(path: &Path) -> Kind {
    match path.metadata() {
        Ok(found) if found.is_file() && access(path, Access::EXEC_OK).is_ok() => Kind::Program,
        Ok(found) if found.is_file() => Kind::OtherFile,
        _ => Kind::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder_with(name: &str, mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn the_first_executable_of_the_path_is_it() {
        let (plain, first) = (folder_with("tool", 0o644), folder_with("tool", 0o755));
        let path = std::env::join_paths([plain.path(), first.path()]).unwrap();
        let found = find_program(OsStr::new("tool"), Some(&path), Path::new("/"));
        assert_eq!(found, Ok(first.path().join("tool")));
        let only_plain = find_program(OsStr::new("tool"), Some(plain.path().as_os_str()), Path::new("/"));
        assert_eq!(only_plain, Err(LookupError::NotExecutable(plain.path().join("tool"))));
        let none = find_program(OsStr::new("absent"), Some(&path), Path::new("/"));
        assert_eq!(none, Err(LookupError::NotFound("absent".to_owned())));
        assert!(find_program(OsStr::new(""), Some(&path), Path::new("/")).is_err());
        assert!(find_program(OsStr::new("tool"), None, Path::new("/")).is_err());
    }

    #[test]
    fn a_path_is_relative_to_the_folder_given() {
        let folder = folder_with("tool", 0o755);
        let found = find_program(OsStr::new("./tool"), None, folder.path()).unwrap();
        assert!(found.starts_with(folder.path()));
    }

    #[test]
    fn a_relative_entry_of_the_path_is_passed_over() {
        assert!(find_program(OsStr::new("Cargo.toml"), Some(OsStr::new(":.:src")), Path::new("/")).is_err());
    }
}
