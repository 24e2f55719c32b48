//! Approvals (R-A9): asked for, and counted once, for a time, for exactly one thing. What a person decides stands in `deciding`.

use rusqlite::types::Value as Sql;
use serde_json::{Value, json};

use super::action_calls::{About, ApprovalFilter, Asking};
use super::actions::{self, Found};
use super::calls::Context;
use super::claim::in_list;
use super::error::{Result, StoreError};
use super::step::Held;
use super::write::Writer;
use super::{Store, TENANT, action_rows, rows};
use crate::domain::action::ActionMove;
use crate::domain::action::approval::ApprovalRecord;
use crate::domain::action::state::{APPROVAL, ActionEvent, ActionState, ApprovalEvent, ApprovalState};
use crate::domain::event::EventKind;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ApprovalId, RunId, StepKey};
use crate::domain::machine::Word as _;

/// States in which an approval can still come to something.
const ALIVE: &[ApprovalState] = &[ApprovalState::Open, ApprovalState::Approved];

/// An approval as a write finds it.
pub(super) struct FoundApproval {
    pub seq: i64,
    pub record: ApprovalRecord,
}

/// What there is of approvals when an action is about to be sent.
pub(super) enum Standing {
    /// None at all.
    None,
    /// One that covers exactly this, not used yet.
    Unused(Box<FoundApproval>),
    /// One that let this very action go before, and whose time is not over: a lost answer asks nobody again (R-A9).
    OfThis,
    /// One that does not cover this.
    Other(Box<ApprovalRecord>),
}

impl Store {
    /// Asks for a person's agreement to an action or to a step. An approval of the same digest that is open, agreed to, or was
    /// used by this very action and still counts, is the answer; one of something else is void from now on, and so is one whose
    /// time is over. A READY action waits from now on; one with an unknown outcome stays what it is (F47).
    pub fn ask_approval(&mut self, asking: &Asking<'_>, ctx: &Context) -> Result<ApprovalRecord> {
        self.write_or_refuse(ctx, |w| {
            if let Some(hold) = asking.hold
                && let Some(refusal) = actions::check_hold(w, hold, "a wish for an approval")?
            {
                return Ok(Err(refusal));
            }
            ask(w, asking).map(Ok)
        })
    }

    /// An approval by its id.
    pub fn approval(&self, id: &ApprovalId) -> Result<Option<ApprovalRecord>> {
        Ok(one(&self.db, id)?.map(|found| found.record))
    }

    /// The approvals that a filter names, oldest first.
    pub fn approvals(&self, filter: &ApprovalFilter) -> Result<Vec<ApprovalRecord>> {
        list(&self.db, filter)
    }

    /// The newest approval of an action or of a step.
    pub fn approval_of(&self, about: About<'_>) -> Result<Option<ApprovalRecord>> {
        Ok(of(&self.db, about)?.pop().map(|found| found.record))
    }
}

/// The list of a filter.
pub(super) fn list(db: &rusqlite::Connection, filter: &ApprovalFilter) -> Result<Vec<ApprovalRecord>> {
    let mut conditions = vec!["tenant = ?".to_owned()];
    let mut values = vec![Sql::from(TENANT.to_owned())];
    if let Some(run) = &filter.run {
        conditions.push("run = ?".to_owned());
        values.push(Sql::from(run.to_string()));
    }
    if let Some(action) = &filter.action {
        conditions.push("action = ?".to_owned());
        values.push(Sql::from(action.to_string()));
    }
    if !filter.states.is_empty() {
        conditions.push(format!("state IN ({})", in_list(&filter.states)));
    }
    let sql = format!("SELECT {} FROM approval WHERE {} ORDER BY seq", action_rows::APPROVAL, conditions.join(" AND "));
    rows::all(db, &sql, rusqlite::params_from_iter(values), action_rows::approval)
}

fn one(db: &rusqlite::Connection, id: &ApprovalId) -> Result<Option<FoundApproval>> {
    let sql = format!("SELECT seq, {} FROM approval WHERE tenant = ?1 AND id = ?2", action_rows::APPROVAL);
    rows::first(db, &sql, (TENANT, id.as_str()), found)
}

