//! Who is being waited for, and the only place that waits. Three kinds of children are told apart:
//!
//! - **own**: started by the supervisor; each is waited for by its pid, so no other status is ever taken.
//! - **adopted**: orphans of own ones, which the kernel gives to agentrun as their sub-reaper; reaped as they end.
//! - **foreign**: there before the supervisor, or in agentrun's own process group (own ones never are). Somebody else
//!   waits for them, a library or a test, so they are neither reaped nor stopped.
//!
//! There is one roster per process: `waitid` over all children would see those of a second one, too.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgid, getpgrp, getpid, waitid, waitpid};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::event::{ChildId, Status};
use super::proc_table::{self, Marking, Process};
use super::tend::Order;

/// Names a child among those of all supervisors of this process.
pub(super) type Key = (u64, ChildId);

/// How much is read from a pipe at once: what a pipe holds.
const READ: usize = 64 << 10;

/// The children of this process.
pub(super) struct Roster {
    /// Own children that are not reaped yet.
    waiting: RefCell<HashMap<i32, Key>>,
    /// Own children that have not been told as ended yet.
    claims: RefCell<HashMap<Key, Claim>>,
    /// Children from before: a shell that replaced itself by agentrun may have had some.
    inherited: HashSet<(i32, u64)>,
    /// False where orphans may come from elsewhere.
    only_own_orphans: bool,
    own_group: Option<Pid>,
    /// Told whenever a child ended.
    pub(super) changed: Notify,
    /// Room to read into, shared by all children: one thread reads.
    pub(super) buffer: RefCell<Box<[u8]>>,
}

/// What an own child may call its own.
pub(super) struct Claim {
    /// The child itself; also its process group.
    pub(super) leader: Pid,
    /// The value of the marker that it was started with.
    pub(super) marker: Option<Vec<u8>>,
    /// Processes that were seen to descend from it.
    pub(super) family: HashSet<(i32, u64)>,
    /// The way to its task.
    pub(super) orders: UnboundedSender<Order>,
}

/// Whose an adopted child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Belonging {
    /// Left behind by the child in question.
    Here,
    /// By another one, or by nobody of ours.
    Elsewhere,
    /// A second look may tell.
    Unclear,
}

impl Claim {
    fn owns(&self, process: &Process) -> bool {
        let leader = self.leader.as_raw_nonzero().get();
        process.group == leader || process.session == leader || self.family.contains(&process.key())
    }
}

impl Roster {
    /// The roster of this process.
    pub(super) fn new() -> Self {
        let children = proc_table::own_children().unwrap_or_else(children_in_table);
        let inherited: HashSet<_> = children.into_iter().filter_map(|pid| Some(Process::read(pid)?.key())).collect();
        Self {
            waiting: RefCell::default(),
            claims: RefCell::default(),
            only_own_orphans: inherited.is_empty() && getpid() != Pid::INIT,
            inherited,
            own_group: Some(getpgrp()),
            changed: Notify::new(),
            buffer: RefCell::new(vec![0; READ].into_boxed_slice()),
        }
    }

    /// Enters a child that was just started.
    pub(super) fn enter(&self, key: Key, claim: Claim) {
        self.waiting.borrow_mut().insert(claim.leader.as_raw_nonzero().get(), key);
        self.claims.borrow_mut().insert(key, claim);
    }

    /// True until the child's end is told.
    pub(super) fn knows(&self, key: Key) -> bool {
        self.claims.borrow().contains_key(&key)
    }

    /// Strikes a child whose end is about to be told.
    pub(super) fn strike(&self, key: Key) {
        self.claims.borrow_mut().remove(&key);
    }

    /// True until the child is reaped: so long its pid and its group can belong to nobody else.
    pub(super) fn holds(&self, leader: Pid) -> bool {
        self.waiting.borrow().contains_key(&leader.as_raw_nonzero().get())
    }

    /// Passes an order on. A child that has ended gets none.
    pub(super) fn order(&self, key: Key, order: Order) {
        if let Some(claim) = self.claims.borrow().get(&key) {
            // The task outlives its claim; a refused send would mean that it just ended.
            let _ = claim.orders.send(order);
        }
    }

    /// All children of one supervisor.
    pub(super) fn of_handle(&self, handle: u64) -> Vec<Key> {
        self.claims.borrow().keys().filter(|key| key.0 == handle).copied().collect()
    }

