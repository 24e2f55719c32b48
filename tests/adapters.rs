//! Adapters against the scripted provider: what a send proves, what a question answers, and where no request may go.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests; the lint knows test functions only")]

#[path = "adapters/command.rs"]
mod command;
#[path = "adapters/http.rs"]
mod http;
#[path = "provider/mod.rs"]
mod provider;
#[path = "adapters/secure.rs"]
mod secure;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agentrun::adapters::{Call, Files, Machine, ask, send};
use agentrun::config::load_contract;
use agentrun::domain::action::contract::{Channel, Environment};
use agentrun::domain::action::{ActionRequest, Answer, Contract, Reading};
use agentrun::domain::failure::Code;
use agentrun::domain::ids::ActionId;
use agentrun::domain::policy::ActionType;
use agentrun::domain::quantity::Millis;
use agentrun::process::{ChildId, MARKER, Supervisor};

/// The key of every request here.
const KEY: &str = "generic:local:test:acme:shop:order-7";

/// One intended effect and what its calls need.
struct Desk {
    folder: tempfile::TempDir,
    supervisor: Supervisor,
    environment: BTreeMap<OsString, OsString>,
    vars: BTreeMap<OsString, OsString>,
    secrets: Vec<String>,
    stop: AtomicBool,
    contract: Contract,
    request: ActionRequest,
    reference: Option<String>,
    limit: Millis,
    next: AtomicU64,
}

impl Desk {
    /// With a contract as it is written in a file; `{url}` is the provider's.
    fn new(contract: &str, provider: &provider::Provider) -> Self {
        let text = contract.replace("{url}", &provider.url("")).replace("{program}", provider::PROGRAM);
        let text = text.replace("{folder}", &provider.folder().display().to_string());
        let contract =
            load_contract("policies/contracts/test.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        Self::with(contract)
    }

    fn with(contract: Contract) -> Self {
        let path = || (OsString::from("PATH"), std::env::var_os("PATH").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let marker = format!("adapters-{}", folder.path().display());
        Self {
            supervisor: Supervisor::start().unwrap(),
            environment: BTreeMap::from([path(), ("SHOP_TOKEN".into(), "canary-token-1".into())]),
            vars: BTreeMap::from([path(), (MARKER.into(), marker.into())]),
            secrets: vec!["canary-command".to_owned()],
            stop: AtomicBool::new(false),
            contract,
            request: ActionRequest {
                kind: ActionType::Generic,
                target: "shop".to_owned(),
                account: Some("acme".to_owned()),
                environment: Environment::Test,
                contract: Some("test".to_owned()),
                instance: None,
                irreversible: false,
                subject: BTreeMap::from([("document".to_owned(), "order-7".to_owned())]),
                input: serde_json::json!({ "amount": 500, "note": "a \"b\" & c" }),
            },
            reference: None,
            limit: Millis::secs(20),
            next: AtomicU64::new(0),
            folder,
        }
    }

    fn http(&mut self) -> &mut agentrun::domain::action::contract::HttpCall {
        match &mut self.contract.send {
            Some(Channel::Http(http)) => http,
            other => panic!("{other:?}"),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn send(&self) -> Answer {
        self.call(send)
    }

    fn ask(&self) -> Reading {
        self.call(ask)
    }

    fn call<T>(&self, act: impl Fn(&Call<'_>) -> T) -> T {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let files = ["request.json", "out.log", "err.log"].map(|name| self.path(&format!("{number}-{name}")));
        let machine = Machine {
            supervisor: &self.supervisor,
            child: ChildId(number),
            environment: &self.environment,
            vars: &self.vars,
            secrets: &self.secrets,
            dir: self.folder.path(),
            files: Files { request: &files[0], stdout: &files[1], stderr: &files[2], max_bytes: 1 << 20 },
            grace: Millis(500),
            stop: &self.stop,
        };
        let operation = ActionId::recorded("0198c0de-0000-7000-8000-000000000001");
        let done = act(&Call {
            contract: &self.contract,
            request: &self.request,
            key: KEY,
            operation: &operation,
            reference: self.reference.as_deref(),
            fence: 7,
            limit: self.limit,
            run: None,
            status: None,
            machine: &machine,
        });
        assert!(!Path::new(&files[0]).exists(), "the request's file is gone with the call");
        done
    }
}

/// Nothing happened; the code and whether it may be sent again.
fn refusal(answer: &Answer) -> (Code, bool) {
    match answer {
        Answer::Refused { code, retryable, .. } => (*code, *retryable),
        other => panic!("{other:?}"),
    }
}

/// Nobody knows; the code.
fn doubt(answer: &Answer) -> Code {
    match answer {
        Answer::Unknown { code, in_progress: false, .. } => *code,
        other => panic!("{other:?}"),
    }
}

fn reference(answer: &Answer) -> &str {
    match answer {
        Answer::Done { reference: Some(reference), .. } => reference,
        other => panic!("{other:?}"),
    }
}

fn words(answer: &Answer) -> &str {
    match answer {
        Answer::Refused { message, .. } | Answer::Unknown { message, .. } => message,
        other => panic!("{other:?}"),
    }
}
