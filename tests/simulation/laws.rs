//! What must hold of every schedule when it is over: the record against itself, and against what really happened.

use std::collections::{BTreeMap, BTreeSet};

use agentrun::domain::event::{Event, EventKind, check_chain};
use agentrun::domain::ids::{RunId, StepKey};
use agentrun::domain::machine::Word as _;
use agentrun::domain::record::RunView;
use agentrun::domain::run::{RUN, RunStatus};
use agentrun::domain::step::StepState;
use agentrun::domain::task::StepBody;
use serde_json::Value;

use crate::children::Fate;
use crate::task::QA;
use crate::world::{Broken, World};

type Law = Result<(), Broken>;

fn law(holds: bool, broken: impl FnOnce() -> String) -> Law {
    if holds { Ok(()) } else { Err(broken()) }
}

/// All laws; the trace gets the whole log of the run, so that two passes are compared by it as well.
pub(crate) fn check(world: &mut World<'_>) -> Law {
    if let Some(broken) = world.truth.broken.take() {
        return Err(broken);
    }
    let Some(run) = world.run.clone() else { return Ok(()) };
    let view = world.disk.reader().view(&run).unwrap();
    let events = world.disk.reader().chain(run.as_str()).unwrap();
    for event in &events {
        let step = event.step.as_ref().map_or("", |s| s.as_str());
        let line = format!("{} {} {} {step} {}", event.n, event.at.0, event.kind.word(), event.body);
        world.tell(format_args!("{line}"));
    }
    chain_holds(world, &run, &events)?;
    nothing_acknowledged_is_lost(world, &run, &events)?;
    fences_never_fall(world, &run)?;
    finals_are_final(&events)?;
    steps_are_done_once(&view, &events)?;
    counters_never_fall(&events)?;
    tokens_agree(world, &view)?;
    attempts_agree(world, &view)?;
    successes_are_checkpoints(&view)?;
    nobody_is_left(world)?;
    world.counts.count_end(view.run.status);
    Ok(())
}

fn body(event: &Event) -> Value {
    serde_json::from_str(&event.body).unwrap()
}

fn chain_holds(world: &World<'_>, run: &RunId, events: &[Event]) -> Law {
    let head = world.disk.reader().chain_head(run.as_str()).unwrap();
    check_chain(run.as_str(), events, Some(&head)).map_err(|fault| format!("I8: event {}: {}", fault.n, fault.what))
}

fn nothing_acknowledged_is_lost(world: &World<'_>, run: &RunId, events: &[Event]) -> Law {
    for told in &world.truth.acknowledged {
        let at = usize::try_from(told.count).unwrap() - 1;
        let there = events.get(at).is_some_and(|event| event.hash == told.head);
        law(there, || format!("I1: event {} of {run} was acknowledged and is gone", told.count))?;
    }
    Ok(())
}

