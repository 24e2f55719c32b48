//! One call of the other side, put together from the record: where its command stands, what it sees, where its output goes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use super::carry::Errand;
use crate::adapters::{self, Call, Files, Machine};
use crate::artifacts::home::make_private;
use crate::domain::action::contract::Channel;
use crate::domain::action::{ActionRecord, ActionRequest, Answer, Reading};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::quantity::Millis;
use crate::domain::task::CommandLine;
use crate::engine::error::EngineError;
use crate::engine::steps;
use crate::process::{ChildId, MARKER};

/// Calls share the supervisor with the children of an attempt, which count from 1.
static NEXT_CHILD: AtomicU64 = AtomicU64::new(1 << 40);

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Send,
    Ask,
}

/// Sends an action, and asks about it.
pub(super) struct Caller<'a> {
    /// What it is carried out with.
    pub errand: &'a Errand<'a>,
    /// The record.
    pub action: &'a ActionRecord,
    /// The request.
    pub request: &'a ActionRequest,
}

impl Caller<'_> {
    /// Sends it, once.
    pub fn send(&self) -> Result<Answer, EngineError> {
        self.call(Purpose::Send, adapters::send)
    }

    /// Asks what became of it, once.
    pub fn ask(&self) -> Result<Reading, EngineError> {
        self.call(Purpose::Ask, adapters::ask)
    }

    fn call<T>(&self, purpose: Purpose, make: impl Fn(&Call<'_>) -> T) -> Result<T, EngineError> {
        let Errand { outside, intended, policy, stop, .. } = self.errand;
        let folder = outside.home.root().join(format!("{}/actions", self.action.run));
        make_private(&folder)?;
        let vars = self.vars();
        let secrets = steps::secrets(&vars);
        let file = |ending: &str| folder.join(self.file_name(purpose, ending));
        let (request, stdout, stderr) = (file("request.json"), file("stdout"), file("stderr"));
        let dir = self.dir(purpose);
        let machine = Machine {
            supervisor: outside.supervisor,
            child: next_child(),
            environment: outside.vars,
            vars: &vars,
            secrets: &secrets,
            dir: &dir,
            files: Files { request: &request, stdout: &stdout, stderr: &stderr, max_bytes: policy.logs_max },
            grace: policy.timeouts.grace,
            stop: stop.flag(),
        };
        let own = &intended.looked.own;
        Ok(make(&Call {
            contract: &self.action.contract,
            request: self.request,
            key: &self.action.key,
            operation: &self.action.id,
            reference: self.action.reference.as_deref(),
            fence: self.action.fence,
            limit: limit(self.errand, self.action, purpose),
            run: own.run.as_ref(),
            status: own.status.as_ref(),
            machine: &machine,
        }))
    }

    /// Files of one call: named after the action, the send and the right under which it is made.
    fn file_name(&self, purpose: Purpose, ending: &str) -> String {
        let ActionRecord { id, tries, fence, .. } = self.action;
        match purpose {
            Purpose::Send => format!("{id}.send-{tries}.{ending}"),
            Purpose::Ask => format!("{id}.ask-{tries}-{fence}.{ending}"),
        }
    }

    /// A step's own command stands in the run's working copy, a contract's in the checkout.
    fn dir(&self, purpose: Purpose) -> PathBuf {
        let looked = &self.errand.intended.looked;
        let is_own = match purpose {
            Purpose::Send => looked.own.run.is_some(),
            Purpose::Ask => looked.own.status.is_some(),
        };
        if is_own { looked.dir.clone() } else { looked.root.clone() }
    }

    /// What a command sees: what commands of the run see, and the names by which leftovers are found.
    fn vars(&self) -> BTreeMap<OsString, OsString> {
        let mut vars = self.errand.intended.looked.vars.clone();
        let home = self.errand.outside.home.root().to_string_lossy();
        let home = Sha256Hash::of(home.as_bytes()).hex();
        let run = self.errand.hold.map_or(&self.action.run, |hold| &hold.run);
        let mut set = |name: &str, value: String| drop(vars.insert(OsString::from(name), OsString::from(value)));
        set("AGENTRUN_RUN_ID", run.to_string());
        set("AGENTRUN_REQUEST_ID", self.errand.outside.who.request_id.to_string());
        set(MARKER, format!("{}/{run}", &home[..16]));
        if let Some(hold) = self.errand.hold {
            set("AGENTRUN_ATTEMPT", hold.attempt.to_string());
        }
        if let Some(step) = &self.action.step {
            set("AGENTRUN_STEP", step.to_string());
        }
        vars
    }
}

/// How long the longest call can take.
pub(super) fn longest(errand: &Errand<'_>, action: &ActionRecord) -> Millis {
    limit(errand, action, Purpose::Send).max(limit(errand, action, Purpose::Ask))
}

/// A command may take as long as its step; a call over the network as long as the policy gives one.
fn limit(errand: &Errand<'_>, action: &ActionRecord, purpose: Purpose) -> Millis {
    let contract = &action.contract;
    let own = &errand.intended.looked.own;
    let (own, channel) = match purpose {
        Purpose::Send => (own.run.as_ref(), contract.send.as_ref()),
        Purpose::Ask => (own.status.as_ref(), contract.query.as_ref().map(|query| &query.channel)),
    };
    let is_command = own.is_some() || matches!(channel, Some(Channel::Command { .. }));
    match (is_command, purpose) {
        (true, Purpose::Send) => errand.limit,
        (true, Purpose::Ask) => errand.policy.timeouts.call.min(errand.limit),
        (false, _) => errand.policy.actions.of(action.kind).call,
    }
}

/// A number that no other child of this process has.
pub(super) fn next_child() -> ChildId {
    ChildId(NEXT_CHILD.fetch_add(1, Ordering::Relaxed))
}

/// The words of a command line, for people.
pub(super) fn words_of(line: &CommandLine) -> Vec<String> {
    match line {
        CommandLine::Shell(text) => vec!["sh".to_owned(), "-c".to_owned(), text.clone()],
        CommandLine::List(list) => list.clone(),
    }
}
