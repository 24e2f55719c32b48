//! What is to be started: a plain value, made by whoever knows the program, carried out by the supervisor alone.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::domain::quantity::Millis;

/// A child process to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program: a path, or a name that was already looked up on the PATH of `env`.
    pub program: PathBuf,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// Its whole environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub dir: PathBuf,
    /// Its standard input.
    pub stdin: Stdin,
    /// How it is asked to stop.
    pub stop: StopRule,
    /// Whether the kernel stops it when agentrun dies. Only for programs that live long (T9).
    pub dies_with_parent: bool,
    /// What becomes of its output.
    pub capture: Capture,
}

/// Standard input of a child: never the terminal, never a pipe that somebody may forget to close (FR-A1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Empty,
    /// Exactly the contents of this file.
    File(PathBuf),
}

/// How a child is asked to stop, before it is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopRule {
    /// The polite signal.
    pub polite: PoliteSignal,
    /// How long it may take over each rung of the ladder.
    pub grace: Millis,
}

/// The signal that a program answers by ending cleanly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoliteSignal {
    /// SIGINT: Codex writes its last records and ends its commands.
    Interrupt,
    /// SIGTERM: everybody else.
    Terminate,
}

/// Where output goes. Files are created with their first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// File for standard output.
    pub stdout: PathBuf,
    /// File for standard error.
    pub stderr: PathBuf,
    /// Bytes kept of each; what follows is counted and dropped.
    pub max_bytes: u64,
    /// Whether lines of standard output are also handed over one by one.
    pub lines: Lines,
    /// Texts that must not reach a file or a line; each occurrence is replaced.
    pub secrets: Vec<String>,
}

/// Whether lines are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// Each complete line of standard output becomes an event.
    HandOver,
    /// Output only goes to the files.
    Keep,
}
