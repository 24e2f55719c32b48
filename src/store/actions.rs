//! An action as a write finds it, its moves along the table of R-A18, and the events that tell of them. Whoever moves one goes
//! through here; what must hold beside the state is checked by the files that call.

use rusqlite::{Connection, ToSql};
use serde_json::{Value, json};

use super::calls::{Context, Hold};
use super::claim::{self, in_list};
use super::error::{Result, StoreError};
use super::write::{Fact, Writer};
use super::{Store, TENANT, action_rows, approvals, deployments, rows};
use crate::domain::action::record::ActionRecord;
use crate::domain::action::state::{ACTION, ActionEvent, ActionState};
use crate::domain::action::{ActionFacts, ActionMove};
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ApprovalId, ReleaseId, RunId, StepKey};
use crate::domain::machine::Word as _;
use crate::domain::policy::ActionType;
use crate::domain::quantity::{BootMs, UtcMs};

/// States in which nothing more is done about an action by itself.
pub(super) const SETTLED: &[ActionState] =
    &[ActionState::Succeeded, ActionState::Failed, ActionState::Canceled, ActionState::Compensated];

/// An action as a write finds it.
pub(super) struct Found {
    pub seq: i64,
    pub record: ActionRecord,
    /// The run that is at it; its events go into that run's chain.
    pub doing: Option<RunId>,
}

impl Found {
    /// The run whose chain tells of it.
    pub(super) fn chain(&self) -> &RunId {
        self.doing.as_ref().unwrap_or(&self.record.run)
    }

    /// Refuses an event, naming the state found.
    pub(super) fn refusal(&self, event: ActionEvent) -> StoreError {
        ACTION.refusal(self.record.state.word(), event).into()
    }
}

/// Finds an action for writing.
pub(super) fn find(w: &Writer<'_>, id: &ActionId) -> Result<Found> {
    one(w.db(), "a.id = ?2", id.as_str())?.ok_or_else(|| StoreError::no_action(id))
}

/// The same by its key.
pub(super) fn find_by_key(w: &Writer<'_>, key: &str) -> Result<Option<Found>> {
    one(w.db(), "a.key = ?2", key)
}

fn again(w: &Writer<'_>, seq: i64) -> Result<Found> {
    let found = one(w.db(), "a.seq = ?2", seq)?;
    found.ok_or_else(|| StoreError::Internal(format!("action row {seq} vanished")))
}

fn one(db: &Connection, condition: &str, value: impl ToSql) -> Result<Option<Found>> {
    let sql =
        format!("SELECT a.seq, a.lease_run, {} FROM action a WHERE a.tenant = ?1 AND {condition}", action_rows::ACTION);
    rows::first(db, &sql, rusqlite::params![TENANT, value], |row| {
        let (seq, doing) = (row.take()?, row.take::<Option<String>>()?.map(RunId::recorded));
        Ok(Found { seq, doing, record: action_rows::action(row)? })
    })
}

/// The hash of a key: what stands in the log in its place (R-A16).
pub(super) fn hash_of(key: &str) -> Sha256Hash {
    Sha256Hash::of(key.as_bytes())
}

/// Tells of an action, in the chain of the run that is at it or of its own.
pub(super) fn tell(w: &mut Writer<'_>, found: &Found, what: (EventKind, Option<&str>), body: Value) -> Result<()> {
    let (run, record) = (found.chain(), &found.record);
    let step = record.step.as_ref().filter(|_| *run == record.run);
    tell_in(w, (run, step), what, about(record, body))
}

/// Appends an event to the chain of a run, with the attempt and fence that the run has.
pub(super) fn tell_in(
    w: &mut Writer<'_>,
    (run, step): (&RunId, Option<&StepKey>),
    (kind, reason): (EventKind, Option<&str>),
    body: Value,
) -> Result<()> {
    let (attempt, fence) = match claim::find(w, run) {
        Ok(found) => (Some(found.attempt).filter(|n| *n > 0), Some(found.fence)),
        // Its run was lost to damage; what happens to the action is told all the same.
        Err(StoreError::NotFound { .. }) => (None, None),
        Err(other) => return Err(other),
    };
    w.append(&Fact { kind, run: Some(run), attempt, fence, step, reason, body })
}

/// What every event of an action says of it: never its key, its request or its target, which may be a person's address.
pub(super) fn about(record: &ActionRecord, body: Value) -> Value {
    let about = json!({
        "action": record.id, "key_hash": hash_of(&record.key).hex(), "type": record.kind, "try": record.tries,
    });
    with(about, body)
}

/// Both objects in one.
pub(super) fn with(mut one: Value, other: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut one, other) {
        all.extend(more);
    }
    one
}

/// Refuses somebody whose fence is not the newest; what they wanted is kept in the log.
pub(super) fn fenced(w: &mut Writer<'_>, found: &Found, fence: u64, attempted: &str) -> Result<StoreError> {
    let held_by = found.record.fence;
    let body = json!({ "code": Code::Fenced, "fence": fence, "held_by": held_by, "attempted": attempted });
    tell(w, found, (EventKind::WriteFenced, Some("the writer no longer holds the action")), body)?;
    Ok(StoreError::ActionFenced { action: found.record.id.clone(), fence, held_by })
}

