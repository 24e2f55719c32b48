//! What differs between two runs, or between two attempts of one (R-S7): fingerprint parts, patch, artifacts, tests, usage.
//! As data; how it is said stands in the JSON and text files.

use std::collections::BTreeMap;

use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::hash::fingerprint::Difference;
use crate::domain::ids::StepKey;
use crate::domain::outcome::ProcessEnd;
use crate::domain::record::{ArtifactRecord, ArtifactType, RunView};

/// One side: a run, or one attempt of it.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The run.
    pub view: &'a RunView,
    /// The attempt; `None` is the whole run.
    pub attempt: Option<u32>,
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// `run_182_001` or `run_182_001@2`.
    pub left: String,
    /// The other side.
    pub right: String,
    /// Fingerprint components that are not the same.
    pub components: Vec<Difference>,
    /// Whether both made the same changes; `None` when one of them has no patch.
    pub same_patch: Option<bool>,
    /// Kept files that are not the same.
    pub artifacts: Vec<ArtifactDifference>,
    /// Every step of either side.
    pub steps: Vec<StepComparison>,
    /// Figures; `None` is unknown for that side.
    pub usage: Vec<UsageComparison>,
}

/// A kept file that only one side has, or that has other content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactDifference {
    /// Its path.
    pub path: String,
    /// Left.
    pub old: Option<Sha256Hash>,
    /// Right.
    pub new: Option<Sha256Hash>,
}

/// How one step went on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepComparison {
    /// The step.
    pub key: StepKey,
    /// Left, in a word; `None` when that side has no such step.
    pub old: Option<String>,
    /// Right.
    pub new: Option<String>,
}

/// One figure of both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageComparison {
    /// Its name in the JSON of a run.
    pub name: &'static str,
    /// Left.
    pub old: Option<u64>,
    /// Right.
    pub new: Option<u64>,
}

impl Side<'_> {
    fn name(&self) -> String {
        match self.attempt {
            Some(attempt) => format!("{}@{attempt}", self.view.run.id),
            None => self.view.run.id.to_string(),
        }
    }

    fn counts(&self, attempt: u32) -> bool {
        self.attempt.is_none_or(|a| a == attempt)
    }

    /// Reports and results tell about the run and always differ: they are no part of what it made.
    fn artifacts(&self) -> impl Iterator<Item = &ArtifactRecord> {
        let report = |kind| matches!(kind, ArtifactType::Report | ArtifactType::Result);
        self.view.artifacts.iter().filter(move |a| self.counts(a.attempt) && !report(a.kind))
    }

    fn patch(&self) -> Option<Sha256Hash> {
        self.artifacts().filter(|a| a.kind == ArtifactType::Patch).last().map(|a| a.sha256)
    }

    /// Of a run the step's state; of an attempt how its last execution in it ended.
    fn step(&self, key: &StepKey) -> Option<String> {
        let Some(attempt) = self.attempt else {
            return self.view.steps.iter().find(|s| s.key == *key).map(|s| s.state.to_string());
        };
        let newest = self.view.executions.iter().rev().find(|e| e.step == *key && e.attempt == attempt);
        newest.map(|e| e.end.as_ref().map_or_else(|| "no end seen".to_owned(), ProcessEnd::to_string))
    }

    fn usage(&self) -> [Option<u64>; 5] {
        let used = match self.attempt {
            None => self.view.usage,
            Some(attempt) if attempt == self.view.run.attempt => self.view.attempt_usage,
            // The record sums up the newest attempt and the run alone; of an older one only its time is known.
            Some(attempt) => {
                let executions = self.view.executions.iter().filter(|e| e.attempt == attempt);
                return [None, None, None, None, Some(executions.map(|e| e.active.0).sum())];
            }
        };
        let active = Some(used.active.0);
        [Some(used.tokens()), Some(used.total_tokens()), Some(used.tool_calls), used.cost(), active]
    }
}

/// Compares two runs or attempts.
pub fn compare(left: Side<'_>, right: Side<'_>) -> Comparison {
    let names = ["tokens", "total_tokens", "tool_calls", "cost_micros", "wall_ms"];
    let figures = left.usage().into_iter().zip(right.usage());
    Comparison {
        left: left.name(),
        right: right.name(),
        components: right.view.run.components.differences(&left.view.run.components),
        same_patch: left.patch().zip(right.patch()).map(|(a, b)| a == b),
        artifacts: artifacts(left, right),
        steps: steps(left, right),
        usage: names.into_iter().zip(figures).map(|(name, (old, new))| UsageComparison { name, old, new }).collect(),
    }
}

fn artifacts(left: Side<'_>, right: Side<'_>) -> Vec<ArtifactDifference> {
    let mut by_path: BTreeMap<&str, (Option<Sha256Hash>, Option<Sha256Hash>)> = BTreeMap::new();
    for artifact in left.artifacts() {
        by_path.entry(&artifact.path).or_default().0 = Some(artifact.sha256);
    }
    for artifact in right.artifacts() {
        by_path.entry(&artifact.path).or_default().1 = Some(artifact.sha256);
    }
    let differ = by_path.into_iter().filter(|(_, (old, new))| old != new);
    differ.map(|(path, (old, new))| ArtifactDifference { path: path.to_owned(), old, new }).collect()
}

fn steps(left: Side<'_>, right: Side<'_>) -> Vec<StepComparison> {
    let mut keys: Vec<&StepKey> = left.view.steps.iter().map(|s| &s.key).collect();
    let only_right = right.view.steps.iter().map(|s| &s.key).filter(|k| !keys.contains(k)).collect::<Vec<_>>();
    keys.extend(only_right);
    let both = |key: &StepKey| StepComparison { key: key.clone(), old: left.step(key), new: right.step(key) };
    keys.into_iter().map(both).filter(|s| s.old.is_some() || s.new.is_some()).collect()
}
