//! What an earlier holder left (R-W4): each step that it was in the middle of is looked at, and either taken as finished or
//! put back so that it is done again, in the gentlest way that is safe. Its processes are ended before (`orphans`).

use std::collections::BTreeMap;

use super::attempt::Calls;
use super::error::EngineError;
use super::held::Held;
use super::host::Host;
use super::kept::keep_artifacts;
use super::orphans::{self, LateWork, Outlived};
use super::steps::agent::{self, Call};
use super::workspace::{Copy, before_pin, mostly_gone};
use crate::agents::{AgentEnd, Inspection, Progress};
use crate::artifacts::run_dir::{self, StepFile};
use crate::artifacts::transcript::tail;
use crate::domain::change::{Change, ExecutionEnd, Reached, StepMove};
use crate::domain::event::EventKind;
use crate::domain::ids::StepKey;
use crate::domain::outcome::ProcessEnd;
use crate::domain::plan::pipeline;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::{ExecutionRecord, RunView, StepRecord};
use crate::domain::step::{StepEvent, StepState};
use crate::domain::task::{StepBody, StepKind};

/// How much of a check's output an agent is told.
const SHOWN: u64 = 8 << 10;

/// What becomes of the changes that a failed or cut attempt left in the working copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeftWork {
    /// A cut agent goes on in them where that is safe; a failed one's are kept as a patch and put away (R-W3).
    #[default]
    ByCase,
    /// A person said that they are meant.
    Keep,
    /// A person said that they are to be put away.
    Rebuild,
}

/// Settles every step that was being executed when its holder went away, and decides how agents go on.
pub fn settle(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    (view, left_work, outlived): (&RunView, LeftWork, Outlived),
) -> Result<Calls, EngineError> {
    let mut calls = Calls::new();
    copy.finish_restore(host, held)?;
    let left_work = match (left_work, orphans::report_late_work(host, held, copy, (view, outlived))?) {
        // Nobody can tell the agent's work from what came later: it is kept as a patch, and the agent begins anew.
        (LeftWork::ByCase, LateWork::Reported) => LeftWork::Rebuild,
        (left_work, _) => left_work,
    };
    let was_cut = view.steps.iter().any(|s| s.state == StepState::Running);
    if left_work == LeftWork::Rebuild && !was_cut {
        // What commands made since the last agent belongs to steps that are done: the end of the last attempt has it.
        let last = view.run.snapshot.clone().unwrap_or_else(|| copy.start.clone());
        copy.save_and_restore(host, held, &last, None)?;
    }
    for step in view.steps.iter().filter(|s| s.state == StepState::Running) {
        match step.kind {
            StepKind::Agent => settle_agent(host, held, copy, (view, &step.key, left_work), &mut calls)?,
            _ => put_back(held, &step.key, last(view, &step.key), view)?,
        }
    }
    for step in view.steps.iter().filter(|s| s.kind == StepKind::Agent) {
        match step.state {
            StepState::Pending if step.runs > 0 => go_on(host, held, copy, (view, &step.key, left_work), &mut calls)?,
            StepState::Failed if left_work != LeftWork::Keep => start_over(host, held, copy, (view, &step.key))?,
            _ => {}
        }
    }
    held.commit()?;
    let is_due = |s: &&StepRecord| s.kind == StepKind::Agent && s.state != StepState::Succeeded;
    for step in held.steps.iter().filter(is_due) {
        if let (false, Some(check)) =
            (calls.contains_key(&step.key), pipeline::unanswered(&view.inputs.spec, &view.steps, &step.key))
        {
            calls.extend(answer(host, view, (&step.key, check))?.map(|call| (step.key.clone(), call)));
        }
    }
    Ok(calls)
}

/// An agent that was sent back and did not get to answer hears again why, in the words that the record has. It goes on in
/// its own conversation if nothing was said in that since.
fn answer(
    host: &Host<'_>,
    view: &RunView,
    (agent, check): (&StepKey, &StepRecord),
) -> Result<Option<(Call, Option<String>)>, EngineError> {
    let Some(failed) = last(view, &check.key) else { return Ok(None) };
    let dir = host.home.run_dir(&view.run.id)?;
    let tails = [StepFile::Stdout, StepFile::Stderr].map(|file| tail(&dir.step_file(files(view, failed), file), SHOWN));
    let mut output = Vec::new();
    for tail in tails {
        output.push(tail?.text);
    }
    let output = output.iter().map(|t| t.trim_end()).filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n");
    let has_ended = |e: &&ExecutionRecord| e.result.is_some() && resumes(view, agent);
    let session = last(view, agent).filter(has_ended).and_then(|e| e.session.clone());
    Ok(Some((Call::SentBack { check: check.key.clone(), output }, session)))
}

