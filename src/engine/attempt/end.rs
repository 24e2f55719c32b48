//! Settles what a child leaves when it has ended: its verdict, its artifacts, its checkpoint, and where the run goes on.

use std::collections::BTreeMap;

use super::{Active, ActiveAgent, Attempt};
use crate::agents::{AgentEnd, SessionFate};
use crate::domain::change::{Change, ExecutionEnd, Reached, StepMove};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::StepKey;
use crate::domain::outcome::ProcessEnd;
use crate::domain::plan::pipeline;
use crate::domain::quantity::Millis;
use crate::domain::run::PhaseEvent;
use crate::domain::step::{StepEvent, StepState};
use crate::domain::task::{StepBody, StepKind, StepSpec};
use crate::engine::closing;
use crate::engine::error::EngineError;
use crate::engine::host::now;
use crate::engine::kept::keep_artifacts;
use crate::engine::meter;
use crate::engine::steps::agent::Call;
use crate::engine::steps::command;
use crate::engine::workspace::mostly_gone;
use crate::process::{Ending, Haste, StartProblem, Status};

/// An execution that has ended.
struct Ended<'a> {
    step: &'a StepSpec,
    end: ProcessEnd,
    ending: &'a Ending,
    took: Millis,
}

impl Attempt<'_> {
    pub(super) fn ended(&mut self, key: &StepKey, ending: &Ending) -> Result<(), EngineError> {
        self.read_side_files(key)?;
        let Some(i) = self.active.iter().position(|a| a.step.key == *key) else { return Ok(()) };
        let Active { step, started, agent, cause, .. } = self.active.remove(i);
        let took = Millis(now().boot.0.saturating_sub(started.0));
        let end = cause.unwrap_or_else(|| own_end(&ending.status));
        self.note_ending(key, ending)?;
        let ended = Ended { step: &step, end, ending, took };
        match agent {
            Some(agent) => self.agent_ended(&ended, agent),
            None => self.command_ended(&ended),
        }
    }

    /// What was unusual about the end: a leak, processes that had to be ended, a harder signal, a cut log.
    fn note_ending(&mut self, key: &StepKey, ending: &Ending) -> Result<(), EngineError> {
        let mut remarks = Vec::new();
        if ending.leaked {
            remarks.push("output_drain=timeout: something outside its tree kept its output open".to_owned());
        }
        if ending.orphans_killed > 0 {
            remarks.push(format!("orphans_killed={}: processes it had left behind were ended", ending.orphans_killed));
        }
        if !ending.survivors.is_empty() {
            remarks.push(format!("survivors={:?}: processes that could not be ended", ending.survivors));
        }
        if ending.stop.as_ref().is_some_and(|stop| stop.escalated) {
            remarks.push("kill_escalated=true: it did not end when asked".to_owned());
        }
        if ending.truncated {
            remarks.push("truncated=true: its log is not complete".to_owned());
        }
        remarks.iter().try_for_each(|remark| self.held.note(EventKind::WarningRaised, Some(key), remark))
    }

    fn command_ended(&mut self, ended: &Ended<'_>) -> Result<(), EngineError> {
        let Ended { step, end, .. } = ended;
        match command::verdict(step.kind(), step, end).map(|f| start_failure(f, &ended.ending.status)) {
            None => {
                let name = if step.kind() == StepKind::Qa { "QA_PASSED" } else { step.key.as_str() };
                self.succeed(step, Success { name, commit: None, ended: Some(execution(ended, None)) })?;
                self.deployment_is(step, true)
            }
            Some(failure) if is_cut(failure.code) => self.interrupt(step, execution(ended, None)),
            Some(failure) => {
                let is_red = failure.code == Code::QaFailed;
                self.fail(step, execution(ended, None), failure)?;
                self.deployment_is(step, false)?;
                if is_red {
                    self.held.move_phase(PhaseEvent::FailQa)?;
                    self.send_back(ended)?;
                }
                Ok(())
            }
        }
    }

    /// Sends the agent back with the failing output, if rounds are left (R-R2).
    fn send_back(&mut self, ended: &Ended<'_>) -> Result<(), EngineError> {
        let StepBody::Qa { on_fail: Some(back), .. } = &ended.step.body else { return Ok(()) };
        let (key, agent) = (&ended.step.key, &back.send_back_to);
        let rounds = self.held.step(key).map_or(0, |s| s.rounds);
        let agent_is_done = self.held.step(agent).is_some_and(|s| s.state == StepState::Succeeded);
        let is_lost = pipeline::fails_anyway(&self.held.steps, self.held.hold.attempt, key);
        if rounds >= back.rounds || !agent_is_done || is_lost || self.stopping.is_some() {
            return Ok(());
        }
        for again in pipeline::sent_back(&self.held.inputs.spec, &self.held.steps, agent) {
            let because_of = Some(key.clone());
            self.held.stage(Change::Step(StepMove { because_of, ..StepMove::new(&again, StepEvent::SendBack) }))?;
        }
        self.stop_what_rests_on(agent);
        let session = self.last_session(agent)?;
        let call = Call::SentBack { check: key.clone(), output: output_tail(ended.ending) };
        self.calls.insert(agent.clone(), (call, session));
        Ok(())
    }

    /// What still works on the agent's old work is cut: its answer would come too late and prove nothing.
    fn stop_what_rests_on(&mut self, agent: &StepKey) {
        for i in 0..self.active.len() {
            if pipeline::rests_on(&self.held.inputs.spec, &self.active[i].step.key, agent) {
                self.stop_one(i, ProcessEnd::Interrupted, Haste::Polite);
            }
        }
    }

    /// The conversation of the newest execution of a step, where the agent can go on in one.
    fn last_session(&self, key: &StepKey) -> Result<Option<String>, EngineError> {
        let view = self.held.store().view(&self.held.hold.run)?;
        let newest = view.executions.iter().rev().find(|e| e.step == *key);
        Ok(newest.and_then(|e| e.session.clone()).filter(|_| self.resumes(key)))
    }

    fn resumes(&self, key: &StepKey) -> bool {
        match self.held.inputs.spec.step(key).map(|s| &s.body) {
            Some(StepBody::Agent { agent, .. }) => crate::agents::abilities(agent.protocol).resumes,
            _ => false,
        }
    }

    fn agent_ended(&mut self, ended: &Ended<'_>, mut agent: ActiveAgent) -> Result<(), EngineError> {
        let Ended { step, end, .. } = ended;
        self.count_untold(ended, &agent)?;
        let stderr = String::from_utf8_lossy(&ended.ending.stderr_tail).into_owned();
        let AgentEnd { result, failure, warnings, session } = agent.at_work.reader.finish(end, &stderr);
        for warning in &warnings {
            self.warn(&step.key, warning)?;
        }
        self.meter.refresh(self.held)?;
        if session == SessionFate::Lost {
            self.leave_provider(&step.key, Some(&Failure::new(Code::Interrupted, "no such conversation")))?;
            return self.begin_anew(ended, agent.call);
        }
        // Whatever else it did or failed to do: the next attempt takes the git folder as it finds it.
        let tampered = self.copy.guard.check(self.host, self.held, &self.copy.workspace, Some(&step.key))?;
        let failure = tampered.or_else(|| failure.map(|f| start_failure(f, &ended.ending.status)));
        self.leave_provider(&step.key, failure.as_ref())?;
        match failure {
            None => {
                let snapshot = self.copy.snapshot(self.host, self.held, Some(&step.key))?;
                if let Some(failure) = snapshot.gone.map(mostly_gone) {
                    return self.fail(step, execution(ended, result), failure);
                }
                let commit = Some(snapshot.commit);
                self.succeed(step, Success { name: "CODE_GENERATED", commit, ended: Some(execution(ended, result)) })
            }
            Some(failure) if is_cut(failure.code) => self.interrupt(step, execution(ended, None)),
            Some(failure) => self.fail(step, execution(ended, None), failure),
        }
    }

    /// What nobody will tell any more is estimated, so that a limit holds all the same (R-R4).
    fn count_untold(&mut self, ended: &Ended<'_>, agent: &ActiveAgent) -> Result<(), EngineError> {
        let Some(untold) = agent.at_work.reader.untold(&ended.end) else { return Ok(()) };
        let key = &ended.step.key;
        let number = self.held.step(key).map_or(1, |s| s.runs);
        let item = meter::untold(key, number, Some(untold), agent.at_work.price.as_ref());
        self.held.stage(Change::Usage { step: key.clone(), items: vec![item], active: ended.took })?;
        self.held.commit()
    }

    /// The agent does not know its conversation any more: a new one, told everything, and never the old one again (FR-D4).
    fn begin_anew(&mut self, ended: &Ended<'_>, call: Call) -> Result<(), EngineError> {
        let key = &ended.step.key;
        self.warn(key, "the agent does not know its conversation any more; it begins a new one with the whole task")?;
        self.calls.insert(key.clone(), (call, None));
        self.interrupt(ended.step, execution(ended, None))
    }

    /// Keeps the step's artifacts, records the checkpoint (R-S3), ends the step: one commit.
    pub(super) fn succeed(&mut self, step: &StepSpec, success: Success<'_>) -> Result<(), EngineError> {
        match keep_artifacts(self.host, self.held, step, self.copy.workspace.dir())? {
            Ok(artifacts) => self.succeed_with(step, success, artifacts),
            Err(failure) => self.end_badly(step, StepEvent::Fail, success.ended, Some(failure)),
        }
    }

    /// The same, with the artifacts that are kept already.
    pub(super) fn succeed_with(
        &mut self,
        step: &StepSpec,
        success: Success<'_>,
        artifacts: BTreeMap<String, Sha256Hash>,
    ) -> Result<(), EngineError> {
        let Success { name, commit, ended } = success;
        let took = took(ended.as_ref());
        let policy_version = self.held.inputs.policy.version.clone();
        let checkpoint = Some(Reached { name: name.to_owned(), commit, policy_version, artifacts });
        let moved = StepMove::new(&step.key, StepEvent::Succeed);
        self.held.stage(Change::Step(StepMove { ended, checkpoint, ..moved }))?;
        if step.kind() == StepKind::Qa && self.all_checks_green() {
            self.held.move_phase(PhaseEvent::PassQa)?;
        }
        self.tell_end(&step.key, took, None);
        if step.kind() == StepKind::Agent {
            // An agent's work is expensive: its end is on disk before anything else happens.
            self.commit()?;
            closing::write_manifest(self.host, self.held)?;
        }
        Ok(())
    }

    fn all_checks_green(&self) -> bool {
        let mut checks = self.held.steps.iter().filter(|s| s.kind == StepKind::Qa);
        checks.all(|s| matches!(s.state, StepState::Succeeded | StepState::Skipped))
    }

    pub(super) fn fail(&mut self, step: &StepSpec, ended: ExecutionEnd, failure: Failure) -> Result<(), EngineError> {
        if is_cut(failure.code) {
            return self.interrupt(step, ended);
        }
        self.held.retry_after(&step.key, failure.retry_after);
        self.end_badly(step, StepEvent::Fail, Some(ended), Some(failure))
    }

    /// A step that was cut goes back to PENDING: the next attempt takes it up.
    fn interrupt(&mut self, step: &StepSpec, ended: ExecutionEnd) -> Result<(), EngineError> {
        self.end_badly(step, StepEvent::Interrupt, Some(ended), None)
    }

    pub(super) fn end_badly(
        &mut self,
        step: &StepSpec,
        event: StepEvent,
        ended: Option<ExecutionEnd>,
        failure: Option<Failure>,
    ) -> Result<(), EngineError> {
        let took = took(ended.as_ref());
        let moved = StepMove::new(&step.key, event);
        self.held.stage(Change::Step(StepMove { ended, failure: failure.clone(), ..moved }))?;
        self.tell_end(&step.key, took, failure.as_ref());
        Ok(())
    }
}