/// Refuses a run's holder that has been replaced; what it wanted is kept in the log.
pub(super) fn check_hold(w: &mut Writer<'_>, hold: &Hold, attempted: &str) -> Result<Option<StoreError>> {
    let run = claim::find(w, &hold.run)?;
    if run.fence == hold.fence {
        return Ok(None);
    }
    let body = json!({ "code": Code::Fenced, "fence": hold.fence, "held_by": run.fence, "attempted": [attempted] });
    let reason = Some("the writer no longer holds the run");
    w.append(&Fact { fence: Some(run.fence), reason, ..claim::fact(hold, EventKind::WriteFenced, body) })?;
    Ok(Some(claim::fenced(hold, &run)))
}

/// Moves an action, with what follows from it: the deployment that it executes, the action that it corrects, approvals that
/// are for nothing now. `found` is as it stands afterwards.
pub(super) fn shift(w: &mut Writer<'_>, found: &mut Found, by: &ActionMove, reason: Option<&str>) -> Result<()> {
    let from = found.record.state;
    let to = ACTION.next(from, by.event)?;
    update(w, found, by, to)?;
    let doing = found.doing.take();
    *found = Found { doing, ..again(w, found.seq)? };
    let body = json!({
        "from": from, "to": to, "event": by.event, "code": by.facts.code,
        "retry_at": by.facts.retry_at.map(|at| at.0), "review": by.facts.review.is_some(),
    });
    tell(w, found, (EventKind::ActionMoved, reason), body)?;
    if by.event == ActionEvent::Adopt && deployments::in_the_way(w, found)?.is_none() {
        deployments::begun(w, found)?;
    }
    match to {
        ActionState::Failed => deployments::failed(w, found)?,
        ActionState::Canceled => approvals::void_of(w, found, "the action was withdrawn")?,
        ActionState::Succeeded => finish_corrected(w, found)?,
        _ => {}
    }
    Ok(())
}

fn update(w: &Writer<'_>, found: &Found, by: &ActionMove, to: ActionState) -> Result<()> {
    let sql = format!(
        "UPDATE action SET state = ?2, code = ?3, message = ?4, retry_at = ?5, review = ?6, owner = ?7, due = ?8, \
         reference = coalesce(?9, reference), summary = coalesce(?10, summary), \
         query_from = coalesce(?11, query_from), last_fact = coalesce(?12, last_fact), finished_at = ?13 \
         WHERE seq = ?1 AND fence = ?14 AND state IN ({})",
        in_list(ACTION.sources(by.event))
    );
    let facts = &by.facts;
    let params = rusqlite::params![
        found.seq,
        to.word(),
        facts.code.map(Code::word),
        facts.message,
        facts.retry_at.map(|at| at.0),
        facts.review,
        facts.owner,
        facts.due.map(|at| at.0),
        facts.reference,
        facts.summary,
        facts.query_from.map(|at| at.0),
        facts.last_fact,
        SETTLED.contains(&to).then(|| w.now()),
        rows::int(found.record.fence),
    ];
    match w.run(&sql, params)? {
        1 => Ok(()),
        _ => Err(found.refusal(by.event)),
    }
}

/// The action that this one corrected is corrected now (R-A14).
fn finish_corrected(w: &mut Writer<'_>, found: &Found) -> Result<()> {
    let Some(original) = &found.record.corrects else { return Ok(()) };
    let mut original = find(w, original)?;
    if original.record.state != ActionState::Compensating {
        return Ok(());
    }
    let last_fact = Some(format!("corrected by action {}", found.record.id));
    let facts = ActionFacts { last_fact, ..ActionFacts::default() };
    shift(w, &mut original, &ActionMove { event: ActionEvent::FinishCompensation, facts }, None)
}

/// Which approval counts for an action, and what it must cover.
pub(super) fn set_approval(w: &Writer<'_>, found: &mut Found, approval: &ApprovalId, digest: Sha256Hash) -> Result<()> {
    w.run("UPDATE action SET approval = ?2, digest = ?3 WHERE seq = ?1", (found.seq, approval.as_str(), digest.0))?;
    (found.record.approval, found.record.digest) = (Some(approval.clone()), Some(digest));
    Ok(())
}

/// The environment and release that a deployment is known by.
pub(super) fn deploys(record: &ActionRecord) -> Option<(&str, &ReleaseId)> {
    let release = record.release.as_ref()?;
    (record.kind == ActionType::Deploy).then_some((record.target.as_str(), release))
}

impl Store {
    /// Claims the right to send or settle an action: raises its fence. Of any number of callers that saw the same fence
    /// exactly one succeeds (R-A6); the others get [`StoreError::ActionHeld`]. Refused for what is settled for good.
    pub fn claim_action(
        &mut self,
        id: &ActionId,
        claim: &super::ActionClaim<'_>,
        ctx: &Context,
    ) -> Result<ActionRecord> {
        self.write_or_refuse(ctx, |w| {
            let mut found = find(w, id)?;
            if found.record.fence != claim.expected_fence {
                return Err(StoreError::ActionHeld { action: id.clone(), fence: found.record.fence });
            }
            if let Some(hold) = claim.hold
                && let Some(refusal) = check_hold(w, hold, "claim of an action")?
            {
                return Ok(Err(refusal));
            }
            take(w, &mut found, claim)?;
            let body = json!({ "fence": found.record.fence, "holder": claim.process, "state": found.record.state });
            tell(w, &found, (EventKind::ActionClaimed, None), body)?;
            Ok(Ok(found.record))
        })
    }