fn found(row: &mut rows::Fields<'_>) -> Result<FoundApproval> {
    Ok(FoundApproval { seq: row.take()?, record: action_rows::approval(row)? })
}

/// Finds an approval for writing.
pub(super) fn find(w: &Writer<'_>, id: &ApprovalId) -> Result<FoundApproval> {
    one(w.db(), id)?.ok_or_else(|| StoreError::NotFound { what: format!("approval {id}") })
}

fn of(db: &rusqlite::Connection, about: About<'_>) -> Result<Vec<FoundApproval>> {
    let statement = |condition: &str| {
        format!("SELECT seq, {} FROM approval WHERE tenant = ?1 AND {condition} ORDER BY seq", action_rows::APPROVAL)
    };
    match about {
        About::Action(id) => rows::all(db, &statement("action = ?2"), (TENANT, id.as_str()), found),
        About::Step(run, step) => {
            let sql = statement("run = ?2 AND step = ?3 AND action IS NULL");
            rows::all(db, &sql, (TENANT, run.as_str(), step.as_str()), found)
        }
    }
}

fn ask(w: &mut Writer<'_>, asking: &Asking<'_>) -> Result<ApprovalRecord> {
    let mut action = match asking.about {
        About::Action(id) => Some(askable(w, id)?),
        About::Step(..) => None,
    };
    let digest = asking.subject.digest();
    let counts = action.as_ref().and_then(|action| action.record.approval.clone());
    let standing = standing_after_voiding(w, asking, (&digest, counts.as_ref()))?;
    // One whose time was over has taken its action back with it.
    if let About::Action(id) = asking.about {
        action = Some(askable(w, id)?);
    }
    let answer = match standing {
        Some(found) => found.record,
        None => insert(w, asking, (action.as_ref(), digest))?,
    };
    if let Some(action) = &mut action {
        actions::set_approval(w, action, &answer.id, digest)?;
        match (action.record.state, answer.state) {
            (ActionState::Ready, ApprovalState::Open) => {
                actions::shift(w, action, &ActionMove::new(ActionEvent::Ask), Some("a person must agree"))?;
            }
            (ActionState::WaitingApproval, ApprovalState::Approved) => {
                actions::shift(w, action, &ActionMove::new(ActionEvent::Approve), Some("a person has agreed"))?;
            }
            _ => {}
        }
    }
    Ok(answer)
}

/// An action that may still be sent.
fn askable(w: &Writer<'_>, id: &ActionId) -> Result<Found> {
    let found = actions::find(w, id)?;
    match found.record.state {
        ActionState::Ready | ActionState::WaitingApproval | ActionState::OutcomeUnknown => Ok(found),
        _ => Err(found.refusal(ActionEvent::Ask)),
    }
}

/// The approval that answers the wish, if there is one; those that no longer can come to anything are ended.
fn standing_after_voiding(
    w: &mut Writer<'_>,
    asking: &Asking<'_>,
    (digest, counts): (&Sha256Hash, Option<&ApprovalId>),
) -> Result<Option<FoundApproval>> {
    let now = w.ctx().now.utc;
    let mut standing = None;
    for mut found in of(w.db(), asking.about)? {
        let is_same = found.record.digest == *digest && !found.record.is_over(now);
        match found.record.state {
            // Not one from before the action was withdrawn.
            ApprovalState::Used if is_same && counts == Some(&found.record.id) => standing = Some(found),
            state if !ALIVE.contains(&state) => {}
            _ if found.record.is_over(now) => expire(w, &mut found)?,
            _ if is_same => standing = Some(found),
            _ => {
                let differs = found.record.subject.differences(asking.subject);
                let told = json!({ "differs": differs, "now": digest.hex() });
                let reason = "what it was for is no longer the same";
                shift(w, &mut found, (ApprovalEvent::Void, Decider::agentrun(reason)), told)?;
            }
        }
    }
    Ok(standing)
}

