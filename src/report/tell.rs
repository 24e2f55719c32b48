//! Makes the story of a run from its record: picks, counts and words. Which format it ends in is not known here.

use jiff::tz::TimeZone;

use super::amount::{bytes, count, for_people, of_kind};
use super::input::{FileChange, ReportInput};
use super::phrase::{duration, length, line, reason, step_tone, tone_of, verdict_sentences};
use super::record_json::{LimitLine, limit_lines};
use super::story::{ArtifactLine, AttemptLine, Excerpt, Fact, StepLine, Story, UsageLine};
use crate::domain::budget::{LimitKind, Scope};
use crate::domain::event::{Event, EventKind};
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::quantity::UtcMs;
use crate::domain::record::{ArtifactRecord, AttemptRecord, Dirty, ExecutionRecord, RunView, StepRecord};
use crate::domain::task::StepKind;
use crate::domain::text::{hidden_characters, neutral};

/// Paths that one warning names at most.
const MAX_PATHS: usize = 20;

impl Story {
    /// Tells a run.
    pub fn of(input: &ReportInput<'_>) -> Self {
        let view = input.view;
        let run = &view.run;
        let is_check = |s: &&StepRecord| s.kind == StepKind::Qa;
        Self {
            run: run.id.to_string(),
            title: view.inputs.spec.title.as_deref().filter(|t| !t.trim().is_empty()).map(line),
            status: run.status.to_string(),
            tone: tone_of(input.meaning.word),
            verdict: verdict_sentences(view, input.meaning),
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
            accepted: told(
                input.events,
                &[EventKind::DifferenceAccepted, EventKind::PolicyReplaced, EventKind::BudgetRaised],
            ),
            warnings: warnings(input),
            last_word: last_word(view),
            audit: format!("{} events, head {}", view.chain.count, view.chain.head),
        }
    }
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

fn attempts(view: &RunView) -> Vec<AttemptLine> {
    let attempt = |a: &AttemptRecord| AttemptLine {
        number: a.number,
        opened_by: a.opened_by.to_string(),
        state: a.code.map_or_else(|| a.state.to_string(), |code| format!("{} ({code})", a.state)),
        started: for_people(a.started_at, &TimeZone::UTC),
        duration: duration(Some(a.started_at), a.finished_at),
        executions: of_processes(view).filter(|e| e.attempt == a.number).map(execution).collect(),
    };
    view.attempts.iter().map(attempt).collect()
}

/// Steps that have a process: a context or report step is done at once, there is nothing to tell of its end.
fn of_processes(view: &RunView) -> impl Iterator<Item = &ExecutionRecord> {
    let kind = |key: &StepKey| view.steps.iter().find(|s| s.key == *key).map(|s| s.kind);
    let has_process = move |e: &&ExecutionRecord| !matches!(kind(&e.step), Some(StepKind::Context | StepKind::Report));
    view.executions.iter().filter(has_process)
}

fn execution(execution: &ExecutionRecord) -> String {
    let end = match (&execution.end, execution.finished_at) {
        (Some(end), _) => line(&end.to_string()),
        (None, None) => "is running".to_owned(),
        (None, Some(_)) => "ended unseen".to_owned(),
    };
    let model = execution.model.as_deref().map(|m| format!(" with {}", line(m))).unwrap_or_default();
    format!("{}{model} {end} after {}", execution.step, length(execution.active))
}

fn usage(input: &ReportInput<'_>) -> Vec<UsageLine> {
    let lines = limit_lines(input.view, input.limits);
    let task = lines.into_iter().filter(|l| l.scope == Scope::Task);
    let amount = |kind, n: Option<u64>, none: &str| n.map_or_else(|| none.to_owned(), |n| of_kind(kind, n));
    // A figure with a guess in it says so.
    let about = |text: String, guessed: u64| if guessed > 0 { format!("about {text}") } else { text };
    task.map(|LimitLine { kind, limit, used, estimated, .. }| {
        let of_run = &input.view.usage;
        let unknown = kind == LimitKind::Cost && of_run.cost().is_none();
        UsageLine {
            name: kind.word().replace('_', " "),
            run: about(amount(kind, (!unknown).then(|| of_run.of(kind)), "unknown"), of_run.estimated.of(kind)),
            task: about(amount(kind, used, "unknown"), estimated),
            limit: amount(kind, limit, "none"),
        }
    })
    .collect()
}

fn artifacts(view: &RunView) -> Vec<ArtifactLine> {
    let artifact = |a: &ArtifactRecord| ArtifactLine {
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
