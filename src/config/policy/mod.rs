//! The policy file and what it includes, as one [`Policy`] with its content hash (R-P1, R-P4).
//!
//! Included files come first, in their order, then the keys of the including file: maps merge by key, `rules` append,
//! everything else is replaced. Every value remembers the file it came from. Without a file the built-in policy holds;
//! a file that exists and cannot be used is an error, never a default (F90).

mod agents;
mod effects;
mod files;
mod limits;
mod raw;
mod rules;

use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::policy::Policy;
use crate::yaml::{Document, Seg};

use super::check::{join, refused, version};
use super::error::ConfigError;
use super::fields::Field;
use super::source::Source;
pub(in crate::config) use agents::{NOT_YET, not_yet};
use limits::Clock;
pub(in crate::config) use raw::RawBudget;
use raw::RawPolicy;

/// The policy file of a repository.
pub const POLICY_FILE: &str = "automation-policy.yml";

/// A policy, where it came from and what it hashes to.
#[derive(Debug, Clone)]
pub struct LoadedPolicy {
    /// Every default filled in.
    pub policy: Policy,
    /// Over the merged content as canonical JSON: comments, order of keys and division into files do not count.
    pub sha256: Sha256Hash,
    /// Every file read, the included ones first, with the hash of its bytes. Empty for the built-in policy.
    pub sources: Vec<(String, Sha256Hash)>,
    document: Option<Document>,
}

impl LoadedPolicy {
    /// The policy that holds without a file.
    pub fn built_in() -> Self {
        Self { policy: Policy::default(), sha256: Sha256Hash::of(b"{}"), sources: Vec::new(), document: None }
    }

    /// Where a value was set, for messages: `automation-policy.yml:4:12`, or `built-in`.
    pub fn place(&self, path: &[Seg<'_>]) -> String {
        let set = self.document.as_ref().filter(|doc| doc.find(path).is_some());
        set.map_or_else(|| "built-in".to_owned(), |doc| doc.at(path).to_string())
    }
}

/// Reads the policy of a repository.
pub fn load_policy(source: &dyn Source) -> Result<LoadedPolicy, ConfigError> {
    let Some(files) = files::read_all(source)? else { return Ok(LoadedPolicy::built_in()) };
    let raw: RawPolicy = files.merged.deserialize()?;
    let policy = resolve(&files.merged, raw)?;
    let content = files.merged.root().canonical().to_string();
    let sha256 = Sha256Hash::of(content.as_bytes());
    Ok(LoadedPolicy { policy, sha256, sources: files.sources, document: Some(files.merged) })
}

/// The merged file over the built-in policy.
fn resolve(doc: &Document, raw: RawPolicy) -> Result<Policy, ConfigError> {
    let mut policy = Policy { version: checked_version(doc, raw.version)?, ..Policy::default() };
    policy.warn_permille = raw.budgets.warn.map_or(policy.warn_permille, |share| share.0.0);
    policy.budgets = raw.budgets.limits().over(policy.budgets);
    policy.timeouts = limits::timeouts(doc, &raw.timeouts, policy.timeouts)?;
    policy.leases = limits::leases(doc, &raw.leases, policy.leases)?;
    policy.retry = limits::retry(doc, raw.retry, policy.retry)?;
    policy.agents = agents::agents(doc, raw.agents, policy.agents)?;
    policy.actions = effects::actions(doc, &raw.actions)?;
    policy.concurrency = effects::capacity(doc, raw.concurrency, &policy.agents)?;
    policy.breaker = effects::breaker(doc, &raw.breaker)?;
    policy.send_budget = effects::send_budget(doc, raw.send_budget)?;
    policy.people = effects::people(doc, raw.people)?;
    effects::retention(doc, raw.retention, &mut policy)?;
    policy.rules = rules::rules(doc, raw.rules, policy.people.as_ref())?;
    agents::check_env(doc, &["env".into()], &raw.env)?;
    policy.env = raw.env;
    if let Some(Field(max)) = raw.logs.max {
        policy.logs_max = max.0;
    }
    Ok(policy)
}

fn checked_version(doc: &Document, found: Option<String>) -> Result<String, ConfigError> {
    let found = found.ok_or_else(|| refused(doc, &[], "missing key `version`"))?;
    version(&found).map_err(|message| refused(doc, &["version".into()], message))?;
    Ok(found)
}

/// Refuses two clocks where the inner one is not shorter than the outer one. Names both places.
fn check_order(doc: &Document, section: &[Seg<'_>], inner: Clock, outer: Clock) -> Result<(), ConfigError> {
    if inner.1 < outer.1 {
        return Ok(());
    }
    let path = |clock: Clock| join(section, clock.0);
    let place = |clock: Clock| match doc.find(&path(clock)) {
        Some(node) => node.position.to_string(),
        None => "built-in".to_owned(),
    };
    let at = if doc.find(&path(inner)).is_some() { path(inner) } else { path(outer) };
    let message = format!(
        "`{}` {} ({}) must be shorter than `{}` {} ({})",
        inner.0,
        inner.1,
        place(inner),
        outer.0,
        outer.1,
        place(outer)
    );
    Err(refused(doc, &at, message))
}

#[cfg(test)]
mod tests;
