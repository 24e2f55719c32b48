//! Steps that reach the outside. Before one begins the policy is asked and the intent is on record; it is then carried out
//! beside the attempt, and the step ends as the record says.

use std::thread::Scope;

use super::Attempt;
use super::end::Success;
use crate::domain::action::approval::{ApprovalRecord, Subject};
use crate::domain::action::record::DeploymentRecord;
use crate::domain::action::state::{ApprovalState, DeploymentEvent, DeploymentState};
use crate::domain::action::{ActionRecord, ActionState};
use crate::domain::change::Change;
use crate::domain::delivery;
use crate::domain::failure::{Code, Failure};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ApprovalId, StepKey};
use crate::domain::plan::pipeline::{self, Move};
use crate::domain::policy::decide::Decision;
use crate::domain::policy::{ActionType, ApprovalTerms, Verdict};
use crate::domain::quantity::Millis;
use crate::domain::step::{StepEvent, StepState};
use crate::domain::task::{StepBody, StepKind, StepSpec};
use crate::engine::action::Outside;
use crate::engine::action::carry::{Carried, May};
use crate::engine::action::errand::{self, For, Order};
use crate::engine::action::want::{self, Gate, Intended, ask, intend};
use crate::engine::closing;
use crate::engine::error::EngineError;
use crate::engine::host::now;
use crate::engine::observer::Notice;
use crate::engine::steps::effect::{self, Making, Reached};
use crate::engine::steps::step_limit;
use crate::store::{About, By, DeploymentMove};

/// Keeps git from removing what a release or an approval names.
const CONTENTS_PIN: &str = "contents-";

/// What was found out about a step before it begins.
pub(super) enum Asked {
    /// It may be carried out.
    Effect(Box<Intended>),
    /// A person has agreed, to exactly this.
    Agreed(ApprovalId, Sha256Hash),
    /// It fails.
    Refused(Failure),
}

impl<'a> Attempt<'a> {
    /// Asks the policy, and where it says so a person, before a step that reaches the outside begins. Answers the moves that
    /// can be made now.
    pub(super) fn gate(&mut self, moves: Vec<Move>) -> Result<Vec<Move>, EngineError> {
        let mut open = Vec::new();
        for step_move in moves {
            let Some(step) = self.held.inputs.spec.step(&step_move.step).cloned() else { continue };
            if !step_move.event.begins() || !step.kind().is_gated() {
                open.push(step_move);
            } else if !self.waiting.contains(&step.key) {
                // What ended before is on disk before anything outside is thought of.
                self.commit()?;
                open.extend(self.gate_one(step_move, &step)?);
            }
        }
        let attempt = self.held.hold.attempt;
        Ok(pipeline::together(&self.held.inputs.spec, &self.held.steps, attempt, open))
    }

    fn gate_one(&mut self, step_move: Move, step: &StepSpec) -> Result<Option<Move>, EngineError> {
        // What its command does besides is asked about first: nobody is to approve what is denied anyway.
        if let Some(failure) = self.denied(step)? {
            self.asked.insert(step.key.clone(), Asked::Refused(failure));
            return Ok(Some(step_move));
        }
        let asked = match self.ask(step) {
            Ok(Some(asked)) => asked,
            Ok(None) => return Ok(self.wait_for_person(step_move)),
            Err(error) if error.is_no_verdict() => return Err(error),
            Err(error) => Asked::Refused(error.failure()),
        };
        self.asked.insert(step.key.clone(), asked);
        Ok(Some(step_move))
    }

    /// What is found out about a step; nothing while a person has not decided.
    fn ask(&mut self, step: &StepSpec) -> Result<Option<Asked>, EngineError> {
        let reached = self.reached(&step.key)?;
        let making = self.making(step, &reached);
        if let StepBody::Approval { ask, terms } = &step.body {
            let subject = effect::gate(&making, self.held.store(), ask)?;
            return self.ask_person(step, (&subject, terms));
        }
        let wish = effect::wish(&making, self.held.store())?;
        let (inputs, hold) = (self.held.inputs.clone(), self.held.hold.clone());
        let outside = Outside::of(self.host);
        Ok(match intend(&outside, self.held.parts().0, By::Holder(&hold), (&inputs, &wish))? {
            Gate::Go(intended) => Some(Asked::Effect(intended)),
            Gate::Refused(failure) => Some(Asked::Refused(failure)),
            Gate::Wait(_, approval) => self.tell_waiting(step, &approval),
        })
    }

