//! The phrases that reports, JUnit and the terminal share, so that one state is said in one way. What is told stands in
//! [`super::story`].

use super::story::Tone;
use crate::domain::outcome::{Outcome, ProcessFact, Verification};
use crate::domain::plan::meaning::{Meaning, MeaningWord};
use crate::domain::plan::verdict;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::RunView;
use crate::domain::step::StepState;
use crate::domain::text::neutral_line;

/// Neutral, on one line.
pub(super) fn line(text: &str) -> String {
    neutral_line(text).into_owned()
}

/// A sentence begins with a capital and ends with a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

/// How a run's meaning is to be taken.
pub(super) fn tone_of(word: MeaningWord) -> Tone {
    match word {
        MeaningWord::Done => Tone::Good,
        MeaningWord::InProgress | MeaningWord::Waiting => Tone::Open,
        MeaningWord::CanBeRetried | MeaningWord::NeedsAPerson | MeaningWord::FailedForGood | MeaningWord::Canceled => {
            Tone::Bad
        }
    }
}

/// How a step's state is to be taken.
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

/// The meaning, and of a run at rest the outcome.
pub(super) fn verdict_sentences(view: &RunView, meaning: &Meaning) -> Vec<String> {
    let at_rest = !matches!(meaning.word, MeaningWord::InProgress | MeaningWord::Waiting);
    let outcome = at_rest.then(|| outcome_sentence(verdict::outcome(view)));
    [Some(sentence(&meaning.sentence)), outcome].into_iter().flatten().collect()
}

/// The three facts in words.
fn outcome_sentence(outcome: Outcome) -> String {
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
    let success = if outcome.success { "counts as success" } else { "does not count as success" };
    sentence(&format!("{success}: {process}, {checks}"))
}

/// `CODE: message`, as far as known.
pub(super) fn reason(code: Option<impl std::fmt::Display>, message: Option<&str>) -> Option<String> {
    match (code, message) {
        (Some(code), Some(message)) => Some(format!("{code}: {}", line(message))),
        (Some(code), None) => Some(code.to_string()),
        (None, message) => message.map(line),
    }
}

/// From a beginning to an end, once there is one.
pub(super) fn duration(from: Option<UtcMs>, to: Option<UtcMs>) -> Option<String> {
    from.zip(to).map(|(from, to)| length(Millis::between(from, to)))
}

/// A length, exact below a second.
pub(super) fn length(length: Millis) -> String {
    match length {
        Millis(ms @ 1..1000) => format!("{ms}ms"),
        length => length.rough(),
    }
}
