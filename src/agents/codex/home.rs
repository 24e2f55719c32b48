//! Where Codex keeps its login and its session files, and where its temporary files go.
//!
//! Two facts rule this file. Codex refuses to make its sandbox below the temporary folder, and then every command of
//! the model fails while the exit code stays 0. And its sandbox lets commands write to `/tmp` and `$TMPDIR`, so runs that
//! share these are not protected from each other. So each run gets a temporary folder of its own beside the private home.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::super::AgentError;
use crate::domain::policy::AgentHome;

/// The agent's home: the policy's choice between the user's and a private one.
pub(crate) fn codex_home(
    home: AgentHome,
    env: &BTreeMap<OsString, OsString>,
    private_home: &Path,
) -> Result<PathBuf, AgentError> {
    let variable = |name: &str| env.get(OsStr::new(name)).filter(|v| !v.is_empty()).map(PathBuf::from);
    match home {
        AgentHome::Private => Ok(private_home.to_owned()),
        AgentHome::User => variable("CODEX_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".codex")))
            .ok_or(AgentError::NoHome),
    }
}

/// The run's own temporary folder: a sibling of the private home, named after the working copy.
pub(crate) fn temp_folder(private_home: &Path, workspace: &Path) -> PathBuf {
    let mut name = OsString::from("tmp-");
    name.push(workspace.file_name().unwrap_or(OsStr::new("workspace")));
    private_home.with_file_name(name)
}

/// Refuses a home below the temporary folder.
pub(crate) fn check(home: &Path, temp: &Path) -> Result<(), AgentError> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(home).starts_with(real(temp)) {
        return Err(AgentError::HomeBelowTemp { home: home.to_owned(), temp: temp.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect()
    }

    #[test]
    fn the_users_home_is_found_as_codex_finds_it() {
        let private = Path::new("/state/codex");
        let home = |pairs: &[(&str, &str)]| codex_home(AgentHome::User, &env(pairs), private);
        assert_eq!(home(&[("HOME", "/h"), ("CODEX_HOME", "/c")]).unwrap(), Path::new("/c"));
        assert_eq!(home(&[("HOME", "/h"), ("CODEX_HOME", "")]).unwrap(), Path::new("/h/.codex"));
        assert!(matches!(home(&[]), Err(AgentError::NoHome)));
        assert_eq!(codex_home(AgentHome::Private, &env(&[]), private).unwrap(), private);
    }

    #[test]
    fn a_home_below_the_temporary_folder_is_refused() {
        assert!(check(Path::new("/state/codex"), Path::new("/state/tmp-run")).is_ok());
        assert!(check(Path::new("/state/tmp-run/codex"), Path::new("/state/tmp-run")).is_err());
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::fs::create_dir(dir.path().join("temp")).unwrap();
        std::fs::create_dir(dir.path().join("temp/home")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("temp/home"), &link).unwrap();
        assert!(check(&link, &dir.path().join("temp")).is_err(), "through a link");
    }
}