    /// A gate: nothing but a person's word.
    fn ask_person(
        &mut self,
        step: &StepSpec,
        (subject, terms): (&Subject, &ApprovalTerms),
    ) -> Result<Option<Asked>, EngineError> {
        let (run, hold) = (self.held.hold.run.clone(), self.held.hold.clone());
        let why = String::new();
        let decision = Decision { verdict: Verdict::Approve, rule: None, terms: terms.clone(), why };
        let about = About::Step(&run, &step.key);
        let outside = Outside::of(self.host);
        let approval = ask(&outside, self.held.parts().0, (Some(&hold), about), (subject, &decision))?;
        Ok(match approval.state {
            ApprovalState::Approved => Some(Asked::Agreed(approval.id, approval.digest)),
            _ => self.tell_waiting(step, &approval),
        })
    }

    fn tell_waiting(&mut self, step: &StepSpec, approval: &ApprovalRecord) -> Option<Asked> {
        self.observer.notice(&Notice::NeedsApproval { step: Some(&step.key), approval });
        None
    }

    /// What the run's work is by now. The same contents on the same base are the same, whichever run made them.
    pub(super) fn reached(&mut self, step: &StepKey) -> Result<Reached, EngineError> {
        let snapshot = self.copy.snapshot(self.host, self.held, Some(step))?;
        self.held.commit()?;
        let base = self.run.components.base_commit.clone();
        let commit = self.copy.workspace.contents(&base, &snapshot.commit)?;
        let pin = format!("{CONTENTS_PIN}{}", &commit[..12]);
        self.host.repo.pin(self.held.hold.run.as_str(), &pin, &commit)?;
        Ok(Reached { commit })
    }

