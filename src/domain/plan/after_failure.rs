//! What follows a failed attempt (R-R1, R-R3, R-R10): classify, retryable?, retry budget, next attempt.

use crate::domain::failure::Failure;
use crate::domain::policy::RetryRules;
use crate::domain::quantity::Millis;

/// What was tried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    /// Attempts that failed or were lost, this one included.
    pub failed: u64,
    /// How many of them there may be; `None` is no limit.
    pub limit: Option<u64>,
    /// Time already spent waiting between attempts of this run.
    pub waited: Millis,
    /// Time that the run has left by its own clock.
    pub left: Millis,
    /// A number that differs from run to run and attempt to attempt: spreads the waits (F67).
    pub seed: u64,
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The next attempt after this wait, in this process.
    Retry(Millis),
    /// The wait is longer than this process should wait: parked, for somebody to call again.
    Park(Millis),
    /// It failed for a reason that trying again does not change.
    Fail,
    /// It could be tried again, but attempts or time are used up.
    Bury,
}

/// Decides. `agentrun` tries again by itself only for the codes that the policy lists.
pub fn then(failure: &Failure, rules: &RetryRules, tried: &Tried) -> Then {
    if !rules.retryable.contains(&failure.code) {
        return Then::Fail;
    }
    if tried.limit.is_some_and(|limit| tried.failed >= limit) {
        return Then::Bury;
    }
    let wait = failure.retry_after.unwrap_or_else(|| backoff(rules, tried));
    if wait > rules.max {
        return Then::Park(wait);
    }
    // An attempt for which no time is left would pay for an agent only to stop it.
    if wait >= tried.left || tried.waited.0.saturating_add(wait.0) > rules.total.0 {
        return Then::Bury;
    }
    Then::Retry(wait)
}

/// `min(base · 2^n, max)` or the n-th fixed delay, with a share of jitter that only ever makes it longer or shorter by
/// `jitter_permille`, never past `max`.
pub fn backoff(rules: &RetryRules, tried: &Tried) -> Millis {
    let n = usize::try_from(tried.failed.saturating_sub(1)).unwrap_or(usize::MAX);
    let plain = match rules.delays.as_slice() {
        [] => {
            let factor = u32::try_from(n).ok().and_then(|n| 1_u64.checked_shl(n)).unwrap_or(u64::MAX);
            rules.base.0.saturating_mul(factor).min(rules.max.0)
        }
        delays => delays[n.min(delays.len() - 1)].0,
    };
    let spread = plain.saturating_mul(u64::from(rules.jitter_permille)) / 1000;
    let offset = if spread == 0 { 0 } else { mix(tried.seed) % (2 * spread + 1) };
    Millis((plain - spread + offset).min(rules.max.0.max(plain)))
}

/// SplitMix64: spreads a counter over all 64 bits.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::Code;
    use crate::domain::machine::Word as _;

    fn tried(failed: u64) -> Tried {
        Tried { failed, limit: Some(3), waited: Millis(0), left: Millis::mins(120), seed: failed }
    }

    #[test]
    fn r_r1_only_listed_codes_are_tried_again() {
        let rules = RetryRules::default();
        for code in Code::ALL {
            let then = then(&Failure::new(*code, "x"), &rules, &tried(1));
            assert_eq!(matches!(then, Then::Retry(_)), code.entry().retryable, "{code}");
        }
    }

    #[test]
    fn r_r3_r_r10_a_code_is_asked_first_then_attempts_then_time() {
        let failure = Failure::new(Code::WorkerCrash, "x");
        let rules = RetryRules::default();
        assert_eq!(then(&failure, &rules, &tried(3)), Then::Bury);
        let waited = Tried { waited: Millis::mins(15), ..tried(1) };
        assert_eq!(then(&failure, &rules, &waited), Then::Bury);
        let over = Tried { left: Millis(0), ..tried(1) };
        assert_eq!(then(&failure, &rules, &over), Then::Bury, "the run's own time is over");
    }

    #[test]
    fn r_r3_a_servers_word_wins_and_a_long_wait_parks() {
        let rules = RetryRules::default();
        let told = |s| Failure { retry_after: Some(Millis::secs(s)), ..Failure::new(Code::RateLimit, "x") };
        assert_eq!(then(&told(7), &rules, &tried(1)), Then::Retry(Millis::secs(7)));
        assert_eq!(then(&told(5 * 86_400), &rules, &tried(1)), Then::Park(Millis::secs(5 * 86_400)));
    }

    #[test]
    fn r_r3_backoff_doubles_within_its_bounds() {
        let rules = RetryRules { jitter_permille: 0, ..RetryRules::default() };
        let waits: Vec<_> = (1..=7).map(|n| backoff(&rules, &tried(n)).0 / 1000).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        let fixed = RetryRules { delays: vec![Millis::mins(1), Millis::mins(5)], ..rules };
        assert_eq!(backoff(&fixed, &tried(9)), Millis::mins(5));
    }

    #[test]
    fn f67_fifty_runs_that_fail_together_come_back_evenly_spread() {
        let rules = RetryRules::default();
        let (from, to, tenths) = (8_000, 12_000, 10);
        for base in [0, 1 << 20, u64::MAX - 5_000] {
            let wait = |n: u64| backoff(&rules, &Tried { seed: base.wrapping_add(n), ..tried(1) }).0;
            let waits: std::collections::BTreeSet<_> = (0..50).map(wait).collect();
            assert!(waits.len() > 40, "{waits:?}");
            assert!(waits.iter().all(|w| (from..=to).contains(w)));
            // Chi-squared over tenths of the interval: above 27.9 one even distribution in a thousand is called uneven.
            let mut counts = [0.0_f64; 10];
            for n in 0..5_000 {
                let tenth = (wait(n) - from) * tenths / (to - from + 1);
                counts[usize::try_from(tenth).unwrap()] += 1.0;
            }
            let even = 500.0;
            let chi_squared: f64 = counts.iter().map(|count| (count - even).powi(2) / even).sum();
            assert!(chi_squared < 27.9, "{chi_squared}: {counts:?}");
        }
    }
}
