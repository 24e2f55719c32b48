//! Which process is meant: pid, start time and boot together, because a pid alone is given to somebody else sooner or
//! later (F32). Also the clocks, which only mean something together with the boot. It decides nothing about leases.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};

use super::ProcessError;
use super::proc_table::Process;
use crate::domain::lease::Liveness;
use crate::domain::quantity::{BootId, BootMs, Now, UtcMs};
use crate::domain::record::Identity;

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It was delivered.
    Delivered,
    /// The process is gone, or its pid belongs to another one: nothing was sent.
    NotThere,
    /// The kernel refused.
    Refused,
}

/// This process.
pub fn this_process() -> Result<Identity, ProcessError> {
    let pid = getpid().as_raw_nonzero().get();
    let row = Process::read(pid).ok_or_else(|| ProcessError::Proc {
        path: format!("/proc/{pid}/stat"),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    })?;
    Ok(Identity { pid, start_ticks: row.start_ticks, boot_id: boot_id()? })
}

/// Whether a recorded process is still there. A dead one that nobody has reaped yet counts as dead.
pub fn liveness(of: &Identity) -> Liveness {
    match boot_id() {
        Ok(now) if now == of.boot_id => {}
        _ => return Liveness::OtherBoot,
    }
    match Process::read(of.pid) {
        Some(row) if row.start_ticks == of.start_ticks && row.is_alive() => Liveness::Alive,
        _ => Liveness::Dead,
    }
}

/// Asks another agentrun to look at its run's record: SIGTERM, sent only if that very process still lives.
pub fn wake(other: &Identity) {
    signal((other.pid, other.start_ticks), Signal::TERM);
}

/// Sends a signal to one row of the table. The pidfd is opened before the start time is compared, so the pid cannot
/// change hands between the comparison and the signal.
pub(super) fn signal(process: (i32, u64), signal: Signal) -> Sent {
    let (number, start_ticks) = process;
    let Some(pid) = Pid::from_raw(number) else { return Sent::NotThere };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    if Process::read(number).is_none_or(|row| row.start_ticks != start_ticks) {
        return Sent::NotThere;
    }
    let sent = match handle {
        Ok(handle) => pidfd_send_signal(handle, signal),
        // A sandbox without the call: the comparison just made is then all there is.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => kill_process(pid, signal),
        Err(error) => Err(error),
    };
    match sent {
        Ok(()) => Sent::Delivered,
        Err(rustix::io::Errno::SRCH) => Sent::NotThere,
        Err(_) => Sent::Refused,
    }
}

/// The id of the running boot.
pub fn boot_id() -> Result<BootId, ProcessError> {
    static KNOWN: std::sync::OnceLock<BootId> = std::sync::OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(|source| ProcessError::Proc { path: path.to_owned(), source })?;
    Ok(KNOWN.get_or_init(|| BootId(text.trim().to_owned())).clone())
}

/// The boot clock: milliseconds since boot, suspended time included. It never jumps and never goes back.
pub fn boot_ms() -> BootMs {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    BootMs(seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000)
}

/// The present, on both clocks.
pub fn now() -> Result<Now, ProcessError> {
    // A wall clock before 1970 is as good as no clock; it only labels records.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc = UtcMs(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    Ok(Now { utc, boot: boot_ms(), boot_id: boot_id()? })
}

/// A child of this process that is not reaped yet.
pub(super) fn of_child(pid: Pid) -> Identity {
    let pid = pid.as_raw_nonzero().get();
    let start_ticks = Process::read(pid).map_or(0, |row| row.start_ticks);
    let boot_id = boot_id().unwrap_or_else(|_| BootId(String::new()));
    Identity { pid, start_ticks, boot_id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fr_j5_f32_a_pid_with_another_start_time_is_somebody_else() {
        let own = this_process().unwrap();
        assert_eq!(liveness(&own), Liveness::Alive);
        let reused = Identity { start_ticks: own.start_ticks + 1, ..own.clone() };
        assert_eq!(liveness(&reused), Liveness::Dead);
        assert_eq!(signal((reused.pid, reused.start_ticks), Signal::KILL), Sent::NotThere);
        let other_boot = Identity { boot_id: BootId("another".to_owned()), ..own };
        assert_eq!(liveness(&other_boot), Liveness::OtherBoot);
    }

    #[test]
    fn an_identity_survives_being_written_down() {
        let own = this_process().unwrap();
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), own);
    }

    #[test]
    fn the_boot_clock_does_not_go_back() {
        let first = boot_ms();
        assert!(first.0 > 0 && boot_ms() >= first);
        assert_eq!(now().unwrap().boot_id, boot_id().unwrap());
    }
}