fn resumes(view: &RunView, agent: &StepKey) -> bool {
    match view.inputs.spec.step(agent).map(|s| &s.body) {
        Some(StepBody::Agent { agent, .. }) => crate::agents::abilities(agent.protocol).resumes,
        _ => false,
    }
}

/// The files of an execution.
fn files<'a>(view: &RunView, execution: &'a ExecutionRecord) -> run_dir::Execution<'a> {
    run_dir::Execution { attempt: execution.attempt, step: &execution.step, nth: view.nth(execution) }
}

fn last<'a>(view: &'a RunView, step: &StepKey) -> Option<&'a ExecutionRecord> {
    view.executions.iter().rev().find(|e| e.step == *step)
}

/// Time that a cut execution was active: until the last sign of life of its holder, for nobody saw more.
fn active_until_last_sign(execution: &ExecutionRecord, view: &RunView) -> Millis {
    let seen = view.run.heartbeat_at.unwrap_or(execution.started_at).max(execution.started_at);
    execution.active.max(Millis::between(execution.started_at, seen))
}

fn put_back(
    held: &mut Held,
    step: &StepKey,
    execution: Option<&ExecutionRecord>,
    view: &RunView,
) -> Result<(), EngineError> {
    let open = execution.filter(|e| e.finished_at.is_none());
    let ended = open.map(|e| vanished(active_until_last_sign(e, view), None));
    held.stage(Change::Step(StepMove { ended, ..StepMove::new(step, StepEvent::Interrupt) }))
}

/// The end of an execution that nobody saw.
fn vanished(active: Millis, result: Option<String>) -> ExecutionEnd {
    ExecutionEnd { end: ProcessEnd::Vanished, result, active }
}

/// An agent whose end nobody saw: adopted when its own records say that it had finished, else counted and put back.
fn settle_agent(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    (view, step, left_work): (&RunView, &StepKey, LeftWork),
    calls: &mut Calls,
) -> Result<(), EngineError> {
    let execution = last(view, step);
    let inspection = inspect(host, held, copy, (view, execution))?;
    if let (Some(execution), Some(inspection)) = (execution, &inspection) {
        let items = agent::items_of(inspection, &held.inputs, execution);
        let active = active_until_last_sign(execution, view);
        held.stage(Change::Usage { step: step.clone(), items, active })?;
        if let Progress::Finished(end) = &inspection.progress
            && end.failure.is_none()
        {
            return adopt(host, held, copy, (view, step, end, active));
        }
    }
    put_back(held, step, execution, view)?;
    decide_call(host, held, copy, Cut { view, step, execution, inspection, left_work }, calls)
}

fn inspect(
    host: &Host<'_>,
    held: &Held,
    copy: &Copy,
    (view, execution): (&RunView, Option<&ExecutionRecord>),
) -> Result<Option<Inspection>, EngineError> {
    let Some(execution) = execution else { return Ok(None) };
    let of_run = (&held.hold.run, &held.inputs);
    agent::inspect(host, of_run, (execution, files(view, execution)), copy.workspace.dir())
}

/// Takes an agent's work as it is: it had finished, and is not paid for twice.
fn adopt(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    (view, step, end, active): (&RunView, &StepKey, &AgentEnd, Millis),
) -> Result<(), EngineError> {
    held.note(EventKind::AgentAdopted, Some(step), "the agent had finished before its end could be recorded")?;
    let ended = Some(vanished(active, end.result.clone()));
    let snapshot = copy.snapshot(host, held, Some(step))?;
    let fail = |held: &mut Held, ended, failure| {
        let failed = StepMove::new(step, StepEvent::Fail);
        held.stage(Change::Step(StepMove { ended, failure: Some(failure), ..failed }))
    };
    if let Some(failure) = snapshot.gone.map(mostly_gone) {
        return fail(held, ended, failure);
    }
    let artifacts = match view.inputs.spec.step(step) {
        Some(spec) => keep_artifacts(host, held, spec, copy.workspace.dir())?,
        None => Ok(BTreeMap::new()),
    };
    let artifacts = match artifacts {
        Ok(artifacts) => artifacts,
        Err(failure) => return fail(held, ended, failure),
    };
    let policy_version = held.inputs.policy.version.clone();
    let checkpoint =
        Some(Reached { name: "CODE_GENERATED".to_owned(), commit: Some(snapshot.commit), policy_version, artifacts });
    held.stage(Change::Step(StepMove { ended, checkpoint, ..StepMove::new(step, StepEvent::Succeed) }))
}

