//! The life cycles of an action, of an approval and of a deployment. The state of an action decides whether anything may be
//! sent (R-A18).

use crate::domain::machine::{Machine, Row};
use crate::words;

words! {
    /// Where an action stands.
    pub enum ActionState {
        /// Intended and not sent; may be sent by whoever claims it.
        Ready = "READY",
        /// Intended; a person must agree first.
        WaitingApproval = "WAITING_APPROVAL",
        /// Sent, or about to be.
        Started = "STARTED",
        /// The other side has accepted it and is at it.
        InProgress = "IN_PROGRESS",
        /// It has happened. Final but for a correction.
        Succeeded = "SUCCEEDED",
        /// It has not happened, and that is known.
        Failed = "FAILED",
        /// It may have happened.
        OutcomeUnknown = "OUTCOME_UNKNOWN",
        /// A person said no, or it was withdrawn before it was sent.
        Canceled = "CANCELED",
        /// A correction is wanted: it is not sent again.
        Compensating = "COMPENSATING",
        /// It was corrected by an action of its own. Final.
        Compensated = "COMPENSATED",
    }
}

words! {
    /// What can happen to an action.
    pub enum ActionEvent {
        /// A rule says that a person must agree, or the agreement no longer covers it.
        Ask = "ask",
        /// A person agreed.
        Approve = "approve",
        /// A person said no, or it was withdrawn.
        Withdraw = "withdraw",
        /// The same is wanted again after it was withdrawn.
        Renew = "renew",
        /// It was there before it was sent: somebody else had done it.
        Adopt = "adopt",
        /// It is sent.
        Start = "start",
        /// It is sent once more under the same key while nobody knows: the other side makes one effect of both.
        Resend = "resend",
        /// The other side accepted it.
        Accept = "accept",
        /// The other side said that it is done.
        Succeed = "succeed",
        /// It is certain that it has not happened.
        Fail = "fail",
        /// Nobody knows what became of it.
        LoseOutcome = "lose_outcome",
        /// It is tried again with the same key.
        Retry = "retry",
        /// Asking found it.
        ProveSuccess = "prove_success",
        /// Asking found that it failed.
        ProveFailure = "prove_failure",
        /// Asking found it accepted and under way.
        ProveProgress = "prove_progress",
        /// Asking found, with all the evidence that the contract asks for, that it is not there.
        ProveAbsence = "prove_absence",
        /// A correction is wanted.
        Compensate = "compensate",
        /// The correction is done.
        FinishCompensation = "finish_compensation",
    }
}

use ActionEvent as E;
use ActionState as S;

/// The table of R-A18.
pub static ACTION: Machine<ActionState, ActionEvent> = Machine {
    name: "action",
    initial: S::Ready,
    rows: &[
        Row { from: &[S::Ready], event: E::Ask, to: S::WaitingApproval, needs: None },
        Row {
            from: &[S::WaitingApproval],
            event: E::Approve,
            to: S::Ready,
            needs: Some("an approval of exactly this"),
        },
        Row { from: &[S::Ready, S::WaitingApproval, S::Failed], event: E::Withdraw, to: S::Canceled, needs: None },
        Row { from: &[S::Canceled], event: E::Renew, to: S::Ready, needs: None },
        Row { from: &[S::Ready], event: E::Adopt, to: S::Succeeded, needs: Some("asking found it") },
        Row {
            from: &[S::Ready],
            event: E::Start,
            to: S::Started,
            needs: Some("policy, approval, fence and lease in the same transaction"),
        },
        // Not by way of READY: what may have happened is never taken for something that was not sent.
        Row {
            from: &[S::OutcomeUnknown],
            event: E::Resend,
            to: S::Started,
            needs: Some("the other side knows it by its key; the rest as for start"),
        },
        Row { from: &[S::Started], event: E::Accept, to: S::InProgress, needs: None },
        Row { from: &[S::Started, S::InProgress], event: E::Succeed, to: S::Succeeded, needs: None },
        Row { from: &[S::Started, S::InProgress], event: E::Fail, to: S::Failed, needs: Some("proof") },
        Row { from: &[S::Started, S::InProgress], event: E::LoseOutcome, to: S::OutcomeUnknown, needs: None },
        Row { from: &[S::Failed], event: E::Retry, to: S::Ready, needs: Some("the contract allows it") },
        Row { from: &[S::OutcomeUnknown], event: E::ProveSuccess, to: S::Succeeded, needs: Some("proof") },
        Row { from: &[S::OutcomeUnknown], event: E::ProveFailure, to: S::Failed, needs: Some("proof") },
        Row { from: &[S::OutcomeUnknown], event: E::ProveProgress, to: S::InProgress, needs: Some("proof") },
        Row {
            from: &[S::OutcomeUnknown],
            event: E::ProveAbsence,
            to: S::Ready,
            needs: Some("two agreeing answers after the settle time, or a person"),
        },
        Row { from: &[S::Succeeded, S::OutcomeUnknown], event: E::Compensate, to: S::Compensating, needs: None },
        Row { from: &[S::Compensating], event: E::FinishCompensation, to: S::Compensated, needs: None },
    ],
};