    pub(super) fn making<'m>(&'m self, step: &'m StepSpec, reached: &'m Reached) -> Making<'m> {
        Making { host: self.host, run: self.run, inputs: &self.held.inputs, step, reached }
    }

    /// The step waits; one that waits already makes no move.
    fn wait_for_person(&mut self, step_move: Move) -> Option<Move> {
        self.waiting.insert(step_move.step.clone());
        let event = step_move.event.asked_first()?;
        Some(Move { event, ..step_move })
    }

    /// A step that reaches the outside has begun.
    pub(super) fn carry_out_effect<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        step: &StepSpec,
    ) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        match self.asked.remove(&step.key) {
            Some(Asked::Effect(intended)) => {
                if intended.action.state == ActionState::Succeeded {
                    self.warn(&step.key, &already(&intended.action))?;
                }
                self.begin_errand(scope, (step, *intended), May::Send)
            }
            // The person's word is used up with the step that it lets go.
            Some(Asked::Agreed(approval, digest)) => {
                self.held.stage(Change::UseApproval { approval, digest })?;
                self.succeed(step, Success { name: step.key.as_str(), commit: None, ended: None })
            }
            Some(Asked::Refused(failure)) => self.effect_failed(step, failure),
            None => Err(EngineError::failed(Code::Internal, format!("nobody was asked about step `{}`", step.key))),
        }
    }

    fn begin_errand<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        (step, intended): (&StepSpec, Intended),
        may: May,
    ) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let order = Order {
            whom: For::Step(step.key.clone()),
            hold: Some(self.held.hold.clone()),
            policy: self.held.inputs.policy.clone(),
            intended,
            limit: step_limit(&self.held.inputs, &step.key),
            may,
        };
        let under_way = errand::start(scope, Outside::of(self.host), order, self.inbox.sender.clone())?;
        self.under_way.push(under_way);
        Ok(())
    }

    /// An action has come to rest.
    pub(super) fn carried(&mut self, whom: &For, carried: Result<Carried, EngineError>) -> Result<(), EngineError> {
        let since = self.under_way.iter().find(|u| u.whom == *whom).map(|u| u.since);
        self.under_way.retain(|under_way| under_way.whom != *whom);
        let For::Step(key) = whom else { return self.wish_ended(carried) };
        let Some(step) = self.held.inputs.spec.step(key).cloned() else { return Ok(()) };
        let took = since.map_or(Millis(0), |since| Millis(now().boot.0.saturating_sub(since.0)));
        match carried {
            Ok(carried) => self.effect_ended(&step, (&carried, took)),
            Err(error) if error.is_no_verdict() => Err(error),
            Err(error) => self.effect_hindered(&step, error.failure()),
        }
    }

    /// A step ends as the record of its action says.
    fn effect_ended(&mut self, step: &StepSpec, (carried, took): (&Carried, Millis)) -> Result<(), EngineError> {
        let action = &carried.action;
        if self.held.step(&step.key).is_some_and(|record| record.state == StepState::Unknown) {
            return self.proved(step, action);
        }
        match action.state {
            ActionState::Succeeded | ActionState::Compensating | ActionState::Compensated => {
                self.deployed(step, action)?;
                self.succeed(step, Success { name: step.key.as_str(), commit: None, ended: None })?;
                let _ = took;
                self.settled_outside()
            }
            ActionState::Ready | ActionState::WaitingApproval => match not_sent(carried) {
                Some(failure) => self.effect_failed(step, failure),
                // It was to stop before it was sent, or a person must agree anew.
                None => self.end_badly(step, StepEvent::Interrupt, None, None),
            },
            ActionState::Failed | ActionState::Canceled => self.effect_failed(step, failure_of(action)),
            ActionState::Started | ActionState::InProgress | ActionState::OutcomeUnknown => {
                self.end_badly(step, StepEvent::LoseOutcome, None, Some(unknown(action)))
            }
        }
    }

    /// What is settled outside is on disk before anything else happens, and in the manifest (R-S4).
    pub(super) fn settled_outside(&mut self) -> Result<(), EngineError> {
        self.commit()?;
        closing::write_manifest(self.host, self.held)
    }

    /// Asking has brought an unknown step's action to rest, or not.
    fn proved(&mut self, step: &StepSpec, action: &ActionRecord) -> Result<(), EngineError> {
        match action.state {
            ActionState::Succeeded => {
                self.deployed(step, action)?;
                self.held.move_step(&step.key, StepEvent::ProveSuccess, None)?;
                self.tell_end(&step.key, Millis(0), None);
                self.settled_outside()
            }
            // It is not there: the step failed, and this attempt begins it again.
            ActionState::Ready | ActionState::WaitingApproval => {
                let failure = Failure::new(Code::ActionFailed, "it had not happened");
                self.held.move_step(&step.key, StepEvent::ProveFailure, Some(failure))
            }
            ActionState::Failed | ActionState::Canceled => {
                self.held.move_step(&step.key, StepEvent::ProveFailure, Some(failure_of(action)))
            }
            _ => Ok(()),
        }
    }

    /// A deployment that nothing verifies is as good as it gets; one that is verified waits for that.
    fn deployed(&mut self, step: &StepSpec, action: &ActionRecord) -> Result<(), EngineError> {
        let is_verified = delivery::verification(&self.held.inputs.spec, &step.key).is_some();
        if step.kind() != StepKind::Deploy || is_verified || !self.is_deploying(action)? {
            return Ok(());
        }
        self.move_deployment(action, (DeploymentEvent::Verify, None))
    }

    /// One that is there already has nothing more to prove.
    pub(super) fn is_deploying(&self, action: &ActionRecord) -> Result<bool, EngineError> {
        let deployments = self.held.store().deployments(Some(&action.target))?;
        let is_it = |d: &DeploymentRecord| Some(&d.release) == action.release.as_ref();
        Ok(deployments.iter().any(|d| is_it(d) && d.state == DeploymentState::Deploying))
    }

    pub(super) fn move_deployment(
        &mut self,
        action: &ActionRecord,
        (event, verified): (DeploymentEvent, Option<bool>),
    ) -> Result<(), EngineError> {
        let Some(release) = action.release.clone() else { return Ok(()) };
        let hold = self.held.hold.clone();
        let moved = DeploymentMove {
            environment: &action.target,
            release: &release,
            event,
            verified,
            hold: Some(&hold),
            reason: None,
        };
        let (store, who) = self.held.parts();
        store.move_deployment(&moved, &who.context())?;
        Ok(())
    }

    /// Nothing was sent: what stood in the way is the step's failure.
    fn effect_hindered(&mut self, step: &StepSpec, failure: Failure) -> Result<(), EngineError> {
        if self.held.step(&step.key).is_some_and(|record| record.state == StepState::Unknown) {
            return self.warn(&step.key, &format!("it could not be asked about: {}", failure.message));
        }
        self.effect_failed(step, failure)
    }

    fn effect_failed(&mut self, step: &StepSpec, failure: Failure) -> Result<(), EngineError> {
        self.held.retry_after(&step.key, failure.retry_after);
        self.end_badly(step, StepEvent::Fail, None, Some(failure))
    }

    /// Asks what became of effects that an earlier attempt left unknown: the first thing that an attempt does.
    pub(super) fn ask_about_unknown<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let unknown = self.held.steps.iter().filter(|s| s.state == StepState::Unknown).map(|s| s.key.clone());
        for key in unknown.collect::<Vec<_>>() {
            let Some(step) = self.held.inputs.spec.step(&key).cloned() else { continue };
            let Some(action) = want::of_step(self.held.store(), &self.held.hold.run, &key)? else { continue };
            let reached = self.reached(&key)?;
            let wish = effect::wish(&self.making(&step, &reached), self.held.store())?;
            let intended = Intended { action, looked: wish.looked, asked: wish.request.asked() };
            self.begin_errand(scope, (&step, intended), May::Ask)?;
        }
        Ok(())
    }
}

