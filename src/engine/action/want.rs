//! From a wish to an intended effect: what the policy says of it, the intent on record, and whether it may go. Nothing is
//! sent here.

use std::path::Path;

use super::Outside;
use super::subject::{self, Looked};
use crate::artifacts::atomic::{self, IfExists};
use crate::artifacts::home::{Home, make_private};
use crate::domain::action::approval::{ApprovalRecord, Subject};
use crate::domain::action::record::{ReleaseRecord, WantedBy, WantedRecord};
use crate::domain::action::request::NORMAL_VERSION;
use crate::domain::action::state::ApprovalState;
use crate::domain::action::{ActionEvent, ActionFacts, ActionMove, ActionRecord, ActionRequest, ActionState, Contract};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::{ActionId, ApprovalId, RunId, StepKey, SupportCode};
use crate::domain::policy::decide::{Asked, Decision, decide};
use crate::domain::policy::{ActionType, Keep, Verdict};
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::RunInputs;
use crate::engine::error::EngineError;
use crate::engine::host::{Who, now};
use crate::store::{About, ActionFilter, ActionStep, Asking, By, Hold, Note, Proposal, Proposed, Store};

/// How long an equal request is answered from the record, where the policy does not say (R-A3).
const KEPT: Millis = Millis(7 * 24 * 3_600_000);

/// An effect that somebody wants.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What, in its normal form.
    pub request: ActionRequest,
    /// What the other side guarantees.
    pub contract: Contract,
    /// Everything that an approval covers.
    pub looked: Looked,
    /// The release, where it is about one.
    pub release: Option<ReleaseRecord>,
    /// Who wants it.
    pub wanted: WantedBy,
}

/// What of a wish is recorded.
#[derive(Clone, Copy)]
pub struct Want<'a> {
    /// What, in its normal form.
    pub request: &'a ActionRequest,
    /// What the other side guarantees.
    pub contract: &'a Contract,
    /// The release, where it is about one.
    pub release: Option<&'a ReleaseRecord>,
    /// Who wants it.
    pub wanted: &'a WantedBy,
}

impl Wish {
    /// What of it is recorded.
    pub fn want(&self) -> Want<'_> {
        let Self { request, contract, release, wanted, .. } = self;
        Want { request, contract, release: release.as_ref(), wanted }
    }
}

/// An effect that is on record as intended.
#[derive(Debug, Clone)]
pub struct Intended {
    /// The record.
    pub action: ActionRecord,
    /// What an approval covers, to be looked at again.
    pub looked: Looked,
    /// As the rules of the policy see it.
    pub asked: Asked,
}

/// Whether it may go.
#[derive(Debug)]
pub enum Gate {
    /// It may be carried out, or is there already.
    Go(Box<Intended>),
    /// A person must agree first.
    Wait(Box<Intended>, Box<ApprovalRecord>),
    /// It must not.
    Refused(Failure),
}

/// Records the intent and says whether it may go. A refusal is on record, too.
pub fn intend(
    outside: &Outside<'_>,
    store: &mut Store,
    by: By<'_>,
    (inputs, wish): (&RunInputs, &Wish),
) -> Result<Gate, EngineError> {
    let asked = wish.request.asked();
    let decision = decide(&inputs.policy, &asked);
    if decision.verdict == Verdict::Deny {
        return deny(outside.who, store, (&wish.want(), &decision)).map(Gate::Refused);
    }
    let subject = subject::look(outside, &wish.looked)?;
    let action = record((outside.home, outside.who), store, by, (inputs, &wish.want()))?.record().clone();
    let action = may_be_tried_again(outside.who, store, action)?;
    let hold = match by {
        By::Holder(hold) => Some(hold),
        By::Inside { .. } => None,
    };
    let intended = Intended { action, looked: wish.looked.clone(), asked };
    weigh(outside, store, hold, (intended, &decision, &subject))
}

