//! Finds and ends what a child left behind after it ended: nobody may be left when its end is told (I5). It does not wait;
//! the task of the child comes back until nothing is found.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::identity::{self, Sent};
use super::proc_table::{self, Process};
use super::roster::{Key, Roster};

/// What one look found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing of the child runs any more.
    Nobody,
    /// These do.
    Some(Vec<Process>),
}

/// Looks for what `key` left behind. Orphans come to this process before their parent can be reaped, so a process without
/// further children has nothing left, and only otherwise the table is read.
pub(super) fn left_of(roster: &Roster, key: Key) -> Left {
    if !roster.reap_adopted() {
        return Left::Nobody;
    }
    let adopted: HashSet<i32> = roster.adopted().into_iter().collect();
    if adopted.is_empty() {
        return Left::Nobody;
    }
    let table = proc_table::all();
    let claimed = |row: &&Process| adopted.contains(&row.pid) && row.is_alive() && roster.belongs(key, row);
    let mut left: Vec<Process> = table.iter().filter(claimed).copied().collect();
    let roots = left.iter().map(|row| row.pid).collect();
    left.extend(proc_table::descendants(&roots, &table).into_iter().filter(Process::is_alive));
    if left.is_empty() { Left::Nobody } else { Left::Some(left) }
}

/// Kills what was found and notes in `killed` who was hit. A group is killed as a whole, so that a process that keeps
/// forking cannot win the race; it is the child's own as long as an adopted process is in it, whose pid cannot be reused.
pub(super) fn kill(left: &[Process], leader: Pid, killed: &mut HashSet<(i32, u64)>) {
    let own = getpid().as_raw_nonzero().get();
    let group = leader.as_raw_nonzero().get();
    let is_held = left.iter().any(|row| row.parent == own && row.group == group);
    let group_killed = is_held && kill_process_group(leader, Signal::KILL).is_ok();
    for row in left {
        let hit = (group_killed && row.group == group) || identity::signal(row.key(), Signal::KILL) == Sent::Delivered;
        if hit {
            killed.insert(row.key());
        }
    }
}
