//! What can go wrong in the store, sorted by what the caller can do about it. It gives no hints: those stand in the
//! command line.

use rusqlite::ErrorCode;

use crate::domain::action::state::{ActionState, ApprovalState};
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ApprovalId, ReleaseId, RunId};
use crate::domain::machine::Refused;
use crate::domain::run::RunStatus;

/// The store's answer when it cannot do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk, or the room that this process may use of it, is full. Nothing was written.
    #[error("no room left for the database")]
    Full,
    /// The database cannot be written. Nothing was written.
    #[error("the database cannot be written: it or its folder is read-only")]
    ReadOnly,
    /// Reading or writing failed. Nothing was written.
    #[error("the database could not be read or written: {0}")]
    Io(String),
    /// Another process held the database's write lock for longer than anybody should wait.
    #[error("the database stayed locked by another process")]
    Busy,
    /// A commit failed in a way that leaves open whether it is there (T1); `event` is what to look for later.
    #[error("a commit failed and it cannot be told whether it was written (event {event}): {cause}")]
    CommitUnknown {
        /// The first event of the transaction.
        event: String,
        /// The failure.
        cause: String,
    },
    /// The file is damaged, or no database of agentrun. It was not touched.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// A newer agentrun wrote it. It was not touched.
    #[error("the database has version {found}, this agentrun knows version {known}")]
    TooNew {
        /// The version found.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// There is no such record.
    #[error("{what} does not exist")]
    NotFound {
        /// What was looked for, named.
        what: String,
    },
    /// The state found does not allow it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The caller no longer holds the run; what it wanted to write was kept as evidence (R-R7).
    #[error("{run} is held under fence {held_by}, not {fence}: another process has taken it over")]
    Fenced {
        /// The run.
        run: RunId,
        /// The caller's fence.
        fence: u64,
        /// The newest fence.
        held_by: u64,
    },
    /// Another run of the concurrency group is in progress (R-W6).
    #[error("concurrency group `{group}` is held by {run}")]
    GroupBusy {
        /// The group.
        group: String,
        /// The run that holds it.
        run: RunId,
    },
    /// The attempts that the task has left are set aside for its other runs (R-R4). Nothing was written.
    #[error("task.attempts is limited to {limit}: {used} used, {reserved} under way in runs of the task")]
    AttemptsReserved {
        /// The limit.
        limit: u64,
        /// Attempts that failed.
        used: u64,
        /// Attempts that may still fail.
        reserved: u64,
    },
    /// Somebody else was faster: the run was claimed since the caller looked.
    #[error("{run} was claimed by another process under fence {fence}")]
    Held {
        /// The run.
        run: RunId,
        /// The newest fence.
        fence: u64,
    },
    /// The idempotency key stands for another request (R-F7).
    #[error("the idempotency key was used for another request, which led to {run}")]
    KeyReused {
        /// The run of the first request.
        run: RunId,
    },
    /// The idempotency key was used, and its time is over (R-F7).
    #[error("the idempotency key led to {run} and has expired")]
    KeyExpired {
        /// The run it led to.
        run: RunId,
    },
    /// A prompt version came back with other text (R-F5).
    #[error("version {version} of prompt `{path}` was used before with other text")]
    PromptVersionReused {
        /// The prompt's file.
        path: String,
        /// The version.
        version: String,
    },
    /// A policy version came back with other content (R-F5).
    #[error("version {version} of the policy was used before with other content")]
    PolicyVersionReused {
        /// The version.
        version: String,
    },
    /// The key of an action stands for another request (R-A3). Nothing was sent; the refusal is in the log.
    #[error("the key of action {action} was used for another request: recorded {recorded}, wanted {wanted}")]
    ActionKeyReused {
        /// The action of the first request.
        action: ActionId,
        /// The hash of the first request.
        recorded: Sha256Hash,
        /// The hash of the present one.
        wanted: Sha256Hash,
    },
    /// The key of an action was used, and its time is over (R-A3).
    #[error("the key led to action {action}, which is {state}, and has expired")]
    ActionKeyExpired {
        /// The action it led to.
        action: ActionId,
        /// Where that stands.
        state: ActionState,
    },
    /// The log says that this key was sent, and its record is lost: nobody can say what became of it.
    #[error("the key was sent before by {run}, and the record of that action is lost")]
    ActionLost {
        /// The chain that tells of it.
        run: String,
    },
    /// The caller no longer has the right to send or settle the action; what it had learned was kept as evidence.
    #[error("action {action} is held under fence {held_by}, not {fence}: somebody else has claimed it")]
    ActionFenced {
        /// The action.
        action: ActionId,
        /// The caller's fence.
        fence: u64,
        /// The newest fence.
        held_by: u64,
    },
    /// Somebody else was faster: the action was claimed since the caller looked (R-A6).
    #[error("action {action} was claimed by somebody else under fence {fence}")]
    ActionHeld {
        /// The action.
        action: ActionId,
        /// The newest fence.
        fence: u64,
    },
    /// Whoever asks is no program of the run's present attempt.
    #[error("{run} is not running, or the token is not that of its present attempt")]
    NotInside {
        /// The run.
        run: RunId,
    },
    /// Somebody else decided first (F48).
    #[error("approval {approval} is {state} already, by {by}")]
    ApprovalDecided {
        /// The approval.
        approval: ApprovalId,
        /// Where it stands.
        state: ApprovalState,
        /// Who decided.
        by: String,
    },
    /// The time of the approval is over.
    #[error("approval {approval} has expired")]
    ApprovalExpired {
        /// The approval.
        approval: ApprovalId,
    },
    /// What was shown to the person is not what the approval is for (F49).
    #[error("approval {approval} is for {recorded}, not for {given}")]
    ApprovalMismatch {
        /// The approval.
        approval: ApprovalId,
        /// The digest of what the approval is for.
        recorded: Sha256Hash,
        /// The digest that was given.
        given: Sha256Hash,
    },
    /// The run that asked has ended, or is about to be canceled (F50).
    #[error("approval {approval} was asked for by {run}, which is {status}")]
    ApprovalTooLate {
        /// The approval.
        approval: ApprovalId,
        /// The run.
        run: RunId,
        /// Where that stands; CANCELED also when a cancel was asked for.
        status: RunStatus,
    },
    /// The name of a release stands for other content (R-A19).
    #[error("release {release} was made from commit {commit} and its artifacts by {run}; this is other content")]
    ReleaseConflict {
        /// The release.
        release: ReleaseId,
        /// Its commit.
        commit: String,
        /// The run that made it.
        run: RunId,
    },
    /// A bug of agentrun.
    #[error("the record refused a statement: {0}")]
    Internal(String),
}

