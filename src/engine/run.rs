//! A run from the moment this process holds it until it rests: attempts, the waits between them, and the last words.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::attempt::{Attempt, AttemptEnd, Calls, Cause, Setting};
use super::closing;
use super::error::EngineError;
use super::heartbeat::{Heartbeat, Lasts, Pulse, lease_until};
use super::held::Held;
use super::host::{Host, Inbox, Message, Who, now};
use super::last_word;
use super::observer::{Notice, Observer};
use super::orphans::{self, Outlived};
use super::recover::{self, LeftWork};
use super::rest;
use super::token::RunToken;
use super::workspace::Copy;
use crate::artifacts::home::make_private;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::{RunId, StepKey};
use crate::domain::policy::Leases;
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::domain::record::{Identity, RunRecord, RunView};
use crate::domain::run::{OpenedBy, RunEvent, RunStatus};
use crate::domain::step::StepState;
use crate::process::signals::StopKind;
use crate::store::{Claim, Hold, Store, StoreError};

/// A run at rest again.
pub struct Rested {
    /// The connection; what became of the run stands in the record.
    pub store: Store,
    /// The signal that stopped it, if one did.
    pub stopped_by: Option<StopKind>,
}

/// A run that this process was given, and how.
pub struct Claimed {
    /// The connection.
    pub store: Store,
    /// The lease.
    pub hold: Hold,
    /// The secret that the attempt's programs get.
    pub token: RunToken,
    /// How the attempt was opened.
    pub opened_by: OpenedBy,
    /// What becomes of the work that earlier attempts left.
    pub left_work: LeftWork,
    /// The last sign of life of the holder before, or when the run came to rest: a claim puts its own in the record.
    pub last_sign: Option<UtcMs>,
    /// True when a person wants a provider tried before its time is over.
    pub insists: bool,
}

/// Claims a run that is at rest, or that its holder has abandoned. An attempt is reserved against the limit, if one is given.
pub fn claim(
    who: &Who,
    mut store: Store,
    run: &RunRecord,
    (opened_by, attempts): (OpenedBy, Option<u64>),
) -> Result<Claimed, EngineError> {
    let event = match (run.status, opened_by) {
        (RunStatus::Pending, _) => RunEvent::Start,
        (RunStatus::Running, _) => RunEvent::TakeOver,
        _ => RunEvent::Resume,
    };
    let policy = store.view(&run.id)?.inputs.policy;
    let token = RunToken::new()?;
    let claim = Claim {
        event,
        opened_by: match event {
            RunEvent::Start => OpenedBy::Start,
            RunEvent::TakeOver => OpenedBy::Takeover,
            _ => opened_by,
        },
        holder: this_process()?,
        lease_until: lease_until(&now(), &policy.leases),
        expected_fence: run.fence,
        attempts: attempts.filter(|_| event != RunEvent::TakeOver),
        token: Some(token.hash()),
    };
    let hold = store.claim(&run.id, &claim, &who.context())?;
    let last_sign = run.heartbeat_at.max(run.finished_at);
    let (opened_by, left_work) = (claim.opened_by, LeftWork::ByCase);
    Ok(Claimed { store, hold, token, opened_by, left_work, last_sign, insists: false })
}

/// This process, as the holder of a lease.
pub fn this_process() -> Result<Identity, EngineError> {
    Ok(crate::process::identity::this_process()?)
}

