//! `policy explain`: which rule decides and why, and which did not fit for which condition.

use std::collections::BTreeMap;

use super::super::error::OpsError;
use super::super::given::policy;
use super::super::place::Place;
use crate::domain::policy::case::{Wanted, of_effects, verdict};
use crate::domain::policy::decide::{Asked, Decision, RuleReading, readings};
use crate::engine::steps::gate;

/// A decision with its reasons.
#[derive(Debug)]
pub struct Explained {
    /// The version of the policy.
    pub version: String,
    /// What is decided over all.
    pub decision: Decision,
    /// Each effect, with every rule that names it. One for an action; none, one or several for a command.
    pub effects: Vec<(Asked, Vec<RuleReading>)>,
}

/// Explains. Of a command the scripts are read, too, as they lie in the checkout.
pub fn explain(place: &Place, policy_ref: Option<&str>, wanted: &Wanted) -> Result<Explained, OpsError> {
    let policy = policy(place, policy_ref)?.loaded.policy;
    let (decision, effects) = match wanted {
        Wanted::Action(asked) => (verdict(&policy, wanted), vec![asked.clone()]),
        Wanted::Command(line, vars) => {
            let effects = gate::effects(line, (vars, place.repo.root()));
            (of_effects(&policy, &effects), effects)
        }
    };
    let of_a_command = matches!(wanted, Wanted::Command(..));
    let read = |asked: Asked| {
        let mut readings = readings(&policy, &asked);
        // A rule over everything says nothing of commands.
        let all = policy.rules.iter().filter(|rule| of_a_command && rule.action == "*").map(|rule| &rule.id);
        let all: Vec<_> = all.collect();
        readings.retain(|reading| !all.contains(&&reading.rule));
        (asked, readings)
    };
    Ok(Explained { version: policy.version.clone(), decision, effects: effects.into_iter().map(read).collect() })
}

/// An action with attributes as they are typed: `true` and `false` are truth values, everything else is its text.
pub fn asked(action: &str, attributes: &BTreeMap<String, String>) -> Asked {
    let value = |text: &String| match text.as_str() {
        "true" => true.into(),
        "false" => false.into(),
        text => text.into(),
    };
    let values = attributes.iter().map(|(name, text)| (name.clone(), value(text))).collect();
    Asked { action: action.to_owned(), values }
}
