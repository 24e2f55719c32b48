//! Takes in what children say: counted and recorded first, then told, then held against the limits.

use super::{Active, Attempt};
use crate::domain::agent_event::AgentEvent;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::ids::StepKey;
use crate::domain::quantity::Millis;
use crate::domain::task::CommandLine;
use crate::engine::error::EngineError;
use crate::engine::host::now;
use crate::engine::observer::Notice;
use crate::engine::steps::agent::AtWork;
use crate::engine::steps::gate;
use crate::process::ChildEvent;

impl Attempt<'_> {
    pub(super) fn child(&mut self, key: &StepKey, event: ChildEvent) -> Result<(), EngineError> {
        match event {
            // If we die before this commit: the child is found by its marker. If we die after it: by its identity, too.
            ChildEvent::Started(child) => self.held.record([Change::Child { step: key.clone(), child }]),
            ChildEvent::Line(line) => {
                let events = self.at_work(key).map(|w| w.reader.stdout_line(&line)).unwrap_or_default();
                self.agent_events(key, &events)?;
                self.read_side_files(key)
            }
            ChildEvent::LineTooLong { bytes } => {
                self.warn(key, &format!("a line of {bytes} bytes was kept in the log and not interpreted"))
            }
            ChildEvent::FilesChanged => self.read_side_files(key),
            ChildEvent::Ended(ending) => self.ended(key, &ending),
        }
    }

    fn active(&mut self, key: &StepKey) -> Option<&mut Active> {
        self.active.iter_mut().find(|a| a.step.key == *key)
    }

    fn at_work(&mut self, key: &StepKey) -> Option<&mut AtWork> {
        self.active(key).and_then(|a| a.agent.as_mut()).map(|a| &mut a.at_work)
    }

    pub(super) fn read_side_files(&mut self, key: &StepKey) -> Result<(), EngineError> {
        let Some(active) = self.active(key) else { return Ok(()) };
        let child = active.child;
        let Some(agent) = active.agent.as_mut() else { return Ok(()) };
        let events = agent.at_work.reader.side_files();
        agent.note_side_bytes();
        let folder = if agent.at_work.watched { None } else { agent.at_work.reader.watch() };
        agent.at_work.watched |= folder.is_some();
        if let Some(folder) = folder {
            self.host.supervisor.watch(child, folder);
        }
        self.agent_events(key, &events)
    }

    /// The stop at a limit falls into the gap between a model's reply and the end of the tool that it called.
    fn agent_events(&mut self, key: &StepKey, events: &[AgentEvent]) -> Result<(), EngineError> {
        if events.is_empty() {
            return Ok(());
        }
        let present = now().boot;
        let Some(active) = self.active(key) else { return Ok(()) };
        let spent = Millis(present.0.saturating_sub(active.started.0));
        let Some(agent) = active.agent.as_mut() else { return Ok(()) };
        let told = agent.at_work.take(key, events, present);
        let counted = !told.items.is_empty();
        if counted {
            active.counted_until = present;
            self.held.stage(Change::Usage { step: key.clone(), items: told.items, active: spent })?;
        }
        if let Some((session, model)) = told.session {
            self.held.stage(Change::Session { step: key.clone(), session, model })?;
        }
        self.held.commit()?;
        for event in events {
            self.tell_event(key, event)?;
        }
        if counted {
            self.provider_answered(key)?;
            self.meter.refresh(self.held)?;
            self.observer.notice(&Notice::Used { attempt: &self.meter.attempt, task: &self.meter.task });
            self.check_budget()?;
        }
        Ok(())
    }

    fn tell_event(&mut self, key: &StepKey, event: &AgentEvent) -> Result<(), EngineError> {
        match event {
            AgentEvent::Message { text } => self.observer.notice(&Notice::Said { step: key, text }),
            AgentEvent::ToolCall { summary, command, .. } => {
                self.observer.notice(&Notice::Tool { step: key, summary });
                if let Some(line) = command {
                    self.judge_seen(key, line)?;
                }
            }
            AgentEvent::Warning { text } => self.warn(key, text)?,
            AgentEvent::Session { .. }
            | AgentEvent::ToolResult { .. }
            | AgentEvent::Usage(_)
            | AgentEvent::Error(_)
            | AgentEvent::Result { .. } => {}
        }
        Ok(())
    }

    /// An agent runs a command that a rule denies: it cannot be held back here, for it holds its own tools, but it does not
    /// stay unsaid (R-P3). What keeps it from its aim are the rights that it does not have.
    fn judge_seen(&mut self, key: &StepKey, line: &CommandLine) -> Result<(), EngineError> {
        let around = (&gate::texts(&self.command_vars), self.copy.workspace.dir());
        let Some(objection) = gate::against(&self.held.inputs.policy, line, around) else { return Ok(()) };
        let text = format!("{}: the agent tried it", objection.why);
        self.held.stage(Change::Note {
            kind: EventKind::WarningRaised,
            step: Some(key.clone()),
            reason: text.clone(),
            body: objection.body,
        })?;
        self.held.commit()?;
        self.observer.notice(&Notice::Warning { text: &text });
        Ok(())
    }

    pub(super) fn warn(&mut self, step: &StepKey, text: &str) -> Result<(), EngineError> {
        self.held.note(EventKind::WarningRaised, Some(step), text)?;
        self.held.commit()?;
        self.observer.notice(&Notice::Warning { text });
        Ok(())
    }
}
