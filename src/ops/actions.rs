//! Side effects as people see and settle them: listed, shown, assigned, resolved.

use super::error::OpsError;
use super::find;
use super::place::Place;
use crate::config::env_vars;
use crate::domain::action::record::{ReadingRecord, WantedRecord};
use crate::domain::action::{ActionRecord, ActionState};
use crate::domain::failure::Code;
use crate::domain::policy::ActionType;
use crate::domain::quantity::UtcMs;
use crate::engine::host::Who;
pub use crate::store::Resolution;
use crate::store::{ActionFilter, Assignment, Store};

/// Which actions to list.
#[derive(Debug, Clone, Default)]
pub struct ActionQuery {
    /// Wanted by this run (or task, or support code).
    pub run: Option<String>,
    /// Of this type.
    pub kind: Option<ActionType>,
    /// Only what waits for a person.
    pub review: bool,
    /// Settled ones, too.
    pub all: bool,
}

/// States in which something is still to come.
pub const OPEN: [ActionState; 6] = [
    ActionState::Ready,
    ActionState::WaitingApproval,
    ActionState::Started,
    ActionState::InProgress,
    ActionState::OutcomeUnknown,
    ActionState::Compensating,
];

/// Everything that is known of one action.
pub struct Known {
    /// The record.
    pub action: ActionRecord,
    /// What was seen of it, oldest first.
    pub readings: Vec<ReadingRecord>,
    /// Who wanted it, oldest first.
    pub wanted: Vec<WantedRecord>,
}

/// The actions that match, oldest first. Without a run only open ones, unless all are asked for.
pub fn list(place: &Place, query: &ActionQuery) -> Result<Vec<ActionRecord>, OpsError> {
    let Some(store) = place.records()? else { return Ok(Vec::new()) };
    let run = match &query.run {
        Some(name) => Some(find::run(place, Some(&store), name)?.id),
        None => None,
    };
    let only_open = !query.all && run.is_none();
    let states = if only_open { OPEN.to_vec() } else { Vec::new() };
    Ok(store.actions(&ActionFilter {
        run,
        states,
        kind: query.kind,
        review: query.review,
        ..ActionFilter::default()
    })?)
}

/// One action, by its id or a beginning of it that no other has.
pub fn show(place: &Place, id: &str) -> Result<Known, OpsError> {
    let store = place.records()?.ok_or_else(|| none(id))?;
    let action = one(&store, id)?;
    Ok(Known { readings: store.readings(&action.id)?, wanted: store.wanted(&action.id)?, action })
}

/// Says who must look at it, and until when.
pub fn assign(place: &Place, who: &Who, (id, owner, due): (&str, &str, UtcMs)) -> Result<ActionRecord, OpsError> {
    refuse_inside(place)?;
    let mut store = place.store()?;
    let action = one(&store, id)?;
    let review = action.review.is_none().then_some("a person was asked to look at it");
    let assignment = Assignment { owner, due: Some(due), review };
    Ok(store.assign_action(&action.id, &assignment, &who.context())?)
}

/// A person's answer about one that nobody else could find out about.
pub fn resolve(
    place: &Place,
    who: &Who,
    (id, resolution, reason): (&str, &Resolution, &str),
) -> Result<ActionRecord, OpsError> {
    refuse_inside(place)?;
    let mut store = place.store()?;
    let action = one(&store, id)?;
    Ok(store.resolve_action(&action.id, resolution, reason, &who.context())?)
}

/// What an agent may not decide for a person.
pub fn refuse_inside(place: &Place) -> Result<(), OpsError> {
    match place.var(env_vars::AGENTRUN_RUN_ID) {
        None => Ok(()),
        Some(run) => {
            let message = format!("this command was called from inside run {run}: only a person outside may decide");
            Err(OpsError::failed(Code::PermissionDenied, message))
        }
    }
}

/// The action that a text means.
pub(super) fn one(store: &Store, id: &str) -> Result<ActionRecord, OpsError> {
    let all = store.actions(&ActionFilter::default())?;
    let mut fitting = all.into_iter().filter(|action| action.id.as_str().starts_with(id));
    match (fitting.next(), fitting.next()) {
        _ if id.is_empty() => Err(none(id)),
        (Some(action), None) => Ok(action),
        (None, _) => Err(none(id)),
        (Some(one), Some(other)) => {
            let message = format!("`{id}` fits several actions: {}, {} …", one.id, other.id);
            Err(OpsError::failed(Code::NotFound, message))
        }
    }
}

fn none(id: &str) -> OpsError {
    OpsError::failed(Code::NotFound, format!("there is no action `{id}`"))
}
