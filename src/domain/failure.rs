//! The catalogue of failures: one code per way that something can go wrong, and what follows from it (R-R1).
//!
//! The code decides: whether agentrun tries again by itself, whether something outside may have happened, which number
//! the command ends with. A code that is not here does not exist; hints for people stand in the command line alone.

use serde::{Deserialize, Serialize};

use super::machine::Word;
use crate::words;

macro_rules! exits {
    ($($variant:ident = $code:literal, $name:literal, $meaning:literal;)+) => {
        /// The exit codes of the command line (contract §7). The number says what to do next.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Exit {
            $(#[doc = $meaning] $variant = $code),+
        }

        impl Exit {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in the documentation.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// What it says, and the next step.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning),+
                }
            }
        }
    };
}

exits! {
    Ok = 0, "OK", "Done, or the result of an equal run that was done before.";
    RunFailed = 1, "RUN_FAILED", "The run went to its end and failed, and the outcome is known: read the report.";
    Usage = 2, "USAGE", "The command line is wrong: see `--help`.";
    NeedsApproval = 3, "NEEDS_APPROVAL", "Parked on a request that a person must approve.";
    OutcomeUnknown = 4, "OUTCOME_UNKNOWN", "An effect outside may have happened, and nobody knows yet: look before anything is done again.";
    PolicyDenied = 5, "POLICY_DENIED", "The policy says no.";
    BudgetExceeded = 6, "BUDGET_EXCEEDED", "A limit was reached; work and state are kept: raise the limit, then resume.";
    Busy = 7, "BUSY", "It is in progress elsewhere, or a lock is held: the same command later.";
    Conflict = 8, "CONFLICT", "It contradicts what is recorded (a key used for another request, a state that does not allow it): look.";
    Canceled = 9, "CANCELED", "It was canceled.";
    ConfigInvalid = 10, "CONFIG_INVALID", "A task, policy or prompt file was refused; the message names file, line and column.";
    EnvUnsupported = 11, "ENV_UNSUPPORTED", "A tool, the repository or this machine does not fit: see `agentrun doctor`.";
    Storage = 12, "STORAGE", "The disk is full, read-only or failing.";
    StateCorrupt = 13, "STATE_CORRUPT", "Database, manifest, artifact or audit log is damaged: delete nothing, see `agentrun doctor`.";
    StateTooNew = 14, "STATE_TOO_NEW", "The records were written by a newer agentrun: use that one.";
    SecurityStop = 15, "SECURITY_STOP", "Tampering or an escape was found: look before going on.";
    NotFound = 16, "NOT_FOUND", "There is no such run, task, code or file.";
    ReviewRequired = 17, "REVIEW_REQUIRED", "A person must decide: a difference to accept, or one that only a new run gets around.";
    RetryLater = 18, "RETRY_LATER", "A provider's limit or outage; `retry_at` in the JSON says when to try again.";
    WorktreeDirty = 19, "WORKTREE_DIRTY", "Uncommitted work in the checkout, or a merge or rebase in progress.";
    Internal = 70, "INTERNAL", "A bug of agentrun: please report it with the support code.";
    Hangup = 129, "HANGUP", "The terminal went away (SIGHUP); a checkpoint is written: resume.";
    Interrupted = 130, "INTERRUPTED", "Stopped by Ctrl-C (SIGINT); a checkpoint is written: resume.";
    Terminated = 143, "TERMINATED", "Stopped by SIGTERM; a checkpoint is written: resume.";
}

impl Exit {
    /// The process exit status.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Of several causes the most careful wins (contract §7). A smaller rank is more careful.
    pub fn care(self) -> usize {
        const ORDER: [Exit; 13] = [
            Exit::StateCorrupt,
            Exit::SecurityStop,
            Exit::OutcomeUnknown,
            Exit::Internal,
            Exit::Storage,
            Exit::Conflict,
            Exit::PolicyDenied,
            Exit::BudgetExceeded,
            Exit::ReviewRequired,
            Exit::Canceled,
            Exit::NeedsApproval,
            Exit::RetryLater,
            Exit::RunFailed,
        ];
        ORDER.iter().position(|e| *e == self).unwrap_or(ORDER.len())
    }
}

words! {
    /// Whether and when the same command makes sense again.
    pub enum Retry {
        /// It would fail again.
        Never = "never",
        /// At once; nothing has to change.
        Now = "now",
        /// After a while (`retry_at` says when, if known).
        Later = "later",
        /// After something was changed.
        AfterFix = "after_fix",
        /// After a person agreed.
        AfterApproval = "after_approval",
        /// After the outcome is known.
        AfterReconcile = "after_reconcile",
    }
}