/// An agent that was cut and is PENDING again from an earlier attempt (a signal, a limit).
fn go_on(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    (view, step, left_work): (&RunView, &StepKey, LeftWork),
    calls: &mut Calls,
) -> Result<(), EngineError> {
    let execution = last(view, step);
    let inspection = inspect(host, held, copy, (view, execution))?;
    if let (Some(execution), Some(inspection)) = (execution.filter(|e| e.estimated > 0), &inspection) {
        // Its records may have come to their end since its cost was estimated.
        let items = agent::items_of(inspection, &held.inputs, execution);
        held.stage(Change::Usage { step: step.clone(), items, active: execution.active })?;
    }
    decide_call(host, held, copy, Cut { view, step, execution, inspection, left_work }, calls)
}

/// A step that was cut, and what is known of it.
struct Cut<'a> {
    view: &'a RunView,
    step: &'a StepKey,
    execution: Option<&'a ExecutionRecord>,
    inspection: Option<Inspection>,
    left_work: LeftWork,
}

/// In its own conversation when that can be continued and the copy is as the agent left it; else from the last snapshot,
/// with what lies in the copy kept as a patch. Either way an agent that had been sent back keeps its reason.
fn decide_call(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    cut: Cut<'_>,
    calls: &mut Calls,
) -> Result<(), EngineError> {
    let Cut { view, step, execution, inspection, left_work } = cut;
    let continuable = inspection.as_ref().is_some_and(|i| i.progress == Progress::Continuable);
    let session = execution.and_then(|e| e.session.clone()).filter(|_| continuable);
    let untouched = match left_work {
        LeftWork::Keep => true,
        LeftWork::Rebuild => false,
        LeftWork::ByCase => match execution {
            Some(execution) => is_as_left(copy, view, (execution, inspection.as_ref()))?,
            None => false,
        },
    };
    match session {
        // Not in a row of refusals: an agent that does not know its conversation any more says so once.
        None if left_work == LeftWork::Keep => Ok(()),
        Some(session) if untouched => {
            held.note(EventKind::WarningRaised, Some(step), "the agent goes on in its own conversation")?;
            calls.insert(step.clone(), (Call::Continue, Some(session)));
            Ok(())
        }
        _ => start_over(host, held, copy, (view, step)),
    }
}

/// Nothing in the copy is newer than the last sign of life: nobody has worked in it since. One lease of slack, for a
/// command of the agent may have written a little longer than its holder lived.
fn is_as_left(
    copy: &Copy,
    view: &RunView,
    (execution, inspection): (&ExecutionRecord, Option<&Inspection>),
) -> Result<bool, EngineError> {
    let Some(newest) = copy.workspace.newest_change_ms(&copy.start)? else { return Ok(true) };
    let signs = [
        view.run.heartbeat_at,
        execution.finished_at,
        view.run.finished_at,
        inspection.and_then(|i| i.last_record_at).map(UtcMs),
        Some(execution.started_at),
    ];
    let last_sign = signs.into_iter().flatten().max().unwrap_or(execution.started_at);
    Ok(UtcMs(newest) <= last_sign.plus(view.inputs.policy.leases.ttl))
}

/// From the state after the last succeeded step: what a failed or lost execution left is kept, then put away.
fn start_over(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    (view, step): (&RunView, &StepKey),
) -> Result<(), EngineError> {
    let last_good = last_good(host, copy, (view, step))?;
    copy.save_and_restore(host, held, &last_good, Some(step))
}

/// The state before the step's newest execution: what agents and commands that are done have made, and nothing of its own.
fn last_good(host: &Host<'_>, copy: &Copy, (view, step): (&RunView, &StepKey)) -> Result<String, EngineError> {
    if let Some(before) = host.repo.pinned(view.run.id.as_str(), &before_pin(step))? {
        return Ok(before);
    }
    Ok(view.checkpoints.iter().rev().find_map(|c| c.commit.clone()).unwrap_or_else(|| copy.start.clone()))
}
