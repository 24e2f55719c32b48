//! Errors as people and programs see them: `error[CODE]: …`, causes, one hint with the next command. The hints stand here
//! alone, one arm per code and no wildcard, so that a new code cannot come without one.

use serde_json::Value;

use super::say::Say;
use crate::domain::failure::{Code, Exit};
use crate::domain::ids::{RunId, SupportCode};
use crate::domain::text::neutral;
use crate::ops::error::OpsError;
use crate::report::machine_json::{ErrorDocument, error_json};

/// A command that could not do what it was asked.
#[derive(Debug)]
pub struct CliError {
    code: Code,
    message: String,
    run: Option<RunId>,
    way_out: Option<String>,
    excerpt: Option<String>,
    causes: Vec<String>,
    support: SupportCode,
}

impl CliError {
    /// By code and words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            run: None,
            way_out: None,
            excerpt: None,
            causes: Vec::new(),
            support: SupportCode::from_bits(uuid::Uuid::now_v7().as_u64_pair().1),
        }
    }

    /// The same with a hint of its own, where the place knows better than the code.
    #[must_use]
    pub fn hinting(self, hint: &str) -> Self {
        Self { way_out: Some(hint.to_owned()), ..self }
    }

    /// A wrong command line that the parser cannot see.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// The error as JSON.
    pub fn document(&self) -> Value {
        error_json(&ErrorDocument {
            code: self.code,
            exit: self.exit(),
            message: &self.message,
            run: self.run.as_ref(),
            action: None,
            hint: Some(&self.hint()),
            causes: &self.causes,
            retry_at: None,
            support_code: &self.support,
        })
    }

    /// Says it and answers the exit status.
    pub fn say(&self, say: &mut Say, json: bool) -> u8 {
        if json {
            say.json(&self.document());
        }
        let (bold, plain) = if say.colour_err() { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        let mut text = format!("{bold}error[{}]{plain}: {}\n", self.code, neutral(&self.message));
        if let Some(excerpt) = &self.excerpt {
            text.push_str(&neutral(excerpt));
            text.push('\n');
        }
        for cause in &self.causes {
            text.push_str(&format!("  caused by: {}\n", neutral(cause)));
        }
        text.push_str(&format!("hint: {}", self.hint()));
        say.note(&text);
        self.exit().code()
    }

    /// What the number of the process says of it.
    pub fn exit(&self) -> Exit {
        self.code.entry().exit
    }

    fn hint(&self) -> String {
        let run = self.run.as_ref().map_or("RUN", |run| run.as_str());
        self.way_out.clone().unwrap_or_else(|| hint(self.code).replace("{run}", run))
    }
}

impl From<OpsError> for CliError {
    fn from(error: OpsError) -> Self {
        let mut causes = Vec::new();
        let message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                causes.push(text);
            }
            source = cause.source();
        }
        Self {
            run: error.run().cloned(),
            way_out: error.way_out(),
            excerpt: error.excerpt(),
            causes,
            ..Self::new(error.code(), message)
        }
    }
}

