//! What a fresh clone of a repository that keeps `.ai-runs/` texts in git meets: its folder is closed, not refused; one
//! that holds anything else and is open to others is refused.

#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows test functions only")]

use std::fs::{Permissions, create_dir_all, metadata, set_permissions, write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agentrun::artifacts::home::Home;

fn folder(dir: &Path, mode: u32, names: &[&str]) -> std::path::PathBuf {
    let path = dir.join(".ai-runs");
    create_dir_all(&path).unwrap();
    for name in names {
        write(path.join(name), "x").unwrap();
    }
    set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn f98_a_clone_under_umask_002_is_closed_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = folder(dir.path(), 0o775, &[".gitignore", "README.md"]);
    Home::open(&path).unwrap();
    assert_eq!(metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    Home::open_or_create(&path).unwrap();
}

#[test]
fn f98_what_somebody_may_have_put_there_is_refused_and_left_as_it_is() {
    let rows: [(u32, &[&str]); 4] = [
        (0o775, &[".gitignore", "state"]),
        (0o775, &[]),
        (0o777, &[".gitignore", "README.md"]),
        (0o775, &["README.md"]),
    ];
    for (mode, names) in rows {
        let dir = tempfile::tempdir().unwrap();
        let path = folder(dir.path(), mode, names);
        assert!(Home::open(&path).is_err() && Home::open_or_create(&path).is_err(), "{mode:o} {names:?}");
        assert_eq!(metadata(&path).unwrap().permissions().mode() & 0o777, mode);
    }
}
