//! Finds a program the way a shell would, but on the PATH that the agent will have, not on agentrun's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::AgentError;

/// A name is searched on PATH; a path is taken as it is, a relative one from `base`.
pub(crate) fn find(name: &str, env: &BTreeMap<OsString, OsString>, base: &Path) -> Result<PathBuf, AgentError> {
    let missing = || AgentError::ProgramNotFound(name.to_owned());
    if name.contains('/') {
        let path = base.join(name);
        return if is_program(&path) { Ok(path) } else { Err(missing()) };
    }
    let path = env.get(OsStr::new("PATH")).ok_or_else(missing)?;
    // A relative entry would mean whatever lies in the working copy, which the agent itself can write.
    let mut found = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name));
    found.find(|candidate| is_program(candidate)).ok_or_else(missing)
}

/// A file that may be executed by somebody.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_entries_of_the_agents_own_path_count() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool");
        std::fs::write(&tool, "#!/bin/sh\n").unwrap();
        let env = |path: String| BTreeMap::from([(OsString::from("PATH"), OsString::from(path))]);
        let path = env(format!(".::{}", dir.path().display()));
        assert!(find("tool", &path, Path::new("/")).is_err(), "not executable");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool", &path, Path::new("/")).unwrap(), tool);
        assert_eq!(find("./tool", &path, dir.path()).unwrap(), dir.path().join("./tool"));
        assert!(find("tool", &env(".".to_owned()), dir.path()).is_err());
        assert!(find("tool", &BTreeMap::new(), dir.path()).is_err());
    }
}
