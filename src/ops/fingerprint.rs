//! What makes a run the run it is, and what differs from an earlier one (R-F6).

use super::error::OpsError;
use super::find;
use super::given::{Choices, TaskChoice, given};
use super::place::Place;
use crate::domain::hash::fingerprint::Difference;
use crate::domain::record::RunRecord;
use crate::engine::facts::{self, DirtyRule, Facts};

/// A fingerprint, explained.
#[derive(Debug)]
pub struct Explained {
    /// All components.
    pub facts: Facts,
    /// The run that it was compared with, and what differs.
    pub against: Option<(RunRecord, Vec<Difference>)>,
}

/// Explains.
pub fn fingerprint(
    place: &Place,
    task: &TaskChoice,
    choices: &Choices,
    dirty: DirtyRule,
    against: Option<&str>,
) -> Result<Explained, OpsError> {
    let given = given(place, task, choices, dirty)?;
    let facts = facts::gather(&place.repo, given)?;
    let against = match against {
        None => None,
        Some(name) => {
            let run = find::run(place, place.records()?.as_ref(), name)?;
            let differences = facts.components.differences(&run.components);
            Some((run, differences))
        }
    };
    Ok(Explained { facts, against })
}
