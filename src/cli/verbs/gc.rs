//! `agentrun gc`: deletes what retention allows.

use crate::cli::args::GcArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::domain::quantity::Millis;
use crate::ops::gc;
use crate::report::machine_json::{GcDocument, gc_json};

/// Runs it.
pub fn run(session: &mut Session, args: &GcArgs) -> Result<Exit, CliError> {
    let older_than = args.older_than.as_deref().map(Millis::parse).transpose();
    let older_than = older_than.map_err(|e| CliError::usage(format!("--older-than: {e}")))?;
    let swept = gc::gc(&session.place()?, &session.who, older_than, args.dry_run)?;
    if session.json {
        session.say.json(&gc_json(&GcDocument { dry_run: args.dry_run, removed: &swept.removed, kept: &swept.kept }));
        return Ok(Exit::Ok);
    }
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    let mut text = format!("{verb} {} things\n", swept.removed.len());
    for item in &swept.removed {
        text.push_str(&format!("  {} {}: {}\n", item.what, item.path, item.reason));
    }
    for item in &swept.kept {
        text.push_str(&format!("  kept {}: {}\n", item.path, item.reason));
    }
    session.say.result(&text);
    Ok(Exit::Ok)
}
