//! The run fingerprint: six components, one hash, and the explanation of why two fingerprints differ (R-F1, R-F6).

use serde::{Deserialize, Serialize};

use super::encoding::{Encoder, Sha256Hash};

/// What a fingerprint is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Components {
    /// The task's id.
    pub task: String,
    /// The commit that the run starts from, 40 hex digits.
    pub base_commit: String,
    /// The version of the prompt, or `key=version,…` of several; absent without a prompt.
    pub prompt_version: Option<String>,
    /// See [`super::context::context_hash`].
    pub context_hash: Sha256Hash,
    /// The user's word.
    pub mode: String,
    /// The version of the policy.
    pub policy_version: String,
}

/// One component of a fingerprint that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The component's name.
    pub component: &'static str,
    /// Its value in the earlier run.
    pub old: Option<String>,
    /// Its value now.
    pub new: Option<String>,
}

impl Components {
    /// The fingerprint.
    pub fn fingerprint(&self) -> Sha256Hash {
        let mut encoder = Encoder::new("agentrun-fp/1");
        for (name, value) in self.fields() {
            encoder.field(name, value.as_deref());
        }
        encoder.finish()
    }

    /// Name and value of every component, in the order of the encoding.
    pub fn fields(&self) -> [(&'static str, Option<String>); 6] {
        [
            ("task", Some(self.task.clone())),
            ("base_commit", Some(self.base_commit.clone())),
            ("prompt_version", self.prompt_version.clone()),
            ("context_hash", Some(self.context_hash.hex())),
            ("mode", Some(self.mode.clone())),
            ("policy_version", Some(self.policy_version.clone())),
        ]
    }

    /// What differs from an earlier run's components.
    pub fn differences(&self, earlier: &Self) -> Vec<Difference> {
        let pairs = earlier.fields().into_iter().zip(self.fields());
        pairs
            .filter(|((_, old), (_, new))| old != new)
            .map(|((component, old), (_, new))| Difference { component, old, new })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components() -> Components {
        Components {
            task: "182".into(),
            base_commit: "a".repeat(40),
            prompt_version: Some("v1".into()),
            context_hash: Sha256Hash::of(b"x"),
            mode: "implement".into(),
            policy_version: "1".into(),
        }
    }

    #[test]
    fn r_f1_every_component_changes_the_fingerprint() {
        let base = components();
        let changed = [
            Components { task: "183".into(), ..components() },
            Components { base_commit: "b".repeat(40), ..components() },
            Components { prompt_version: None, ..components() },
            Components { context_hash: Sha256Hash::of(b"y"), ..components() },
            Components { mode: "review".into(), ..components() },
            Components { policy_version: "2".into(), ..components() },
        ];
        for other in changed {
            assert_ne!(other.fingerprint(), base.fingerprint());
            assert_eq!(other.differences(&base).len(), 1, "R-F6: exactly the changed component is named");
        }
    }
}
