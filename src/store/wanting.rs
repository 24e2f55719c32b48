//! Somebody wants a side effect (R-A3): it is recorded, or found to be there. One transaction and a UNIQUE key, so that of any
//! number who want the same at the same instant one makes the record and the others are led to it.

use serde_json::json;

use super::action_calls::{By, Proposal, Proposed};
use super::actions::{self, Found, SETTLED};
use super::calls::Context;
use super::calls::Hold;
use super::claim;
use super::error::{Result, StoreError};
use super::write::{Fact, Writer};
use super::{Store, TENANT, action_rows, deployments, rows};
use crate::domain::action::ActionMove;
use crate::domain::action::record::WantedAnswer;
use crate::domain::action::state::{ACTION, ActionEvent, ActionState};
use crate::domain::event::EventKind;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ReleaseId, RunId, StepKey};
use crate::domain::machine::Word as _;
use crate::domain::run::RunStatus;

impl Store {
    /// Records a wish for a side effect, or finds what the same key already stands for. It sends nothing. Refused, with an
    /// event: another request under a used key ([`StoreError::ActionKeyReused`]), a key whose time is over, a caller that does
    /// not hold the run or is no program of it. What was withdrawn and is wanted again is READY again.
    pub fn propose(&mut self, wanted: &Proposal<'_>, ctx: &Context) -> Result<Proposed> {
        self.write_or_refuse(ctx, |w| propose(w, wanted))
    }

    /// The right under which a run is held, for a program inside it that knows the secret of its present attempt. It goes with
    /// the attempt: a write under it is refused once another has begun.
    pub fn inside(&self, run: &RunId, token: &Sha256Hash) -> Result<Hold> {
        let sql =
            "SELECT attempt, fence FROM run WHERE tenant = ?1 AND id = ?2 AND status = 'RUNNING' AND token_hash = ?3";
        let found = rows::first(&self.db, sql, (TENANT, run.as_str(), token.0), |row| {
            Ok(Hold { run: run.clone(), attempt: row.take()?, fence: row.count()? })
        })?;
        found.ok_or_else(|| StoreError::NotInside { run: run.clone() })
    }
}

/// Who wants it, as the record knows them.
struct Wanting<'a> {
    run: &'a RunId,
    attempt: u32,
    fence: u64,
    proposal: &'a Proposal<'a>,
}

impl Wanting<'_> {
    /// An event in the chain of the run that wants it.
    fn tell(&self, w: &mut Writer<'_>, kind: EventKind, what: (Option<&str>, serde_json::Value)) -> Result<()> {
        let (reason, body) = what;
        let about = json!({
            "key_hash": actions::hash_of(&self.proposal.key).hex(), "type": self.proposal.kind,
            "request_hash": self.proposal.request_hash.hex(), "call": self.proposal.wanted.call,
        });
        let (attempt, fence) = (Some(self.attempt).filter(|n| *n > 0), Some(self.fence));
        let step = self.proposal.wanted.step.as_ref();
        w.append(&Fact { kind, run: Some(self.run), attempt, fence, step, reason, body: actions::with(about, body) })
    }
}

fn propose(w: &mut Writer<'_>, proposal: &Proposal<'_>) -> Result<Result<Proposed>> {
    let wanting = match admit(w, proposal)? {
        Ok(wanting) => wanting,
        Err(refusal) => return Ok(Err(refusal)),
    };
    match actions::find_by_key(w, &proposal.key)? {
        None => match lost(w, proposal)? {
            None => Ok(Ok(Proposed::New(Box::new(insert(w, &wanting)?.record)))),
            Some(refusal) => {
                let body = json!({ "code": refusal.code() });
                wanting.tell(w, EventKind::ActionRefused, (Some(&refusal.to_string()), body))?;
                Ok(Err(refusal))
            }
        },
        Some(found) => known(w, &wanting, found),
    }
}

/// The run's holder, or a program inside the run that knows the secret of the present attempt.
fn admit<'a>(w: &mut Writer<'_>, proposal: &'a Proposal<'a>) -> Result<Result<Wanting<'a>>> {
    let run = match proposal.by {
        By::Holder(hold) => &hold.run,
        By::Inside { run, .. } => run,
    };
    let found = claim::find(w, run)?;
    let wanting = Wanting { run, attempt: found.attempt, fence: found.fence, proposal };
    match proposal.by {
        By::Holder(hold) => {
            if let Some(refusal) = actions::check_hold(w, hold, "a wish for an action")? {
                return Ok(Err(refusal));
            }
            match found.status {
                RunStatus::Running => Ok(Ok(wanting)),
                status => Err(claim::refused(status, "a wish for an action").into()),
            }
        }
        By::Inside { token, .. } => {
            let sql = "SELECT token_hash FROM run WHERE seq = ?1";
            let known = rows::first(w.db(), sql, [found.seq], |row| row.take::<Option<[u8; 32]>>())?.flatten();
            if found.status == RunStatus::Running && known == Some(token.0) {
                return Ok(Ok(wanting));
            }
            let refusal = StoreError::NotInside { run: run.clone() };
            let body = json!({ "code": refusal.code() });
            wanting.tell(w, EventKind::ActionRefused, (Some(&refusal.to_string()), body))?;
            Ok(Err(refusal))
        }
    }
}

/// A key that was sent, says the log, and has no record: that was lost to damage. As new it would be sent a second time.
fn lost(w: &Writer<'_>, proposal: &Proposal<'_>) -> Result<Option<StoreError>> {
    let sql = "SELECT chain FROM event WHERE key_hash = ?1 AND kind = ?2 LIMIT 1";
    let params = (actions::hash_of(&proposal.key).0, EventKind::ActionSent.word());
    let run = rows::first(w.db(), sql, params, |row| row.take::<String>())?;
    Ok(run.map(|run| StoreError::ActionLost { run }))
}

