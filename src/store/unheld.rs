//! What somebody may write who does not hold the run: a wish, a decision about a run that nobody holds, something that
//! happened. Never a step: those belong to the holder.

use serde_json::{Value, json};

use super::Store;
use super::approvals;
use super::calls::{Context, Decision, Hold, Note};
use super::changes::{self, RunMove};
use super::claim::{self, Found, refused};
use super::error::{Result, StoreError};
use super::step::{self, Held};
use super::write::{Fact, Writer};
use crate::domain::change::StepMove;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::record::RunRecord;
use crate::domain::run::{RUN, RunEvent, RunStatus};
use crate::domain::step::{STEP, StepEvent};

impl Store {
    /// Asks the holder of a run to cancel it. Who does not hold the run cannot do more; a run that nobody holds is then
    /// claimed and canceled, or decided about with [`Store::decide`]. Refused where the table knows no way to CANCELED.
    pub fn request_cancel(&mut self, run: &RunId, reason: &str, ctx: &Context) -> Result<RunRecord> {
        self.write(ctx, |w| {
            let found = claim::find(w, run)?;
            RUN.next(found.status, RunEvent::Cancel)?;
            w.run("UPDATE run SET cancel_requested = 1 WHERE seq = ?1", [found.seq])?;
            let body = json!({ "status": found.status, "again": found.cancel_requested });
            unheld(w, run, &found, EventKind::CancelRequested, reason, body)
        })?;
        self.find_run(run)?.ok_or_else(|| StoreError::no_run(run))
    }

    /// Moves a run that nobody holds: a person requeues a dead letter, a wait is noted, a parked run is canceled. A run
    /// that is RUNNING is moved by its holder alone.
    pub fn decide(&mut self, run: &RunId, decision: &Decision, ctx: &Context) -> Result<RunRecord> {
        self.write(ctx, |w| {
            let found = claim::find(w, run)?;
            let by = RunMove { event: decision.event, failure: decision.failure.as_ref(), retry_at: decision.retry_at };
            move_at_rest(w, run, &found, (decision.expected_fence, &by), &decision.reason)
        })?;
        self.find_run(run)?.ok_or_else(|| StoreError::no_run(run))
    }

    /// Cancels a run that nobody holds, with every step that has not come to its end. `expected_fence` is the one that
    /// the caller saw: a run that was claimed since then is canceled by its holder.
    pub fn cancel_at_rest(&mut self, run: &RunId, expected_fence: u64, ctx: &Context) -> Result<RunRecord> {
        self.write(ctx, |w| {
            let found = claim::find(w, run)?;
            let reason = "canceled while nobody worked on it";
            let failure = Failure::new(Code::Canceled, reason);
            let by = RunMove { event: RunEvent::Cancel, failure: Some(&failure), retry_at: None };
            move_at_rest(w, run, &found, (expected_fence, &by), reason)?;
            let last = Hold { run: run.clone(), attempt: found.attempt, fence: found.fence };
            let held = Held::of(&found, &last);
            for key in step::keys_in(w, &held, STEP.sources(StepEvent::Cancel))? {
                step::move_step(w, &held, &StepMove::new(&key, StepEvent::Cancel))?;
            }
            Ok(())
        })?;
        self.find_run(run)?.ok_or_else(|| StoreError::no_run(run))
    }

    /// Keeps something that happened and needs no hold: a start that was answered with this run, a refusal, a warning.
    /// Without a run it goes into the home's chain.
    pub fn note(&mut self, run: Option<&RunId>, note: &Note, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| match run {
            Some(run) => {
                let found = claim::find(w, run)?;
                unheld(w, run, &found, note.kind, &note.reason, note.body.clone())
            }
            None => w.append(&Fact {
                kind: note.kind,
                run: None,
                attempt: None,
                fence: None,
                step: None,
                reason: Some(&note.reason),
                body: note.body.clone(),
            }),
        })
    }

    /// Marks a run whose files were deleted; its record stays.
    pub fn sweep(&mut self, run: &RunId, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| {
            let found = claim::find(w, run)?;
            if found.status == RunStatus::Running {
                return Err(refused(found.status, "sweep").into());
            }
            w.run("UPDATE run SET swept_at = ?2 WHERE seq = ?1", (found.seq, w.now()))?;
            unheld(w, run, &found, EventKind::RunSwept, "its files were deleted", json!({}))
        })
    }
}

/// Moves a run that nobody holds, if nobody claimed it since the caller looked.
pub(super) fn move_at_rest(
    w: &mut Writer<'_>,
    run: &RunId,
    found: &Found,
    (expected_fence, by): (u64, &RunMove<'_>),
    reason: &str,
) -> Result<()> {
    if found.fence != expected_fence {
        return Err(StoreError::Held { run: run.clone(), fence: found.fence });
    }
    let is_claim = matches!(by.event, RunEvent::Start | RunEvent::Resume | RunEvent::TakeOver);
    if is_claim || found.status == RunStatus::Running {
        return Err(RUN.refusal(found.status.word(), by.event).into());
    }
    let body = changes::move_run(w, found.seq, found.status, by)?;
    unheld(w, run, found, EventKind::RunMoved, reason, body)?;
    if by.event == RunEvent::Cancel { approvals::void_of_run(w, run) } else { Ok(()) }
}

/// An event by somebody who does not hold the run.
fn unheld(w: &mut Writer<'_>, run: &RunId, found: &Found, kind: EventKind, reason: &str, body: Value) -> Result<()> {
    let (attempt, fence) = (Some(found.attempt).filter(|n| *n > 0), Some(found.fence));
    w.append(&Fact { kind, run: Some(run), attempt, fence, step: None, reason: Some(reason), body })
}
