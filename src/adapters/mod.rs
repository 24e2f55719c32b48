//! LAYER 2: how something is done outside, and how it is asked about (R-A17): one file per channel. An adapter sends once and
//! says what that proves; it never tries again, decides nothing and records nothing. Every failure is a value: what cannot be
//! proved to have had no effect is unknown (R-A7).
//!
//! - `command` starts a program of the repository
//! - `http` speaks to a server, at an address that was checked and is then kept
//! - `find` tells in an answer which object is ours
//! - `verdict` turns what a contract says of a status into an answer

mod command;
mod find;
mod http;
mod verdict;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::domain::action::contract::Channel;
use crate::domain::action::wording::Wording;
use crate::domain::action::{ActionRequest, Answer, Contract, Reading};
use crate::domain::failure::Code;
use crate::domain::ids::ActionId;
use crate::domain::quantity::Millis;
use crate::domain::task::CommandLine;
use crate::process::{ChildId, Supervisor};

/// One try of one action, or one question about it.
pub struct Call<'a> {
    /// What the other side guarantees.
    pub contract: &'a Contract,
    /// What is wanted.
    pub request: &'a ActionRequest,
    /// The idempotency key.
    pub key: &'a str,
    /// The operation id.
    pub operation: &'a ActionId,
    /// The other side's name of it, once it is known.
    pub reference: Option<&'a str>,
    /// The number of the right under which it is sent.
    pub fence: u64,
    /// How long it may take as a whole: name, connection, request, answer; or the life of the command.
    pub limit: Millis,
    /// The step's own command, instead of what the contract says.
    pub run: Option<&'a CommandLine>,
    /// The step's own question, instead of what the contract says.
    pub status: Option<&'a CommandLine>,
    /// What it needs of the machine.
    pub machine: &'a Machine<'a>,
}

/// What a call needs of the machine, put together by the caller.
pub struct Machine<'a> {
    /// The one that starts and stops children.
    pub supervisor: &'a Supervisor,
    /// How the child is known to it: not in use while the call lasts.
    pub child: ChildId,
    /// agentrun's own environment: secrets that a contract names are looked up here, and `SSL_CERT_FILE`.
    pub environment: &'a BTreeMap<OsString, OsString>,
    /// What a command sees, the marker of the run included. The call adds its own names.
    pub vars: &'a BTreeMap<OsString, OsString>,
    /// Texts that must reach no file and no message.
    pub secrets: &'a [String],
    /// Where commands start, and relative programs are looked for.
    pub dir: &'a Path,
    /// Files of the call; their folder exists.
    pub files: Files<'a>,
    /// How long a command that is stopped may take over each rung of the ladder.
    pub grace: Millis,
    /// Set when the call must end: soon after, it does.
    pub stop: &'a AtomicBool,
}

/// Files of a call.
pub struct Files<'a> {
    /// The request for a command; there while it runs, readable for its owner alone.
    pub request: &'a Path,
    /// What a command prints.
    pub stdout: &'a Path,
    /// The same for standard error.
    pub stderr: &'a Path,
    /// Bytes kept of each.
    pub max_bytes: u64,
}

/// Sends it, once. Blocks for at most the limit, and the ladder of a command that must be stopped.
pub fn send(call: &Call<'_>) -> Answer {
    match (call.run, &call.contract.send) {
        (Some(run), _) | (None, Some(Channel::Command { run })) => command::send(call, run),
        (None, Some(Channel::Http(http))) => http::send(call, http),
        (None, None) => verdict::refused(
            Code::ConfigInvalid,
            format!("nothing says how it is sent: contract `{}` has no `send`, the step no `run`", call.contract.name),
        ),
    }
}

/// Asks what became of it, once. Changes nothing.
pub fn ask(call: &Call<'_>) -> Reading {
    match (call.status, &call.contract.query) {
        (Some(status), _) => command::ask(call, status),
        (None, Some(query)) => match &query.channel {
            Channel::Command { run } => command::ask(call, run),
            Channel::Http(http) => http::ask(call, http, query),
        },
        (None, None) => verdict::unclear(format!("contract `{}` has no query", call.contract.name)),
    }
}

/// What a command prints that only tells something, such as the state of an environment. Changes nothing, says the task.
pub fn output(machine: &Machine<'_>, run: &CommandLine, limit: Millis) -> Result<Vec<u8>, String> {
    command::output(machine, run, limit)
}

impl Call<'_> {
    fn wording(&self) -> Wording<'_> {
        Wording { request: self.request, key: self.key, operation: self.operation.as_str(), reference: self.reference }
    }
}

impl Machine<'_> {
    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }
}
