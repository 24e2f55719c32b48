//! Whether going on with a run is safe (R-S5): every fact of the record against what is there now, each difference with its
//! old and new value and a verdict of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ApprovalId, ReleaseId};
use crate::words;

words! {
    /// What going on would meet.
    pub enum ResumeVerdict {
        /// Nothing differs that matters.
        Valid = "VALID",
        /// A person may accept each named difference.
        ReviewRequired = "REVIEW_REQUIRED",
        /// Nothing makes it safe: only a new run.
        ResumeBlocked = "RESUME_BLOCKED",
    }
}

words! {
    /// What can differ.
    pub enum DifferenceCode {
        /// The pinned base commit is gone or another one.
        BaseCommitChanged = "BASE_COMMIT_CHANGED",
        /// The task file says something else now.
        TaskSpecChanged = "TASK_SPEC_CHANGED",
        /// The prompt says something else now.
        PromptVersionChanged = "PROMPT_VERSION_CHANGED",
        /// The relevant files are others.
        ContextChanged = "CONTEXT_CHANGED",
        /// The policy says something else now.
        PolicyChanged = "POLICY_CHANGED",
        /// The workspace is not as the run left it.
        WorktreeChanged = "WORKTREE_CHANGED",
        /// A recorded artifact is gone.
        ArtifactMissing = "ARTIFACT_MISSING",
        /// A recorded artifact has other content.
        ArtifactChanged = "ARTIFACT_CHANGED",
        /// An approval no longer counts.
        ApprovalInvalid = "APPROVAL_INVALID",
        /// The release was replaced.
        ReleaseChanged = "RELEASE_CHANGED",
        /// The environment's configuration is another.
        EnvironmentChanged = "ENVIRONMENT_CHANGED",
        /// A dependency lock file has other content.
        LockfileChanged = "LOCKFILE_CHANGED",
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What differs.
    pub code: DifferenceCode,
    /// As recorded.
    pub old: Option<String>,
    /// As it is now.
    pub new: Option<String>,
    /// What it means for going on.
    pub verdict: ResumeVerdict,
    /// Why, in words.
    pub note: String,
}

/// What a delivery rests on: as it was recorded, or as it is found now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryFacts {
    /// Approvals that count: by their id, the digest of what they cover. As found now: of what they would have to cover.
    pub approvals: BTreeMap<ApprovalId, Sha256Hash>,
    /// The release that the run made: its name, and the hash of its commit and artifacts.
    pub release: Option<(ReleaseId, Sha256Hash)>,
    /// The configuration of each environment that was approved or deployed to, by the environment's name.
    pub environments: BTreeMap<String, Sha256Hash>,
}

/// What differs in what a delivery rests on. A release is a name for one content: another one under its name is past
/// repair. An approval that no longer covers what would be done never counts again, whoever accepts the difference: going on
/// asks anew (R-S8).
pub fn delivery_differences(recorded: &DeliveryFacts, present: &DeliveryFacts) -> Vec<Difference> {
    use DifferenceCode as D;
    let mut found = Vec::new();
    for (id, was) in &recorded.approvals {
        let is = present.approvals.get(id);
        if is != Some(was) {
            let values = (Some(format!("{id} {was}")), is.map(|is| format!("{id} {is}")));
            let note = "an approval does not cover what would be done now; it is asked for again";
            found.push(differs(D::ApprovalInvalid, values, ResumeVerdict::ReviewRequired, note));
        }
    }
    let shown = |release: &Option<(ReleaseId, Sha256Hash)>| release.as_ref().map(|(id, hash)| format!("{id} {hash}"));
    if recorded.release.is_some() && recorded.release != present.release {
        let note = "the release that the run made is gone or another";
        let values = (shown(&recorded.release), shown(&present.release));
        found.push(differs(D::ReleaseChanged, values, ResumeVerdict::ResumeBlocked, note));
    }
    for (environment, was) in &recorded.environments {
        let is = present.environments.get(environment);
        if is != Some(was) {
            let values = (Some(format!("{environment} {was}")), is.map(|is| format!("{environment} {is}")));
            let note = "the configuration of an environment is another";
            found.push(differs(D::EnvironmentChanged, values, ResumeVerdict::ReviewRequired, note));
        }
    }
    found
}

fn differs(
    code: DifferenceCode,
    (old, new): (Option<String>, Option<String>),
    verdict: ResumeVerdict,
    note: &str,
) -> Difference {
    Difference { code, old, new, verdict, note: note.to_owned() }
}

/// The verdict over all differences, those left out that a person has accepted by their code.
pub fn verdict(differences: &[Difference], accepted: &[DifferenceCode]) -> ResumeVerdict {
    let open = differences
        .iter()
        .filter(|d| d.verdict == ResumeVerdict::ResumeBlocked || !accepted.contains(&d.code))
        .map(|d| d.verdict);
    open.max().unwrap_or(ResumeVerdict::Valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(code: DifferenceCode, verdict: ResumeVerdict) -> Difference {
        Difference { code, old: None, new: None, verdict, note: String::new() }
    }

    #[test]
    fn r_s5_the_worst_difference_decides_and_only_review_can_be_accepted() {
        let review = difference(DifferenceCode::WorktreeChanged, ResumeVerdict::ReviewRequired);
        let blocked = difference(DifferenceCode::ArtifactMissing, ResumeVerdict::ResumeBlocked);
        let fine = difference(DifferenceCode::PolicyChanged, ResumeVerdict::Valid);
        assert_eq!(verdict(&[], &[]), ResumeVerdict::Valid);
        assert_eq!(verdict(std::slice::from_ref(&fine), &[]), ResumeVerdict::Valid);
        assert_eq!(verdict(&[fine, review.clone()], &[]), ResumeVerdict::ReviewRequired);
        assert_eq!(verdict(std::slice::from_ref(&review), &[DifferenceCode::WorktreeChanged]), ResumeVerdict::Valid);
        let all = [DifferenceCode::WorktreeChanged, DifferenceCode::ArtifactMissing];
        assert_eq!(verdict(&[review, blocked], &all), ResumeVerdict::ResumeBlocked);
    }

    #[test]
    fn r_s5_r_s8_what_a_delivery_rests_on_is_compared_and_a_replaced_release_blocks() {
        use DifferenceCode as D;
        use ResumeVerdict as V;
        let hash = |text: &str| Sha256Hash::of(text.as_bytes());
        let facts = |approved: &str, release: &str, environment: &str| DeliveryFacts {
            approvals: BTreeMap::from([(ApprovalId::recorded("apr_A"), hash(approved))]),
            release: Some((ReleaseId::recorded("r1"), hash(release))),
            environments: BTreeMap::from([("production".to_owned(), hash(environment))]),
        };
        let recorded = facts("a", "r", "e");
        let codes = |present: &DeliveryFacts| -> Vec<_> {
            delivery_differences(&recorded, present).iter().map(|d| (d.code, d.verdict)).collect()
        };
        assert_eq!(codes(&recorded), []);
        assert_eq!(codes(&facts("b", "r", "e")), [(D::ApprovalInvalid, V::ReviewRequired)]);
        assert_eq!(codes(&facts("a", "s", "e")), [(D::ReleaseChanged, V::ResumeBlocked)]);
        assert_eq!(codes(&facts("a", "r", "f")), [(D::EnvironmentChanged, V::ReviewRequired)]);
        assert_eq!(codes(&DeliveryFacts::default()).len(), 3, "what is gone differs as well");
        let more = delivery_differences(&DeliveryFacts::default(), &recorded);
        assert_eq!(more, [], "what was not recorded yet is no difference");
    }
}
