//! LAYER 5: the command line. Arguments become options, options go to one function of [`crate::ops`], its value becomes
//! words or JSON. No decision about a run is made here.
//!
//! | file | what |
//! | --- | --- |
//! | [`args`] | what can be typed |
//! | [`verbs`] | one file per command: options in, words out |
//! | [`say`] | the only writer to standard output and standard error |
//! | [`progress`] | what a person sees while a run works |
//! | [`error`] | errors with their hints |
//! | [`session`] | who is calling, from where, and how they want it said |

pub mod args;
pub mod error;
pub mod progress;
pub mod say;
pub mod session;
pub mod verbs;

use std::ffi::OsString;

use clap::Parser as _;

use args::{Args, Verb};
use error::CliError;
use say::Say;
use session::Session;

use crate::domain::failure::{Code, Exit};
use crate::ops::approval::Ruling;
use crate::ops::place::Vars;

/// Runs the program. Answers its exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>, vars: Vars) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let args = match Args::try_parse_from(&arguments) {
        Ok(args) => args,
        Err(error) => return refused(&arguments, &error),
    };
    let mut session = Session::new(&args, vars);
    match dispatch(&mut session, args.verb) {
        Ok(exit) => exit.code(),
        Err(error) => error.say(&mut session.say, session.json),
    }
}

/// A command line that cannot be read. `--help` and `--version` are answers, not errors.
fn refused(arguments: &[OsString], error: &clap::Error) -> u8 {
    let mut say = Say::new();
    let text = error.render();
    if !error.use_stderr() {
        say.result(&if say.colour_out() { text.ansi().to_string() } else { text.to_string() });
        return Exit::Ok.code();
    }
    if arguments.iter().any(|a| a == "--json") {
        let first = text.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        say.json(&CliError::new(Code::Usage, first).document());
    }
    say.note(&if say.colour_err() { text.ansi().to_string() } else { text.to_string() });
    Exit::Usage.code()
}

fn dispatch(session: &mut Session, verb: Verb) -> Result<Exit, CliError> {
    match verb {
        Verb::Init(args) => verbs::init::run(session, &args),
        Verb::Start(args) => verbs::start::run(session, args),
        Verb::Apply(args) => verbs::apply::run(session, &args),
        Verb::Resume(args) => verbs::resume::run(session, args),
        Verb::Status(args) => verbs::status::run(session, &args),
        Verb::Show(args) => verbs::show::run(session, &args),
        Verb::Logs(args) => verbs::logs::run(session, &args),
        Verb::Diff(args) => verbs::diff::run(session, &args),
        Verb::Cancel(args) => verbs::cancel::run(session, &args),
        Verb::Action(args) => verbs::action::run(session, args),
        Verb::Mcp => verbs::mcp::run(session),
        Verb::Reconcile(args) => verbs::reconcile::run(session, &args),
        Verb::Fingerprint(args) => verbs::fingerprint::run(session, &args),
        Verb::Artifact(args) => verbs::artifact::run(session, &args),
        Verb::Approve(args) => verbs::approve::run(session, &args, Ruling::Approve),
        Verb::Reject(args) => verbs::approve::run(session, &args, Ruling::Reject),
        Verb::Approval(args) => verbs::approval::run(session, &args),
        Verb::Audit(args) => verbs::audit::run(session, &args),
        Verb::Policy(args) => verbs::policy::run(session, &args),
        Verb::Explain(args) => verbs::explain::run(session, &args),
        Verb::Doctor(args) => verbs::doctor::run(session, &args),
        Verb::Gc(args) => verbs::gc::run(session, &args),
        Verb::Completions(args) => verbs::completions::run(session, &args),
        Verb::Man(args) => verbs::man::run(session, &args),
        Verb::ReplayAgent(args) => verbs::replay_agent::run(session, &args),
    }
}
