//! `agentrun show`: one run with everything below it.

use crate::cli::args::ShowArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};
use crate::ops::show;
use crate::report::action_json::Keys;
use crate::report::record_json::budget_json;
use crate::report::run_json::{Extras, run_json};
use crate::report::text::{budget_table, show_tree};

/// Runs it.
pub fn run(session: &mut Session, args: &ShowArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let run = args
        .run
        .clone()
        .or_else(|| show::own_run(&place))
        .ok_or_else(|| CliError::usage("show needs a RUN".to_owned()))?;
    let mut shown = show::show(&place, &run)?;
    if let Some(step) = &args.step {
        if !shown.view.steps.iter().any(|s| s.key.as_str() == step) {
            return Err(CliError::new(Code::NotFound, format!("run {} has no step `{step}`", shown.view.run.id)));
        }
        shown.view.steps.retain(|s| s.key.as_str() == step);
        shown.view.executions.retain(|e| e.step.as_str() == step);
        shown.view.artifacts.retain(|a| a.step.as_ref().is_some_and(|s| s.as_str() == step));
    }
    match (session.json, args.budget) {
        (true, true) => session.say.json(&budget_json(&shown.view, &shown.limits)),
        (true, false) => {
            let branch = shown.branch.as_deref();
            let extras =
                Extras { via: None, meaning: &shown.meaning, branch, warnings: &shown.warnings, keys: Keys::Shown };
            session.say.json(&run_json(&shown.view, &extras));
        }
        (false, true) => session.say.result(&budget_table(&shown.view, &shown.limits)),
        (false, false) => session.say.result(&show_tree(&shown.view, &shown.meaning, &session.style())),
    }
    Ok(Exit::Ok)
}
