//! Brings one action to rest: asks the domain for the next move, makes it, commits it, and asks again. Whoever holds the
//! action does this; a crash in between leaves a record from which the next one decides the same.

use super::admission::{self, Admission};
use super::call::{Caller, longest};
use super::claim::{claim, facts_of, lease_until, patience, right_lasts};
use super::stop::Stop;
use super::want::{Intended, found, read_request};
use super::{Outside, subject};
use crate::domain::action::record::ReadingRecord;
use crate::domain::action::{ActionEvent, ActionFacts, ActionMove, ActionRecord, ActionRequest, ActionState, Answer};
use crate::domain::breaker::Breaker;
use crate::domain::failure::{Code, Failure};
use crate::domain::plan::action_flow::{self, Facts, Next};
use crate::domain::plan::reconcile::Verdict;
use crate::domain::policy::Policy;
use crate::domain::quantity::{Millis, UtcMs};
use crate::engine::error::EngineError;
use crate::engine::host::now;
use crate::failpoints::{self, When};
use crate::store::{ActionStep, Answered, Assignment, Hold, NotSent, Sending, Store, StoreError};

/// What must be left of the leases when something is sent (F43); of a short lease, a quarter.
const SEND_MARGIN: Millis = Millis(1_000);

/// How long a person has to look at what agentrun cannot settle.
const REVIEW_WITHIN: Millis = Millis(24 * 3_600_000);

/// Whether something may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    /// What is ready is sent.
    Send,
    /// Only what is unknown is asked about.
    Ask,
}

/// What an action is carried out with.
pub struct Errand<'a> {
    /// The machine.
    pub outside: Outside<'a>,
    /// The run that does it; `None` where no run does.
    pub hold: Option<&'a Hold>,
    /// The policy that holds.
    pub policy: &'a Policy,
    /// The action, and what is looked at before it is sent.
    pub intended: &'a Intended,
    /// How long one call of a command may take.
    pub limit: Millis,
    /// What may be done.
    pub may: May,
    /// Ends waiting and whatever is being done.
    pub stop: &'a Stop,
}

/// Where an action came to rest.
#[derive(Debug)]
pub struct Carried {
    /// The record.
    pub action: ActionRecord,
    /// Why it was not sent, where something stood in its way.
    pub hindered: Option<Failure>,
}

/// Carries it out, as far as it goes without a person.
pub fn carry(errand: &Errand<'_>, store: &mut Store) -> Result<Carried, EngineError> {
    let id = &errand.intended.action.id;
    let Some(action) = claim(errand, store)? else {
        return Ok(Carried { action: found(store, id)?, hindered: None });
    };
    let mut carrier = Carrier { errand, patience: patience(errand, &action), has_asked: false, action, hindered: None };
    let done = carrier.bring_to_rest(store);
    let left = store.release_action((id, carrier.action.fence), &errand.outside.who.context());
    match (done, left) {
        // Somebody else has it by now: what they make of it is on record.
        (
            Ok(()) | Err(EngineError::Store(StoreError::ActionFenced { .. })),
            Ok(()) | Err(StoreError::ActionFenced { .. }),
        ) => Ok(Carried { action: found(store, id)?, hindered: carrier.hindered }),
        (Err(error), _) => Err(error),
        (_, Err(error)) => Err(error.into()),
    }
}

struct Carrier<'a> {
    errand: &'a Errand<'a>,
    /// Until when it is tried to find out, whatever the action's own deadline says: somebody asks for it now.
    patience: UtcMs,
    has_asked: bool,
    action: ActionRecord,
    hindered: Option<Failure>,
}

/// Whether it goes on.
enum Then {
    GoOn,
    Rest,
}

