//! A case for `policy test` (R-P3): what somebody wants, and what the rules must say of it.

use std::collections::BTreeMap;

use super::command::read_command;
use super::decide::{Asked, Decision, decide, stops};
use super::{ApprovalTerms, Policy, Verdict};
use crate::domain::task::CommandLine;

/// What is wanted in a case, or asked about in an explanation.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// An action with its attributes.
    Action(Asked),
    /// A command line, and the environment that it has.
    Command(CommandLine, BTreeMap<String, String>),
}

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyCase {
    /// Names it.
    pub name: String,
    /// Where it stands: `policies/cases/push.yml:4`.
    pub place: String,
    /// What is wanted.
    pub wanted: Wanted,
    /// What must be said.
    pub verdict: Verdict,
    /// By which rule, if the case says so.
    pub rule: Option<String>,
}

impl PolicyCase {
    /// What is wrong; nothing when the policy says what the case wants.
    pub fn failure(&self, policy: &Policy) -> Option<String> {
        let found = verdict(policy, &self.wanted);
        let other_rule = self.rule.is_some() && self.rule != found.rule;
        if found.verdict == self.verdict && !other_rule {
            return None;
        }
        let by = |rule: &Option<String>| rule.as_ref().map(|rule| format!(" by rule `{rule}`")).unwrap_or_default();
        Some(format!(
            "expected {}{}, found {}{}: {}",
            self.verdict,
            by(&self.rule),
            found.verdict,
            by(&found.rule),
            found.why
        ))
    }
}

/// What the policy says of it. A command goes unless a rule that names an effect in it stops it.
pub fn verdict(policy: &Policy, wanted: &Wanted) -> Decision {
    match wanted {
        Wanted::Action(asked) => decide(policy, asked),
        Wanted::Command(line, vars) => of_effects(policy, &read_command(line, vars).effects),
    }
}

/// What the policy says of the effects of a command.
pub fn of_effects(policy: &Policy, effects: &[Asked]) -> Decision {
    let terms = ApprovalTerms::default();
    match stops(policy, effects) {
        Some(stopped) => Decision { verdict: stopped.verdict, rule: Some(stopped.rule), terms, why: stopped.why },
        None if effects.is_empty() => {
            let why = "nothing that rules speak of was found in the command".to_owned();
            Decision { verdict: Verdict::Allow, rule: None, terms, why }
        }
        None => {
            let names: Vec<_> = effects.iter().map(|asked| asked.action.as_str()).collect();
            let why = format!("no rule stops what is in the command: {}", names.join(", "));
            Decision { verdict: Verdict::Allow, rule: None, terms, why }
        }
    }
}
