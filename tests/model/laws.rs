//! What must hold of every transition, whoever made it. A law is told by the id of its promise or invariant.

use agentrun::domain::lease::Holding;
use agentrun::domain::run::{AttemptState, RUN, RunEvent, RunStatus};
use agentrun::domain::step::StepState;

use crate::moves::{Action, holding_of, limit};
use crate::state::{Doing, State, Step};
use crate::task::{AGENT, QA, ROUNDS, STEPS};

type Law = Result<(), String>;

pub(crate) fn check(before: &State, action: Action, after: &State) -> Law {
    fenced(before, action, after)?;
    leases(before, action)?;
    finals(before, after)?;
    steps_once(before, after)?;
    never_less(before, after)?;
    counted(before, action, after)
}

fn law(holds: bool, broken: impl FnOnce() -> String) -> Law {
    if holds { Ok(()) } else { Err(broken()) }
}

/// All of the record that a holder writes.
fn record(s: &State) -> (RunStatus, u8, u8, AttemptState, u8, u8, &[Step; STEPS]) {
    (s.run, s.fence, s.attempt, s.tried, s.failed, s.used, &s.steps)
}

/// Whoever lost the run changes nothing.
fn fenced(before: &State, action: Action, after: &State) -> Law {
    let (Action::Adopt(w)
    | Action::PutBack(w)
    | Action::Begin(w)
    | Action::Succeeds(w, _)
    | Action::Fails(w, _)
    | Action::Signal(w)
    | Action::Rest(w)) = action
    else {
        return Ok(());
    };
    let Doing::Holds(memory) = &before.workers[w].task else { return Err("R-R7: it held nothing".into()) };
    let holds = memory.fence == before.fence || record(before) == record(after);
    law(holds, || format!("R-R7: fence {} wrote under fence {}", memory.fence, before.fence))
}

/// Nobody takes a run over whose holder lives and whose lease runs, as things stood when it looked.
fn leases(before: &State, action: Action) -> Law {
    match action {
        Action::Look(_) if before.run == RunStatus::Running => {
            law(holding_of(before) != Holding::Held, || "R-R6: a live lease was to be taken".into())
        }
        _ => Ok(()),
    }
}

fn finals(before: &State, after: &State) -> Law {
    let holds = !RUN.is_final(before.run) || record(before) == record(after);
    law(holds, || format!("I6: {} became {}", before.run, after.run))
}

/// The one way out of SUCCEEDED is a send-back by a check that failed just then, while rounds are left.
fn steps_once(before: &State, after: &State) -> Law {
    let round = after.steps[QA].rounds == before.steps[QA].rounds + 1
        && after.steps[QA].state == StepState::Failed
        && u32::from(after.steps[QA].rounds) <= ROUNDS;
    let again =
        |i: &usize| before.steps[*i].state == StepState::Succeeded && after.steps[*i].state != StepState::Succeeded;
    let wrong = (0..STEPS).filter(again).find(|i| !(round && after.steps[*i].state == StepState::Pending));
    law(wrong.is_none(), || format!("I7: step {wrong:?} was done and is not any more"))
}

fn never_less(before: &State, after: &State) -> Law {
    let numbers = |s: &State| {
        let steps = s.steps.map(|step| [step.attempt, step.runs, step.rounds]);
        [s.fence, s.attempt, s.failed, s.used].into_iter().chain(steps.into_iter().flatten()).collect::<Vec<_>>()
    };
    let fell = numbers(before).iter().zip(&numbers(after)).any(|(was, is)| is < was);
    law(!fell, || "I9: a counter fell".into())
}

/// What was used is counted once, and so is every attempt that failed; both within the limit.
fn counted(before: &State, action: Action, after: &State) -> Law {
    let agent = after.steps[AGENT];
    let seen = agent.runs - u8::from(agent.state == StepState::Running);
    law(after.used == seen, || format!("R-R4: {seen} executions ended, {} were counted", after.used))?;
    let failed = |s: &Step| s.state == StepState::Failed && s.attempt == before.attempt;
    let ends_failed = matches!(action, Action::Rest(_))
        && RUN.next(before.run, RunEvent::Fail).is_ok()
        && matches!(after.run, RunStatus::Failed | RunStatus::Retrying | RunStatus::DeadLetter)
        && before.steps.iter().any(failed);
    law(!ends_failed || after.failed == before.failed + 1, || "R-R4: a failed attempt was not counted".into())?;
    // An attempt that only clears up after the last one may die as well; it begins nothing.
    let works =
        matches!(action, Action::Begin(_)) && record(before) != record(after) && u64::from(before.failed) >= limit();
    law(!works, || format!("R-R3: {} attempts of {} had failed, and one more began to work", before.failed, limit()))
}
