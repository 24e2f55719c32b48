//! The simulated machine: workers, children, clocks, provider, one real database; and the truth, against which the record is
//! held afterwards. Everything that happens is a line of the trace.

use std::fmt::Write as _;

use agentrun::domain::event::ChainHead;
use agentrun::domain::ids::{RequestId, RunId};
use agentrun::domain::lease::{Holding, Liveness, holding};
use agentrun::domain::record::{Identity, RunRecord};
use agentrun::engine::host::{Who, simulate};
use agentrun::store::{Context, NewRun, Store};

use crate::chance::Chance;
use crate::children::{Child, Provider, Transcripts};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::planted::Planted;
use crate::worker::{Doing, Life, Worker};

/// A law that broke: its id and what was seen.
pub(crate) type Broken = String;

pub(crate) struct World<'d> {
    pub disk: &'d mut Disk,
    pub chance: Chance,
    pub clock: Clock,
    pub workers: Vec<Worker>,
    pub children: Vec<Child>,
    pub provider: Provider,
    pub transcripts: Transcripts,
    pub new: NewRun,
    pub run: Option<RunId>,
    pub truth: Truth,
    pub planted: Planted,
    pub trace: String,
    pub counts: Counts,
    pids: i32,
}

/// What really happened, told apart from the record.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// The fence of the newest claim.
    pub fence: u64,
    /// An attempt is open.
    pub open: bool,
    /// Attempts that failed or whose holder was gone.
    pub failed: u64,
    /// Failed attempts at which no more may begin: the limit, or one more than there were when a person put a dead letter back.
    pub allowed: u64,
    /// The ledger of the task was closed by a success.
    pub closed: bool,
    /// The ends of the run's chain that a worker was told to be durable.
    pub acknowledged: Vec<ChainHead>,
    /// The first law that broke while it went on.
    pub broken: Option<Broken>,
}

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident),+ $(,)?) => {
        /// How often what happened, over all schedules.
        #[derive(Debug, Default, Clone)]
        pub(crate) struct Counts { $($(#[doc = $doc])* pub $name: u64),+ }

        impl Counts {
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }

        impl std::fmt::Display for Counts {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(write!(f, "{} {}, ", self.$name, stringify!($name).replace('_', " "))?;)+
                Ok(())
            }
        }
    };
}

counts! {
    turns, commits, kills, stops, suspensions, reboots, wall_clock_jumps, kept_commit_errors, lost_commits, failed_commits,
    signals, cancel_requests, second_starts, take_overs, retries, adoptions, send_backs, late_writes_refused, rate_limits,
    budget_stops, tokens_handed_out, tokens_lost_in_flight, tokens_of_replaced_holders, succeeded, canceled, failed,
    dead_letters, budget_exceeded, interrupted,
}

impl<'d> World<'d> {
    pub(crate) fn new(disk: &'d mut Disk, seed: u64, planted: Planted) -> Self {
        let mut chance = Chance::of(seed);
        let new = crate::task::new_run(seed, &mut chance);
        Self {
            disk,
            chance,
            clock: Clock::new(),
            workers: Vec::new(),
            children: Vec::new(),
            provider: Provider::default(),
            transcripts: Transcripts::new(),
            new,
            run: None,
            truth: Truth { allowed: crate::task::ATTEMPTS, ..Truth::default() },
            planted,
            trace: String::new(),
            counts: Counts::default(),
            pids: 100,
        }
    }

    /// A line of the trace.
    pub(crate) fn tell(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.trace, "{:>9} {what}", self.clock.boot().0);
    }

    pub(crate) fn broken(&mut self, law: String) {
        self.tell(format_args!("BROKEN {law}"));
        self.truth.broken.get_or_insert(law);
    }

    /// A process that never was before.
    pub(crate) fn new_identity(&mut self) -> Identity {
        self.pids += 1;
        Identity { pid: self.pids, start_ticks: self.clock.boot().0 / 10, boot_id: self.clock.boot_id() }
    }

    pub(crate) fn who(worker: usize) -> Who {
        Who { actor: "alice".into(), request_id: RequestId::recorded(format!("worker-{worker}")) }
    }

    /// For a write at this moment; the engine's own clock is set to it as well.
    pub(crate) fn context(&self, worker: usize) -> Context {
        simulate(self.clock.now());
        Self::who(worker).context()
    }

    pub(crate) fn lives(&self, process: &Identity) -> bool {
        self.workers.iter().any(|w| w.identity == *process && w.is_alive())
    }

    /// The run's lease as the program would read it on this machine.
    pub(crate) fn holding(&self, run: &RunRecord) -> Holding {
        let liveness = match &run.lease {
            None => Liveness::Dead,
            Some(lease) if lease.holder.boot_id != self.clock.boot_id() => Liveness::OtherBoot,
            Some(lease) if self.lives(&lease.holder) => Liveness::Alive,
            Some(_) => Liveness::Dead,
        };
        holding(run.lease.as_ref(), liveness, &self.clock.now())
    }

    /// Whoever decides to take a run over must not find a holder that lives and whose lease runs.
    pub(crate) fn check_take_over(&mut self, run: &RunRecord) {
        let Some(lease) = &run.lease else { return };
        let same_boot = lease.holder.boot_id == self.clock.boot_id();
        if same_boot && self.lives(&lease.holder) && lease.until > self.clock.boot() {
            self.broken(format!("R-R6: the live lease of process {} was to be taken", lease.holder.pid));
        }
    }

    pub(crate) fn spawn_worker(&mut self, doing: Doing) -> usize {
        let identity = self.new_identity();
        let store = self.disk.take();
        self.workers.push(Worker::new(identity, doing, store));
        self.workers.len() - 1
    }

    /// SIGKILL: memory is gone, what was not committed is gone, children are not.
    pub(crate) fn kill(&mut self, w: usize) {
        self.counts.kills += 1;
        self.tell(format_args!("worker {w} is killed"));
        self.bury(w);
        if self.planted == Planted::AckIsLost {
            self.disk.sql("DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)");
        }
    }

    /// A worker ends by itself: its supervisor takes its children with it.
    pub(crate) fn exit(&mut self, w: usize, why: &str) {
        self.tell(format_args!("worker {w} ends: {why}"));
        self.bury(w);
        self.children.retain(|child| child.owner != w);
    }

    fn bury(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        worker.life = Life::Over;
        worker.inbox.clear();
        let held = std::mem::replace(&mut worker.doing, Doing::Nothing).into_store();
        let store = held.or_else(|| worker.store.take());
        self.disk.give_back(store);
    }

    /// The end of the simulation: connections go back.
    pub(crate) fn close(&mut self) {
        for w in 0..self.workers.len() {
            if self.workers[w].is_alive() {
                self.bury(w);
            }
        }
    }

    pub(crate) fn reboot(&mut self) {
        self.counts.reboots += 1;
        for w in 0..self.workers.len() {
            if self.workers[w].is_alive() {
                self.bury(w);
            }
        }
        self.children.clear();
        self.clock.reboot();
        self.tell(format_args!("the machine boots anew"));
    }

    /// The record of the run, through a connection that nobody works with.
    pub(crate) fn record(&self) -> Option<RunRecord> {
        self.disk.reader().find_run(self.run.as_ref()?).unwrap()
    }

    /// What a worker was told to be durable.
    pub(crate) fn acknowledge(&mut self, store: &Store) {
        self.counts.commits += 1;
        if let Some(run) = &self.run {
            self.truth.acknowledged.push(store.chain_head(run.as_str()).unwrap());
        }
    }
}
