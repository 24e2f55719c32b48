//! `agentrun status`: what is going on, in meaning.

use crate::cli::args::StatusArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::status::{self, Which};
use crate::report::providers::provider_lines;
use crate::report::run_json::{StatusEntry, status_json};
use crate::report::text::{StatusRow, status_table};

/// Runs it.
pub fn run(session: &mut Session, args: &StatusArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let which = match (&args.run, args.all, args.dead) {
        (Some(name), ..) => Which::Named(name.clone()),
        (None, true, _) => Which::All,
        (None, _, true) => Which::Dead,
        (None, false, false) => Which::Overview,
    };
    if session.json {
        let runs = status::views(&place, &which)?;
        let entries: Vec<_> = runs
            .iter()
            .map(|r| StatusEntry { view: &r.view, meaning: &r.meaning, branch: r.branch.as_deref() })
            .collect();
        session.say.json(&status_json(&entries, &status::providers(&place)?));
        return Ok(Exit::Ok);
    }
    let lines = status::list(&place, &which)?;
    if lines.is_empty() {
        session.say.chat("no runs yet; begin with: agentrun start TASK");
        return Ok(Exit::Ok);
    }
    let rows: Vec<_> = lines.iter().map(|l| StatusRow { summary: &l.summary, meaning: &l.meaning }).collect();
    let (now, style) = (crate::ops::calling::now().utc, session.style());
    let mut text = status_table(&rows, now, &style);
    if args.run.is_none() {
        text.push_str(&provider_lines(&status::providers(&place)?, now, &style));
    }
    session.say.result(&text);
    Ok(Exit::Ok)
}
