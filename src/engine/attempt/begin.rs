//! Starts what is due: a step that cannot be started is a failed step, not a failed agentrun.

use super::{Active, ActiveAgent, Attempt, Cause};
use crate::domain::budget::LimitKind;
use crate::domain::change::{Change, ExecutionEnd};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::Millis;
use crate::domain::task::{StepBody, StepKind, StepSpec};
use crate::engine::error::EngineError;
use crate::engine::host::{Message, now};
use crate::engine::steps::agent::{self, AgentCall, Call};
use crate::engine::steps::gate;
use crate::engine::steps::{Execution, command};
use crate::engine::workspace::before_pin;
use crate::process::ChildId;
use crate::process::spec::CommandSpec;
use crate::report::record_json;

impl Attempt<'_> {
    pub(super) fn launch(&mut self, step: StepSpec) -> Result<(), EngineError> {
        let nth = self.nth.entry(step.key.clone()).or_insert(0);
        *nth += 1;
        let number = self.held.step(&step.key).map_or(1, |s| s.runs);
        let token = self.held.token.clone();
        let execution = Execution { step: step.key.clone(), attempt: self.held.hold.attempt, nth: *nth, number, token };
        let built = match (step.kind(), self.denied(&step)?) {
            (_, Some(failure)) => Err(EngineError::Failed(failure)),
            (StepKind::Agent, None) => self.build_agent(&step, &execution),
            (_, None) => self.build_command(&step, &execution).map(|spec| (spec, None)),
        };
        match built {
            Ok((spec, agent)) => {
                self.spawn(step, spec, agent);
                Ok(())
            }
            Err(error) if error.is_no_verdict() => Err(error),
            Err(error) => {
                let failure = error.failure();
                self.leave_providers()?;
                let end = ProcessEnd::FailedToStart { message: failure.message.clone() };
                self.fail(&step, ExecutionEnd { end, result: None, active: Millis(0) }, failure)
            }
        }
    }

    /// Why the policy does not let a command start. Its event is committed together with the end of the step.
    pub(super) fn denied(&mut self, step: &StepSpec) -> Result<Option<Failure>, EngineError> {
        let around = (&self.command_vars, self.copy.workspace.dir());
        let Some(objection) = gate::against_step(&self.held.inputs.policy, step, around) else { return Ok(None) };
        let failure = objection.failure();
        self.held.stage(Change::Note {
            kind: EventKind::PolicyDenied,
            step: Some(step.key.clone()),
            reason: failure.message.clone(),
            body: objection.body,
        })?;
        Ok(Some(failure))
    }

    fn spawn(&mut self, step: StepSpec, spec: CommandSpec, agent: Option<ActiveAgent>) {
        self.children += 1;
        let child = ChildId(self.children);
        let (sender, key) = (self.inbox.sender.clone(), step.key.clone());
        let sink = Box::new(move |event| {
            // The engine has stopped listening: there is nobody left to tell.
            let _ = sender.send(Message::Child(key.clone(), event));
        });
        let activity = self.host.supervisor.spawn(child, spec, sink);
        let started = now().boot;
        self.active.push(Active { step, started, counted_until: started, child, activity, agent, cause: None });
    }

    fn build_command(&self, step: &StepSpec, execution: &Execution) -> Result<CommandSpec, EngineError> {
        let run = match &step.body {
            StepBody::Qa { run, .. } | StepBody::Command { run } => Some(run),
            StepBody::Verify(verify) => verify.smoke.as_ref(),
            _ => None,
        };
        let missing = || EngineError::failed(Code::Internal, format!("step `{}` has no command", step.key));
        let run = run.ok_or_else(missing)?;
        command::spec(&command::CommandRequest {
            host: self.host,
            hold: &self.held.hold,
            inputs: &self.held.inputs,
            vars: &self.command_vars,
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
    ) -> Result<(CommandSpec, Option<ActiveAgent>), EngineError> {
        if let Some(breach) = self.meter.exhausted() {
            self.stopping = Some(Cause::Budget(breach));
            return Err(EngineError::failed(Code::BudgetExceeded, breach.to_string()));
        }
        let before = self.copy.snapshot(self.host, self.held, Some(&step.key))?;
        self.host.repo.pin(self.held.hold.run.as_str(), &before_pin(&step.key), &before.commit)?;
        let (call, session) = self.calls.remove(&step.key).unwrap_or((Call::Fresh, None));
        let budget = self.budget_for_agent() + agent::about_tools(&self.held.inputs, &step.key);
        let view = self.held.store().view(&self.held.hold.run)?;
        let budget_document = record_json::budget_json(&view, &self.meter.budget).to_string();
        let request = AgentCall {
            host: self.host,
            hold: &self.held.hold,
            run: self.run,
            inputs: &self.held.inputs,
            execution,
            dir: self.copy.workspace.dir(),
            call: &call,
            session: session.as_deref(),
            budget: &budget,
            budget_document: &budget_document,
        };
        let identity = if execution.nth == 1 { agent::examine(&request)? } else { None };
        let (spec, at_work) = agent::start(&request)?;
        if at_work.unseen > 0 {
            let what = format!("invisible_chars={}: the prompt has text that nobody sees", at_work.unseen);
            self.warn(&step.key, &what)?;
        }
        self.warn_of_uncounted(step)?;
        if let Some(identity) = identity {
            self.held.note(EventKind::AgentIdentified, Some(&step.key), &identity)?;
        }
        Ok((spec, Some(ActiveAgent::new(at_work, call))))
    }

    /// A limit that does not bind this agent, because it does not tell what is limited.
    fn warn_of_uncounted(&mut self, step: &StepSpec) -> Result<(), EngineError> {
        let StepBody::Agent { agent, .. } = &step.body else { return Ok(()) };
        let limited = self.meter.limited().into_iter().any(|(_, kind, ..)| kind == LimitKind::ToolCalls);
        if !limited || crate::agents::abilities(agent.protocol).reports_tools {
            return Ok(());
        }
        self.warn(
            &step.key,
            &format!("the agent of step `{}` tells no tool calls: their limit does not bind it", step.key),
        )
    }

    /// What an agent is told of its limits: name, limit, used and left, never a bare amount (FR-F35).
    fn budget_for_agent(&self) -> String {
        let shown = |kind: LimitKind| matches!(kind, LimitKind::Tokens | LimitKind::ToolCalls);
        let limited = self.meter.limited().into_iter().filter(|(_, kind, ..)| shown(*kind));
        let rows: Vec<String> = limited
            .map(|(scope, kind, limit, used)| {
                format!("- {scope}.{kind}: limit {limit}, used {used}, left {}", limit.saturating_sub(used))
            })
            .collect();
        if rows.is_empty() { String::new() } else { format!("\n\nLimits of this work:\n{}\n", rows.join("\n")) }
    }
}
