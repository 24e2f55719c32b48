//! Where everything of one run lies (contract §2). Only paths: nothing is opened or checked here.

use std::path::{Path, PathBuf};

use crate::domain::ids::StepKey;

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

/// A file that belongs to one execution of a step. `<step>.<ending>`, and `<step>.2.<ending>` for a second execution in
/// the same attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepFile {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The agent's own stream.
    Events,
    /// What the agent was told.
    Prompt,
}

/// One execution of a step, as its files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execution<'a> {
    /// The attempt.
    pub attempt: u32,
    /// The step.
    pub step: &'a StepKey,
    /// Which execution of the step within the attempt, from 1.
    pub nth: u32,
}

impl StepFile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Stdout, Self::Stderr, Self::Events, Self::Prompt];

    const fn ending(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Events => "events.jsonl",
            Self::Prompt => "prompt.md",
        }
    }
}

impl RunDir {
    /// The folder at a path; [`super::home::Home::run_dir`] is the way to get one.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resume manifest.
    pub fn manifest(&self) -> PathBuf {
        self.path.join("manifest.yml")
    }

    /// Says that the database does not know the run, and that a person has accepted it.
    pub fn forgotten(&self) -> PathBuf {
        self.path.join("not-in-the-database.md")
    }

    /// A file at the top: `report.md`, `result.json` …
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder of an attempt.
    pub fn attempt(&self, attempt: u32) -> PathBuf {
        self.path.join(format!("attempt-{attempt}"))
    }

    /// A file of one execution of a step.
    pub fn step_file(&self, execution: Execution<'_>, file: StepFile) -> PathBuf {
        self.path.join(Self::step_file_name(execution, file))
    }

    /// The same, relative to the run's folder.
    pub fn step_file_name(execution: Execution<'_>, file: StepFile) -> String {
        let Execution { attempt, step, nth } = execution;
        let ending = file.ending();
        match nth {
            0 | 1 => format!("attempt-{attempt}/{step}.{ending}"),
            nth => format!("attempt-{attempt}/{step}.{nth}.{ending}"),
        }
    }

    /// The path of a kept file, relative to the run's folder. `nth` is 1, and grows when an earlier execution of the step
    /// has already kept files: those stay as they were recorded.
    pub fn artifact_name(step: &StepKey, nth: u32, path: &str) -> String {
        match nth {
            0 | 1 => format!("artifacts/{step}/{path}"),
            nth => format!("artifacts/{step}.{nth}/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_contract() {
        let dir = RunDir::at(PathBuf::from("/r/run_182_002"));
        let step = StepKey::new("codex").unwrap();
        let first = Execution { attempt: 1, step: &step, nth: 1 };
        let second = Execution { nth: 2, ..first };
        assert_eq!(dir.step_file(first, StepFile::Stdout), Path::new("/r/run_182_002/attempt-1/codex.stdout"));
        assert_eq!(RunDir::step_file_name(second, StepFile::Events), "attempt-1/codex.2.events.jsonl");
        assert_eq!(RunDir::artifact_name(&step, 1, "a/b.txt"), "artifacts/codex/a/b.txt");
        assert_eq!(RunDir::artifact_name(&step, 3, "a"), "artifacts/codex.3/a");
    }
}
