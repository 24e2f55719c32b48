//! Watching a run that another process works on, by its record alone: read-only, and cheap when nothing happens.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::error::OpsError;
use crate::domain::failure::Code;
use crate::domain::ids::RunId;
use crate::domain::lease::{Holding, Liveness, holding as read_lease};
use crate::domain::quantity::Millis;
use crate::domain::record::RunRecord;
use crate::domain::run::RunStatus;
use crate::engine::host::{Inbox, Message, now};
use crate::engine::observer::{Notice, Observer};
use crate::store::Store;

/// How often the database is asked whether it changed. Asking costs microseconds.
const LOOK: Duration = Duration::from_millis(100);

/// How a run is held, as it can be seen from this machine.
pub fn holding(run: &RunRecord) -> Holding {
    let liveness = run.lease.as_ref().map_or(Liveness::Dead, |lease| crate::process::identity::liveness(&lease.holder));
    read_lease(run.lease.as_ref(), liveness, &now())
}

/// Follows a run until it rests or its holder is gone. A signal ends the watching, never the run.
pub fn until_rest(
    store: &Store,
    run: &RunId,
    inbox: &Inbox,
    observer: &mut dyn Observer,
) -> Result<RunRecord, OpsError> {
    let mut told = std::collections::BTreeMap::new();
    let mut seen = None;
    loop {
        let version = store.data_version()?;
        if seen != Some(version) {
            seen = Some(version);
            let record = store.find_run(run)?.ok_or_else(|| gone(run))?;
            tell(store, run, observer, &mut told)?;
            if !matches!(record.status, RunStatus::Running | RunStatus::Pending) {
                return Ok(record);
            }
        }
        match inbox.receiver.recv_timeout(LOOK) {
            Ok(Message::Signal(signal)) => {
                let message = format!("{} received: stopped following; run {run} goes on", signal.kind.name());
                return Err(OpsError::about(run, Code::Busy, message));
            }
            Err(RecvTimeoutError::Disconnected) | Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                let record = store.find_run(run)?.ok_or_else(|| gone(run))?;
                if record.status == RunStatus::Running && holding(&record) == Holding::Abandoned {
                    return Ok(record);
                }
            }
        }
    }
}

fn gone(run: &RunId) -> OpsError {
    OpsError::about(run, Code::NotFound, format!("run {run} is not in the database"))
}

/// Tells of steps that moved since the last look.
fn tell(
    store: &Store,
    run: &RunId,
    observer: &mut dyn Observer,
    told: &mut std::collections::BTreeMap<String, crate::domain::step::StepState>,
) -> Result<(), OpsError> {
    use crate::domain::step::StepState;
    let view = store.view(run)?;
    for step in &view.steps {
        if told.insert(step.key.to_string(), step.state) == Some(step.state) || step.state == StepState::Pending {
            continue;
        }
        if step.state == StepState::Running {
            let what = String::new();
            observer.notice(&Notice::StepBegan { step: &step.key, kind: step.kind, what });
            continue;
        }
        let took = step.started_at.zip(step.finished_at).map_or(Millis(0), |(from, to)| Millis::between(from, to));
        observer.notice(&Notice::StepEnded { step: &step.key, state: step.state, took, failure: None });
    }
    Ok(())
}
