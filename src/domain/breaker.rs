//! Whether a provider may be called (R-R8, R-R1): what an ended call says about its provider, how long the provider is left
//! alone after it, and when one trial call may ask again. A breaker of an agent opens after timeouts and server errors in a
//! window; one of the whole provider (`agent` is `None`) holds every agent when the provider itself refused.
//!
//! Only codes and times decide, never words (FR-C10). Who comes first among several that wait is said in [`super::turn`].

use super::failure::{Code, Failure};
use super::ids::RunId;
use super::machine::{Machine, Row};
use super::policy::BreakerRules;
use super::quantity::{Millis, UtcMs};
use crate::words;

words! {
    /// Whether calls go through.
    pub enum BreakerState {
        /// They do.
        Closed = "CLOSED",
        /// They do not, until a time that is known.
        Open = "OPEN",
        /// The time is over and one trial call is under way; all others wait for what becomes of it.
        HalfOpen = "HALF_OPEN",
    }
}

words! {
    /// What can happen to a breaker.
    pub enum BreakerEvent {
        /// Calls ended without an answer, too many of them in the window.
        Trip = "trip",
        /// The provider refused: a limit, a used-up quota, a login.
        Hold = "hold",
        /// One call tries.
        Try = "try",
        /// One call tries in the place of another.
        TryAgain = "try_again",
        /// The trial got no answer.
        Fail = "fail",
        /// The trial ended without saying anything about the provider.
        GiveBack = "give_back",
        /// The trial was answered.
        Succeed = "succeed",
    }
}

use BreakerEvent as E;
use BreakerState as S;

/// Each way back to CLOSED leads through exactly one trial.
pub static BREAKER: Machine<BreakerState, BreakerEvent> = Machine {
    name: "breaker",
    initial: S::Closed,
    rows: &[
        Row {
            from: &[S::Closed],
            event: E::Trip,
            to: S::Open,
            needs: Some("as many failures in the window as the policy says"),
        },
        Row { from: &[S::Closed, S::Open, S::HalfOpen], event: E::Hold, to: S::Open, needs: None },
        Row { from: &[S::Open], event: E::Try, to: S::HalfOpen, needs: Some("the time is over, or a person insists") },
        Row {
            from: &[S::HalfOpen],
            event: E::TryAgain,
            to: S::HalfOpen,
            needs: Some("the trial's process is gone, or its time is over"),
        },
        Row { from: &[S::HalfOpen], event: E::Fail, to: S::Open, needs: None },
        Row { from: &[S::HalfOpen], event: E::GiveBack, to: S::Open, needs: None },
        Row { from: &[S::HalfOpen], event: E::Succeed, to: S::Closed, needs: None },
    ],
};

words! {
    /// Why a breaker is open.
    pub enum Cause {
        /// Timeouts and server errors.
        Outage = "outage",
        /// A limit that passes by itself.
        Limit = "limit",
        /// A quota is used up and nobody said until when.
        Quota = "quota",
        /// Only a person can help: the login, the bill.
        Person = "person",
    }
}

/// A breaker as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    /// The provider.
    pub provider: String,
    /// The agent that it is about; `None` for every agent of the provider.
    pub agent: Option<String>,
    /// Where it stands.
    pub state: BreakerState,
    /// Why it is open, or was last.
    pub cause: Cause,
    /// The failure behind it.
    pub code: Code,
    /// The same in words.
    pub message: String,
    /// The run whose call it was.
    pub run: RunId,
    /// Since when.
    pub since: UtcMs,
    /// From then on a trial may be made.
    pub until: UtcMs,
    /// How often in a row it opened.
    pub rounds: u32,
    /// The call that tries, while it is HALF_OPEN.
    pub trial: Option<Trial>,
}

/// A trial call under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The turn ([`super::turn`]) under which it was begun.
    pub turn: u64,
    /// After this it counts no more, whatever became of it.
    pub until: UtcMs,
}

/// What a call says about its provider when it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It answered.
    Answered,
    /// It gave no answer in time, or an error of its own.
    Silent,
    /// It refused.
    Refused(Cause),
    /// Nothing: the call was cut, or failed for a reason of its own.
    Nothing,
}

