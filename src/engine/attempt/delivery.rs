//! Releases, and the look at a deployment: what comes before and after an effect, and has none itself.

use std::thread::Scope;

use super::Attempt;
use super::end::Success;
use crate::domain::action::record::{DeploymentRecord, ReleaseRecord};
use crate::domain::action::state::{DeploymentEvent, DeploymentState};
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::plan::phase::phase_event;
use crate::domain::quantity::UtcMs;
use crate::domain::step::StepEvent;
use crate::domain::task::{StepBody, StepKind, StepSpec};
use crate::engine::action::errand::{For, UnderWay, tell};
use crate::engine::action::health::{self, Health};
use crate::engine::action::stop::Stop;
use crate::engine::action::{Outside, want};
use crate::engine::error::EngineError;
use crate::engine::host::Message;
use crate::engine::kept::keep_artifacts;
use crate::engine::steps::effect;
use crate::engine::steps::step_limit;

impl<'a> Attempt<'a> {
    /// Binds a name to the commit that the run has reached and to the step's artifacts. The same again is the same (R-A19).
    pub(super) fn make_release(&mut self, step: &StepSpec) -> Result<(), EngineError> {
        let StepBody::Release { release } = &step.body else { return Ok(()) };
        let reached = self.reached(&step.key)?;
        let made = {
            let making = self.making(step, &reached);
            effect::render(&making, None, release).and_then(effect::release_id)
        };
        let id = match made {
            Ok(id) => id,
            Err(error) => return self.end_badly(step, StepEvent::Fail, None, Some(error.failure())),
        };
        let artifacts = match keep_artifacts(self.host, self.held, step, self.copy.workspace.dir())? {
            Ok(artifacts) => artifacts,
            Err(failure) => return self.end_badly(step, StepEvent::Fail, None, Some(failure)),
        };
        let (hold, created_at) = (self.held.hold.clone(), UtcMs(0));
        let run = hold.run.clone();
        let record =
            ReleaseRecord { id, commit: reached.commit.clone(), artifacts: artifacts.clone(), run, created_at };
        let (store, who) = self.held.parts();
        // If we die after this commit: the release is there, and the step finds it to be the same.
        match store.make_release(&hold, &record, &who.context()) {
            Ok(_) => {}
            Err(error) if error.code() == Code::IdempotencyConflict => {
                let failure = Failure::new(error.code(), error.to_string());
                return self.end_badly(step, StepEvent::Fail, None, Some(failure));
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(event) = phase_event(step.kind(), StepEvent::Succeed) {
            self.held.move_phase(event)?;
        }
        let success = Success { name: "RELEASE_PREPARED", commit: Some(reached.commit), ended: None };
        self.succeed_with(step, success, artifacts)?;
        self.settled_outside()
    }

    /// Looks whether what was deployed is good: first its address, then the smoke test.
    pub(super) fn begin_verify<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        step: &StepSpec,
    ) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let StepBody::Verify(verify) = &step.body else { return Ok(()) };
        self.move_deployment_of(step, &[DeploymentState::Failed], (DeploymentEvent::VerifyAgain, None))?;
        let Some(url) = verify.health.clone() else { return self.begin_smoke(step) };
        let (stop, whom, inbox) = (Stop::default(), For::Step(step.key.clone()), self.inbox.sender.clone());
        let outside = Outside::of(self.host);
        let health = Health {
            url,
            limit: step_limit(&self.held.inputs, &step.key),
            call: self.held.inputs.policy.timeouts.call,
        };
        let (key, told) = (step.key.clone(), stop.clone());
        let look = move || {
            let failure = health::look(&outside, &health, &told).err();
            tell(&inbox, Message::Verified(key, failure), &told);
        };
        std::thread::Builder::new()
            .name("health".into())
            .spawn_scoped(scope, look)
            .map_err(|e| EngineError::failed(Code::EnvLimit, format!("no thread for a health check: {e}")))?;
        self.under_way.push(UnderWay::new(whom, stop));
        Ok(())
    }

    /// The address was looked at.
    pub(super) fn verified(&mut self, key: &StepKey, failure: Option<Failure>) -> Result<(), EngineError> {
        self.under_way.retain(|under_way| under_way.whom != For::Step(key.clone()));
        let Some(step) = self.held.inputs.spec.step(key).cloned() else { return Ok(()) };
        match failure {
            None => self.begin_smoke(&step),
            Some(failure) if failure.code == Code::Interrupted => {
                self.end_badly(&step, StepEvent::Interrupt, None, None)
            }
            Some(failure) => {
                self.end_badly(&step, StepEvent::Fail, None, Some(failure))?;
                self.deployment_is(&step, false)
            }
        }
    }

    fn begin_smoke(&mut self, step: &StepSpec) -> Result<(), EngineError> {
        let StepBody::Verify(verify) = &step.body else { return Ok(()) };
        if verify.smoke.is_some() {
            return self.launch(step.clone());
        }
        self.succeed(step, Success { name: step.key.as_str(), commit: None, ended: None })?;
        self.deployment_is(step, true)
    }

    /// What the look at a deployment says of it.
    pub(super) fn deployment_is(&mut self, step: &StepSpec, good: bool) -> Result<(), EngineError> {
        if step.kind() != StepKind::Verify {
            return Ok(());
        }
        let event = if good { DeploymentEvent::Verify } else { DeploymentEvent::Fail };
        self.move_deployment_of(step, &[DeploymentState::Deploying], (event, Some(good)))?;
        self.settled_outside()
    }

    /// Moves the deployment that a verify step is about, if there is one and it stands in one of these states.
    fn move_deployment_of(
        &mut self,
        step: &StepSpec,
        from: &[DeploymentState],
        (event, verified): (DeploymentEvent, Option<bool>),
    ) -> Result<(), EngineError> {
        let StepBody::Verify(verify) = &step.body else { return Ok(()) };
        let Some(deploy) = &verify.of else { return Ok(()) };
        let hold = self.held.hold.clone();
        let Some(action) = want::of_step(self.held.store(), &hold.run, deploy)? else { return Ok(()) };
        let Some(release) = action.release.clone() else { return Ok(()) };
        let deployments = self.held.store().deployments(Some(&action.target))?;
        let is_it = |d: &&DeploymentRecord| d.release == release && from.contains(&d.state);
        if deployments.iter().find(is_it).is_none() {
            return Ok(());
        }
        self.move_deployment(&action, (event, verified))
    }
}
