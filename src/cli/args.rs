//! What can be typed. The doc comments are the help texts; the reference page is made from them.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::verbs::{action, approval, approve, audit, policy, reconcile, replay_agent};

/// Run AI coding agents so that nothing is lost, done twice, or spent past its budget.
#[derive(Debug, Parser)]
#[command(name = "agentrun", version, about, max_term_width = 100, propagate_version = true)]
pub struct Args {
    /// Run as if started in this folder.
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    /// Answer with one JSON document on standard output.
    #[arg(long, global = true)]
    pub json: bool,
    /// Behave for a CI job: plain lines, no questions. On by itself where CI is set.
    #[arg(long, global = true)]
    pub ci: bool,
    /// Say nothing but the result and errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// No colour.
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Never ask anything.
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Diagnostic log of agentrun itself, on standard error.
    #[arg(long, value_name = "LEVEL", global = true)]
    pub log_level: Option<LogLevel>,
    /// An id for this command, for tracing it through the audit log (a CI job's id, a webhook's delivery id).
    #[arg(long, value_name = "ID", global = true)]
    pub request_id: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How much agentrun logs about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Only what went wrong.
    Error,
    /// And what may go wrong.
    Warn,
    /// And what is done.
    Info,
    /// And how.
    Debug,
    /// Everything.
    Trace,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write a policy, a sample task, a prompt and `.ai-runs/`; never overwrites.
    Init(InitArgs),
    /// Do a task: reuse an equal result, follow an equal run, or run it to its end.
    Start(Box<StartArgs>),
    /// Bring a finished run's changes into this checkout.
    Apply(ApplyArgs),
    /// Go on with a run after anything: validate, explain, continue after the last good checkpoint.
    Resume(ResumeArgs),
    /// What is going on, in meaning. Read-only.
    Status(StatusArgs),
    /// One run with everything below it.
    Show(ShowArgs),
    /// The output of a run's steps.
    Logs(LogsArgs),
    /// What differs between two runs, or two attempts (`RUN@ATTEMPT`).
    Diff(DiffArgs),
    /// Stop a run for good; its work is kept as branch and patch.
    Cancel(CancelArgs),
    /// Side effects on the world outside.
    Action(action::ActionArgs),
    /// A server of the Model Context Protocol on standard input and output, for an agent inside a run.
    Mcp,
    /// Ask the other side what became of effects that nobody knows about; sends nothing.
    Reconcile(reconcile::ReconcileArgs),
    /// What makes a run the run it is, and what differs from an earlier one.
    Fingerprint(FingerprintArgs),
    /// A run's kept files.
    Artifact(ArtifactArgs),
    /// Agree to exactly what is shown.
    Approve(approve::DecideArgs),
    /// Refuse what a person was asked for.
    Reject(approve::DecideArgs),
    /// What persons were and are asked for.
    Approval(approval::ApprovalArgs),
    /// The audit log.
    Audit(audit::AuditArgs),
    /// What the rules are, whether they say what they should, and why.
    Policy(policy::PolicyArgs),
    /// What an error code means, and what to do.
    Explain(ExplainArgs),
    /// Is this machine and repository fit?
    Doctor(DoctorArgs),
    /// Delete what retention allows.
    Gc(GcArgs),
    /// Completions for a shell.
    Completions(CompletionsArgs),
    /// The manual pages.
    Man(ManArgs),
    /// Play a recorded agent (used by `agent: replay`).
    #[command(name = "replay-agent", hide = true)]
    ReplayAgent(replay_agent::ReplayArgs),
}

/// `init`.
#[derive(Debug, ClapArgs)]
pub struct InitArgs {
    /// Make the first commit, of these files alone, where the repository has none.
    #[arg(long)]
    pub commit: bool,
}

/// Which task, and how.
#[derive(Debug, ClapArgs)]
pub struct TaskArgs {
    /// A task's id, or the path of a task file.
    #[arg(required_unless_present = "prompt")]
    pub task: Option<String>,
    /// Make a task of this text; no file is needed.
    #[arg(long, value_name = "TEXT", conflicts_with = "task")]
    pub prompt: Option<String>,
    /// With --prompt: the check that must pass.
    #[arg(long, value_name = "COMMAND", requires = "prompt")]
    pub qa: Option<String>,
    /// Use this agent instead of the task's.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Set an input of the task; may be repeated.
    #[arg(long = "input", value_name = "NAME=VALUE")]
    pub inputs: Vec<String>,
    /// Start from this revision instead of the checked-out one.
    #[arg(long, value_name = "REV")]
    pub base: Option<String>,
    /// Read the policy from this revision instead of the checkout.
    #[arg(long, value_name = "REV")]
    pub policy_ref: Option<String>,
    /// Uncommitted changes of the checkout are part of the run.
    #[arg(long, conflicts_with = "ignore_dirty")]
    pub include_dirty: bool,
    /// Uncommitted changes of the checkout are left out; the report says so.
    #[arg(long)]
    pub ignore_dirty: bool,
}

