//! Who holds a run. A claim opens an attempt and raises the fence, in one transaction that also closes the attempt of
//! the holder before; from then on that holder's writes are turned down (R-R6, R-R7). Whether a run may be taken
//! is decided in `domain::lease`, not here.

use rusqlite::Connection;
use serde_json::json;

use super::calls::{Beat, Claim, Context, Hold};
use super::error::{Result, StoreError};
use super::write::{Fact, Writer};
use super::{Store, TENANT, rows, turns, usage};
use crate::domain::event::EventKind;
use crate::domain::ids::RunId;
use crate::domain::machine::{Refused, Word};
use crate::domain::quantity::BootMs;
use crate::domain::run::{ATTEMPT, AttemptEvent, AttemptState, RUN, RunEvent, RunStatus};
use crate::failpoints::{self, When};

/// A run as a write finds it.
pub(super) struct Found {
    pub seq: i64,
    pub task: i64,
    pub epoch: i64,
    pub status: RunStatus,
    pub attempt: u32,
    pub fence: u64,
    pub cancel_requested: bool,
    pub group: Option<String>,
}

/// Finds a run for writing.
pub(super) fn find(w: &Writer<'_>, run: &RunId) -> Result<Found> {
    let sql = "SELECT r.seq, r.task, t.epoch, r.status, r.attempt, r.fence, r.cancel_requested, r.concurrency_group \
               FROM run r JOIN task t ON t.seq = r.task WHERE r.tenant = ?1 AND r.id = ?2";
    let found = rows::first(w.db(), sql, (TENANT, run.as_str()), |row| {
        Ok(Found {
            seq: row.take()?,
            task: row.take()?,
            epoch: row.take()?,
            status: row.word()?,
            attempt: row.take()?,
            fence: row.count()?,
            cancel_requested: row.take()?,
            group: row.take()?,
        })
    })?;
    found.ok_or_else(|| StoreError::no_run(run))
}

/// The `IN (…)` of a conditional update: the words of the states, which are ours and need no quoting beyond this.
pub(super) fn in_list<S: Word>(states: &[S]) -> String {
    let words: Vec<_> = states.iter().map(|state| format!("'{}'", state.word())).collect();
    words.join(", ")
}

/// The run that is RUNNING in a concurrency group.
pub(super) fn group_holder(w: &Writer<'_>, group: &str) -> Result<Option<RunId>> {
    holder_of_group(w.db(), group)
}

/// The same, outside of a write.
pub(super) fn holder_of_group(db: &Connection, group: &str) -> Result<Option<RunId>> {
    let sql = "SELECT id FROM run WHERE tenant = ?1 AND concurrency_group = ?2 AND status = 'RUNNING'";
    rows::first(db, sql, (TENANT, group), |row| Ok(RunId::recorded(row.take::<String>()?)))
}

impl Store {
    /// Claims a run: opens its next attempt under the next fence. Of any number of callers that saw the same fence
    /// exactly one succeeds; the others get [`StoreError::Held`].
    pub fn claim(&mut self, run: &RunId, claim: &Claim, ctx: &Context) -> Result<Hold> {
        self.write(ctx, |w| self::claim(w, run, claim))
    }

    /// Says that the holder lives, and until when. Leaves no event: nothing changes but a time.
    pub fn heartbeat(&mut self, hold: &Hold, lease_until: BootMs, ctx: &Context) -> Result<Beat> {
        let beat = self.write(ctx, |w| {
            let sql = "UPDATE run SET heartbeat_at = ?4, lease_until = max(lease_until, ?5) \
                       WHERE tenant = ?1 AND id = ?2 AND fence = ?3 AND status IN ('RUNNING', 'RETRYING')";
            let until = rows::int(lease_until.0);
            let params = (TENANT, hold.run.as_str(), rows::int(hold.fence), w.now(), until);
            let touched = w.run(sql, params)?;
            let found = find(w, &hold.run)?;
            match touched {
                0 if found.fence != hold.fence => Err(fenced(hold, &found)),
                0 => Err(refused(found.status, "heartbeat").into()),
                _ => {
                    turns::keep_of_run(w, found.seq)?;
                    Ok(Beat { cancel_requested: found.cancel_requested })
                }
            }
        })?;
        let _ = failpoints::reached(When::After, "heartbeat");
        Ok(beat)
    }
}

/// The refusal of something that is no event of the table.
pub(super) fn refused(status: RunStatus, event: &str) -> Refused {
    Refused { machine: RUN.name, state: status.word().to_owned(), event: event.to_owned() }
}

/// The refusal of a holder whose fence is not the newest.
pub(super) fn fenced(hold: &Hold, found: &Found) -> StoreError {
    StoreError::Fenced { run: hold.run.clone(), fence: hold.fence, held_by: found.fence }
}

