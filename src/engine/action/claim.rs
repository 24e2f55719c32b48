//! The right to act on one action: taken by exactly one of any number of processes (R-A6), for as long as the longest call
//! lasts, and renewed before each.

use super::call::longest;
use super::carry::{Errand, May};
use super::want::found;
use crate::domain::action::ActionRecord;
use crate::domain::action::record::ReadingRecord;
use crate::domain::lease::{Holding, holding};
use crate::domain::plan::action_flow::{self, Facts, Next};
use crate::domain::plan::after_failure::{Tried, backoff};
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::engine::error::EngineError;
use crate::engine::host::now;
use crate::engine::run::this_process;
use crate::process::identity::liveness;
use crate::store::{ActionClaim, Store, StoreError};

/// How much longer than a call the right to make it lasts.
const MARGIN: Millis = Millis(5_000);

/// How often it is looked at what another process holds.
const LOOK: Millis = Millis(100);

/// Long enough for an answer, the settle time and a second answer.
pub(super) fn patience(errand: &Errand<'_>, action: &ActionRecord) -> UtcMs {
    let settle = action.contract.query.as_ref().map_or(Millis(0), |query| query.settle);
    let one_try = errand.policy.actions.of(action.kind).one_try;
    now().utc.plus(Millis(one_try.0.saturating_add(settle.0)))
}

/// Takes the right to act; `None` when there is nothing to do, or it was not to be waited for any longer. Of any number of
/// processes exactly one has it (R-A6).
pub(super) fn claim(errand: &Errand<'_>, store: &mut Store) -> Result<Option<ActionRecord>, EngineError> {
    let id = &errand.intended.action.id;
    let begin = now().boot;
    let mut seen = None;
    loop {
        let action = found(store, id)?;
        if is_at_rest(errand, store, &action)? {
            return Ok(None);
        }
        let waited = Millis(now().boot.0.saturating_sub(begin.0));
        let held = match held_by(&action) {
            Holding::Held => true,
            // A holder of another boot cannot be seen: a right that nobody renewed for as long as it can last is over.
            Holding::Foreign => seen != Some(action.fence) || waited < right_lasts(errand, &action),
            Holding::Free | Holding::Stuck | Holding::Abandoned => false,
        };
        seen.get_or_insert(action.fence);
        if !held {
            match take(errand, store, &action) {
                Ok(action) => return Ok(Some(action)),
                Err(StoreError::ActionHeld { .. }) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        if waited >= errand.limit || errand.stop.wait(LOOK) {
            return Ok(None);
        }
    }
}

fn take(errand: &Errand<'_>, store: &mut Store, action: &ActionRecord) -> Result<ActionRecord, StoreError> {
    let process = this_process().map_err(|error| StoreError::Internal(error.to_string()))?;
    let claim = ActionClaim {
        expected_fence: action.fence,
        process: &process,
        lease_until: lease_until(errand, action),
        hold: errand.hold,
    };
    store.claim_action(&action.id, &claim, &errand.outside.who.context())
}

/// Whether there is nothing that this errand could do.
fn is_at_rest(errand: &Errand<'_>, store: &Store, action: &ActionRecord) -> Result<bool, EngineError> {
    let readings = store.readings(&action.id)?;
    let next = action_flow::next(action, &facts_of(errand, action, &readings));
    Ok(match next {
        Next::Settled | Next::AwaitApproval => true,
        Next::Send { .. } | Next::Resend { .. } | Next::Retry { .. } => errand.may == May::Ask,
        // Somebody asks for it anew: what is unknown is asked about once more.
        Next::Review { .. } => action.review.is_some() && action.contract.query.is_none(),
        _ => false,
    })
}

/// How an action is held, as it can be seen from this machine.
pub fn held_by(action: &ActionRecord) -> Holding {
    let Some(lease) = &action.lease else { return Holding::Free };
    holding(Some(lease), liveness(&lease.holder), &now())
}

pub(super) fn lease_until(errand: &Errand<'_>, action: &ActionRecord) -> BootMs {
    BootMs(now().boot.0.saturating_add(right_lasts(errand, action).0))
}

/// The right to act lasts as long as the longest call, and is renewed before each.
pub(super) fn right_lasts(errand: &Errand<'_>, action: &ActionRecord) -> Millis {
    Millis(longest(errand, action).0.saturating_add(MARGIN.0))
}

pub(super) fn facts_of<'r>(errand: &Errand<'_>, action: &ActionRecord, readings: &'r [ReadingRecord]) -> Facts<'r> {
    let policy = errand.policy;
    let tries = u32::try_from(policy.tries(action.kind)).unwrap_or(u32::MAX);
    let first = u64::from(action.tries);
    let seed =
        action.request_hash.0.iter().fold(first, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let tried = Tried { failed: first, limit: None, waited: Millis(0), left: Millis(u64::MAX), seed };
    let query = action.contract.query.as_ref().map(|query| query.settle);
    let delay = backoff(&policy.retry, &tried);
    let (present, until) = (now().utc, action.deadline);
    Facts { present, until, holding: Holding::Free, readings, tries, delay, query }
}
