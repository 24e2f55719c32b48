//! The record of a run that this process holds. Facts are staged and then committed together; what is decided in between
//! is decided on the staged state, what is shown is shown after the commit.

use std::collections::BTreeMap;

use super::error::EngineError;
use super::heartbeat::{Lasts, lease_until};
use super::host::{Who, now};
use super::token::RunToken;
use crate::domain::change::{Change, StepMove};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::lease::renew_from;
use crate::domain::machine::Word as _;
use crate::domain::plan::phase::next_phase;
use crate::domain::quantity::{BootMs, Millis};
use crate::domain::record::{RunInputs, RunView, StepRecord};
use crate::domain::run::Phase;
use crate::domain::run::PhaseEvent;
use crate::domain::step::{STEP, StepEvent};
use crate::domain::task::StepKind;
use crate::domain::template::StepFact;
use crate::store::{Hold, Store, StoreError};

/// A run that this process holds, and the connection through which it writes.
pub struct Held {
    /// The lease: run, attempt and fence.
    pub hold: Hold,
    /// What the run was given.
    pub inputs: RunInputs,
    /// The steps as staged.
    pub steps: Vec<StepRecord>,
    /// Where in the delivery the run stands, as staged.
    pub phase: Option<Phase>,
    /// The secret that the attempt's programs get; `None` where none are started.
    pub token: Option<RunToken>,
    store: Store,
    who: Who,
    staged: Vec<Change>,
    /// How often a step has moved.
    moves: u64,
    retry_after: BTreeMap<StepKey, Millis>,
    lasts: Lasts,
}

impl Held {
    /// Takes up a run that was just claimed.
    pub fn new(store: Store, hold: Hold, view: &RunView, who: Who) -> Self {
        Self {
            hold,
            inputs: view.inputs.clone(),
            steps: view.steps.clone(),
            phase: view.run.phase,
            token: None,
            store,
            who,
            staged: Vec::new(),
            moves: 0,
            retry_after: BTreeMap::new(),
            lasts: Lasts::until(view.run.lease.as_ref().map_or(BootMs(u64::MAX), |lease| lease.until)),
        }
    }

    /// Gives the connection back.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// The connection, for reading.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The connection and the writer, for what is about more than this run: turns and breakers.
    pub fn parts(&mut self) -> (&mut Store, &Who) {
        (&mut self.store, &self.who)
    }

    /// Stages a fact. A move that the machine does not allow is a bug of the engine, and is refused here already.
    pub fn stage(&mut self, change: Change) -> Result<(), EngineError> {
        self.apply(&change)?;
        self.staged.push(change);
        Ok(())
    }

    /// Until when the lease lasts.
    pub fn lasts(&self) -> Lasts {
        self.lasts.clone()
    }

    /// From when on the lease must be renewed, should the pulse not have done it.
    pub fn renews_from(&self) -> BootMs {
        renew_from(self.lasts.end(), self.inputs.policy.leases.heartbeat)
    }

