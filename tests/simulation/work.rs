//! The loop of an attempt: what is due is committed, then carried out; then one message at a time. Mirrors
//! `engine::attempt`, whose rhythm it keeps: the pipeline, the clocks and the limits that it asks are the engine's own.

use agentrun::domain::change::{Change, ExecutionEnd, StepMove};
use agentrun::domain::failure::{Code, Failure};
use agentrun::domain::ids::StepKey;
use agentrun::domain::outcome::{ProcessEnd, TimeoutLayer};
use agentrun::domain::plan::pipeline::{self, Move};
use agentrun::domain::quantity::{BootMs, Millis};
use agentrun::domain::run::PhaseEvent;
use agentrun::domain::step::{StepEvent, StepState};
use agentrun::domain::task::{StepBody, StepKind, StepSpec};
use agentrun::engine::attempt::{AttemptEnd, Cause};
use agentrun::engine::clocks::{self, Watched};
use agentrun::engine::error::EngineError;
use agentrun::engine::meter::Meter;
use agentrun::engine::steps::command;

use crate::children::{Child, Ends, failure_of, fortune};
use crate::holder::{Holder, Stage, Turned};
use crate::planted::Planted;
use crate::worker::Message;
use crate::world::World;

/// An attempt under way.
pub(crate) struct Work {
    meter: Meter,
    until: BootMs,
    active: Vec<Active>,
    /// Committed as begun, not yet carried out.
    begun: Vec<Move>,
    stopping: Option<Cause>,
}

/// A step that has a process.
struct Active {
    step: StepSpec,
    number: u32,
    started: BootMs,
    last_sign: Option<BootMs>,
    /// Responses of its transcript that were counted.
    read: usize,
    cause: Option<ProcessEnd>,
}

impl Work {
    pub(crate) fn new(meter: Meter, until: BootMs) -> Self {
        Self { meter, until, active: Vec::new(), begun: Vec::new(), stopping: None }
    }

    fn next_clock(&self, active: &Active, holder: &Holder) -> (BootMs, TimeoutLayer) {
        let timeouts = &holder.held.inputs.policy.timeouts;
        let watched = Watched {
            started: active.started,
            last_byte: active.last_sign,
            result_at: None,
            in_tool: false,
            is_agent: active.step.kind() == StepKind::Agent,
            step: timeouts.step,
            attempt_until: self.until,
            run_until: holder.run_until,
        };
        clocks::next(&watched, timeouts)
    }

    fn unrecorded(&self, present: BootMs) -> Millis {
        Millis(self.active.iter().map(|a| present.0.saturating_sub(a.last_sign.unwrap_or(a.started).0)).sum())
    }

    /// The next moment at which something strikes though nothing is heard.
    pub(crate) fn next_deadline(&self, holder: &Holder, present: BootMs) -> Option<BootMs> {
        let clocks = self.active.iter().filter(|a| a.cause.is_none()).map(|a| self.next_clock(a, holder).0);
        let left = self.meter.time_left().filter(|_| self.stopping.is_none() && !self.active.is_empty());
        let limit = left.map(|l| BootMs(present.0 + l.0.saturating_sub(self.unrecorded(present).0) + 1));
        clocks.chain(limit).min()
    }

    /// Whether a turn would do nothing: no clock has struck, no limit is crossed.
    pub(crate) fn waits(&self, holder: &Holder, present: BootMs) -> bool {
        let has_struck = |a: &Active| a.cause.is_none() && self.next_clock(a, holder).0 <= present;
        let is_over = self.stopping.is_none() && self.meter.breach(self.unrecorded(present)).is_some();
        !self.active.is_empty() && self.begun.is_empty() && !is_over && !self.active.iter().any(has_struck)
    }
}