words! {
    /// Whether something outside the run's own workspace may have happened.
    pub enum Effect {
        /// Nothing.
        None = "none",
        /// It cannot be told.
        Maybe = "maybe",
        /// It has happened.
        Done = "done",
    }
}

/// What follows from a code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// One sentence: what it means.
    pub meaning: &'static str,
    /// True when agentrun tries again by itself, within the limits of the policy.
    pub retryable: bool,
    /// For a person or script.
    pub retry: Retry,
    /// Outside.
    pub effect: Effect,
    /// The command's exit code.
    pub exit: Exit,
}

macro_rules! catalogue {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $retryable:literal, $retry:ident, $effect:ident, $exit:ident, $meaning:literal;)+) => {
        words! {
            /// Every failure that agentrun knows.
            pub enum Code {
                $(#[doc = $meaning] $variant = $text),+
            }
        }

        impl Code {
            /// What follows from it.
            pub fn entry(self) -> Entry {
                match self {
                    $(Self::$variant => Entry {
                        meaning: $meaning,
                        retryable: $retryable,
                        retry: Retry::$retry,
                        effect: Effect::$effect,
                        exit: Exit::$exit,
                    }),+
                }
            }
        }
    };
}

catalogue! {
    // What a provider, a tool or the network did.
    NetworkTimeout = "NETWORK_TIMEOUT", true, Later, None, RetryLater, "a network call got no answer in time";
    TemporaryProviderError = "TEMPORARY_PROVIDER_ERROR", true, Later, None, RetryLater, "the provider failed in a way that passes";
    RateLimit = "RATE_LIMIT", true, Later, None, RetryLater, "the provider asked to slow down and said until when, or will allow it soon";
    WorkerCrash = "WORKER_CRASH", true, Now, None, RunFailed, "the process that did the work died";
    ToolTimeout = "TOOL_TIMEOUT", true, Now, None, RunFailed, "a command took longer than its timeout";
    ModelTimeout = "MODEL_TIMEOUT", true, Now, None, RunFailed, "the agent took longer than its timeout or fell silent";
    ValidationError = "VALIDATION_ERROR", false, AfterFix, None, RunFailed, "the provider or agent refused the request as invalid";
    PermissionDenied = "PERMISSION_DENIED", false, AfterFix, None, RunFailed, "the login has no right to do this";
    AuthFailed = "AUTH_FAILED", false, AfterFix, None, RunFailed, "the provider did not accept the login";
    ResourceNotFound = "RESOURCE_NOT_FOUND", false, AfterFix, None, RunFailed, "the provider does not know the model or resource";
    QuotaExceeded = "QUOTA_EXCEEDED", false, AfterFix, None, RetryLater, "a quota is used up and nobody said until when";
    PaymentRequired = "PAYMENT_REQUIRED", false, AfterFix, None, RunFailed, "the provider wants to be paid before it goes on";
    ContextTooLarge = "CONTEXT_TOO_LARGE", false, AfterFix, None, RunFailed, "the conversation no longer fits into the model's context window";
    AgentFailed = "AGENT_FAILED", false, AfterFix, None, RunFailed, "the agent reported a failure that no other code describes";
    AgentStartFailed = "AGENT_START_FAILED", false, AfterFix, None, RunFailed, "the agent ended before it began to work";
    AgentUsageInvalid = "AGENT_USAGE_INVALID", false, AfterFix, None, RunFailed, "the agent reported impossible usage numbers";
    NoResult = "NO_RESULT", false, AfterFix, None, RunFailed, "the agent ended without a result";
    AllToolsFailed = "ALL_TOOLS_FAILED", false, AfterFix, None, RunFailed, "every tool call of the agent failed, so its result proves nothing";
    QaFailed = "QA_FAILED", false, AfterFix, None, RunFailed, "a check failed and no rounds are left";
    CommandFailed = "COMMAND_FAILED", false, AfterFix, None, RunFailed, "a command step ended with an error";
    CommandNotFound = "COMMAND_NOT_FOUND", false, AfterFix, None, EnvUnsupported, "a program of the task or policy is not installed or not executable";
    ActionFailed = "ACTION_FAILED", false, AfterFix, None, RunFailed, "an effect outside was not brought about, and it is certain that nothing happened";
    VerifyFailed = "VERIFY_FAILED", false, AfterFix, Done, RunFailed, "a deployment was executed and its health check or smoke test failed";
    ArtifactMissing = "ARTIFACT_MISSING", false, AfterFix, None, RunFailed, "a declared artifact does not exist";
    ArtifactPath = "ARTIFACT_PATH", false, AfterFix, None, SecurityStop, "an artifact path leads out of the workspace";
    ArtifactNoSpace = "ARTIFACT_NO_SPACE", false, AfterFix, None, Storage, "there was no room to keep an artifact";
    ArtifactChanged = "ARTIFACT_CHANGED", false, Never, None, SecurityStop, "a kept file is no longer what was recorded";
    PatchFailed = "PATCH_FAILED", false, AfterFix, None, RunFailed, "a patch does not apply";
    StepBlocked = "STEP_BLOCKED", false, AfterFix, None, RunFailed, "a step that this one needs did not succeed";

    // Limits, policy, people.
    BudgetExceeded = "BUDGET_EXCEEDED", false, AfterFix, None, BudgetExceeded, "a limit on tokens, time, tool calls, cost or attempts was reached";
    BudgetUnenforceable = "BUDGET_UNENFORCEABLE", false, AfterFix, None, ConfigInvalid, "a limit was set that this agent gives no figures for";
    PolicyDenied = "POLICY_DENIED", false, Never, None, PolicyDenied, "the policy forbids it";
    ReviewRequired = "REVIEW_REQUIRED", false, AfterApproval, None, ReviewRequired, "a person must accept a difference or decide";
    ResumeBlocked = "RESUME_BLOCKED", false, Never, None, ReviewRequired, "nothing makes going on safe; only a new run";
    OutcomeUnknown = "OUTCOME_UNKNOWN", false, AfterReconcile, Maybe, OutcomeUnknown, "an effect may have happened";
    NeedsApproval = "NEEDS_APPROVAL", false, AfterApproval, None, NeedsApproval, "a person must approve first";
    ApprovalRejected = "APPROVAL_REJECTED", false, AfterFix, None, PolicyDenied, "a person was asked and said no";
    Canceled = "CANCELED", false, Never, None, Canceled, "it was canceled";
    Interrupted = "INTERRUPTED", false, Now, None, Interrupted, "a signal stopped it; it can be resumed";
    DeadLetter = "DEAD_LETTER", false, AfterFix, None, RunFailed, "it failed as often as it may";

    // Concurrency and identity.
    DuplicateRequest = "DUPLICATE_REQUEST", false, Now, None, Ok, "the same request was made before; this is its record";
    Busy = "BUSY", false, Later, None, Busy, "it is in progress elsewhere";
    GroupBusy = "GROUP_BUSY", false, Later, None, Busy, "another run of the same concurrency group is in progress";
    NestedRun = "NESTED_RUN", false, Never, None, Busy, "a run cannot be started from inside a run";
    Fenced = "FENCED", false, Never, None, Conflict, "another process has taken the run over";
    InvalidState = "INVALID_STATE", false, AfterFix, None, Conflict, "the record's state does not allow it";
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", false, AfterFix, None, Conflict, "the idempotency key was used for another request";
    IdempotencyKeyExpired = "IDEMPOTENCY_KEY_EXPIRED", false, AfterFix, None, Conflict, "the idempotency key was used before and its time is over";
    KeyRetentionPassed = "KEY_RETENTION_PASSED", false, AfterReconcile, Maybe, OutcomeUnknown, "the other side no longer keeps the key of an effect whose outcome is unknown";
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", false, AfterFix, None, Conflict, "the same identity was used for other content";
    PromptVersionReused = "PROMPT_VERSION_REUSED", false, AfterFix, None, Conflict, "a prompt version came back with other text";
    PolicyVersionReused = "POLICY_VERSION_REUSED", false, AfterFix, None, Conflict, "a policy version came back with other content";

    // Side effects.
    ApprovalExpired = "APPROVAL_EXPIRED", false, AfterApproval, None, NeedsApproval, "the time of the approval is over: it must be asked for again";
    ApprovalMismatch = "APPROVAL_MISMATCH", false, AfterApproval, None, Conflict, "the approval is for something else than what would be done now";
    AlreadyDeployed = "ALREADY_DEPLOYED", false, Now, None, Ok, "the release is in this environment already";

    // What the user gave and where it runs.
    Usage = "USAGE", false, AfterFix, None, Usage, "the command line is wrong";
    ConfigInvalid = "CONFIG_INVALID", false, AfterFix, None, ConfigInvalid, "a task, policy or prompt file was refused";
    NotFound = "NOT_FOUND", false, AfterFix, None, NotFound, "there is no such thing";
    NotARepository = "NOT_A_REPOSITORY", false, AfterFix, None, EnvUnsupported, "the folder is in no git repository";
    RepositoryUnsupported = "REPOSITORY_UNSUPPORTED", false, AfterFix, None, EnvUnsupported, "the git repository uses a feature that agentrun cannot work with safely";
    EnvUnsupported = "ENV_UNSUPPORTED", false, AfterFix, None, EnvUnsupported, "this machine lacks something that agentrun needs";
    EnvFsUnsupported = "ENV_FS_UNSUPPORTED", false, AfterFix, None, EnvUnsupported, "the state folder lies on a network or user-space file system";
    EnvLimit = "ENV_LIMIT", false, AfterFix, None, EnvUnsupported, "a limit of this machine (processes, open files) was reached";
    WorktreeDirty = "WORKTREE_DIRTY", false, AfterFix, None, WorktreeDirty, "the checkout has uncommitted work";
    WorkspaceLost = "WORKSPACE_LOST", false, AfterFix, None, ReviewRequired, "the run's working copy is gone";

    // Storage and safety.
    StoreFull = "STORE_FULL", false, AfterFix, None, Storage, "there is no room left for agentrun's records";
    StoreReadonly = "STORE_READONLY", false, AfterFix, None, Storage, "agentrun's records cannot be written";
    StoreIo = "STORE_IO", false, AfterFix, None, Storage, "reading or writing a file failed";
    StoreBusy = "STORE_BUSY", false, Later, None, Busy, "the database stayed locked for too long";
    StoreCommitUnknown = "STORE_COMMIT_UNKNOWN", false, Now, None, Storage, "a commit failed in a way that leaves open whether it was written";
    StateCorrupt = "STATE_CORRUPT", false, AfterFix, None, StateCorrupt, "agentrun's records are damaged";
    StateRolledBack = "STATE_ROLLED_BACK", false, AfterFix, None, StateCorrupt, "the database is older than the run's manifest";
    AuditBroken = "AUDIT_BROKEN", false, AfterFix, None, StateCorrupt, "the audit log was changed";
    StateTooNew = "STATE_TOO_NEW", false, AfterFix, None, StateTooNew, "the database was written by a newer agentrun";
    GitTamper = "GIT_TAMPER", false, AfterFix, None, SecurityStop, "the repository's git configuration or hooks were changed during the run";
    SsrfBlocked = "SSRF_BLOCKED", false, AfterFix, None, SecurityStop, "an address of this machine or its network was to be called, and the contract does not allow it";
    InsecureHome = "INSECURE_HOME", false, AfterFix, None, SecurityStop, "the state folder belongs to somebody else or others can write to it";
    Internal = "INTERNAL", false, Never, None, Internal, "a bug of agentrun";
}

