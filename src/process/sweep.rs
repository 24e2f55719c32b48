//! Finds and ends what a child left behind after it ended: nobody may be left when its end is told (I5). It does not wait;
//! the task of the child comes back until nothing is found.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, getpid, kill_process_group};

use super::identity::{self, Sent};
use super::proc_table::{self, Process};
use super::roster::{Belonging, Key, Roster};

/// What one look found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Processes that the child left behind.
    pub(super) found: Vec<Process>,
    /// True when there are others that may turn out to be its own at a second look.
    pub(super) unclear: bool,
}

/// Looks for what `key` left behind. Orphans come to this process before their parent can be reaped, so a process without
/// further children has nothing left, and only otherwise the table is read.
///
/// Who died since the last reaping counts as well: its children may just be on their way to this process.
pub(super) fn left_of(roster: &Roster, key: Key) -> Left {
    if !roster.reap_adopted() {
        return Left::default();
    }
    let adopted: HashSet<i32> = roster.adopted().into_iter().collect();
    if adopted.is_empty() {
        return Left::default();
    }
    let table = proc_table::all();
    let mut left = Left::default();
    for row in table.iter().filter(|row| adopted.contains(&row.pid)) {
        match roster.belonging(key, row) {
            Belonging::Here => left.found.push(*row),
            Belonging::Unclear => left.unclear = true,
            Belonging::Elsewhere => {}
        }
    }
    let roots = left.found.iter().map(|row| row.pid).collect();
    left.found.extend(proc_table::descendants(&roots, &table));
    roster.remember(key, &left.found);
    left
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
        if hit && row.is_alive() {
            killed.insert(row.key());
        }
    }
}
