//! The terminal: what happened, what it cost, what to do next (R-U1); what is going on (R-U4); the tree of a run; what
//! differs. Pure strings: whether there is a terminal, and whether it has colours, is the caller's knowledge.

use std::fmt::Write as _;

use jiff::tz::TimeZone;

use super::amount::{bytes, count, counted, for_people, of_kind, usd};
use super::compare::Comparison;
use super::phrase::{duration, reason, step_tone, tone_of, verdict_sentences};
use super::record_json::{ResumeDocument, limit_lines};
use super::story::Tone;
use crate::domain::budget::{Budget, Usage};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::plan::meaning::Meaning;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::{ArtifactRecord, ArtifactType, RunSummary, RunView, StepRecord};
use crate::domain::task::WorkspaceKind;
use crate::domain::text::{neutral_line, shortened};

/// How text is dressed.
#[derive(Debug, Clone)]
pub struct Style {
    /// Whether colours are used.
    pub colour: bool,
    /// Local time is shown beside UTC where this differs from it.
    pub zone: TimeZone,
}

impl Style {
    /// No colour, UTC alone.
    pub fn plain() -> Self {
        Self { colour: false, zone: TimeZone::UTC }
    }

    fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => 32,
            Tone::Bad => 31,
            Tone::Open => 33,
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn time(&self, at: UtcMs) -> String {
        for_people(at, &self.zone)
    }
}

/// The block after a run: what happened, what it cost, what to do next.
pub fn end_block(view: &RunView, meaning: &Meaning, style: &Style) -> String {
    let run = &view.run;
    let status = style.paint(tone_of(meaning.word), &run.status.to_string());
    let mut out = format!("{} {status}: {}\n", run.id, verdict_sentences(view, meaning).join("\n  "));
    let _ = writeln!(out, "  cost: {}", cost(&view.usage));
    // Limits are the task's: what its earlier runs used up is missing from this one's figures.
    let earlier =
        view.task_usage.tokens() > view.usage.tokens() || view.task_usage.failed_attempts > view.usage.failed_attempts;
    if earlier {
        let _ = writeln!(out, "  all runs of the task since its last success: {}", cost(&view.task_usage));
    }
    let isolated = view.inputs.spec.workspace == WorkspaceKind::Isolated;
    let patch = view.artifacts.iter().rev().find(|a| isolated && a.kind == ArtifactType::Patch);
    if let Some(patch) = patch {
        let _ = writeln!(out, "  changes: {}; agentrun apply {} brings them here", neutral_line(&patch.path), run.id);
    }
    if let Some(next) = &meaning.next {
        let _ = writeln!(out, "  next: {next}");
    }
    out
}

/// Tokens, time and money in one line; what nobody said is said to be unknown.
fn cost(used: &Usage) -> String {
    let about = if used.estimated.total_tokens() > 0 { "about " } else { "" };
    let money = used.cost().map_or_else(|| "cost unknown".to_owned(), |cost| format!("{about}{}", usd(cost)));
    let guessed = match used.estimated.tokens() {
        0 => String::new(),
        guessed => format!("; {} of them estimated", count(guessed)),
    };
    let (tokens, total) = (count(used.tokens()), count(used.total_tokens()));
    let tokens = format!("{about}{tokens} tokens ({total} with cached{guessed})");
    let failed = match used.failed_attempts {
        0 => String::new(),
        failed => format!(", {}", counted(failed, "failed attempt")),
    };
    let calls = counted(used.tool_calls, "tool call");
    format!("{tokens}, {calls}, {} active, {money}{failed}", used.active.rough())
}

/// One run in the table of status.
#[derive(Debug, Clone, Copy)]
pub struct StatusRow<'a> {
    /// The run.
    pub summary: &'a RunSummary,
    /// What its state means.
    pub meaning: &'a Meaning,
}

