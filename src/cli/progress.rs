//! What a person sees while a run works: two moving lines on a terminal, plain lines elsewhere. Standard error only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::say;
use crate::domain::budget::{Budget, LimitKind, Usage};
use crate::domain::ids::StepKey;
use crate::domain::step::StepState;
use crate::domain::text::{neutral_line, shortened};
use crate::ops::calling::{Notice, Observer};
use crate::report::amount;

/// Shows notices.
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    colour: bool,
    budget: Budget,
    steps: Vec<String>,
    done: usize,
    step: String,
    said: String,
    used: Usage,
}

impl Progress {
    /// Moving, plain, or silent.
    pub fn new(moving: bool, quiet: bool, colour: bool) -> Self {
        let bar = (moving && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            quiet,
            colour,
            budget: Budget::default(),
            steps: Vec::new(),
            done: 0,
            step: String::new(),
            said: String::new(),
            used: Usage::default(),
        }
    }

    /// Takes the moving lines away, so that the result stands alone.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say::line(text),
        }
    }

    fn redraw(&self) {
        let Some(bar) = &self.bar else { return };
        bar.set_prefix(format!("[{}/{}] {}", self.done + 1, self.steps.len().max(1), self.step));
        let limit = |kind: LimitKind| match self.budget.task.of(kind) {
            Some(limit) => format!("{}/{}", amount::of_kind(kind, self.used.of(kind)), amount::of_kind(kind, limit)),
            None => amount::of_kind(kind, self.used.of(kind)),
        };
        let (tokens, tools) = (limit(LimitKind::Tokens), limit(LimitKind::ToolCalls));
        bar.set_message(format!("tokens {tokens} · tools {tools} · {}", self.said));
    }

    fn paint(&self, state: StepState) -> String {
        let code = match state {
            StepState::Succeeded => 32,
            StepState::Failed => 31,
            _ => 33,
        };
        if self.colour { format!("\u{1b}[{code}m{state}\u{1b}[0m") } else { state.to_string() }
    }
}

impl Observer for Progress {
    fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::AttemptBegan { run, attempt, opened_by, steps, budget } => {
                self.budget = **budget;
                self.steps = steps.iter().map(ToString::to_string).collect();
                self.done = 0;
                self.line(&format!("{run}: attempt {attempt} ({opened_by})"));
                if let Some(bar) = &self.bar {
                    bar.enable_steady_tick(Duration::from_millis(125));
                }
            }
            Notice::StepBegan { step, kind, what } => {
                self.step = step.to_string();
                self.done = self.steps.iter().position(|s| s == step.as_str()).unwrap_or(self.done);
                self.said.clear();
                if self.bar.is_none() {
                    let what = neutral_line(what).into_owned();
                    let shown =
                        if what == step.as_str() || what.is_empty() { String::new() } else { format!(": {what}") };
                    let kind = if step.as_str() == kind.to_string() { String::new() } else { format!(" ({kind})") };
                    self.line(&format!("  {step}{kind}{}", shortened(&shown, 100)));
                }
            }
            Notice::StepEnded { step, state, took, failure } => {
                let why = failure.map(|f| format!(": {}", neutral_line(&f.message))).unwrap_or_default();
                let took = amount::of_kind(LimitKind::Time, took.0);
                self.line(&format!("  {step} {} {took}{why}", self.paint(*state)));
            }
            Notice::Said { text, .. } => {
                self.said = shortened(&neutral_line(text), 200).into_owned();
                if self.bar.is_none() {
                    self.line(&format!("    agent: {}", self.said));
                }
            }
            Notice::Tool { summary, .. } => {
                self.said = shortened(&neutral_line(summary), 200).into_owned();
                if self.bar.is_none() {
                    self.line(&format!("    tool: {}", self.said));
                }
            }
            Notice::Used { task, .. } => self.used = **task,
            Notice::Warning { text } => self.line(&format!("  warning: {}", neutral_line(text))),
            Notice::Stopping { why } => self.line(&format!("  stopping: {why}")),
            Notice::NeedsApproval { step, approval } => {
                let title = neutral_line(&approval.subject.title);
                let step = step.map_or("what the agent asked for", StepKey::as_str);
                self.line(&format!("  {step} waits for a person: {title} ({})", approval.id));
            }
            Notice::Queued { what, ahead } => {
                self.line(&format!("  waiting for {}; {ahead} before it", neutral_line(what)));
            }
            Notice::Waiting { until, why } => {
                self.line(&format!("  waiting for {} until {}", neutral_line(why), amount::utc(*until)));
            }
        }
        self.redraw();
    }
}