fn insert(
    w: &mut Writer<'_>,
    asking: &Asking<'_>,
    (action, digest): (Option<&Found>, Sha256Hash),
) -> Result<ApprovalRecord> {
    let (run, step) = match (asking.about, action) {
        (About::Step(run, step), _) => (run, Some(step)),
        (About::Action(_), Some(action)) => {
            (asking.hold.map_or(action.chain(), |hold| &hold.run), action.record.step.as_ref())
        }
        (About::Action(id), None) => return Err(StoreError::no_action(id)),
    };
    let expires_at = asking.terms.expires.map(|time| w.ctx().now.utc.plus(time));
    let params = rusqlite::params![
        TENANT,
        asking.id.as_str(),
        action.map(|action| action.record.id.as_str()),
        run.as_str(),
        step.map(StepKey::as_str),
        APPROVAL.initial.word(),
        action_rows::text(asking.subject)?,
        digest.0,
        action_rows::text(asking.terms)?,
        asking.rule,
        w.now(),
        expires_at.map(|at| at.0),
        rows::int(asking.hold.map_or(0, |hold| hold.fence)),
    ];
    w.insert(
        "INSERT INTO approval (tenant, id, action, run, step, state, subject, digest, terms, rule, asked_at, expires_at, \
         fence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params,
    )?;
    let found = find(w, asking.id)?;
    let body = json!({
        "digest": digest.hex(), "rule": asking.rule, "type": asking.subject.kind, "policy": asking.subject.policy,
        "expires_at": expires_at.map(|at| at.0), "state": found.record.state,
    });
    tell(w, &found.record, (EventKind::ApprovalAsked, None), body)?;
    Ok(found.record)
}

/// Who decided, and why.
pub(super) struct Decider<'a> {
    /// The person; nobody where the program only notes what is so.
    pub by: Option<&'a str>,
    pub reason: Option<&'a str>,
}

impl<'a> Decider<'a> {
    fn agentrun(reason: &'a str) -> Self {
        Self { by: None, reason: Some(reason) }
    }
}

