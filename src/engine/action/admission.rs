//! Whether a provider is called at all now (R-R8, F66): a contract over the network has a breaker, like the providers of agents.
//! Its failures are those of all runs; while it is open one call tries, and everybody else leaves it alone.

use super::carry::Errand;
use crate::domain::action::contract::Channel;
use crate::domain::action::{ActionRecord, Answer};
use crate::domain::breaker::Breaker;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::RunId;
use crate::domain::quantity::Millis;
use crate::domain::turn::Queue;
use crate::engine::attempt::held_failure;
use crate::engine::error::EngineError;
use crate::engine::run::this_process;
use crate::store::{Asked, EndedCall, Store, Turned};

/// A call that was let through, until it has ended.
pub(super) struct Admitted {
    provider: String,
    contract: String,
    run: RunId,
    turn: u64,
}

/// What came of asking.
pub(super) enum Admission {
    /// There is nobody to be left alone: a command.
    Unasked,
    /// It may be called.
    Open(Admitted),
    /// It is left alone.
    Shut(Box<Breaker>),
}

/// Asks, before anything is sent.
pub(super) fn ask(errand: &Errand<'_>, action: &ActionRecord, store: &mut Store) -> Result<Admission, EngineError> {
    let is_command = errand.intended.looked.own.run.is_some();
    let (false, Some(Channel::Http(_))) = (is_command, &action.contract.send) else { return Ok(Admission::Unasked) };
    let run = errand.hold.map_or_else(|| action.run.clone(), |hold| hold.run.clone());
    let provider = format!("contract {}", action.contract.name);
    let (queue, holder) = (Queue::Provider(provider.clone()), this_process()?);
    let asked = Asked {
        queue: &queue,
        run: &run,
        agent: Some(&action.contract.name),
        holder: &holder,
        limit: None,
        insists: false,
        trial: Millis(errand.limit.0.saturating_add(1_000)),
        gone: &[],
        takes_over: true,
    };
    let context = errand.outside.who.context();
    let place = store.queue_up(&asked, &context)?;
    match place.next {
        Turned::Shut(breaker) => {
            store.leave_turn(place.turn, &context)?;
            Ok(Admission::Shut(breaker))
        }
        _ => Ok(Admission::Open(Admitted { provider, contract: action.contract.name.clone(), run, turn: place.turn })),
    }
}

/// Why it is left alone.
pub(super) fn failure(breaker: &Breaker) -> Failure {
    held_failure(breaker)
}

impl Admitted {
    /// The call has ended: what it says of the provider is told to all runs.
    pub fn ended(self, errand: &Errand<'_>, store: &mut Store, answer: Option<&Answer>) -> Result<(), EngineError> {
        let failure = answer.map_or_else(|| Some(Failure::new(Code::Interrupted, "not sent")), failure_of);
        let call = EndedCall {
            provider: &self.provider,
            agent: &self.contract,
            run: &self.run,
            turn: self.turn,
            failure: failure.as_ref(),
            rules: errand.policy.breaker,
        };
        Ok(store.end_call(&call, &errand.outside.who.context())?)
    }
}

fn failure_of(answer: &Answer) -> Option<Failure> {
    match answer {
        Answer::Done { .. } | Answer::Accepted { .. } => None,
        // The other side answered, and is at it.
        Answer::Unknown { in_progress: true, .. } => None,
        Answer::Refused { code, message, retry_after, .. } | Answer::Unknown { code, message, retry_after, .. } => {
            Some(Failure { retry_after: *retry_after, ..Failure::new(*code, message.clone()) })
        }
    }
}
