//! Something inside a run asks for a side effect. The intent is recorded, the run's holder carries it out, and whoever asked
//! hears within the policy's time where it stands. The same request again leads to the same record (R-A2, R-A3).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::OpsError;
use super::inside::Inside;
use crate::domain::action::record::{ReleaseRecord, WantedBy};
use crate::domain::action::told::{Told, is_said, told};
use crate::domain::action::{ActionRecord, ActionRequest, ActionState, Contract};
use crate::domain::failure::Code;
use crate::domain::ids::{ActionId, ReleaseId};
use crate::domain::machine::Word as _;
use crate::domain::policy::ActionType;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::RunInputs;
use crate::domain::run::RunStatus;
use crate::engine::action::want::{TENANT, Want, found, leave};
use crate::engine::host::{Who, now};
use crate::store::{Proposed, Store};

/// The largest arguments of a request, as JSON.
const LARGEST_INPUT: usize = 256 << 10;

/// The longest text of a target, an account, or what identifies a request.
const LONGEST_TEXT: usize = 500;

/// How often the record is looked at while somebody waits.
const LOOK: Duration = Duration::from_millis(50);

/// How much later it is worth looking at what goes on.
const LOOK_AGAIN: Millis = Millis(10_000);

/// What is asked for, as it was typed.
#[derive(Debug, Clone, Default)]
pub struct RequestOptions {
    /// The word of an [`ActionType`].
    pub kind: String,
    /// What it reaches.
    pub target: String,
    /// On whose account; the contract's where nobody says.
    pub account: Option<String>,
    /// What identifies it.
    pub subject: BTreeMap<String, String>,
    /// The arguments.
    pub input: Option<Value>,
    /// The contract; found by the type where nobody says.
    pub contract: Option<String>,
    /// Tells two equal ones apart that are both meant.
    pub instance: Option<String>,
    /// The agent's id of its tool call.
    pub call: Option<String>,
    /// The agent's conversation.
    pub conversation: Option<String>,
    /// Whether the answer is waited for.
    pub patience: Patience,
}

/// Whether an answer is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Patience {
    /// As long as the policy's `actions.answer`.
    #[default]
    Answer,
    /// Not at all.
    Recorded,
}

/// What whoever asked is told.
#[derive(Debug)]
pub struct Answered {
    /// The record.
    pub action: ActionRecord,
    /// Where it stands.
    pub told: Told,
    /// True when it was on record before this request.
    pub duplicate: bool,
    /// When it is worth looking again.
    pub look_again: Option<UtcMs>,
}

/// Asks.
pub fn request(inside: &Inside, who: &Who, options: &RequestOptions) -> Result<Answered, OpsError> {
    let mut store = inside.store()?;
    let hold = inside.hold(&store)?;
    let view = store.view(&inside.run)?;
    let (request, contract) = read(&view.inputs, options)?;
    let release = release(&store, &request)?;
    let request = with_release(request, release.as_ref());
    let wanted = WantedBy {
        run: inside.run.clone(),
        attempt: hold.attempt,
        step: None,
        call: options.call.clone(),
        conversation: options.conversation.clone(),
        request_id: who.request_id.clone(),
    };
    let want = Want { request: &request, contract, release: release.as_ref(), wanted: &wanted };
    if let Some(action) = refused_before(&store, inside, &request)? {
        return Ok(answered(action, true));
    }
    let proposed = leave((&inside.home, who), &mut store, inside.by(), (&view.inputs, &want))?;
    let proposed = proposed.map_err(|failure| OpsError::Failed { failure, run: Some(inside.run.clone()) })?;
    let duplicate = !matches!(proposed, Proposed::New(_));
    let answer = match options.patience {
        Patience::Answer => view.inputs.policy.actions.of(request.kind).answer,
        Patience::Recorded => Millis(0),
    };
    Ok(answered(wait(&store, inside, (&proposed.record().id, answer))?, duplicate))
}

/// Looks at what this run asked for, without waiting.
pub fn look(inside: &Inside, id: &str) -> Result<Answered, OpsError> {
    let store = inside.records()?;
    inside.hold(&store)?;
    let id = ActionId::recorded(id);
    let wanted = store.wanted(&id)?;
    if !wanted.iter().any(|wanted| wanted.by.run == inside.run) {
        let message = format!("run {} asked for no action {id}", inside.run);
        return Err(OpsError::about(&inside.run, Code::NotFound, message));
    }
    Ok(answered(found(&store, &id)?, true))
}

fn answered(action: ActionRecord, duplicate: bool) -> Answered {
    let told = told(&action);
    let later = || action.retry_at.unwrap_or_default().max(now().utc.plus(LOOK_AGAIN));
    let look_again = matches!(told, Told::InProgress | Told::Unknown).then(later);
    Answered { action, told, duplicate, look_again }
}

/// What a person has said no to is not put before them again by the same run.
fn refused_before(store: &Store, inside: &Inside, request: &ActionRequest) -> Result<Option<ActionRecord>, OpsError> {
    let key = request.key(TENANT).map_err(|error| OpsError::failed(Code::ValidationError, error.to_string()))?;
    let known = store.action_by_key(&key)?.filter(|action| action.state == ActionState::Canceled);
    let Some(action) = known.filter(|action| action.request_hash == request.hash()) else { return Ok(None) };
    let by_us = store.wanted(&action.id)?.iter().any(|wanted| wanted.by.run == inside.run);
    Ok(by_us.then_some(action))
}

