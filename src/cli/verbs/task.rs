//! Which task, and how: the arguments that `start` and `fingerprint` share.

use std::collections::BTreeMap;

use crate::cli::args::TaskArgs;
use crate::cli::error::CliError;
use crate::ops::given::{Choices, TaskChoice};
use crate::ops::start::DirtyRule;

/// The task as it was chosen.
pub fn choice(args: &TaskArgs) -> TaskChoice {
    match (&args.prompt, &args.task) {
        (Some(text), _) => TaskChoice::Prompt { text: text.clone(), qa: args.qa.clone() },
        (None, task) => TaskChoice::Named(task.clone().unwrap_or_default()),
    }
}

/// What the command line adds to the files.
pub fn choices(args: &TaskArgs) -> Result<Choices, CliError> {
    let inputs = pairs("--input", &args.inputs)?;
    Ok(Choices { agent: args.agent.clone(), inputs, base: args.base.clone(), policy_ref: args.policy_ref.clone() })
}

/// `NAME=VALUE`, each name once.
pub fn pairs(option: &str, given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut values = BTreeMap::new();
    for pair in given {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(CliError::usage(format!("{option} `{pair}` is not of the form NAME=VALUE")));
        };
        if values.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(CliError::usage(format!("{option} `{name}` is given twice")));
        }
    }
    Ok(values)
}

/// What to do about a dirty checkout.
pub fn dirty(args: &TaskArgs) -> DirtyRule {
    match (args.include_dirty, args.ignore_dirty) {
        (true, _) => DirtyRule::Include,
        (false, true) => DirtyRule::Ignore,
        (false, false) => DirtyRule::Refuse,
    }
}
