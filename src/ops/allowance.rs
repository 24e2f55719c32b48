//! Whether the task has an attempt left for a run that is to go on (R-R3, R-R4). Attempts are counted over all runs of the
//! task, crashes included: going on for ever is refused here, before anything is claimed.

use super::error::OpsError;
use crate::domain::event::{Event, EventKind};
use crate::domain::failure::Code;
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::record::{RunInputs, RunView};
use crate::domain::run::{AttemptState, RunEvent, RunStatus};
use crate::store::{EventFilter, Store};

/// The limit against which the next attempt is to be reserved; `None` where there is none, or where it does not hold. Refused
/// when it is used up.
///
/// It does not hold for a dead letter that a person puts back with a reason: that gets its one attempt, also when it was cut
/// off before it had failed. A run whose holder is gone is taken over all the same: what is left of it must be ended and
/// counted, and then it is a dead letter.
pub fn next_attempt(store: &Store, view: &RunView, inputs: &RunInputs) -> Result<Option<u64>, OpsError> {
    let run = &view.run;
    if matches!(run.status, RunStatus::DeadLetter | RunStatus::Running) {
        return Ok(None);
    }
    let limit = inputs.budget().task.attempts;
    let used = view.task_usage.failed_attempts;
    match limit {
        Some(limit) if used >= limit && is_owed_one(store, &run.id)? => Ok(None),
        Some(limit) if used >= limit => {
            let message =
                format!("task.attempts is limited to {limit}, used {used}: raise it with --budget task.attempts=N");
            Err(OpsError::about(&run.id, Code::BudgetExceeded, message))
        }
        limit => Ok(limit),
    }
}

/// Whether a person has put the run back and no attempt has failed since then. Read from the order of its events: clocks
/// jump (F40).
fn is_owed_one(store: &Store, run: &RunId) -> Result<bool, OpsError> {
    let events = store.events(&EventFilter { run: Some(run.clone()), ..EventFilter::default() })?;
    let says = |event: &Event, field: &str, word: &str| {
        let body = serde_json::from_str::<serde_json::Value>(&event.body).unwrap_or_default();
        body[field] == word
    };
    let put_back = |e: &Event| e.kind == EventKind::RunMoved && says(e, "event", RunEvent::Requeue.word());
    let Some(since) = events.iter().rposition(put_back) else { return Ok(false) };
    let used_up = |e: &Event| {
        let counted = [AttemptState::Failed, AttemptState::Lost];
        e.kind == EventKind::AttemptEnded && counted.iter().any(|state| says(e, "state", state.word()))
    };
    Ok(!events[since..].iter().any(used_up))
}