/// Why nothing is done once more.
fn already(action: &ActionRecord) -> String {
    match action.kind {
        ActionType::Deploy => {
            let release = action.release.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("ALREADY_DEPLOYED: {release} is in {} by an earlier request", action.target)
        }
        _ => format!("DUPLICATE_REQUEST: {} {} was done by an earlier request", action.kind, action.target),
    }
}

/// Why it was not sent, where that is for good or for a person.
fn not_sent(carried: &Carried) -> Option<Failure> {
    let action = &carried.action;
    let review = action.review.as_ref();
    let about = |why: &String| format!("{} to {}: {why}", action.kind, action.target);
    let review = review.map(|why| Failure::new(Code::ReviewRequired, about(why)));
    review.or_else(|| carried.hindered.clone().filter(|failure| failure.code != Code::NeedsApproval))
}

/// Why an action failed, as the failure of its step. The action's own retry layer is the only one: a code that agentrun would
/// try again by itself stands here only when it is worth a later attempt, and says from when (F66).
fn failure_of(action: &ActionRecord) -> Failure {
    let message = action.message.clone().unwrap_or_else(|| "it failed".to_owned());
    let named = |code| Failure::new(code, message.clone());
    match (action.state, action.code, action.retry_at) {
        (ActionState::Canceled, ..) => named(Code::ApprovalRejected),
        (_, Some(code), Some(at)) if code.entry().retryable => {
            Failure { retry_after: Some(Millis::between(now().utc, at)), ..named(code) }
        }
        (_, Some(code), _) if code.entry().retryable => {
            Failure::new(Code::ActionFailed, format!("{code} at every of {} tries: {message}", action.tries))
        }
        (_, code, _) => named(code.unwrap_or(Code::ActionFailed)),
    }
}

pub(super) fn unknown(action: &ActionRecord) -> Failure {
    let why = action.review.as_ref().or(action.message.as_ref()).map(|why| format!(": {why}")).unwrap_or_default();
    Failure::new(Code::OutcomeUnknown, format!("{} {} ({}){why}", action.kind, action.target, action.id))
}
