//! `agentrun audit`: what happened, and whether anybody changed the record of it.

use clap::{Args, Subcommand};

use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};
use crate::domain::text::neutral_line;
use crate::ops::audit::{self, AuditQuery};
use crate::report::amount;
use crate::report::record_json::events_json;

/// `audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: AuditVerb,
}

/// `audit …`.
#[derive(Debug, Subcommand)]
pub enum AuditVerb {
    /// The events, oldest first.
    Log {
        /// Of this run, task or support code.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Of this command.
        #[arg(long, value_name = "ID")]
        request: Option<String>,
        /// Led to by this idempotency key.
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// With this error code.
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
        /// Only the newest so many.
        #[arg(short = 'n', long, value_name = "N")]
        limit: Option<u32>,
    },
    /// Check every hash chain, also against the manifests that anchor it.
    Verify,
}

/// Runs it.
pub fn run(session: &mut Session, args: &AuditArgs) -> Result<Exit, CliError> {
    match &args.verb {
        AuditVerb::Log { run, request, key, code, limit } => {
            let code = match code {
                Some(text) => Some(Code::find(text).ok_or_else(|| CliError::usage(format!("`{text}` is no code")))?),
                None => None,
            };
            let query =
                AuditQuery { run: run.clone(), request: request.clone(), key: key.clone(), code, limit: *limit };
            log(session, &query)
        }
        AuditVerb::Verify => verify(session),
    }
}

fn log(session: &mut Session, query: &AuditQuery) -> Result<Exit, CliError> {
    let events = audit::log(&session.place()?, query)?;
    if session.json {
        session.say.json(&events_json(&events, None));
        return Ok(Exit::Ok);
    }
    let mut text = String::new();
    for e in &events {
        let what = e.step.as_ref().map(|s| format!(" {s}")).unwrap_or_default();
        let reason = e.reason.as_deref().map(|r| format!(": {}", neutral_line(r))).unwrap_or_default();
        text.push_str(&format!("{} {} {}{what}{reason}\n", amount::utc(e.at), e.chain, e.kind));
    }
    session.say.result(&text);
    Ok(Exit::Ok)
}

fn verify(session: &mut Session) -> Result<Exit, CliError> {
    let checked = audit::verify(&session.place()?)?;
    let exit = if checked.broken.is_empty() { Exit::Ok } else { Code::AuditBroken.entry().exit };
    if session.json {
        session.say.json(&events_json(&[], Some(&checked.broken)));
        return Ok(exit);
    }
    let events: u64 = checked.whole.iter().map(|(_, n)| n).sum();
    let mut text = format!("{} chains with {events} events are whole\n", checked.whole.len());
    for fault in &checked.broken {
        text.push_str(&format!("{} breaks at event {}: {}\n", fault.chain, fault.n, fault.what));
    }
    session.say.result(&text);
    Ok(exit)
}
