//! The kernel's table of processes (`/proc`), read and never cached. It sends no signal and judges nothing.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use rustix::process::getpid;

use super::MARKER;

/// The most that is read of one environment: the kernel's own limit is a quarter of the stack limit, 2 MiB by default.
const ENVIRON_MAX: u64 = 8 << 20;

/// More than 52 numbers of 20 digits and a name need, in bytes.
const LONGEST_ROW: usize = 2048;

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    /// Process id.
    pub(super) pid: i32,
    /// Its parent.
    pub(super) parent: i32,
    /// Its process group.
    pub(super) group: i32,
    /// Its session.
    pub(super) session: i32,
    /// The kernel's letter for its state.
    state: u8,
    threads: u32,
    /// When it started, in clock ticks since boot.
    pub(super) start_ticks: u64,
}

impl Process {
    /// Reads one row; `None` when there is no such process. One read is enough: the kernel makes the row anew for the first
    /// one, and no row is longer. (This is in the way of every start.)
    pub(super) fn read(pid: i32) -> Option<Self> {
        let mut row = [0; LONGEST_ROW];
        let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut row).ok()?;
        Self::parse(pid, &row[..length])
    }

    /// The name in the second field may hold blanks and brackets, so fields are counted after the last bracket.
    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
        let text = std::str::from_utf8(stat.get(end_of_name + 2..)?).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse().ok();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            threads: fields.get(17)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }

    /// False for a process that is dead and only waits to be reaped. One whose first thread has ended looks dead, too, but
    /// its other threads still work, and have children.
    pub(super) fn is_alive(&self) -> bool {
        self.threads > 1 || !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// What tells this process from a later one with the same number.
    pub(super) fn key(&self) -> (i32, u64) {
        (self.pid, self.start_ticks)
    }
}

/// All processes that can be seen.
pub(super) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The processes of `table` that descend from one of `roots`, without the roots.
pub(super) fn descendants(roots: &HashSet<i32>, table: &[Process]) -> Vec<Process> {
    let mut family = roots.clone();
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for process in table {
            if family.contains(&process.parent) && family.insert(process.pid) {
                found.push(*process);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// This process and its ancestors: never to be signalled.
pub(super) fn ancestors() -> HashSet<i32> {
    let mut line = HashSet::new();
    let mut next = Some(getpid().as_raw_nonzero().get());
    while let Some(pid) = next.filter(|pid| *pid > 0 && line.insert(*pid)) {
        next = Process::read(pid).map(|process| process.parent);
    }
    line
}

/// The children of this process, whichever of its threads the kernel gave them to. `None` when the kernel does not
/// tell (built without `PROC_CHILDREN`). The kernel may skip a child when another one of the same thread is reaped during
/// the reading; orphans come to the first thread, and only the supervisor reaps those, which is also who asks.
pub(super) fn own_children() -> Option<Vec<i32>> {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()? {
        let path: PathBuf = task.ok()?.path().join("children");
        match fs::read_to_string(path) {
            Ok(text) => children.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            // A thread that just ended has handed its children to another one; anything else is a kernel without the file.
            Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::SRCH) => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

/// What the environment with which a process was started says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Marking {
    /// It carries this marker.
    Marked(Vec<u8>),
    /// It carries none, or may not be looked at.
    Unmarked,
    /// There is no environment at all. That is also how a process looks in the middle of becoming another program, so a
    /// second look may say something else.
    Blank,
}

/// Looks for a marker.
pub(super) fn marking_of(pid: i32) -> Marking {
    let mut environ = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ"));
    match file.and_then(|file| file.take(ENVIRON_MAX).read_to_end(&mut environ)) {
        Ok(0) => Marking::Blank,
        Ok(_) => marker_in(&environ).map_or(Marking::Unmarked, Marking::Marked),
        Err(_) => Marking::Unmarked,
    }
}

fn marker_in(environ: &[u8]) -> Option<Vec<u8>> {
    let value_of = |entry: &[u8]| Some(entry.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"=")?.to_vec());
    environ.split(|byte| *byte == 0).find_map(value_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = b"42 (a) b (c)) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1000 10";
        let process = Process::parse(42, stat).unwrap();
        assert_eq!((process.parent, process.group, process.session, process.start_ticks), (7, 42, 41, 9876));
        assert!(process.is_alive());
        let with = |state: &str, threads: u32| {
            let row = format!("42 (a) {state} 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 9876 1000 10");
            Process::parse(42, row.as_bytes()).unwrap()
        };
        assert!(!with("Z", 1).is_alive() && with("Z", 2).is_alive() && with("D", 1).is_alive());
        assert_eq!(Process::parse(42, b"42 (a"), None);
        assert_eq!(Process::parse(42, b""), None);
    }

    #[test]
    fn this_process_is_in_the_table_and_its_own_ancestor() {
        let own = getpid().as_raw_nonzero().get();
        let table = all();
        let me = table.iter().find(|process| process.pid == own).unwrap();
        assert!(ancestors().contains(&own) && ancestors().contains(&me.parent));
        assert!(descendants(&HashSet::from([me.parent]), &table).iter().any(|process| process.pid == own));
    }

    #[test]
    fn only_a_whole_entry_is_a_marker() {
        assert_eq!(marker_in(b"A=1\0AGENTRUN_MARKER=x/1\0B=2\0"), Some(b"x/1".to_vec()));
        assert_eq!(marker_in(b"MY_AGENTRUN_MARKER=x\0AGENTRUN_MARKER_OLD=y\0A=AGENTRUN_MARKER=z\0"), None);
    }
}
