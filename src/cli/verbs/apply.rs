//! `agentrun apply`: brings a run's changes into the checkout.

use crate::cli::args::ApplyArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::apply;
use crate::report::amount;
use crate::report::command_json::apply_json;

/// Runs it.
pub fn run(session: &mut Session, args: &ApplyArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let applied = apply::apply(&place, &args.run, args.branch)?;
    if session.json {
        session.say.json(&apply_json(&applied.run.id, &applied.branch, &applied.paths));
    } else if args.branch {
        session.say.result(&applied.branch);
    } else {
        let mut text = format!(
            "{} changed in the checkout, staged, not committed\n",
            amount::counted(applied.paths.len() as u64, "file")
        );
        for path in &applied.paths {
            text.push_str(&format!("  {}\n", crate::domain::text::neutral_line(path)));
        }
        session.say.result(&text);
        session.say.chat("next: git diff --cached");
    }
    Ok(Exit::Ok)
}
