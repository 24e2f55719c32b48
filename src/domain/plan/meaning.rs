//! What a run's state means to a person (R-U4): done, in progress, waiting, can be retried, needs a person, failed for
//! good. Readings such as STALE are made here, from the record and the clock; nothing is changed by looking (FR-K1).

use crate::domain::breaker::BreakerState;
use crate::domain::failure::{Code, Retry};
use crate::domain::ids::StepKey;
use crate::domain::lease::Holding;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::{RunRecord, StepRecord};
use crate::domain::run::RunStatus;
use crate::domain::step::StepState;
use crate::domain::text::neutral_line;
use crate::domain::turn::Wait;
use crate::words;

words! {
    /// What a state means.
    pub enum MeaningWord {
        /// The result is there.
        Done = "done",
        /// Somebody works on it; it is safe to close the terminal or page.
        InProgress = "in_progress",
        /// Its turn or time has not come.
        Waiting = "waiting",
        /// Going on makes sense as it stands.
        CanBeRetried = "can_be_retried",
        /// A person must decide or look.
        NeedsAPerson = "needs_a_person",
        /// Going on makes no sense until something was changed.
        FailedForGood = "failed_for_good",
        /// Stopped for good.
        Canceled = "canceled",
    }
}

words! {
    /// How a run that says RUNNING reads (R-R6). Readings, never states.
    pub enum Reading {
        /// Its holder lives and its lease runs, but there was no sign of life for too long.
        Stale = "STALE",
        /// Its holder lives, its lease ran out.
        Stuck = "STUCK",
        /// Its holder is gone and nothing outside can have happened: it may be taken over.
        RetryableStuck = "RETRYABLE_STUCK",
    }
}

/// What the meaning is read from.
#[derive(Debug, Clone, Copy)]
pub struct MeaningInput<'a> {
    /// The run.
    pub run: &'a RunRecord,
    /// How its lease reads.
    pub holding: Holding,
    /// The present.
    pub now: UtcMs,
    /// Without a sign of life for this long a run is stale: the lease's `ttl` of the policy.
    pub silent_after: Millis,
    /// The step that is being executed, or that the run stands at.
    pub step: Option<&'a StepKey>,
    /// What it waits for, if it stands in a queue.
    pub wait: Option<&'a Wait>,
}

/// What a run's state means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// In one word.
    pub word: MeaningWord,
    /// How a RUNNING that is not healthy reads.
    pub reading: Option<Reading>,
    /// In one sentence, without the run's name: what it stands at and why.
    pub sentence: String,
    /// Since when it has been so.
    pub since: UtcMs,
    /// Whether agentrun goes on without anybody doing anything.
    pub goes_on_by_itself: bool,
    /// The next command, if there is one to give.
    pub next: Option<String>,
}

/// The step that a run stands at: the one that it works at or that it is parked on, else the one that failed.
pub fn stands_at(status: RunStatus, steps: &[StepRecord]) -> Option<&StepKey> {
    let states: &[StepState] = match status {
        RunStatus::WaitingApproval => &[StepState::WaitingApproval],
        RunStatus::OutcomeUnknown => &[StepState::Unknown],
        _ => &[StepState::Running, StepState::Failed],
    };
    steps.iter().find(|step| states.contains(&step.state)).map(|step| &step.key)
}

/// What a run's state means.
pub fn meaning(input: &MeaningInput<'_>) -> Meaning {
    let run = input.run;
    let id = &run.id;
    match run.status {
        RunStatus::Pending => pending(input),
        RunStatus::Running => running(input),
        RunStatus::Retrying => retrying(input),
        RunStatus::Succeeded => rest(input, MeaningWord::Done, "done".to_owned(), format!("agentrun show {id}")),
        RunStatus::Canceled => canceled(input),
        RunStatus::WaitingApproval => {
            let sentence = format!("waits for an approval{}{}", at_step(input), because(run));
            let next = match input.step {
                Some(step) => format!("agentrun approve {}", id.step(step)),
                None => "agentrun approval list".to_owned(),
            };
            rest(input, MeaningWord::NeedsAPerson, sentence, next)
        }
        RunStatus::OutcomeUnknown => {
            let sentence = format!(
                "an effect outside may have happened{}, nothing is sent until that is known{}",
                at_step(input),
                because(run)
            );
            rest(input, MeaningWord::NeedsAPerson, sentence, "agentrun reconcile".to_owned())
        }
        RunStatus::ReviewRequired | RunStatus::Blocked => review(input),
        RunStatus::Interrupted => {
            // A signal needs no reason beside itself; a machine that failed does.
            let why = if run.code == Some(Code::Interrupted) { String::new() } else { because(run) };
            let step = at_step(input);
            let sentence = format!(
                "was interrupted{step}{why}; resume goes on after the last good checkpoint and uses up no attempt"
            );
            rest(input, MeaningWord::CanBeRetried, sentence, format!("agentrun resume {id}"))
        }
        RunStatus::BudgetExceeded => {
            let sentence = format!(
                "was stopped at a limit{}; the work is kept, a higher limit lets it go on from there",
                because(run)
            );
            rest(input, MeaningWord::NeedsAPerson, sentence, raise_command(run))
        }
        RunStatus::DeadLetter => {
            let sentence = format!(
                "failed as often as it may{}; once the cause is removed, resume is one more attempt",
                because(run)
            );
            rest(input, MeaningWord::NeedsAPerson, sentence, format!("agentrun resume {id} --reason TEXT"))
        }
        RunStatus::Failed => failed(input),
    }
}

