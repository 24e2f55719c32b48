//! What a step wants of the outside: its templates filled in, its contract found, everything that an approval covers named.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::command;
use crate::domain::action::approval::Subject;
use crate::domain::action::contract::{Channel, Contract, Query};
use crate::domain::action::record::{ReleaseRecord, WantedBy};
use crate::domain::action::request::ActionRequest;
use crate::domain::delivery::{self, ActionSpec, DeploySpec};
use crate::domain::failure::Code;
use crate::domain::ids::ReleaseId;
use crate::domain::policy::ActionType;
use crate::domain::record::{RunInputs, RunRecord};
use crate::domain::task::{StepBody, StepSpec};
use crate::domain::template::{self, DeliveryRelease, DeliveryRun, DeliveryValues, PromptTask};
use crate::engine::action::subject::{Looked, policy_of};
use crate::engine::action::want::Wish;
use crate::engine::action::{OwnCommands, work_dir};
use crate::engine::error::EngineError;
use crate::engine::host::Host;
use crate::store::Store;

/// A step, and the run that it belongs to.
#[derive(Clone, Copy)]
pub struct Making<'a> {
    /// The machine.
    pub host: &'a Host<'a>,
    /// The run.
    pub run: &'a RunRecord,
    /// What the run was given.
    pub inputs: &'a RunInputs,
    /// The step.
    pub step: &'a StepSpec,
    /// What the run has reached.
    pub reached: &'a Reached,
}

/// The contents that a run has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// As a commit: the same for the same contents on the same base.
    pub commit: String,
}

impl Making<'_> {
    /// The contents and what they rest on, as an approval names them.
    fn contents(&self) -> String {
        format!("{} on {}", self.reached.commit, self.run.components.base_commit)
    }
}

/// What a deploy or action step wants.
pub fn wish(making: &Making<'_>, store: &Store) -> Result<Wish, EngineError> {
    match &making.step.body {
        StepBody::Deploy(deploy) => self::deploy(making, store, deploy),
        StepBody::Action(action) => self::action(making, store, action),
        _ => Err(EngineError::failed(Code::Internal, format!("step `{}` wants nothing outside", making.step.key))),
    }
}

fn deploy(making: &Making<'_>, store: &Store, spec: &DeploySpec) -> Result<Wish, EngineError> {
    let named = spec.release.as_deref().map(|text| render(making, None, text)).transpose()?;
    let release = match named {
        Some(name) => release_id(name)?,
        None => made_release(making)?,
    };
    let found = store.release(&release)?.ok_or_else(|| {
        let what = format!("release `{release}` is not on record: a release step, of this run or another, makes it");
        EngineError::failed(Code::NotFound, what)
    })?;
    let contract = contract(making, spec.contract.as_deref())?;
    let kind = if spec.rollback { ActionType::Rollback } else { ActionType::Deploy };
    let request = ActionRequest {
        kind,
        target: spec.environment.clone(),
        account: contract.account.clone(),
        environment: contract.environment,
        contract: spec.contract.clone(),
        instance: spec.instance.clone(),
        irreversible: spec.irreversible,
        subject: BTreeMap::from([("release".to_owned(), release.to_string())]),
        input: json!({ "release": release, "environment": spec.environment, "commit": found.commit }),
    };
    let title = format!("{kind} {release} to {}", spec.environment);
    let own = OwnCommands::of(making.step);
    let mut wish = made(making, (request, contract), (own, title))?;
    wish.looked.environment_state.clone_from(&spec.environment_state);
    wish.looked.kept = making.host.home.run_dir(&found.run)?.path().to_path_buf();
    wish.looked.release = Some(found.clone());
    wish.release = Some(found);
    Ok(wish)
}

fn action(making: &Making<'_>, store: &Store, spec: &ActionSpec) -> Result<Wish, EngineError> {
    let release = made_release(making).ok();
    let found = release.as_ref().map(|release| store.release(release)).transpose()?.flatten();
    let text = |text: &str| render(making, release.as_ref(), text);
    let contract = contract(making, spec.contract.as_deref())?;
    let mut subject = BTreeMap::new();
    for (name, template) in &spec.subject {
        subject.insert(name.clone(), text(template)?);
    }
    for name in spec.action.identity() {
        if !subject.contains_key(*name) {
            let about = release.as_ref().map_or_else(|| making.run.components.base_commit.clone(), ToString::to_string);
            subject.insert((*name).to_owned(), format!("{}/{}/{about}", making.inputs.spec.task, making.step.key));
        }
    }
    let request = ActionRequest {
        kind: spec.action,
        target: text(&spec.target)?,
        account: spec.account.clone().or_else(|| contract.account.clone()),
        environment: contract.environment,
        contract: spec.contract.clone(),
        instance: spec.instance.clone(),
        irreversible: spec.irreversible,
        subject,
        input: filled(&spec.input, &text)?,
    };
    let title = format!("{} to {}", spec.action, request.target);
    let own = OwnCommands::of(making.step);
    let mut wish = made(making, (request, contract), (own, title))?;
    if let Some(found) = found {
        wish.looked.kept = making.host.home.run_dir(&found.run)?.path().to_path_buf();
        wish.looked.release = Some(found);
    }
    Ok(wish)
}