impl StoreError {
    /// The code of the catalogue.
    pub fn code(&self) -> Code {
        match self {
            Self::Full => Code::StoreFull,
            Self::ReadOnly => Code::StoreReadonly,
            Self::Io(_) => Code::StoreIo,
            Self::Busy => Code::StoreBusy,
            Self::CommitUnknown { .. } => Code::StoreCommitUnknown,
            Self::Corrupt(_) => Code::StateCorrupt,
            Self::TooNew { .. } => Code::StateTooNew,
            Self::NotFound { .. } => Code::NotFound,
            Self::Refused(_) => Code::InvalidState,
            Self::Fenced { .. } => Code::Fenced,
            Self::GroupBusy { .. } => Code::GroupBusy,
            Self::AttemptsReserved { .. } => Code::BudgetExceeded,
            Self::Held { .. } => Code::Busy,
            Self::KeyReused { .. } => Code::IdempotencyKeyReused,
            Self::KeyExpired { .. } => Code::IdempotencyKeyExpired,
            Self::PromptVersionReused { .. } => Code::PromptVersionReused,
            Self::PolicyVersionReused { .. } => Code::PolicyVersionReused,
            Self::ActionKeyReused { .. } => Code::IdempotencyKeyReused,
            Self::ActionKeyExpired { .. } => Code::IdempotencyKeyExpired,
            Self::ActionLost { .. } => Code::StateCorrupt,
            Self::ActionFenced { .. } => Code::Fenced,
            Self::ActionHeld { .. } => Code::Busy,
            Self::NotInside { .. } => Code::PermissionDenied,
            Self::ApprovalExpired { .. } => Code::ApprovalExpired,
            Self::ApprovalMismatch { .. } => Code::ApprovalMismatch,
            Self::ApprovalTooLate { status: RunStatus::Canceled, .. } => Code::Canceled,
            Self::ApprovalDecided { .. } | Self::ApprovalTooLate { .. } => Code::InvalidState,
            Self::ReleaseConflict { .. } => Code::IdempotencyConflict,
            Self::Internal(_) => Code::Internal,
        }
    }

    /// There is no action with this id.
    pub(super) fn no_action(action: &ActionId) -> Self {
        Self::NotFound { what: format!("action {action}") }
    }

    /// There is no run with this id.
    pub(super) fn no_run(run: &RunId) -> Self {
        Self::NotFound { what: format!("run {run}") }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let words = error.to_string();
        match error {
            E::SqliteFailure(cause, _) => match cause.code {
                ErrorCode::DiskFull => Self::Full,
                ErrorCode::ReadOnly => Self::ReadOnly,
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Busy,
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Corrupt(words),
                ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => Self::Io(words),
                _ => Self::Internal(words),
            },
            // A value that cannot be what this program wrote.
            E::FromSqlConversionFailure(..) | E::IntegralValueOutOfRange(..) | E::InvalidColumnType(..) => {
                Self::Corrupt(words)
            }
            _ => Self::Internal(words),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        match error.kind() {
            K::StorageFull | K::QuotaExceeded => Self::Full,
            K::ReadOnlyFilesystem | K::PermissionDenied => Self::ReadOnly,
            _ => Self::Io(error.to_string()),
        }
    }
}

/// The store's results.
pub type Result<T> = std::result::Result<T, StoreError>;
