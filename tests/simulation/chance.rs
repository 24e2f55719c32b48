//! Chance that comes again: all of it springs from the seed.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, not with, `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From `from` up to, not with, `end`.
    pub(crate) fn between(&mut self, from: u64, end: u64) -> u64 {
        from + self.below(end - from)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the choices, each as likely as its weight; `None` without any.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> Option<T> {
        let all: u64 = choices.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(all);
        choices.iter().find_map(|(weight, choice)| {
            let hit = at < *weight;
            at = at.wrapping_sub(*weight);
            hit.then_some(*choice)
        })
    }
}