fn fences_never_fall(world: &World<'_>, run: &RunId) -> Law {
    let raw = &world.disk.raw;
    let mut rows = raw.prepare_cached("SELECT fence FROM event WHERE chain = ?1 ORDER BY n").unwrap();
    let fences: Vec<i64> = rows.query_map([run.as_str()], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    law(fences.is_sorted(), || format!("I4: the fence fell: {fences:?}"))
}

/// After a final status nothing moves, and it is the status that stands there.
fn finals_are_final(events: &[Event]) -> Law {
    let mut last: Option<RunStatus> = None;
    for event in events {
        let moves = matches!(
            event.kind,
            EventKind::RunMoved | EventKind::RunStarted | EventKind::RunResumed | EventKind::RunTakenOver
        );
        if let Some(status) = last.filter(|status| moves && RUN.is_final(*status)) {
            return Err(format!("I6: it was {status}, then came {} (event {})", event.kind.word(), event.n));
        }
        if event.kind == EventKind::RunMoved {
            last = body(event)["to"].as_str().and_then(RunStatus::from_word);
        } else if moves {
            last = Some(RunStatus::Running);
        }
    }
    Ok(())
}

/// Between two begins of a step that succeeded in between lies a send-back, and of those no more than rounds.
fn steps_are_done_once(view: &RunView, events: &[Event]) -> Law {
    let mut done: BTreeSet<StepKey> = BTreeSet::new();
    for event in events.iter().filter(|event| event.kind == EventKind::StepMoved) {
        let (body, step) = (body(event), event.step.clone().unwrap());
        match (body["to"].as_str().unwrap(), body["event"].as_str().unwrap()) {
            ("SUCCEEDED", _) => _ = done.insert(step),
            (_, "send_back") => _ = done.remove(&step),
            ("RUNNING", _) => law(!done.contains(&step), || format!("I7: step {step} was done and began again"))?,
            _ => {}
        }
    }
    let rounds = view.inputs.spec.step(&StepKey::recorded(QA)).and_then(|step| match &step.body {
        StepBody::Qa { on_fail: Some(back), .. } => Some(back.rounds),
        _ => None,
    });
    let used = view.steps.iter().map(|s| s.rounds).max();
    law(used <= rounds, || format!("R-R2: {used:?} rounds of {rounds:?}"))
}

/// The sums that were recorded along the way, execution by execution, and those that stand there now.
fn counters_never_fall(events: &[Event]) -> Law {
    let mut sums: BTreeMap<(StepKey, u32), (u64, u64)> = BTreeMap::new();
    let mut executions: BTreeMap<StepKey, u32> = BTreeMap::new();
    for event in events {
        let Some(step) = event.step.clone() else { continue };
        let body = body(event);
        if event.kind == EventKind::StepMoved && body["to"] == "RUNNING" {
            *executions.entry(step).or_default() += 1;
        } else if event.kind == EventKind::UsageRecorded {
            let of = |name: &str| body["so_far"][name].as_u64().unwrap_or_default();
            let now = (of("input"), of("active"));
            let number = executions.get(&step).copied().unwrap_or_default();
            let was = sums.insert((step.clone(), number), now).unwrap_or_default();
            law(now.0 >= was.0 && now.1 >= was.1, || format!("I9: usage of {step} fell from {was:?} to {now:?}"))?;
        }
    }
    Ok(())
}

/// What is counted was handed out, and what was handed out is counted, but for what nobody here could know.
fn tokens_agree(world: &World<'_>, view: &RunView) -> Law {
    let raw = &world.disk.raw;
    let sql = "SELECT name, input FROM meter WHERE run = (SELECT seq FROM run WHERE id = ?1)";
    let mut rows = raw.prepare_cached(sql).unwrap();
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
    let mut counted: BTreeMap<String, u64> =
        rows.query_map([view.run.id.as_str()], pair).unwrap().map(Result::unwrap).collect();
    let sum: u64 = counted.values().sum();
    for response in &world.provider.ledger {
        let (step, number) = &response.execution;
        let name = format!("{step}/response/{number}.{}", response.number);
        match (counted.remove(&name), response.fate) {
            (Some(tokens), Fate::Written | Fate::Late) if tokens == response.tokens => {}
            (None, Fate::Lost | Fate::Late) => {}
            (found, fate) => {
                let handed = response.tokens;
                return Err(format!("R-R4: {name}: {handed} tokens handed out ({fate:?}), {found:?} counted"));
            }
        }
    }
    law(counted.is_empty(), || format!("R-R4: counted and never handed out: {counted:?}"))?;
    law(sum == view.usage.input, || format!("I9: the items add up to {sum}, the executions to {}", view.usage.input))
}

fn attempts_agree(world: &World<'_>, view: &RunView) -> Law {
    let (really, recorded) = (world.truth.failed, view.usage.failed_attempts);
    law(really == recorded, || format!("R-R4: {really} attempts failed or were lost, {recorded} are counted"))
}

/// A step is done together with its checkpoint, whoever saw it end.
fn successes_are_checkpoints(view: &RunView) -> Law {
    let done = view.steps.iter().filter(|s| s.state == StepState::Succeeded);
    let without: Vec<_> = done.filter(|s| !view.checkpoints.iter().any(|c| c.step == s.key)).map(|s| &s.key).collect();
    law(without.is_empty(), || format!("R-S3: {without:?} succeeded without a checkpoint"))
}

fn nobody_is_left(world: &World<'_>) -> Law {
    let left: Vec<_> = world.children.iter().filter(|c| !c.late).map(|c| c.identity.pid).collect();
    law(left.is_empty(), || format!("I5: processes {left:?} live past the end"))
}

impl crate::world::Counts {
    fn count_end(&mut self, status: RunStatus) {
        match status {
            RunStatus::Succeeded => self.succeeded += 1,
            RunStatus::Canceled => self.canceled += 1,
            RunStatus::Failed => self.failed += 1,
            RunStatus::DeadLetter => self.dead_letters += 1,
            RunStatus::BudgetExceeded => self.budget_exceeded += 1,
            RunStatus::Interrupted => self.interrupted += 1,
            _ => {}
        }
    }
}
