//! A process of agentrun before and after it holds a run: what `start`, `resume` and `cancel` decide, who follows whom. It
//! mirrors `ops` and `engine::run`; each turn comes to at most one commit, so that death can fall between any two.

use std::collections::VecDeque;

use agentrun::domain::budget::Scope;
use agentrun::domain::ids::{RunId, StepKey};
use agentrun::domain::lease::Holding;
use agentrun::domain::outcome::ProcessEnd;
use agentrun::domain::plan::start::{AfterFailure, Existing, Follow, Wishes, existing};
use agentrun::domain::quantity::{BootMs, Millis, UtcMs};
use agentrun::domain::record::{Identity, RunRecord};
use agentrun::domain::run::{OpenedBy, RUN, RunEvent, RunStatus};
use agentrun::engine::heartbeat::lease_until;
use agentrun::engine::run::is_due;
use agentrun::process::signals::StopSignal;
use agentrun::store::{Claim, Decision, Hold, Holder as Claimant, NewRun, Started, Store, StoreError};

use crate::children::Ends;
use crate::holder::Holder;
use crate::planted::Planted;
use crate::task::ATTEMPTS;
use crate::world::World;

pub(crate) struct Worker {
    pub identity: Identity,
    pub life: Life,
    pub doing: Doing,
    pub store: Option<Store>,
    pub inbox: VecDeque<Message>,
    /// When its heartbeat thread beats next, while it has one.
    pub next_beat: Option<BootMs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    Stopped,
    Over,
}

/// What reaches the engine thread.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Started(StepKey, Identity),
    Wrote(StepKey),
    Ended(StepKey, ProcessEnd, Ends),
    Signal(StopSignal),
    LeaseLost,
    CancelRequested,
}

/// A run that the worker waits to try again.
pub(crate) struct Waiting {
    pub store: Store,
    pub hold: Hold,
    pub until: BootMs,
    pub run_until: BootMs,
    pub waited: Millis,
}

/// What a worker is at.
pub(crate) enum Doing {
    Nothing,
    Start,
    Resume,
    /// A person puts a dead letter back.
    Requeue,
    Cancel,
    /// It has decided to claim the run as it saw it.
    Claim(Box<RunRecord>),
    Follow(Absence),
    /// It follows the holder that it asked to cancel.
    FollowCanceled(Absence),
    /// Whether a holder of another boot is gone.
    Prove(Absence),
    Hold(Box<Holder>),
    Wait(Box<Waiting>),
}

/// What follows a turn; the error is why the worker ends.
enum Next {
    Goes(Doing),
    Holds(Hold),
}

/// A heartbeat that stands still, since when (mirrors `ops::follow`).
pub(crate) struct Absence {
    beat: Option<UtcMs>,
    since: BootMs,
    looked: BootMs,
}

impl Absence {
    /// Looks are taken at intervals.
    pub(crate) fn looks(&self, present: BootMs) -> bool {
        present.0 >= self.looked.0 + 100 || present < self.looked
    }
}

impl Worker {
    pub(crate) fn new(identity: Identity, doing: Doing, store: Store) -> Self {
        let (life, store) = (Life::Running, Some(store));
        Self { identity, life, doing, store, inbox: VecDeque::new(), next_beat: None }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.life != Life::Over
    }
}

impl Doing {
    /// The connection, where the work has it.
    pub(crate) fn into_store(self) -> Option<Store> {
        match self {
            Self::Hold(holder) => Some(holder.held.into_store()),
            Self::Wait(waiting) => Some(waiting.store),
            _ => None,
        }
    }
}

