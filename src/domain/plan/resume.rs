//! Whether going on with a run is safe (R-S5): every fact of the record against what is there now, each difference with its
//! old and new value and a verdict of its own.

use serde::{Deserialize, Serialize};

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
}