/// What an ended call says about its provider. Without a failure it was answered.
pub fn said(failure: Option<&Failure>) -> Said {
    let Some(failure) = failure else { return Said::Answered };
    match failure.code {
        Code::NetworkTimeout | Code::TemporaryProviderError | Code::ModelTimeout => Said::Silent,
        Code::RateLimit => Said::Refused(Cause::Limit),
        Code::QuotaExceeded => Said::Refused(Cause::Quota),
        Code::AuthFailed | Code::PaymentRequired => Said::Refused(Cause::Person),
        _ => Said::Nothing,
    }
}

/// Whether so many failures in the window are too many.
pub fn trips(rules: &BreakerRules, failures: u64) -> bool {
    failures >= rules.failures
}

/// How long the provider is left alone when it opens for the `round`-th time in a row, from 1. The server's own word counts
/// as it stands (FR-G4); a refusal without an end, and one that only a person can remove, is asked about at long intervals.
pub fn rest(rules: &BreakerRules, cause: Cause, told: Option<Millis>, round: u32) -> Millis {
    match (cause, told) {
        (Cause::Limit, Some(told)) => told,
        (Cause::Quota | Cause::Person, _) => rules.max,
        (Cause::Outage | Cause::Limit, _) => {
            let factor = 1_u64.checked_shl(round.saturating_sub(1)).unwrap_or(u64::MAX);
            Millis(rules.open.0.saturating_mul(factor).min(rules.max.0))
        }
    }
}

/// What a call meets that wants to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage<'b> {
    /// It may.
    Free,
    /// It may, as the one trial.
    Trial,
    /// It may not. The breaker says until when and why.
    Shut(&'b Breaker),
}

/// What a call meets at one breaker. `trial_lives` says whether the turn of the trial under way is still taken.
pub fn passage(breaker: &Breaker, trial_lives: bool, now: UtcMs, insists: bool) -> Passage<'_> {
    match breaker.state {
        S::Closed => Passage::Free,
        // A wall clock that was put back behind the beginning of the hold must not make it last for ever (F40).
        S::Open if insists || breaker.until <= now || now < breaker.since => Passage::Trial,
        S::Open => Passage::Shut(breaker),
        S::HalfOpen => match breaker.trial {
            Some(trial) if trial_lives && now < trial.until => Passage::Shut(breaker),
            _ => Passage::Trial,
        },
    }
}

/// What a call meets at all the breakers that are about it: shut beats trial, and of several the one that lasts longest.
pub fn narrowest<'b>(passages: impl IntoIterator<Item = Passage<'b>>) -> Passage<'b> {
    passages.into_iter().fold(Passage::Free, |so_far, next| match (so_far, next) {
        (Passage::Shut(a), Passage::Shut(b)) => Passage::Shut(if b.until > a.until { b } else { a }),
        (Passage::Shut(a), _) | (_, Passage::Shut(a)) => Passage::Shut(a),
        (Passage::Trial, _) | (_, Passage::Trial) => Passage::Trial,
        (Passage::Free, Passage::Free) => Passage::Free,
    })
}

/// What a call does that may not begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Waits in its process.
    Wait,
    /// The run is parked until then.
    Park(UtcMs),
    /// It is refused: waiting helps nobody, a person must do something first.
    Refuse,
}

/// How a call waits at a breaker that is shut for it (R-R3: up to `longest` in the process). `give_up` is when its patience
/// in this process ends: a trial of somebody else can last longer than was thought.
pub fn patience(breaker: &Breaker, now: UtcMs, longest: Millis, give_up: UtcMs) -> Patience {
    let is_trial = breaker.state == S::HalfOpen;
    if breaker.cause == Cause::Person && !is_trial {
        return Patience::Refuse;
    }
    let left = Millis::between(now, breaker.until);
    if now >= give_up || (!is_trial && left > longest) {
        // While somebody tries, the answer can come at any moment.
        return Patience::Park(if is_trial { now } else { breaker.until });
    }
    Patience::Wait
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
