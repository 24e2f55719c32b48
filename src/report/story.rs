//! What a report tells, in which order (R-U3): verdict and reason first, then what changed, the checks, what to know, how it
//! went, what it cost, what was kept. Said once, as data, for Markdown and HTML alike. Every text in it is neutral (F94);
//! escaping is left to the format. How a story is made of a record stands in `super::tell`.

use super::input::FileChange;

/// A report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// The run's id.
    pub run: String,
    /// Of the task.
    pub title: Option<String>,
    /// The status, as it is recorded.
    pub status: String,
    /// How that is to be taken.
    pub tone: Tone,
    /// The meaning in a sentence, and the three facts of the outcome.
    pub verdict: Vec<String>,
    /// The next command.
    pub next: Option<String>,
    /// Names and values: task, commit, versions, times.
    pub facts: Vec<Fact>,
    /// What changed.
    pub changes: Vec<FileChange>,
    /// The changes themselves.
    pub patch: Option<Excerpt>,
    /// The checks, with the end of what a red one wrote.
    pub checks: Vec<StepLine>,
    /// The attempts.
    pub attempts: Vec<AttemptLine>,
    /// The steps.
    pub steps: Vec<StepLine>,
    /// Figures against limits.
    pub usage: Vec<UsageLine>,
    /// What was kept.
    pub artifacts: Vec<ArtifactLine>,
    /// Differences that somebody accepted, limits that somebody raised.
    pub accepted: Vec<String>,
    /// What a reader should know.
    pub warnings: Vec<String>,
    /// The agent's last word.
    pub last_word: Option<String>,
    /// Where the audit chain stands.
    pub audit: String,
}

/// How something is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Well.
    Good,
    /// Not well.
    Bad,
    /// Neither yet.
    Open,
}

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: String,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The file, relative to the run's folder.
    pub path: String,
    /// The part.
    pub text: String,
    /// True when the file holds more.
    pub cut: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLine {
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// Where it stands.
    pub state: String,
    /// How that is to be taken.
    pub tone: Tone,
    /// How often it was executed.
    pub runs: u32,
    /// How long its newest execution took.
    pub duration: Option<String>,
    /// Why it stands there.
    pub reason: Option<String>,
    /// The end of what it wrote.
    pub output: Option<Excerpt>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLine {
    /// From 1.
    pub number: u32,
    /// Who opened it.
    pub opened_by: String,
    /// Where it stands, with the reason.
    pub state: String,
    /// When it began.
    pub started: String,
    /// How long it took.
    pub duration: Option<String>,
    /// What was executed in it, in order.
    pub executions: Vec<String>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLine {
    /// What.
    pub name: String,
    /// In the run.
    pub run: String,
    /// In the task, since its last success.
    pub task: String,
    /// The task's limit.
    pub limit: String,
}

/// One kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactLine {
    /// Its type.
    pub kind: String,
    /// Its path in the run's folder.
    pub path: String,
    /// Its size.
    pub size: String,
    /// 64 hex digits.
    pub sha256: String,
}