/// A failure as it is recorded: the code, and what happened in words that name the thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What follows.
    pub code: Code,
    /// Lower case, names the thing with its value, no full stop.
    pub message: String,
    /// When trying again makes sense, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<super::quantity::Millis>,
}

impl Failure {
    /// A failure without a known time to try again.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }
}

impl Code {
    /// Finds a code by its text, ignoring case: for `agentrun explain`.
    pub fn find(text: &str) -> Option<Self> {
        Self::from_word(&text.to_ascii_uppercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_r1_exactly_the_listed_codes_are_retried() {
        let retried: Vec<_> = Code::ALL.iter().filter(|c| c.entry().retryable).map(|c| c.word()).collect();
        let listed = [
            "NETWORK_TIMEOUT",
            "TEMPORARY_PROVIDER_ERROR",
            "RATE_LIMIT",
            "WORKER_CRASH",
            "TOOL_TIMEOUT",
            "MODEL_TIMEOUT",
        ];
        assert_eq!(retried, listed);
    }

    #[test]
    fn only_an_unknown_outcome_and_a_deployment_that_is_not_good_admit_an_effect() {
        for code in Code::ALL {
            let expected = match code {
                Code::OutcomeUnknown | Code::KeyRetentionPassed => Effect::Maybe,
                Code::VerifyFailed => Effect::Done,
                _ => Effect::None,
            };
            assert_eq!(code.entry().effect, expected, "{code}");
        }
    }

    #[test]
    fn the_most_careful_exit_wins() {
        let mut exits = [Exit::RunFailed, Exit::Storage, Exit::StateCorrupt, Exit::Ok];
        exits.sort_by_key(|e| e.care());
        assert_eq!(exits, [Exit::StateCorrupt, Exit::Storage, Exit::RunFailed, Exit::Ok]);
    }
}
