//! The transaction before a send (faults, rule 1): whatever must hold for something to be sent is looked at here once more, as
//! it stands in the database now, and written down as sent together with that look. What comes after it may have happened.

use serde_json::json;

use super::action_calls::{NotSent, Sending};
use super::actions::{self, Found};
use super::approvals::{self, Standing};
use super::calls::{Context, Hold};
use super::claim;
use super::error::{Result, StoreError};
use super::write::Writer;
use super::{Store, TENANT, deployments, rows};
use crate::domain::action::contract::Automatic;
use crate::domain::action::record::ActionRecord;
use crate::domain::action::state::{ACTION, ActionEvent, ActionState};
use crate::domain::event::EventKind;
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::policy::decide::{Decision, decide};
use crate::domain::policy::{Policy, Verdict};
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::domain::record::{Lease, RunInputs};
use crate::domain::run::RunStatus;

impl Store {
    /// Writes down that an action is sent, if it still may be: its state, both fences, what is left of the leases, the policy of
    /// the run's inputs as they stand now (F68), an approval of exactly this, which is used up with it (F51), the send budget
    /// (R-A15), the time for which the other side keeps the key (F59), and that nobody else deploys the same. From READY, and
    /// from OUTCOME_UNKNOWN where the contract lets the same be sent again. What is missing is the inner answer; nothing has
    /// changed then.
    pub fn begin_send(
        &mut self,
        sending: &Sending<'_>,
        ctx: &Context,
    ) -> Result<std::result::Result<ActionRecord, NotSent>> {
        self.write_or_refuse(ctx, |w| begin(w, sending))
    }
}

type Begun = Result<std::result::Result<ActionRecord, NotSent>>;

fn begin(w: &mut Writer<'_>, sending: &Sending<'_>) -> Result<Begun> {
    let mut found = actions::find(w, sending.action)?;
    if found.record.fence != sending.fence {
        return Ok(Err(actions::fenced(w, &found, sending.fence, "send")?));
    }
    if let Some(hold) = sending.hold {
        if let Some(refusal) = actions::check_hold(w, hold, "send of an action")? {
            return Ok(Err(refusal));
        }
        found.doing = Some(hold.run.clone());
    }
    let event = send_event(&found)?;
    let run = match doer(w, &found, sending.hold)? {
        Ok(run) => run,
        Err(not_sent) => return refuse(w, &found, not_sent),
    };
    if !lasts(w, &found, sending)? {
        return refuse(w, &found, NotSent::LeaseOver);
    }
    let decision = match run.as_ref().map(|inputs| decide(&inputs.policy, sending.asked)) {
        Some(decision) if decision.verdict != Verdict::Deny => decision,
        denied => return denied_by(w, &found, denied),
    };
    let approval = match approval_for(w, &found, (sending, &decision))? {
        Ok(approval) => approval,
        Err(not_sent) => return Ok(Ok(Err(not_sent))),
    };
    let policy = run.map(|inputs| inputs.policy).unwrap_or_default();
    if let Some(not_sent) = limits(w, &found, &policy)? {
        return refuse(w, &found, not_sent);
    }
    decided(w, &found, &decision, &policy)?;
    if let Some(Standing::Unused(approval)) = &approval {
        approvals::spend(w, approval)?;
    }
    start(w, &mut found, sending, event)?;
    deployments::begun(w, &found)?;
    Ok(Ok(Ok(found.record)))
}

/// By which row of the table it is sent.
fn send_event(found: &Found) -> Result<ActionEvent> {
    let record = &found.record;
    let may_resend = record.contract.may_resend_unknown() && !record.irreversible;
    match record.state {
        ActionState::OutcomeUnknown if may_resend => Ok(ActionEvent::Resend),
        ActionState::Ready => Ok(ActionEvent::Start),
        _ => Err(found.refusal(ActionEvent::Start)),
    }
}

