//! What a report tells, in which order (R-U3): verdict and reason first, then what changed, the checks, how it went, what
//! it cost, what was kept, what to know, what to do next. Said once, as data, for Markdown and HTML alike. Every text in it
//! is neutral (F94); escaping is left to the format.

use jiff::tz::TimeZone;

use super::amount::{bytes, count, for_people, of_kind};
use super::input::{FileChange, ReportInput};
use super::record_json::{LimitLine, limit_lines};
use crate::domain::event::{Event, EventKind};
use crate::domain::machine::Word as _;
use crate::domain::outcome::{Outcome, ProcessFact, Verification};
use crate::domain::plan::meaning::{MeaningWord, rough};
use crate::domain::plan::verdict;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::{Dirty, ExecutionRecord, RunView, StepRecord};
use crate::domain::step::StepState;
use crate::domain::task::StepKind;
use crate::domain::text::{hidden_characters, neutral, neutral_line};

/// Paths that one warning names at most.
const MAX_PATHS: usize = 20;

/// A report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// The run's id.
    pub run: String,
    /// Of the task.
    pub title: Option<String>,
    /// The status, as it is recorded.
    pub status: String,
    /// How that is to be taken.
    pub tone: Tone,
    /// The meaning in a sentence, and the three facts of the outcome.
    pub verdict: Vec<String>,
    /// The next command.
    pub next: Option<String>,
    /// Names and values: task, commit, versions, times.
    pub facts: Vec<Fact>,
    /// What changed.
    pub changes: Vec<FileChange>,
    /// The changes themselves.
    pub patch: Option<Excerpt>,
    /// The checks, with the end of what a red one wrote.
    pub checks: Vec<StepLine>,
    /// The attempts.
    pub attempts: Vec<AttemptLine>,
    /// The steps.
    pub steps: Vec<StepLine>,
    /// Figures against limits.
    pub usage: Vec<UsageLine>,
    /// What was kept.
    pub artifacts: Vec<ArtifactLine>,
    /// Differences that somebody accepted, limits that somebody raised.
    pub accepted: Vec<String>,
    /// What a reader should know.
    pub warnings: Vec<String>,
    /// The agent's last word.
    pub last_word: Option<String>,
    /// Where the audit chain stands.
    pub audit: String,
}