    /// Says until when the holder of an action lives. Leaves no event: nothing changes but a time.
    pub fn keep_action_lease(&mut self, (id, fence): (&ActionId, u64), until: BootMs, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| {
            let sql = "UPDATE action SET lease_until = max(lease_until, ?4) \
                       WHERE tenant = ?1 AND id = ?2 AND fence = ?3 AND lease_pid IS NOT NULL";
            let touched = w.run(sql, (TENANT, id.as_str(), rows::int(fence), rows::int(until.0)))?;
            if touched == 1 { Ok(()) } else { Err(lost_right(w, id, fence)?) }
        })
    }

    /// Gives the right back; the fence stays. Leaves no event: the state says what there is to do.
    pub fn release_action(&mut self, (id, fence): (&ActionId, u64), ctx: &Context) -> Result<()> {
        self.write(ctx, |w| {
            let sql = "UPDATE action SET lease_pid = NULL, lease_start_ticks = NULL, lease_boot_id = NULL, \
                       lease_until = NULL, lease_run = NULL, lease_attempt = NULL \
                       WHERE tenant = ?1 AND id = ?2 AND fence = ?3";
            let touched = w.run(sql, (TENANT, id.as_str(), rows::int(fence)))?;
            if touched == 1 { Ok(()) } else { Err(lost_right(w, id, fence)?) }
        })
    }

    /// What was sent by a holder that is gone, and got no answer, is unknown (faults, rule 1). Raises the fence: should that
    /// holder live after all, its answer is evidence and no more. That it is gone was found by the caller.
    pub fn lose_unheld(&mut self, id: &ActionId, expected_fence: u64, ctx: &Context) -> Result<ActionRecord> {
        self.write(ctx, |w| {
            let mut found = find(w, id)?;
            if found.record.fence != expected_fence {
                return Err(StoreError::ActionHeld { action: id.clone(), fence: found.record.fence });
            }
            ACTION.next(found.record.state, ActionEvent::LoseOutcome)?;
            outrun(w, &mut found)?;
            let message = "whoever sent it is gone, and left no answer".to_owned();
            let facts =
                ActionFacts { code: Some(Code::OutcomeUnknown), message: Some(message), ..ActionFacts::default() };
            let by = ActionMove { event: ActionEvent::LoseOutcome, facts };
            shift(w, &mut found, &by, Some("its holder was gone"))?;
            Ok(found.record)
        })
    }
}

fn lost_right(w: &Writer<'_>, id: &ActionId, fence: u64) -> Result<StoreError> {
    let held_by = find(w, id)?.record.fence;
    Ok(StoreError::ActionFenced { action: id.clone(), fence, held_by })
}

/// The conditional update of a claim.
fn take(w: &Writer<'_>, found: &mut Found, claim: &super::ActionClaim<'_>) -> Result<()> {
    let over = [ActionState::Succeeded, ActionState::Canceled, ActionState::Compensated];
    let sql = format!(
        "UPDATE action SET fence = fence + 1, lease_pid = ?3, lease_start_ticks = ?4, lease_boot_id = ?5, \
         lease_until = ?6, lease_run = ?7, lease_attempt = ?8 \
         WHERE seq = ?1 AND fence = ?2 AND state NOT IN ({})",
        in_list(&over)
    );
    let params = rusqlite::params![
        found.seq,
        rows::int(claim.expected_fence),
        claim.process.pid,
        rows::int(claim.process.start_ticks),
        claim.process.boot_id.0,
        rows::int(claim.lease_until.0),
        claim.hold.map(|hold| hold.run.as_str()),
        claim.hold.map(|hold| hold.attempt),
    ];
    match w.run(&sql, params)? {
        1 => {
            *found = again(w, found.seq)?;
            Ok(())
        }
        _ => Err(crate::domain::machine::Refused {
            machine: ACTION.name,
            state: found.record.state.word().to_owned(),
            event: "claim".to_owned(),
        }
        .into()),
    }
}

/// Raises the fence and takes the lease away: nobody can go on with it under an old right.
pub(super) fn outrun(w: &Writer<'_>, found: &mut Found) -> Result<()> {
    w.run(
        "UPDATE action SET fence = fence + 1, lease_pid = NULL, lease_start_ticks = NULL, lease_boot_id = NULL, \
         lease_until = NULL, lease_run = NULL, lease_attempt = NULL WHERE seq = ?1",
        [found.seq],
    )?;
    *found = again(w, found.seq)?;
    Ok(())
}

/// Whether a point in time is reached.
pub(super) fn is_past(at: Option<UtcMs>, now: UtcMs) -> bool {
    at.is_some_and(|at| at <= now)
}
