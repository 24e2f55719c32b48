//! What happens next: the seed picks among everything that can. First with faults, then without, until nobody works any
//! more; then a person goes on until the run rests.

use agentrun::domain::outcome::ProcessEnd;
use agentrun::domain::quantity::BootMs;
use agentrun::domain::run::{RUN, RunStatus};
use agentrun::domain::task::StepKind;
use agentrun::process::signals::{Press, StopKind, StopSignal};
use agentrun::store::fault::{self, CommitFault};
use rusqlite::ffi::{SQLITE_FULL, SQLITE_IOERR_FSYNC};

use crate::children::Ends;
use crate::holder::Stage;
use crate::worker::{Doing, Life, Message, Worker};
use crate::world::World;

pub(crate) const TERM: StopSignal = StopSignal { kind: StopKind::Terminate, press: Press::First };

/// Steps in which faults may strike.
const STORM: std::ops::Range<u64> = 20..160;
/// More steps than any run needs afterwards.
const ENOUGH: u32 = 4_000;

#[derive(Debug, Clone, Copy)]
enum Next {
    Turn(usize),
    Child(usize),
    Pass(u64),
    PassToDeadline,
    Kill(usize),
    Stop(usize),
    Continue(usize),
    Signal(usize),
    FailCommit(usize),
    Command,
    Jump,
    Suspend,
    Reboot,
}

/// Which faults a seed has: few at a time go deeper than all at once.
struct Weather {
    kill: u64,
    stop: u64,
    signal: u64,
    commit: u64,
    machine: u64,
    reboot: u64,
    cancel: bool,
}

