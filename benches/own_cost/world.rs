//! A repository to measure in, on the disk that the build folder is on.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// The program: the one just built, or another build to compare it with.
fn agentrun() -> std::ffi::OsString {
    std::env::var_os("OWN_COST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_agentrun").into())
}

/// A repository in a folder that goes away with it.
pub struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// An empty repository with one commit.
    pub fn new() -> Outcome<Self> {
        let world = Self { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))? };
        std::fs::create_dir(world.home())?;
        std::fs::create_dir_all(world.root().join("tasks"))?;
        world.git(&["init", "-q", "-b", "main"])?;
        world.write("README.md", "A repository to measure in.\n")?;
        world.write("automation-policy.yml", POLICY)?;
        world.commit()?;
        Ok(world)
    }

    /// The working files.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("repo")
    }

    /// A home folder of its own: nobody's configuration counts.
    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// A folder beside the repository.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.root().join(".ai-runs/state/agentrun.db")
    }

    /// Writes a file of the repository.
    pub fn write(&self, path: &str, text: &str) -> Outcome<()> {
        Ok(std::fs::write(self.root().join(path), text)?)
    }

    /// Commits everything.
    pub fn commit(&self) -> Outcome<()> {
        self.git(&["add", "-A"])?;
        self.git(&["commit", "-q", "-m", "as it stands"])
    }

    /// agentrun, to be called in the repository.
    pub fn agentrun(&self, arguments: &[&str]) -> Command {
        self.command(agentrun(), arguments)
    }

    /// Any program, to be called in the repository with a small environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.root()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.home());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "bench").env(format!("GIT_{role}_EMAIL"), "bench@localhost");
        }
        command
    }

    fn git(&self, arguments: &[&str]) -> Outcome<()> {
        let root = self.root();
        std::fs::create_dir_all(&root)?;
        let status = self.command("git", arguments).status()?;
        if status.success() { Ok(()) } else { Err(format!("git {arguments:?} ended with {status}").into()) }
    }
}

/// A policy that changes nothing.
pub const POLICY: &str = "version: \"1\"\n";

/// The bench's own program, for the roles that it plays itself.
pub fn this_program() -> Outcome<PathBuf> {
    Ok(std::env::current_exe()?)
}

/// A path as a word of YAML.
pub fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}