/// How something is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Well.
    Good,
    /// Not well.
    Bad,
    /// Neither yet.
    Open,
}

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The name.
    pub name: &'static str,
    /// The value.
    pub value: String,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The file, relative to the run's folder.
    pub path: String,
    /// The part.
    pub text: String,
    /// True when the file holds more.
    pub cut: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLine {
    /// Its key.
    pub key: String,
    /// Its kind.
    pub kind: String,
    /// Where it stands.
    pub state: String,
    /// How that is to be taken.
    pub tone: Tone,
    /// How often it was executed.
    pub runs: u32,
    /// How long its newest execution took.
    pub duration: Option<String>,
    /// Why it stands there.
    pub reason: Option<String>,
    /// The end of what it wrote.
    pub output: Option<Excerpt>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLine {
    /// From 1.
    pub number: u32,
    /// Who opened it.
    pub opened_by: String,
    /// Where it stands, with the reason.
    pub state: String,
    /// When it began.
    pub started: String,
    /// How long it took.
    pub duration: Option<String>,
    /// What was executed in it, in order.
    pub executions: Vec<String>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLine {
    /// What.
    pub name: String,
    /// In the run.
    pub run: String,
    /// In the task, since its last success.
    pub task: String,
    /// The task's limit.
    pub limit: String,
}

/// One kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactLine {
    /// Its type.
    pub kind: String,
    /// Its path in the run's folder.
    pub path: String,
    /// Its size.
    pub size: String,
    /// 64 hex digits.
    pub sha256: String,
}

impl Story {
    /// Tells a run.
    pub fn of(input: &ReportInput<'_>) -> Self {
        let view = input.view;
        let run = &view.run;
        let is_check = |s: &&StepRecord| s.kind == StepKind::Qa;
        Self {
            run: run.id.to_string(),
            title: view.inputs.spec.title.as_deref().map(line),
            status: run.status.to_string(),
            tone: tone_of(input.meaning.word),
            verdict: vec![sentence(&input.meaning.sentence), outcome_sentence(verdict::outcome(view))],
            next: input.meaning.next.clone(),
            facts: facts(view),
            changes: input.changes.iter().map(|c| FileChange { path: line(&c.path), ..c.clone() }).collect(),
            patch: input.patch.map(|p| Excerpt {
                path: line(&p.path),
                text: neutral(&p.text).into_owned(),
                cut: p.cut,
            }),
            checks: view.steps.iter().filter(is_check).map(|s| step_line(input, s)).collect(),
            attempts: attempts(view),
            steps: view.steps.iter().map(|s| StepLine { output: None, ..step_line(input, s) }).collect(),
            usage: usage(input),
            artifacts: artifacts(view),
            accepted: told(input.events, &[EventKind::DifferenceAccepted, EventKind::BudgetRaised]),
            warnings: warnings(input),
            last_word: last_word(view),
            audit: format!("{} events, head {}", view.chain.count, view.chain.head),
        }
    }
}

fn line(text: &str) -> String {
    neutral_line(text).into_owned()
}

/// A sentence begins with a capital and ends with a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

pub(super) fn tone_of(word: MeaningWord) -> Tone {
    match word {
        MeaningWord::Done => Tone::Good,
        MeaningWord::InProgress | MeaningWord::Waiting => Tone::Open,
        MeaningWord::CanBeRetried | MeaningWord::NeedsAPerson | MeaningWord::FailedForGood | MeaningWord::Canceled => {
            Tone::Bad
        }
    }
}

pub(super) fn step_tone(state: StepState) -> Tone {
    match state {
        StepState::Succeeded => Tone::Good,
        StepState::Failed | StepState::Blocked | StepState::Unknown => Tone::Bad,
        StepState::Pending
        | StepState::Running
        | StepState::Skipped
        | StepState::Canceled
        | StepState::WaitingApproval => Tone::Open,
    }
}

/// The three facts in words.
pub(super) fn outcome_sentence(outcome: Outcome) -> String {
    let process = match outcome.process {
        ProcessFact::Exited => "its process ended by itself",
        ProcessFact::Signalled => "its process was killed by a signal",
        ProcessFact::TimedOut => "its process was stopped by a timeout",
        ProcessFact::OverBudget => "its process was stopped at a limit",
        ProcessFact::Canceled => "its process was canceled",
        ProcessFact::Interrupted => "its process was interrupted",
        ProcessFact::FailedToStart => "its process could not be started",
        ProcessFact::LeaseLost => "its process was stopped because another one took over",
        ProcessFact::Vanished => "nobody saw its process end",
        ProcessFact::None => "no process has ended yet",
    };
    let checks = match outcome.verification {
        Verification::Passed => "every check passed",
        Verification::Failed => "a check failed",
        Verification::None => "there was no check",
        Verification::Unknown => "the checks could not tell",
    };
    let success = if outcome.success { "to be taken as success" } else { "not to be taken as success" };
    sentence(&format!("{process}, {checks}: {success}"))
}

fn facts(view: &RunView) -> Vec<Fact> {
    let run = &view.run;
    let time = |at: UtcMs| for_people(at, &TimeZone::UTC);
    let facts = [
        ("Task", Some(run.task.to_string())),
        ("Mode", Some(line(&run.components.mode))),
        ("Attempt", Some(run.attempt.to_string())),
        ("Phase", run.phase.map(|p| p.to_string())),
        ("Base commit", Some(line(&run.components.base_commit))),
        ("Snapshot", run.snapshot.as_deref().map(line)),
        ("Prompt version", run.components.prompt_version.as_deref().map(line)),
        ("Policy version", Some(line(&run.components.policy_version))),
        ("Fingerprint", Some(run.fingerprint.to_string())),
        ("Created", Some(time(run.created_at))),
        ("Started", run.started_at.map(time)),
        ("Finished", run.finished_at.map(time)),
        ("May be tried again", run.retry_at.map(time)),
        ("Support code", Some(run.support_code.to_string())),
        ("Request", Some(line(run.request_id.as_str()))),
    ];
    facts.into_iter().filter_map(|(name, value)| Some(Fact { name, value: value? })).collect()
}

pub(super) fn reason(code: Option<impl std::fmt::Display>, message: Option<&str>) -> Option<String> {
    match (code, message) {
        (Some(code), Some(message)) => Some(format!("{code}: {}", line(message))),
        (Some(code), None) => Some(code.to_string()),
        (None, message) => message.map(line),
    }
}

fn step_line(input: &ReportInput<'_>, step: &StepRecord) -> StepLine {
    let tail = input.tails.iter().find(|t| t.step == step.key);
    StepLine {
        key: step.key.to_string(),
        kind: step.kind.to_string(),
        state: step.state.to_string(),
        tone: step_tone(step.state),
        runs: step.runs,
        duration: duration(step.started_at, step.finished_at),
        reason: reason(step.code, step.message.as_deref()),
        output: tail.filter(|t| !t.text.trim().is_empty()).map(|t| Excerpt {
            path: line(&t.path),
            text: neutral(&t.text).into_owned(),
            cut: t.cut,
        }),
    }
}

pub(super) fn duration(from: Option<UtcMs>, to: Option<UtcMs>) -> Option<String> {
    from.zip(to).map(|(from, to)| match Millis::between(from, to) {
        Millis(ms @ 0..1000) => format!("{ms}ms"),
        length => rough(length),
    })
}

fn attempts(view: &RunView) -> Vec<AttemptLine> {
    let attempt = |a: &crate::domain::record::AttemptRecord| AttemptLine {
        number: a.number,
        opened_by: a.opened_by.to_string(),
        state: a.code.map_or_else(|| a.state.to_string(), |code| format!("{} ({code})", a.state)),
        started: for_people(a.started_at, &TimeZone::UTC),
        duration: duration(Some(a.started_at), a.finished_at),
        executions: view.executions.iter().filter(|e| e.attempt == a.number).map(execution).collect(),
    };
    view.attempts.iter().map(attempt).collect()
}

fn execution(execution: &ExecutionRecord) -> String {
    let end = match (&execution.end, execution.finished_at) {
        (Some(end), _) => line(&end.to_string()),
        (None, None) => "is running".to_owned(),
        (None, Some(_)) => "ended unseen".to_owned(),
    };
    let model = execution.model.as_deref().map(|m| format!(" with {}", line(m))).unwrap_or_default();
    format!("{}{model} {end} after {}", execution.step, rough(execution.active))
}

fn usage(input: &ReportInput<'_>) -> Vec<UsageLine> {
    let lines = limit_lines(input.view, input.limits);
    let task = lines.into_iter().filter(|l| l.scope == crate::domain::budget::Scope::Task);
    let amount = |kind, n: Option<u64>, none: &str| n.map_or_else(|| none.to_owned(), |n| of_kind(kind, n));
    task.map(|LimitLine { kind, limit, used, .. }| {
        let of_run = &input.view.usage;
        let unknown = kind == crate::domain::budget::LimitKind::Cost && of_run.cost_micros.is_none();
        UsageLine {
            name: kind.word().replace('_', " "),
            run: amount(kind, (!unknown).then(|| of_run.of(kind)), "unknown"),
            task: amount(kind, used, "unknown"),
            limit: amount(kind, limit, "none"),
        }
    })
    .collect()
}

fn artifacts(view: &RunView) -> Vec<ArtifactLine> {
    let artifact = |a: &crate::domain::record::ArtifactRecord| ArtifactLine {
        kind: a.kind.to_string(),
        path: line(&a.path),
        size: bytes(a.size),
        sha256: a.sha256.hex(),
    };
    view.artifacts.iter().map(artifact).collect()
}

fn told(events: &[Event], kinds: &[EventKind]) -> Vec<String> {
    let picked = events.iter().filter(|e| kinds.contains(&e.kind));
    picked
        .map(|e| {
            let what = e.reason.as_deref().map_or_else(|| e.kind.to_string(), line);
            format!("{what} ({}, {})", line(&e.actor), for_people(e.at, &TimeZone::UTC))
        })
        .collect()
}

/// What could mislead a reader comes first: text that hides something.
fn warnings(input: &ReportInput<'_>) -> Vec<String> {
    let inputs = &input.view.inputs;
    let mut out = Vec::new();
    let hidden = input.patch.map_or(0, |p| hidden_characters(&p.text));
    if hidden > 0 {
        out.push(format!(
            "the changes contain {hidden} characters that are invisible or reorder text; shown here as <U+…>"
        ));
    }
    match &inputs.dirty {
        Dirty::Clean => {}
        Dirty::Included { files } => {
            let paths = files.iter().map(|f| f.path.as_str()).collect::<Vec<_>>();
            out.push(format!("uncommitted files of the checkout are part of this run: {}", listed(&paths)));
        }
        Dirty::Ignored { paths } => {
            let paths = paths.iter().map(String::as_str).collect::<Vec<_>>();
            out.push(format!("uncommitted files of the checkout are no part of this run: {}", listed(&paths)));
        }
    }
    out.extend(inputs.notes.iter().map(|n| line(n)));
    out.extend(input.warnings.iter().map(|w| line(w)));
    out.extend(told(input.events, &[EventKind::WarningRaised, EventKind::WorkSaved, EventKind::LeftoversEnded]));
    out
}

fn listed(paths: &[&str]) -> String {
    let shown = paths.iter().take(MAX_PATHS).map(|p| line(p)).collect::<Vec<_>>().join(", ");
    match paths.len().checked_sub(MAX_PATHS) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {} more", count(more as u64)),
    }
}

/// The agent's last word; without one it is said why, and that what was written so far is kept (FR-L1).
fn last_word(view: &RunView) -> Option<String> {
    let is_agent = |e: &&ExecutionRecord| view.steps.iter().any(|s| s.key == e.step && s.kind == StepKind::Agent);
    let execution = view.executions.iter().rev().find(is_agent)?;
    match (&execution.result, &execution.end) {
        (Some(text), _) => Some(neutral(text).into_owned()),
        (None, None) if execution.finished_at.is_none() => None,
        (None, end) => {
            let end = end.as_ref().map_or_else(|| "ended unseen".to_owned(), |e| line(&e.to_string()));
            Some(format!(
                "(none: {} {end}; what it wrote until then is in attempt-{})",
                execution.step, execution.attempt
            ))
        }
    }
}
