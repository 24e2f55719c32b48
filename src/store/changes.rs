//! Single changes of a held run, each with its event. Steps and usage have files of their own.

use serde_json::{Value, json};

use super::claim::{fact, in_list, refused};
use super::error::{Result, StoreError};
use super::rows::{self, int};
use super::step::{self, Held};
use super::write::{Fact, Writer};
use super::{approvals, names, start, usage};
use crate::domain::change::{Change, StepMove};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::plan::phase::next_phase;
use crate::domain::quantity::UtcMs;
use crate::domain::record::{ArtifactRecord, Identity, RunInputs};
use crate::domain::run::{ATTEMPT, AttemptEvent, AttemptState, PHASE, Phase, PhaseEvent, RUN, RunEvent, RunStatus};
use crate::domain::step::{StepEvent, StepState};

/// Applies one change.
pub(super) fn apply(w: &mut Writer<'_>, held: &mut Held<'_>, change: &Change) -> Result<()> {
    match change {
        Change::Run { event, failure, retry_at } => {
            run(w, held, &RunMove { event: *event, failure: failure.as_ref(), retry_at: *retry_at })
        }
        Change::Phase(event) => phase(w, held, *event),
        Change::Attempt { event, failure } => attempt(w, held, *event, failure.as_ref()),
        Change::Step(step_move) => {
            needs_running(held, "a step's move")?;
            step::move_step(w, held, step_move)
        }
        Change::Child { step, child } => child_started(w, held, step, child),
        Change::Session { step, session, model } => session_opened(w, held, step, session, model.as_deref()),
        Change::Usage { step, items, active } => usage::record(w, held, step, items, *active),
        Change::Artifact(kept) => artifact(w, held, kept),
        Change::Snapshot { commit, step } => snapshot(w, held, commit, step.as_ref()),
        Change::CloseLedger => close_ledger(w, held),
        Change::Inputs(inputs) => replace_inputs(w, held, inputs),
        Change::UseApproval { approval, digest } => approvals::spend_for_step(w, held, approval, digest),
        Change::Note { kind, step, reason, body } => {
            let (step, reason) = (step.as_ref(), Some(reason.as_str()));
            w.append(&Fact { step, reason, ..fact(held.hold, *kind, body.clone()) })
        }
    }
}

/// Steps move only while the run is held. The status at the beginning of the transaction counts, so that the order of
/// the changes that end a run does not matter.
fn needs_running(held: &Held<'_>, what: &str) -> Result<()> {
    match held.found {
        RunStatus::Running => Ok(()),
        status => Err(refused(status, what).into()),
    }
}

/// What moves a run.
pub(super) struct RunMove<'a> {
    pub event: RunEvent,
    pub failure: Option<&'a Failure>,
    pub retry_at: Option<UtcMs>,
}

fn run(w: &mut Writer<'_>, held: &mut Held<'_>, by: &RunMove<'_>) -> Result<()> {
    // A claim opens an attempt and raises the fence: it has a way of its own.
    if matches!(by.event, RunEvent::Start | RunEvent::Resume | RunEvent::TakeOver) {
        return Err(RUN.refusal(held.status.word(), by.event).into());
    }
    let body = move_run(w, held.seq, held.status, by)?;
    held.status = RUN.next(held.status, by.event)?;
    let reason = by.failure.map(|failure| failure.message.as_str());
    w.append(&Fact { reason, ..fact(held.hold, EventKind::RunMoved, body) })?;
    if held.status == RunStatus::Canceled { approvals::void_of_run(w, &held.hold.run) } else { Ok(()) }
}