impl World<'_> {
    pub(crate) fn work(&mut self, w: usize, holder: &mut Holder, mut work: Box<Work>) -> Turned {
        if !work.begun.is_empty() {
            for step_move in std::mem::take(&mut work.begun) {
                self.carry_out(w, holder, &mut work, &step_move)?;
            }
            return Ok(Stage::Work(work));
        }
        // Without a process of its own the loop does not wait, and hears nothing.
        if !work.active.is_empty() {
            match self.workers[w].inbox.pop_front() {
                Some(message) => self.hear(w, holder, &mut work, message)?,
                None => self.strike(holder, &mut work),
            }
        }
        let moves = if work.stopping.is_some() { Vec::new() } else { due(holder) };
        for step_move in &moves {
            self.stage_move(holder, step_move)?;
        }
        self.commit(w, holder)?;
        if work.active.is_empty() && (moves.is_empty() || work.stopping.is_some()) {
            return Ok(Stage::Rest(finish(holder, &mut work)));
        }
        work.begun = moves;
        Ok(Stage::Work(work))
    }

    fn stage_move(&mut self, holder: &mut Holder, step_move: &Move) -> Result<(), EngineError> {
        let kind = holder.held.inputs.spec.step(&step_move.step).map(StepSpec::kind);
        if begins(step_move.event) {
            if kind == Some(StepKind::Qa) {
                holder.held.move_phase(PhaseEvent::RecheckQa)?;
            }
            let allowed = self.truth.allowed;
            if self.truth.failed >= allowed && !self.truth.closed && holder.fence == self.truth.fence {
                self.broken(format!("R-R3: {} of {allowed} attempts had failed and one more began", self.truth.failed));
            }
        }
        let because_of = step_move.because_of.clone();
        let failure =
            because_of.as_ref().map(|key| Failure::new(Code::StepBlocked, format!("`{key}` did not succeed")));
        let moved = StepMove::new(&step_move.step, step_move.event);
        holder.held.stage(Change::Step(StepMove { failure, because_of, ..moved }))
    }

    fn carry_out(
        &mut self,
        w: usize,
        holder: &mut Holder,
        work: &mut Work,
        step_move: &Move,
    ) -> Result<(), EngineError> {
        let step = holder.held.inputs.spec.step(&step_move.step).cloned();
        let Some(step) = step.filter(|_| begins(step_move.event)) else { return Ok(()) };
        match step.kind() {
            StepKind::Context | StepKind::Report => self.succeed(w, holder, &step, None),
            StepKind::Agent if work.meter.exhausted().is_some() => {
                let breach = work.meter.exhausted().unwrap();
                let end = ProcessEnd::FailedToStart { message: breach.to_string() };
                work.stopping = Some(Cause::Budget(breach));
                let ended = ExecutionEnd { end, result: None, active: Millis(0) };
                interrupt(holder, &step.key, ended)
            }
            _ => {
                self.spawn_child(w, holder, work, step);
                Ok(())
            }
        }
    }

    fn spawn_child(&mut self, w: usize, holder: &Holder, work: &mut Work, step: StepSpec) {
        let number = holder.held.step(&step.key).map_or(1, |s| s.runs);
        let identity = self.new_identity();
        let (calls, ends) = fortune(step.kind(), &mut self.chance);
        let late = holder.fence != self.truth.fence;
        self.tell(format_args!("worker {w} starts {} {number}: {calls} calls, then {ends:?}", step.key));
        let child = Child {
            identity: identity.clone(),
            execution: (step.key.clone(), number),
            kind: step.kind(),
            owner: w,
            late,
            calls,
            in_flight: None,
            ends,
            stopping: false,
        };
        self.children.push(child);
        if step.kind() == StepKind::Agent {
            self.workers[w].inbox.push_back(Message::Started(step.key.clone(), identity));
        }
        let started = self.clock.boot();
        work.active.push(Active { step, number, started, last_sign: None, read: 0, cause: None });
    }

    fn hear(&mut self, w: usize, holder: &mut Holder, work: &mut Work, message: Message) -> Result<(), EngineError> {
        match message {
            Message::Started(step, child) => {
                holder.held.stage(Change::Child { step, child })?;
                self.commit(w, holder)
            }
            Message::Wrote(step) => self.read_on(w, holder, work, &step),
            Message::Ended(step, end, ends) => self.ended(w, holder, work, &step, end, ends),
            Message::LeaseLost => {
                self.stop_all(work, &Cause::LeaseLost);
                Ok(())
            }
            Message::CancelRequested => {
                self.stop_all(work, &Cause::Cancel);
                Ok(())
            }
            Message::Signal(signal) => {
                let record = holder.held.store().find_run(&holder.held.hold.run)?;
                let canceled = record.is_some_and(|run| run.cancel_requested);
                self.stop_all(work, &if canceled { Cause::Cancel } else { Cause::Signal(signal) });
                Ok(())
            }
        }
    }

    /// Counts what a transcript has new, commits it, holds it against the limits.
    fn read_on(&mut self, w: usize, holder: &mut Holder, work: &mut Work, key: &StepKey) -> Result<(), EngineError> {
        let present = self.clock.boot();
        let Some(active) = work.active.iter_mut().find(|a| a.step.key == *key) else { return Ok(()) };
        let items = self.items(key, active.number, active.read);
        if items.is_empty() {
            return Ok(());
        }
        active.read += items.len();
        active.last_sign = Some(present);
        let spent = Millis(present.0.saturating_sub(active.started.0));
        holder.held.stage(Change::Usage { step: key.clone(), items, active: spent })?;
        self.commit(w, holder)?;
        work.meter.refresh(&holder.held)?;
        self.check_budget(work);
        Ok(())
    }

    fn check_budget(&mut self, work: &mut Work) {
        let breach = work.meter.breach(work.unrecorded(self.clock.boot()));
        if let Some(breach) = breach.filter(|_| work.stopping.is_none()) {
            self.stop_all(work, &Cause::Budget(breach));
        }
    }

    /// A deadline passed: which clocks have struck?
    fn strike(&mut self, holder: &Holder, work: &mut Work) {
        let present = self.clock.boot();
        for i in 0..work.active.len() {
            let (at, layer) = work.next_clock(&work.active[i], holder);
            if at <= present && work.active[i].cause.is_none() {
                self.stop_one(&mut work.active[i], ProcessEnd::TimedOut { layer });
            }
        }
        self.check_budget(work);
    }

    fn stop_all(&mut self, work: &mut Work, cause: &Cause) {
        let end = match cause {
            Cause::Signal(_) => ProcessEnd::Interrupted,
            Cause::Cancel => ProcessEnd::Canceled,
            Cause::Budget(_) => ProcessEnd::OverBudget,
            Cause::LeaseLost => ProcessEnd::LeaseLost,
            // The agents of the simulation call no provider.
            Cause::Held(_) => ProcessEnd::Interrupted,
        };
        work.stopping.get_or_insert_with(|| cause.clone());
        for active in &mut work.active {
            self.stop_one(active, end.clone());
        }
    }

    fn stop_one(&mut self, active: &mut Active, cause: ProcessEnd) {
        let execution = (active.step.key.clone(), active.number);
        let child = self.children.iter_mut().find(|c| c.execution == execution);
        if let Some(child) = child {
            child.stopping = true;
        }
        active.cause.get_or_insert(cause);
    }

    fn ended(
        &mut self,
        w: usize,
        holder: &mut Holder,
        work: &mut Work,
        key: &StepKey,
        own_end: ProcessEnd,
        ends: Ends,
    ) -> Result<(), EngineError> {
        self.read_on(w, holder, work, key)?;
        let Some(i) = work.active.iter().position(|a| a.step.key == *key) else { return Ok(()) };
        let Active { step, started, cause, .. } = work.active.remove(i);
        let active = Millis(self.clock.boot().0.saturating_sub(started.0));
        let end = cause.unwrap_or(own_end);
        let failure = match step.kind() {
            StepKind::Agent => failure_of(&end, ends),
            kind => command::verdict(kind, &step, &end),
        };
        let ended = ExecutionEnd { end, result: None, active };
        match failure {
            None => self.succeed(w, holder, &step, Some(ended)),
            Some(failure) if is_cut(failure.code) => interrupt(holder, key, ended),
            Some(failure) => {
                let is_red = failure.code == Code::QaFailed;
                holder.held.retry_after(key, failure.retry_after);
                let (ended, failure) = (Some(ended), Some(failure));
                let moved = StepMove::new(key, StepEvent::Fail);
                holder.held.stage(Change::Step(StepMove { ended, failure, ..moved }))?;
                if is_red {
                    holder.held.move_phase(PhaseEvent::FailQa)?;
                    self.send_back(holder, work, &step)?;
                }
                Ok(())
            }
        }
    }

    fn send_back(&mut self, holder: &mut Holder, work: &Work, check: &StepSpec) -> Result<(), EngineError> {
        let StepBody::Qa { on_fail: Some(back), .. } = &check.body else { return Ok(()) };
        let rounds = holder.held.step(&check.key).map_or(0, |s| s.rounds);
        let used_up = rounds >= back.rounds && self.planted != Planted::RoundsWithoutEnd;
        let agent_is_done = holder.held.step(&back.send_back_to).is_some_and(|s| s.state == StepState::Succeeded);
        let is_lost = pipeline::fails_anyway(&holder.held.steps, holder.held.hold.attempt, &check.key);
        if used_up || !agent_is_done || is_lost || work.stopping.is_some() {
            return Ok(());
        }
        self.counts.send_backs += 1;
        for again in pipeline::sent_back(&holder.held.inputs.spec, &holder.held.steps, &back.send_back_to) {
            let because_of = Some(check.key.clone());
            let moved = StepMove::new(&again, StepEvent::SendBack);
            holder.held.stage(Change::Step(StepMove { because_of, ..moved }))?;
        }
        Ok(())
    }

    fn succeed(
        &mut self,
        w: usize,
        holder: &mut Holder,
        step: &StepSpec,
        ended: Option<ExecutionEnd>,
    ) -> Result<(), EngineError> {
        let checkpoint = Some(Self::checkpoint(&step.key));
        let moved = StepMove::new(&step.key, StepEvent::Succeed);
        holder.held.stage(Change::Step(StepMove { ended, checkpoint, ..moved }))?;
        match step.kind() {
            StepKind::Qa => holder.held.move_phase(PhaseEvent::PassQa),
            StepKind::Agent => self.commit(w, holder),
            _ => Ok(()),
        }
    }
}

fn due(holder: &Holder) -> Vec<Move> {
    pipeline::due(&holder.held.inputs.spec, &holder.held.steps, holder.held.hold.attempt, &|_| true)
}

fn finish(holder: &Holder, work: &mut Work) -> AttemptEnd {
    if let Some(cause) = work.stopping.take() {
        return AttemptEnd::Stopped(cause);
    }
    match pipeline::failed_step(&holder.held.steps, holder.held.hold.attempt) {
        None => AttemptEnd::Done,
        Some(step) => AttemptEnd::Failed(holder.held.failure_of(step)),
    }
}

fn interrupt(holder: &mut Holder, key: &StepKey, ended: ExecutionEnd) -> Result<(), EngineError> {
    let moved = StepMove::new(key, StepEvent::Interrupt);
    holder.held.stage(Change::Step(StepMove { ended: Some(ended), ..moved }))
}

fn begins(event: StepEvent) -> bool {
    matches!(event, StepEvent::Begin | StepEvent::BeginAgain | StepEvent::Recheck)
}

/// Codes under which a step did not fail but was cut.
fn is_cut(code: Code) -> bool {
    matches!(code, Code::BudgetExceeded | Code::Canceled | Code::Interrupted | Code::Fenced)
}