/// What the run was given that does it, or that wanted it; nothing for a run that is lost. Nothing is begun for a run that is
/// canceled, or about to be.
fn doer(w: &Writer<'_>, found: &Found, hold: Option<&Hold>) -> Result<std::result::Result<Option<RunInputs>, NotSent>> {
    let run: &RunId = found.chain();
    let known = match claim::find(w, run) {
        Ok(known) => known,
        Err(StoreError::NotFound { .. }) => return Ok(Ok(None)),
        Err(other) => return Err(other),
    };
    if known.cancel_requested || known.status == RunStatus::Canceled {
        return Ok(Err(NotSent::Canceled));
    }
    if hold.is_some() && known.status != RunStatus::Running {
        return Err(claim::refused(known.status, "send of an action").into());
    }
    let sql = "SELECT inputs FROM run_inputs WHERE run = ?1";
    Ok(Ok(rows::first(w.db(), sql, [known.seq], |row| row.json())?))
}

/// Whether the leases of the action and of the run that does it last long enough by this clock. One that another boot gave
/// cannot be read here, and does not count.
fn lasts(w: &Writer<'_>, found: &Found, sending: &Sending<'_>) -> Result<bool> {
    let now = &w.ctx().now;
    let needed = BootMs(now.boot.0.saturating_add(sending.margin.0));
    let enough =
        |lease: &Option<Lease>| lease.as_ref().is_some_and(|l| l.holder.boot_id == now.boot_id && l.until > needed);
    if !enough(&found.record.lease) {
        return Ok(false);
    }
    let Some(hold) = sending.hold else { return Ok(true) };
    let sql = "SELECT lease_pid, lease_start_ticks, lease_boot_id, lease_until FROM run WHERE tenant = ?1 AND id = ?2";
    Ok(enough(&rows::first(w.db(), sql, (TENANT, hold.run.as_str()), rows::lease)?.flatten()))
}

