//! `agentrun doctor`: is this machine and repository fit?

use crate::cli::args::DoctorArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};
use crate::ops::{doctor, recover};
use crate::report::machine_json::{CheckState, doctor_json};

/// Runs it.
pub fn run(session: &mut Session, args: &DoctorArgs) -> Result<Exit, CliError> {
    let checks = if args.recover {
        recover::recover(&session.place()?, &session.who)?
    } else {
        doctor::doctor(&session.dir, &session.vars, args.agent.as_deref())
    };
    let failed = checks.iter().any(|c| c.state == CheckState::Failed);
    let exit = if failed { Code::EnvUnsupported.entry().exit } else { Exit::Ok };
    if session.json {
        session.say.json(&doctor_json(env!("CARGO_PKG_VERSION"), &checks));
        return Ok(exit);
    }
    let mut text = String::new();
    for check in &checks {
        text.push_str(&format!("{:<8} {:<18} {}\n", check.state.to_string(), check.name, check.message));
        if let Some(hint) = &check.hint {
            text.push_str(&format!("{:<8} {:<18} hint: {hint}\n", "", ""));
        }
    }
    session.say.result(&text);
    Ok(exit)
}