impl Carrier<'_> {
    fn bring_to_rest(&mut self, store: &mut Store) -> Result<(), EngineError> {
        loop {
            let readings = store.readings(&self.action.id)?;
            let until = self.action.deadline.max(self.patience);
            let facts = Facts { until, ..facts_of(self.errand, &self.action, &readings) };
            let next = action_flow::next(&self.action, &facts);
            let may_send = self.errand.may == May::Send;
            if self.is_to_be_asked_anew(&next) {
                self.ask_at(store, now().utc)?;
                continue;
            }
            let then = match next {
                Next::Settled | Next::AwaitApproval | Next::Held => Then::Rest,
                Next::Send { .. } | Next::Resend { .. } | Next::Retry { .. } if !may_send => Then::Rest,
                Next::Send { at } | Next::Resend { at } => self.send_at(store, at)?,
                Next::Ask { at } => self.ask_at(store, at)?,
                Next::Settle(verdict) => self.settle(store, verdict)?,
                Next::Retry { at } => {
                    let facts = ActionFacts { retry_at: Some(at), ..said("it had not happened, and is tried again") };
                    self.moved(store, ActionEvent::Retry, facts)?
                }
                Next::Lose => self.moved(store, ActionEvent::LoseOutcome, self.lost())?,
                Next::Review { why } => self.review(store, &why)?,
            };
            if matches!(then, Then::Rest) {
                return Ok(());
            }
        }
    }

    /// Whoever comes back to what a person was to look at asks once more first: it may be there by now.
    fn is_to_be_asked_anew(&self, next: &Next) -> bool {
        let is_unknown = matches!(self.action.state, ActionState::OutcomeUnknown);
        let gives_up = matches!(next, Next::Review { .. } | Next::Settle(Verdict::Review { .. }));
        is_unknown && gives_up && !self.has_asked && self.action.contract.query.is_some()
    }

    fn lost(&self) -> ActionFacts {
        let what = match self.action.state {
            ActionState::Started => "it was sent, or about to be, and its sender left no answer",
            _ => "it was accepted, and was not done in time",
        };
        ActionFacts { code: Some(Code::OutcomeUnknown), message: Some(what.to_owned()), ..ActionFacts::default() }
    }

    fn moved(&mut self, store: &mut Store, event: ActionEvent, facts: ActionFacts) -> Result<Then, EngineError> {
        let moved = ActionMove { event, facts };
        let reason = moved.facts.message.as_deref().or(moved.facts.last_fact.as_deref());
        let (id, fence) = (self.action.id.clone(), Some(self.action.fence));
        let step = ActionStep { action: &id, fence, moved: &moved, reason };
        self.action = store.move_action(&step, &self.errand.outside.who.context())?;
        Ok(Then::GoOn)
    }

    /// Waits, unless that is longer than somebody should wait for a further try, or the end is asked for.
    fn wait_to_send(&self, store: &mut Store, at: UtcMs) -> Result<Then, EngineError> {
        let is_long = Millis::between(now().utc, at) > self.errand.policy.retry.max;
        if is_long { Ok(Then::Rest) } else { self.wait_to_ask(store, at) }
    }

    /// A question is worth any wait that the action's own time allows. Whoever waits keeps the right.
    fn wait_to_ask(&self, store: &mut Store, at: UtcMs) -> Result<Then, EngineError> {
        let slice = Millis(right_lasts(self.errand, &self.action).0 / 2);
        loop {
            let left = Millis::between(now().utc, at);
            if self.errand.stop.wait(left.min(slice)) {
                return Ok(Then::Rest);
            }
            if left <= slice {
                return Ok(Then::GoOn);
            }
            self.renew(store)?;
        }
    }

    fn send_at(&mut self, store: &mut Store, at: UtcMs) -> Result<Then, EngineError> {
        if let Then::Rest = self.wait_to_send(store, at)? {
            return Ok(Then::Rest);
        }
        let request = read_request(&self.errand.outside, &self.action)?;
        let admitted = match admission::ask(self.errand, &self.action, store)? {
            Admission::Unasked => None,
            Admission::Open(admitted) => Some(admitted),
            Admission::Shut(breaker) => return Ok(self.left_alone(&breaker)),
        };
        let answer = self.send(store, &request);
        if let Some(admitted) = admitted {
            admitted.ended(self.errand, store, answer.as_ref().ok().and_then(Option::as_ref))?;
        }
        match answer? {
            Some(_) => Ok(Then::GoOn),
            None => Ok(Then::Rest),
        }
    }

    /// Others have found that the provider does not answer: a later attempt tries.
    fn left_alone(&mut self, breaker: &Breaker) -> Then {
        let wait = Millis::between(now().utc, breaker.until);
        self.hindered = Some(Failure { retry_after: Some(wait), ..admission::failure(breaker) });
        Then::Rest
    }

    /// The send and its answer, both on record; nothing when it may not be sent.
    fn send(&mut self, store: &mut Store, request: &ActionRequest) -> Result<Option<Answer>, EngineError> {
        // Looked at again now: what was approved is what is sent (F49).
        let digest = subject::look(&self.errand.outside, &self.errand.intended.looked)?.digest();
        self.renew(store)?;
        let clocks = self.errand.policy.actions.of(self.action.kind);
        let sending = Sending {
            action: &self.action.id,
            fence: self.action.fence,
            hold: self.errand.hold,
            asked: &self.errand.intended.asked,
            digest: Some(digest),
            margin: SEND_MARGIN.min(Millis(self.errand.policy.leases.ttl.0 / 4)),
            deadline: now().utc.plus(clocks.expire.max(longest(self.errand, &self.action))),
        };
        // If we die before this commit: nothing was sent, and it is ready. If we die after it: it counts as sent.
        match store.begin_send(&sending, &self.errand.outside.who.context())? {
            Ok(action) => self.action = action,
            Err(not_sent) => return self.not_sent(store, &not_sent).map(|_| None),
        }
        let _ = failpoints::reached(When::Before, "send");
        let answer = self.caller(request).send()?;
        // If we die here, the other side has it and nobody here knows: it is asked what became of it.
        let _ = failpoints::reached(When::After, "send");
        let answered = Answered {
            action: &self.action.id,
            fence: self.action.fence,
            tries: self.action.tries,
            answer: &answer,
            facts: &ActionFacts::default(),
        };
        self.action = store.record_answer(&answered, &self.errand.outside.who.context())?;
        Ok(Some(answer))
    }

    fn not_sent(&mut self, store: &mut Store, not_sent: &NotSent) -> Result<Then, EngineError> {
        self.hindered = Some(Failure::new(not_sent.code(), not_sent.to_string()));
        match not_sent {
            NotSent::Budget { .. } | NotSent::KeyRetentionPassed { .. } => self.review(store, &not_sent.to_string()),
            _ => Ok(Then::Rest),
        }
    }

    fn ask_at(&mut self, store: &mut Store, at: UtcMs) -> Result<Then, EngineError> {
        if let Then::Rest = self.wait_to_ask(store, at)? {
            return Ok(Then::Rest);
        }
        let request = read_request(&self.errand.outside, &self.action)?;
        self.renew(store)?;
        let reading = self.caller(&request).ask()?;
        self.has_asked = true;
        let source = "query".to_owned();
        let reading = ReadingRecord { at: now().utc, reading, source, tries: self.action.tries };
        let at = (&self.action.id, Some(self.action.fence));
        self.action = store.record_reading(at, &reading, None, &self.errand.outside.who.context())?;
        Ok(Then::GoOn)
    }

    fn settle(&mut self, store: &mut Store, verdict: Verdict) -> Result<Then, EngineError> {
        let state = self.action.state;
        let event = |unknown, known| if state == ActionState::OutcomeUnknown { unknown } else { known };
        match verdict {
            Verdict::Succeeded { reference } if state == ActionState::Ready => {
                let facts = ActionFacts { reference, ..said("it was there already, and is taken as it is") };
                self.moved(store, ActionEvent::Adopt, facts)
            }
            Verdict::Succeeded { reference } => {
                let facts = ActionFacts { reference, ..said("the other side has it") };
                self.moved(store, event(ActionEvent::ProveSuccess, ActionEvent::Succeed), facts)
            }
            Verdict::Failed { message } => {
                let (code, message) = (Some(Code::ActionFailed), Some(message));
                let facts = ActionFacts { code, message, ..said("the other side says that it failed") };
                self.moved(store, event(ActionEvent::ProveFailure, ActionEvent::Fail), facts)
            }
            Verdict::InProgress { reference } => {
                let facts = ActionFacts { reference, ..said("the other side has accepted it") };
                self.moved(store, ActionEvent::ProveProgress, facts)
            }
            Verdict::Absent => {
                let facts = said("asked twice after the settle time: it is not there");
                self.moved(store, ActionEvent::ProveAbsence, facts)
            }
            Verdict::AskAgain { at } => self.ask_at(store, at),
            Verdict::Review { why } => self.review(store, &why),
        }
    }

    /// A person must look: for a reason, until a time.
    fn review(&mut self, store: &mut Store, why: &str) -> Result<Then, EngineError> {
        let due = Some(self.action.due.unwrap_or_else(|| now().utc.plus(REVIEW_WITHIN)));
        let owner = self.action.owner.clone().unwrap_or_else(|| self.errand.outside.who.actor.clone());
        let assignment = Assignment { owner: &owner, due, review: Some(why) };
        self.action = store.assign_action(&self.action.id, &assignment, &self.errand.outside.who.context())?;
        Ok(Then::Rest)
    }

    fn renew(&self, store: &mut Store) -> Result<(), EngineError> {
        let at = (&self.action.id, self.action.fence);
        Ok(store.keep_action_lease(at, lease_until(self.errand, &self.action), &self.errand.outside.who.context())?)
    }

    fn caller<'c>(&'c self, request: &'c ActionRequest) -> Caller<'c> {
        Caller { errand: self.errand, action: &self.action, request }
    }
}

/// What is known, in words.
fn said(fact: &str) -> ActionFacts {
    ActionFacts { last_fact: Some(fact.to_owned()), ..ActionFacts::default() }
}