fn pending(input: &MeaningInput<'_>) -> Meaning {
    let run = input.run;
    let held = matches!(input.holding, Holding::Held);
    let sentence = match (input.wait, &run.group) {
        (Some(wait), _) => format!("waits for {}", queue(wait, input.now)),
        (None, Some(group)) => format!("waits for its turn in the group {}", neutral_line(group)),
        (None, None) => "is accepted and waits to be started".to_owned(),
    };
    let next = if held { format!("agentrun status {}", run.id) } else { format!("agentrun start {}", run.task) };
    Meaning { since: run.created_at, goes_on_by_itself: held, ..rest(input, MeaningWord::Waiting, sentence, next) }
}

fn running(input: &MeaningInput<'_>) -> Meaning {
    let run = input.run;
    let silence = Millis::between(last_sign(run), input.now);
    let silent = silence > input.silent_after;
    let busy = format!("works{}", at_step(input));
    let quiet = format!("last sign of life {} ago", silence.rough());
    let (word, reading, sentence) = match input.holding {
        Holding::Held if run.cancel_requested => (MeaningWord::InProgress, None, "is being canceled".to_owned()),
        Holding::Held if silent => {
            let sentence = format!("{busy}; its process lives, {quiet}");
            (MeaningWord::InProgress, Some(Reading::Stale), sentence)
        }
        Holding::Held if input.wait.is_some() => {
            let what = input.wait.map(|wait| queue(wait, input.now)).unwrap_or_default();
            (MeaningWord::InProgress, None, format!("waits for {what}; safe to close, it goes on"))
        }
        Holding::Held => (MeaningWord::InProgress, None, format!("{busy}; safe to close, it goes on")),
        Holding::Foreign if !silent => {
            (MeaningWord::InProgress, None, format!("{busy} on another machine or boot; {quiet}"))
        }
        Holding::Foreign => {
            let sentence = format!("its process on another machine or boot fell silent{}; {quiet}", at_step(input));
            (MeaningWord::CanBeRetried, Some(Reading::Stale), sentence)
        }
        Holding::Stuck => {
            let sentence =
                format!("its process lives, but lost its lease{}; {quiet}; resume takes over", at_step(input));
            (MeaningWord::CanBeRetried, Some(Reading::Stuck), sentence)
        }
        Holding::Abandoned | Holding::Free => {
            let sentence = format!("its process is gone{}; {quiet}; resume takes over", at_step(input));
            (MeaningWord::CanBeRetried, Some(Reading::RetryableStuck), sentence)
        }
    };
    let goes_on = word == MeaningWord::InProgress;
    let id = &run.id;
    let next = if goes_on { format!("agentrun logs -f {id}") } else { format!("agentrun resume {id}") };
    let since = run.started_at.unwrap_or(run.created_at);
    Meaning { word, reading, sentence, since, goes_on_by_itself: goes_on, next: Some(next) }
}

/// What stands before a run in its queue.
fn queue(wait: &Wait, now: UtcMs) -> String {
    let what = neutral_line(&wait.turn.queue.what()).into_owned();
    let Some(breaker) = &wait.breaker else { return format!("{what}; {} before it", wait.ahead) };
    let provider = neutral_line(&breaker.provider);
    let why = format!("because {}: {}", breaker.code, neutral_line(&breaker.message));
    if breaker.state == BreakerState::HalfOpen {
        return format!("{provider}, which one call tries ({why})");
    }
    let left = Millis::between(now, breaker.until);
    format!("{provider} until {} ({}), {why}", breaker.until.clock(), left.rough())
}

