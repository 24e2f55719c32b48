//! What became of an action that was sent (R-A7): answers, readings, and what a person says. An answer that comes to somebody who
//! has lost the right to it changes nothing and is kept as evidence.

use serde_json::json;

use super::action_calls::{ActionStep, Answered, Assignment, Resolution};
use super::actions::{self, Found};
use super::calls::Context;
use super::error::{Result, StoreError};
use super::write::Writer;
use super::{Store, action_rows, rows};
use crate::domain::action::answer::Reading;
use crate::domain::action::record::{ActionRecord, ReadingRecord};
use crate::domain::action::state::{ACTION, ActionEvent, ActionState};
use crate::domain::action::{ActionFacts, ActionMove};
use crate::domain::event::EventKind;
use crate::domain::ids::ActionId;

impl Store {
    /// Records the answer to a send. Where the fence, the send or the state is another by now, nothing moves: the answer is kept
    /// as a reading of source `late`, told as `action.late`, and refused.
    pub fn record_answer(&mut self, answered: &Answered<'_>, ctx: &Context) -> Result<ActionRecord> {
        self.write_or_refuse(ctx, |w| {
            let mut found = actions::find(w, answered.action)?;
            if let Some(refusal) = lateness(&found, answered) {
                keep_late(w, &found, answered, &refusal)?;
                return Ok(Err(refusal));
            }
            let facts = answered.facts.clone().or(answered.answer.facts(ctx.now.utc));
            let by = ActionMove { event: answered.answer.event(), facts };
            actions::shift(w, &mut found, &by, Some("the other side answered"))?;
            Ok(Ok(found.record))
        })
    }

    /// Records what was seen of an action, and what follows from it, if anything does. Under a fence, or without one for what
    /// the other side says by itself.
    pub fn record_reading(
        &mut self,
        (id, fence): (&ActionId, Option<u64>),
        reading: &ReadingRecord,
        then: Option<&ActionMove>,
        ctx: &Context,
    ) -> Result<ActionRecord> {
        self.write_or_refuse(ctx, |w| {
            let mut found = actions::find(w, id)?;
            if let Some(refusal) = outrun(w, &found, fence, "a reading")? {
                return Ok(Err(refusal));
            }
            keep_reading(w, &found, (EventKind::ActionRead, None), reading)?;
            if let Some(by) = then {
                actions::shift(w, &mut found, by, Some("the other side was asked"))?;
            }
            Ok(Ok(found.record))
        })
    }

    /// Moves an action. Sending, asking and agreeing have ways of their own; an answer needs the fence of its send.
    pub fn move_action(&mut self, step: &ActionStep<'_>, ctx: &Context) -> Result<ActionRecord> {
        use ActionEvent as E;
        self.write_or_refuse(ctx, |w| {
            let mut found = actions::find(w, step.action)?;
            if let Some(refusal) = outrun(w, &found, step.fence, "a move")? {
                return Ok(Err(refusal));
            }
            let event = step.moved.event;
            let has_own_way = matches!(event, E::Start | E::Resend | E::Ask | E::Approve);
            let needs_fence = matches!(event, E::Accept | E::Succeed | E::Fail | E::LoseOutcome);
            if has_own_way || (needs_fence && step.fence.is_none()) {
                return Err(found.refusal(event));
            }
            actions::shift(w, &mut found, step.moved, step.reason)?;
            Ok(Ok(found.record))
        })
    }

    /// A person says what became of an action whose outcome is unknown, or which the other side has had for too long; or that
    /// one which was never sent is there, by their own hand or another's. Raises the fence: whoever is at it is too late. The reason is kept, with a reading of source `person`.
    pub fn resolve_action(
        &mut self,
        id: &ActionId,
        resolution: &Resolution,
        reason: &str,
        ctx: &Context,
    ) -> Result<ActionRecord> {
        self.write(ctx, |w| {
            let mut found = actions::find(w, id)?;
            let event = resolving(&found, resolution)?;
            actions::outrun(w, &mut found)?;
            let reading = ReadingRecord {
                at: ctx.now.utc,
                reading: seen(resolution, reason),
                source: "person".to_owned(),
                tries: found.record.tries,
            };
            keep_reading(w, &found, (EventKind::ActionRead, Some(reason)), &reading)?;
            let reference = match resolution {
                Resolution::Succeeded { reference } => reference.clone(),
                Resolution::Failed | Resolution::NotThere => None,
            };
            let last_fact = Some(format!("{} said what became of it", ctx.actor));
            let facts = ActionFacts { reference, last_fact, ..ActionFacts::default() };
            actions::shift(w, &mut found, &ActionMove { event, facts }, Some(reason))?;
            Ok(found.record)
        })
    }

