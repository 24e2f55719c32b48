//! `agentrun diff`: what differs between two runs or attempts.

use crate::cli::args::DiffArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::compare;
use crate::report::compare::{Side, compare as compare_views};
use crate::report::record_json::diff_json;
use crate::report::text::diff_text;

/// Runs it.
pub fn run(session: &mut Session, args: &DiffArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let (left, right) = compare::sides(&place, &args.left, &args.right)?;
    let comparison = compare_views(
        Side { view: &left.view, attempt: left.attempt },
        Side { view: &right.view, attempt: right.attempt },
    );
    if session.json {
        session.say.json(&diff_json(&comparison));
        return Ok(Exit::Ok);
    }
    session.say.result(&diff_text(&comparison));
    if args.patch
        && let Some(patch) = compare::patch(&place, &left.view, &right.view)?
    {
        let text = String::from_utf8_lossy(&patch).into_owned();
        session.say.result(&crate::domain::text::neutral(&text));
    }
    Ok(Exit::Ok)
}
