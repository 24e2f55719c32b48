//! A run's turn before it is claimed: in its concurrency group, and for room on this machine (R-R8, R-W6). It stays accepted
//! meanwhile; who came first goes first.

use super::carry::Acting;
use super::error::OpsError;
use super::follow;
use super::place::Place;
use crate::domain::breaker::Cause;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::RunId;
use crate::domain::lease::{Holding, Liveness};
use crate::domain::plan::start::Follow;
use crate::domain::quantity::Millis;
use crate::domain::record::{RunInputs, RunRecord};
use crate::domain::run::RunStatus;
use crate::domain::task::{StepBody, WhenBusy};
use crate::domain::turn::{Queue, Turn};
use crate::engine::attempt::held_failure;
use crate::engine::error::EngineError;
use crate::engine::host::{Who, now};
use crate::engine::steps::agent;
use crate::engine::turn::{self, Came, Verdict, Waiting, Wanted};
use crate::process::identity::liveness;
use crate::store::Store;

/// The turns that a run has taken; left when this goes, whatever became of the run.
pub struct Turns<'a> {
    place: &'a Place,
    who: Who,
    taken: Vec<u64>,
    /// Whether somebody came first: what was looked at before may be no longer so.
    pub waited: bool,
}

/// What came of it.
pub enum Queued<'a> {
    /// It is the run's turn.
    Taken(Turns<'a>),
    /// Others come first, and it was not to be waited for.
    Busy(Failure),
    /// Somebody else decided about the run meanwhile.
    Changed,
}

/// Waits for everything that the run must wait for, or says that it would have to.
pub fn take<'a>(
    place: &'a Place,
    store: &mut Store,
    acting: &mut Acting<'_>,
    (run, inputs): (&RunRecord, &RunInputs),
    follow: Follow,
) -> Result<Queued<'a>, OpsError> {
    let mut turns = Turns { place, who: acting.who.clone(), taken: Vec::new(), waited: false };
    for (queue, limit, patience) in queues(inputs, follow) {
        let wanted = Wanted {
            queue,
            run: &run.id,
            agent: None,
            limit: Some(limit),
            insists: false,
            trial: Millis(0),
            takes_over: matches!(run.status, RunStatus::Running | RunStatus::Retrying),
            silent_after: inputs.policy.leases.ttl,
        };
        let mut end = End::GaveUp;
        let mut ask = |store: &Store, _: &turn::Hindrance| -> Result<Verdict, EngineError> {
            if is_changed(store, run)? {
                end = End::Changed;
                return Ok(Verdict::GiveUp);
            }
            refuse_lost_holder(store, &wanted.queue, run)?;
            turns.waited = true;
            Ok(if patience == Follow::No { Verdict::GiveUp } else { Verdict::Wait })
        };
        let who = acting.who.clone();
        // Nothing of the run is under way yet.
        let aside = &mut Vec::new();
        let mut waiting = Waiting { store, who: &who, inbox: acting.inbox, observer: &mut *acting.observer, aside };
        match turn::wait(&mut waiting, &wanted, &mut ask)? {
            Came::Taken(turn) => turns.taken.push(turn),
            Came::GaveUp if end == End::GaveUp => return Ok(Queued::Busy(busy(store, &wanted.queue, run)?)),
            Came::GaveUp | Came::LeaseLost | Came::Canceled => return Ok(Queued::Changed),
            Came::Signal(signal) => {
                let message = format!("{} received: run {} is accepted and waits", signal.kind.name(), run.id);
                return Err(OpsError::about(&run.id, Code::Interrupted, message));
            }
        }
    }
    // Its turn may have come in the same moment in which somebody canceled it.
    Ok(if is_changed(store, run)? { Queued::Changed } else { Queued::Taken(turns) })
}

#[derive(PartialEq, Eq)]
enum End {
    GaveUp,
    Changed,
}

/// The queues of a run in the order in which everybody asks, with how many get on at a time.
fn queues(inputs: &RunInputs, follow: Follow) -> Vec<(Queue, u64, Follow)> {
    let group = inputs.spec.concurrency.as_ref().map(|group| {
        let patience = if group.when_busy == WhenBusy::Queue { follow } else { Follow::No };
        (Queue::Group(group.group.clone()), 1, patience)
    });
    let runs = inputs.policy.concurrency.runs.map(|limit| (Queue::Runs, limit, follow));
    group.into_iter().chain(runs).collect()
}