/// Until there is something to say, the time is over, or nobody is left who could do it.
fn wait(store: &Store, inside: &Inside, (id, answer): (&ActionId, Millis)) -> Result<ActionRecord, OpsError> {
    let until = now().boot.0.saturating_add(answer.0);
    let mut version = None;
    loop {
        let present = store.data_version()?;
        if version != Some(present) || now().boot.0 >= until {
            version = Some(present);
            let action = found(store, id)?;
            let is_over = now().boot.0 >= until
                || store.find_run(&inside.run)?.is_none_or(|run| run.status != RunStatus::Running);
            if is_said(&action) || is_over {
                return Ok(action);
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// The request in its normal form, and the contract that lets it be asked for.
fn read<'i>(inputs: &'i RunInputs, options: &RequestOptions) -> Result<(ActionRequest, &'i Contract), OpsError> {
    let kind = ActionType::from_word(&options.kind).ok_or_else(|| {
        let known: Vec<_> = ActionType::ALL.iter().map(|kind| kind.word()).collect();
        invalid(format!("`{}` is no type of an action: there are {}", options.kind, known.join(", ")))
    })?;
    let contract = contract(inputs, kind, options.contract.as_deref())?;
    let texts = [("target", Some(&options.target)), ("account", options.account.as_ref())];
    let texts = texts.into_iter().chain([("instance", options.instance.as_ref())]);
    let subject = options.subject.iter().map(|(name, value)| (name.as_str(), Some(value)));
    for (name, value) in texts.chain(subject).filter_map(|(name, value)| Some((name, value?))) {
        if value.trim().is_empty() || value.len() > LONGEST_TEXT || value.chars().any(char::is_control) {
            return Err(invalid(format!("`{name}` must be a text of 1 to {LONGEST_TEXT} bytes in one line")));
        }
    }
    if let (Some(given), Some(own)) = (&options.account, &contract.account)
        && given != own
    {
        return Err(invalid(format!("contract `{}` is for the account `{own}`, not `{given}`", contract.name)));
    }
    let input = options.input.clone().unwrap_or_else(|| json!({}));
    if !input.is_object() || input.to_string().len() > LARGEST_INPUT {
        return Err(invalid(format!("the input must be a JSON object of at most {LARGEST_INPUT} bytes")));
    }
    let request = ActionRequest {
        kind,
        target: options.target.clone(),
        account: options.account.clone().or_else(|| contract.account.clone()),
        environment: contract.environment,
        contract: Some(contract.name.clone()),
        instance: options.instance.clone(),
        irreversible: contract.irreversible,
        subject: options.subject.clone(),
        input,
    };
    request.key(TENANT).map_err(|error| invalid(format!("{error}; give it as a subject")))?;
    Ok((request, contract))
}

fn invalid(message: String) -> OpsError {
    OpsError::failed(Code::ValidationError, message)
}

/// The contract that is named, or the only one under which this may be asked for. One that does not let programs of a run ask
/// for the type is for steps alone.
fn contract<'i>(inputs: &'i RunInputs, kind: ActionType, name: Option<&str>) -> Result<&'i Contract, OpsError> {
    let mut open = inputs.contracts.values().filter(|contract| contract.actions.contains(&kind));
    let names: Vec<_> = open.clone().map(|contract| contract.name.as_str()).collect();
    let none = || {
        let what = name.map_or_else(|| "no contract lets".to_owned(), |name| format!("no contract `{name}` lets"));
        let message = format!("{what} programs inside a run ask for `{kind}` (its `actions:` would say so)");
        OpsError::failed(Code::PolicyDenied, message)
    };
    match (name, names.as_slice()) {
        (Some(name), _) => open.find(|contract| contract.name == name).ok_or_else(none),
        (None, []) => Err(none()),
        (None, [_]) => open.next().ok_or_else(none),
        (None, _) => Err(invalid(format!("several contracts do `{kind}`: name one of {}", names.join(", ")))),
    }
}

/// The release of a deployment: a name alone deploys nothing (R-A19).
fn release(store: &Store, request: &ActionRequest) -> Result<Option<ReleaseRecord>, OpsError> {
    if !matches!(request.kind, ActionType::Deploy | ActionType::Rollback) {
        return Ok(None);
    }
    let name = request.subject.get("release").map(String::as_str).unwrap_or_default();
    let id = ReleaseId::new(name).map_err(|error| invalid(error.to_string()))?;
    let found = store.release(&id)?;
    let missing =
        || OpsError::failed(Code::NotFound, format!("release `{id}` is not on record: a release step makes it"));
    found.ok_or_else(missing).map(Some)
}

/// A deployment says the same of its release as a step would, so that both are one.
fn with_release(mut request: ActionRequest, release: Option<&ReleaseRecord>) -> ActionRequest {
    if let (Some(release), Some(input)) = (release, request.input.as_object_mut()) {
        input.insert("release".to_owned(), json!(release.id));
        input.insert("environment".to_owned(), json!(request.target));
        input.insert("commit".to_owned(), json!(release.commit));
    }
    request
}
