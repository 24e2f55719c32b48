//! Whether a run may be taken from its holder (faults rule 5), as a plain decision.

use super::quantity::Now;
use super::record::Lease;

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