/// The table of status, 80 columns wide: meaning first. Below each run that needs something: why, since when, and the
/// command (FR-K8).
pub fn status_table(rows: &[StatusRow<'_>], now: UtcMs, style: &Style) -> String {
    if rows.is_empty() {
        return "no runs yet; next: agentrun start TASK\n".to_owned();
    }
    let run_width = rows.iter().map(|r| r.summary.run.id.as_str().len()).max().unwrap_or(0).clamp(3, 32);
    let mut out = format!("{:<15} {:<run_width$} {:<16} {:<8} TITLE\n", "MEANING", "RUN", "STATUS", "SINCE");
    for row in rows {
        let run = &row.summary.run;
        let word = format!("{:<15}", row.meaning.word.to_string().replace('_', " "));
        let since = Millis::between(row.meaning.since, now).rough();
        let since = since.split(' ').next().unwrap_or_default();
        let title = row.summary.title.as_deref().map(neutral_line).unwrap_or_default();
        let title = shortened(&title, 80_usize.saturating_sub(43 + run_width)).into_owned();
        let status = run.status.to_string();
        let line = format!("{:<run_width$} {status:<16} {since:<8} {title}", run.id.as_str());
        let _ = writeln!(out, "{} {}", style.paint(tone_of(row.meaning.word), &word), line.trim_end());
        detail(&mut out, row, style);
    }
    out
}

/// A finished run needs no words.
fn detail(out: &mut String, row: &StatusRow<'_>, style: &Style) {
    use crate::domain::plan::meaning::MeaningWord as W;
    if matches!(row.meaning.word, W::Done | W::Canceled) {
        return;
    }
    let reading = row.meaning.reading.map(|r| format!("{r}: ")).unwrap_or_default();
    let by_itself = if row.meaning.goes_on_by_itself { "goes on by itself" } else { "does not go on by itself" };
    let since = format!("since {}; {by_itself}", style.time(row.meaning.since));
    for text in [format!("{reading}{}", row.meaning.sentence), since] {
        for line in wrapped(&text, 76) {
            let _ = writeln!(out, "    {line}");
        }
    }
    if let Some(next) = &row.meaning.next {
        let _ = writeln!(out, "    next: {next}");
    }
}

/// Breaks a text at its spaces. A single word that is too long is cut: the whole of it is in `show`.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let word = shortened(word, width);
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(&word);
        }
    }
    lines
}

