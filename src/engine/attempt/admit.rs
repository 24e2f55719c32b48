//! Before an agent begins: may its provider be called (R-R8)? Asked before the step is begun, so that waiting is no
//! execution and uses up no attempt (FR-G7). What the call then says about its provider is told to all other runs.

use super::{Attempt, Cause};
use crate::domain::breaker::{self, Breaker, Patience};
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::plan::pipeline::Move;
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::domain::task::StepBody;
use crate::domain::turn::Queue;
use crate::engine::error::EngineError;
use crate::engine::host::now;
use crate::engine::steps::{agent, step_limit};
use crate::engine::turn::{self, Came, Hindrance, Verdict, Waiting, Wanted};
use crate::store::{EndedCall, Store};

/// A call of a provider under way.
pub(super) struct ProviderCall {
    step: StepKey,
    provider: String,
    agent: String,
    turn: u64,
    answered: bool,
}

/// Why a run does not go on now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBack {
    /// What stands in its way.
    pub failure: Failure,
    /// When it may be tried again; `None` when a person must do something first.
    pub retry_at: Option<UtcMs>,
}

impl Attempt<'_> {
    /// Waits for the providers of the agents that are about to begin. False when the attempt stops instead.
    pub(super) fn admit(&mut self, moves: &[Move]) -> Result<bool, EngineError> {
        // Who is at its limit stops at once, and waits for nobody first.
        if self.meter.exhausted().is_some() {
            return Ok(true);
        }
        for step in moves.iter().filter(|m| m.event.begins()).map(|m| m.step.clone()) {
            let Some((agent, provider)) = self.provider_of(&step) else { continue };
            if !self.admit_one(&step, agent, provider)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn provider_of(&self, step: &StepKey) -> Option<(String, String)> {
        let inputs = &self.held.inputs;
        let StepBody::Agent { agent, .. } = &inputs.spec.step(step)?.body else { return None };
        let rules = agent::rules(inputs, agent);
        Some((agent.name.clone(), rules.provider(&agent.name)?.to_owned()))
    }

    fn admit_one(&mut self, step: &StepKey, agent: String, provider: String) -> Result<bool, EngineError> {
        // What ended before is on disk before anything is waited for: a wait can be long, and can end with the machine.
        self.commit()?;
        let began = now();
        let policy = self.held.inputs.policy.clone();
        let run = self.held.hold.run.clone();
        let wanted = Wanted {
            limit: policy.concurrency.providers.get(&provider).copied(),
            queue: Queue::Provider(provider.clone()),
            run: &run,
            agent: Some(&agent),
            insists: std::mem::take(&mut self.insists),
            trial: Millis(step_limit(&self.held.inputs, step).0.saturating_add(policy.timeouts.grace.0)),
            takes_over: true,
            silent_after: policy.leases.ttl,
        };
        let mut shut = Shut { since: None, longest: policy.retry.max, run_until: self.run_until, held: None };
        let (store, who) = self.held.parts();
        let mut waiting = Waiting { store, who, inbox: self.inbox, observer: self.observer, aside: &mut self.aside };
        let came = turn::wait(&mut waiting, &wanted, &mut |_: &Store, hindrance| Ok(shut.ask(hindrance, &provider)))?;
        // An attempt's clock does not count what it waited for others; the run's does.
        self.until = BootMs(self.until.0.saturating_add(now().boot.0.saturating_sub(began.boot.0)));
        match came {
            Came::Taken(turn) => {
                self.calls_under_way.push(ProviderCall { step: step.clone(), provider, agent, turn, answered: false });
                return Ok(true);
            }
            Came::GaveUp => self.stopping = shut.held.map(Cause::Held),
            Came::Signal(signal) => self.signal(signal)?,
            Came::Canceled => self.stopping = Some(Cause::Cancel),
            Came::LeaseLost => self.stopping = Some(Cause::LeaseLost),
        }
        Ok(false)
    }

    /// The first answer of a model: a provider that was tried is there again, long before the agent has finished.
    pub(super) fn provider_answered(&mut self, step: &StepKey) -> Result<(), EngineError> {
        let Some(call) = self.calls_under_way.iter_mut().find(|c| c.step == *step && !c.answered) else {
            return Ok(());
        };
        call.answered = true;
        let (provider, turn) = (call.provider.clone(), call.turn);
        let (store, who) = self.held.parts();
        Ok(store.call_answered(&provider, turn, &who.context())?)
    }

    /// An agent has ended: its failure says something about its provider, or nothing; a success says that it answers.
    pub(super) fn leave_provider(&mut self, step: &StepKey, failure: Option<&Failure>) -> Result<(), EngineError> {
        let Some(i) = self.calls_under_way.iter().position(|c| c.step == *step) else { return Ok(()) };
        let call = self.calls_under_way.remove(i);
        let (run, rules) = (self.held.hold.run.clone(), self.held.inputs.policy.breaker);
        let ended =
            EndedCall { provider: &call.provider, agent: &call.agent, run: &run, turn: call.turn, failure, rules };
        let (store, who) = self.held.parts();
        Ok(store.end_call(&ended, &who.context())?)
    }

    /// Whatever calls are left say nothing.
    pub(super) fn leave_providers(&mut self) -> Result<(), EngineError> {
        let nothing = Failure::new(Code::Interrupted, "cut");
        while let Some(step) = self.calls_under_way.first().map(|c| c.step.clone()) {
            self.leave_provider(&step, Some(&nothing))?;
        }
        Ok(())
    }
}

/// The patience of one wait.
struct Shut {
    /// Since when the provider has been shut, by the wall clock.
    since: Option<UtcMs>,
    longest: Millis,
    run_until: BootMs,
    held: Option<HeldBack>,
}

impl Shut {
    fn ask(&mut self, hindrance: &Hindrance, provider: &str) -> Verdict {
        let present = now();
        if present.boot >= self.run_until {
            let message = format!("the run's time was over before it was its turn at {provider}");
            self.held = Some(HeldBack { failure: Failure::new(Code::Busy, message), retry_at: Some(present.utc) });
            return Verdict::GiveUp;
        }
        let Hindrance::Shut(breaker) = hindrance else { return Verdict::Wait };
        let since = *self.since.get_or_insert(present.utc);
        let left = Millis(self.run_until.0.saturating_sub(present.boot.0)).min(self.longest);
        match breaker::patience(breaker, present.utc, left, since.plus(self.longest)) {
            Patience::Wait => return Verdict::Wait,
            Patience::Park(at) => self.held = Some(HeldBack { failure: failure(breaker), retry_at: Some(at) }),
            Patience::Refuse => self.held = Some(HeldBack { failure: failure(breaker), retry_at: None }),
        }
        Verdict::GiveUp
    }
}

/// Why a provider is not called, as a failure of the run that wanted to.
pub fn failure(breaker: &Breaker) -> Failure {
    let code = match breaker.cause {
        // Whatever single calls failed with: the provider failed in a way that passes.
        breaker::Cause::Outage => Code::TemporaryProviderError,
        _ => breaker.code,
    };
    let (provider, run) = (&breaker.provider, &breaker.run);
    let agent = breaker.agent.as_ref().map(|a| format!(" (agent {a})")).unwrap_or_default();
    Failure::new(code, format!("{provider}{agent} is left alone since a call of {run}: {}", breaker.message))
}
