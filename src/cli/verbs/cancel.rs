//! `agentrun cancel`: stops a run for good; its work is kept.

use super::start::finish;
use crate::cli::args::CancelArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::calling::{Hangup, Inbox};
use crate::ops::cancel;
use crate::ops::carry::Acting;

/// Runs it.
pub fn run(session: &mut Session, args: &CancelArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let inbox = Inbox::new();
    let _listener = session.listen(&inbox, Hangup::Stops)?;
    let own_program = session.own_program()?;
    let mut progress = session.progress();
    let acting = Acting { who: session.who.clone(), inbox: &inbox, observer: &mut progress, own_program: &own_program };
    let answer = cancel::cancel(&place, acting, &args.run, args.reason.as_deref());
    progress.finish();
    finish(session, &place, &answer?, None)
}