fn is_changed(store: &Store, run: &RunRecord) -> Result<bool, EngineError> {
    Ok(store.find_run(&run.id)?.is_none_or(|now| now.is_other_than(run)))
}

/// What a run of the group left when its process died must be settled first: waiting would not settle it (R-W6).
fn refuse_lost_holder(store: &Store, queue: &Queue, run: &RunRecord) -> Result<(), EngineError> {
    let Queue::Group(group) = queue else { return Ok(()) };
    let Some(other) = store.group_holder(group)?.filter(|other| *other != run.id) else { return Ok(()) };
    let lost = store.find_run(&other)?.is_some_and(|other| follow::holding(&other) == Holding::Abandoned);
    if !lost {
        return Ok(());
    }
    let message = format!("run {other} of the same group has lost its holder: resume or cancel it first");
    Err(EngineError::failed(Code::GroupBusy, message))
}

fn busy(store: &Store, queue: &Queue, run: &RunRecord) -> Result<Failure, OpsError> {
    let ahead: Vec<String> =
        store.turns_in(queue)?.iter().filter(|t| t.run != run.id).map(|t| t.run.to_string()).collect();
    let code = if matches!(queue, Queue::Group(_)) { Code::GroupBusy } else { Code::Busy };
    let after = if ahead.is_empty() { String::new() } else { format!("; before it: {}", ahead.join(", ")) };
    Ok(Failure::new(code, format!("run {} waits for {}{after}", run.id, queue.what())))
}

/// Whether a process lives that waits for the run's turn or works on it.
pub fn is_waited_for(turns: &[Turn], run: &RunId) -> bool {
    turns.iter().any(|turn| turn.run == *run && lives(turn))
}

/// Whether the process of a turn is not known to be gone.
pub fn lives(turn: &Turn) -> bool {
    liveness(&turn.holder) != Liveness::Dead
}

/// How a run is held: one that is accepted and waits for its turn is held by the process that waits.
pub fn holding(store: &Store, run: &RunRecord) -> Result<Holding, OpsError> {
    if run.status == RunStatus::Pending && is_waited_for(&store.turns()?, &run.id) {
        return Ok(Holding::Held);
    }
    Ok(follow::holding(run))
}

/// Turns that dead processes left keep nobody out.
pub fn forget_the_dead(store: &mut Store, who: &Who, inputs: &RunInputs) -> Result<(), OpsError> {
    for (queue, ..) in queues(inputs, Follow::No) {
        for turn in store.turns_in(&queue)?.iter().filter(|t| liveness(&t.holder) == Liveness::Dead) {
            store.leave_turn(turn.seq, &who.context())?;
        }
    }
    Ok(())
}

/// A provider that only a person can make work again is not walked into by a further run (R-R1): refused before there is
/// one. The way out is the run that met the refusal: resumed, it tries.
pub fn refuse_held_provider(store: &Store, inputs: &RunInputs) -> Result<(), OpsError> {
    let present = now().utc;
    let breakers = store.breakers()?;
    let held = breakers.iter().filter(|b| b.cause == Cause::Person && b.since <= present && present < b.until);
    for step in &inputs.spec.steps {
        let StepBody::Agent { agent, .. } = &step.body else { continue };
        let rules = agent::rules(inputs, agent);
        let provider = rules.provider(&agent.name);
        if let Some(breaker) = held.clone().find(|b| Some(b.provider.as_str()) == provider) {
            let Failure { code, message, .. } = held_failure(breaker);
            let until = crate::report::amount::utc(breaker.until);
            return Err(OpsError::about(&breaker.run, code, format!("{message}; from {until} on a run may try again")));
        }
    }
    Ok(())
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        // What cannot be left now goes with this process: its turns are then those of a dead one.
        let left = self.place.store().and_then(|mut store| {
            let leave = |turn: &u64| store.leave_turn(*turn, &self.who.context());
            Ok(self.taken.iter().try_for_each(leave)?)
        });
        if let Err(error) = left {
            tracing::warn!(%error, "a turn could not be left");
        }
    }
}