fn made(
    making: &Making<'_>,
    (request, contract): (ActionRequest, Contract),
    (own, title): (OwnCommands, String),
) -> Result<Wish, EngineError> {
    let Making { host, run, inputs, .. } = *making;
    let contract = with_own_question(contract, &own);
    let mut vars = command::vars(host, inputs);
    vars.extend(own.env.iter().map(|(name, value)| (name.into(), value.into())));
    let looked = Looked {
        request: request.clone(),
        contract: contract.clone(),
        own,
        dir: work_dir(host.home, host.repo.root(), (&run.id, inputs))?,
        root: host.repo.root().to_path_buf(),
        vars,
        commit: making.contents(),
        release: None,
        kept: host.home.root().to_path_buf(),
        environment_state: Vec::new(),
        policy: policy_of(inputs),
        title,
    };
    let wanted = WantedBy {
        run: run.id.clone(),
        attempt: run.attempt,
        step: Some(making.step.key.clone()),
        call: None,
        conversation: None,
        request_id: host.who.request_id.clone(),
    };
    Ok(Wish { request, contract, looked, release: None, wanted })
}

/// A status command of the step's own is how it is asked about; the settle time is the contract's, or a careful one.
fn with_own_question(contract: Contract, own: &OwnCommands) -> Contract {
    let Some(status) = &own.status else { return contract };
    let settle = contract.query.as_ref().map_or(OwnCommands::SETTLE, |query| query.settle);
    let query = Query { channel: Channel::Command { run: status.clone() }, settle, find: None, absent: Vec::new() };
    Contract { query: Some(query), ..contract }
}

/// The contract that a step names; without one nothing is guaranteed.
fn contract(making: &Making<'_>, name: Option<&str>) -> Result<Contract, EngineError> {
    let Some(name) = name else { return Ok(Contract::careful("built-in")) };
    let found = making.inputs.contracts.get(name).cloned();
    found.ok_or_else(|| {
        let what =
            format!("contract `{name}` is not on record: policies/contracts/{name}.yml was not there at the start");
        EngineError::failed(Code::ConfigInvalid, what)
    })
}

/// The name that the release step made which the step rests on.
fn made_release(making: &Making<'_>) -> Result<ReleaseId, EngineError> {
    let step = delivery::release_step(&making.inputs.spec, &making.step.key);
    let Some(StepBody::Release { release }) = step.map(|step| &step.body) else {
        let what = format!("step `{}` rests on no release step and names no release", making.step.key);
        return Err(EngineError::failed(Code::ConfigInvalid, what));
    };
    release_id(render(making, None, release)?)
}

/// A template of a step, filled in.
pub fn render(making: &Making<'_>, release: Option<&ReleaseId>, text: &str) -> Result<String, EngineError> {
    let (run, spec) = (making.run, &making.inputs.spec);
    let values = DeliveryValues {
        inputs: spec.inputs.clone(),
        run: DeliveryRun::of(run.id.as_str(), &making.reached.commit, &run.components.base_commit),
        task: PromptTask { id: spec.task.to_string(), title: spec.title.clone().unwrap_or_default() },
        release: release.map(|release| DeliveryRelease { id: release.to_string() }),
    };
    let refused = |error| EngineError::failed(Code::ConfigInvalid, format!("step `{}`: {error}", making.step.key));
    template::render(text, &values).map_err(refused)
}

fn filled(value: &Value, text: &dyn Fn(&str) -> Result<String, EngineError>) -> Result<Value, EngineError> {
    Ok(match value {
        Value::String(template) => Value::String(text(template)?),
        Value::Array(items) => Value::Array(items.iter().map(|item| filled(item, text)).collect::<Result<_, _>>()?),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| Ok::<_, EngineError>((name.clone(), filled(value, text)?)));
            Value::Object(fields.collect::<Result<_, _>>()?)
        }
        _ => value.clone(),
    })
}

/// What a gate asks a person.
pub fn gate(making: &Making<'_>, store: &Store, ask: &str) -> Result<Subject, EngineError> {
    let release = made_release(making).ok();
    let found = release.as_ref().map(|release| store.release(release)).transpose()?.flatten();
    let hashes =
        |release: &ReleaseRecord| release.artifacts.iter().map(|(path, hash)| (path.clone(), hash.hex())).collect();
    Ok(Subject {
        title: render(making, release.as_ref(), ask)?,
        kind: "step".to_owned(),
        target: None,
        account: None,
        environment: None,
        request: None,
        command: None,
        programs: BTreeMap::new(),
        commit: Some(making.contents()),
        release: found.as_ref().map(|release| format!("{} at {}", release.id, release.commit)),
        artifacts: found.as_ref().map(hashes).unwrap_or_default(),
        contract: None,
        environment_state: BTreeMap::new(),
        policy: policy_of(making.inputs),
    })
}

/// A rendered name, as that of a release.
pub fn release_id(name: String) -> Result<ReleaseId, EngineError> {
    ReleaseId::new(&name).map_err(|error| EngineError::failed(Code::ConfigInvalid, error.to_string()))
}