/// Carries a claimed run out until it rests.
pub fn carry_out(
    host: &Host<'_>,
    inbox: &Inbox,
    mut claimed: Claimed,
    observer: &mut dyn Observer,
) -> Result<Rested, EngineError> {
    let run_until = deadline(&claimed)?;
    let mut waited = Millis(0);
    loop {
        let hold = claimed.hold.clone();
        let (rested, then) = one_attempt(host, inbox, claimed, observer, (run_until, waited))?;
        let Some(wait) = then else { return Ok(rested) };
        let leases = rested.store.view(&hold.run)?.inputs.policy.leases;
        let woken = {
            let lasts = Lasts::until(lease_until(&now(), &leases));
            let _pulse = pulse(host, inbox, (&hold, lasts), leases)?;
            wait_for_retry(inbox, observer, wait)
        };
        if let Some(woken) = woken {
            return interrupted_while_waiting(host, rested.store, &hold.run, woken);
        }
        waited = Millis(waited.0 + wait.0);
        let record = rested.store.find_run(&hold.run)?.ok_or_else(|| gone(&hold.run))?;
        // Somebody else decided about it meanwhile: resumed it, or canceled it.
        if record.fence != hold.fence || record.status != RunStatus::Retrying {
            return Ok(rested);
        }
        let attempts = rested.store.view(&hold.run)?.inputs.budget().task.attempts;
        claimed = match claim(&host.who, rested.store, &record, (OpenedBy::Retry, attempts)) {
            // Other runs of the task are at its last attempts: this one stays where it is until one of them has ended.
            Err(EngineError::Store(StoreError::AttemptsReserved { .. })) => {
                return Ok(Rested { store: Store::open(&host.home.database())?, stopped_by: None });
            }
            claimed => claimed?,
        };
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
) -> Result<(Rested, Option<Millis>), EngineError> {
    let mut view = claimed.store.view(&claimed.hold.run)?;
    // As the holder before left it: time in which nobody worked is no work, and who came later is somebody else.
    view.run.heartbeat_at = claimed.last_sign;
    let mut held = Held::new(claimed.store, claimed.hold.clone(), &view, host.who.clone());
    held.token = Some(claimed.token);
    let done = {
        let pulse = pulse(host, inbox, (&held.hold, held.lasts()), held.inputs.policy.leases);
        let Claimed { left_work, opened_by, insists, .. } = claimed;
        let terms = Terms { view: &view, left_work, opened_by, insists, run_until, waited };
        pulse.and_then(|_pulse| attempt(host, inbox, &mut held, observer, &terms))
    };
    // The pulse has ended: it would take the room that the last word needs.
    match done {
        Ok((stopped_by, wait)) => Ok((Rested { store: held.into_store(), stopped_by }, wait)),
        Err(error) => Err(last_word::say(host, inbox, held, error)),
    }
}

/// What an attempt begins with.
struct Terms<'a> {
    view: &'a RunView,
    left_work: LeftWork,
    opened_by: OpenedBy,
    insists: bool,
    run_until: BootMs,
    /// How long was waited between the attempts before.
    waited: Millis,
}

/// From the first look to the last report. An error leaves the run as it stands in the record.
fn attempt(
    host: &Host<'_>,
    inbox: &Inbox,
    held: &mut Held,
    observer: &mut dyn Observer,
    terms: &Terms<'_>,
) -> Result<(Option<StopKind>, Option<Millis>), EngineError> {
    let Terms { view, left_work, opened_by, insists, run_until, waited } = *terms;
    let keys: Vec<StepKey> = view.steps.iter().map(|s| s.key.clone()).collect();
    observer.notice(&Notice::AttemptBegan {
        run: &view.run.id,
        attempt: held.hold.attempt,
        opened_by,
        steps: &keys,
        budget: &held.inputs.budget(),
    });
    let prepared = prepare(host, held, view, left_work);
    let (copy, end) = match prepared {
        Ok((copy, calls)) => {
            let given = Given { view, copy: &copy, calls, run_until, insists };
            let end = work(host, inbox, held, observer, given);
            let end = end.and_then(|end| unless_tampered(host, held, &copy, end));
            (Some(copy), end)
        }
        Err(error) => (None, Err(error)),
    };
    let end = match end {
        Ok(end) => end,
        Err(error) if error.is_no_verdict() => return Err(error),
        Err(error) => AttemptEnd::Failed(error.failure()),
    };
    let stopped_by = match &end {
        AttemptEnd::Stopped(Cause::Signal(signal)) => Some(signal.kind),
        _ => None,
    };
    let wait = rest::settle(host, held, view, copy, (&end, waited, run_until))?;
    Ok((stopped_by, wait))
}

fn pulse(
    host: &Host<'_>,
    inbox: &Inbox,
    (hold, lasts): (&Hold, Lasts),
    leases: Leases,
) -> Result<Heartbeat, EngineError> {
    let pulse = Pulse {
        database: host.home.database(),
        hold: hold.clone(),
        leases,
        who: host.who.clone(),
        inbox: inbox.sender.clone(),
        lasts,
    };
    Heartbeat::start(pulse)
        .map_err(|e| EngineError::failed(Code::EnvLimit, format!("no thread for the heartbeat: {e}")))
}

/// Ends leftovers, makes the copy ready, settles what was cut.
fn prepare(
    host: &Host<'_>,
    held: &mut Held,
    view: &RunView,
    left_work: LeftWork,
) -> Result<(Copy, Calls), EngineError> {
    let first = held.hold.attempt == 1;
    let dir = host.home.create_run_dir(&held.hold.run)?;
    make_private(&dir.attempt(held.hold.attempt))?;
    let mut outlived = Outlived::Nobody;
    if !first {
        // The first attempt has its folder to show for it; of a later one only the manifest tells a database that was put
        // back that it began (F14, R-S4).
        closing::write_manifest(host, held)?;
        outlived = orphans::end_leftovers(host, held, view)?;
        host.repo.reclaim_locks(held.hold.run.as_str(), &host.home.work_dir(&held.hold.run)?)?;
    }
    let copy = Copy::prepare(host, held, view)?;
    let calls = if first { Calls::new() } else { recover::settle(host, held, &copy, (view, left_work, outlived))? };
    Ok((copy, calls))
}

