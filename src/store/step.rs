//! Steps and their executions move. Each move is one conditional update whose states come from the table of R-M3; a
//! move that finds another state is refused, naming it.

use serde_json::{Value, json};

use super::calls::Hold;
use super::claim::{Found, fact, in_list};
use super::error::{Result, StoreError};
use super::rows::{self, int};
use super::write::{Fact, Writer};
use crate::domain::change::StepMove;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::StepKey;
use crate::domain::machine::{Refused, Word as _};
use crate::domain::quantity::UtcMs;
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

/// Moves a step. Into RUNNING it opens an execution; out of RUNNING it closes one that is still open.
pub(super) fn move_step(w: &mut Writer<'_>, held: &Held<'_>, by: &StepMove) -> Result<()> {
    let step = load(w, held, &by.step)?;
    let to = STEP.next(step.state, by.event)?;
    check_needs(w, held, &step, by)?;
    let next = after(w, held, &step, to, by);
    update(w, held, &next, by.event, &step)?;
    match (step.state, to) {
        (_, StepState::Running) => open_execution(w, held, &next)?,
        (StepState::Running, _) => close_execution(w, held, &next, by)?,
        _ if by.ended.is_some() => return Err(not_running(w, held, &by.step, "end")),
        _ => {}
    }
    let reason = next.message.as_deref();
    w.append(&Fact { step: Some(&by.step), reason, ..fact(held.hold, EventKind::StepMoved, body(&step, &next, by)) })
}

/// What the log says of a move: the parts that it has, and no empty ones.
fn body(was: &StepRecord, is: &StepRecord, by: &StepMove) -> Value {
    let mut body = json!({ "from": was.state, "to": is.state, "event": by.event, "execution": is.runs });
    let mut add = |name: &str, value: Option<Value>| {
        if let (Value::Object(body), Some(value)) = (&mut body, value) {
            body.insert(name.to_owned(), value);
        }
    };
    add("code", is.code.map(|code| json!(code)));
    add("because_of", by.because_of.as_ref().map(|step| json!(step)));
    add(
        "ended",
        by.ended.as_ref().map(
            |ended| json!({ "process": ended.end, "active_ms": ended.active.0, "with_result": ended.result.is_some() }),
        ),
    );
    add(
        "checkpoint",
        by.checkpoint.as_ref().map(|reached| {
            json!({
                "name": reached.name, "commit": reached.commit, "policy_version": reached.policy_version,
                "artifacts": reached.artifacts,
            })
        }),
    );
    body
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
fn check_needs(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord, by: &StepMove) -> Result<()> {
    let refuse = |state: String| {
        let event = by.event.word().to_owned();
        Err(Refused { machine: STEP.name, state, event }.into())
    };
    match by.event {
        StepEvent::BeginAgain | StepEvent::AskAgain if step.attempt >= held.hold.attempt => {
            refuse(format!("{} in this attempt", step.state))
        }
        StepEvent::Recheck if !step.sent_back => refuse(format!("{} without its agent sent back", step.state)),
        StepEvent::SendBack => match (step.kind, by.because_of.as_ref()) {
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
fn after(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord, to: StepState, by: &StepMove) -> StepRecord {
    let now = Some(UtcMs(w.now()));
    let mut next = StepRecord { state: to, code: None, message: None, ..step.clone() };
    if let Some(failure) = &by.failure {
        (next.code, next.message) = (Some(failure.code), Some(failure.message.clone()));
    } else if let (StepEvent::Block, Some(cause)) = (by.event, &by.because_of) {
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

/// Closes the execution. A step without a process of its own was active all the time.
fn close_execution(w: &Writer<'_>, held: &Held<'_>, step: &StepRecord, by: &StepMove) -> Result<()> {
    let (ended, reached) = (by.ended.as_ref(), by.checkpoint.as_ref());
    w.run(
        "UPDATE execution SET process_end = ?4, result = ?5, active_ms = max(active_ms, coalesce(?6, ?7 - started_at)), \
         finished_at = ?7, fence = ?8, checkpoint = ?9, snapshot = ?10, policy_version = ?11, artifacts = ?12 \
         WHERE run = ?1 AND step = ?2 AND number = ?3 AND finished_at IS NULL",
        rusqlite::params![
            held.seq,
            step.key.as_str(),
            step.runs,
            ended.map(|ended| as_json(&ended.end)).transpose()?,
            ended.and_then(|ended| ended.result.as_deref()),
            ended.map(|ended| rows::counter(ended.active.0)),
            w.now(),
            int(held.hold.fence),
            reached.map(|reached| reached.name.as_str()),
            reached.and_then(|reached| reached.commit.as_deref()),
            reached.map(|reached| reached.policy_version.as_str()),
            reached.map(|reached| as_json(&reached.artifacts)).transpose()?,
        ],
    )?;
    Ok(())
}

fn as_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Internal(error.to_string()))
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
