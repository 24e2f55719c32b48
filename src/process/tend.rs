//! The life of one child, as a task on the supervisor's thread: reads it, stops it when asked, and after its end waits
//! until nothing of it is left. Only then its end is told. Starting and reaping happen elsewhere.

use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep_until;

use super::event::{ChildEvent, Ending, Haste, Status};
use super::identity;
use super::ladder::{Ladder, Move};
use super::proc_table;
use super::roster::{Key, Roster};
use super::streams::Streams;
use super::sweep::{self, Left};

/// What a child left behind may take to end by itself: a `tee` at the end of a pipe has its last line to write.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

/// How long the kernel may take to carry out SIGKILL before a process counts as a survivor.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How long output is waited for when everything has ended and somebody still holds the pipe.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// How long a short command's identity is nobody's business: to look it up and record it would cost more than most of them.
/// In that time only its marker leads to it, as it does in any case until a record is made.
pub(super) const STAYS: Duration = Duration::from_millis(50);

/// How often a pipe is read after that limit.
const LATE_READS: u32 = 32;

/// The table of processes is read at most this often while leftovers die.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Where events go.
pub(super) type Sink = Box<dyn FnMut(ChildEvent) + Send>;

/// Something that the task of a child has to know or do.
pub(super) enum Order {
    /// The child was reaped.
    Ended(Status),
    /// Stop it.
    Stop(Haste),
    /// Watch a folder for it.
    Watch(PathBuf),
    /// Stop it at once and tell nobody; the sender is dropped when it is gone.
    Abandon(mpsc::Sender<()>),
}

/// A child and everything that belongs to it.
pub(super) struct Tended {
    pub(super) entry: Entry,
    pub(super) ladder: Ladder,
    pub(super) streams: Streams,
    pub(super) watch: super::watch::Watch,
    pub(super) orders: UnboundedReceiver<Order>,
    /// When it is to be told that the child runs, and who it is; nothing once that was told.
    pub(super) told_from: Option<Instant>,
    /// Held while the child is abandoned.
    pub(super) abandoned: Option<mpsc::Sender<()>>,
}

/// The child's line in the roster, struck when its task ends. Should the task fail, the child does not run on unsupervised.
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) leader: Pid,
    pub(super) roster: Rc<Roster>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.roster.holds(self.leader) {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        self.roster.strike(self.key);
    }
}

/// What was left of a child and what became of it.
#[derive(Default)]
struct Remains {
    killed: HashSet<(i32, u64)>,
    survivors: Vec<i32>,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

impl Tended {
    /// From its start to the telling of its end.
    pub(super) async fn tend(mut self) {
        let status = self.until_ended().await;
        let remains = self.until_nobody_left(&status).await;
        let leaked = self.until_drained().await;
        self.tell_end(status, remains, leaked);
    }

