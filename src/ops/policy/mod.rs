//! `policy check`, `policy test`, `policy explain`: what the rules are, whether they say what they should, and why. They read
//! and decide; nothing is written.

pub mod check;
pub mod explain;
pub mod test;

use super::error::OpsError;
use super::place::Place;
use crate::config::{self, DiskSource};
use crate::domain::policy::case::PolicyCase;

/// The cases of these files, or of every file of `policies/cases/`. They come from the checkout, whichever revision the policy
/// comes from: a new case can be tried against the policy that holds.
fn cases(place: &Place, files: &[String]) -> Result<Vec<PolicyCase>, OpsError> {
    let source = DiskSource::new(place.repo.root());
    let found = if files.is_empty() { config::case_files(&source)? } else { files.to_vec() };
    let mut cases = Vec::new();
    for file in &found {
        cases.extend(config::load_cases(&source, file)?);
    }
    Ok(cases)
}
