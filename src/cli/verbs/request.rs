//! `agentrun action request`: something inside a run asks for a side effect.

use std::collections::BTreeMap;
use std::io::Read as _;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::Value;

use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};
use crate::ops::inside::Inside;
use crate::ops::request::{Answered, Patience, RequestOptions, request};
use crate::report::requested::{Requested, action_json, action_words};

/// Arguments that are read from a file or from standard input are at most this large.
const LARGEST: u64 = 1 << 20;

/// `action`.
#[derive(Debug, ClapArgs)]
pub struct ActionArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: ActionVerb,
}

/// `action …`.
#[derive(Debug, Subcommand)]
pub enum ActionVerb {
    /// Ask for one from inside a run; the run carries it out.
    Request(Box<RequestArgs>),
}

/// `action request`.
#[derive(Debug, ClapArgs)]
pub struct RequestArgs {
    /// The type of the action: deploy, rollback, notification, export, `pull_request` …
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: String,
    /// What it reaches: an environment, a channel, a repository, an address.
    #[arg(long, value_name = "NAME")]
    pub target: String,
    /// On whose account; the contract's without.
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// What it is about, by which it is the same for ever: release=v1.2; may be repeated.
    #[arg(long = "subject", value_name = "NAME=VALUE")]
    pub subjects: Vec<String>,
    /// The arguments: a JSON object, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON")]
    pub input: Option<String>,
    /// The contract; the only one that does this type without.
    #[arg(long, value_name = "NAME")]
    pub contract: Option<String>,
    /// Tells two equal ones apart that are both meant.
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// The id of the agent's tool call, for tracing.
    #[arg(long, value_name = "ID")]
    pub call_id: Option<String>,
    /// The id of the agent's conversation, for tracing.
    #[arg(long, value_name = "ID")]
    pub conversation: Option<String>,
    /// Answer as soon as it is recorded.
    #[arg(long)]
    pub no_wait: bool,
}

/// Runs it.
pub fn run(session: &mut Session, args: RequestArgs) -> Result<Exit, CliError> {
    let options = RequestOptions {
        kind: args.kind,
        target: args.target,
        account: args.account,
        subject: subjects(&args.subjects)?,
        input: args.input.as_deref().map(input).transpose()?,
        contract: args.contract,
        instance: args.instance,
        call: args.call_id,
        conversation: args.conversation,
        patience: if args.no_wait { Patience::Recorded } else { Patience::Answer },
    };
    let Answered { action, told, duplicate, look_again } =
        request(&Inside::find(&session.vars)?, &session.who, &options)?;
    let requested = Requested { action: &action, told, duplicate, look_again };
    if session.json {
        session.say.json(&action_json(&requested));
    } else {
        session.say.result(&action_words(&requested));
    }
    Ok(told.exit())
}

fn subjects(given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let one = |text: &String| {
        let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| CliError::usage(format!("`{text}` is not NAME=VALUE")))
    };
    given.iter().map(one).collect()
}

fn input(given: &str) -> Result<Value, CliError> {
    let unreadable = |error: std::io::Error| CliError::usage(format!("the input cannot be read: {error}"));
    let text = match given.strip_prefix('@') {
        Some(path) => read(fs_err::File::open(path).map_err(unreadable)?).map_err(unreadable)?,
        None if given == "-" => read(std::io::stdin().lock()).map_err(unreadable)?,
        None => given.to_owned(),
    };
    serde_json::from_str(&text)
        .map_err(|error| CliError::new(Code::ValidationError, format!("the input is no JSON: {error}")))
}

fn read(from: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}
