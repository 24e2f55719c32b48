//! What a provider guarantees about one endpoint (R-A8). Whatever a contract does not say is taken to be the most careful
//! thing: no dedupe, no query, nothing proved by an error.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::policy::ActionType;
use crate::domain::quantity::Millis;
use crate::domain::task::CommandLine;
use crate::words;

words! {
    /// By what the other side knows a second request for the same.
    pub enum Dedupe {
        /// By the key that is sent along.
        Key = "key",
        /// By what the request is about: a second one is refused or gives the first.
        Natural = "natural",
        /// Not at all.
        None = "none",
    }
}

words! {
    /// What may be sent without a person.
    pub enum Automatic {
        /// The request itself.
        Send = "send",
        /// Nothing: agentrun prepares it, a person sends it.
        Draft = "draft",
    }
}

words! {
    /// Whether an effect is a real one.
    pub enum Environment {
        /// It is.
        Live = "live",
        /// It reaches a test account.
        Test = "test",
    }
}

words! {
    /// How a body is written.
    pub enum Encoding {
        /// As JSON.
        Json = "json",
        /// As a form: one level of names and texts.
        Form = "form",
    }
}

words! {
    /// What a status code of the other side proves.
    pub enum Meaning {
        /// It has happened.
        Succeeded = "succeeded",
        /// It was accepted and goes on.
        InProgress = "in_progress",
        /// It had happened before under the same key.
        AlreadyDone = "already_done",
        /// The same key is being worked on: look again, with the same key.
        SameKeyInProgress = "same_key_in_progress",
        /// The key was used for something else.
        KeyConflict = "key_conflict",
        /// Nothing happened, and the same will not be accepted.
        Refused = "refused",
        /// Nothing happened, and the same may be sent again.
        RefusedForNow = "refused_for_now",
        /// Nothing happened: too many requests.
        RateLimit = "rate_limit",
        /// It may have happened.
        Unknown = "unknown",
    }
}

/// How something is said to the other side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Channel {
    /// A command of the repository, found in the checkout that the policy was read from (contract §13).
    Command {
        /// The command.
        run: CommandLine,
    },
    /// An HTTP request.
    Http(Box<HttpCall>),
}

/// One HTTP request. Path, query, headers and body are templates over the request (`{{ input.amount }}`, `{{ key }}`,
/// `{{ reference }}`, `{{ target }}` …); a value in a path or query is percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCall {
    /// GET, POST, PUT, PATCH, DELETE.
    pub method: String,
    /// The whole address.
    pub url: String,
    /// Header by name; values are templates.
    pub headers: BTreeMap<String, String>,
    /// Header by name; the value is in this environment variable of agentrun's own, never in a file (R-A16).
    pub secret_headers: BTreeMap<String, SecretValue>,
    /// The body, as JSON whose texts are templates; `None` sends none.
    pub body: Option<serde_json::Value>,
    /// How the body is written.
    pub encoding: Encoding,
    /// True when the host of `url` is meant to have a loopback or private address (F96). Link-local addresses, and with them
    /// the metadata services of clouds, are refused all the same.
    pub inside: bool,
}

/// A header value with a secret in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretValue {
    /// Before the secret: `Bearer `.
    pub prefix: String,
    /// The environment variable.
    pub env: String,
}

/// How the other side is asked about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// How.
    pub channel: Channel,
    /// How long after the send an empty answer begins to mean something.
    pub settle: Millis,
    /// For HTTP: where in the answer the list of matches stands, and by which fields one of them is ours.
    pub find: Option<Find>,
    /// For HTTP: statuses that say that it is not there. Without them even a 404 says nothing: some answer it to whoever may
    /// not look.
    pub absent: Vec<u16>,
}

/// How one of several objects in an answer is told to be ours. Paths are JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Find {
    /// The list; empty is the answer itself, as one object.
    pub list: String,
    /// Where the answer says with `true` that the list goes on elsewhere: then finding nothing means nothing. A `Link` header
    /// with `rel="next"` says the same.
    pub more: Option<String>,
    /// Pointer in an object → template that it must equal.
    pub equals: BTreeMap<String, String>,
    /// Pointer in an object → template that it must contain.
    pub contains: BTreeMap<String, String>,
    /// The object's state, where it has one: pointer, and word → meaning (`succeeded`, `in_progress`, `refused`).
    pub state: Option<(String, BTreeMap<String, Meaning>)>,
}

/// What the other side promises about one endpoint, in one version of its interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// Its name: that of the file.
    pub name: String,
    /// Names one content.
    pub version: String,
    /// Live or test.
    pub environment: Environment,
    /// The account at the other side.
    pub account: Option<String>,
    /// What programs inside a run may ask for under it. Steps name their contract themselves and need none of these.
    #[serde(default)]
    pub actions: BTreeSet<ActionType>,
    /// What a second request for the same does.
    pub dedupe: Dedupe,
    /// The header that carries the key (HTTP).
    pub key_header: Option<String>,
    /// How long the other side keeps a key; `None` is for ever.
    pub key_lifetime: Option<Millis>,
    /// What may be sent without a person.
    pub automatic: Automatic,
    /// True when nothing undoes it: it is never tried again by itself (R-A13).
    pub irreversible: bool,
    /// How it is sent; `None` where a step names its own command.
    pub send: Option<Channel>,
    /// How it is asked about; `None` is not at all.
    pub query: Option<Query>,
    /// True when it is asked about before the first send: somebody else may have done it already, and it is adopted.
    pub look_first: bool,
    /// What a status code means (HTTP), or an exit code (command). What is not named: see [`Contract::meaning`].
    pub answers: BTreeMap<u16, Meaning>,
    /// Where in a good answer the other side's name of the effect stands: a JSON pointer.
    pub reference: Option<String>,
    /// Where in an answer that is not good the reason stands, in words: a JSON pointer. Without it only the status is told.
    pub explanation: Option<String>,
    /// True when a command has its effect only by ending with 0: one that was killed has done nothing (F65).
    pub atomic: bool,
    /// SHA-256 of the file; part of what is approved.
    pub sha256: String,
}

impl Contract {
    /// What holds without a contract file: nothing is guaranteed.
    pub fn careful(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: "built-in".to_owned(),
            environment: Environment::Live,
            account: None,
            actions: BTreeSet::new(),
            dedupe: Dedupe::None,
            key_header: None,
            key_lifetime: None,
            automatic: Automatic::Send,
            irreversible: false,
            send: None,
            query: None,
            look_first: false,
            answers: BTreeMap::new(),
            reference: None,
            explanation: None,
            atomic: false,
            sha256: String::new(),
        }
    }

    /// What an HTTP status proves: the contract's word, else the most careful reading (R-A8): 2xx done (202 accepted), 429 too
    /// many, other 4xx refused, everything else unknown: also 408 and 409, which may speak of an earlier send of the same, and
    /// 3xx, which is how some say "done, look there". (502 and 503 pass, which says when to try again and not that nothing
    /// happened.)
    pub fn meaning(&self, status: u16) -> Meaning {
        if let Some(meaning) = self.answers.get(&status) {
            return *meaning;
        }
        match status {
            202 => Meaning::InProgress,
            200..=299 => Meaning::Succeeded,
            408 | 409 => Meaning::Unknown,
            429 => Meaning::RateLimit,
            400..=499 => Meaning::Refused,
            _ => Meaning::Unknown,
        }
    }

    /// Whether the same may be sent again while nobody knows whether it happened.
    pub fn may_resend_unknown(&self) -> bool {
        self.dedupe == Dedupe::Key && !self.irreversible
    }
}