/// Moves a run out of the state it was found in; whoever held it holds it no more. Answers the body of the event.
pub(super) fn move_run(w: &Writer<'_>, seq: i64, from: RunStatus, by: &RunMove<'_>) -> Result<Value> {
    let to = RUN.next(from, by.event)?;
    // Who waits for a retry holds on: that somebody does is seen by the lease. A parked run's ends with its process.
    let lease = match by.event {
        RunEvent::Retry => "",
        _ => ", lease_pid = NULL, lease_start_ticks = NULL, lease_boot_id = NULL, lease_until = NULL",
    };
    let sql = format!(
        "UPDATE run SET status = ?2, code = ?3, message = ?4, retry_at = ?5, finished_at = ?6{lease} \
         WHERE seq = ?1 AND status IN ({})",
        in_list(RUN.sources(by.event))
    );
    let code = by.failure.map(|failure| failure.code);
    let message = by.failure.map(|failure| failure.message.as_str());
    let retry_at = by.retry_at.map(|at| at.0);
    let params = (seq, to.word(), code.map(Code::word), message, retry_at, w.now());
    match w.run(&sql, params)? {
        1 => Ok(json!({ "from": from, "to": to, "event": by.event, "code": code, "retry_at": retry_at })),
        _ => Err(RUN.refusal(from.word(), by.event).into()),
    }
}

fn phase(w: &mut Writer<'_>, held: &Held<'_>, event: PhaseEvent) -> Result<()> {
    let found = "SELECT phase FROM run WHERE seq = ?1";
    let found = rows::first(w.db(), found, [held.seq], |row| row.opt_word::<Phase>())?.flatten();
    let to = next_phase(found, event)?;
    // The first phase has none before it; every other one comes out of the table.
    let from =
        if found.is_some() { format!("phase IN ({})", in_list(PHASE.sources(event))) } else { "phase IS NULL".into() };
    if w.run(&format!("UPDATE run SET phase = ?2 WHERE seq = ?1 AND {from}"), (held.seq, to.word()))? == 0 {
        return Err(PHASE.refusal(found.map_or("none", Phase::word), event).into());
    }
    w.append(&fact(held.hold, EventKind::PhaseMoved, json!({ "from": found, "to": to, "event": event })))
}

fn attempt(w: &mut Writer<'_>, held: &Held<'_>, event: AttemptEvent, failure: Option<&Failure>) -> Result<()> {
    let number = held.hold.attempt;
    let found = "SELECT state FROM attempt WHERE run = ?1 AND number = ?2";
    let found = rows::first(w.db(), found, (held.seq, number), |row| row.word::<AttemptState>())?;
    let missing = || StoreError::NotFound { what: format!("attempt {number} of {}", held.hold.run) };
    let to = ATTEMPT.next(found.ok_or_else(missing)?, event)?;
    let sql = format!(
        "UPDATE attempt SET state = ?3, code = ?4, finished_at = ?5, fence = ?6 \
         WHERE run = ?1 AND number = ?2 AND state IN ({})",
        in_list(ATTEMPT.sources(event))
    );
    let code = failure.map(|failure| failure.code);
    let params = (held.seq, number, to.word(), code.map(Code::word), w.now(), int(held.hold.fence));
    if w.run(&sql, params)? == 0 {
        return Err(ATTEMPT.refusal(to.word(), event).into());
    }
    let body = json!({ "attempt": number, "event": event, "state": to, "code": code });
    let reason = failure.map(|failure| failure.message.as_str());
    w.append(&Fact { reason, ..fact(held.hold, EventKind::AttemptEnded, body) })
}

fn child_started(w: &mut Writer<'_>, held: &Held<'_>, key: &StepKey, child: &Identity) -> Result<()> {
    let sql = "UPDATE execution SET child_pid = ?3, child_start_ticks = ?4, child_boot_id = ?5, fence = ?6 \
               WHERE run = ?1 AND step = ?2 AND finished_at IS NULL \
               AND number = (SELECT runs FROM step WHERE run = ?1 AND key = ?2)";
    let ticks = int(child.start_ticks);
    let params = (held.seq, key.as_str(), child.pid, ticks, &child.boot_id.0, int(held.hold.fence));
    if w.run(sql, params)? == 0 {
        return Err(step::not_running(w, held, key, "child"));
    }
    let body = json!({ "child": child });
    w.append(&Fact { step: Some(key), ..fact(held.hold, EventKind::ChildStarted, body) })
}