fn known(w: &mut Writer<'_>, wanting: &Wanting<'_>, mut found: Found) -> Result<Result<Proposed>> {
    let (record, proposal) = (&found.record, wanting.proposal);
    let (recorded, wanted) = (record.request_hash, proposal.request_hash);
    // Hashes of two normal forms say nothing about each other (R-A5).
    let is_compared = record.normal_version == proposal.normal_version;
    if is_compared && recorded != wanted {
        let refusal = StoreError::ActionKeyReused { action: record.id.clone(), recorded, wanted };
        return refuse(w, wanting, &found, (refusal, WantedAnswer::Conflict));
    }
    if SETTLED.contains(&record.state) && actions::is_past(record.expires_at, w.ctx().now.utc) {
        let refusal = StoreError::ActionKeyExpired { action: record.id.clone(), state: record.state };
        return refuse(w, wanting, &found, (refusal, WantedAnswer::Expired));
    }
    let is_renewed = record.state == ActionState::Canceled;
    let answer = if is_renewed { WantedAnswer::Renewed } else { WantedAnswer::Known };
    note(w, wanting, &found, answer)?;
    let body =
        json!({ "action": found.record.id, "answer": answer, "state": found.record.state, "compared": is_compared });
    wanting.tell(w, EventKind::ActionWanted, (None, body))?;
    if !is_renewed {
        return Ok(Ok(Proposed::Known(Box::new(found.record))));
    }
    renew(w, wanting, &mut found)?;
    Ok(Ok(Proposed::Renewed(Box::new(found.record))))
}

fn renew(w: &mut Writer<'_>, wanting: &Wanting<'_>, found: &mut Found) -> Result<()> {
    let sql = "UPDATE action SET approval = NULL, digest = NULL, deadline = ?2, expires_at = ?3 WHERE seq = ?1";
    let proposal = wanting.proposal;
    w.run(sql, (found.seq, proposal.deadline.0, proposal.expires_at.map(|at| at.0)))?;
    let mut by = ActionMove::new(ActionEvent::Renew);
    by.facts.last_fact = Some(format!("wanted again by {}", wanting.run));
    actions::shift(w, found, &by, Some("it is wanted again"))
}

/// A refusal that stays in the log and with the action.
fn refuse(
    w: &mut Writer<'_>,
    wanting: &Wanting<'_>,
    found: &Found,
    (refusal, answer): (StoreError, WantedAnswer),
) -> Result<Result<Proposed>> {
    note(w, wanting, found, answer)?;
    let body = json!({
        "action": found.record.id, "code": refusal.code(), "recorded_request_hash": found.record.request_hash.hex(),
    });
    wanting.tell(w, EventKind::ActionRefused, (Some(&refusal.to_string()), body))?;
    Ok(Err(refusal))
}

/// Who wanted it, and what they were told.
fn note(w: &Writer<'_>, wanting: &Wanting<'_>, found: &Found, answer: WantedAnswer) -> Result<()> {
    let wanted = &wanting.proposal.wanted;
    w.run(
        "INSERT INTO action_wanted (action, run, attempt, step, call, conversation, request_id, at, answer, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        rusqlite::params![
            found.seq,
            wanting.run.as_str(),
            wanting.attempt,
            wanted.step.as_ref().map(StepKey::as_str),
            wanted.call,
            wanted.conversation,
            wanted.request_id.as_str(),
            w.now(),
            answer.word(),
            rows::int(wanting.fence),
        ],
    )?;
    Ok(())
}

fn insert(w: &mut Writer<'_>, wanting: &Wanting<'_>) -> Result<Found> {
    let p = wanting.proposal;
    let params = rusqlite::params![
        TENANT,
        p.id.as_str(),
        p.key,
        actions::hash_of(&p.key).0,
        p.kind.word(),
        p.target,
        p.account,
        p.environment.word(),
        p.request_hash.0,
        p.normal_version,
        p.request_file,
        ACTION.initial.word(),
        wanting.run.as_str(),
        p.wanted.step.as_ref().map(StepKey::as_str),
        action_rows::text(&p.contract)?,
        p.irreversible,
        p.release.as_ref().map(ReleaseId::as_str),
        p.corrects.as_ref().map(ActionId::as_str),
        w.ctx().request_id.as_str(),
        w.now(),
        p.deadline.0,
        p.expires_at.map(|at| at.0),
        format!("wanted by {}", wanting.run),
    ];
    w.insert(
        "INSERT INTO action (tenant, id, key, key_hash, kind, target, account, environment, request_hash, normal_version, \
         request_file, state, run, step, contract, irreversible, release, corrects, request_id, created_at, deadline, \
         expires_at, last_fact, tries, fence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, \
         ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, 0, 0)",
        params,
    )?;
    let found = actions::find(w, &p.id)?;
    note(w, wanting, &found, WantedAnswer::New)?;
    let body = json!({
        "action": p.id, "answer": WantedAnswer::New, "state": found.record.state, "environment": p.environment,
        "contract": p.contract.sha256, "corrects": p.corrects,
    });
    wanting.tell(w, EventKind::ActionWanted, (None, body))?;
    deployments::intend(w, &found)?;
    if let Some(original) = &p.corrects {
        let mut original = actions::find(w, original)?;
        let by = ActionMove::new(ActionEvent::Compensate);
        actions::shift(w, &mut original, &by, Some("a correction is wanted"))?;
    }
    Ok(found)
}
