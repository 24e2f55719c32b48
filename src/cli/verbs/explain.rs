//! `agentrun explain`: what a code means, and what to do.

use crate::cli::args::ExplainArgs;
use crate::cli::error::{CliError, hint};
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};
use crate::domain::machine::Word as _;
use crate::report::command_json::explain_all_json;
use crate::report::machine_json::explain_json;

/// Runs it.
pub fn run(session: &mut Session, args: &ExplainArgs) -> Result<Exit, CliError> {
    let Some(text) = &args.code else { return Ok(all(session)) };
    let unknown = || {
        CliError::new(Code::NotFound, format!("there is no code `{text}`")).hinting("see all of them: agentrun explain")
    };
    let code = Code::find(text).ok_or_else(unknown)?;
    let hint = hint(code).replace("{run}", "RUN");
    if session.json {
        session.say.json(&explain_json(code, Some(&hint)));
        return Ok(Exit::Ok);
    }
    let entry = code.entry();
    let by_itself =
        if entry.retryable { "agentrun tries again by itself, within the policy's limits" } else { "never by itself" };
    session.say.result(&format!(
        "{code}: {}\n  tried again: {by_itself} ({})\n  effect outside: {}\n  exit code: {}\n  what to do: {hint}\n",
        entry.meaning,
        entry.retry,
        entry.effect,
        entry.exit.code(),
    ));
    Ok(Exit::Ok)
}

fn all(session: &mut Session) -> Exit {
    if session.json {
        session.say.json(&explain_all_json(&|code| hint(code).replace("{run}", "RUN")));
        return Exit::Ok;
    }
    let lines: Vec<_> = Code::ALL
        .iter()
        .map(|c| format!("{:<26} {:>3}  {}", c.word(), c.entry().exit.code(), c.entry().meaning))
        .collect();
    session.say.result(&lines.join("\n"));
    Exit::Ok
}
