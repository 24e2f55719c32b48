//! A run from the moment this process holds it until it rests: attempts, the waits between them, and the last words.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::attempt::{Attempt, AttemptEnd, Calls, Cause, Setting};
use super::closing;
use super::error::EngineError;
use super::heartbeat::{Heartbeat, Pulse, lease_until};
use super::held::Held;
use super::host::{Host, Inbox, Message, Who, now};
use super::meter::Meter;
use super::observer::{Notice, Observer};
use super::recover;
use super::workspace::Copy;
use crate::artifacts::home::make_private;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::{RunId, StepKey};
use crate::domain::plan::after_failure::{self, Then, Tried};
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::domain::record::{Identity, RunRecord, RunView};
use crate::domain::run::{AttemptEvent, OpenedBy, RunEvent, RunStatus};
use crate::domain::task::WorkspaceKind;
use crate::store::{Claim, Decision, Hold, Store};

/// A run that this process was given, and how.
pub struct Claimed {
    /// The connection.
    pub store: Store,
    /// The lease.
    pub hold: Hold,
    /// How the attempt was opened.
    pub opened_by: OpenedBy,
}

/// Claims a run that is at rest, or that its holder has abandoned.
pub fn claim(who: &Who, mut store: Store, run: &RunRecord, opened_by: OpenedBy) -> Result<Claimed, EngineError> {
    let event = match (run.status, opened_by) {
        (RunStatus::Pending, _) => RunEvent::Start,
        (RunStatus::Running, _) => RunEvent::TakeOver,
        _ => RunEvent::Resume,
    };
    let policy = store.view(&run.id)?.inputs.policy;
    let claim = Claim {
        event,
        opened_by: if event == RunEvent::TakeOver { OpenedBy::Takeover } else { opened_by },
        holder: this_process()?,
        lease_until: lease_until(&now(), &policy.leases),
        expected_fence: run.fence,
    };
    let hold = store.claim(&run.id, &claim, &who.context())?;
    Ok(Claimed { store, hold, opened_by: claim.opened_by })
}

/// This process, as the holder of a lease.
pub fn this_process() -> Result<Identity, EngineError> {
    Ok(crate::process::identity::this_process()?)
}

/// Carries a claimed run out until it rests. Answers the connection; what became of the run stands in the record.
pub fn carry_out(
    host: &Host<'_>,
    inbox: &Inbox,
    mut claimed: Claimed,
    observer: &mut dyn Observer,
) -> Result<Store, EngineError> {
    let run_until = deadline(&claimed)?;
    let mut waited = Millis(0);
    loop {
        let run = claimed.hold.run.clone();
        let (store, then) = one_attempt(host, inbox, claimed, observer, (run_until, waited))?;
        let Some(wait) = then else { return Ok(store) };
        if !wait_for_retry(inbox, observer, wait) {
            return interrupted_while_waiting(host, store, &run);
        }
        waited = Millis(waited.0 + wait.0);
        let record = store.find_run(&run)?.ok_or_else(|| gone(&run))?;
        claimed = claim(&host.who, store, &record, OpenedBy::Retry)?;
    }
}

fn gone(run: &RunId) -> EngineError {
    EngineError::failed(Code::NotFound, format!("run {run} is no longer in the database"))
}

/// The run's own clock counts from its creation; what it waited for a person is not known here and never counts against it,
/// so a resumed run begins with a whole one.
fn deadline(claimed: &Claimed) -> Result<BootMs, EngineError> {
    let view = claimed.store.view(&claimed.hold.run)?;
    Ok(BootMs(now().boot.0.saturating_add(view.inputs.policy.timeouts.run.0)))
}

