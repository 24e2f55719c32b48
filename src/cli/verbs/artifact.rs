//! `agentrun artifact`: a run's kept files.

use crate::cli::args::{ArtifactArgs, ArtifactVerb};
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::ops::artifact;
use crate::report::amount;
use crate::report::record_json::artifacts_json;

/// Runs it.
pub fn run(session: &mut Session, args: &ArtifactArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let (view, faults) = match &args.verb {
        ArtifactVerb::List { run } => (artifact::list(&place, run)?, None),
        ArtifactVerb::Verify { run } => {
            let (view, faults) = artifact::verify(&place, run)?;
            (view, Some(faults))
        }
    };
    let exits = faults.iter().flatten().map(|f| f.what.code().entry().exit);
    let exit = exits.min_by_key(|e| e.care()).unwrap_or(Exit::Ok);
    if session.json {
        session.say.json(&artifacts_json(&view.run.id, &view.artifacts, faults.as_deref()));
        return Ok(exit);
    }
    let mut text = String::new();
    match &faults {
        None => {
            for a in &view.artifacts {
                let size = amount::bytes(a.size);
                text.push_str(&format!("{:<11} {size:>9}  {}  {}\n", a.kind.to_string(), a.sha256.hex(), a.path));
            }
        }
        Some(faults) if faults.is_empty() => {
            text.push_str(&format!(
                "{} checked, all as recorded\n",
                amount::counted(view.artifacts.len() as u64, "file")
            ));
        }
        Some(faults) => faults.iter().for_each(|fault| text.push_str(&format!("{fault}\n"))),
    }
    session.say.result(&text);
    Ok(exit)
}