/// Whether somebody waits for the time to come shows in the lease alone: a parked run has no holder.
fn retrying(input: &MeaningInput<'_>) -> Meaning {
    let run = input.run;
    let held = matches!(input.holding, Holding::Held);
    let wait = run.retry_at.map(|at| Millis::between(input.now, at)).filter(|wait| wait.0 > 0);
    let next = format!("agentrun resume {}", run.id);
    let (word, sentence) = match wait {
        Some(wait) if held => (MeaningWord::Waiting, format!("tries again in {}{}", wait.rough(), because(run))),
        Some(wait) => (MeaningWord::Waiting, format!("may be tried again in {}{}", wait.rough(), because(run))),
        None => (MeaningWord::CanBeRetried, format!("may be tried again now{}", because(run))),
    };
    Meaning { goes_on_by_itself: held, ..rest(input, word, sentence, next) }
}

fn canceled(input: &MeaningInput<'_>) -> Meaning {
    let sentence = format!("was canceled{}; the work is kept", because(input.run));
    rest(input, MeaningWord::Canceled, sentence, new_run(input.run))
}

/// A difference that a person may accept, or one that nobody can.
fn review(input: &MeaningInput<'_>) -> Meaning {
    let run = input.run;
    if run.code == Some(Code::ResumeBlocked) {
        let sentence = format!("cannot go on safely{}; only a new run can", because(run));
        return rest(input, MeaningWord::FailedForGood, sentence, new_run(run));
    }
    let sentence = match run.status {
        RunStatus::Blocked => format!("something is in its way{}", because(run)),
        _ => format!("a person must decide{}", because(run)),
    };
    rest(input, MeaningWord::NeedsAPerson, sentence, format!("agentrun resume {} --dry-run", run.id))
}

fn failed(input: &MeaningInput<'_>) -> Meaning {
    let run = input.run;
    let resume = format!("agentrun resume {}", run.id);
    if run.code == Some(Code::QaFailed) {
        let sentence =
            format!("failed{}; a person must look, --send-back gives the agent one more round", because(run));
        return rest(input, MeaningWord::NeedsAPerson, sentence, format!("{resume} --send-back"));
    }
    match run.code.map(|c| c.entry().retry) {
        Some(Retry::Now | Retry::Later) => {
            let sentence = format!("failed{}; resume tries the failed step again", because(run));
            rest(input, MeaningWord::CanBeRetried, sentence, resume)
        }
        Some(Retry::AfterApproval) => {
            let sentence = format!("failed{}; a person must decide", because(run));
            rest(input, MeaningWord::NeedsAPerson, sentence, format!("{resume} --dry-run"))
        }
        Some(Retry::AfterReconcile) => {
            let sentence = format!("failed{}", because(run));
            rest(input, MeaningWord::NeedsAPerson, sentence, "agentrun reconcile".to_owned())
        }
        Some(Retry::Never) => {
            let sentence = format!("failed{}; it would fail again", because(run));
            rest(input, MeaningWord::FailedForGood, sentence, new_run(run))
        }
        Some(Retry::AfterFix) | None => {
            let sentence = format!("failed{}; change that first, then resume", because(run));
            rest(input, MeaningWord::FailedForGood, sentence, resume)
        }
    }
}

/// The meaning of a run at rest: nobody goes on by itself.
fn rest(input: &MeaningInput<'_>, word: MeaningWord, sentence: String, next: String) -> Meaning {
    let run = input.run;
    let since = run.finished_at.unwrap_or_else(|| last_sign(run));
    Meaning { word, reading: None, sentence, since, goes_on_by_itself: false, next: Some(next) }
}

fn new_run(run: &RunRecord) -> String {
    format!("agentrun start {} --new", run.task)
}

/// Names the limit, where the message does: it begins with `scope.kind` ([`crate::domain::budget::Breach`]).
fn raise_command(run: &RunRecord) -> String {
    use crate::domain::budget::{LimitKind, Scope};
    use crate::domain::machine::Word as _;
    let message = run.message.as_deref().unwrap_or_default();
    let names = Scope::ALL.iter().flat_map(|s| LimitKind::ALL.iter().map(move |k| format!("{s}.{k}")));
    let limit = names.into_iter().find(|name| message.split(' ').any(|word| word == name));
    format!("agentrun resume {} --budget {}=VALUE", run.id, limit.as_deref().unwrap_or("LIMIT"))
}

/// ` (CODE: message)`, as far as known.
fn because(run: &RunRecord) -> String {
    match (run.code, &run.message) {
        (Some(code), Some(message)) => format!(" ({code}: {})", neutral_line(message)),
        (Some(code), None) => format!(" ({code}: {})", code.entry().meaning),
        (None, Some(message)) => format!(" ({})", neutral_line(message)),
        (None, None) => String::new(),
    }
}

fn at_step(input: &MeaningInput<'_>) -> String {
    input.step.map(|step| format!(" at step {step}")).unwrap_or_default()
}

fn last_sign(run: &RunRecord) -> UtcMs {
    run.heartbeat_at.or(run.started_at).unwrap_or(run.created_at)
}

#[cfg(test)]
#[path = "meaning_tests.rs"]
mod tests;