/// One attempt and its record. Answers how long to wait before the next, if there is one.
fn one_attempt(
    host: &Host<'_>,
    inbox: &Inbox,
    claimed: Claimed,
    observer: &mut dyn Observer,
    (run_until, waited): (BootMs, Millis),
) -> Result<(Store, Option<Millis>), EngineError> {
    let view = claimed.store.view(&claimed.hold.run)?;
    let mut held = Held::new(claimed.store, claimed.hold.clone(), &view, host.who.clone());
    let _pulse = pulse(host, inbox, &held)?;
    let keys: Vec<StepKey> = view.steps.iter().map(|s| s.key.clone()).collect();
    observer.notice(&Notice::AttemptBegan {
        run: &view.run.id,
        attempt: held.hold.attempt,
        opened_by: claimed.opened_by,
        steps: &keys,
        budget: &Meter::budget_of(&held),
    });
    let prepared = prepare(host, &mut held, &view);
    let (copy, end) = match prepared {
        Ok((copy, calls)) => {
            let end = work(host, inbox, &mut held, observer, (&view, &copy, calls, run_until));
            (Some(copy), end)
        }
        Err(error) => (None, Err(error)),
    };
    let end = match end {
        Ok(end) => end,
        Err(error) if is_beyond_recording(&error) => return Err(error),
        Err(error) => AttemptEnd::Failed(error.failure()),
    };
    let wait = settle(host, &mut held, &view, copy, (&end, waited))?;
    Ok((held.into_store(), wait))
}

/// Failures of the record itself: there is nothing left to write them to.
fn is_beyond_recording(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(_))
}

fn pulse(host: &Host<'_>, inbox: &Inbox, held: &Held) -> Result<Heartbeat, EngineError> {
    let pulse = Pulse {
        database: host.home.database(),
        hold: held.hold.clone(),
        leases: held.inputs.policy.leases,
        who: host.who.clone(),
        inbox: inbox.sender.clone(),
    };
    Heartbeat::start(pulse)
        .map_err(|e| EngineError::failed(Code::EnvLimit, format!("no thread for the heartbeat: {e}")))
}

/// Ends leftovers, makes the copy ready, settles what was cut.
fn prepare(host: &Host<'_>, held: &mut Held, view: &RunView) -> Result<(Copy, Calls), EngineError> {
    let first = held.hold.attempt == 1;
    let dir = host.home.create_run_dir(&held.hold.run)?;
    make_private(&dir.attempt(held.hold.attempt))?;
    if !first {
        recover::end_leftovers(host, held, view)?;
    }
    let copy = Copy::prepare(host, held, &view.run.components.base_commit)?;
    let calls = if first { Calls::new() } else { recover::settle(host, held, &copy, view)? };
    Ok((copy, calls))
}

fn work(
    host: &Host<'_>,
    inbox: &Inbox,
    held: &mut Held,
    observer: &mut dyn Observer,
    (view, copy, calls, run_until): (&RunView, &Copy, Calls, BootMs),
) -> Result<AttemptEnd, EngineError> {
    // A cancel may have been asked for while nobody worked on the run, or on the way here.
    if held.store().find_run(&held.hold.run)?.is_some_and(|run| run.cancel_requested) {
        return Ok(AttemptEnd::Stopped(Cause::Cancel));
    }
    let until = BootMs(now().boot.0.saturating_add(held.inputs.policy.timeouts.attempt.0));
    let setting = Setting { host, held, run: &view.run, copy, inbox, observer, calls, until, run_until };
    Attempt::new(setting)?.carry_out()
}

/// Records how the attempt ended, brings the work home, writes the last words. Answers the wait before the next attempt.
fn settle(
    host: &Host<'_>,
    held: &mut Held,
    view: &RunView,
    copy: Option<Copy>,
    (end, waited): (&AttemptEnd, Millis),
) -> Result<Option<Millis>, EngineError> {
    if *end == AttemptEnd::Stopped(Cause::LeaseLost) {
        return Err(EngineError::failed(
            Code::Fenced,
            format!("run {} was taken over by another process", view.run.id),
        ));
    }
    let changed = match &copy {
        Some(copy) => {
            let tip = copy.snapshot(host, held, None)?;
            copy.bring_home(host, held, &tip.commit)?
        }
        None => false,
    };
    let wait = record_end(held, view, (end, waited))?;
    closing::write_reports(host, held)?;
    if wait.is_none() {
        put_away(host, held, copy, (end, changed))?;
    }
    closing::write_manifest(host, held)?;
    Ok(wait)
}

