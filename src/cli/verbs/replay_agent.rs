//! `agentrun replay-agent`: plays a recorded agent; started by agentrun itself.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::cli::error::CliError;
use crate::cli::say;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::replay;

/// `replay-agent`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The recording.
    #[arg(long)]
    pub events: PathBuf,
    /// A patch to apply to the working copy.
    #[arg(long)]
    pub patch: Option<PathBuf>,
    /// Ignored: what a task or policy appends to every agent's command line.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, action = ArgAction::Append, hide = true)]
    pub rest: Vec<String>,
}

/// Runs it.
pub fn run(session: &mut Session, args: &ReplayArgs) -> Result<Exit, CliError> {
    replay::replay(&session.dir, &args.events, args.patch.as_deref(), &mut say::recording())?;
    Ok(Exit::Ok)
}
