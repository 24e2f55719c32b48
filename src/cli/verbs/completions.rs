//! `agentrun completions`: completions for a shell.

use clap::CommandFactory as _;

use crate::cli::args::{Args, CompletionsArgs};
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;

/// Runs it.
pub fn run(session: &mut Session, args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "agentrun", &mut text);
    session.say.out(&text);
    Ok(Exit::Ok)
}