    /// Says who must look at an action, and until when.
    pub fn assign_action(&mut self, id: &ActionId, assignment: &Assignment<'_>, ctx: &Context) -> Result<ActionRecord> {
        self.write(ctx, |w| {
            let found = actions::find(w, id)?;
            let sql = "UPDATE action SET owner = ?2, due = ?3, review = coalesce(?4, review) WHERE seq = ?1";
            w.run(sql, (found.seq, assignment.owner, assignment.due.map(|at| at.0), assignment.review))?;
            let body = json!({ "owner": assignment.owner, "due": assignment.due.map(|at| at.0) });
            actions::tell(w, &found, (EventKind::ActionAssigned, assignment.review), body)?;
            Ok(actions::find(w, id)?.record)
        })
    }
}

/// Why an answer counts no more, if it does not.
fn lateness(found: &Found, answered: &Answered<'_>) -> Option<StoreError> {
    let record = &found.record;
    let event = answered.answer.event();
    if (record.fence, record.tries) != (answered.fence, answered.tries) {
        let (action, held_by) = (record.id.clone(), record.fence);
        return Some(StoreError::ActionFenced { action, fence: answered.fence, held_by });
    }
    ACTION.next(record.state, event).err().map(StoreError::from)
}

fn keep_late(w: &mut Writer<'_>, found: &Found, answered: &Answered<'_>, refusal: &StoreError) -> Result<()> {
    let reading = ReadingRecord {
        at: w.ctx().now.utc,
        reading: answered.answer.as_reading(),
        source: "late".to_owned(),
        tries: answered.tries,
    };
    keep_reading(w, found, (EventKind::ActionLate, Some(&refusal.to_string())), &reading)
}

/// A reading, and the event that tells of it: what was seen in one word, and which send it is about.
fn keep_reading(
    w: &mut Writer<'_>,
    found: &Found,
    what: (EventKind, Option<&str>),
    reading: &ReadingRecord,
) -> Result<()> {
    w.run(
        "INSERT INTO action_reading (action, at, reading, source, tries, fence) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (
            found.seq,
            reading.at.0,
            action_rows::text(&reading.reading)?,
            &reading.source,
            reading.tries,
            rows::int(found.record.fence),
        ),
    )?;
    let body = json!({ "reading": word(&reading.reading), "source": reading.source, "of_try": reading.tries });
    actions::tell(w, found, what, body)
}

fn word(reading: &Reading) -> &'static str {
    match reading {
        Reading::Succeeded { .. } => "succeeded",
        Reading::Failed { .. } => "failed",
        Reading::InProgress { .. } => "in_progress",
        Reading::NotFound => "not_found",
        Reading::Several { .. } => "several",
        Reading::Unclear { .. } => "unclear",
    }
}

fn outrun(w: &mut Writer<'_>, found: &Found, fence: Option<u64>, what: &str) -> Result<Option<StoreError>> {
    match fence.filter(|fence| *fence != found.record.fence) {
        Some(fence) => actions::fenced(w, found, fence, what).map(Some),
        None => Ok(None),
    }
}

/// By which row of the table a person's word counts. What was only just sent is not theirs to settle.
fn resolving(found: &Found, resolution: &Resolution) -> Result<ActionEvent> {
    let event = match (resolution, found.record.state) {
        // A person has sent it, or somebody else had.
        (Resolution::Succeeded { .. }, ActionState::Ready) => ActionEvent::Adopt,
        (Resolution::Succeeded { .. }, ActionState::InProgress) => ActionEvent::Succeed,
        (Resolution::Failed | Resolution::NotThere, ActionState::InProgress) => ActionEvent::Fail,
        (Resolution::Succeeded { .. }, _) => ActionEvent::ProveSuccess,
        (Resolution::Failed, _) => ActionEvent::ProveFailure,
        (Resolution::NotThere, _) => ActionEvent::ProveAbsence,
    };
    match ACTION.next(found.record.state, event) {
        Ok(_) => Ok(event),
        Err(refused) => Err(refused.into()),
    }
}

fn seen(resolution: &Resolution, reason: &str) -> Reading {
    match resolution {
        Resolution::Succeeded { reference } => Reading::Succeeded { reference: reference.clone() },
        Resolution::Failed => Reading::Failed { message: reason.to_owned() },
        Resolution::NotThere => Reading::NotFound,
    }
}