/// Moves an approval by the table, and tells of it. Who agreed stays known when it is used, void or over.
pub(super) fn shift(
    w: &mut Writer<'_>,
    found: &mut FoundApproval,
    (event, decider): (ApprovalEvent, Decider<'_>),
    told: Value,
) -> Result<()> {
    let from = found.record.state;
    let to = APPROVAL.next(from, event)?;
    let sql = format!(
        "UPDATE approval SET state = ?2, decided_at = ?3, decided_by = coalesce(?4, decided_by), \
         reason = coalesce(?5, reason) WHERE seq = ?1 AND state IN ({})",
        in_list(APPROVAL.sources(event))
    );
    let reason = decider.reason.filter(|_| event != ApprovalEvent::Use);
    if w.run(&sql, (found.seq, to.word(), w.now(), decider.by, reason))? == 0 {
        return Err(APPROVAL.refusal(from.word(), event).into());
    }
    *found = find(w, &found.record.id.clone())?;
    let body = json!({ "from": from, "to": to, "event": event, "by": decider.by, "digest": found.record.digest.hex() });
    tell(w, &found.record, (EventKind::ApprovalDecided, decider.reason), actions::with(body, told))
}

/// Tells of an approval in the chain of the run that asked.
pub(super) fn tell(
    w: &mut Writer<'_>,
    record: &ApprovalRecord,
    what: (EventKind, Option<&str>),
    body: Value,
) -> Result<()> {
    let mut body = actions::with(json!({ "approval": record.id }), body);
    if let Some(action) = &record.action {
        body = match actions::find(w, action) {
            Ok(found) => actions::about(&found.record, body),
            Err(StoreError::NotFound { .. }) => actions::with(json!({ "action": action }), body),
            Err(other) => return Err(other),
        };
    }
    actions::tell_in(w, (&record.run, record.step.as_ref()), what, body)
}

/// Its time is over. An action that was READY because of it waits again; one whose outcome is unknown stays what it is (F47).
pub(super) fn expire(w: &mut Writer<'_>, found: &mut FoundApproval) -> Result<()> {
    shift(w, found, (ApprovalEvent::Expire, Decider::agentrun("its time is over")), json!({}))?;
    demote(w, &found.record)
}

/// What an approval let go, and that was not sent, waits again.
pub(super) fn demote(w: &mut Writer<'_>, record: &ApprovalRecord) -> Result<()> {
    let Some(mut action) = action_of(w, record)? else { return Ok(()) };
    if action.record.state == ActionState::Ready {
        actions::shift(w, &mut action, &ActionMove::new(ActionEvent::Ask), Some("its approval no longer counts"))?;
    }
    Ok(())
}

/// The action for which this approval is the one that counts.
pub(super) fn action_of(w: &Writer<'_>, record: &ApprovalRecord) -> Result<Option<Found>> {
    let Some(id) = &record.action else { return Ok(None) };
    match actions::find(w, id) {
        Ok(found) => Ok((found.record.approval.as_ref() == Some(&record.id)).then_some(found)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Approvals of an action that is withdrawn are for nothing.
pub(super) fn void_of(w: &mut Writer<'_>, action: &Found, reason: &str) -> Result<()> {
    for mut found in of(w.db(), About::Action(&action.record.id))? {
        if ALIVE.contains(&found.record.state) {
            shift(w, &mut found, (ApprovalEvent::Void, Decider::agentrun(reason)), json!({}))?;
        }
    }
    Ok(())
}

/// What a run that is canceled asked for is for nothing. Its actions stay as they are: another run may want them too.
pub(super) fn void_of_run(w: &mut Writer<'_>, run: &RunId) -> Result<()> {
    let filter = ApprovalFilter { run: Some(run.clone()), states: ALIVE.to_vec(), ..ApprovalFilter::default() };
    for record in list(w.db(), &filter)? {
        let mut found = find(w, &record.id)?;
        shift(w, &mut found, (ApprovalEvent::Void, Decider::agentrun("its run was canceled")), json!({}))?;
    }
    Ok(())
}

/// What there is for an action that is about to be sent, with this digest.
pub(super) fn standing(w: &Writer<'_>, action: &Found, digest: Option<&Sha256Hash>) -> Result<Standing> {
    let Some(id) = &action.record.approval else { return Ok(Standing::None) };
    // One that was lost to damage agrees to nothing.
    let Some(found) = one(w.db(), id)? else { return Ok(Standing::None) };
    let (record, now) = (&found.record, w.ctx().now.utc);
    let covers = digest.is_some_and(|digest| record.covers(digest, now));
    let was_used = record.state == ApprovalState::Used
        && digest == Some(&record.digest)
        && action.record.tries > 0
        && !record.is_over(now);
    Ok(match (covers, was_used) {
        (true, _) => Standing::Unused(Box::new(found)),
        (_, true) => Standing::OfThis,
        _ => Standing::Other(Box::new(found.record)),
    })
}

/// It lets one action go, in the transaction that begins it (F51).
pub(super) fn spend(w: &mut Writer<'_>, found: &FoundApproval) -> Result<()> {
    let mut found = FoundApproval { seq: found.seq, record: found.record.clone() };
    shift(w, &mut found, (ApprovalEvent::Use, Decider::agentrun("the action is sent")), json!({}))
}

/// It lets one step go, together with the step's own move: refused unless it covers exactly this, now.
pub(super) fn spend_for_step(w: &mut Writer<'_>, held: &Held<'_>, id: &ApprovalId, digest: &Sha256Hash) -> Result<()> {
    let mut found = find(w, id)?;
    let record = &found.record;
    if record.run != held.hold.run || record.action.is_some() {
        return Err(StoreError::NotFound { what: format!("approval {id} of a step of {}", held.hold.run) });
    }
    if record.digest != *digest {
        return Err(StoreError::ApprovalMismatch { approval: id.clone(), recorded: record.digest, given: *digest });
    }
    if record.state == ApprovalState::Approved && record.is_over(w.ctx().now.utc) {
        return Err(StoreError::ApprovalExpired { approval: id.clone() });
    }
    shift(w, &mut found, (ApprovalEvent::Use, Decider::agentrun("the step begins")), json!({}))
}
