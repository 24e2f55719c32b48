//! What callers of the store hand in and get back about side effects, where the domain has no word for it. Plain values only.

use super::calls::Hold;
use crate::domain::action::answer::Answer;
use crate::domain::action::approval::{ApprovalRecord, Subject};
use crate::domain::action::contract::{Contract, Environment};
use crate::domain::action::record::{ActionRecord, DeploymentRecord, WantedBy};
use crate::domain::action::state::{ActionState, ApprovalState, DeploymentEvent, DeploymentState};
use crate::domain::action::{ActionFacts, ActionMove};
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ApprovalId, ReleaseId, RunId, StepKey};
use crate::domain::policy::decide;
use crate::domain::policy::{ActionType, ApprovalTerms, SendLimit};
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::domain::record::Identity;

/// By what right somebody wants an action.
#[derive(Debug, Clone, Copy)]
pub enum By<'a> {
    /// As the holder of its run.
    Holder(&'a Hold),
    /// As a program inside a run: it knows the secret of the present attempt.
    Inside {
        /// The run.
        run: &'a RunId,
        /// The hash of the secret.
        token: Sha256Hash,
    },
}

/// A side effect that somebody wants. Its request lies in a file already.
#[derive(Debug, Clone)]
pub struct Proposal<'a> {
    /// By what right.
    pub by: By<'a>,
    /// The id that it gets if it is new.
    pub id: ActionId,
    /// The idempotency key.
    pub key: String,
    /// The hash of the normalized request.
    pub request_hash: Sha256Hash,
    /// The version of the normal form.
    pub normal_version: u32,
    /// The type.
    pub kind: ActionType,
    /// What it reaches.
    pub target: String,
    /// On whose account.
    pub account: Option<String>,
    /// Live or test.
    pub environment: Environment,
    /// Where the request lies, relative to the state folder.
    pub request_file: String,
    /// The contract.
    pub contract: Contract,
    /// True when nothing undoes it.
    pub irreversible: bool,
    /// The release, for deploy and rollback.
    pub release: Option<ReleaseId>,
    /// The action that this one corrects: it is sent no more from now on.
    pub corrects: Option<ActionId>,
    /// Until when it must be settled.
    pub deadline: UtcMs,
    /// From then on the key is expired.
    pub expires_at: Option<UtcMs>,
    /// Who wants it. Run and attempt are those of `by`, whatever stands here.
    pub wanted: WantedBy,
}

/// What became of a wish for an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proposed {
    /// It was not there.
    New(Box<ActionRecord>),
    /// It is there: nothing has changed.
    Known(Box<ActionRecord>),
    /// It had been withdrawn, and is READY again.
    Renewed(Box<ActionRecord>),
}

impl Proposed {
    /// The action, whatever became of the wish.
    pub fn record(&self) -> &ActionRecord {
        match self {
            Self::New(record) | Self::Known(record) | Self::Renewed(record) => record,
        }
    }
}

/// How somebody claims the right to send or settle an action. Whether it may be taken from another is decided before, by
/// `domain::lease`.
#[derive(Debug, Clone, Copy)]
pub struct ActionClaim<'a> {
    /// The fence that the caller saw: whoever claimed since then wins.
    pub expected_fence: u64,
    /// The process.
    pub process: &'a Identity,
    /// Until this reading of the boot clock of `process.boot_id`.
    pub lease_until: BootMs,
    /// The run that does it; `None` for reconciling.
    pub hold: Option<&'a Hold>,
}

/// What is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Sending<'a> {
    /// The action.
    pub action: &'a ActionId,
    /// The right to send it.
    pub fence: u64,
    /// The run that does it; `None` for reconciling.
    pub hold: Option<&'a Hold>,
    /// The effect as rules see it.
    pub asked: &'a decide::Asked,
    /// The digest of what would be done now: what an approval must cover.
    pub digest: Option<Sha256Hash>,
    /// How much must be left of the leases.
    pub margin: Millis,
    /// Until when it must be settled from now on: what it waited for a person does not count.
    pub deadline: UtcMs,
}

/// Why something was not sent. Nothing has changed; every refusal but a missing approval is in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The policy says no.
    #[error("{why}")]
    Denied {
        /// The rule; `None` when there is no policy to ask.
        rule: Option<String>,
        /// The reason.
        why: String,
    },
    /// A person must agree first.
    #[error("{why}")]
    NeedsApproval {
        /// The rule; `None` when no rule names it.
        rule: Option<String>,
        /// By whom, and for how long.
        terms: ApprovalTerms,
        /// The reason.
        why: String,
        /// The approval that there is and that does not cover this.
        standing: Option<Box<ApprovalRecord>>,
    },
    /// As much as may be was sent to this target.
    #[error("{sent} were sent there within {}, and no more than {} may be", limit.per, limit.max)]
    Budget {
        /// The limit.
        limit: SendLimit,
        /// How many were sent.
        sent: u64,
        /// When there is room again.
        until: UtcMs,
    },
    /// The contract lets a person send it, not agentrun.
    #[error("the contract lets a person send it, not agentrun")]
    Draft,
    /// The other side no longer knows the key (F59). The action's code says so from then on.
    #[error("the other side keeps a key for {lifetime}, and that is over")]
    KeyRetentionPassed {
        /// The first send.
        since: UtcMs,
        /// How long a key is kept.
        lifetime: Millis,
    },
    /// Of the run's lease or the action's, less is left than the send needs (F42, F43).
    #[error("the lease is over, or almost")]
    LeaseOver,
    /// Somebody asked for the run to be canceled.
    #[error("the run is canceled")]
    Canceled,
    /// The release is there, or on its way, by another action (R-A10).
    #[error("{} is {} in {}", .0.release, .0.state, .0.environment)]
    Deployment(Box<DeploymentRecord>),
}