/// What to do next, by code. `{run}` is the run's id.
#[expect(clippy::too_many_lines, reason = "a table: one line for each code")]
pub fn hint(code: Code) -> &'static str {
    match code {
        Code::NetworkTimeout | Code::TemporaryProviderError => "try again later: agentrun resume {run}",
        Code::RateLimit => "wait until the time above, then: agentrun resume {run}",
        Code::PaymentRequired => "settle the bill at the provider, then: agentrun resume {run}",
        Code::QuotaExceeded => "raise the quota at the provider, then: agentrun resume {run}",
        Code::WorkerCrash => "go on after the last good checkpoint: agentrun resume {run}",
        Code::ToolTimeout => {
            "see what the command did: agentrun logs {run}; raise the step's `timeout` if it needs longer"
        }
        Code::ModelTimeout => "see the agent's last words: agentrun logs {run}; then: agentrun resume {run}",
        Code::ValidationError => "see what was refused: agentrun logs {run}",
        Code::PermissionDenied => "give the login the right it lacks, then: agentrun resume {run}",
        Code::AuthFailed => {
            "log the agent in (for Codex: codex login), or name its key in the policy's `env`, then: agentrun resume {run}"
        }
        Code::ResourceNotFound => "check the agent's `model` in the task or policy",
        Code::ContextTooLarge => "make the task smaller, or name fewer files in `context`",
        Code::AgentFailed => "read what the agent reported: agentrun logs {run}",
        Code::AgentStartFailed => "read why it did not start: agentrun logs {run}; check it with: agentrun doctor",
        Code::AgentUsageInvalid => "the agent's figures cannot be trusted; set a time limit instead of a token limit",
        Code::NoResult => "read the transcript: agentrun logs {run}; a changed prompt needs a new run: agentrun start",
        Code::AllToolsFailed => {
            "look at the failed calls: agentrun logs {run}; a broken sandbox shows in: agentrun doctor"
        }
        Code::QaFailed => "a person must look: agentrun show {run}; one more round: agentrun resume {run} --send-back",
        Code::CommandFailed => {
            "read its output: agentrun logs {run}; after the cause is removed: agentrun resume {run}"
        }
        Code::CommandNotFound => {
            "install the program or correct its name (Codex: npm install -g @openai/codex), then the same command again"
        }
        Code::ArtifactMissing => "correct the glob under `artifacts`, or mark it `optional: true`",
        Code::ArtifactPath => "name artifacts by paths inside the working copy",
        Code::ArtifactNoSpace | Code::StoreFull => "make room on the disk, then: agentrun resume {run}",
        Code::PatchFailed => "apply the branch by hand: git merge agentrun/{run}",
        Code::StepBlocked => "see which step failed: agentrun show {run}",
        Code::BudgetExceeded => "raise the limit, then: agentrun resume {run}",
        Code::BudgetUnenforceable => "give the agent a `price` in the policy, or remove the limit",
        Code::PolicyDenied => {
            "see which rule decides: agentrun policy explain --command LINE; the rules: automation-policy.yml"
        }
        Code::ReviewRequired => {
            "look at the differences: agentrun resume {run} --dry-run; accept one with --accept CODE"
        }
        Code::ResumeBlocked => "begin a new run: agentrun start TASK --new",
        Code::OutcomeUnknown => "ask the provider: agentrun reconcile",
        Code::NeedsApproval => "see what waits for a person: agentrun approval list; then: agentrun approve ID",
        Code::Canceled => "begin a new run: agentrun start TASK --new",
        Code::Interrupted => "go on: agentrun resume {run}",
        Code::DeadLetter => "remove the cause, then: agentrun resume {run} --reason TEXT",
        Code::DuplicateRequest => "see the existing record: agentrun show {run}",
        Code::Busy => "see who works on it: agentrun status {run}",
        Code::GroupBusy => "wait for the other run: agentrun status",
        Code::NestedRun => "describe the work as steps of one task instead",
        Code::Fenced => "see who holds it now: agentrun status {run}",
        Code::InvalidState => "see where it stands: agentrun show {run}",
        Code::IdempotencyKeyReused => "use another key for another request",
        Code::IdempotencyKeyExpired => "use a new key; the run of the old one: agentrun audit log --key KEY",
        Code::ActionFailed => "see what the other side said: agentrun show {run}; then: agentrun resume {run}",
        Code::VerifyFailed => {
            "it is deployed and not good: see agentrun logs {run}; verify again with agentrun resume {run}, or roll back"
        }
        Code::ApprovalRejected => "read the reason: agentrun show {run}; change what was asked for and start again",
        Code::IdempotencyConflict => "use another id for other content",
        Code::PromptVersionReused => "give the changed prompt a new `version:`",
        Code::PolicyVersionReused => "give the changed policy a new `version:` in automation-policy.yml",
        Code::ApprovalExpired => "ask for it again: agentrun resume {run}",
        Code::KeyRetentionPassed => "look at the other side yourself before anything is sent again",
        Code::ApprovalMismatch => {
            "look at what would be done now, and decide about that: agentrun approval list; agentrun approval show ID"
        }
        Code::AlreadyDeployed => "see the existing record: agentrun show {run}",
        Code::Usage => "see: agentrun --help",
        Code::ConfigInvalid => "correct the file at the place above",
        Code::NotFound => "see what there is: agentrun status --all",
        Code::NotARepository => "go into a git repository, or make one: git init",
        Code::RepositoryUnsupported | Code::EnvUnsupported => "see what is missing: agentrun doctor",
        Code::EnvLimit => "raise the limit (ulimit -n, ulimit -u), then run the same command again",
        Code::EnvFsUnsupported => "name a folder on a disk of this machine: AGENTRUN_HOME",
        Code::WorktreeDirty => "commit or stash, or say --include-dirty or --ignore-dirty",
        Code::WorkspaceLost => "begin from the last snapshot: agentrun resume {run} --rebuild",
        Code::StoreReadonly => "make the state folder writable, or name another: AGENTRUN_HOME",
        Code::StoreIo => {
            "check the disk and the limit on the size of files (ulimit -f), then run the same command again"
        }
        Code::StoreBusy => "run the same command again",
        Code::StoreCommitUnknown => "run the same command again: it looks first whether the last write arrived",
        Code::StateCorrupt => {
            "delete nothing; see: agentrun doctor; put a backup back, or build a new one: agentrun doctor --recover"
        }
        Code::StateRolledBack => "put the newer database back, or go on with this one: agentrun doctor --recover",
        Code::AuditBroken => "do not trust the record; see which events: agentrun audit verify",
        Code::StateTooNew => "use the newer agentrun that wrote it",
        Code::GitTamper => "look at the repository's .git/config and .git/hooks before you go on",
        Code::SsrfBlocked => {
            "see which address the contract names in policies/contracts; if a host of your own network is meant, it needs `inside: true`"
        }
        Code::InsecureHome => "give the folder to yourself alone: chmod 700, or name another: AGENTRUN_HOME",
        Code::ArtifactChanged => "do not trust the file; the run's record: agentrun artifact list {run}",
        Code::Internal => "this is a bug of agentrun; please report it with the support code",
    }
}
