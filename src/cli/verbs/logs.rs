//! `agentrun logs`: the output of a run's steps.

use std::time::Duration;

use crate::cli::args::LogsArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::logs::{self, Reading, Tone};

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Runs it.
pub fn run(session: &mut Session, args: &LogsArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let tone = if args.raw { Tone::Raw } else { Tone::Readable };
    let mut reading = Reading::new(&place, &args.run, args.step.as_deref(), tone);
    loop {
        // Asked before the look: what is written between the two is found by the look.
        let live = args.follow && logs::is_live(&place, &args.run)?;
        for piece in reading.next(live)? {
            if session.json {
                let text = String::from_utf8_lossy(&piece.bytes);
                session.say.json_line(&crate::report::command_json::log_json(&piece.log.label(), &text));
                continue;
            }
            if let Some(title) = &piece.title {
                session.say.chat(&format!("── {title}"));
            }
            session.say.out(&piece.bytes);
        }
        if !live || !session.say.is_read() {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(LOOK);
    }
}
