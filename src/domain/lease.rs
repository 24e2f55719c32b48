//! Whether a run may be taken from its holder (faults rule 5), as a plain decision.

use super::quantity::{BootMs, Millis, Now};
use super::record::Lease;

/// How far the wall clock may run from the boot clock between two signs of life before somebody set it (F40).
const STEADY_MS: i64 = 5_000;

/// What is known about the process that holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// A process with that pid and start time lives on this boot.
    Alive,
    /// There is none.
    Dead,
    /// It belongs to another boot or machine: nothing can be seen from here.
    OtherBoot,
}

/// How a held run reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Nobody holds it.
    Free,
    /// Its holder lives and its lease runs.
    Held,
    /// Its holder lives, but its lease ran out (STUCK).
    Stuck,
    /// Its holder is dead: it may be taken over at once.
    Abandoned,
    /// Its holder belongs to an earlier boot of this machine, or to another machine, and its lease cannot be read by this
    /// clock: only a heartbeat that stands still for a whole lease shows that it is gone.
    Foreign,
}

/// From when on a holder must renew its lease before it does anything else: one heartbeat before others may take the run.
pub fn renew_from(lasts_until: BootMs, heartbeat: Millis) -> BootMs {
    BootMs(lasts_until.0.saturating_sub(heartbeat.0))
}

/// By how many milliseconds somebody set the wall clock between two moments of one boot. A suspended machine is no such
/// case: both clocks go on. Leases and limits do not mind; people who read times do.
pub fn clock_jump(before: &Now, after: &Now) -> Option<i64> {
    if before.boot_id != after.boot_id {
        return None;
    }
    let passed = i64::try_from(after.boot.0.saturating_sub(before.boot.0)).unwrap_or(i64::MAX);
    let jump = after.utc.0.saturating_sub(before.utc.0).saturating_sub(passed);
    (jump.saturating_abs() > STEADY_MS).then_some(jump)
}

/// Reads a lease.
pub fn holding(lease: Option<&Lease>, liveness: Liveness, now: &Now) -> Holding {
    let Some(lease) = lease else { return Holding::Free };
    match liveness {
        Liveness::Dead => Holding::Abandoned,
        Liveness::OtherBoot => Holding::Foreign,
        Liveness::Alive if lease.holder.boot_id == now.boot_id && lease.until <= now.boot => Holding::Stuck,
        Liveness::Alive => Holding::Held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quantity::{BootId, UtcMs};

    fn at(utc: i64, boot: u64) -> Now {
        Now { utc: UtcMs(utc), boot: BootMs(boot), boot_id: BootId("one".into()) }
    }

    #[test]
    fn f40_f42_a_clock_that_was_set_is_told_from_a_machine_that_slept() {
        const HOUR: u64 = 3_600_000;
        const YEAR: i64 = 365 * 24 * 3_600_000;
        let before = at(1_000, 500);
        assert_eq!(clock_jump(&before, &at(16_000, 15_500)), None, "time passed");
        assert_eq!(clock_jump(&before, &at(1_000 + 3 * 3_600_000, 500 + 3 * HOUR)), None, "it slept");
        assert_eq!(clock_jump(&before, &at(16_000 + 2 * YEAR, 15_500)), Some(2 * YEAR));
        assert_eq!(clock_jump(&before, &at(16_000 - 86_400_000, 15_500)), Some(-86_400_000));
        assert_eq!(clock_jump(&before, &at(17_000, 15_500)), None, "a clock that is set right by a second");
        let other = Now { boot_id: BootId("other".into()), ..at(9_000_000, 1) };
        assert_eq!(clock_jump(&before, &other), None, "another boot has another clock");
    }

    #[test]
    fn f43_a_lease_is_renewed_while_it_still_lasts() {
        assert_eq!(renew_from(BootMs(60_000), Millis::secs(15)), BootMs(45_000));
        assert_eq!(renew_from(BootMs(5_000), Millis::secs(15)), BootMs(0));
    }
}
