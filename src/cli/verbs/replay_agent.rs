//! `agentrun replay-agent`: plays a recorded agent; started by agentrun itself.

use crate::cli::args::ReplayArgs;
use crate::cli::error::CliError;
use crate::cli::say;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::replay;

/// Runs it.
pub fn run(session: &mut Session, args: &ReplayArgs) -> Result<Exit, CliError> {
    replay::replay(&session.dir, &args.events, args.patch.as_deref(), &mut say::recording())?;
    Ok(Exit::Ok)
}
