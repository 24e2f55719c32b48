//! All that a report is made of, owned, for the tests of what is rendered.

use super::input::{FileChange, PatchText, ReportInput, StepTail};
use crate::domain::budget::Budget;
use crate::domain::event::Event;
use crate::domain::plan::meaning::Meaning;
use crate::domain::record::RunView;

pub struct World {
    pub view: RunView,
    pub meaning: Meaning,
    pub changes: Vec<FileChange>,
    pub patch: PatchText,
    pub events: Vec<Event>,
    pub tails: Vec<StepTail>,
    pub warnings: Vec<String>,
    pub limits: Budget,
}

impl World {
    pub fn input(&self) -> ReportInput<'_> {
        ReportInput {
            view: &self.view,
            meaning: &self.meaning,
            changes: &self.changes,
            patch: Some(&self.patch),
            events: &self.events,
            tails: &self.tails,
            limits: &self.limits,
            warnings: &self.warnings,
        }
    }
}
