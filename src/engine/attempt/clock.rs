//! Waits for the next message, and stops what takes too long, costs too much, or is not wanted any more.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::{Active, Attempt, Cause};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::StepKey;
use crate::domain::outcome::{ProcessEnd, TimeoutLayer};
use crate::domain::quantity::{BootMs, Millis};
use crate::engine::action::errand::UnderWay;
use crate::engine::clocks::{self, Watched};
use crate::engine::error::EngineError;
use crate::engine::host::{Message, now};
use crate::engine::meter;
use crate::engine::observer::Notice;
use crate::engine::steps::step_limit;
use crate::process::Haste;
use crate::process::signals::{Press, StopSignal};

/// Side files are watched; where the file system does not tell of changes, this look is what finds them.
const LOOK_MS: u64 = 1_000;
/// Until the folder of side files is known: it appears within milliseconds of the conversation's id.
const LOOK_FOR_FOLDER_MS: u64 = 20;

impl Attempt<'_> {
    pub(super) fn wait(&mut self) -> Result<(), EngineError> {
        let timeout = Duration::from_millis(self.next_deadline().0.saturating_sub(now().boot.0));
        let came =
            if self.aside.is_empty() { self.inbox.receiver.recv_timeout(timeout) } else { Ok(self.aside.remove(0)) };
        match came {
            Ok(Message::Child(key, event)) => self.child(&key, event)?,
            Ok(Message::Signal(signal)) => self.signal(signal)?,
            Ok(Message::Carried(whom, carried)) => self.carried(&whom, *carried)?,
            Ok(Message::Verified(key, failure)) => self.verified(&key, failure)?,
            Ok(Message::Wished(action)) => self.wished.push(action),
            Ok(Message::LeaseLost) => self.stop_all(&Cause::LeaseLost, Haste::Now),
            Ok(Message::CancelRequested) => self.stop_all(&Cause::Cancel, Haste::Polite),
            Ok(Message::ClockSet { by }) => self.clock_set(by)?,
            Ok(Message::RecordFails(error)) => return Err(error.into()),
            Err(RecvTimeoutError::Timeout) => self.strike()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(EngineError::failed(Code::Internal, "the inbox was closed"));
            }
        }
        Ok(())
    }

    /// The next moment at which something must be looked at even if nothing is heard.
    fn next_deadline(&self) -> BootMs {
        let present = now().boot.0;
        let clocks = self.active.iter().filter(|a| a.cause.is_none()).map(|a| self.next_clock(a).0);
        let looks = self
            .active
            .iter()
            .filter_map(|a| a.agent.as_ref())
            .map(|agent| BootMs(present + if agent.at_work.watched { LOOK_MS } else { LOOK_FOR_FOLDER_MS }));
        let limits = [Some(self.held.renews_from()), self.time_limit_at()].into_iter().flatten();
        clocks.chain(looks).chain(limits).min().unwrap_or(BootMs(present + 60_000))
    }

    fn next_clock(&self, active: &Active) -> (BootMs, TimeoutLayer) {
        let at_work = active.agent.as_ref().map(|a| &a.at_work);
        let watched = Watched {
            started: active.started,
            last_byte: active.last_sign(),
            result_at: at_work.and_then(|w| w.result_at),
            in_tool: at_work.is_some_and(|w| !w.open_tools.is_empty()),
            is_agent: at_work.is_some(),
            step: step_limit(&self.held.inputs, &active.step.key),
            attempt_until: self.until,
            run_until: self.run_until,
        };
        clocks::next(&watched, &self.held.inputs.policy.timeouts)
    }

    /// Times that people read make no sense across it; leases and limits go on as they were (F40).
    fn clock_set(&mut self, by: i64) -> Result<(), EngineError> {
        let text = format!("clock_jump={by}ms: the machine's clock was set while the run was at work");
        self.held.note(EventKind::WarningRaised, None, &text)?;
        self.held.commit()?;
        self.observer.notice(&Notice::Warning { text: &text });
        Ok(())
    }

    /// Active time that is in no record yet.
    fn unrecorded(&self) -> Millis {
        let present = now().boot.0;
        Millis(self.active.iter().map(|a| present.saturating_sub(a.counted_until.0)).sum())
    }

    /// When the time budget ends, or is worth a warning, if everything that is active stays active.
    fn time_limit_at(&self) -> Option<BootMs> {
        if self.stopping.is_some() {
            return None;
        }
        let warning = self.meter.time_to_warning(self.held.inputs.policy.warn_permille);
        let left = warning.into_iter().chain(self.meter.time_left()).min()?.0.saturating_sub(self.unrecorded().0);
        Some(BootMs(now().boot.0 + left / (self.active.len().max(1) as u64) + 1))
    }

    /// A deadline passed without a message: what do the side files say, which clocks have struck?
    fn strike(&mut self) -> Result<(), EngineError> {
        let agents = self.active.iter().filter(|a| a.agent.is_some());
        let keys: Vec<StepKey> = agents.map(|a| a.step.key.clone()).collect();
        for key in keys {
            self.read_side_files(&key)?;
        }
        self.held.keep_lease()?;
        let present = now().boot;
        for i in 0..self.active.len() {
            let (at, layer) = self.next_clock(&self.active[i]);
            if at <= present {
                self.stop_one(i, ProcessEnd::TimedOut { layer }, Haste::Polite);
            }
        }
        self.check_budget()
    }

    /// Stops one child. The first cause counts; a later, harder stop only hurries.
    pub(super) fn stop_one(&mut self, i: usize, cause: ProcessEnd, haste: Haste) {
        let active = &mut self.active[i];
        if active.cause.is_none() || haste == Haste::Now {
            self.host.supervisor.stop(active.child, haste);
        }
        active.cause.get_or_insert(cause);
    }

    fn stop_all(&mut self, cause: &Cause, haste: Haste) {
        let end = match cause {
            Cause::Signal(_) => ProcessEnd::Interrupted,
            Cause::Cancel => ProcessEnd::Canceled,
            Cause::Budget(_) => ProcessEnd::OverBudget,
            Cause::LeaseLost => ProcessEnd::LeaseLost,
            Cause::Held(_) => ProcessEnd::Interrupted,
        };
        if self.stopping.is_none() {
            self.observer.notice(&Notice::Stopping { why: &describe(cause) });
            self.stopping = Some(cause.clone());
        }
        for i in 0..self.active.len() {
            self.stop_one(i, end.clone(), haste);
        }
        self.under_way.iter().for_each(UnderWay::stop);
    }

    /// A signal: the first stops politely, a second at once. A `cancel` wakes its holder by a signal, too.
    pub(super) fn signal(&mut self, signal: StopSignal) -> Result<(), EngineError> {
        let haste = if signal.press == Press::Again { Haste::Now } else { Haste::Polite };
        let record = self.held.store().find_run(&self.held.hold.run)?;
        let canceled = record.is_some_and(|run| run.cancel_requested);
        let cause = if canceled { Cause::Cancel } else { Cause::Signal(signal) };
        self.stop_all(&cause, haste);
        Ok(())
    }

    /// Warns of a limit that comes near, and stops at one that is crossed.
    pub(super) fn check_budget(&mut self) -> Result<(), EngineError> {
        if self.stopping.is_some() {
            return Ok(());
        }
        let unrecorded = self.unrecorded();
        for near in self.meter.new_warnings(self.held.inputs.policy.warn_permille, unrecorded) {
            let body = serde_json::json!({ "limit": meter::limit_name(near.scope, near.kind), "of": near });
            let text = near.warning();
            let reason = text.clone();
            self.held.record([Change::Note { kind: EventKind::WarningRaised, step: None, reason, body }])?;
            self.observer.notice(&Notice::Warning { text: &text });
        }
        if let Some(breach) = self.meter.breach(unrecorded) {
            self.stop_all(&Cause::Budget(breach), Haste::Polite);
        }
        Ok(())
    }
}

/// Why everything is being stopped, in words.
fn describe(cause: &Cause) -> String {
    match cause {
        Cause::Signal(signal) => format!("{} received; the work is kept, the run can be resumed", signal.kind.name()),
        Cause::Cancel => "canceled; the work is kept".to_owned(),
        Cause::Budget(breach) => breach.to_string(),
        Cause::Held(held) => held.failure.message.clone(),
        Cause::LeaseLost => "another process has taken this run over".to_owned(),
    }
}