    /// Remembers that these processes are what a child left behind: once the parent of one is killed, and while it is dying
    /// itself, nothing else may tell.
    pub(super) fn remember(&self, key: Key, found: &[Process]) {
        if let Some(claim) = self.claims.borrow_mut().get_mut(&key) {
            claim.family.extend(found.iter().map(Process::key));
        }
    }

    /// Remembers which processes descend from a child as long as that can be seen.
    pub(super) fn note_family(&self, key: Key, table: &[Process]) -> Vec<(i32, u64)> {
        let mut claims = self.claims.borrow_mut();
        let Some(claim) = claims.get_mut(&key) else { return Vec::new() };
        let root = HashSet::from([claim.leader.as_raw_nonzero().get()]);
        claim.family.extend(proc_table::descendants(&root, table).iter().map(Process::key));
        claim.family.iter().copied().collect()
    }

    /// A child ended, or several did: takes their statuses, tells their tasks, and reaps adopted ones.
    pub(super) fn reap(&self) {
        let ended: Vec<(Key, Status)> = {
            let mut waiting = self.waiting.borrow_mut();
            let mut ended = Vec::new();
            waiting.retain(|pid, key| match status_of(*pid) {
                Some(status) => {
                    ended.push((*key, status));
                    false
                }
                None => true,
            });
            ended
        };
        for (key, status) in ended {
            self.order(key, Order::Ended(status));
        }
        self.reap_adopted();
        self.changed.notify_waiters();
    }

    /// Reaps adopted children that are dead. False when this process has no child at all any more: one call of the kernel
    /// says so, and for a short command that is all the cleaning up there is.
    pub(super) fn reap_adopted(&self) -> bool {
        let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::All, any) {
                Err(rustix::io::Errno::CHILD) => return false,
                Ok(Some(_)) if self.reap_listed() > 0 => {}
                _ => return true,
            }
        }
    }

    fn reap_listed(&self) -> usize {
        self.adopted().into_iter().filter(|pid| status_of(*pid).is_some()).count()
    }

    /// The adopted children, dead ones included.
    pub(super) fn adopted(&self) -> Vec<i32> {
        let mut children = proc_table::own_children().unwrap_or_else(children_in_table);
        children.retain(|pid| !self.waiting.borrow().contains_key(pid) && !self.is_foreign(*pid));
        children
    }

    fn is_foreign(&self, pid: i32) -> bool {
        let in_own_group = Pid::from_raw(pid).is_some_and(|pid| getpgid(Some(pid)).ok() == self.own_group);
        let is_inherited = || Process::read(pid).is_some_and(|row| self.inherited.contains(&row.key()));
        in_own_group || (!self.inherited.is_empty() && is_inherited())
    }

    /// Whether an adopted child is what `key` left behind. What nobody can claim (it left group and session and was
    /// started with an empty environment) belongs to the only child there is, and to nobody while there are several. Where
    /// orphans come from elsewhere, too (of inherited children, or because agentrun is the first process of a container),
    /// such a process is left alone.
    pub(super) fn belonging(&self, key: Key, process: &Process) -> Belonging {
        let claims = self.claims.borrow();
        let Some(own) = claims.get(&key) else { return Belonging::Elsewhere };
        let others = || claims.iter().filter(|(other, _)| **other != key).map(|(_, claim)| claim);
        if own.owns(process) {
            return Belonging::Here;
        }
        if others().any(|claim| claim.owns(process)) {
            return Belonging::Elsewhere;
        }
        let marking = proc_table::marking_of(process.pid);
        let carries =
            |claim: &Claim| matches!((&marking, &claim.marker), (Marking::Marked(one), Some(other)) if one == other);
        if others().any(carries) {
            Belonging::Elsewhere
        } else if carries(own) || (claims.len() == 1 && self.only_own_orphans) {
            Belonging::Here
        } else if marking == Marking::Blank {
            Belonging::Unclear
        } else {
            Belonging::Elsewhere
        }
    }
}

/// The status of a child that has ended, which also frees its pid. `None` while it runs.
fn status_of(pid: i32) -> Option<Status> {
    match waitpid(Some(Pid::from_raw(pid)?), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => Some(read_status(status)),
        Ok(None) | Err(rustix::io::Errno::INTR) => None,
        Err(_) => Some(Status::Vanished),
    }
}

fn read_status(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Exited(code),
        (None, Some(signal)) => Status::Signalled(signal),
        (None, None) => Status::Vanished,
    }
}

/// The long way, for kernels without lists of children.
fn children_in_table() -> Vec<i32> {
    let own = getpid().as_raw_nonzero().get();
    proc_table::all().into_iter().filter(|row| row.parent == own).map(|row| row.pid).collect()
}