    /// Reads and obeys until the child itself has ended.
    async fn until_ended(&mut self) -> Status {
        let mut give_up = None;
        loop {
            let due = self.ladder.deadline().or(give_up);
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(Order::Ended(status)) => return status,
                    Some(order) => self.obey(order),
                    None => return Status::Vanished,
                },
                () = until(due) => {
                    // A listener that blocked may have kept this thread from noticing the end that it is about to press for.
                    self.entry.roster.reap();
                    if self.entry.roster.holds(self.entry.leader) {
                        if give_up.is_some_and(|limit| Instant::now() >= limit) {
                            return Status::Vanished;
                        }
                        let next = self.ladder.climb_on(Instant::now());
                        self.act(next);
                    } else {
                        give_up = None;
                    }
                }
                () = until(self.told_from) => self.tell_start(),
                () = self.watch.changed() => (self.streams.sink)(ChildEvent::FilesChanged),
                () = self.streams.turn() => {}
            }
            if give_up.is_none() && self.ladder.report().is_some_and(|report| report.killed) {
                give_up = Instant::now().checked_add(KILL_LIMIT);
            }
        }
    }

    /// The child is not reaped yet, so what the kernel says of its pid is of it, even if it has ended just now.
    fn tell_start(&mut self) {
        self.told_from = None;
        let identity = identity::of_child(self.entry.leader);
        (self.streams.sink)(ChildEvent::Started(identity));
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Stop(haste) => {
                let next = self.ladder.ask(haste, Instant::now());
                self.act(next);
            }
            Order::Watch(folder) => {
                self.watch.add(&folder);
                // What changed before the watch began is told as well.
                (self.streams.sink)(ChildEvent::FilesChanged);
            }
            Order::Abandon(gone) => {
                self.streams.sink = Box::new(|_| ());
                self.abandoned = Some(gone);
                self.obey(Order::Stop(Haste::Now));
            }
            Order::Ended(_) => {}
        }
    }

    /// Carries out a move of the ladder. Descendants are noted first: once their parents are gone, nothing tells whose
    /// they were.
    fn act(&mut self, next: Option<Move>) {
        let Some(next) = next else { return };
        let family = self.entry.roster.note_family(self.entry.key, &proc_table::all());
        match next {
            Move::Signal(signal) => {
                self.signal_group(signal);
                // A child that was stopped (it tried to read from the terminal) could not answer otherwise.
                self.signal_group(Signal::CONT);
            }
            Move::KillTree => {
                self.signal_group(Signal::KILL);
                for process in family {
                    identity::signal(process, Signal::KILL);
                }
            }
        }
    }

    fn signal_group(&self, signal: Signal) {
        if self.entry.roster.holds(self.entry.leader) {
            // It may have ended just now; then there is nothing to signal.
            let _ = kill_process_group(self.entry.leader, signal);
        }
    }

    /// The child has ended; what it left behind gets a moment, then SIGKILL, until a look finds nobody.
    async fn until_nobody_left(&mut self, status: &Status) -> Remains {
        let mut remains = Remains::default();
        let begin = Instant::now();
        let mut kill_from = if self.ladder.report().is_some() { begin } else { begin + LEFTOVER_GRACE };
        let clear_by = begin + LEFTOVER_GRACE;
        let mut give_up = None;
        loop {
            let Left { found, unclear } = sweep::left_of(&self.entry.roster, self.entry.key);
            let now = Instant::now();
            if found.is_empty() {
                if !unclear || now >= clear_by {
                    break;
                }
                self.read_until_change(now + BETWEEN_LOOKS, &mut kill_from).await;
            } else if now < kill_from {
                self.read_until_change(kill_from, &mut kill_from).await;
            } else if give_up.is_some_and(|limit| now >= limit) {
                remains.survivors = found.iter().map(|row| row.pid).collect();
                break;
            } else {
                sweep::kill(&found, self.entry.leader, &mut remains.killed);
                give_up = give_up.or(now.checked_add(KILL_LIMIT));
                self.read_until_change(now + BETWEEN_LOOKS, &mut kill_from).await;
            }
        }
        if matches!(status, Status::Vanished) && self.entry.roster.holds(self.entry.leader) {
            remains.survivors.push(self.entry.leader.as_raw_nonzero().get());
        }
        remains
    }

    /// Goes on reading until it is worth another look: after a while, or when processes ended. A wish to stop that comes now
    /// only ends the patience with leftovers; the child itself has ended on its own.
    async fn read_until_change(&mut self, look_again: Instant, kill_from: &mut Instant) {
        loop {
            tokio::select! {
                () = sleep_until(look_again.into()) => return,
                () = self.entry.roster.changed.notified() => {
                    if Instant::now() < *kill_from || self.entry.roster.adopted().is_empty() {
                        return;
                    }
                }
                order = self.orders.recv() => match order {
                    Some(Order::Stop(_)) => {
                        *kill_from = Instant::now();
                        return;
                    }
                    Some(order) => self.obey(order),
                    None => return,
                },
                () = self.streams.turn() => {}
            }
        }
    }

    /// Reads what is still in the pipes. True when somebody outside the tree holds one open (T8). What is in the pipe when
    /// the time is over, because a listener was slow, is still taken: at most what a pipe can hold.
    async fn until_drained(&mut self) -> bool {
        let limit = Instant::now() + DRAIN_LIMIT;
        let mut late = 0;
        while self.streams.are_open() {
            tokio::select! {
                biased;
                () = self.streams.turn() => late += u32::from(Instant::now() >= limit),
                () = sleep_until(limit.into()) => return true,
            }
            if late > LATE_READS {
                return true;
            }
        }
        false
    }

    fn tell_end(self, status: Status, remains: Remains, leaked: bool) {
        let Self { entry, ladder, streams, abandoned, .. } = self;
        let (out, err, mut sink) = streams.finish();
        drop(entry);
        sink(ChildEvent::Ended(Ending {
            status,
            stop: ladder.report(),
            leaked,
            orphans_killed: u32::try_from(remains.killed.len()).unwrap_or(u32::MAX),
            survivors: remains.survivors,
            stdout_bytes: out.bytes,
            stderr_bytes: err.bytes,
            truncated: out.truncated || err.truncated,
            log_failure: out.failure.or(err.failure),
            stdout_tail: out.tail,
            stderr_tail: err.tail,
        }));
        drop(abandoned);
    }
}