impl NotSent {
    /// The code of the catalogue.
    pub fn code(&self) -> Code {
        match self {
            Self::Denied { .. } => Code::PolicyDenied,
            Self::NeedsApproval { .. } => Code::NeedsApproval,
            Self::Budget { .. } => Code::BudgetExceeded,
            Self::KeyRetentionPassed { .. } => Code::KeyRetentionPassed,
            Self::Draft => Code::ReviewRequired,
            Self::LeaseOver => Code::Fenced,
            Self::Canceled => Code::Canceled,
            Self::Deployment(found) => match found.state {
                DeploymentState::Deployed => Code::AlreadyDeployed,
                DeploymentState::RolledBack => Code::InvalidState,
                _ => Code::Busy,
            },
        }
    }

    /// When it is worth trying again, where that is known.
    pub fn until(&self) -> Option<UtcMs> {
        match self {
            Self::Budget { until, .. } => Some(*until),
            _ => None,
        }
    }
}

/// What came back from a send.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The action.
    pub action: &'a ActionId,
    /// The right under which it was sent.
    pub fence: u64,
    /// Which send it was.
    pub tries: u32,
    /// The answer.
    pub answer: &'a Answer,
    /// What is known beside it: it goes before what the answer says.
    pub facts: &'a ActionFacts,
}

/// A move of an action by whoever has the right to it.
#[derive(Debug, Clone, Copy)]
pub struct ActionStep<'a> {
    /// The action.
    pub action: &'a ActionId,
    /// The right; `None` for a person, who needs none where nobody can be in the middle of a send.
    pub fence: Option<u64>,
    /// The move.
    pub moved: &'a ActionMove,
    /// Why, for the log.
    pub reason: Option<&'a str>,
}

/// What a person says became of an action that nobody could find out about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It has happened.
    Succeeded {
        /// The other side's name of it.
        reference: Option<String>,
    },
    /// It was tried and has failed, for good.
    Failed,
    /// It has not happened: it may be sent.
    NotThere,
}

/// Who must look at an action.
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'a> {
    /// Who.
    pub owner: &'a str,
    /// Until when.
    pub due: Option<UtcMs>,
    /// Why; `None` leaves the reason that stands there.
    pub review: Option<&'a str>,
}

/// Which actions to list, oldest first. Several conditions must all hold; without one, all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActionFilter {
    /// Wanted by this run.
    pub run: Option<RunId>,
    /// In one of these states; none named is any.
    pub states: Vec<ActionState>,
    /// Of this type.
    pub kind: Option<ActionType>,
    /// To this target.
    pub target: Option<String>,
    /// True for those that a person must look at.
    pub review: bool,
    /// Whose time has come: `retry_at` is not set, or not later.
    pub due_at: Option<UtcMs>,
    /// The newest so many; `None` is all of them.
    pub limit: Option<u32>,
}

/// What an approval is for.
#[derive(Debug, Clone, Copy)]
pub enum About<'a> {
    /// An action.
    Action(&'a ActionId),
    /// A step of a run that waits for a person.
    Step(&'a RunId, &'a StepKey),
}

/// A person's agreement is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// For what.
    pub about: About<'a>,
    /// The run that asks; `None` for reconciling.
    pub hold: Option<&'a Hold>,
    /// The id that it gets if it is new.
    pub id: &'a ApprovalId,
    /// What it covers.
    pub subject: &'a Subject,
    /// By whom, and for how long.
    pub terms: &'a ApprovalTerms,
    /// The rule that asks for it.
    pub rule: Option<&'a str>,
}

crate::words! {
    /// What a person says to a wanted agreement.
    pub enum Ruling {
        /// Yes.
        Approve = "approve",
        /// No.
        Reject = "reject",
        /// No longer.
        Revoke = "revoke",
    }
}

/// A person decides about an approval.
#[derive(Debug, Clone, Copy)]
pub struct Deciding<'a> {
    /// The approval.
    pub id: &'a ApprovalId,
    /// What they say.
    pub ruling: Ruling,
    /// Who.
    pub by: &'a str,
    /// The digest of what they were shown.
    pub digest: Option<Sha256Hash>,
    /// Why.
    pub reason: Option<&'a str>,
}

/// Which approvals to list, oldest first. Several conditions must all hold; without one, all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalFilter {
    /// Asked for by this run.
    pub run: Option<RunId>,
    /// For this action.
    pub action: Option<ActionId>,
    /// In one of these states; none named is any.
    pub states: Vec<ApprovalState>,
}

/// A deployment moves, outside of a send.
#[derive(Debug, Clone, Copy)]
pub struct DeploymentMove<'a> {
    /// The environment.
    pub environment: &'a str,
    /// The release.
    pub release: &'a ReleaseId,
    /// By what. Deploying has a way of its own: [`super::Store::begin_send`].
    pub event: DeploymentEvent,
    /// What health and smoke test said; `None` leaves what stands there.
    pub verified: Option<bool>,
    /// The run that does it.
    pub hold: Option<&'a Hold>,
    /// Why, for the log.
    pub reason: Option<&'a str>,
}

/// What a consumer learns of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// It was not processed before.
    First,
    /// It was: it is to be skipped.
    Again,
}
