//! The breaker: what opens it, for how long, and that one trial at a time closes it.

use super::*;
use crate::domain::machine::Word as _;
use proptest::prelude::*;

fn rules() -> BreakerRules {
    BreakerRules { failures: 3, per: Millis::mins(1), open: Millis::secs(30), max: Millis::mins(10) }
}

fn breaker(state: BreakerState, cause: Cause) -> Breaker {
    Breaker {
        provider: "openai".into(),
        agent: None,
        state,
        cause,
        code: Code::RateLimit,
        message: "slow down".into(),
        run: RunId::recorded("run_1_001"),
        since: UtcMs(1_000),
        until: UtcMs(31_000),
        rounds: 1,
        trial: (state == S::HalfOpen).then_some(Trial { turn: 7, until: UtcMs(90_000) }),
    }
}

fn failed(code: Code) -> Failure {
    Failure::new(code, "x")
}

#[test]
fn r_r8_timeouts_and_server_errors_count_and_nothing_else_does() {
    let silent: Vec<_> = Code::ALL.iter().filter(|c| said(Some(&failed(**c))) == Said::Silent).collect();
    assert_eq!(silent, [&Code::NetworkTimeout, &Code::TemporaryProviderError, &Code::ModelTimeout]);
    assert_eq!(said(None), Said::Answered);
    assert_eq!([2, 3, 4].map(|n| trips(&rules(), n)), [false, true, true]);
}

#[test]
fn r_r1_there_are_three_classes_of_refusal() {
    let table = [
        (Code::RateLimit, Said::Refused(Cause::Limit)),
        (Code::QuotaExceeded, Said::Refused(Cause::Quota)),
        (Code::AuthFailed, Said::Refused(Cause::Person)),
        (Code::PaymentRequired, Said::Refused(Cause::Person)),
        (Code::QaFailed, Said::Nothing),
        (Code::Canceled, Said::Nothing),
    ];
    for (code, expected) in table {
        assert_eq!(said(Some(&failed(code))), expected, "{code}");
    }
}

#[test]
fn fr_c10_words_in_a_message_hold_no_provider() {
    let words = "429 Too Many Requests: rate limit, quota exceeded, invalid api key, try again in 5s";
    assert_eq!(said(Some(&Failure::new(Code::AgentFailed, words))), Said::Nothing);
}

#[test]
fn fr_g4_a_servers_own_end_counts_as_it_stands() {
    let five_days = Millis::secs(5 * 86_400);
    assert_eq!(rest(&rules(), Cause::Limit, Some(five_days), 9), five_days);
    assert_eq!(rest(&rules(), Cause::Limit, None, 1), Millis::secs(30));
    assert_eq!(rest(&rules(), Cause::Quota, None, 1), Millis::mins(10));
    assert_eq!(rest(&rules(), Cause::Person, None, 1), Millis::mins(10));
}

#[test]
fn r_r8_the_wait_grows_with_every_failed_trial_and_is_bounded() {
    let waits: Vec<_> = (1..=7).map(|n| rest(&rules(), Cause::Outage, None, n).0 / 1000).collect();
    assert_eq!(waits, [30, 60, 120, 240, 480, 600, 600]);
}

#[test]
fn r_r8_an_open_breaker_lets_a_trial_through_when_its_time_is_over_or_a_person_insists() {
    let open = breaker(S::Open, Cause::Outage);
    assert_eq!(passage(&open, false, UtcMs(30_999), false), Passage::Shut(&open));
    assert_eq!(passage(&open, false, UtcMs(31_000), false), Passage::Trial);
    assert_eq!(passage(&open, false, UtcMs(2_000), true), Passage::Trial, "FR-G2");
    assert_eq!(passage(&open, false, UtcMs(500), false), Passage::Trial, "F40: the wall clock was put back");
    assert_eq!(passage(&breaker(S::Closed, Cause::Outage), false, UtcMs(0), false), Passage::Free);
}

#[test]
fn r_r8_one_trial_at_a_time_and_a_dead_one_does_not_block_for_ever() {
    let half = breaker(S::HalfOpen, Cause::Outage);
    assert_eq!(passage(&half, true, UtcMs(50_000), true), Passage::Shut(&half), "not even for a person");
    assert_eq!(passage(&half, false, UtcMs(50_000), false), Passage::Trial, "its process is gone");
    assert_eq!(passage(&half, true, UtcMs(90_000), false), Passage::Trial, "its time is over");
}

#[test]
fn of_two_breakers_the_one_that_lasts_longer_counts() {
    let (short, long) =
        (breaker(S::Open, Cause::Outage), Breaker { until: UtcMs(99_000), ..breaker(S::Open, Cause::Limit) });
    let all = [Passage::Free, Passage::Shut(&short), Passage::Trial, Passage::Shut(&long)];
    assert_eq!(narrowest(all), Passage::Shut(&long));
    assert_eq!(narrowest([Passage::Free, Passage::Trial]), Passage::Trial);
    assert_eq!(narrowest([]), Passage::Free);
}

#[test]
fn r_r3_a_short_wait_is_waited_a_long_one_parks_and_a_persons_task_is_refused() {
    let limit = breaker(S::Open, Cause::Limit);
    let at = |breaker: &Breaker, longest, give_up| patience(breaker, UtcMs(1_000), longest, UtcMs(give_up));
    assert_eq!(at(&limit, Millis::secs(30), 99_000), Patience::Wait);
    assert_eq!(at(&limit, Millis::secs(29), 99_000), Patience::Park(UtcMs(31_000)));
    assert_eq!(at(&limit, Millis::secs(30), 1_000), Patience::Park(UtcMs(31_000)), "waited for long enough");
    assert_eq!(at(&breaker(S::Open, Cause::Person), Millis::secs(30), 99_000), Patience::Refuse);
    let trial = breaker(S::HalfOpen, Cause::Person);
    assert_eq!(at(&trial, Millis::secs(1), 99_000), Patience::Wait, "somebody tries: that can end at any moment");
    assert_eq!(at(&trial, Millis::secs(1), 1_000), Patience::Park(UtcMs(1_000)));
}

proptest! {
    /// Whatever happens in whatever order: between OPEN and CLOSED there is always exactly one trial.
    #[test]
    fn r_r8_only_a_trial_closes(events in prop::collection::vec(0..BreakerEvent::ALL.len(), 0..40)) {
        let mut state = BREAKER.initial;
        for event in events.into_iter().map(|i| BreakerEvent::ALL[i]) {
            let before = state;
            let Ok(next) = BREAKER.next(state, event) else { continue };
            state = next;
            if before != S::Closed && state == S::Closed {
                prop_assert_eq!((before, event), (S::HalfOpen, E::Succeed));
            }
            if before != S::HalfOpen && state == S::HalfOpen {
                prop_assert_eq!((before, event), (S::Open, E::Try));
            }
        }
    }

    /// A wait is never longer than the policy's `max` unless the server said so, and never shrinks from round to round.
    #[test]
    fn r_r8_waits_are_bounded_and_grow(open in 1_u64..100_000, more in 0_u64..1_000_000, round in 1_u32..200) {
        let rules = BreakerRules { failures: 1, per: Millis(1), open: Millis(open), max: Millis(open + more) };
        let (this, next) = (rest(&rules, Cause::Outage, None, round), rest(&rules, Cause::Outage, None, round + 1));
        prop_assert!(rules.open <= this && this <= next && next <= rules.max);
    }
}
