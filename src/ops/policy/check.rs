//! `policy check`: the policy and everything beside it is read; each action type with what holds for it, and what is missing.

use super::super::error::OpsError;
use super::super::given::{PolicyFound, policy};
use super::super::place::Place;
use crate::domain::machine::Word as _;
use crate::domain::policy::ActionType;
use crate::domain::policy::command::ATTRIBUTES;
use crate::domain::policy::kinds::KindTerms;

/// A policy that could be read.
#[derive(Debug)]
pub struct Checked {
    /// Its version.
    pub version: String,
    /// Its content hash.
    pub sha256: String,
    /// The revision that it was read from; `None` is the checkout.
    pub rev: Option<String>,
    /// Every file that was read, included ones first. Empty for the built-in policy.
    pub files: Vec<String>,
    /// Number of rules.
    pub rules: usize,
    /// Number of cases that were read.
    pub cases: usize,
    /// What holds for each type of action.
    pub types: Vec<KindTerms>,
    /// What is worth a look.
    pub remarks: Vec<String>,
}

/// Checks. A file that is broken is an error, with its place.
pub fn check(place: &Place, policy_ref: Option<&str>) -> Result<Checked, OpsError> {
    let PolicyFound { loaded, rev, .. } = policy(place, policy_ref)?;
    let cases = super::cases(place, &[])?.len();
    let policy = &loaded.policy;
    let files: Vec<String> = loaded.sources.iter().map(|(path, _)| path.clone()).collect();
    let mut remarks = Vec::new();
    if files.is_empty() {
        remarks.push("there is no policy file: every effect is denied".to_owned());
    }
    let is_known = |action: &str| {
        action == "*" || ActionType::from_word(action).is_some() || ATTRIBUTES.iter().any(|(name, _)| *name == action)
    };
    for rule in policy.rules.iter().filter(|rule| !is_known(&rule.action)) {
        remarks.push(format!("rule `{}` names {}, which nothing asks about: it never decides", rule.id, rule.action));
    }
    if cases == 0 && !policy.rules.is_empty() {
        remarks.push("there are no cases in policies/cases/: nothing proves the rules".to_owned());
    }
    Ok(Checked {
        version: policy.version.clone(),
        sha256: loaded.sha256.to_string(),
        rev,
        files,
        rules: policy.rules.len(),
        cases,
        types: ActionType::ALL.iter().map(|kind| policy.terms(*kind)).collect(),
        remarks,
    })
}
