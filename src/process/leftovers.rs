//! Ends what a run left behind whose agentrun was killed: nobody supervises those processes any more, so they are found by
//! what was recorded of them and by the marker they carry. Children of a living supervisor are not its business.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::identity::{liveness, signal};
use super::proc_table::{self, Marking, Process};
use crate::domain::lease::Liveness;
use crate::domain::quantity::Millis;
use crate::domain::record::Identity;

/// How long the kernel may take to carry out SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// New processes are looked for at least this often while others are waited for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How often, and how soon, a look that found nobody is repeated because a process was just becoming another program.
const SECOND_LOOKS: u32 = 3;
const BETWEEN_SECOND_LOOKS: Duration = Duration::from_millis(10);

/// The parent of the kernel's own threads, which have no environment.
const KERNEL: i32 = 2;

/// What was found, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Processes that were found and are gone.
    pub ended: u32,
    /// Processes that could not be ended (another user's, or stuck in the kernel).
    pub survivors: Vec<i32>,
    /// Recorded pids that belong to somebody else by now, or to another boot; they were left alone.
    pub strangers: u32,
}

/// Ends every process of a run: the `known` ones that were recorded, all that carry a marker that is `marker` or begins
/// with it and goes on with a character no id is made of (`run_1` finds `run_1/qa`, not `run_12`), and all that descend from
/// these. Never this process or its ancestors.
///
/// First SIGINT, after `grace` SIGTERM, after `grace` SIGKILL. Returns when a look at all processes finds none, or when
/// SIGKILL had no effect for five seconds. Blocks the calling thread.
pub fn end_leftovers(marker: &str, known: &[Identity], grace: Millis) -> Leftovers {
    let mut search = Search { marker, known, seen: HashMap::new(), spared: proc_table::ancestors() };
    let grace = Duration::from_millis(grace.0);
    for (rung, patience) in [(Signal::INT, grace), (Signal::TERM, grace), (Signal::KILL, KILL_LIMIT)] {
        if search.end_with(rung, patience) {
            break;
        }
    }
    let survivors: Vec<i32> = search.find().rows.iter().map(|row| row.pid).collect();
    let ended = search.seen.len().saturating_sub(survivors.len());
    Leftovers {
        ended: u32::try_from(ended).unwrap_or(u32::MAX),
        survivors,
        strangers: u32::try_from(known.iter().filter(|one| is_stranger(one)).count()).unwrap_or(u32::MAX),
    }
}

/// A recorded process that is gone while its number is in use.
fn is_stranger(recorded: &Identity) -> bool {
    match liveness(recorded) {
        Liveness::Alive => false,
        Liveness::OtherBoot => true,
        Liveness::Dead => Process::read(recorded.pid).is_some_and(|row| row.start_ticks != recorded.start_ticks),
    }
}

struct Search<'a> {
    marker: &'a str,
    known: &'a [Identity],
    /// Everybody that was found, and the last signal sent to each.
    seen: HashMap<(i32, u64), Option<Signal>>,
    spared: HashSet<i32>,
}

/// What one look found.
struct Found {
    rows: Vec<Process>,
    /// True when a second look may find more.
    unclear: bool,
}

impl Search<'_> {
    /// Sends one signal to everybody, once, and waits for their end. True when nobody is left.
    fn end_with(&mut self, rung: Signal, patience: Duration) -> bool {
        let limit = Instant::now() + patience;
        let mut second_looks = 0;
        loop {
            let Found { rows: found, unclear } = self.find();
            if found.is_empty() {
                if !unclear || second_looks == SECOND_LOOKS {
                    return true;
                }
                second_looks += 1;
                wait_for_any(&[], BETWEEN_SECOND_LOOKS);
                continue;
            }
            for row in &found {
                let last = self.seen.entry(row.key()).or_default();
                if *last != Some(rung) {
                    signal(row.key(), rung);
                    signal(row.key(), Signal::CONT);
                    *last = Some(rung);
                }
            }
            let now = Instant::now();
            if now >= limit {
                return false;
            }
            wait_for_any(&found, BETWEEN_LOOKS.min(limit - now));
        }
    }

    /// Everybody who belongs to the run and is alive.
    fn find(&self) -> Found {
        let table = proc_table::all();
        let (mut rows, mut unclear) = (Vec::new(), false);
        for row in &table {
            if self.is_recorded(row) || self.seen.contains_key(&row.key()) {
                rows.push(*row);
                continue;
            }
            match proc_table::marking_of(row.pid) {
                Marking::Marked(value) if begins_with(&value, self.marker) => rows.push(*row),
                Marking::Blank => unclear |= row.is_alive() && row.pid != KERNEL && row.parent != KERNEL,
                _ => {}
            }
        }
        let roots = rows.iter().map(|row| row.pid).collect();
        rows.extend(proc_table::descendants(&roots, &table));
        rows.retain(|row| row.is_alive() && row.pid > 1 && !self.spared.contains(&row.pid));
        Found { rows, unclear }
    }

    fn is_recorded(&self, row: &Process) -> bool {
        let same = |one: &&Identity| (one.pid, one.start_ticks) == row.key();
        self.known.iter().find(same).is_some_and(|one| liveness(one) == Liveness::Alive)
    }
}

/// True when `value` is `marker` or something below it.
fn begins_with(value: &[u8], marker: &str) -> bool {
    let of_an_id = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !marker.is_empty() && value.strip_prefix(marker.as_bytes()).is_some_and(|rest| !rest.first().is_some_and(of_an_id))
}

/// Waits until one of them ends, or for a while.
fn wait_for_any(processes: &[Process], at_most: Duration) {
    let open = |row: &Process| pidfd_open(Pid::from_raw(row.pid)?, PidfdFlags::empty()).ok();
    // A handle per process of a fork bomb would use up our own limit; the first ones do as well to wake up.
    let handles: Vec<OwnedFd> = processes.iter().take(32).filter_map(open).collect();
    let mut waits: Vec<PollFd<'_>> = handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // Woken early or not: the next look decides.
    let _ = poll(&mut waits, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::identity::this_process;

    #[test]
    fn a_marker_is_not_taken_for_a_longer_one() {
        assert!(begins_with(b"run_1", "run_1"));
        assert!(begins_with(b"run_1/qa/3", "run_1"));
        for other in [&b"run_12"[..], b"run_1_b", b"run_1.b", b"run_1-b", b"run", b"xrun_1", b""] {
            assert!(!begins_with(other, "run_1"));
        }
        assert!(!begins_with(b"anything", ""));
    }

    #[test]
    fn fr_j5_f32_a_recorded_pid_of_a_stranger_is_left_alone() {
        let own = this_process().unwrap();
        let reused = Identity { start_ticks: own.start_ticks + 1, ..own.clone() };
        let parent = std::os::unix::process::parent_id();
        let other = Process::read(i32::try_from(parent).unwrap()).unwrap();
        let also = Identity { pid: other.pid, start_ticks: other.start_ticks + 1, ..own };
        let left = end_leftovers("no-such-marker-anywhere", &[reused, also], Millis(0));
        assert_eq!(left, Leftovers { ended: 0, survivors: vec![], strangers: 2 });
    }

    #[test]
    fn nothing_left_costs_one_look() {
        assert_eq!(end_leftovers("no-such-marker-anywhere", &[], Millis(60_000)), Leftovers::default());
    }
}
