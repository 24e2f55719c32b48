//! Whether an address answers: asked again and again until it does, or the time is over.

use std::collections::BTreeMap;

use super::Outside;
use super::stop::Stop;
use crate::adapters::{self, Call, Files, Machine};
use crate::domain::action::contract::{Channel, Contract, Encoding, Environment, HttpCall};
use crate::domain::action::{ActionRequest, Answer};
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::ActionId;
use crate::domain::policy::ActionType;
use crate::domain::quantity::Millis;
use crate::engine::host::now;

/// How long between two questions.
const BETWEEN: Millis = Millis(500);

/// What is asked, and for how long.
pub struct Health {
    /// The address; the task names it, so it may be of this machine.
    pub url: String,
    /// How long altogether.
    pub limit: Millis,
    /// How long one question may take.
    pub call: Millis,
}

/// Asks until it answers 2xx.
pub fn look(outside: &Outside<'_>, health: &Health, stop: &Stop) -> Result<(), Failure> {
    let until = now().boot.0.saturating_add(health.limit.0);
    loop {
        let left = Millis(until.saturating_sub(now().boot.0));
        let last = match ask(outside, health, (left, stop)) {
            Answer::Done { .. } => return Ok(()),
            Answer::Accepted { .. } => "it answers 202".to_owned(),
            Answer::Refused { message, .. } | Answer::Unknown { message, .. } => message,
        };
        if now().boot.0 >= until {
            return Err(Failure::new(Code::VerifyFailed, format!("{} is not healthy: {last}", health.url)));
        }
        if stop.wait(BETWEEN.min(Millis(until.saturating_sub(now().boot.0)))) {
            return Err(Failure::new(Code::Interrupted, "the health check was stopped"));
        }
    }
}

fn ask(outside: &Outside<'_>, health: &Health, (left, stop): (Millis, &Stop)) -> Answer {
    let get = HttpCall {
        method: "GET".to_owned(),
        url: health.url.clone(),
        headers: BTreeMap::new(),
        secret_headers: BTreeMap::new(),
        body: None,
        encoding: Encoding::Json,
        inside: true,
    };
    let contract = Contract { send: Some(Channel::Http(Box::new(get))), ..Contract::careful("health") };
    let request = ActionRequest {
        kind: ActionType::Generic,
        target: health.url.clone(),
        account: None,
        environment: Environment::Live,
        contract: None,
        instance: None,
        irreversible: false,
        subject: BTreeMap::new(),
        input: serde_json::json!({}),
    };
    let nowhere = std::path::Path::new("");
    let machine = Machine {
        supervisor: outside.supervisor,
        child: super::call::next_child(),
        environment: outside.vars,
        vars: &BTreeMap::new(),
        secrets: &[],
        dir: outside.root,
        files: Files { request: nowhere, stdout: nowhere, stderr: nowhere, max_bytes: 0 },
        grace: Millis(0),
        stop: stop.flag(),
    };
    adapters::send(&Call {
        contract: &contract,
        request: &request,
        key: "",
        operation: &ActionId::recorded(""),
        reference: None,
        fence: 0,
        limit: health.call.min(left.max(Millis(100))),
        run: None,
        status: None,
        machine: &machine,
    })
}
