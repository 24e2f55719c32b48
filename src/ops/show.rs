//! One run as it is recorded, and what that means.

use super::error::OpsError;
use super::find;
use super::place::Place;
use super::queue;
use crate::domain::budget::Budget;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::plan::meaning::{Meaning, MeaningInput, meaning, stands_at};
use crate::domain::record::RunView;
use crate::domain::run::RunStatus;
use crate::domain::turn::wait_of;
use crate::engine::host::now;
use crate::engine::workspace::BRANCH_PIN;
use crate::store::{EventFilter, Store};

/// A run, what its state means, and the limits that hold for it.
#[derive(Debug)]
pub struct Shown {
    /// The record.
    pub view: RunView,
    /// What its state means.
    pub meaning: Meaning,
    /// Policy and task together.
    pub limits: Budget,
    /// The branch with its changes, once there is one.
    pub branch: Option<String>,
    /// Remarks of its log that a reader should see.
    pub warnings: Vec<String>,
}

/// Looks a run up.
pub fn show(place: &Place, name: &str) -> Result<Shown, OpsError> {
    let records = place.records()?;
    let run = find::run(place, records.as_ref(), name)?;
    let store = records.ok_or_else(|| OpsError::failed(Code::NotFound, "there is no database"))?;
    of(place, &store, store.view(&run.id)?)
}

/// The run inside which this program was started: an agent looks at its budget.
pub fn own_run(place: &Place) -> Option<String> {
    place.var(crate::config::env_vars::AGENTRUN_RUN_ID)
}

/// What a view means.
pub fn of(place: &Place, store: &Store, view: RunView) -> Result<Shown, OpsError> {
    let limits = view.inputs.budget();
    let is_open = matches!(view.run.status, RunStatus::Pending | RunStatus::Running);
    let wait = if is_open { wait_of(&store.turns()?, &store.breakers()?, &view.run.id) } else { None };
    let meaning = meaning(&MeaningInput {
        run: &view.run,
        holding: queue::holding(store, &view.run)?,
        now: now().utc,
        silent_after: view.inputs.policy.leases.ttl,
        step: stands_at(view.run.status, &view.steps),
        wait: wait.as_ref(),
    });
    let branch = place.repo.pinned(view.run.id.as_str(), BRANCH_PIN)?.map(|_| format!("agentrun/{}", view.run.id));
    let filter =
        EventFilter { run: Some(view.run.id.clone()), kind: Some(EventKind::WarningRaised), ..EventFilter::default() };
    let mut warnings: Vec<String> = store.events(&filter)?.into_iter().filter_map(|e| e.reason).collect();
    warnings.dedup();
    Ok(Shown { view, meaning, limits, branch, warnings })
}