impl World<'_> {
    /// One turn of a worker.
    pub(crate) fn turn(&mut self, w: usize) {
        self.counts.turns += 1;
        agentrun::engine::host::simulate(self.clock.now());
        let doing = std::mem::replace(&mut self.workers[w].doing, Doing::Nothing);
        match doing {
            Doing::Hold(holder) => return self.hold_on(w, holder),
            Doing::Wait(waiting) => return self.wait(w, waiting),
            _ => {}
        }
        let mut store = self.workers[w].store.take().unwrap();
        let next = match doing {
            Doing::Start => self.start(w, &mut store),
            Doing::Resume => self.resume(&store),
            Doing::Requeue => self.requeue(&mut store, w),
            Doing::Cancel => self.cancel(&mut store, w),
            Doing::Claim(record) => {
                self.claim(w, &mut store, &record, OpenedBy::Resume).map(Next::Holds).map_err(|e| e.code().to_string())
            }
            Doing::Follow(absence) => self.follow(absence),
            Doing::FollowCanceled(absence) => self.follow_canceled(&mut store, w, absence),
            Doing::Prove(absence) => self.prove(absence),
            Doing::Nothing | Doing::Hold(_) | Doing::Wait(_) => Err("nothing to do".into()),
        };
        match next {
            Ok(Next::Holds(hold)) => self.begin(w, store, hold, None),
            Ok(Next::Goes(doing)) => (self.workers[w].doing, self.workers[w].store) = (doing, Some(store)),
            Err(why) => {
                self.workers[w].store = Some(store);
                self.exit(w, &why);
            }
        }
    }

    fn start(&mut self, w: usize, store: &mut Store) -> Result<Next, String> {
        let ctx = self.context(w);
        let spec = &self.new.inputs.spec;
        let limits = self.new.inputs.policy.budgets.task.stricter(&spec.budget.task);
        let used = store.task_usage(&spec.task).map_err(|e| e.code().to_string())?;
        if self.run.is_none() && limits.exhausted(Scope::Task, &used).is_some() {
            return Err("the task has used its limits up".into());
        }
        let process = self.workers[w].identity.clone();
        let lease = lease_until(&ctx.now, &self.new.inputs.policy.leases);
        let claim = Some(Claimant { process, lease_until: lease, token: None });
        let new = NewRun { claim, ..self.new.clone() };
        match store.start_or_attach(&new, &ctx).map_err(|e| e.code().to_string())? {
            Started::New(hold) => {
                self.run = Some(hold.run.clone());
                (self.truth.fence, self.truth.open) = (hold.fence, true);
                self.acknowledge(store);
                Ok(Next::Holds(hold))
            }
            Started::Existing(run) => self.existing(store, &run),
            Started::Queued { .. } => Err("queued".into()),
        }
    }

    fn existing(&mut self, store: &Store, run: &RunId) -> Result<Next, String> {
        self.counts.second_starts += 1;
        self.run.get_or_insert_with(|| run.clone());
        let record = store.find_run(run).map_err(|e| e.code().to_string())?.ok_or("no run")?;
        let wishes = Wishes { follow: Follow::ToTheEnd, after_failure: AfterFailure::Offer };
        match existing(&record, self.holding(&record), wishes) {
            Existing::Attach => Ok(Next::Goes(Doing::Follow(self.absence(&record)))),
            Existing::TakeOver => Ok(Next::Goes(Doing::Resume)),
            Existing::Reuse | Existing::TellBusy | Existing::Tell(_) => Err("it is told how the run stands".into()),
        }
    }

    /// As `ops::resume` decides about a run that is there.
    fn resume(&mut self, store: &Store) -> Result<Next, String> {
        let run = self.run.clone().ok_or("no run yet")?;
        let record = store.find_run(&run).map_err(|e| e.code().to_string())?.ok_or("no run")?;
        if RUN.is_final(record.status) {
            return Err(format!("it is {} already", record.status));
        }
        match record.status {
            RunStatus::DeadLetter => return Err("it is a dead letter".into()),
            RunStatus::Running => match self.holding(&record) {
                Holding::Held if self.planted != Planted::LiveLeaseTaken => return Err("it is held".into()),
                Holding::Foreign => return Ok(Next::Goes(Doing::Prove(self.absence(&record)))),
                _ => {}
            },
            RunStatus::Retrying if !is_due(&record, self.clock.now().utc) => return Err("it is not due".into()),
            _ => {}
        }
        self.may_claim(store, record)
    }

    /// Attempts that are used up are refused here, but for a holder that is gone, as what it left must be ended, and for a
    /// dead letter that was put back and waits for no moment.
    fn may_claim(&mut self, store: &Store, record: RunRecord) -> Result<Next, String> {
        let used = store.task_usage(&record.task).map_err(|e| e.code().to_string())?.failed_attempts;
        let put_back = record.status == RunStatus::Retrying && record.retry_at.is_none();
        let unlimited = self.planted == Planted::RetryWithoutEnd || record.status == RunStatus::Running;
        if used >= ATTEMPTS && !unlimited && !put_back {
            return Err("attempts are used up".into());
        }
        if record.status == RunStatus::Running {
            self.check_take_over(&record);
        }
        Ok(Next::Goes(Doing::Claim(Box::new(record))))
    }

    fn requeue(&mut self, store: &mut Store, w: usize) -> Result<Next, String> {
        let run = self.run.clone().ok_or("no run yet")?;
        let record = store.find_run(&run).map_err(|e| e.code().to_string())?.ok_or("no run")?;
        if record.status != RunStatus::DeadLetter {
            return Err("it is no dead letter".into());
        }
        let decision = Decision {
            event: RunEvent::Requeue,
            expected_fence: record.fence,
            failure: None,
            retry_at: None,
            reason: "the cause is gone".into(),
        };
        let record = store.decide(&run, &decision, &self.context(w)).map_err(|e| e.code().to_string())?;
        self.truth.allowed = self.truth.allowed.max(self.truth.failed + 1);
        self.acknowledge(store);
        Ok(Next::Goes(Doing::Claim(Box::new(record))))
    }

    fn cancel(&mut self, store: &mut Store, w: usize) -> Result<Next, String> {
        let run = self.run.clone().ok_or("no run yet")?;
        let asked = store.request_cancel(&run, "not wanted", &self.context(w)).map_err(|e| e.code().to_string())?;
        self.counts.cancel_requests += 1;
        self.acknowledge(store);
        let is_held = matches!(self.holding(&asked), Holding::Held | Holding::Stuck);
        if is_held && matches!(asked.status, RunStatus::Running | RunStatus::Retrying) {
            self.wake_holder(&asked);
            return Ok(Next::Goes(Doing::FollowCanceled(self.absence(&asked))));
        }
        self.cancel_at_rest(store, w, asked)
    }

    fn cancel_at_rest(&mut self, store: &mut Store, w: usize, record: RunRecord) -> Result<Next, String> {
        if record.attempt == 0 {
            store.cancel_at_rest(&record.id, record.fence, &self.context(w)).map_err(|e| e.code().to_string())?;
            self.acknowledge(store);
            return Err("canceled before it began".into());
        }
        Ok(Next::Goes(Doing::Claim(Box::new(record))))
    }

    fn wake_holder(&mut self, record: &RunRecord) {
        let Some(lease) = &record.lease else { return };
        if let Some(holder) = self.workers.iter_mut().find(|w| w.identity == lease.holder && w.is_alive()) {
            holder.inbox.push_back(Message::Signal(crate::fate::TERM));
        }
    }

    fn absence(&self, record: &RunRecord) -> Absence {
        let present = self.clock.boot();
        Absence { beat: record.heartbeat_at, since: present, looked: present }
    }

    /// Whether the holder is shown to be gone.
    fn is_gone(&self, absence: &mut Absence, record: &RunRecord) -> bool {
        absence.looked = self.clock.boot();
        match self.holding(record) {
            Holding::Abandoned | Holding::Free => true,
            Holding::Held | Holding::Stuck => false,
            Holding::Foreign if record.heartbeat_at == absence.beat => {
                self.clock.boot().0.saturating_sub(absence.since.0) >= self.new.inputs.policy.leases.ttl.0
            }
            Holding::Foreign => {
                *absence = self.absence(record);
                false
            }
        }
    }

    fn follow(&mut self, mut absence: Absence) -> Result<Next, String> {
        let record = self.record().ok_or("no run")?;
        if !matches!(record.status, RunStatus::Running | RunStatus::Pending | RunStatus::Retrying) {
            return Err(format!("it rests: {}", record.status));
        }
        absence.looked = self.clock.boot();
        if record.status != RunStatus::Pending && self.is_gone(&mut absence, &record) {
            return if record.status == RunStatus::Running {
                Ok(Next::Goes(Doing::Resume))
            } else {
                Err("it waits".into())
            };
        }
        Ok(Next::Goes(Doing::Follow(absence)))
    }

    fn follow_canceled(&mut self, store: &mut Store, w: usize, mut absence: Absence) -> Result<Next, String> {
        let record = self.record().ok_or("no run")?;
        match record.status {
            status if RUN.is_final(status) => return Err(format!("it is {status}")),
            RunStatus::Running | RunStatus::Retrying if !self.is_gone(&mut absence, &record) => {
                return Ok(Next::Goes(Doing::FollowCanceled(absence)));
            }
            _ => {}
        }
        self.cancel_at_rest(store, w, record)
    }

    fn prove(&mut self, mut absence: Absence) -> Result<Next, String> {
        let record = self.record().ok_or("no run")?;
        if record.status != RunStatus::Running || record.heartbeat_at != absence.beat {
            return Err("its holder lives".into());
        }
        if !self.is_gone(&mut absence, &record) {
            return Ok(Next::Goes(Doing::Prove(absence)));
        }
        self.check_take_over(&record);
        Ok(Next::Goes(Doing::Claim(Box::new(record))))
    }

    /// Mirrors `engine::run::claim`.
    pub(crate) fn claim(
        &mut self,
        w: usize,
        store: &mut Store,
        record: &RunRecord,
        opened_by: OpenedBy,
    ) -> Result<Hold, StoreError> {
        let (event, opened_by) = match record.status {
            RunStatus::Pending => (RunEvent::Start, OpenedBy::Start),
            RunStatus::Running => (RunEvent::TakeOver, OpenedBy::Takeover),
            _ => (RunEvent::Resume, opened_by),
        };
        let ctx = self.context(w);
        let claim = Claim {
            event,
            opened_by,
            holder: self.workers[w].identity.clone(),
            lease_until: lease_until(&ctx.now, &self.new.inputs.policy.leases),
            expected_fence: record.fence,
            attempts: None,
            token: None,
        };
        let hold = store.claim(&record.id, &claim, &ctx)?;
        self.truth.failed += u64::from(std::mem::replace(&mut self.truth.open, true));
        self.truth.fence = hold.fence;
        self.counts.take_overs += u64::from(event == RunEvent::TakeOver);
        self.counts.retries += u64::from(opened_by == OpenedBy::Retry);
        self.tell(format_args!("worker {w} claims by {event}: fence {}", hold.fence));
        self.acknowledge(store);
        if event == RunEvent::TakeOver {
            self.plant_at_take_over();
        }
        Ok(hold)
    }

    fn plant_at_take_over(&mut self) {
        match self.planted {
            Planted::DoneIsRepeated => self.disk.sql(
                "UPDATE step SET state = 'PENDING' WHERE state = 'SUCCEEDED' AND run = (SELECT max(seq) FROM run)",
            ),
            Planted::CounterFalls => {
                self.disk.sql("UPDATE execution SET input = 0 WHERE run = (SELECT max(seq) FROM run)");
            }
            Planted::LogIsEdited => self.disk.sql(
                "UPDATE event SET actor = 'mallory' WHERE n = 2 AND run = (SELECT id FROM run ORDER BY seq DESC LIMIT 1)",
            ),
            _ => {}
        }
    }
}
