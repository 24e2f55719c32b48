//! One attempt, step by step. The loop has one rhythm: ask the domain which moves are due, commit them together with what
//! came before, carry them out, wait for the next message.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::clocks::{self, Watched};
use super::error::EngineError;
use super::held::Held;
use super::host::{Host, Inbox, Message, now};
use super::meter::Meter;
use super::observer::{Notice, Observer};
use super::steps::agent::{AtWork, Call};
use super::steps::{Execution, agent, command, context, step_limit};
use super::workspace::Copy;
use crate::artifacts::collect::{Collection, collect};
use crate::domain::agent_event::AgentEvent;
use crate::domain::budget::Breach;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::StepKey;
use crate::domain::outcome::{ProcessEnd, TimeoutLayer};
use crate::domain::plan::pipeline::{self, Move};
use crate::domain::quantity::{BootMs, Millis};
use crate::domain::record::{CheckpointRecord, RunRecord};
use crate::domain::run::PhaseEvent;
use crate::domain::step::{StepEvent, StepState};
use crate::domain::task::{StepBody, StepKind, StepSpec, When};
use crate::domain::template::{ConditionValues, PromptRun, holds};
use crate::process::signals::{Press, StopSignal};
use crate::process::{Activity, ChildEvent, ChildId, Ending, Haste, StartProblem, Status};

/// Why everything is being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A signal to agentrun.
    Signal(StopSignal),
    /// A person said `cancel`.
    Cancel,
    /// A limit was crossed.
    Budget(Breach),
    /// Another process has taken the run over.
    LeaseLost,
    /// The attempt's or run's own clock, or an error of agentrun's own: the step says which.
    Failed(Failure),
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Every step is done.
    Done,
    /// A step failed for this reason.
    Failed(Failure),
    /// Stopped from outside or at a limit.
    Stopped(Cause),
}

/// What an attempt is carried out with.
pub struct Attempt<'a> {
    /// The machine.
    pub host: &'a Host<'a>,
    /// The record.
    pub held: &'a mut Held,
    /// The run as it was claimed.
    pub run: &'a RunRecord,
    /// The working copy.
    pub copy: &'a Copy,
    /// Messages.
    pub inbox: &'a Inbox,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
    /// Limits and sums.
    pub meter: Meter,
    /// How agents are called that were cut or sent back earlier: by step.
    pub calls: BTreeMap<StepKey, (Call, Option<String>)>,
    /// Until when the attempt may take.
    pub attempt_until: BootMs,
    /// Until when the run may take.
    pub run_until: BootMs,
    /// The steps that have a process now.
    pub active: Vec<Active>,
    /// Set once everything is being stopped.
    pub stopping: Option<Cause>,
    /// How often each step was executed in this attempt: names its log files.
    pub nth: BTreeMap<StepKey, u32>,
    /// Children started so far.
    pub children: u64,
}

/// A step that has a process.
pub struct Active {
    step: StepSpec,
    execution: Execution,
    started: BootMs,
    /// Its active time is recorded up to here.
    counted_until: BootMs,
    child: ChildId,
    activity: Activity,
    at_work: Option<AtWork>,
    cause: Option<ProcessEnd>,
    side_bytes: u64,
    side_grew_at: Option<BootMs>,
}

