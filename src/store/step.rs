//! Steps and their executions move. Each move is one conditional update whose states come from the table of R-M3; a
//! move that finds another state is refused, naming it.

use serde_json::json;

use super::calls::Hold;
use super::claim::{Found, fact, in_list};
use super::error::{Result, StoreError};
use super::rows::{self, int};
use super::write::{Fact, Writer};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::machine::{Refused, Word as _};
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::StepRecord;
use crate::domain::run::RunStatus;
use crate::domain::step::{STEP, StepEvent, StepState};
use crate::domain::task::StepKind;

/// A run that the writer holds, with the numbers that rows refer to.
pub(super) struct Held<'a> {
    pub seq: i64,
    pub task: i64,
    /// The task's ledger; an execution that begins counts into it.
    pub epoch: i64,
    /// The status before the transaction.
    pub found: RunStatus,
    /// The status after the changes so far.
    pub status: RunStatus,
    pub hold: &'a Hold,
}

impl<'a> Held<'a> {
    pub(super) fn of(found: &Found, hold: &'a Hold) -> Self {
        let Found { seq, task, epoch, status, .. } = *found;
        Self { seq, task, epoch, found: status, status, hold }
    }
}

/// What happens to a step.
pub(super) struct Move<'a> {
    pub event: StepEvent,
    pub failure: Option<&'a Failure>,
    pub because_of: Option<&'a StepKey>,
}

impl Move<'_> {
    pub(super) fn by(event: StepEvent) -> Self {
        Self { event, failure: None, because_of: None }
    }
}

/// Moves a step. Into RUNNING it opens an execution; out of RUNNING it closes one that is still open.
pub(super) fn move_step(w: &mut Writer<'_>, held: &Held<'_>, key: &StepKey, by: &Move<'_>) -> Result<()> {
    let step = load(w, held, key)?;
    let to = STEP.next(step.state, by.event)?;
    check_needs(w, held, &step, by)?;
    let next = after(w, held, &step, to, by);
    update(w, held, &next, by.event, &step)?;
    match (step.state, to) {
        (_, StepState::Running) => open_execution(w, held, &next)?,
        (StepState::Running, _) => close_execution(w, held, &next)?,
        _ => {}
    }
    let body = json!({
        "from": step.state, "to": to, "event": by.event, "code": next.code, "because_of": by.because_of,
        "execution": next.runs,
    });
    let reason = next.message.as_deref();
    w.append(&Fact { step: Some(key), reason, ..fact(held.hold, EventKind::StepMoved, body) })
}

fn load(w: &Writer<'_>, held: &Held<'_>, key: &StepKey) -> Result<StepRecord> {
    let sql = format!("SELECT {} FROM step WHERE run = ?1 AND key = ?2", rows::STEP);
    let found = rows::first(w.db(), &sql, (held.seq, key.as_str()), rows::step)?;
    found.ok_or_else(|| StoreError::NotFound { what: format!("step {}", held.hold.run.step(key)) })
}

/// The steps of a run that stand in one of these states, in the order of the task.
pub(super) fn keys_in(w: &Writer<'_>, held: &Held<'_>, states: &[StepState]) -> Result<Vec<StepKey>> {
    let sql = format!("SELECT key FROM step WHERE run = ?1 AND state IN ({}) ORDER BY position", in_list(states));
    rows::all(w.db(), &sql, [held.seq], |row| Ok(StepKey::recorded(row.take::<String>()?)))
}

/// What a row of the table needs beyond the state (R-M3, R-M4), established in the transaction that moves.
fn check_needs(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord, by: &Move<'_>) -> Result<()> {
    let refuse = |state: String| {
        let event = by.event.word().to_owned();
        Err(Refused { machine: STEP.name, state, event }.into())
    };
    match by.event {
        StepEvent::BeginAgain if step.attempt >= held.hold.attempt => refuse(format!("{} in this attempt", step.state)),
        StepEvent::Recheck if !step.sent_back => refuse(format!("{} without its agent sent back", step.state)),
        StepEvent::SendBack => match (step.kind, by.because_of) {
            (StepKind::Agent, Some(qa)) => count_round(w, held, qa),
            (StepKind::Agent, None) => refuse(format!("{} without a failed check", step.state)),
            // A check or command between the agent and the failed check proves nothing about the new work.
            (StepKind::Qa | StepKind::Command, _) => Ok(()),
            (kind, _) => refuse(format!("{} of a {kind} step", step.state)),
        },
        _ => Ok(()),
    }
}

/// Counts one round of the check that sends its agent back; only a failed check can.
fn count_round(w: &Writer<'_>, held: &Held<'_>, qa: &StepKey) -> Result<()> {
    let sql = "UPDATE step SET rounds = rounds + 1, sent_back = 1, fence = ?3 \
               WHERE run = ?1 AND key = ?2 AND kind = 'qa' AND state = 'FAILED'";
    if w.run(sql, (held.seq, qa.as_str(), int(held.hold.fence)))? == 1 {
        return Ok(());
    }
    let found = load(w, held, qa)?;
    Err(STEP.refusal(&format!("{} of {} step {qa}", found.state, found.kind), StepEvent::SendBack).into())
}