    /// Renews a lease that ends soon or has ended (the pulse hangs, the machine slept), or learns that another process has
    /// taken the run: before anything else is done (F42, F43).
    pub fn keep_lease(&mut self) -> Result<(), EngineError> {
        let present = now();
        if present.boot < self.renews_from() {
            return Ok(());
        }
        let until = lease_until(&present, &self.inputs.policy.leases);
        match self.store.heartbeat(&self.hold, until, &self.who.context()) {
            // At rest already: what is still written are its last words, which nobody else writes meanwhile.
            Ok(_) | Err(StoreError::Refused(_)) => {
                self.lasts.renewed(until);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Commits everything staged, in one durable transaction.
    pub fn commit(&mut self) -> Result<(), EngineError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.keep_lease()?;
        // What could not be written stays staged: the last word tries once more.
        self.store.record(&self.hold, &self.staged, &self.who.context())?;
        self.staged.clear();
        Ok(())
    }

    /// Drops the connection, which may have failed, and what it was to write, and opens another.
    pub fn begin_again(&mut self) -> Result<Vec<Change>, EngineError> {
        self.store.reopen_with_room()?;
        Ok(std::mem::take(&mut self.staged))
    }

    /// Writes these changes and nothing else, whatever was staged.
    pub fn write(&mut self, changes: &[Change]) -> Result<(), EngineError> {
        self.store.record(&self.hold, changes, &self.who.context())?;
        Ok(())
    }

    /// Stages and commits.
    pub fn record(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<(), EngineError> {
        for change in changes {
            self.stage(change)?;
        }
        self.commit()
    }

    /// Stages a remark.
    pub fn note(&mut self, kind: EventKind, step: Option<&StepKey>, reason: &str) -> Result<(), EngineError> {
        let body = serde_json::json!({});
        self.stage(Change::Note { kind, step: step.cloned(), reason: reason.to_owned(), body })
    }

    /// Stages a move of a step.
    pub fn move_step(&mut self, step: &StepKey, event: StepEvent, failure: Option<Failure>) -> Result<(), EngineError> {
        self.stage(Change::Step(StepMove { failure, ..StepMove::new(step, event) }))
    }

    /// Stages a move of the phase, where it is due.
    pub fn move_phase(&mut self, event: PhaseEvent) -> Result<(), EngineError> {
        if next_phase(self.phase, event).is_ok() { self.stage(Change::Phase(event)) } else { Ok(()) }
    }

    /// One step, as staged.
    pub fn step(&self, key: &StepKey) -> Option<&StepRecord> {
        self.steps.iter().find(|s| s.key == *key)
    }

    /// Remembers when a failed step may be tried again, where somebody said so.
    pub fn retry_after(&mut self, step: &StepKey, after: Option<Millis>) {
        if let Some(after) = after {
            self.retry_after.insert(step.clone(), after);
        }
    }

    /// Why a failed step failed, naming the step.
    pub fn failure_of(&self, step: &StepRecord) -> Failure {
        Failure {
            code: step.code.unwrap_or(Code::Internal),
            message: format!("step `{}`: {}", step.key, step.message.as_deref().unwrap_or("failed")),
            retry_after: self.retry_after.get(&step.key).copied(),
        }
    }

    /// A number that grows when a step moves: while it stays, no other step can have become due.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The states of all steps, for conditions.
    pub fn states(&self) -> BTreeMap<String, StepFact> {
        let fact = |s: &StepRecord| StepFact { state: s.state.word().to_owned() };
        self.steps.iter().map(|s| (s.key.to_string(), fact(s))).collect()
    }

    fn apply(&mut self, change: &Change) -> Result<(), EngineError> {
        match change {
            Change::Step(moved) => self.apply_step(moved),
            Change::Phase(event) => {
                self.phase = next_phase(self.phase, *event).ok();
                Ok(())
            }
            Change::Inputs(inputs) => {
                self.inputs = (**inputs).clone();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn apply_step(&mut self, moved: &StepMove) -> Result<(), EngineError> {
        let StepMove { step: key, event, failure, because_of, .. } = moved;
        self.moves += 1;
        let attempt = self.hold.attempt;
        let unknown = || EngineError::failed(Code::Internal, format!("no step `{key}`"));
        let record = self.steps.iter_mut().find(|s| s.key == *key).ok_or_else(unknown)?;
        record.state = STEP
            .next(record.state, *event)
            .map_err(|refused| EngineError::failed(Code::InvalidState, refused.to_string()))?;
        if event.begins() {
            record.attempt = attempt;
            record.runs += 1;
            record.sent_back = false;
        }
        record.code = failure.as_ref().map(|f| f.code);
        record.message = failure.as_ref().map(|f| f.message.clone());
        if *event == StepEvent::SendBack
            && let Some(qa) = because_of.as_ref().and_then(|qa| self.steps.iter_mut().find(|s| s.key == *qa))
            && self.inputs.spec.step(key).is_some_and(|s| s.kind() == StepKind::Agent)
        {
            qa.rounds += 1;
            qa.sent_back = true;
        }
        Ok(())
    }
}