/// The whole tree of a run: attempts, steps, artifacts.
pub fn show_tree(view: &RunView, meaning: &Meaning, style: &Style) -> String {
    let run = &view.run;
    let title = view.inputs.spec.title.as_deref().map(|t| format!(" – {}", neutral_line(t))).unwrap_or_default();
    let mut out = format!("task {}{title}\n", run.task);
    let status = style.paint(tone_of(meaning.word), &run.status.to_string());
    let _ = writeln!(out, "└─ run {} {status}: {}", run.id, meaning.sentence);
    let _ = writeln!(out, "   created {}, {}", style.time(run.created_at), cost(&view.usage));
    for attempt in &view.attempts {
        let code = attempt.code.map(|c| format!(" ({c})")).unwrap_or_default();
        let took =
            duration(Some(attempt.started_at), attempt.finished_at).map(|d| format!(", {d}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "   ├─ attempt {} ({}) {}{code}, began {}{took}",
            attempt.number,
            attempt.opened_by,
            attempt.state,
            style.time(attempt.started_at)
        );
    }
    for step in &view.steps {
        let _ = writeln!(out, "   ├─ {}", step_line(step, style));
        artifacts_of(&mut out, view, step);
    }
    let free = view.artifacts.iter().filter(|a| a.step.is_none());
    for artifact in free {
        let _ = writeln!(out, "   ├─ {}", artifact_line(artifact));
    }
    let _ = writeln!(out, "   └─ audit log: {} events, head {}", view.chain.count, view.chain.head);
    if let Some(next) = &meaning.next {
        let _ = writeln!(out, "next: {next}");
    }
    out
}

fn step_line(step: &StepRecord, style: &Style) -> String {
    let state = style.paint(step_tone(step.state), &step.state.to_string());
    let took = duration(step.started_at, step.finished_at).map(|d| format!(", {d}")).unwrap_or_default();
    let runs = if step.runs == 1 { String::new() } else { format!(", executed {} times", step.runs) };
    let why = reason(step.code, step.message.as_deref()).map(|r| format!(" – {r}")).unwrap_or_default();
    format!("step {} ({}) {state}{took}{runs}{why}", step.key, step.kind)
}

fn artifacts_of(out: &mut String, view: &RunView, step: &StepRecord) {
    for artifact in view.artifacts.iter().filter(|a| a.step.as_ref() == Some(&step.key)) {
        let _ = writeln!(out, "   │  └─ {}", artifact_line(artifact));
    }
}

fn artifact_line(artifact: &ArtifactRecord) -> String {
    let (path, size) = (neutral_line(&artifact.path), bytes(artifact.size));
    format!("{} {path} {size} {}", artifact.kind, short(artifact.sha256))
}

/// Enough of a hash to tell two apart.
fn short(hash: Sha256Hash) -> String {
    hash.hex()[..12].to_owned()
}

/// Limits and what is left of them: limit, used and left, never a bare amount (FR-F35). What is estimated is a part of what
/// was used; what is reserved is not used yet, and not left either.
pub fn budget_table(view: &RunView, limits: &Budget) -> String {
    let heads = ["LIMIT", "ALLOWED", "USED", "ESTIMATED", "RESERVED", "LEFT"];
    let row = |cells: [&str; 6]| {
        let [name, limit, used, estimated, reserved, left] = cells;
        format!("{name:<22} {limit:>14} {used:>14} {estimated:>10} {reserved:>9} {left:>14}\n")
    };
    let mut out = row(heads);
    for line in limit_lines(view, limits) {
        let amount = |n: Option<u64>, none: &str| n.map_or_else(|| none.to_owned(), |n| of_kind(line.kind, n));
        let name = format!("{}.{}", line.scope, line.kind);
        let left = if line.limit.is_none() { "no limit".to_owned() } else { amount(line.left, "unknown") };
        let (limit, used) = (amount(line.limit, "no limit"), amount(line.used, "unknown"));
        let part = |n: u64| if n == 0 { "-".to_owned() } else { of_kind(line.kind, n) };
        out.push_str(&row([&name, &limit, &used, &part(line.estimated), &part(line.reserved), &left]));
    }
    out
}

/// What differs between two runs or attempts.
pub fn diff_text(comparison: &Comparison) -> String {
    let mut out = format!("{} → {}\n", comparison.left, comparison.right);
    let value = |v: Option<&str>| v.map_or_else(|| "none".to_owned(), |v| neutral_line(v).into_owned());
    if comparison.components.is_empty() {
        out.push_str("fingerprint: the same\n");
    }
    for d in &comparison.components {
        let _ = writeln!(out, "{}: {} → {}", d.component, value(d.old.as_deref()), value(d.new.as_deref()));
    }
    let patch = match comparison.same_patch {
        Some(true) => "the same",
        Some(false) => "differs",
        None => "not on both sides",
    };
    let _ = writeln!(out, "patch: {patch}");
    for s in &comparison.steps {
        let (old, new) = (value(s.old.as_deref()), value(s.new.as_deref()));
        let _ = if old == new {
            writeln!(out, "step {}: {old}", s.key)
        } else {
            writeln!(out, "step {}: {old} → {new}", s.key)
        };
    }
    let hash = |h: Option<Sha256Hash>| h.map_or_else(|| "none".to_owned(), short);
    for a in &comparison.artifacts {
        let _ = writeln!(out, "artifact {}: {} → {}", neutral_line(&a.path), hash(a.old), hash(a.new));
    }
    let figure = |n: Option<u64>| n.map_or_else(|| "unknown".to_owned(), count);
    for u in comparison.usage.iter().filter(|u| u.old != u.new) {
        let _ = writeln!(out, "{}: {} → {}", u.name, figure(u.old), figure(u.new));
    }
    out
}

/// Everything that is not as it was when the run stopped, and what follows.
pub fn resume_text(resume: &ResumeDocument<'_>) -> String {
    let mut out = format!("{}: {}\n", resume.run, resume.verdict);
    let value = |v: Option<&str>| v.map_or_else(|| "none".to_owned(), |v| neutral_line(v).into_owned());
    for d in resume.differences {
        let (old, new) = (value(d.old.as_deref()), value(d.new.as_deref()));
        let _ = writeln!(out, "  {} ({}): {old} → {new}", d.code, d.verdict);
        let _ = writeln!(out, "    {}", neutral_line(&d.note));
    }
    if resume.differences.is_empty() {
        out.push_str("  nothing differs\n");
    }
    if let Some(rev) = resume.policy_ref {
        let _ = writeln!(out, "  the policy is read from {}", neutral_line(rev));
    }
    if let Some(step) = resume.next_step {
        let _ = writeln!(out, "  goes on with step {step}");
    }
    if let Some(next) = resume.next {
        let _ = writeln!(out, "  next: {next}");
    }
    out
}
