//! What a report is made of: the record, and what the record does not hold (the changes, the ends of logs), gathered by the
//! caller. Nothing here is rendered.

use crate::domain::budget::Budget;
use crate::domain::event::Event;
use crate::domain::ids::StepKey;
use crate::domain::plan::meaning::Meaning;
use crate::domain::record::RunView;
use crate::words;

/// Everything that a report tells.
#[derive(Debug, Clone, Copy)]
pub struct ReportInput<'a> {
    /// The record.
    pub view: &'a RunView,
    /// What its state means.
    pub meaning: &'a Meaning,
    /// The changed files, in the order of their paths.
    pub changes: &'a [FileChange],
    /// The changes themselves.
    pub patch: Option<&'a PatchText>,
    /// The audit events of the run, oldest first; those worth telling are picked here.
    pub events: &'a [Event],
    /// The ends of the steps' outputs.
    pub tails: &'a [StepTail],
    /// The limits that hold: policy and task together.
    pub limits: &'a Budget,
    /// What else a reader should know.
    pub warnings: &'a [String],
}

words! {
    /// What happened to a file.
    pub enum ChangeKind {
        /// It is new.
        Added = "added",
        /// Its content changed.
        Modified = "modified",
        /// It is gone.
        Deleted = "deleted",
        /// It has another path.
        Renamed = "renamed",
        /// Its mode or type changed.
        Mode = "mode",
    }
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the repository's root.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Lines added; `None` for a binary file.
    pub added: Option<u64>,
    /// Lines removed; `None` for a binary file.
    pub removed: Option<u64>,
}

/// The run's patch, as far as a report shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchText {
    /// The artifact, relative to the run's folder.
    pub path: String,
    /// Its text, or the beginning of it.
    pub text: String,
    /// True when it is longer.
    pub cut: bool,
}

/// The end of what a step wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepTail {
    /// The step.
    pub step: StepKey,
    /// The file, relative to the run's folder.
    pub path: String,
    /// Its end.
    pub text: String,
    /// True when there is more before it.
    pub cut: bool,
}
