//! What programs inside the run ask for. They wrote the intent; the run's holder asks the policy and where it says so a
//! person, carries it out beside the steps, and does not end before it has come to rest.

use std::thread::Scope;

use super::Attempt;
use super::effects::unknown;
use crate::domain::action::ActionState;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::ActionId;
use crate::domain::policy::decide::decide;
use crate::engine::action::Outside;
use crate::engine::action::carry::{Carried, May};
use crate::engine::action::errand::{self, For, Order};
use crate::engine::action::mailbox::{self, Mailbox};
use crate::engine::action::subject;
use crate::engine::action::want::{Gate, found, weigh};
use crate::engine::error::EngineError;
use crate::engine::observer::Notice;

impl<'a> Attempt<'a> {
    /// Begins to look for wishes, where a contract lets programs of the run have any.
    pub(super) fn open_mailbox<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Option<Mailbox>, EngineError> {
        if !mailbox::is_open(&self.held.inputs) {
            return Ok(None);
        }
        mailbox::open(scope, self.host.home, &self.held.hold.run, self.inbox.sender.clone()).map(Some)
    }

    /// Looks for what is there by now: left by an earlier attempt, agreed to meanwhile, or wanted a moment ago. Says whether
    /// there is anything that was not met in this attempt.
    pub(super) fn find_wishes(&mut self) -> Result<bool, EngineError> {
        if !mailbox::is_open(&self.held.inputs) {
            return Ok(false);
        }
        let wishes = mailbox::wishes(self.held.store(), &self.held.hold.run)?;
        let new = wishes.into_iter().filter(|met| !self.met.contains(met)).map(|met| met.0);
        self.wished.extend(new);
        Ok(!self.wished.is_empty())
    }

    /// Begins everything that is wished, once.
    pub(super) fn begin_wishes<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        for id in std::mem::take(&mut self.wished) {
            if self.stopping.is_some() || self.under_way.iter().any(|u| u.whom == For::Wish(id.clone())) {
                continue;
            }
            let action = found(self.held.store(), &id)?;
            // It is looked at again when a person has agreed.
            if !self.met.insert((id.clone(), action.approval)) {
                continue;
            }
            match self.begin_wish(scope, &id) {
                Err(error) if error.is_no_verdict() => return Err(error),
                Err(error) => self.wish_failed(&error)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn begin_wish<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, id: &ActionId) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let outside = Outside::of(self.host);
        let of = mailbox::For {
            inputs: &self.held.inputs,
            base_commit: &self.run.components.base_commit,
            vars: &self.command_vars,
        };
        let intended = mailbox::intended(&outside, self.held.store(), (id, &of))?;
        let decision = decide(&self.held.inputs.policy, &intended.asked);
        let subject = subject::look(&outside, &intended.looked)?;
        let hold = self.held.hold.clone();
        match weigh(&outside, self.held.parts().0, Some(&hold), (intended, &decision, &subject))? {
            Gate::Go(intended) => {
                let order = Order {
                    whom: For::Wish(id.clone()),
                    hold: Some(hold),
                    policy: self.held.inputs.policy.clone(),
                    intended: *intended,
                    limit: self.held.inputs.policy.timeouts.step,
                    may: May::Send,
                };
                self.under_way.push(errand::start(scope, outside, order, self.inbox.sender.clone())?);
            }
            Gate::Wait(_, approval) => {
                self.observer.notice(&Notice::NeedsApproval { step: None, approval: &approval });
            }
            Gate::Refused(failure) => self.wish_failed(&EngineError::Failed(failure))?,
        }
        Ok(())
    }

    /// What was asked for has come to rest: whoever asked reads it in the record.
    pub(super) fn wish_ended(&mut self, carried: Result<Carried, EngineError>) -> Result<(), EngineError> {
        match carried {
            Ok(Carried { action, hindered }) => {
                if let Some(failure) = hindered.filter(|failure| failure.code != Code::NeedsApproval) {
                    self.warn_of_wish(&format!(
                        "{} to {} was not sent: {}",
                        action.kind, action.target, failure.message
                    ))?;
                }
                self.settled_outside()
            }
            Err(error) if error.is_no_verdict() => Err(error),
            Err(error) => self.wish_failed(&error),
        }
    }

    fn wish_failed(&mut self, error: &EngineError) -> Result<(), EngineError> {
        self.warn_of_wish(&format!("what was asked for from inside could not be carried out: {error}"))
    }

    fn warn_of_wish(&mut self, text: &str) -> Result<(), EngineError> {
        self.held.note(EventKind::WarningRaised, None, text)?;
        self.held.commit()?;
        self.observer.notice(&Notice::Warning { text });
        Ok(())
    }

    /// What is left of wishes when nothing more can be done: what nobody knows the outcome of, and what waits for a person.
    pub(super) fn wishes_left(&self) -> Result<(Option<Failure>, Option<Failure>), EngineError> {
        use ActionState as S;
        if !mailbox::is_open(&self.held.inputs) {
            return Ok((None, None));
        }
        let states = [S::Started, S::InProgress, S::OutcomeUnknown, S::WaitingApproval, S::Ready];
        let left = mailbox::of_run(self.held.store(), &self.held.hold.run, &states)?;
        let is_waiting = |state: S| matches!(state, S::WaitingApproval | S::Ready);
        let lost = left.iter().find(|action| !is_waiting(action.state)).map(unknown);
        let waiting = left.iter().find(|action| is_waiting(action.state)).map(|action| {
            let what = format!("{} to {} ({}) waits for a person", action.kind, action.target, action.id);
            Failure::new(Code::NeedsApproval, what)
        });
        Ok((lost, waiting))
    }
}