/// What an attempt works with.
struct Given<'a> {
    view: &'a RunView,
    copy: &'a Copy,
    calls: Calls,
    run_until: BootMs,
    insists: bool,
}

fn work(
    host: &Host<'_>,
    inbox: &Inbox,
    held: &mut Held,
    observer: &mut dyn Observer,
    given: Given<'_>,
) -> Result<AttemptEnd, EngineError> {
    // Before anything is executed: what the holder before us did not live to see.
    if let Some(failure) = given.copy.guard.check(host, held, &given.copy.workspace, None)? {
        return Ok(AttemptEnd::Failed(failure));
    }
    // A cancel may have been asked for while nobody worked on the run, or on the way here.
    if held.store().find_run(&held.hold.run)?.is_some_and(|run| run.cancel_requested) {
        return Ok(AttemptEnd::Stopped(Cause::Cancel));
    }
    if let Some(failure) = used_up(held, given.view) {
        return Ok(AttemptEnd::UsedUp(failure));
    }
    let until = BootMs(now().boot.0.saturating_add(held.inputs.policy.timeouts.attempt.0));
    let Given { view, copy, calls, run_until, insists } = given;
    let setting = Setting { host, held, run: &view.run, copy, inbox, observer, calls, until, run_until, insists };
    Attempt::new(setting)?.carry_out()
}

/// The end of an attempt, but where the git folder was changed by a step after the last agent. Looked at once an attempt: a
/// command costs too little to look after each.
fn unless_tampered(host: &Host<'_>, held: &mut Held, copy: &Copy, end: AttemptEnd) -> Result<AttemptEnd, EngineError> {
    let is_known = matches!(&end, AttemptEnd::Failed(failure) if failure.code == Code::GitTamper);
    if is_known || end == AttemptEnd::Stopped(Cause::LeaseLost) {
        return Ok(end);
    }
    let tampered = copy.guard.check(host, held, &copy.workspace, None)?;
    Ok(tampered.map_or(end, AttemptEnd::Failed))
}

/// Whether the holder before died in the last attempt that the task had. What it left is settled by now: work that it had
/// finished is kept, and with no step open the run is done; anything more would be one attempt too many (R-R3).
pub fn used_up(held: &Held, view: &RunView) -> Option<Failure> {
    let limit = held.inputs.budget().task.attempts?;
    let is_done = held.steps.iter().all(|s| matches!(s.state, StepState::Succeeded | StepState::Skipped));
    let no_more = view.was_taken_over() && !is_done && view.task_usage.failed_attempts >= limit;
    no_more.then(|| Failure::new(Code::WorkerCrash, format!("its process died in the last of {limit} attempts")))
}

/// Why a wait was not waited to its end.
enum Woken {
    Signal(StopKind),
    Cancel,
}

/// Waits between two attempts.
fn wait_for_retry(inbox: &Inbox, observer: &mut dyn Observer, wait: Millis) -> Option<Woken> {
    let until = now().boot.0.saturating_add(wait.0);
    let at = now().utc.plus(wait);
    observer.notice(&Notice::Waiting { until: at, why: "the next attempt" });
    loop {
        let left = until.saturating_sub(now().boot.0);
        match inbox.receiver.recv_timeout(Duration::from_millis(left)) {
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            Ok(Message::Signal(signal)) => return Some(Woken::Signal(signal.kind)),
            Ok(Message::CancelRequested) => return Some(Woken::Cancel),
            Ok(
                Message::Child(..)
                | Message::Carried(..)
                | Message::Verified(..)
                | Message::Wished(_)
                | Message::ClockSet { .. }
                | Message::LeaseLost
                | Message::RecordFails(_),
            ) => {}
        }
    }
}

/// A signal between two attempts: the run stays RETRYING with its `retry_at`; a cancel is carried out.
fn interrupted_while_waiting(
    host: &Host<'_>,
    mut store: Store,
    run: &RunId,
    woken: Woken,
) -> Result<Rested, EngineError> {
    let record = store.find_run(run)?.ok_or_else(|| gone(run))?;
    if record.cancel_requested {
        store.cancel_at_rest(run, record.fence, &host.who.context())?;
        return Ok(Rested { store, stopped_by: None });
    }
    let stopped_by = match woken {
        Woken::Signal(kind) => Some(kind),
        Woken::Cancel => None,
    };
    Ok(Rested { store, stopped_by })
}

/// When a parked run may be tried again.
pub fn is_due(run: &RunRecord, present: UtcMs) -> bool {
    run.retry_at.is_none_or(|at| at <= present)
}