/// `start`.
#[derive(Debug, ClapArgs)]
pub struct StartArgs {
    /// The task.
    #[command(flatten)]
    pub task: TaskArgs,
    /// A key of the caller: the same key and request lead to the same run, another request under it is refused.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// A new run even where an equal one exists.
    #[arg(long)]
    pub new: bool,
    /// Answer at once; the run goes on in the background.
    #[arg(long)]
    pub detach: bool,
    /// Say what would happen; do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not follow an equal run that is under way.
    #[arg(long)]
    pub no_wait: bool,
    /// Go on with an equal run that failed.
    #[arg(long)]
    pub resume: bool,
    /// A command that gets the run's JSON on its standard input when the run ends or needs a person.
    #[arg(long, value_name = "COMMAND")]
    pub on_end: Option<String>,
}

/// `apply`.
#[derive(Debug, ClapArgs)]
pub struct ApplyArgs {
    /// The run, its task, or its support code.
    pub run: String,
    /// Only name the branch that holds the changes.
    #[arg(long)]
    pub branch: bool,
}

/// `resume`.
#[derive(Debug, ClapArgs)]
pub struct ResumeArgs {
    /// The run, its task, or its support code.
    #[arg(required_unless_present_any = ["stale", "due"])]
    pub run: Option<String>,
    /// Say what going on would meet; do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Accept a named difference; may be repeated.
    #[arg(long, value_name = "CODE")]
    pub accept: Vec<String>,
    /// Set a limit, up to the policy's: task.tokens=800k; may be repeated.
    #[arg(long, value_name = "LIMIT=VALUE")]
    pub budget: Vec<String>,
    /// Send the agent back once more after the last check failed.
    #[arg(long)]
    pub send_back: bool,
    /// Go on with the working copy as it stands.
    #[arg(long, conflicts_with = "rebuild")]
    pub keep: bool,
    /// Keep what is in the working copy as a patch, and go on from the last good state.
    #[arg(long)]
    pub rebuild: bool,
    /// Try a provider that is left alone before its time is over.
    #[arg(long)]
    pub now: bool,
    /// Every run whose holder is gone.
    #[arg(long, conflicts_with_all = ["run", "dry_run"])]
    pub stale: bool,
    /// Every parked run whose time has come, one after the other, the oldest first.
    #[arg(long, conflicts_with_all = ["run", "dry_run", "stale"])]
    pub due: bool,
    /// Why; recorded.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// A run, a task, or a support code; all open runs and the newest 20 without.
    pub run: Option<String>,
    /// Every run.
    #[arg(long)]
    pub all: bool,
    /// Only dead letters.
    #[arg(long, conflicts_with = "all")]
    pub dead: bool,
}

/// `show`.
#[derive(Debug, ClapArgs)]
pub struct ShowArgs {
    /// The run, its task, or its support code; inside a run its own.
    pub run: Option<String>,
    /// Only this step.
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// The limits: used, estimated, reserved and left.
    #[arg(long)]
    pub budget: bool,
}

/// `logs`.
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    /// The run, its task, or its support code.
    pub run: String,
    /// Follow until the run rests.
    #[arg(short, long)]
    pub follow: bool,
    /// Only this step.
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// The bytes as they are: an agent's own events, control characters included.
    #[arg(long)]
    pub raw: bool,
}

/// `diff`.
#[derive(Debug, ClapArgs)]
pub struct DiffArgs {
    /// A run, or one attempt of it: RUN or RUN@ATTEMPT.
    pub left: String,
    /// The other one.
    pub right: String,
    /// Also print the patch between the two results.
    #[arg(long)]
    pub patch: bool,
}

/// `cancel`.
#[derive(Debug, ClapArgs)]
pub struct CancelArgs {
    /// The run, its task, or its support code.
    pub run: String,
    /// Why; recorded.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `fingerprint`.
#[derive(Debug, ClapArgs)]
pub struct FingerprintArgs {
    /// The task.
    #[command(flatten)]
    pub task: TaskArgs,
    /// Say what differs from this run.
    #[arg(long, value_name = "RUN")]
    pub against: Option<String>,
}

/// `artifact`.
#[derive(Debug, ClapArgs)]
pub struct ArtifactArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: ArtifactVerb,
}

/// `artifact …`.
#[derive(Debug, Subcommand)]
pub enum ArtifactVerb {
    /// List a run's kept files with their hashes.
    List {
        /// The run, its task, or its support code.
        run: String,
    },
    /// Compare a run's kept files with their recorded hashes.
    Verify {
        /// The run, its task, or its support code.
        run: String,
    },
}

/// `explain`.
#[derive(Debug, ClapArgs)]
pub struct ExplainArgs {
    /// The code, in any case; all codes without.
    pub code: Option<String>,
}

/// `doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Check this agent, too: its program, its version, its sandbox.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Build a new database from what can be read of a damaged one, and go on with one that was put back. Deletes nothing.
    #[arg(long, conflicts_with = "agent")]
    pub recover: bool,
}

/// `gc`.
#[derive(Debug, ClapArgs)]
pub struct GcArgs {
    /// Say what would go; delete nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Instead of the policy's retention.
    #[arg(long, value_name = "TIME")]
    pub older_than: Option<String>,
}

/// `completions`.
#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// `man`.
#[derive(Debug, ClapArgs)]
pub struct ManArgs {
    /// Write one page per command into this folder; the main page goes to standard output without.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
