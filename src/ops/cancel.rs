//! Stops a run for good; its work is kept as branch and patch (R-R9).

use super::error::OpsError;
use super::find;
use super::follow;
use super::place::Place;
use super::start::{Acting, Answer};
use crate::domain::failure::{Code, Exit, Failure};
use crate::domain::lease::Holding;
use crate::domain::record::RunRecord;
use crate::domain::run::{OpenedBy, RunEvent, RunStatus};
use crate::engine::run as engine_run;
use crate::report::run_json::Via;
use crate::store::{Decision, Store};

/// Cancels. A run that somebody works on is stopped by its holder, who keeps its work; this waits for it.
pub fn cancel(place: &Place, acting: Acting<'_>, name: &str, reason: Option<&str>) -> Result<Answer, OpsError> {
    let records = place.records()?;
    let run = find::run(records.as_ref(), name)?;
    drop(records);
    let mut store = place.store()?;
    if run.status == RunStatus::Canceled {
        let view = store.view(&run.id)?;
        return Ok(Answer {
            view,
            via: Via::Reused,
            exit: Exit::Ok,
            remark: Some("it was canceled before".to_owned()),
        });
    }
    if run.status == RunStatus::Succeeded {
        let message = format!("run {} has succeeded and cannot be canceled", run.id);
        return Err(OpsError::about(&run.id, Code::InvalidState, message));
    }
    let reason = reason.unwrap_or("canceled on the command line");
    let run = store.request_cancel(&run.id, reason, &acting.who.context())?;
    match follow::holding(&run) {
        Holding::Held | Holding::Stuck if run.status == RunStatus::Running => by_holder(store, acting, &run),
        _ => at_rest(place, store, acting, &run, reason),
    }
}

/// Wakes the holder, who finds the request in the record.
fn by_holder(store: Store, acting: Acting<'_>, run: &RunRecord) -> Result<Answer, OpsError> {
    if let Some(lease) = &run.lease {
        crate::process::identity::wake(&lease.holder);
    }
    let record = follow::until_rest(&store, &run.id, acting.inbox, acting.observer)?;
    let view = store.view(&run.id)?;
    if record.status == RunStatus::Canceled {
        return Ok(Answer { view, via: Via::Attached, exit: Exit::Ok, remark: None });
    }
    let message = format!("run {} came to rest as {} before it could be canceled", run.id, record.status);
    Err(OpsError::about(&run.id, Code::InvalidState, message))
}

/// Nobody works on it. A run that was worked on before is claimed once more, so that its leftovers are ended and its work
/// is kept in the one place that does both; the engine finds the request before it begins anything.
fn at_rest(
    place: &Place,
    mut store: Store,
    acting: Acting<'_>,
    run: &RunRecord,
    reason: &str,
) -> Result<Answer, OpsError> {
    if run.attempt == 0 {
        let decision = Decision {
            event: RunEvent::Cancel,
            expected_fence: run.fence,
            failure: Some(Failure::new(Code::Canceled, reason)),
            retry_at: None,
            reason: reason.to_owned(),
        };
        store.decide(&run.id, &decision, &acting.who.context())?;
        let view = store.view(&run.id)?;
        return Ok(Answer { view, via: Via::Resumed, exit: Exit::Ok, remark: None });
    }
    let home = place.home()?;
    let claimed = engine_run::claim(&acting.who, store, run, OpenedBy::Resume)?;
    let mut answer = super::start::carry_out(place, &home, acting, claimed, Via::Resumed)?;
    if answer.view.run.status == RunStatus::Canceled {
        answer.exit = Exit::Ok;
    }
    Ok(answer)
}