impl Attempt<'_> {
    /// Carries out everything that is due, until nothing is or everything was stopped.
    pub fn carry_out(mut self) -> Result<AttemptEnd, EngineError> {
        loop {
            let moves = if self.stopping.is_some() { Vec::new() } else { self.due() };
            for step_move in &moves {
                self.stage_move(step_move)?;
            }
            self.held.commit()?;
            for step_move in &moves {
                self.carry_out_move(step_move)?;
            }
            if !self.active.is_empty() {
                self.wait()?;
            } else if moves.is_empty() || self.stopping.is_some() {
                return self.end();
            }
        }
    }

    fn due(&self) -> Vec<Move> {
        let inputs = &self.held.inputs;
        let evaluate = |step: &StepSpec| match &step.when {
            When::Expression(text) => {
                let values = ConditionValues {
                    inputs: inputs.spec.inputs.clone(),
                    run: PromptRun::of(self.run.id.as_str(), &self.run.components.base_commit),
                    steps: self.held.states(),
                };
                // Checked when the task was read; what fails here all the same does not run.
                holds(text, &values).unwrap_or(false)
            }
            _ => true,
        };
        pipeline::due(&inputs.spec, &self.held.steps, self.held.hold.attempt, &evaluate)
    }

    fn stage_move(&mut self, step_move: &Move) -> Result<(), EngineError> {
        let failure = step_move
            .because_of
            .as_ref()
            .map(|key| Failure::new(Code::StepBlocked, format!("step `{key}` did not succeed")));
        let kind = self.held.inputs.spec.step(&step_move.step).map(StepSpec::kind);
        if kind == Some(StepKind::Qa) && step_move.event != StepEvent::Block {
            self.held.move_phase(PhaseEvent::RecheckQa)?;
        }
        self.held.stage(Change::Step {
            step: step_move.step.clone(),
            event: step_move.event,
            failure,
            because_of: step_move.because_of.clone(),
        })
    }

    fn carry_out_move(&mut self, step_move: &Move) -> Result<(), EngineError> {
        let Some(step) = self.held.inputs.spec.step(&step_move.step).cloned() else { return Ok(()) };
        if !matches!(step_move.event, StepEvent::Begin | StepEvent::BeginAgain | StepEvent::Recheck) {
            self.tell_end(&step.key, Millis(0), None);
            return Ok(());
        }
        let what = command::shown(&step);
        self.observer.notice(&Notice::StepBegan { step: &step.key, kind: step.kind(), what });
        match step.kind() {
            StepKind::Context => {
                context::carry_out(self.host, self.held, &step.key)?;
                self.succeed(&step, Some("CONTEXT_PREPARED"), None, Millis(0))
            }
            StepKind::Report => self.succeed(&step, None, None, Millis(0)),
            StepKind::Agent | StepKind::Qa | StepKind::Command => self.launch(step),
        }
    }

    // ---- beginning -------------------------------------------------------------------------------------------------

    fn launch(&mut self, step: StepSpec) -> Result<(), EngineError> {
        let nth = self.nth.entry(step.key.clone()).or_insert(0);
        *nth += 1;
        let number = self.held.step(&step.key).map_or(1, |s| s.runs);
        let execution = Execution { step: step.key.clone(), attempt: self.held.hold.attempt, nth: *nth, number };
        let built = match step.kind() {
            StepKind::Agent => self.build_agent(&step, &execution),
            _ => self.build_command(&step, &execution).map(|spec| (spec, None)),
        };
        let (spec, at_work) = match built {
            Ok(built) => built,
            // A step that cannot be started is a failed step, not a failed agentrun.
            Err(error) => {
                let failure = error.failure();
                let end = ProcessEnd::FailedToStart { message: failure.message.clone() };
                return self.fail(&step, end, failure, Millis(0));
            }
        };
        let (sender, key) = (self.inbox.sender.clone(), step.key.clone());
        let sink = Box::new(move |event| {
            let _ = sender.send(Message::Child(key.clone(), event));
        });
        let child = ChildId(self.next_child());
        let activity = self.host.supervisor.spawn(child, spec, sink);
        let started = now().boot;
        self.active.push(Active { step, execution, started, counted_until: started, child, activity, at_work, cause: None, side_bytes: 0, side_grew_at: None });
        Ok(())
    }

    fn next_child(&mut self) -> u64 {
        self.children += 1;
        self.children
    }

    fn watch(&self, key: &StepKey, dir: std::path::PathBuf) {
        if let Some(active) = self.active.iter().find(|a| a.step.key == *key) {
            self.host.supervisor.watch(active.child, dir);
        }
    }

    fn build_command(
        &self,
        step: &StepSpec,
        execution: &Execution,
    ) -> Result<crate::process::spec::CommandSpec, EngineError> {
        let (StepBody::Qa { run, .. } | StepBody::Command { run }) = &step.body else {
            return Err(EngineError::failed(Code::Internal, format!("step `{}` has no command", step.key)));
        };
        command::spec(&command::CommandRequest {
            host: self.host,
            hold: &self.held.hold,
            inputs: &self.held.inputs,
            step,
            run,
            execution,
            dir: self.copy.workspace.dir(),
        })
    }

    fn build_agent(
        &mut self,
        step: &StepSpec,
        execution: &Execution,
    ) -> Result<(crate::process::spec::CommandSpec, Option<AtWork>), EngineError> {
        if let Some(breach) = self.meter.exhausted() {
            self.stopping = Some(Cause::Budget(breach));
            return Err(EngineError::failed(Code::BudgetExceeded, breach.to_string()));
        }
        self.copy.snapshot(self.host, self.held, Some(&step.key))?;
        let (call, session) = self.calls.remove(&step.key).unwrap_or((Call::Fresh, None));
        let (spec, at_work) = agent::start(&agent::AgentCall {
            host: self.host,
            hold: &self.held.hold,
            run: self.run,
            inputs: &self.held.inputs,
            execution,
            dir: self.copy.workspace.dir(),
            call: &call,
            session: session.as_deref(),
            budget: &self.budget_for_agent(),
        })?;
        Ok((spec, Some(at_work)))
    }

    /// What an agent is told of its limits: name, limit, used and left, never a bare amount (FR-F35).
    fn budget_for_agent(&self) -> String {
        use crate::domain::budget::LimitKind;
        let shown = |kind: LimitKind| matches!(kind, LimitKind::Tokens | LimitKind::ToolCalls);
        let rows: Vec<String> = self
            .meter
            .limited()
            .into_iter()
            .filter(|(_, kind, ..)| shown(*kind))
            .map(|(scope, kind, limit, used)| {
                format!("- {scope}.{kind}: limit {limit}, used {used}, left {}", limit.saturating_sub(used))
            })
            .collect();
        if rows.is_empty() { String::new() } else { format!("\n\nLimits of this work:\n{}\n", rows.join("\n")) }
    }

    // ---- waiting ---------------------------------------------------------------------------------------------------

    fn wait(&mut self) -> Result<(), EngineError> {
        let until = self.next_deadline();
        let present = now().boot;
        let timeout = Duration::from_millis(until.0.saturating_sub(present.0));
        match self.inbox.receiver.recv_timeout(timeout) {
            Ok(Message::Child(key, event)) => self.child(&key, event)?,
            Ok(Message::Signal(signal)) => self.signal(signal)?,
            Ok(Message::LeaseLost) => self.stop_all(&Cause::LeaseLost, Haste::Now),
            Ok(Message::CancelRequested) => self.stop_all(&Cause::Cancel, Haste::Polite),
            Err(RecvTimeoutError::Timeout) => self.strike()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(EngineError::failed(Code::Internal, "the inbox was closed"));
            }
        }
        Ok(())
    }

    /// The next moment at which something must be looked at even if nothing is heard.
    fn next_deadline(&self) -> BootMs {
        let clocks = self.active.iter().filter(|a| a.cause.is_none()).map(|a| self.next_clock(a).0);
        // Side files are watched; where the file system does not tell of changes, this look is what finds them.
        let agents = self.active.iter().filter(|a| a.at_work.is_some());
        let look = agents.map(|a| {
            let pause = if a.at_work.as_ref().is_some_and(|w| w.watched) { 1_000 } else { 20 };
            BootMs(now().boot.0 + pause)
        });
        let time = self.time_limit_at();
        clocks.chain(look).chain(time).min().unwrap_or(BootMs(now().boot.0 + 60_000))
    }

    fn next_clock(&self, active: &Active) -> (BootMs, TimeoutLayer) {
        let at_work = active.at_work.as_ref();
        let watched = Watched {
            started: active.started,
            last_byte: active.last_sign(),
            result_at: at_work.and_then(|w| w.result_at),
            in_tool: at_work.is_some_and(|w| !w.open_tools.is_empty()),
            is_agent: at_work.is_some(),
            step: step_limit(&self.held.inputs, &active.step.key),
            attempt_until: self.attempt_until,
            run_until: self.run_until,
        };
        clocks::next(&watched, &self.held.inputs.policy.timeouts)
    }

    /// When the time budget ends, if everything that is active stays active.
    fn time_limit_at(&self) -> Option<BootMs> {
        if self.stopping.is_some() {
            return None;
        }
        let left = self.meter.time_left()?;
        let present = now().boot.0;
        let unrecorded: u64 = self.active.iter().map(|a| present.saturating_sub(a.counted_until.0)).sum();
        let still = left.0.saturating_sub(unrecorded) / (self.active.len().max(1) as u64);
        Some(BootMs(present + still + 1))
    }

    /// A deadline passed without a message: which clocks have struck, what do the side files say?
    fn strike(&mut self) -> Result<(), EngineError> {
        let keys: Vec<StepKey> =
            self.active.iter().filter(|a| a.at_work.is_some()).map(|a| a.step.key.clone()).collect();
        for key in keys {
            self.read_side_files(&key)?;
        }
        let present = now().boot;
        for i in 0..self.active.len() {
            let (at, layer) = self.next_clock(&self.active[i]);
            if at <= present && self.active[i].cause.is_none() {
                self.stop_one(i, ProcessEnd::TimedOut { layer }, Haste::Polite);
            }
        }
        self.check_budget();
        Ok(())
    }

    fn stop_one(&mut self, i: usize, cause: ProcessEnd, haste: Haste) {
        let active = &mut self.active[i];
        active.cause.get_or_insert(cause);
        self.host.supervisor.stop(active.child, haste);
    }

    fn stop_all(&mut self, cause: &Cause, haste: Haste) {
        let end = match cause {
            Cause::Signal(_) => ProcessEnd::Interrupted,
            Cause::Cancel => ProcessEnd::Canceled,
            Cause::Budget(_) => ProcessEnd::OverBudget,
            Cause::LeaseLost => ProcessEnd::LeaseLost,
            Cause::Failed(_) => ProcessEnd::Interrupted,
        };
        if self.stopping.is_none() {
            self.observer.notice(&Notice::Stopping { why: &describe(cause) });
            self.stopping = Some(cause.clone());
        }
        for i in 0..self.active.len() {
            self.stop_one(i, end.clone(), haste);
        }
    }

    /// A signal: the first stops politely, a second at once. A `cancel` wakes its holder by a signal, too.
    fn signal(&mut self, signal: StopSignal) -> Result<(), EngineError> {
        let haste = if signal.press == Press::Again { Haste::Now } else { Haste::Polite };
        let canceled = self.held.store().find_run(&self.held.hold.run)?.is_some_and(|run| run.cancel_requested);
        let cause = if canceled { Cause::Cancel } else { Cause::Signal(signal) };
        self.stop_all(&cause, haste);
        Ok(())
    }

    fn check_budget(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let present = now().boot.0;
        let unrecorded: u64 = self.active.iter().map(|a| present.saturating_sub(a.counted_until.0)).sum();
        if let Some(breach) = self.meter.breach(Millis(unrecorded)) {
            self.stop_all(&Cause::Budget(breach), Haste::Polite);
        }
    }

    // ---- messages of a child ---------------------------------------------------------------------------------------

    fn child(&mut self, key: &StepKey, event: ChildEvent) -> Result<(), EngineError> {
        match event {
            ChildEvent::Started(child) => self.held.record([Change::Child { step: key.clone(), child }]),
            ChildEvent::Line(line) => {
                let events = self.at_work(key).map(|w| w.reader.stdout_line(&line)).unwrap_or_default();
                self.agent_events(key, &events)?;
                self.read_side_files(key)
            }
            ChildEvent::LineTooLong { bytes } => {
                self.warn(Some(key), &format!("a line of {bytes} bytes was kept in the log and not interpreted"))
            }
            ChildEvent::FilesChanged => self.read_side_files(key),
            ChildEvent::Ended(ending) => self.ended(key, &ending),
        }
    }

    fn at_work(&mut self, key: &StepKey) -> Option<&mut AtWork> {
        self.active.iter_mut().find(|a| a.step.key == *key).and_then(|a| a.at_work.as_mut())
    }

    fn read_side_files(&mut self, key: &StepKey) -> Result<(), EngineError> {
        let Some(at_work) = self.at_work(key) else { return Ok(()) };
        let events = at_work.reader.side_files();
        let watch = if at_work.watched { None } else { at_work.reader.watch() };
        at_work.watched |= watch.is_some();
        if let Some(dir) = watch {
            self.watch(key, dir);
        }
        if let Some(active) = self.active.iter_mut().find(|a| a.step.key == *key) {
            active.note_side_bytes();
        }
        self.agent_events(key, &events)
    }

    /// Counts and records what events say, then tells of them, then looks at the limits: the stop falls into the gap
    /// between a model's reply and the end of the tool that it called.
    fn agent_events(&mut self, key: &StepKey, events: &[AgentEvent]) -> Result<(), EngineError> {
        if events.is_empty() {
            return Ok(());
        }
        let present = now().boot;
        let Some(active) = self.active.iter_mut().find(|a| a.step.key == *key) else { return Ok(()) };
        let spent = Millis(present.0.saturating_sub(active.started.0));
        let Some(at_work) = active.at_work.as_mut() else { return Ok(()) };
        let told = at_work.take(events, present);
        if !told.items.is_empty() {
            active.counted_until = present;
        }
        if let Some((session, model)) = told.session {
            self.held.stage(Change::Session { step: key.clone(), session, model })?;
        }
        let counted = !told.items.is_empty();
        if counted {
            self.held.stage(Change::Usage { step: key.clone(), items: told.items, active: spent })?;
        }
        self.held.commit()?;
        for event in events {
            self.tell_event(key, event)?;
        }
        if counted {
            self.meter.refresh(self.held)?;
            self.observer.notice(&Notice::Used { attempt: &self.meter.attempt, task: &self.meter.task });
            self.check_budget();
        }
        Ok(())
    }

    fn tell_event(&mut self, key: &StepKey, event: &AgentEvent) -> Result<(), EngineError> {
        match event {
            AgentEvent::Message { text } => self.observer.notice(&Notice::Said { step: key, text }),
            AgentEvent::ToolCall { summary, .. } => self.observer.notice(&Notice::Tool { step: key, summary }),
            AgentEvent::Warning { text } => self.warn(Some(key), text)?,
            _ => {}
        }
        Ok(())
    }

    fn warn(&mut self, step: Option<&StepKey>, text: &str) -> Result<(), EngineError> {
        self.held.note(EventKind::WarningRaised, step, text)?;
        self.held.commit()?;
        self.observer.notice(&Notice::Warning { text });
        Ok(())
    }

    // ---- ending ----------------------------------------------------------------------------------------------------

    fn ended(&mut self, key: &StepKey, ending: &Ending) -> Result<(), EngineError> {
        self.read_side_files(key)?;
        let Some(i) = self.active.iter().position(|a| a.step.key == *key) else { return Ok(()) };
        let active = self.active.remove(i);
        let took = Millis(now().boot.0.saturating_sub(active.started.0));
        let end = active.cause.clone().unwrap_or_else(|| own_end(&ending.status));
        self.note_ending(key, ending)?;
        match active.at_work {
            Some(at_work) => self.agent_ended(&active.step, at_work, (end, ending), took),
            None => self.command_ended(&active.step, &active.execution, (end, ending), took),
        }
    }

    /// What was unusual about the end: a leak, processes that had to be ended, a harder signal, a cut log.
    fn note_ending(&mut self, key: &StepKey, ending: &Ending) -> Result<(), EngineError> {
        let mut remarks = Vec::new();
        if ending.leaked {
            remarks.push("output_drain=timeout: something outside kept the output open".to_owned());
        }
        if ending.orphans_killed > 0 {
            remarks.push(format!("orphans_killed={}: processes it had left were ended", ending.orphans_killed));
        }
        if ending.stop.as_ref().is_some_and(|stop| stop.escalated) {
            remarks.push("kill_escalated=true: it did not end when asked".to_owned());
        }
        if ending.truncated {
            remarks.push("truncated=true: its log reached the size limit".to_owned());
        }
        for remark in &remarks {
            self.held.note(EventKind::WarningRaised, Some(key), remark)?;
        }
        Ok(())
    }

    fn command_ended(
        &mut self,
        step: &StepSpec,
        execution: &Execution,
        (end, ending): (ProcessEnd, &Ending),
        took: Millis,
    ) -> Result<(), EngineError> {
        let failure = command::verdict(step.kind(), step, &end).map(|failure| start_failure(failure, &ending.status));
        match failure {
            None => {
                let name = (step.kind() == StepKind::Qa).then_some("QA_PASSED");
                self.held.stage(execution_change(&step.key, end, None, took))?;
                self.succeed(step, name, None, took)
            }
            Some(failure) if stopped_from_outside(failure.code) => self.interrupt(step, end, took),
            Some(failure) => {
                self.held.stage(execution_change(&step.key, end, None, took))?;
                if failure.code == Code::QaFailed {
                    self.held.move_phase(PhaseEvent::FailQa)?;
                }
                self.held.move_step(&step.key, StepEvent::Fail, Some(failure.clone()))?;
                if failure.code == Code::QaFailed {
                    self.send_back(step, execution, ending)?;
                }
                self.tell_end(&step.key, took, Some(&failure));
                Ok(())
            }
        }
    }

    /// Sends the agent back with the failing output, if rounds are left (R-R2).
    fn send_back(&mut self, step: &StepSpec, execution: &Execution, ending: &Ending) -> Result<(), EngineError> {
        let StepBody::Qa { on_fail: Some(back), .. } = &step.body else { return Ok(()) };
        let rounds = self.held.step(&step.key).map_or(0, |s| s.rounds);
        let agent_is_done = self.held.step(&back.send_back_to).is_some_and(|s| s.state == StepState::Succeeded);
        if rounds >= back.rounds || !agent_is_done || self.stopping.is_some() {
            return Ok(());
        }
        let output = output_tail(ending);
        let again = pipeline::sent_back(&self.held.inputs.spec, &self.held.steps, &back.send_back_to, &step.key);
        for key in again {
            self.held.stage(Change::Step {
                step: key,
                event: StepEvent::SendBack,
                failure: None,
                because_of: Some(step.key.clone()),
            })?;
        }
        let session = self.last_session(&back.send_back_to)?;
        let call = Call::SentBack { check: execution.step.clone(), output };
        self.calls.insert(back.send_back_to.clone(), (call, session));
        Ok(())
    }

    /// The conversation of the newest execution of a step, where the agent can go on in one.
    fn last_session(&self, key: &StepKey) -> Result<Option<String>, EngineError> {
        let view = self.held.store().view(&self.held.hold.run)?;
        Ok(view.executions.iter().rev().find(|e| e.step == *key).and_then(|e| e.session.clone()))
    }

    fn agent_ended(
        &mut self,
        step: &StepSpec,
        mut at_work: AtWork,
        (end, ending): (ProcessEnd, &Ending),
        took: Millis,
    ) -> Result<(), EngineError> {
        let stderr = String::from_utf8_lossy(&ending.stderr_tail).into_owned();
        let told = at_work.reader.finish(&end, &stderr);
        for warning in &told.warnings {
            self.warn(Some(&step.key), warning)?;
        }
        let failure = agent::failure_of(&told).map(|failure| start_failure(failure, &ending.status));
        self.meter.refresh(self.held)?;
        match failure {
            None => {
                self.copy.check_guard(self.host).or_else(|error| self.tampered(step, &error))?;
                if self.stopping.as_ref().is_some_and(|c| matches!(c, Cause::Failed(_))) {
                    return self.fail(step, end, Failure::new(Code::GitTamper, "the git folder was changed"), took);
                }
                self.held.stage(execution_change(&step.key, end, told.result, took))?;
                let snapshot = self.copy.snapshot(self.host, self.held, Some(&step.key))?;
                self.succeed(step, Some("CODE_GENERATED"), Some(snapshot.commit), took)
            }
            Some(failure) if stopped_from_outside(failure.code) => self.interrupt(step, end, took),
            Some(failure) => self.fail(step, end, failure, took),
        }
    }

    fn tampered(&mut self, step: &StepSpec, error: &EngineError) -> Result<(), EngineError> {
        let failure = error.failure();
        self.held.note(EventKind::WarningRaised, Some(&step.key), &failure.message)?;
        self.stopping = Some(Cause::Failed(failure));
        Ok(())
    }

    /// Keeps the step's artifacts, records the checkpoint (R-S3), ends the step: one commit.
    fn succeed(
        &mut self,
        step: &StepSpec,
        checkpoint: Option<&str>,
        commit: Option<String>,
        took: Millis,
    ) -> Result<(), EngineError> {
        let artifacts = match self.keep_artifacts(step)? {
            Ok(artifacts) => artifacts,
            Err(failure) => {
                self.held.move_step(&step.key, StepEvent::Fail, Some(failure.clone()))?;
                self.tell_end(&step.key, took, Some(&failure));
                return Ok(());
            }
        };
        self.held.stage(Change::Checkpoint(CheckpointRecord {
            name: checkpoint.map_or_else(|| step.key.to_string(), ToOwned::to_owned),
            step: step.key.clone(),
            attempt: self.held.hold.attempt,
            commit,
            policy_version: self.held.inputs.policy.version.clone(),
            artifacts,
            at: now().utc,
        }))?;
        self.held.move_step(&step.key, StepEvent::Succeed, None)?;
        if step.kind() == StepKind::Qa && self.all_checks_green() {
            self.held.move_phase(PhaseEvent::PassQa)?;
        }
        self.tell_end(&step.key, took, None);
        if step.kind() == StepKind::Agent {
            // An agent's work is expensive: its end is on disk before anything else happens.
            self.held.commit()?;
            super::closing::write_manifest(self.host, self.held)?;
        }
        Ok(())
    }

    /// Keeps what the step's `artifacts:` name; the failure is for a glob without a match.
    fn keep_artifacts(&mut self, step: &StepSpec) -> Result<Result<BTreeMap<String, Sha256Hash>, Failure>, EngineError> {
        if step.artifacts.is_empty() {
            return Ok(Ok(BTreeMap::new()));
        }
        let run = &self.held.hold.run;
        let collected = collect(&Collection {
            workspace: self.copy.workspace.dir(),
            home: self.host.home,
            run_dir: &self.host.home.run_dir(run)?,
            step: &step.key,
            attempt: self.held.hold.attempt,
            wanted: &step.artifacts,
            recorded: &self.held.store().view(run)?.artifacts,
        })?;
        for skipped in &collected.skipped {
            let remark = format!("{} was not kept: {}", skipped.path, skipped.reason);
            self.held.note(EventKind::WarningRaised, Some(&step.key), &remark)?;
        }
        if let Some(failure) = collected.failure() {
            return Ok(Err(failure));
        }
        let hashes = collected.kept.iter().map(|a| (a.path.clone(), a.sha256)).collect();
        for artifact in collected.kept {
            self.held.stage(Change::Artifact(artifact))?;
        }
        Ok(Ok(hashes))
    }

    fn all_checks_green(&self) -> bool {
        let checks = self.held.steps.iter().filter(|s| s.kind == StepKind::Qa);
        checks.into_iter().all(|s| matches!(s.state, StepState::Succeeded | StepState::Skipped))
    }

    fn fail(&mut self, step: &StepSpec, end: ProcessEnd, failure: Failure, took: Millis) -> Result<(), EngineError> {
        if failure.code == Code::BudgetExceeded {
            return self.interrupt(step, end, took);
        }
        self.held.stage(execution_change(&step.key, end, None, took))?;
        self.held.move_step(&step.key, StepEvent::Fail, Some(failure.clone()))?;
        self.tell_end(&step.key, took, Some(&failure));
        Ok(())
    }

    /// A step that was cut goes back to PENDING: the next attempt takes it up.
    fn interrupt(&mut self, step: &StepSpec, end: ProcessEnd, took: Millis) -> Result<(), EngineError> {
        self.held.stage(execution_change(&step.key, end, None, took))?;
        self.held.move_step(&step.key, StepEvent::Interrupt, None)?;
        self.tell_end(&step.key, took, None);
        Ok(())
    }

    fn tell_end(&mut self, key: &StepKey, took: Millis, failure: Option<&Failure>) {
        let state = self.held.step(key).map_or(StepState::Pending, |s| s.state);
        self.observer.notice(&Notice::StepEnded { step: key, state, took, failure });
    }

    fn end(mut self) -> Result<AttemptEnd, EngineError> {
        self.held.commit()?;
        if let Some(cause) = self.stopping.take() {
            return Ok(match cause {
                Cause::Failed(failure) => AttemptEnd::Failed(failure),
                cause => AttemptEnd::Stopped(cause),
            });
        }
        let failed = pipeline::failed_step(&self.held.steps, self.held.hold.attempt);
        Ok(match failed {
            None => AttemptEnd::Done,
            Some(step) => AttemptEnd::Failed(Failure {
                code: step.code.unwrap_or(Code::Internal),
                message: format!("step `{}`: {}", step.key, step.message.as_deref().unwrap_or("failed")),
                retry_after: None,
            }),
        })
    }
}

