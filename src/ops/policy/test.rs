//! `policy test`: the rules against cases in files (R-P3).

use super::super::error::OpsError;
use super::super::given::policy;
use super::super::place::Place;
use crate::domain::policy::case::PolicyCase;

/// What became of the cases.
#[derive(Debug)]
pub struct Tested {
    /// The version of the policy.
    pub version: String,
    /// Every case, and what is wrong with it, if anything is.
    pub cases: Vec<(PolicyCase, Option<String>)>,
}

impl Tested {
    /// How many failed.
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|(_, failure)| failure.is_some()).count()
    }
}

/// Tests the cases of these files, or of every file of the folder.
pub fn test(place: &Place, policy_ref: Option<&str>, files: &[String]) -> Result<Tested, OpsError> {
    let loaded = policy(place, policy_ref)?.loaded;
    let cases = super::cases(place, files)?.into_iter();
    let cases = cases.map(|case| {
        let failure = case.failure(&loaded.policy);
        (case, failure)
    });
    Ok(Tested { version: loaded.policy.version.clone(), cases: cases.collect() })
}