fn session_opened(
    w: &mut Writer<'_>,
    held: &Held<'_>,
    key: &StepKey,
    session: &str,
    model: Option<&str>,
) -> Result<()> {
    let sql = "UPDATE execution SET session = ?3, model = coalesce(?4, model), fence = ?5 \
               WHERE run = ?1 AND step = ?2 AND number = (SELECT runs FROM step WHERE run = ?1 AND key = ?2)";
    if w.run(sql, (held.seq, key.as_str(), session, model, int(held.hold.fence)))? == 0 {
        return Err(step::not_running(w, held, key, "session"));
    }
    let body = json!({ "session": session, "model": model });
    w.append(&Fact { step: Some(key), ..fact(held.hold, EventKind::SessionOpened, body) })
}

fn artifact(w: &mut Writer<'_>, held: &Held<'_>, kept: &ArtifactRecord) -> Result<()> {
    w.run(
        "INSERT INTO artifact (run, path, kind, sha256, size, step, attempt, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (run, path) DO UPDATE SET kind = excluded.kind, \
         sha256 = excluded.sha256, size = excluded.size, step = excluded.step, attempt = excluded.attempt, \
         fence = excluded.fence",
        rusqlite::params![
            held.seq,
            kept.path,
            kept.kind.word(),
            kept.sha256.0,
            int(kept.size),
            kept.step.as_ref().map(StepKey::as_str),
            kept.attempt,
            int(held.hold.fence)
        ],
    )?;
    let body = json!({ "type": kept.kind, "path": kept.path, "sha256": kept.sha256.hex(), "size": kept.size });
    w.append(&Fact { step: kept.step.as_ref(), ..fact(held.hold, EventKind::ArtifactRecorded, body) })
}

fn snapshot(w: &mut Writer<'_>, held: &Held<'_>, commit: &str, step: Option<&StepKey>) -> Result<()> {
    w.run("UPDATE run SET snapshot = ?2 WHERE seq = ?1", (held.seq, commit))?;
    w.append(&Fact { step, ..fact(held.hold, EventKind::SnapshotTaken, json!({ "commit": commit })) })
}

fn close_ledger(w: &mut Writer<'_>, held: &mut Held<'_>) -> Result<()> {
    w.run("UPDATE task SET epoch = epoch + 1 WHERE seq = ?1", [held.task])?;
    held.epoch += 1;
    w.append(&fact(held.hold, EventKind::LedgerClosed, json!({ "epoch": held.epoch })))
}

/// The run goes on with other inputs. New steps are added, PENDING; one that is gone and has not begun is skipped.
fn replace_inputs(w: &mut Writer<'_>, held: &Held<'_>, inputs: &RunInputs) -> Result<()> {
    let text = serde_json::to_string(inputs).map_err(|error| StoreError::Internal(error.to_string()))?;
    w.run("UPDATE run_inputs SET inputs = ?2, fence = ?3 WHERE run = ?1", (held.seq, text, int(held.hold.fence)))?;
    w.run("UPDATE run SET title = ?2 WHERE seq = ?1", (held.seq, &inputs.spec.title))?;
    let known = "SELECT key, state FROM step WHERE run = ?1";
    let known = rows::all(w.db(), known, [held.seq], |row| {
        Ok((StepKey::recorded(row.take::<String>()?), row.word::<StepState>()?))
    })?;
    for (position, step) in (1..).zip(&inputs.spec.steps) {
        if known.iter().any(|(key, _)| *key == step.key) {
            let sql = "UPDATE step SET position = ?3, kind = ?4 WHERE run = ?1 AND key = ?2";
            w.run(sql, (held.seq, step.key.as_str(), position, step.kind().word()))?;
        } else {
            start::insert_step(w, held.seq, held.hold.fence, position, step)?;
        }
    }
    names::register_versions(w, inputs)?;
    let body = json!({
        "task_spec_sha256": crate::domain::hash::encoding::Sha256Hash::of(inputs.spec.meaning().as_bytes()).hex(),
        "policy_version": inputs.policy.version, "policy_sha256": inputs.policy_sha256.hex(),
        "budget": inputs.spec.budget,
    });
    w.append(&fact(held.hold, EventKind::InputsReplaced, body))?;
    let gone = |(key, state): &&(StepKey, StepState)| *state == StepState::Pending && inputs.spec.step(key).is_none();
    for (key, _) in known.iter().filter(gone) {
        step::move_step(w, held, &StepMove::new(key, StepEvent::Skip))?;
    }
    Ok(())
}