impl World<'_> {
    /// One schedule, from the first command to the run at rest.
    pub(crate) fn play(&mut self) {
        let weather = self.weather();
        self.spawn_worker(Doing::Start);
        for _ in 0..self.chance.between(STORM.start, STORM.end) {
            let next = self.next(Some(&weather));
            self.happen(next, weather.cancel);
        }
        for worker in &mut self.workers {
            if worker.life == Life::Stopped {
                worker.life = Life::Running;
            }
        }
        for _ in 0..ENOUGH {
            if self.workers.iter().any(Worker::is_alive) || !self.children.is_empty() && !self.is_nobodys() {
                let next = self.next(None);
                self.happen(next, false);
            } else if !self.go_on() {
                return self.count_tokens();
            }
        }
        let stands = self.record().map(|run| run.status);
        self.broken(format!("R-R6: it does not come to rest; it is {stands:?}"));
    }

    /// Children that nobody listens to end with whoever goes on, not by waiting.
    fn is_nobodys(&self) -> bool {
        self.children.iter().all(|child| !self.workers[child.owner].is_alive())
    }

    fn weather(&mut self) -> Weather {
        let mut some = |weight| if self.chance.one_in(2) { weight } else { 0 };
        let (kill, stop, signal, commit, machine) = (some(3), some(3), some(1), some(4), some(1));
        let (reboot, cancel) = (u64::from(self.chance.one_in(4)), self.chance.one_in(4));
        Weather { kill, stop, signal, commit, machine, reboot, cancel }
    }

    fn next(&mut self, weather: Option<&Weather>) -> Next {
        let present = self.clock.boot();
        let mut choices: Vec<(u64, Next)> = Vec::new();
        for (w, worker) in self.workers.iter().enumerate().filter(|(_, w)| w.is_alive()) {
            if worker.life == Life::Stopped {
                choices.push((6, Next::Continue(w)));
                continue;
            }
            if self.has_something_to_do(w, present) {
                choices.push((30, Next::Turn(w)));
            }
            if let Some(weather) = weather {
                choices.push((weather.kill, Next::Kill(w)));
                choices.push((weather.stop, Next::Stop(w)));
                choices.push((weather.signal, Next::Signal(w)));
                choices.push((weather.commit, Next::FailCommit(w)));
            }
        }
        for (c, child) in self.children.iter().enumerate() {
            let hangs = child.ends == Ends::Never && child.calls == 0 && child.in_flight.is_none() && !child.stopping;
            if !hangs {
                choices.push((20, Next::Child(c)));
            }
        }
        let nothing = choices.iter().all(|(_, next)| !matches!(next, Next::Turn(_) | Next::Child(_)));
        choices.push((6, Next::Pass(self.chance.between(5, 3_000))));
        choices.push((if nothing { 30 } else { 0 }, Next::PassToDeadline));
        if let Some(weather) = weather {
            let crowd = self.workers.iter().filter(|w| w.is_alive()).count();
            choices.push((if crowd < 3 { 3 } else { 0 }, Next::Command));
            choices.push((weather.stop, Next::Pass(self.chance.between(20_000, 150_000))));
            choices.push((weather.machine, Next::Jump));
            choices.push((weather.machine, Next::Suspend));
            choices.push((weather.reboot, Next::Reboot));
        }
        self.chance.weighted(&choices).unwrap()
    }

    fn happen(&mut self, next: Next, may_cancel: bool) {
        match next {
            Next::Turn(w) => self.turn(w),
            Next::Child(c) => self.child(c),
            Next::Pass(ms) => self.pass(ms),
            Next::PassToDeadline => {
                let present = self.clock.boot();
                let at = self.deadline().map_or(60_000, |at| at.0.saturating_sub(present.0).max(1));
                self.pass(at);
            }
            Next::Kill(w) => self.kill(w),
            Next::Stop(w) => {
                self.counts.stops += 1;
                self.tell(format_args!("worker {w} is stopped"));
                self.workers[w].life = Life::Stopped;
            }
            Next::Continue(w) => {
                self.tell(format_args!("worker {w} goes on"));
                self.workers[w].life = Life::Running;
            }
            Next::Signal(w) => {
                self.counts.signals += 1;
                self.tell(format_args!("SIGTERM to worker {w}"));
                self.workers[w].inbox.push_back(Message::Signal(TERM));
            }
            Next::FailCommit(w) => self.fail_commit(w),
            Next::Command => self.command(may_cancel),
            Next::Jump => {
                self.counts.wall_clock_jumps += 1;
                let ms = self.chance.below(14_400_000).cast_signed() - 7_200_000;
                self.clock.jump(ms);
                self.tell(format_args!("the wall clock jumps by {ms} ms"));
            }
            Next::Suspend => {
                self.counts.suspensions += 1;
                let ms = self.chance.between(30_000, 3_600_000);
                self.tell(format_args!("the machine is suspended for {ms} ms"));
                self.clock.pass(ms);
            }
            Next::Reboot => self.reboot(),
        }
    }

    /// A turn whose commits fail: kept although they say no, lost and done again, or lost for good.
    fn fail_commit(&mut self, w: usize) {
        if !self.has_something_to_do(w, self.clock.boot()) {
            return;
        }
        let lost = CommitFault::Lost(SQLITE_IOERR_FSYNC);
        let faults: &[CommitFault] = match self.chance.below(5) {
            0 | 1 => &[CommitFault::Kept],
            2 => &[lost],
            3 => &[lost, CommitFault::Kept],
            _ if self.chance.one_in(2) => &[lost, lost],
            _ => &[CommitFault::Lost(SQLITE_FULL), CommitFault::Lost(SQLITE_FULL)],
        };
        let kept = faults.iter().filter(|f| **f == CommitFault::Kept).count() as u64;
        self.tell(format_args!("commits of worker {w} fail: {faults:?}"));
        fault::plan(faults.iter().copied());
        self.turn(w);
        let came = (faults.len() - fault::planned().min(faults.len())) as u64;
        self.counts.kept_commit_errors += kept.min(came);
        self.counts.lost_commits += came.saturating_sub(kept);
        fault::plan([]);
    }

    fn command(&mut self, may_cancel: bool) {
        let commands = [(5, 0), (3, 1), (1, 2), (u64::from(may_cancel), 3)];
        let which = self.chance.weighted(&commands).unwrap();
        let doing = [Doing::Resume, Doing::Start, Doing::Requeue, Doing::Cancel].into_iter().nth(which).unwrap();
        let w = self.spawn_worker(doing);
        self.tell(format_args!("worker {w} is {}", ["resume", "start", "requeue", "cancel"][which]));
    }

    fn has_something_to_do(&self, w: usize, present: BootMs) -> bool {
        let worker = &self.workers[w];
        match &worker.doing {
            Doing::Hold(holder) => match &holder.stage {
                Stage::Work(work) => !worker.inbox.is_empty() || !work.waits(holder, present),
                _ => true,
            },
            Doing::Wait(waiting) => !worker.inbox.is_empty() || waiting.until <= present,
            Doing::Follow(absence) | Doing::FollowCanceled(absence) | Doing::Prove(absence) => absence.looks(present),
            _ => true,
        }
    }

    /// The next moment at which something happens by itself.
    fn deadline(&self) -> Option<BootMs> {
        let present = self.clock.boot();
        let alive = self.workers.iter().filter(|w| w.life == Life::Running);
        let of = |doing: &Doing| match doing {
            Doing::Hold(holder) => match &holder.stage {
                Stage::Work(work) => work.next_deadline(holder, present),
                _ => None,
            },
            Doing::Wait(waiting) => Some(waiting.until),
            _ => None,
        };
        alive.filter_map(|w| of(&w.doing)).min()
    }

    /// Time passes; heartbeat threads beat in it, whatever the engine threads do.
    fn pass(&mut self, ms: u64) {
        let until = self.clock.boot().0 + ms;
        loop {
            let due = |w: &&usize| self.workers[**w].next_beat.is_some_and(|at| at.0 <= until);
            let alive: Vec<usize> =
                (0..self.workers.len()).filter(|w| self.workers[*w].life == Life::Running).collect();
            let Some(w) = alive.iter().filter(due).min_by_key(|w| self.workers[**w].next_beat).copied() else { break };
            let at = self.workers[w].next_beat.unwrap().0;
            self.clock.pass(at.saturating_sub(self.clock.boot().0));
            self.beat(w);
        }
        self.clock.pass(until.saturating_sub(self.clock.boot().0));
    }

    /// One move of a child.
    fn child(&mut self, c: usize) {
        let child = &mut self.children[c];
        let (key, owner) = (child.execution.0.clone(), child.owner);
        let own_end = if child.stopping {
            // What was on its way to it is lost.
            Some(ProcessEnd::Signalled { signal: 15 })
        } else if child.in_flight.take().is_some_and(|tokens| {
            self.transcripts.entry(child.execution.clone()).or_default().responses.push(tokens);
            self.provider.written(child);
            true
        }) {
            self.send(owner, Message::Wrote(key));
            None
        } else if child.calls > 0 {
            child.calls -= 1;
            let tokens = self.chance.between(20, 400);
            child.in_flight = Some(tokens);
            self.provider.call(child, tokens);
            None
        } else {
            let well = child.ends == Ends::Well;
            if child.kind == StepKind::Agent {
                self.transcripts.entry(child.execution.clone()).or_default().finished = well;
            }
            Some(ProcessEnd::Exited { code: i32::from(!well) })
        };
        if let Some(end) = own_end {
            self.gone(c, end);
        }
    }

    /// A child has ended; its worker hears of it, if it lives.
    pub(crate) fn gone(&mut self, c: usize, end: ProcessEnd) {
        let child = self.children.remove(c);
        let (key, number) = child.execution;
        self.counts.rate_limits += u64::from(matches!(child.ends, Ends::Badly(_, Some(_))));
        self.tell(format_args!("{key} {number} ends: {end}"));
        self.send(child.owner, Message::Ended(key, end, child.ends));
    }

    fn send(&mut self, worker: usize, message: Message) {
        if self.workers[worker].is_alive() {
            self.workers[worker].inbox.push_back(message);
        }
    }

    /// A person, or a job at night, goes on with what does not rest. False once nothing is left to do.
    fn go_on(&mut self) -> bool {
        let Some(record) = self.record() else {
            self.spawn_worker(Doing::Start);
            return true;
        };
        let asked = record.cancel_requested && RUN.next(record.status, agentrun::domain::run::RunEvent::Cancel).is_ok();
        match record.status {
            _ if asked => {
                self.spawn_worker(Doing::Cancel);
            }
            RunStatus::Running | RunStatus::Pending => {
                self.spawn_worker(Doing::Resume);
            }
            RunStatus::Retrying => {
                let at = record.retry_at.map_or(0, |at| at.0) - self.clock.now().utc.0;
                self.clock.pass(u64::try_from(at).unwrap_or(0));
                self.spawn_worker(Doing::Resume);
            }
            _ => return false,
        }
        true
    }
}