/// What a step reached.
pub(super) struct Success<'a> {
    /// The checkpoint's name.
    pub name: &'a str,
    /// The snapshot, where one was taken.
    pub commit: Option<String>,
    /// How its execution ended; `None` for a step without a process.
    pub ended: Option<ExecutionEnd>,
}

fn execution(ended: &Ended<'_>, result: Option<String>) -> ExecutionEnd {
    ExecutionEnd { end: ended.end.clone(), result, active: ended.took }
}

fn took(ended: Option<&ExecutionEnd>) -> Millis {
    ended.map_or(Millis(0), |ended| ended.active)
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
        Status::FailedToStart { problem: StartProblem::Limit | StartProblem::Unwatched, message } => {
            Failure::new(Code::EnvLimit, message.clone())
        }
        _ => failure,
    }
}

/// Codes under which a step did not fail but was cut.
fn is_cut(code: Code) -> bool {
    matches!(code, Code::BudgetExceeded | Code::Canceled | Code::Interrupted | Code::Fenced)
}

/// The end of a check's output, for the agent.
fn output_tail(ending: &Ending) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (out, err) = (text(&ending.stdout_tail), text(&ending.stderr_tail));
    match (out.is_empty(), err.is_empty()) {
        (_, true) => out,
        (true, false) => err,
        (false, false) => format!("{out}\n{err}"),
    }
}
