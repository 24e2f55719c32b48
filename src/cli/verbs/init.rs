//! `agentrun init`: what a repository needs to begin.

use crate::cli::args::InitArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::init;
use crate::report::machine_json::{InitDocument, init_json};

/// Runs it.
pub fn run(session: &mut Session, args: &InitArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let done = init::init(&place, args.commit)?;
    let next = if done.needs_commit {
        "agentrun init --commit   (or make the first commit yourself), then: agentrun start hello"
    } else {
        "agentrun start hello"
    };
    if session.json {
        let root = place.repo.root().to_string_lossy().into_owned();
        let document = InitDocument {
            root: &root,
            written: &done.written,
            kept: &done.kept,
            commit: done.commit.as_deref(),
            next: Some(next),
        };
        session.say.json(&init_json(&document));
        return Ok(Exit::Ok);
    }
    let mut text = String::new();
    done.written.iter().for_each(|path| text.push_str(&format!("wrote {path}\n")));
    done.kept.iter().for_each(|path| text.push_str(&format!("kept  {path} (it was there)\n")));
    if let Some(commit) = &done.commit {
        text.push_str(&format!("committed {}\n", &commit[..12.min(commit.len())]));
    }
    session.say.result(&text);
    session.say.chat(&format!("next: {next}"));
    Ok(Exit::Ok)
}