/// The changes of attempt and run, in one commit.
fn record_end(
    held: &mut Held,
    view: &RunView,
    (end, waited): (&AttemptEnd, Millis),
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
        AttemptEnd::Failed(failure) if failure.code == Code::GitTamper => {
            (AttemptEvent::Fail, RunEvent::Block, Some(failure.clone()), None)
        }
        AttemptEnd::Failed(failure) => {
            let then = after_failure::then(failure, &held.inputs.policy.retry, &tried(held, view, waited)?);
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

fn canceled() -> Failure {
    Failure::new(Code::Canceled, "canceled by a person")
}

/// Steps that had not begun are canceled with their run.
fn cancel_steps(held: &mut Held) -> Result<(), EngineError> {
    use crate::domain::step::{StepEvent, StepState};
    let open: Vec<StepKey> = held
        .steps
        .iter()
        .filter(|s| matches!(s.state, StepState::Pending | StepState::Running | StepState::WaitingApproval))
        .map(|s| s.key.clone())
        .collect();
    open.iter().try_for_each(|key| held.move_step(key, StepEvent::Cancel, None))
}

fn tried(held: &Held, view: &RunView, waited: Millis) -> Result<Tried, EngineError> {
    let used = held.store().view(&held.hold.run)?.task_usage;
    let seed = view
        .run
        .fingerprint
        .0
        .iter()
        .fold(u64::from(held.hold.attempt), |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    // The attempt that is ending is not recorded as failed yet.
    Ok(Tried { failed: used.failed_attempts + 1, limit: Meter::budget_of(held).task.attempts, waited, seed })
}

/// The isolated copy goes when its changes are safe: the run has succeeded or was canceled, and what lies in it is a commit.
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
    let where_to = if changed { "its changes are on a branch and in a patch" } else { "it had no changes" };
    copy.workspace.remove(&host.home.work_root())?;
    held.note(EventKind::WorkspaceRemoved, None, where_to)?;
    held.commit()
}

/// Waits between two attempts; a signal ends the wait. Answers whether the wait was waited to its end.
fn wait_for_retry(inbox: &Inbox, observer: &mut dyn Observer, wait: Millis) -> bool {
    let until = now().boot.0.saturating_add(wait.0);
    let at = now().utc.plus(wait);
    observer.notice(&Notice::Waiting { until: at, why: "the next attempt" });
    loop {
        let left = until.saturating_sub(now().boot.0);
        match inbox.receiver.recv_timeout(Duration::from_millis(left)) {
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) | Ok(Message::Signal(_) | Message::CancelRequested) => return false,
            Ok(Message::Child(..) | Message::LeaseLost) => {}
        }
    }
}

/// A signal between two attempts: the run stays RETRYING with its `retry_at`; a cancel is carried out.
fn interrupted_while_waiting(host: &Host<'_>, mut store: Store, run: &RunId) -> Result<Store, EngineError> {
    let record = store.find_run(run)?.ok_or_else(|| gone(run))?;
    if record.cancel_requested {
        let decision = Decision {
            event: RunEvent::Cancel,
            expected_fence: record.fence,
            failure: Some(canceled()),
            retry_at: None,
            reason: "canceled while it waited for its next attempt".to_owned(),
        };
        store.decide(run, &decision, &host.who.context())?;
    }
    Ok(store)
}

/// When a parked run may be tried again.
pub fn is_due(run: &RunRecord, present: UtcMs) -> bool {
    run.retry_at.is_none_or(|at| at <= present)
}