/// Claims a run inside a transaction.
pub(super) fn claim(w: &mut Writer<'_>, run: &RunId, claim: &Claim) -> Result<Hold> {
    let found = find(w, run)?;
    if found.fence != claim.expected_fence {
        return Err(StoreError::Held { run: run.clone(), fence: found.fence });
    }
    let kind = claimed_kind(claim.event).ok_or_else(|| RUN.refusal(found.status.word(), claim.event))?;
    RUN.next(found.status, claim.event)?;
    if let Some(group) = &found.group
        && let Some(other) = group_holder(w, group)?.filter(|other| other != run)
    {
        return Err(StoreError::GroupBusy { group: group.clone(), run: other });
    }
    reserve_attempt(w, &found, claim)?;
    let hold = Hold { run: run.clone(), attempt: found.attempt + 1, fence: found.fence + 1 };
    take(w, &found, claim, &hold)?;
    lose_attempt(w, &found, &hold)?;
    open_attempt(w, &found, claim, &hold)?;
    let body = json!({
        "from": found.status, "attempt": hold.attempt, "fence": hold.fence, "opened_by": claim.opened_by,
        "holder": claim.holder,
    });
    w.append(&fact(&hold, kind, body))?;
    Ok(hold)
}

/// An attempt is set aside from the task's limit before it begins (R-R4): runs of one task that are side by side cannot
/// pass it together. What it takes is given back when it ends without having failed.
fn reserve_attempt(w: &Writer<'_>, found: &Found, claim: &Claim) -> Result<()> {
    let Some(limit) = claim.attempts else { return Ok(()) };
    let used = usage::of_task(w.db(), found.task, found.epoch)?.failed_attempts;
    let reserved = usage::open_attempts(w.db(), found.task, found.epoch)?;
    if used.saturating_add(reserved) < limit {
        return Ok(());
    }
    Err(StoreError::AttemptsReserved { limit, used, reserved })
}

/// An event of a holder.
pub(super) fn fact(hold: &Hold, kind: EventKind, body: serde_json::Value) -> Fact<'_> {
    let (attempt, fence) = (Some(hold.attempt), Some(hold.fence));
    Fact { kind, run: Some(&hold.run), attempt, fence, step: None, reason: None, body }
}

fn claimed_kind(event: RunEvent) -> Option<EventKind> {
    match event {
        RunEvent::Start => Some(EventKind::RunStarted),
        RunEvent::Resume => Some(EventKind::RunResumed),
        RunEvent::TakeOver => Some(EventKind::RunTakenOver),
        _ => None,
    }
}

/// The conditional update: it takes the run only from a state of the table and only under the fence that was seen.
fn take(w: &Writer<'_>, found: &Found, claim: &Claim, hold: &Hold) -> Result<()> {
    let sql = format!(
        "UPDATE run SET status = 'RUNNING', attempt = ?2, fence = ?3, started_at = coalesce(started_at, ?4), \
         finished_at = NULL, heartbeat_at = ?4, code = NULL, message = NULL, retry_at = NULL, lease_pid = ?5, \
         lease_start_ticks = ?6, lease_boot_id = ?7, lease_until = ?8, token_hash = ?10 \
         WHERE seq = ?1 AND fence = ?9 AND status IN ({})",
        in_list(RUN.sources(claim.event))
    );
    let process = &claim.holder;
    let params = rusqlite::params![
        found.seq,
        hold.attempt,
        rows::int(hold.fence),
        w.now(),
        process.pid,
        rows::int(process.start_ticks),
        process.boot_id.0,
        rows::int(claim.lease_until.0),
        rows::int(found.fence),
        claim.token.map(|token| token.0),
    ];
    match w.run(&sql, params)? {
        1 => Ok(()),
        _ => Err(RUN.refusal(found.status.word(), claim.event).into()),
    }
}

fn open_attempt(w: &Writer<'_>, found: &Found, claim: &Claim, hold: &Hold) -> Result<()> {
    w.run(
        "INSERT INTO attempt (run, number, task, epoch, state, opened_by, started_at, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        rusqlite::params![
            found.seq,
            hold.attempt,
            found.task,
            found.epoch,
            ATTEMPT.initial.word(),
            claim.opened_by.word(),
            w.now(),
            rows::int(hold.fence),
        ],
    )?;
    Ok(())
}

/// The attempt that the holder before left open is LOST, and counts (R-R4). Its steps stay RUNNING: the new holder looks
/// at each of them and records either that it was finished after all or that it was cut (R-W4).
pub(super) fn lose_attempt(w: &mut Writer<'_>, found: &Found, hold: &Hold) -> Result<()> {
    let open = "SELECT number FROM attempt WHERE run = ?1 AND state = 'RUNNING' ORDER BY number";
    let open = rows::all(w.db(), open, [found.seq], |row| row.take::<u32>())?;
    let sql = format!(
        "UPDATE attempt SET state = ?3, finished_at = ?4, fence = ?5 WHERE run = ?1 AND number = ?2 AND state IN ({})",
        in_list(ATTEMPT.sources(AttemptEvent::Lose))
    );
    for number in open {
        w.run(&sql, (found.seq, number, AttemptState::Lost.word(), w.now(), rows::int(hold.fence)))?;
        let body = json!({ "attempt": number, "event": AttemptEvent::Lose, "state": AttemptState::Lost });
        let reason = Some("its holder was gone");
        w.append(&Fact { reason, attempt: Some(number), ..fact(hold, EventKind::AttemptEnded, body) })?;
    }
    Ok(())
}
