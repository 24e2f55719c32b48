//! A real repository in a temporary folder, made with the real `git` and nothing of this machine's configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::git::{Repo, Snapshot, Workspace};

/// A repository and a place for working copies, gone at the end of the test.
pub struct World {
    temp: tempfile::TempDir,
    pub root: PathBuf,
}

impl World {
    /// An empty repository.
    pub fn empty() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(temp.path()).unwrap();
        let root = base.join("repo");
        fs::create_dir(&root).unwrap();
        fs::create_dir(base.join("home")).unwrap();
        fs::create_dir(base.join("work")).unwrap();
        let world = Self { temp, root };
        world.git(&["init", "-q", "-b", "main"]);
        world
    }

    /// One commit with a few files.
    pub fn new() -> Self {
        let world = Self::empty();
        world.write("src/a.rs", "one\ntwo\nthree\n");
        world.write("src/b.rs", "b\n");
        world.write("README.md", "hello\n");
        world.write(".gitignore", "target/\n*.log\n");
        world.commit("first");
        world
    }

    pub fn base(&self) -> PathBuf {
        fs::canonicalize(self.temp.path()).unwrap()
    }

    /// A path beside the repository.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.base().join(name)
    }

    pub fn repo(&self) -> Repo {
        Repo::discover(&self.root).unwrap()
    }

    pub fn write(&self, path: &str, text: &str) {
        write(&self.root.join(path), text);
    }

    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs git in the repository; its output without the last line break.
    pub fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.root, args)
    }

    pub fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        let output = self.try_git_in(dir, args);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {err}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    pub fn try_git_in(&self, dir: &Path, args: &[&str]) -> Output {
        self.command(dir).args(args).output().unwrap()
    }

    /// A `git` without this machine's configuration.
    pub fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new("git");
        command.current_dir(dir).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.base().join("home"));
        for (key, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "user"),
            ("GIT_AUTHOR_EMAIL", "user@example.com"),
            ("GIT_COMMITTER_NAME", "user"),
            ("GIT_COMMITTER_EMAIL", "user@example.com"),
        ] {
            command.env(key, value);
        }
        command
    }

    /// An isolated copy of HEAD.
    pub fn workspace(&self) -> Workspace {
        self.workspace_named("run_1_001")
    }

    pub fn workspace_named(&self, name: &str) -> Workspace {
        Workspace::create(&self.repo(), &self.base().join("work").join(name), &self.head()).unwrap()
    }

    /// A snapshot of a copy on top of HEAD.
    pub fn snapshot(&self, workspace: &Workspace) -> Snapshot {
        workspace.snapshot(&self.head(), "snapshot").unwrap()
    }

    /// The paths of a commit.
    pub fn files(&self, commit: &str) -> Vec<String> {
        let text = self.git(&["ls-tree", "-r", "-z", "--name-only", commit]);
        text.split('\0').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
    }

    pub fn show(&self, commit: &str, path: &str) -> String {
        self.git(&["show", &format!("{commit}:{path}")])
    }
}

/// Writes a file and the folders above it.
pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