/// The approval that lets it go, where one is needed.
fn approval_for(
    w: &Writer<'_>,
    found: &Found,
    (sending, decision): (&Sending<'_>, &Decision),
) -> Result<std::result::Result<Option<Standing>, NotSent>> {
    if decision.verdict == Verdict::Allow {
        return Ok(Ok(None));
    }
    let standing = approvals::standing(w, found, sending.digest.as_ref())?;
    if matches!(standing, Standing::Unused(_) | Standing::OfThis) {
        return Ok(Ok(Some(standing)));
    }
    let standing = match standing {
        Standing::Other(record) => Some(record),
        _ => None,
    };
    let Decision { rule, terms, why, .. } = decision.clone();
    Ok(Err(NotSent::NeedsApproval { rule, terms, why, standing }))
}

/// What is left when policy and people agree: whether agentrun may send it at all, how much was sent there, whether the other
/// side still knows the key, and whether another action deploys the same.
fn limits(w: &Writer<'_>, found: &Found, policy: &Policy) -> Result<Option<NotSent>> {
    let (record, now) = (&found.record, w.ctx().now.utc);
    if record.contract.automatic == Automatic::Draft {
        return Ok(Some(NotSent::Draft));
    }
    if let Some(other) = deployments::in_the_way(w, found)? {
        return Ok(Some(NotSent::Deployment(Box::new(other))));
    }
    if let (Some(since), Some(lifetime)) = (record.started_at, record.contract.key_lifetime)
        && since.plus(lifetime) <= now
    {
        return Ok(Some(NotSent::KeyRetentionPassed { since, lifetime }));
    }
    let limit = policy.send_limit(record.kind);
    let after = now.0.saturating_sub(rows::int(limit.per.0));
    let sql = "SELECT count(*), min(at) FROM action_send WHERE tenant = ?1 AND kind = ?2 AND target = ?3 AND at > ?4";
    let params = (TENANT, record.kind.word(), &record.target, after);
    let (sent, first) =
        rows::first(w.db(), sql, params, |row| Ok((row.count()?, row.take::<Option<i64>>()?)))?.unwrap_or((0, None));
    if sent < limit.max {
        return Ok(None);
    }
    let until = UtcMs(first.unwrap_or(now.0)).plus(limit.per);
    Ok(Some(NotSent::Budget { limit, sent, until }))
}

fn refuse(w: &mut Writer<'_>, found: &Found, not_sent: NotSent) -> Result<Begun> {
    if matches!(not_sent, NotSent::KeyRetentionPassed { .. }) {
        let sql = "UPDATE action SET code = ?2, message = ?3 WHERE seq = ?1";
        w.run(sql, (found.seq, not_sent.code().word(), not_sent.to_string()))?;
    }
    let body = json!({ "code": not_sent.code(), "until": not_sent.until().map(|at| at.0) });
    actions::tell(w, found, (EventKind::ActionRefused, Some(&not_sent.to_string())), body)?;
    Ok(Ok(Err(not_sent)))
}

/// Without a policy to ask, nothing goes (F90).
fn denied_by(w: &mut Writer<'_>, found: &Found, denied: Option<Decision>) -> Result<Begun> {
    let (rule, why) = match denied {
        Some(denied) => (denied.rule, denied.why),
        None => (None, "the policy of its run is lost".to_owned()),
    };
    let not_sent = NotSent::Denied { rule: rule.clone(), why };
    let body = json!({ "code": not_sent.code(), "rule": rule });
    actions::tell(w, found, (EventKind::ActionRefused, Some(&not_sent.to_string())), body)?;
    Ok(Ok(Err(not_sent)))
}

fn decided(w: &mut Writer<'_>, found: &Found, decision: &Decision, policy: &Policy) -> Result<()> {
    let body = json!({ "verdict": decision.verdict, "rule": decision.rule, "policy_version": policy.version });
    actions::tell(w, found, (EventKind::PolicyDecided, Some(&decision.why)), body)
}

/// The conditional update, the row of the send, and the event.
fn start(w: &mut Writer<'_>, found: &mut Found, sending: &Sending<'_>, event: ActionEvent) -> Result<()> {
    let (from, tries) = (found.record.state, found.record.tries + 1);
    let to = ACTION.next(from, event)?;
    let now = w.ctx().now.utc;
    let settle = found.record.contract.query.as_ref().map(|query| query.settle);
    let query_from = settle.map(|settle: Millis| now.plus(settle).0);
    let sql = format!(
        "UPDATE action SET state = ?3, tries = ?4, sent_at = ?5, started_at = coalesce(started_at, ?5), \
         finished_at = NULL, query_from = ?6, deadline = ?9, digest = coalesce(?7, digest), code = NULL, message = NULL, \
         retry_at = NULL, review = NULL, owner = NULL, due = NULL, last_fact = ?8 \
         WHERE seq = ?1 AND fence = ?2 AND state IN ({})",
        claim::in_list(ACTION.sources(event))
    );
    let last_fact = format!("sent for the {} time, or about to be; no answer yet", ordinal(tries));
    let (fence, digest) = (rows::int(sending.fence), sending.digest.map(|digest| digest.0));
    let params =
        rusqlite::params![found.seq, fence, to.word(), tries, now.0, query_from, digest, last_fact, sending.deadline.0];
    if w.run(&sql, params)? == 0 {
        return Err(found.refusal(event));
    }
    let record = &found.record;
    w.run(
        "INSERT INTO action_send (tenant, action, tries, kind, target, run, at, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        (TENANT, found.seq, tries, record.kind.word(), &record.target, found.chain().as_str(), now.0, fence),
    )?;
    let doing = found.doing.take();
    *found = Found { doing, ..actions::find(w, sending.action)? };
    let body = json!({
        "from": from, "to": to, "event": event, "operation_fence": sending.fence,
        "approval": found.record.approval, "digest": sending.digest.map(|digest| digest.hex()),
    });
    actions::tell(w, found, (EventKind::ActionSent, None), body)
}

fn ordinal(tries: u32) -> String {
    match tries {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        n => format!("{n}th"),
    }
}