/// The step after the move.
fn after(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord, to: StepState, by: &Move<'_>) -> StepRecord {
    let now = Some(UtcMs(w.now()));
    let mut next = StepRecord { state: to, code: None, message: None, ..step.clone() };
    if let Some(failure) = by.failure {
        (next.code, next.message) = (Some(failure.code), Some(failure.message.clone()));
    } else if let (StepEvent::Block, Some(cause)) = (by.event, by.because_of) {
        next.code = Some(Code::StepBlocked);
        next.message = Some(format!("step {cause} did not succeed"));
    }
    // The times are those of the newest execution: a step that never ran has none.
    if to == StepState::Running {
        (next.attempt, next.runs, next.sent_back) = (held.hold.attempt, step.runs + 1, false);
        (next.started_at, next.finished_at) = (now, None);
    } else if step.state == StepState::Running {
        next.finished_at = now;
    }
    next
}

fn update(w: &Writer<'_>, held: &Held<'_>, next: &StepRecord, event: StepEvent, was: &StepRecord) -> Result<()> {
    let sql = format!(
        "UPDATE step SET state = ?3, attempt = ?4, runs = ?5, code = ?6, message = ?7, started_at = ?8, \
         finished_at = ?9, fence = ?10, sent_back = ?11 WHERE run = ?1 AND key = ?2 AND state IN ({})",
        in_list(STEP.sources(event))
    );
    let params = rusqlite::params![
        held.seq,
        next.key.as_str(),
        next.state.word(),
        next.attempt,
        next.runs,
        next.code.map(Code::word),
        next.message,
        next.started_at.map(|at| at.0),
        next.finished_at.map(|at| at.0),
        int(held.hold.fence),
        next.sent_back,
    ];
    match w.run(&sql, params)? {
        1 => Ok(()),
        _ => Err(STEP.refusal(was.state.word(), event).into()),
    }
}

fn open_execution(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord) -> Result<()> {
    w.run(
        "INSERT INTO execution (run, step, number, attempt, task, epoch, active_ms, started_at, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8)",
        rusqlite::params![
            held.seq,
            step.key.as_str(),
            step.runs,
            held.hold.attempt,
            held.task,
            held.epoch,
            w.now(),
            int(held.hold.fence),
        ],
    )?;
    Ok(())
}

/// A step without a process of its own ends without an [`end_execution`] before it: it was active all the time.
fn close_execution(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord) -> Result<()> {
    w.run(
        "UPDATE execution SET finished_at = ?4, active_ms = max(active_ms, ?4 - started_at), fence = ?5 \
         WHERE run = ?1 AND step = ?2 AND number = ?3 AND finished_at IS NULL",
        (held.seq, step.key.as_str(), step.runs, w.now(), int(held.hold.fence)),
    )?;
    Ok(())
}

/// How an execution ended.
pub(super) struct Ending<'a> {
    pub end: &'a ProcessEnd,
    pub result: Option<&'a str>,
    pub active: Millis,
}

/// The running execution of a step ended. The agent's last word is kept with the execution, not in the log (R-A16).
pub(super) fn end_execution(w: &mut Writer<'_>, held: &Held<'_>, key: &StepKey, ending: &Ending<'_>) -> Result<()> {
    let Ending { end, result, active } = ending;
    let words = serde_json::to_string(end).map_err(|error| StoreError::Internal(error.to_string()))?;
    let touched = w.run(
        "UPDATE execution SET process_end = ?3, result = ?4, active_ms = max(active_ms, ?5), finished_at = ?6, \
         fence = ?7 WHERE run = ?1 AND step = ?2 AND finished_at IS NULL \
         AND number = (SELECT runs FROM step WHERE run = ?1 AND key = ?2)",
        rusqlite::params![
            held.seq,
            key.as_str(),
            words,
            result,
            rows::counter(active.0),
            w.now(),
            int(held.hold.fence)
        ],
    )?;
    if touched == 0 {
        return Err(not_running(w, held, key, "end"));
    }
    let body = json!({ "end": end, "active_ms": active.0, "with_result": result.is_some() });
    let reason = end.to_string();
    w.append(&Fact { step: Some(key), reason: Some(&reason), ..fact(held.hold, EventKind::ExecutionEnded, body) })
}

/// The refusal of something that only the running execution of a step can have.
pub(super) fn not_running(w: &Writer<'_>, held: &Held<'_>, key: &StepKey, event: &str) -> StoreError {
    match load(w, held, key) {
        Ok(step) => {
            let state = format!("{} (execution {} not running)", step.state, step.runs);
            Refused { machine: "execution", state, event: event.to_owned() }.into()
        }
        Err(error) => error,
    }
}
