//! Coming to rest: how an attempt ended is recorded, its work is brought home, the last words are written, and what is no
//! longer needed is put away.

use super::attempt::{AttemptEnd, Cause};
use super::closing;
use super::error::EngineError;
use super::held::Held;
use super::host::{Host, now};
use super::workspace::Copy;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::lease::Liveness;
use crate::domain::plan::after_failure::{self, Then, Tried};
use crate::domain::quantity::{BootMs, Millis};
use crate::domain::record::{ArtifactRecord, ArtifactType, Identity, RunView};
use crate::domain::run::{AttemptEvent, RunEvent};
use crate::domain::step::{StepEvent, StepState};
use crate::domain::task::{KeepChanges, WorkspaceKind};
use crate::store::{EventFilter, Hold, Store};

/// Records how the attempt ended, brings the work home, writes the last words. Answers the wait before the next attempt.
pub fn settle(
    host: &Host<'_>,
    held: &mut Held,
    view: &RunView,
    copy: Option<Copy>,
    (end, waited, run_until): (&AttemptEnd, Millis, BootMs),
) -> Result<Option<Millis>, EngineError> {
    if *end == AttemptEnd::Stopped(Cause::LeaseLost) {
        return Err(EngineError::failed(
            Code::Fenced,
            format!("run {} was taken over by another process", view.run.id),
        ));
    }
    let brought = copy.as_ref().map_or(Ok(false), |copy| bring_home(host, held, copy));
    let changed = match (brought, end) {
        // The step's failure says the same, and is what has to be recorded; its copy stays as it is.
        (Err(EngineError::Artifact(error)), AttemptEnd::Failed(failure)) if error.code() == failure.code => {
            held.note(EventKind::WarningRaised, None, &format!("the run's patch was not kept: {error}"))?;
            true
        }
        (brought, _) => brought?,
    };
    let left =
        if changed && held.inputs.spec.keep_changes == KeepChanges::Review { Left::ForReview } else { Left::AsUsual };
    // If we die here, whoever takes over makes the copy again from the snapshot, finds nothing left to do, and ends the run.
    put_away(host, held, copy, (end, changed))?;
    let wait = record_end(held, view, left, (end, waited, run_until))?;
    // If we die here, [`catch_up`] writes what is missing.
    closing::write_reports(host, held)?;
    closing::write_manifest(host, held)?;
    Ok(wait)
}

/// The work of the attempt, as a snapshot, a branch and a patch.
fn bring_home(host: &Host<'_>, held: &mut Held, copy: &Copy) -> Result<bool, EngineError> {
    let tip = copy.snapshot(host, held, None)?;
    copy.bring_home(host, held, &tip.commit)
}

/// Whether the last words of a run at rest were written.
pub fn is_told(view: &RunView) -> bool {
    let told = |a: &ArtifactRecord| a.kind == ArtifactType::Result && a.attempt == view.run.attempt;
    view.run.attempt == 0 || view.artifacts.iter().any(told)
}

/// Writes the reports and the manifest of a run at rest whose holder died between the end and its last words (F01). A holder
/// that still lives is at it.
pub fn catch_up(host: &Host<'_>, store: Store, view: &RunView) -> Result<Store, EngineError> {
    let events = store.events(&EventFilter { run: Some(view.run.id.clone()), ..EventFilter::default() })?;
    let holder = events.iter().rev().find_map(|e| serde_json::from_str::<HolderOf>(&e.body).ok());
    if holder.is_some_and(|of| crate::process::identity::liveness(&of.holder) != Liveness::Dead) {
        return Ok(store);
    }
    let hold = Hold { run: view.run.id.clone(), attempt: view.run.attempt, fence: view.run.fence };
    let mut held = Held::new(store, hold, view, host.who.clone());
    closing::write_reports(host, &mut held)?;
    closing::write_manifest(host, &held)?;
    Ok(held.into_store())
}

/// The body of an event by which somebody became a run's holder.
#[derive(serde::Deserialize)]
struct HolderOf {
    holder: Identity,
}

/// Whether a person wants to see what a failed attempt left (`keep_changes: review`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Whoever goes on decides by the case.
    AsUsual,
    /// The run waits for that person.
    ForReview,
}

