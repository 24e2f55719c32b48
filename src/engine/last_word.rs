//! What is still done when the record itself fails: a full, read-only or failing disk (T1, T4, F05–F11), a machine out of
//! threads (F12). First nobody is left at work. Then one last record says where the run stands, into room that was kept for
//! it. Where even that is refused, nothing is written, and whoever comes next takes the run over.

use std::time::{Duration, Instant};

use super::error::EngineError;
use super::held::Held;
use super::host::{Host, Inbox, now};
use super::steps::marker;
use crate::domain::change::{Change, ExecutionEnd, StepMove};
use crate::domain::failure::{Exit, Failure};
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::Millis;
use crate::domain::record::{ExecutionRecord, Identity, RunView, StepRecord};
use crate::domain::run::{AttemptEvent, RunEvent, RunStatus};
use crate::domain::step::{StepEvent, StepState};
use crate::process::leftovers::end_leftovers;
use crate::store::StoreError;

/// How long children may take to be gone.
const LIMIT: Duration = Duration::from_secs(15);
/// How often it is looked whether they are.
const BETWEEN: Duration = Duration::from_millis(5);

/// Ends everything that works for the run, records that it was cut off where that is still possible, and answers the error
/// with how the run stands. An error that says something about the run (it is another's, a bug) comes back as it is.
pub fn say(host: &Host<'_>, inbox: &Inbox, mut held: Held, error: EngineError) -> EngineError {
    let is_empty = end_tree(host, inbox, &held);
    let is_the_runs_own = matches!(&error, EngineError::Store(store) if store.code().entry().exit != Exit::Storage);
    if is_the_runs_own || !error.is_no_verdict() {
        return error;
    }
    let cause = error.failure();
    let run = held.hold.run.clone();
    // Terminal or not: no state of rest while something may still work (faults rule 6).
    let stands = if is_empty { record(host, &mut held, &error, &cause) } else { None };
    let message = match stands {
        Some(Stands::CutOff) => {
            format!("{}; run {run} was stopped, and what was recorded of it is kept", cause.message)
        }
        Some(Stands::TakenOver) => format!("{}; run {run} was taken over by another process meanwhile", cause.message),
        Some(Stands::AtRest) => format!("{}; run {run} has ended, and its last files may be missing", cause.message),
        None => format!(
            "{}; run {run} was stopped and not even that could be recorded: the next resume takes it over",
            cause.message
        ),
    };
    EngineError::CutOff { run, failure: Failure { message, ..cause } }
}

/// How the run stands in the record.
enum Stands {
    CutOff,
    AtRest,
    TakenOver,
}

/// Kills the trees of all children and looks whether anything of the run is left. The inbox is emptied meanwhile: a child
/// that floods it would keep the supervisor from killing it.
fn end_tree(host: &Host<'_>, inbox: &Inbox, held: &Held) -> bool {
    let leaving = host.supervisor.end_all();
    let begin = Instant::now();
    while !leaving.within(Duration::ZERO) {
        if begin.elapsed() > LIMIT {
            return false;
        }
        let _ = inbox.receiver.recv_timeout(BETWEEN);
    }
    // Who has taken the run over has children with the same marker, and they are not ours to end.
    let Some(view) = held.store().view(&held.hold.run).ok().filter(|view| is_ours(view, held)) else { return true };
    let open = view.executions.into_iter().filter(|e| e.finished_at.is_none());
    let known: Vec<Identity> = open.filter_map(|e| e.child).collect();
    let left = end_leftovers(&marker(host, &held.hold), &known, held.inputs.policy.timeouts.grace);
    left.survivors.is_empty()
}

/// Whether the run is held by this process and nobody may take it yet.
fn is_ours(view: &RunView, held: &Held) -> bool {
    let lasts = view.run.lease.as_ref().is_some_and(|lease| lease.until > now().boot);
    view.run.fence == held.hold.fence && view.run.status == RunStatus::Running && lasts
}

/// The last record: what was staged with the run's interruption; where that has no room, the interruption alone. `None` when
/// nothing could be written.
fn record(host: &Host<'_>, held: &mut Held, error: &EngineError, cause: &Failure) -> Option<Stands> {
    if cause.code.entry().exit == Exit::Storage
        && let Err(error) = host.home.release_reserve()
    {
        tracing::warn!(%error, "the reserve could not be released");
    }
    match written(held, error, cause) {
        Ok(stands) => Some(stands),
        Err(error) => {
            tracing::warn!(%error, "the last record could not be written");
            None
        }
    }
}

fn written(held: &mut Held, error: &EngineError, cause: &Failure) -> Result<Stands, EngineError> {
    let mut staged = held.begin_again()?;
    // T1: a commit that failed may be there. Its event was given an id beforehand, and now there is a fresh look at the file.
    if let EngineError::Store(StoreError::CommitUnknown { event, .. }) = error
        && held.store().has_event(event)?
    {
        staged.clear();
    }
    let view = held.store().view(&held.hold.run)?;
    if view.run.fence != held.hold.fence {
        return Ok(Stands::TakenOver);
    }
    if view.run.status != RunStatus::Running {
        return Ok(Stands::AtRest);
    }
    if !staged.is_empty() {
        let ends = staged.iter().any(|change| matches!(change, Change::Run { .. }));
        if !ends {
            staged.extend(cut_off(&held.steps, &view, cause));
        }
        match held.write(&staged) {
            Ok(()) => return Ok(if ends { Stands::AtRest } else { Stands::CutOff }),
            Err(error) => tracing::warn!(%error, "what was staged could not be written"),
        }
        held.begin_again()?;
    }
    held.write(&cut_off(&view.steps, &view, cause))?;
    Ok(Stands::CutOff)
}

/// The run is INTERRUPTED: its steps that were under way go back to PENDING, its attempt does not count as failed.
fn cut_off(steps: &[StepRecord], view: &RunView, cause: &Failure) -> Vec<Change> {
    let mut changes = Vec::new();
    for step in steps.iter().filter(|s| s.state == StepState::Running) {
        let open = |e: &&ExecutionRecord| e.step == step.key && e.finished_at.is_none();
        let lasted = |e: &ExecutionRecord| e.active.max(Millis::between(e.started_at, now().utc));
        // One that is not recorded yet begins with the same write and did nothing.
        let active = view.executions.iter().rev().find(open).map_or(Millis(0), lasted);
        let ended = Some(ExecutionEnd { end: ProcessEnd::Interrupted, result: None, active });
        changes.push(Change::Step(StepMove { ended, ..StepMove::new(&step.key, StepEvent::Interrupt) }));
    }
    changes.push(Change::Attempt { event: AttemptEvent::Park, failure: Some(cause.clone()) });
    changes.push(Change::Run { event: RunEvent::Interrupt, failure: Some(cause.clone()), retry_at: None });
    changes
}
