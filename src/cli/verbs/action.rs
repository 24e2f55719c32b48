//! `agentrun action`: side effects on the world outside, as people see and settle them.

use clap::{Args, Subcommand, ValueEnum};

use super::request;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::action::ActionRecord;
use crate::domain::failure::{Code, Exit};
use crate::domain::machine::Word as _;
use crate::domain::policy::ActionType;
use crate::domain::quantity::{Millis, UtcMs};
use crate::ops::actions::{self, ActionQuery, Known, Resolution};
use crate::ops::calling::now;
use crate::report::action_json::{action_document, actions_json};
use crate::report::action_text::{action_lines, known_text};

/// `action`.
#[derive(Debug, Args)]
pub struct ActionArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: ActionVerb,
}

/// `action …`.
#[derive(Debug, Subcommand)]
pub enum ActionVerb {
    /// Ask for one from inside a run; the run carries it out.
    Request(Box<request::RequestArgs>),
    /// What is still open; with a run, everything that it wanted.
    List {
        /// Of this run, task or support code.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// Of this type: deploy, notification, `pull_request` …
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only what waits for a person to look at it.
        #[arg(long)]
        review: bool,
        /// What is settled, too.
        #[arg(long)]
        all: bool,
    },
    /// Everything that is known of one, its key included.
    Show {
        /// Its id, or the beginning of it.
        id: String,
    },
    /// Say who must look at one, and until when.
    Assign {
        /// Its id, or the beginning of it.
        id: String,
        /// Who.
        #[arg(long, value_name = "WHO")]
        to: String,
        /// In how long (4h), or when (2026-09-15T10:00:00Z).
        #[arg(long, value_name = "TIME")]
        due: String,
    },
    /// Say what became of one that nobody else could find out about.
    Resolve {
        /// Its id, or the beginning of it.
        id: String,
        /// What became of it. `absent`: it has not happened, and may be sent.
        #[arg(long = "as", value_name = "OUTCOME")]
        outcome: Outcome,
        /// The other side's name of it.
        #[arg(long, value_name = "NAME")]
        reference: Option<String>,
        /// How you know; recorded.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// What a person says became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Outcome {
    /// It has happened.
    Succeeded,
    /// It was tried and failed, for good.
    Failed,
    /// It has not happened, and may be sent.
    Absent,
}

/// Runs it.
pub fn run(session: &mut Session, args: ActionArgs) -> Result<Exit, CliError> {
    if let ActionVerb::Request(args) = args.verb {
        return request::run(session, *args);
    }
    let place = session.place()?;
    match args.verb {
        ActionVerb::Request(args) => request::run(session, *args),
        ActionVerb::List { run, kind, review, all } => {
            let kind = kind.as_deref().map(kind_of).transpose()?;
            let found = actions::list(&place, &ActionQuery { run, kind, review, all })?;
            if session.json {
                session.say.json(&actions_json(&found, now().utc));
            } else if found.is_empty() {
                session.say.chat("nothing is open");
            } else {
                session.say.result(&action_lines(&found, now().utc));
            }
            Ok(Exit::Ok)
        }
        ActionVerb::Show { id } => {
            let known = actions::show(&place, &id)?;
            show(session, &known);
            Ok(Exit::Ok)
        }
        ActionVerb::Assign { id, to, due } => {
            let action = actions::assign(&place, &session.who, (&id, &to, due_at(&due)?))?;
            done(session, &action);
            Ok(Exit::Ok)
        }
        ActionVerb::Resolve { id, outcome, reference, reason } => {
            let resolution = match outcome {
                Outcome::Succeeded => Resolution::Succeeded { reference },
                Outcome::Failed => Resolution::Failed,
                Outcome::Absent => Resolution::NotThere,
            };
            let action = actions::resolve(&place, &session.who, (&id, &resolution, &reason))?;
            done(session, &action);
            Ok(Exit::Ok)
        }
    }
}

fn show(session: &mut Session, known: &Known) {
    let Known { action, readings, wanted } = known;
    if session.json {
        session.say.json(&action_document(action, readings, wanted));
    } else {
        session.say.result(&known_text(action, readings, wanted));
    }
}

fn done(session: &mut Session, action: &ActionRecord) {
    if session.json {
        session.say.json(&action_document(action, &[], &[]));
    } else {
        session.say.result(&action_lines(std::slice::from_ref(action), now().utc));
        session.say.chat(&format!("to go on: agentrun resume {}", action.run));
    }
}

fn kind_of(text: &str) -> Result<ActionType, CliError> {
    ActionType::from_word(text).ok_or_else(|| {
        let known = ActionType::ALL.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ");
        CliError::new(Code::Usage, format!("`{text}` is no type of action; known are {known}"))
    })
}

/// A length from now, or a time.
fn due_at(text: &str) -> Result<UtcMs, CliError> {
    if let Ok(length) = Millis::parse(text) {
        return Ok(now().utc.plus(length));
    }
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(|at| UtcMs(at.as_millisecond())).map_err(|_| {
        CliError::new(Code::Usage, format!("`{text}` is neither a length (4h) nor a time (2026-09-15T10:00:00Z)"))
    })
}