impl Active {
    /// The last sign of life: a byte on a stream, or a side file that grew.
    fn last_sign(&self) -> Option<BootMs> {
        self.activity.last().max(self.side_grew_at)
    }

    fn note_side_bytes(&mut self) {
        let bytes = self.at_work.as_ref().map_or(0, |w| w.reader.side_bytes());
        if bytes > self.side_bytes {
            self.side_bytes = bytes;
            self.side_grew_at = Some(now().boot);
        }
    }
}

/// Why everything is being stopped, in words.
pub fn describe(cause: &Cause) -> String {
    match cause {
        Cause::Signal(signal) => format!("{} received: stopping the process tree and keeping the work", signal.kind.name()),
        Cause::Cancel => "canceled: stopping the process tree and keeping the work".to_owned(),
        Cause::Budget(breach) => breach.to_string(),
        Cause::LeaseLost => "another process has taken this run over".to_owned(),
        Cause::Failed(failure) => failure.message.clone(),
    }
}

fn execution_change(step: &StepKey, end: ProcessEnd, result: Option<String>, active: Millis) -> Change {
    Change::Execution { step: step.clone(), end, result, active }
}

/// How a process ended that nobody stopped.
fn own_end(status: &Status) -> ProcessEnd {
    match status {
        Status::Exited(code) => ProcessEnd::Exited { code: *code },
        Status::Signalled(signal) => ProcessEnd::Signalled { signal: *signal },
        Status::Vanished => ProcessEnd::Vanished,
        Status::FailedToStart { message, .. } => ProcessEnd::FailedToStart { message: message.clone() },
    }
}

/// A machine that is out of processes is no missing program.
fn start_failure(failure: Failure, status: &Status) -> Failure {
    match status {
        Status::FailedToStart { problem: StartProblem::Limit, message } => {
            Failure::new(Code::EnvLimit, message.clone())
        }
        _ => failure,
    }
}

/// Codes under which a step did not fail but was cut.
fn stopped_from_outside(code: Code) -> bool {
    matches!(code, Code::BudgetExceeded | Code::Canceled | Code::Interrupted | Code::Fenced)
}

/// The end of a check's output, for the agent and for the report.
fn output_tail(ending: &Ending) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (out, err) = (text(&ending.stdout_tail), text(&ending.stderr_tail));
    match (out.is_empty(), err.is_empty()) {
        (_, true) => out,
        (true, false) => err,
        (false, false) => format!("{out}\n{err}"),
    }
}
