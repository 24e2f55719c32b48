//! Stops a run for good; its work is kept as branch and patch (R-R9).

use super::carry::{Acting, Answer};
use super::error::OpsError;
use super::find;
use super::follow;
use super::place::Place;
use crate::domain::failure::{Code, Exit};
use crate::domain::lease::Holding;
use crate::domain::record::RunRecord;
use crate::domain::run::{OpenedBy, RunStatus};
use crate::engine::recover::LeftWork;
use crate::engine::run as engine_run;
use crate::report::run_json::Via;
use crate::store::Store;

/// Cancels. A run that somebody works on is stopped by its holder, who keeps its work; this waits for it.
pub fn cancel(place: &Place, mut acting: Acting<'_>, name: &str, reason: Option<&str>) -> Result<Answer, OpsError> {
    let records = place.records()?;
    let run = find::run(place, records.as_ref(), name)?;
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
        return Err(too_late(&run));
    }
    let reason = reason.unwrap_or("canceled on the command line");
    let run = store.request_cancel(&run.id, reason, &acting.who.context())?;
    let is_held = matches!(follow::holding(&run), Holding::Held | Holding::Stuck);
    if !(is_held && matches!(run.status, RunStatus::Running | RunStatus::Retrying)) {
        return at_rest(place, store, acting, &run);
    }
    let run = by_holder(&store, &mut acting, &run)?;
    match run.status {
        RunStatus::Canceled => {
            Ok(Answer { view: store.view(&run.id)?, via: Via::Attached, exit: Exit::Ok, remark: None })
        }
        RunStatus::Succeeded => Err(too_late(&run)),
        // Its holder died, or had come to rest before it looked: now nobody works on it.
        _ => at_rest(place, store, acting, &run),
    }
}

fn too_late(run: &RunRecord) -> OpsError {
    let message = format!("run {} has succeeded and cannot be canceled", run.id);
    OpsError::about(&run.id, Code::InvalidState, message)
}

/// Wakes the holder, who finds the request in the record.
fn by_holder(store: &Store, acting: &mut Acting<'_>, run: &RunRecord) -> Result<RunRecord, OpsError> {
    if let Some(lease) = &run.lease {
        crate::process::identity::wake(&lease.holder);
    }
    follow::until_rest(store, &run.id, acting.inbox, acting.observer)
}

/// Nobody works on it. A run that was worked on before is claimed once more, so that its leftovers are ended and its work
/// is kept in the one place that does both; the engine finds the request before it begins anything.
fn at_rest(place: &Place, mut store: Store, acting: Acting<'_>, run: &RunRecord) -> Result<Answer, OpsError> {
    if run.attempt == 0 {
        store.cancel_at_rest(&run.id, run.fence, &acting.who.context())?;
        let view = store.view(&run.id)?;
        return Ok(Answer { view, via: Via::Resumed, exit: Exit::Ok, remark: None });
    }
    let home = place.home()?;
    let mut claimed = engine_run::claim(&acting.who, store, run, (OpenedBy::Resume, None))?;
    // What lies in the copy is the work that is to be kept.
    claimed.left_work = LeftWork::Keep;
    let mut answer = super::carry::carry_out(place, &home, acting, claimed, Via::Resumed)?;
    if answer.view.run.status == RunStatus::Canceled {
        answer.exit = Exit::Ok;
    }
    Ok(answer)
}