/// Records what a program inside a run wants, for the run's holder to carry out: nobody is asked and nothing is sent here.
/// What failed in this very attempt is not tried again: the one retry layer has given it up (FR-G6).
pub fn leave(
    (home, who): (&Home, &Who),
    store: &mut Store,
    by: By<'_>,
    (inputs, want): (&RunInputs, &Want<'_>),
) -> Result<Result<Proposed, Failure>, EngineError> {
    let decision = decide(&inputs.policy, &want.request.asked());
    if decision.verdict == Verdict::Deny {
        return deny(who, store, (want, &decision)).map(Err);
    }
    let proposed = record((home, who), store, by, (inputs, want))?;
    let action = proposed.record();
    if action.state != ActionState::Failed {
        return Ok(Ok(proposed));
    }
    let by = want.wanted;
    let same = |wanted: &&WantedRecord| wanted.by.run == by.run && wanted.by.attempt == by.attempt;
    if store.wanted(&action.id)?.iter().filter(same).count() > 1 {
        return Ok(Ok(proposed));
    }
    let again = may_be_tried_again(who, store, action.clone())?;
    Ok(Ok(Proposed::Renewed(Box::new(again))))
}

/// Whether an intent on record may go, by the policy's decision about it and what an approval would cover.
pub fn weigh(
    outside: &Outside<'_>,
    store: &mut Store,
    hold: Option<&Hold>,
    (intended, decision, subject): (Intended, &Decision, &Subject),
) -> Result<Gate, EngineError> {
    let id = intended.action.id.clone();
    let is_open = matches!(intended.action.state, ActionState::Ready | ActionState::WaitingApproval);
    // It is under way, settled or unknown: nothing new is approved or sent by wanting it again.
    if !is_open || decision.verdict == Verdict::Allow {
        return Ok(Gate::Go(Box::new(intended)));
    }
    if decision.verdict == Verdict::Deny {
        return Ok(Gate::Refused(Failure::new(Code::PolicyDenied, decision.why.clone())));
    }
    let approval = ask(outside, store, (hold, About::Action(&id)), (subject, decision))?;
    let intended = Box::new(Intended { action: found(store, &id)?, ..intended });
    Ok(match approval.state {
        ApprovalState::Approved | ApprovalState::Used => Gate::Go(intended),
        _ => Gate::Wait(intended, Box::new(approval)),
    })
}

/// Asks for a person's agreement, or finds the one that there is.
pub fn ask(
    outside: &Outside<'_>,
    store: &mut Store,
    (hold, about): (Option<&Hold>, About<'_>),
    (subject, decision): (&Subject, &Decision),
) -> Result<ApprovalRecord, EngineError> {
    let (_, low) = uuid::Uuid::now_v7().as_u64_pair();
    let id = ApprovalId::recorded(format!("apr_{}", SupportCode::from_bits(low)));
    let Decision { terms, rule, .. } = decision;
    let asking = Asking { about, hold, id: &id, subject, terms, rule: rule.as_deref() };
    Ok(store.ask_approval(&asking, &outside.who.context())?)
}

/// An action that must be there.
pub fn found(store: &Store, id: &ActionId) -> Result<ActionRecord, EngineError> {
    store.action(id)?.ok_or_else(|| EngineError::failed(Code::NotFound, format!("action {id} is not on record")))
}

/// The action that a step of a run is about, whoever wanted it first.
pub fn of_step(store: &Store, run: &RunId, step: &StepKey) -> Result<Option<ActionRecord>, EngineError> {
    let wanted = store.actions(&ActionFilter { run: Some(run.clone()), ..ActionFilter::default() })?;
    for action in wanted.into_iter().rev() {
        let is_it = |w: &WantedRecord| w.by.run == *run && w.by.step.as_ref() == Some(step);
        if store.wanted(&action.id)?.iter().any(is_it) {
            return Ok(Some(action));
        }
    }
    Ok(None)
}

/// Each try that the policy turns down is on record (R-P3).
fn deny(who: &Who, store: &mut Store, (want, decision): (&Want<'_>, &Decision)) -> Result<Failure, EngineError> {
    let body = serde_json::json!({
        "code": Code::PolicyDenied, "type": want.request.kind, "target": want.request.target, "rule": decision.rule,
        "request_hash": want.request.hash().hex(), "step": want.wanted.step, "call": want.wanted.call,
    });
    let note = Note { kind: EventKind::ActionRefused, reason: decision.why.clone(), body };
    store.note(Some(&want.wanted.run), &note, &who.context())?;
    Ok(Failure::new(Code::PolicyDenied, decision.why.clone()))
}

/// The record of the intent: the one that is there, or a new one.
fn record(
    (home, who): (&Home, &Who),
    store: &mut Store,
    by: By<'_>,
    (inputs, want): (&RunInputs, &Want<'_>),
) -> Result<Proposed, EngineError> {
    let request = want.request;
    let key = request.key(TENANT).map_err(|e| EngineError::failed(Code::ValidationError, e.to_string()))?;
    let id = ActionId::recorded(uuid::Uuid::now_v7().to_string());
    let request_file = format!("{}/actions/{id}.json", want.wanted.run);
    let path = home.root().join(&request_file);
    if store.action_by_key(&key)?.is_none() {
        // The request is on disk before the record that names it. If we die in between, it is a file that nobody names.
        write_request(&path, request)?;
    }
    let present = now().utc;
    let proposal = Proposal {
        by,
        id,
        key,
        request_hash: request.hash(),
        normal_version: NORMAL_VERSION,
        kind: request.kind,
        target: request.target.clone(),
        account: request.account.clone(),
        environment: request.environment,
        request_file: request_file.clone(),
        contract: want.contract.clone(),
        irreversible: request.irreversible || want.contract.irreversible,
        release: want.release.map(|release| release.id.clone()),
        corrects: None,
        deadline: present.plus(inputs.policy.actions.of(request.kind).expire),
        expires_at: expires_at(request.kind, want.contract, (inputs, present)),
        wanted: want.wanted.clone(),
    };
    let proposed = store.propose(&proposal, &who.context());
    let is_ours = matches!(&proposed, Ok(Proposed::New(_)));
    if !is_ours {
        // Somebody else was first: theirs is the request that counts.
        let _ = fs_err::remove_file(&path);
    }
    Ok(proposed?)
}

/// The tenant of everything that one `.ai-runs` holds.
pub const TENANT: &str = "local";

/// The request, for whoever sends it, approves it, or asks what became of it. 0600, below the state folder.
fn write_request(path: &Path, request: &ActionRequest) -> Result<(), EngineError> {
    if let Some(folder) = path.parent() {
        make_private(folder)?;
    }
    let text = serde_json::to_vec(request).map_err(|e| EngineError::failed(Code::Internal, e.to_string()))?;
    Ok(atomic::write(path, &text, IfExists::Refuse)?)
}

/// The request as it was recorded; another content under its name is tampering.
pub fn read_request(outside: &Outside<'_>, action: &ActionRecord) -> Result<ActionRequest, EngineError> {
    request_in(outside.home, action)
}

/// The same, for whoever only looks.
pub fn request_in(home: &Home, action: &ActionRecord) -> Result<ActionRequest, EngineError> {
    let path = home.root().join(&action.request_file);
    let lost = |what: String| EngineError::failed(Code::StateCorrupt, format!("{}: {what}", path.display()));
    let text = fs_err::read(&path).map_err(|e| lost(e.to_string()))?;
    let request: ActionRequest = serde_json::from_slice(&text).map_err(|e| lost(e.to_string()))?;
    if action.normal_version == NORMAL_VERSION && request.hash() != action.request_hash {
        let message = format!("{}: it is not what was recorded", path.display());
        return Err(EngineError::failed(Code::ArtifactChanged, message));
    }
    Ok(request)
}

/// A new attempt tries again what is known not to have happened, with the same key.
fn may_be_tried_again(who: &Who, store: &mut Store, action: ActionRecord) -> Result<ActionRecord, EngineError> {
    if action.state != ActionState::Failed {
        return Ok(action);
    }
    let facts =
        ActionFacts { last_fact: Some("it had not happened, and is tried again".to_owned()), ..ActionFacts::default() };
    let moved = ActionMove { event: ActionEvent::Retry, facts };
    let step = ActionStep { action: &action.id, fence: None, moved: &moved, reason: Some("wanted again") };
    Ok(store.move_action(&step, &who.context())?)
}

/// From when on the same key is expired: as the policy says, and never before the provider forgets it (R-A3).
fn expires_at(kind: ActionType, contract: &Contract, (inputs, present): (&RunInputs, UtcMs)) -> Option<UtcMs> {
    use crate::domain::machine::Word as _;
    let kept = match (inputs.policy.retention.get(kind.word()), kind) {
        (Some(Keep::Release), _) | (None, ActionType::Deploy | ActionType::Rollback) => return None,
        (Some(Keep::For(length)), _) => *length,
        (None, _) => KEPT,
    };
    Some(present.plus(kept.max(contract.key_lifetime.unwrap_or_default())))
}