/// The changes of attempt and run, in one commit.
pub fn record_end(
    held: &mut Held,
    view: &RunView,
    left: Left,
    (end, waited, run_until): (&AttemptEnd, Millis, BootMs),
) -> Result<Option<Millis>, EngineError> {
    let mut wait = None;
    let (attempt, run, failure, retry_at) = match end {
        AttemptEnd::Done => (AttemptEvent::Succeed, RunEvent::Succeed, None, None),
        AttemptEnd::Stopped(Cause::Cancel) => (AttemptEvent::Cancel, RunEvent::Cancel, Some(canceled()), None),
        AttemptEnd::Stopped(Cause::Budget(breach)) => {
            let failure = Failure::new(Code::BudgetExceeded, breach.to_string());
            (AttemptEvent::ExceedBudget, RunEvent::ExceedBudget, Some(failure), None)
        }
        AttemptEnd::Stopped(Cause::Signal(signal)) => {
            let failure = Failure::new(Code::Interrupted, format!("stopped by {}", signal.kind.name()));
            (AttemptEvent::Park, RunEvent::Interrupt, Some(failure), None)
        }
        AttemptEnd::Stopped(Cause::LeaseLost) => return Ok(None),
        // Nothing was tried, so no attempt is used up (FR-G7).
        AttemptEnd::Stopped(Cause::Held(held)) => {
            let event = if held.retry_at.is_some() { RunEvent::Retry } else { RunEvent::Fail };
            (AttemptEvent::Park, event, Some(held.failure.clone()), held.retry_at)
        }
        AttemptEnd::UsedUp(failure) => (AttemptEvent::Park, RunEvent::BuryDead, Some(failure.clone()), None),
        AttemptEnd::Waiting(failure) => (AttemptEvent::Park, RunEvent::Park, Some(failure.clone()), None),
        AttemptEnd::Unknown(failure) => (AttemptEvent::Park, RunEvent::LoseOutcome, Some(failure.clone()), None),
        AttemptEnd::Failed(failure) if failure.code == Code::GitTamper => {
            (AttemptEvent::Fail, RunEvent::Block, Some(failure.clone()), None)
        }
        AttemptEnd::Failed(failure) if left == Left::ForReview || failure.code == Code::ReviewRequired => {
            (AttemptEvent::Fail, RunEvent::Review, Some(failure.clone()), None)
        }
        AttemptEnd::Failed(failure) => {
            let then =
                after_failure::then(failure, &held.inputs.policy.retry, &tried(held, view, (waited, run_until))?);
            let (event, retry_at) = match then {
                Then::Retry(length) => {
                    wait = Some(length);
                    (RunEvent::Retry, Some(now().utc.plus(length)))
                }
                Then::Park(length) => (RunEvent::Retry, Some(now().utc.plus(length))),
                Then::Fail => (RunEvent::Fail, None),
                Then::Bury => (RunEvent::BuryDead, None),
            };
            (AttemptEvent::Fail, event, Some(failure.clone()), retry_at)
        }
    };
    if run == RunEvent::Cancel {
        cancel_steps(held)?;
    }
    held.stage(Change::Attempt { event: attempt, failure: failure.clone() })?;
    if run == RunEvent::Succeed {
        held.stage(Change::CloseLedger)?;
    }
    held.stage(Change::Run { event: run, failure, retry_at })?;
    held.commit()?;
    Ok(wait)
}

/// Why a canceled run stands where it stands.
pub fn canceled() -> Failure {
    Failure::new(Code::Canceled, "canceled by a person")
}

/// Steps that had not begun are canceled with their run.
fn cancel_steps(held: &mut Held) -> Result<(), EngineError> {
    let open: Vec<StepKey> = held
        .steps
        .iter()
        .filter(|s| matches!(s.state, StepState::Pending | StepState::Running | StepState::WaitingApproval))
        .map(|s| s.key.clone())
        .collect();
    open.iter().try_for_each(|key| held.move_step(key, StepEvent::Cancel, None))
}

fn tried(held: &Held, view: &RunView, (waited, run_until): (Millis, BootMs)) -> Result<Tried, EngineError> {
    let used = held.store().view(&held.hold.run)?.task_usage;
    let seed = view
        .run
        .fingerprint
        .0
        .iter()
        .fold(u64::from(held.hold.attempt), |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    // The attempt that is ending is not recorded as failed yet.
    let left = Millis(run_until.0.saturating_sub(now().boot.0));
    Ok(Tried { failed: used.failed_attempts + 1, limit: held.inputs.budget().task.attempts, waited, left, seed })
}

/// The isolated copy goes when its changes are safe: the run has succeeded or was canceled, what lies in it is a commit, and
/// what git alone held in it is pinned.
fn put_away(
    host: &Host<'_>,
    held: &mut Held,
    copy: Option<Copy>,
    (end, changed): (&AttemptEnd, bool),
) -> Result<(), EngineError> {
    let over = matches!(end, AttemptEnd::Done | AttemptEnd::Stopped(Cause::Cancel));
    let Some(copy) = copy.filter(|_| over && held.inputs.spec.workspace == WorkspaceKind::Isolated) else {
        return Ok(());
    };
    let left = copy.keep_loose_ends(host, held)?;
    if !left.is_empty() {
        let remark = format!("the working copy stays at {}: {}", copy.workspace.dir().display(), left.join("; "));
        held.note(EventKind::WarningRaised, None, &remark)?;
        return held.commit();
    }
    let where_to = if changed { "its changes are on a branch and in a patch" } else { "it had no changes" };
    copy.workspace.remove(&host.home.work_root())?;
    held.note(EventKind::WorkspaceRemoved, None, where_to)?;
    held.commit()
}
