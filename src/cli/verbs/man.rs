//! `agentrun man`: the manual pages.

use clap::CommandFactory as _;

use crate::cli::args::{Args, ManArgs};
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};

/// Runs it.
pub fn run(session: &mut Session, args: &ManArgs) -> Result<Exit, CliError> {
    let failed = |e: std::io::Error| CliError::new(Code::StoreIo, format!("a manual page cannot be written: {e}"));
    let command = Args::command();
    match &args.out {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
            session.say.out(&page);
        }
        Some(dir) => {
            let dir = session.dir.join(dir);
            fs_err::create_dir_all(&dir).map_err(failed)?;
            clap_mangen::generate_to(command, &dir).map_err(failed)?;
            session.say.chat(&format!("manual pages are in {}", dir.display()));
        }
    }
    Ok(Exit::Ok)
}
