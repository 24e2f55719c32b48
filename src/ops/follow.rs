//! Watching a run that another process works on, by its record alone: read-only, and cheap when nothing happens.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::error::OpsError;
use crate::domain::failure::Code;
use crate::domain::ids::RunId;
use crate::domain::lease::{Holding, Liveness, holding as read_lease};
use crate::domain::quantity::{BootMs, Millis, UtcMs};
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

/// Whether the holder of a run is gone. One of another boot or machine cannot be seen: it is gone when its heartbeat has
/// stood still for a whole lease by this machine's own clock (faults rule 5).
struct Absence {
    ttl: Millis,
    beat: Option<UtcMs>,
    since: BootMs,
}

impl Absence {
    fn of(store: &Store, run: &RunRecord) -> Result<Self, OpsError> {
        let ttl = store.view(&run.id)?.inputs.policy.leases.ttl;
        Ok(Self { ttl, beat: run.heartbeat_at, since: now().boot })
    }

    fn is_proved(&mut self, run: &RunRecord) -> bool {
        match holding(run) {
            Holding::Abandoned | Holding::Free => true,
            Holding::Held | Holding::Stuck => false,
            Holding::Foreign if run.heartbeat_at == self.beat => {
                now().boot.0.saturating_sub(self.since.0) >= self.ttl.0
            }
            Holding::Foreign => {
                (self.beat, self.since) = (run.heartbeat_at, now().boot);
                false
            }
        }
    }
}

/// Whether the holder of a run on another boot or machine is gone. It takes a whole lease to know.
pub fn holder_is_gone(
    store: &Store,
    run: &RunRecord,
    inbox: &Inbox,
    observer: &mut dyn Observer,
) -> Result<bool, OpsError> {
    let mut absence = Absence::of(store, run)?;
    let why = "whether its process on another machine or boot still lives";
    observer.notice(&Notice::Waiting { until: now().utc.plus(absence.ttl), why });
    loop {
        let present = store.find_run(&run.id)?.ok_or_else(|| gone(&run.id))?;
        if present.heartbeat_at != run.heartbeat_at || present.fence != run.fence {
            return Ok(false);
        }
        if absence.is_proved(&present) {
            return Ok(true);
        }
        if let Ok(Message::Signal(signal)) = inbox.receiver.recv_timeout(LOOK) {
            let message = format!("{} received: run {} is as it was", signal.kind.name(), run.id);
            return Err(OpsError::about(&run.id, Code::Interrupted, message));
        }
    }
}

/// Follows a run until it rests or its holder is gone; one that waits for its next attempt goes on. A signal ends the
/// watching, never the run.
pub fn until_rest(
    store: &Store,
    run: &RunId,
    inbox: &Inbox,
    observer: &mut dyn Observer,
) -> Result<RunRecord, OpsError> {
    let mut told = std::collections::BTreeMap::new();
    let mut absence = Absence::of(store, &store.find_run(run)?.ok_or_else(|| gone(run))?)?;
    let mut seen = None;
    loop {
        let version = store.data_version()?;
        if seen != Some(version) {
            seen = Some(version);
            let record = store.find_run(run)?.ok_or_else(|| gone(run))?;
            tell(store, run, observer, &mut told)?;
            if !matches!(record.status, RunStatus::Running | RunStatus::Pending | RunStatus::Retrying) {
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
                let gone = match record.status {
                    RunStatus::Pending => !super::queue::is_waited_for(&store.turns()?, run),
                    _ => absence.is_proved(&record),
                };
                if gone {
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
