//! A person decides about an approval. Of two who decide at once one does, and the other is told who (F48); what is refused is
//! in the log all the same.

use serde_json::json;

use super::action_calls::{Deciding, Ruling};
use super::approvals::{self, Decider, FoundApproval};
use super::calls::Context;
use super::changes::RunMove;
use super::error::{Result, StoreError};
use super::write::Writer;
use super::{Store, TENANT, actions, claim, deployments, rows, unheld};
use crate::domain::action::approval::ApprovalRecord;
use crate::domain::action::state::{APPROVAL, ActionEvent, ActionState, ApprovalEvent};
use crate::domain::action::{ActionFacts, ActionMove};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::ApprovalId;
use crate::domain::run::{RunEvent, RunStatus};

impl Store {
    /// Decides. Refused, with an event: what is decided already ([`StoreError::ApprovalDecided`] names by whom), what is over by
    /// its own time (it is EXPIRED from then on), a digest that is not the approval's, and an agreement for a run that has ended
    /// or is being canceled (F50). A no ends the run that is parked on it. An action that waited is READY, or withdrawn; one that is anything else stays what it is (F47).
    pub fn decide_approval(&mut self, deciding: &Deciding<'_>, ctx: &Context) -> Result<ApprovalRecord> {
        self.write_or_refuse(ctx, |w| {
            let mut found = approvals::find(w, deciding.id)?;
            if let Some(refusal) = refusal(w, &mut found, deciding)? {
                let body = json!({ "code": refusal.code(), "ruling": deciding.ruling, "by": deciding.by });
                let what = (EventKind::ApprovalRefused, Some(refusal.to_string()));
                approvals::tell(w, &found.record, (what.0, what.1.as_deref()), body)?;
                return Ok(Err(refusal));
            }
            let decider = Decider { by: Some(deciding.by), reason: deciding.reason };
            approvals::shift(w, &mut found, (event(deciding.ruling), decider), json!({}))?;
            follow(w, &found, deciding)?;
            if deciding.ruling == Ruling::Reject {
                fail_parked(w, &found, deciding)?;
            }
            Ok(Ok(found.record))
        })
    }

    /// Ends every approval whose time is over, and answers them.
    pub fn expire_approvals(&mut self, ctx: &Context) -> Result<Vec<ApprovalRecord>> {
        self.write(ctx, |w| {
            let sql = "SELECT id FROM approval WHERE tenant = ?1 AND state IN ('OPEN', 'APPROVED') AND expires_at <= ?2 \
                       ORDER BY seq";
            let over = rows::all(w.db(), sql, (TENANT, w.now()), |row| row.take::<String>())?;
            let mut expired = Vec::new();
            for id in over {
                let mut found = approvals::find(w, &ApprovalId::recorded(id))?;
                approvals::expire(w, &mut found)?;
                expired.push(found.record);
            }
            Ok(expired)
        })
    }
}

fn event(ruling: Ruling) -> ApprovalEvent {
    match ruling {
        Ruling::Approve => ApprovalEvent::Approve,
        Ruling::Reject => ApprovalEvent::Reject,
        Ruling::Revoke => ApprovalEvent::Revoke,
    }
}

/// Why the decision does not count, if it does not.
fn refusal(w: &mut Writer<'_>, found: &mut FoundApproval, deciding: &Deciding<'_>) -> Result<Option<StoreError>> {
    let (record, approval) = (&found.record, deciding.id.clone());
    if !APPROVAL.sources(event(deciding.ruling)).contains(&record.state) {
        let by = record.decided_by.clone().unwrap_or_else(|| "agentrun".to_owned());
        return Ok(Some(StoreError::ApprovalDecided { approval, state: record.state, by }));
    }
    // One that was used is past its time in another way: it can still be taken back.
    if record.is_over(w.ctx().now.utc) && APPROVAL.sources(ApprovalEvent::Expire).contains(&record.state) {
        approvals::expire(w, found)?;
        return Ok(Some(StoreError::ApprovalExpired { approval }));
    }
    if let Some(given) = deciding.digest.filter(|given| *given != record.digest) {
        return Ok(Some(StoreError::ApprovalMismatch { approval, recorded: record.digest, given }));
    }
    if deciding.ruling != Ruling::Approve {
        return Ok(None);
    }
    let status = match claim::find(w, &record.run) {
        Ok(run) if run.cancel_requested => RunStatus::Canceled,
        Ok(run) => run.status,
        Err(StoreError::NotFound { .. }) => RunStatus::Canceled,
        Err(other) => return Err(other),
    };
    let has_ended = matches!(status, RunStatus::Canceled | RunStatus::Succeeded | RunStatus::Failed);
    Ok(has_ended.then(|| StoreError::ApprovalTooLate { approval, run: record.run.clone(), status }))
}

/// What the decision does to the action that waited for it.
fn follow(w: &mut Writer<'_>, found: &FoundApproval, deciding: &Deciding<'_>) -> Result<()> {
    if deciding.ruling == Ruling::Revoke {
        return approvals::demote(w, &found.record);
    }
    let Some(mut action) = approvals::action_of(w, &found.record)? else { return Ok(()) };
    if action.record.state != ActionState::WaitingApproval {
        return Ok(());
    }
    if deciding.ruling == Ruling::Approve {
        actions::shift(w, &mut action, &ActionMove::new(ActionEvent::Approve), Some("a person agreed"))?;
        return deployments::agreed(w, &action);
    }
    let message = said_no(deciding);
    let facts = ActionFacts { code: Some(Code::Canceled), message: Some(message), ..ActionFacts::default() };
    actions::shift(w, &mut action, &ActionMove { event: ActionEvent::Withdraw, facts }, Some("a person said no"))
}

fn said_no(deciding: &Deciding<'_>) -> String {
    match deciding.reason {
        Some(reason) => format!("{} said no: {reason}", deciding.by),
        None => format!("{} said no", deciding.by),
    }
}

/// The run that is parked on the answer has it. One that works on meanwhile hears it from its holder.
fn fail_parked(w: &mut Writer<'_>, found: &FoundApproval, deciding: &Deciding<'_>) -> Result<()> {
    let run = &found.record.run;
    let parked = match claim::find(w, run) {
        Ok(parked) if parked.status == RunStatus::WaitingApproval => parked,
        Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(()),
        Err(other) => return Err(other),
    };
    let failure = Failure::new(Code::ApprovalRejected, said_no(deciding));
    let by = RunMove { event: RunEvent::Fail, failure: Some(&failure), retry_at: None };
    unheld::move_at_rest(w, run, &parked, (parked.fence, &by), &failure.message)
}
