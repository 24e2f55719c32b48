//! The three facts about a run's outcome (contract §9) and the exit code it stands for (contract §7), read from the
//! record. What a run's state means to a person stands in [`super::meaning`].

use crate::domain::failure::{Code, Exit};
use crate::domain::outcome::{Outcome, ProcessFact, Verification};
use crate::domain::record::{ExecutionRecord, RunRecord, RunView};
use crate::domain::run::RunStatus;
use crate::domain::step::StepState;
use crate::domain::task::StepKind;

/// The three facts. Success needs all of them: the run says so and no check is red or open.
pub fn outcome(view: &RunView) -> Outcome {
    let verification = verification(view);
    let checked = matches!(verification, Verification::Passed | Verification::None);
    let success = view.run.status == RunStatus::Succeeded && checked;
    Outcome { process: process(view), verification, success }
}

/// What the checks said. A check that `when` skipped was not required; one that could not be carried out leaves open
/// whether the work is good, which is no success.
fn verification(view: &RunView) -> Verification {
    let checks = view.steps.iter().filter(|s| s.kind == StepKind::Qa && s.state != StepState::Skipped);
    let states: Vec<_> = checks.map(|s| s.state).collect();
    if states.is_empty() {
        Verification::None
    } else if states.contains(&StepState::Failed) {
        Verification::Failed
    } else if states.iter().all(|s| *s == StepState::Succeeded) {
        Verification::Passed
    } else {
        Verification::Unknown
    }
}

/// How the newest agent process ended; without an agent, the newest process of any step.
fn process(view: &RunView) -> ProcessFact {
    let is_agent = |e: &&ExecutionRecord| view.steps.iter().any(|s| s.key == e.step && s.kind == StepKind::Agent);
    let newest = view.executions.iter().rev().find(is_agent);
    let Some(execution) = newest.or_else(|| view.executions.iter().rev().find(|e| e.end.is_some())) else {
        return ProcessFact::None;
    };
    match &execution.end {
        Some(end) => end.fact(),
        None if execution.finished_at.is_none() && view.run.status == RunStatus::Running => ProcessFact::None,
        None => ProcessFact::Vanished,
    }
}

/// The exit code that a run stands for: what a `start` that finds it in this state ends with (contract §7, §14).
pub fn exit(run: &RunRecord) -> Exit {
    match run.status {
        RunStatus::Succeeded => Exit::Ok,
        RunStatus::Pending | RunStatus::Running => Exit::Busy,
        RunStatus::Retrying => Exit::RetryLater,
        RunStatus::WaitingApproval => Exit::NeedsApproval,
        RunStatus::ReviewRequired => careful(run.code, Exit::ReviewRequired),
        RunStatus::OutcomeUnknown => careful(run.code, Exit::OutcomeUnknown),
        RunStatus::Blocked => careful(run.code, Exit::ReviewRequired),
        RunStatus::BudgetExceeded => careful(run.code, Exit::BudgetExceeded),
        RunStatus::Interrupted => Exit::Interrupted,
        RunStatus::Failed => careful(run.code, Exit::RunFailed),
        // A dead letter is one number whatever buried it; the code beside it says why.
        RunStatus::DeadLetter => Exit::RunFailed,
        RunStatus::Canceled => Exit::Canceled,
    }
}

/// The number of the code, unless it would say "done" or "in progress" of a run that is neither, or is less careful than
/// what the state alone demands.
fn careful(code: Option<Code>, state: Exit) -> Exit {
    let Some(exit) = code.map(|c| c.entry().exit) else { return state };
    match exit {
        Exit::Ok | Exit::Busy => state,
        _ if state == Exit::RunFailed => exit,
        _ if exit.care() < state.care() => exit,
        _ => state,
    }
}
