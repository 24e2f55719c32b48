//! `agentrun fingerprint`: every component, and what differs from an earlier run.

use super::task;
use crate::cli::args::FingerprintArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::delivery::in_words;
use crate::domain::failure::Exit;
use crate::domain::text::neutral_line;
use crate::ops::fingerprint;
use crate::report::amount;
use crate::report::record_json::{FingerprintDocument, fingerprint_json};

/// Runs it.
pub fn run(session: &mut Session, args: &FingerprintArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let explained = fingerprint::fingerprint(
        &place,
        &task::choice(&args.task),
        &task::choices(&args.task)?,
        task::dirty(&args.task),
        args.against.as_deref(),
    )?;
    let inputs = &explained.facts.inputs;
    if session.json {
        session.say.json(&fingerprint_json(&FingerprintDocument {
            components: &explained.facts.components,
            task_meaning: &inputs.spec.meaning(),
            files: &explained.facts.counted(),
            rules: &inputs.rules,
            against: explained.against.as_ref().map(|(run, d)| (&run.id, d.as_slice())),
        }));
        return Ok(Exit::Ok);
    }
    let mut text = format!("fingerprint {}\n", explained.facts.components.fingerprint());
    for (name, value) in explained.facts.components.fields() {
        text.push_str(&format!("  {name:<15} {}\n", value.as_deref().unwrap_or("none")));
    }
    text.push_str(&format!(
        "  {:<15} {}, {}\n",
        "context",
        amount::counted(explained.facts.counted().len() as u64, "file"),
        amount::counted(inputs.rules.len() as u64, "rule")
    ));
    for step in &inputs.spec.steps {
        if let Some(effect) = in_words(&step.body) {
            text.push_str(&format!("  {:<15} {} {}\n", step.kind(), step.key, neutral_line(&effect)));
        }
    }
    if let Some((run, differences)) = &explained.against {
        text.push_str(&format!("against {}:\n", run.id));
        if differences.is_empty() {
            text.push_str("  nothing differs\n");
        }
        for d in differences {
            let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "none".to_owned());
            text.push_str(&format!("  {}: {} → {}\n", d.component, value(&d.old), value(&d.new)));
        }
    }
    session.say.result(&text);
    Ok(Exit::Ok)
}