words! {
    /// Where an approval stands.
    pub enum ApprovalState {
        /// A person must decide.
        Open = "OPEN",
        /// Agreed, and not used yet.
        Approved = "APPROVED",
        /// Refused. Final.
        Rejected = "REJECTED",
        /// Taken back before it was used. Final.
        Revoked = "REVOKED",
        /// Its time is over. Final.
        Expired = "EXPIRED",
        /// What it was for is no longer what was approved. Final.
        Void = "VOID",
        /// It let one action go. Final: it counts once.
        Used = "USED",
    }
}

words! {
    /// What can happen to an approval.
    pub enum ApprovalEvent {
        /// A person agrees.
        Approve = "approve",
        /// A person refuses.
        Reject = "reject",
        /// The agreement is taken back.
        Revoke = "revoke",
        /// Its time is over.
        Expire = "expire",
        /// What it was for has changed, or was withdrawn.
        Void = "void",
        /// What it was for begins.
        Use = "use",
    }
}

use ApprovalState as A;

/// An approval counts once, for a time, for exactly one thing (R-A9).
pub static APPROVAL: Machine<ApprovalState, ApprovalEvent> = Machine {
    name: "approval",
    initial: A::Open,
    rows: &[
        Row { from: &[A::Open], event: ApprovalEvent::Approve, to: A::Approved, needs: Some("one of its approvers") },
        Row { from: &[A::Open], event: ApprovalEvent::Reject, to: A::Rejected, needs: Some("one of its approvers") },
        // One that was used lets the same be sent again after a lost answer; once revoked, it does not (R-A9).
        Row { from: &[A::Open, A::Approved, A::Used], event: ApprovalEvent::Revoke, to: A::Revoked, needs: None },
        Row {
            from: &[A::Open, A::Approved],
            event: ApprovalEvent::Expire,
            to: A::Expired,
            needs: Some("its time is over"),
        },
        Row { from: &[A::Open, A::Approved], event: ApprovalEvent::Void, to: A::Void, needs: None },
        Row { from: &[A::Approved], event: ApprovalEvent::Use, to: A::Used, needs: Some("the same digest") },
    ],
};

words! {
    /// Where the deployment of one release to one environment stands (R-A10, R-A19).
    pub enum DeploymentState {
        /// Intended.
        Ready = "READY",
        /// A person agreed, or the policy lets it go.
        Approved = "APPROVED",
        /// Being executed, or executed and not verified yet.
        Deploying = "DEPLOYING",
        /// Executed and verified.
        Deployed = "DEPLOYED",
        /// Not executed, or found bad.
        Failed = "FAILED",
        /// Replaced by an earlier one. Final.
        RolledBack = "ROLLED_BACK",
    }
}

words! {
    /// What can happen to a deployment.
    pub enum DeploymentEvent {
        /// It may go.
        Approve = "approve",
        /// It is executed.
        Deploy = "deploy",
        /// It is executed again by a new attempt.
        DeployAgain = "deploy_again",
        /// It was found bad, and a new attempt looks at it again.
        VerifyAgain = "verify_again",
        /// Health and smoke test are good, or there are none.
        Verify = "verify",
        /// It was not executed, or was found bad.
        Fail = "fail",
        /// An earlier release took its place.
        RollBack = "roll_back",
    }
}

use DeploymentState as D;

/// The table of R-A19.
pub static DEPLOYMENT: Machine<DeploymentState, DeploymentEvent> = Machine {
    name: "deployment",
    initial: D::Ready,
    rows: &[
        Row { from: &[D::Ready], event: DeploymentEvent::Approve, to: D::Approved, needs: None },
        Row { from: &[D::Approved], event: DeploymentEvent::Deploy, to: D::Deploying, needs: None },
        Row { from: &[D::Failed], event: DeploymentEvent::DeployAgain, to: D::Deploying, needs: Some("a new attempt") },
        Row { from: &[D::Failed], event: DeploymentEvent::VerifyAgain, to: D::Deploying, needs: Some("a new attempt") },
        Row { from: &[D::Deploying], event: DeploymentEvent::Verify, to: D::Deployed, needs: None },
        Row { from: &[D::Deploying], event: DeploymentEvent::Fail, to: D::Failed, needs: None },
        Row { from: &[D::Deployed], event: DeploymentEvent::RollBack, to: D::RolledBack, needs: None },
    ],
};
