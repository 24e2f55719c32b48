//! What persons are asked for, and what they say (R-A9, R-A13). A person decides about exactly what they were shown.

use super::error::OpsError;
use super::place::Place;
use crate::config::env_vars;
use crate::domain::action::approval::ApprovalRecord;
use crate::domain::action::record::ActionRecord;
use crate::domain::action::state::ApprovalState;
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::StepKey;
use crate::domain::policy::people::{permit, who_may};
use crate::domain::policy::{Policy, Right};
use crate::engine::action::want::request_in;
use crate::engine::host::Who;
pub use crate::store::Ruling;
use crate::store::{ApprovalFilter, Deciding, Store};

/// An approval with what belongs to it.
#[derive(Debug)]
pub struct Asked {
    /// The record.
    pub approval: ApprovalRecord,
    /// The action that it lets go.
    pub action: Option<ActionRecord>,
    /// The arguments, as they would be sent; `None` for a gate, or when the file is gone.
    pub input: Option<serde_json::Value>,
    /// Who may decide.
    pub may: Vec<String>,
}

/// What a person says.
#[derive(Debug, Clone, Copy)]
pub struct Word<'a> {
    /// Yes, no, or no longer.
    pub ruling: Ruling,
    /// The digest of what they were shown.
    pub digest: Option<Sha256Hash>,
    /// Why.
    pub reason: Option<&'a str>,
}

/// The shortest beginning of an action's id that is taken for one.
const SHORTEST: usize = 6;

/// Approvals, oldest first: those that can still come to something, or all.
pub fn list(place: &Place, states: &[ApprovalState]) -> Result<Vec<ApprovalRecord>, OpsError> {
    let Some(store) = place.records()? else { return Ok(Vec::new()) };
    Ok(store.approvals(&ApprovalFilter { states: states.to_vec(), ..ApprovalFilter::default() })?)
}

/// The one approval that `text` names: its id, its action's (or a beginning of it), its step's, or its run's.
pub fn find(place: &Place, text: &str) -> Result<Asked, OpsError> {
    let none = || {
        OpsError::failed(
            Code::NotFound,
            format!("there is no approval, action, step or run `{text}` that waits or waited for a person"),
        )
    };
    let store = place.records()?.ok_or_else(none)?;
    let fits = |a: &ApprovalRecord| {
        a.id.as_str() == text
            || a.action.as_ref().is_some_and(|id| text.len() >= SHORTEST && id.as_str().starts_with(text))
            || a.step.as_ref().is_some_and(|step| a.run.step(step) == text)
            || a.run.as_str() == text
    };
    let mut found = store.approvals(&ApprovalFilter::default())?;
    found.retain(fits);
    let open: Vec<&ApprovalRecord> = found.iter().filter(|a| a.state == ApprovalState::Open).collect();
    let one = match (open.as_slice(), found.as_slice()) {
        ([one], _) => (*one).clone(),
        // Several past ones of the same thing: the newest says how it ended.
        ([], [.., newest]) => newest.clone(),
        ([], []) => return Err(none()),
        (several, _) => {
            let names: Vec<String> = several.iter().map(|a| format!("{} ({})", a.id, a.subject.title)).collect();
            let message = format!("`{text}` fits several that wait for a person: {}", names.join(", "));
            return Err(OpsError::failed(Code::NotFound, message));
        }
    };
    with_all(place, &store, one)
}

fn with_all(place: &Place, store: &Store, approval: ApprovalRecord) -> Result<Asked, OpsError> {
    let action = match &approval.action {
        Some(id) => store.action(id)?,
        None => None,
    };
    let home = place.home()?;
    let input = match &action {
        Some(action) => Some(request_in(&home, action)?.input),
        None => None,
    };
    let may = who_may(&policy_of(store, &approval)?, Right::Approve, Some(&approval.terms));
    Ok(Asked { approval, action, input, may })
}

/// The policy of the run that asked.
fn policy_of(store: &Store, approval: &ApprovalRecord) -> Result<Policy, OpsError> {
    Ok(store.view(&approval.run)?.inputs.policy)
}

/// A program inside a run decides nothing for a person.
pub fn refuse_inside(place: &Place) -> Result<(), OpsError> {
    match place.var(env_vars::AGENTRUN_RUN_ID) {
        Some(run) => {
            let message = format!("this command was called from inside run {run}; only a person decides");
            Err(OpsError::failed(Code::PolicyDenied, message))
        }
        None => Ok(()),
    }
}

/// Whether this person may decide; refused before anything is asked.
pub fn refuse_unentitled(place: &Place, who: &Who, asked: &Asked) -> Result<(), OpsError> {
    refuse_inside(place)?;
    let approval = &asked.approval;
    let policy = policy_of(&place.store()?, approval)?;
    permit(&policy, &who.actor, Right::Approve, Some(&approval.terms))
        .map_err(|why| OpsError::about(&approval.run, Code::PolicyDenied, why))
}

/// Decides. The store refuses what comes too late, is decided, or is about something else.
pub fn decide(place: &Place, who: &Who, asked: &Asked, word: Word<'_>) -> Result<Asked, OpsError> {
    refuse_unentitled(place, who, asked)?;
    let mut store = place.store()?;
    let deciding = Deciding {
        id: &asked.approval.id,
        ruling: word.ruling,
        by: &who.actor,
        digest: word.digest,
        reason: word.reason,
    };
    match store.decide_approval(&deciding, &who.context()) {
        Ok(approval) => with_all(place, &store, approval),
        Err(error) => {
            let failure = OpsError::from(error);
            Err(OpsError::about(&asked.approval.run, failure.code(), failure.to_string()))
        }
    }
}

/// A step's name, or what stands in its place.
pub fn step_of(approval: &ApprovalRecord) -> String {
    approval.step.as_ref().map_or_else(|| "an agent's wish".to_owned(), |step: &StepKey| approval.run.step(step))
}
