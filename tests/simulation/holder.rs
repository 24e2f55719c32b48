//! A worker that holds the run, outside the steps: what an earlier holder left, the checks before work begins, the end of an
//! attempt, the wait for the next, the heartbeat. Mirrors `engine::run` and `engine::recover`; staging, limits and the end
//! of an attempt are the engine's own.

use agentrun::domain::budget::Certainty;
use agentrun::domain::change::{Change, ExecutionEnd, MeterItem, Reached, StepMove};
use agentrun::domain::event::EventKind;
use agentrun::domain::hash::encoding::Sha256Hash;
use agentrun::domain::ids::StepKey;
use agentrun::domain::machine::Word as _;
use agentrun::domain::outcome::ProcessEnd;
use agentrun::domain::quantity::{BootMs, Millis};
use agentrun::domain::record::{ArtifactRecord, ArtifactType, RunView};
use agentrun::domain::run::{OpenedBy, RunStatus};
use agentrun::domain::step::{StepEvent, StepState};
use agentrun::domain::task::StepKind;
use agentrun::engine::attempt::{AttemptEnd, Cause};
use agentrun::engine::error::EngineError;
use agentrun::engine::heartbeat::lease_until;
use agentrun::engine::held::Held;
use agentrun::engine::meter::Meter;
use agentrun::engine::rest::{Left, record_end};
use agentrun::engine::run::used_up;
use agentrun::store::{Hold, Store, StoreError};

use crate::children::Fate;
use crate::fate::TERM;
use crate::planted::Planted;
use crate::work::Work;
use crate::worker::{Doing, Message, Waiting};
use crate::world::World;

/// The hold, and how far the attempt is.
pub(crate) struct Holder {
    pub held: Held,
    /// The run as it was claimed.
    pub view: RunView,
    /// The fence that this worker was given.
    pub fence: u64,
    pub run_until: BootMs,
    pub waited: Millis,
    pub stage: Stage,
}

pub(crate) enum Stage {
    Leftovers,
    Settle,
    Check,
    Work(Box<Work>),
    Rest(AttemptEnd),
    /// The reports and the manifest; then this wait, if there is one.
    Words(Option<Millis>),
}

/// Why a turn ends the worker, or what comes next.
pub(crate) type Turned = Result<Stage, EngineError>;

impl World<'_> {
    /// The worker holds the run from here on. `since` is what a retry goes on with: the run's clock, and time waited.
    pub(crate) fn begin(&mut self, w: usize, store: Store, hold: Hold, since: Option<(BootMs, Millis)>) {
        let view = store.view(&hold.run).unwrap();
        let present = self.clock.boot().0;
        let (run_until, waited) = since.unwrap_or((BootMs(present + view.inputs.policy.timeouts.run.0), Millis(0)));
        self.workers[w].next_beat = Some(BootMs(present + view.inputs.policy.leases.heartbeat.0));
        let stage = if hold.attempt == 1 { Stage::Check } else { Stage::Leftovers };
        let fence = hold.fence;
        let held = Held::new(store, hold, &view, Self::who(w));
        let holder = Holder { held, view, fence, run_until, waited, stage };
        self.workers[w].doing = Doing::Hold(Box::new(holder));
    }

    pub(crate) fn hold_on(&mut self, w: usize, mut holder: Box<Holder>) {
        let stage = std::mem::replace(&mut holder.stage, Stage::Check);
        let turned = match stage {
            Stage::Leftovers => self.end_leftovers(w, &mut holder),
            Stage::Settle => self.settle(w, &mut holder),
            Stage::Check => self.check(w, &mut holder),
            Stage::Work(work) => self.work(w, &mut holder, work),
            Stage::Rest(end) => self.rest(w, &mut holder, &end),
            Stage::Words(wait) => return self.last_words(w, holder, wait),
        };
        let over = match turned {
            Ok(stage) => {
                holder.stage = stage;
                None
            }
            Err(EngineError::Store(error)) => {
                self.counts.late_writes_refused += u64::from(matches!(error, StoreError::Fenced { .. }));
                self.counts.failed_commits +=
                    u64::from(matches!(error, StoreError::CommitUnknown { .. } | StoreError::Full));
                Some(error.code().to_string())
            }
            Err(EngineError::Failed(failure)) if failure.code == agentrun::domain::failure::Code::Fenced => {
                Some(failure.message)
            }
            Err(error) => panic!("the engine wants what its own tables refuse: {error}\n{}", self.trace),
        };
        self.workers[w].doing = Doing::Hold(holder);
        if let Some(why) = over {
            self.exit(w, &why);
        }
    }

    /// The one way in which a holder writes.
    pub(crate) fn commit(&mut self, w: usize, holder: &mut Holder) -> Result<(), EngineError> {
        self.context(w);
        if self.planted == Planted::NoFence {
            let record = self.record().unwrap();
            holder.held.hold = Hold { run: record.id, attempt: record.attempt, fence: record.fence };
        }
        let before = holder.held.store().chain_head(holder.held.hold.run.as_str())?;
        holder.held.commit()?;
        // Nothing was staged: nothing was written, and nobody was told anything.
        if holder.held.store().chain_head(holder.held.hold.run.as_str())? == before {
            return Ok(());
        }
        self.acknowledge(holder.held.store());
        if holder.fence != self.truth.fence {
            self.broken(format!("R-R7: fence {} wrote when {} was given out", holder.fence, self.truth.fence));
        }
        Ok(())
    }

    /// Every process with the run's marker, whoever started it.
    fn end_leftovers(&mut self, w: usize, holder: &mut Holder) -> Turned {
        if self.planted == Planted::LeftoversStay || self.children.is_empty() {
            return Ok(Stage::Settle);
        }
        let ended = self.children.len();
        while !self.children.is_empty() {
            // A worker that was replaced and lives still hears of it.
            self.gone(0, ProcessEnd::Signalled { signal: 9 });
        }
        self.tell(format_args!("worker {w} ends {ended} leftovers"));
        holder.held.note(EventKind::LeftoversEnded, None, &format!("{ended} processes of an earlier attempt ended"))?;
        self.commit(w, holder)?;
        Ok(Stage::Settle)
    }

    fn settle(&mut self, w: usize, holder: &mut Holder) -> Turned {
        let cut: Vec<_> = holder.view.steps.iter().filter(|s| s.state == StepState::Running).cloned().collect();
        for step in &cut {
            let number = step.runs;
            let ended = holder.view.executions.iter().rev().find(|e| e.step == step.key).map(|e| {
                let seen = holder.view.run.heartbeat_at.unwrap_or(e.started_at).max(e.started_at);
                let active = e.active.max(Millis::between(e.started_at, seen));
                ExecutionEnd { end: ProcessEnd::Vanished, result: None, active }
            });
            let mut finished = false;
            if step.kind == StepKind::Agent {
                let items = self.items(&step.key, number, 0);
                let active = ended.as_ref().map_or(Millis(0), |e| e.active);
                if self.planted != Planted::UsageForgotten {
                    holder.held.stage(Change::Usage { step: step.key.clone(), items, active })?;
                }
                finished = self.transcripts.get(&(step.key.clone(), number)).is_some_and(|t| t.finished);
            }
            let (event, checkpoint) = if finished {
                self.counts.adoptions += 1;
                holder.held.note(EventKind::AgentAdopted, Some(&step.key), "it had finished")?;
                let forgotten = self.planted == Planted::CheckpointForgotten;
                (StepEvent::Succeed, Some(Self::checkpoint(&step.key)).filter(|_| !forgotten))
            } else {
                (StepEvent::Interrupt, None)
            };
            holder.held.stage(Change::Step(StepMove { ended, checkpoint, ..StepMove::new(&step.key, event) }))?;
        }
        if !cut.is_empty() {
            self.commit(w, holder)?;
        }
        Ok(Stage::Check)
    }

    fn check(&mut self, w: usize, holder: &mut Holder) -> Turned {
        self.context(w);
        let record = holder.held.store().find_run(&holder.held.hold.run)?;
        if record.is_some_and(|run| run.cancel_requested) {
            return Ok(Stage::Rest(AttemptEnd::Stopped(Cause::Cancel)));
        }
        if let Some(failure) = used_up(&holder.held, &holder.view) {
            return Ok(Stage::Rest(AttemptEnd::UsedUp(failure)));
        }
        let until = self.clock.boot().0 + holder.held.inputs.policy.timeouts.attempt.0;
        Ok(Stage::Work(Box::new(Work::new(Meter::load(&holder.held)?, BootMs(until)))))
    }

    /// How the attempt ended, recorded by the engine's own hand.
    fn rest(&mut self, w: usize, holder: &mut Holder, end: &AttemptEnd) -> Turned {
        if *end == AttemptEnd::Stopped(Cause::LeaseLost) {
            let why = "the run was taken over";
            return Err(EngineError::failed(agentrun::domain::failure::Code::Fenced, why));
        }
        self.context(w);
        let parked = AttemptEnd::Stopped(Cause::Signal(TERM));
        let failed = matches!(end, AttemptEnd::Failed(_));
        let end = if failed && self.planted == Planted::FailureUncounted { &parked } else { end };
        if self.planted == Planted::RetryWithoutEnd {
            holder.held.inputs.policy.budgets.task.attempts = None;
        }
        let with = (end, holder.waited, holder.run_until);
        let wait = record_end(&mut holder.held, &holder.view, Left::AsUsual, with)?;
        self.acknowledge(holder.held.store());
        self.truth.open = false;
        self.truth.failed += u64::from(failed);
        self.truth.closed |= *end == AttemptEnd::Done;
        self.counts.budget_stops += u64::from(matches!(end, AttemptEnd::Stopped(Cause::Budget(_))));
        self.tell(format_args!("worker {w} rests: {}", word(end)));
        self.check_nobody_is_left();
        if self.planted == Planted::FinalIsReopened {
            self.disk.sql("UPDATE run SET status = 'INTERRUPTED' WHERE status IN ('SUCCEEDED', 'CANCELED')");
        }
        Ok(Stage::Words(wait))
    }

    /// At rest, no process is left but those of a worker that was replaced and has yet to notice.
    fn check_nobody_is_left(&mut self) {
        let left = self.children.iter().filter(|c| !c.late).count();
        if left > 0 {
            self.broken(format!("I5: {left} processes live past the end of the attempt"));
        }
    }

    fn last_words(&mut self, w: usize, mut holder: Box<Holder>, wait: Option<Millis>) {
        let kept = ArtifactRecord {
            kind: ArtifactType::Result,
            path: "result.json".into(),
            sha256: Sha256Hash::of(&holder.fence.to_le_bytes()),
            size: 1,
            step: None,
            attempt: holder.held.hold.attempt,
        };
        let told = holder.held.stage(Change::Artifact(kept)).and_then(|()| self.commit(w, &mut holder));
        let Holder { held, run_until, waited, .. } = *holder;
        let hold = held.hold.clone();
        let store = held.into_store();
        let (Some(wait), Ok(())) = (wait, &told) else {
            self.workers[w].store = Some(store);
            let why = told.err().map_or_else(|| "the run rests".to_owned(), |error| error.code().to_string());
            return self.exit(w, &why);
        };
        let until = BootMs(self.clock.boot().0 + wait.0);
        let waited = Millis(waited.0 + wait.0);
        self.workers[w].doing = Doing::Wait(Box::new(Waiting { store, hold, until, run_until, waited }));
    }

    /// Between two attempts (mirrors `wait_for_retry` and what follows it).
    pub(crate) fn wait(&mut self, w: usize, mut waiting: Box<Waiting>) {
        let run = waiting.hold.run.clone();
        let woken = self.workers[w].inbox.pop_front();
        let stops = matches!(woken, Some(Message::Signal(_) | Message::CancelRequested));
        if !stops && self.clock.boot() < waiting.until {
            self.workers[w].doing = Doing::Wait(waiting);
            return;
        }
        let record = waiting.store.find_run(&run).unwrap().unwrap();
        let over = |world: &mut Self, store: Store, why: &str| {
            world.workers[w].store = Some(store);
            world.exit(w, why);
        };
        if stops {
            if record.cancel_requested {
                let canceled = waiting.store.cancel_at_rest(&run, record.fence, &self.context(w));
                if canceled.is_ok() {
                    self.acknowledge(&waiting.store);
                }
            }
            return over(self, waiting.store, "it was woken while it waited");
        }
        if record.fence != waiting.hold.fence || record.status != RunStatus::Retrying {
            return over(self, waiting.store, "somebody else decided about the run");
        }
        match self.claim(w, &mut waiting.store, &record, OpenedBy::Retry) {
            Ok(hold) => self.begin(w, waiting.store, hold, Some((waiting.run_until, waiting.waited))),
            Err(error) => over(self, waiting.store, error.code().word()),
        }
    }

    /// The thread beside the engine's: says that the holder lives, and hears whether it still holds.
    pub(crate) fn beat(&mut self, w: usize) {
        let hold = match &self.workers[w].doing {
            Doing::Hold(holder) => Hold { fence: holder.fence, ..holder.held.hold.clone() },
            Doing::Wait(waiting) => waiting.hold.clone(),
            _ => return self.workers[w].next_beat = None,
        };
        let ctx = self.context(w);
        let leases = self.new.inputs.policy.leases;
        let mut store = self.disk.take();
        let beat = store.heartbeat(&hold, lease_until(&ctx.now, &leases), &ctx);
        self.disk.give_back(Some(store));
        let worker = &mut self.workers[w];
        worker.next_beat = Some(BootMs(ctx.now.boot.0 + leases.heartbeat.0));
        match beat {
            Ok(beat) if beat.cancel_requested => worker.inbox.push_back(Message::CancelRequested),
            Err(StoreError::Fenced { .. }) => {
                worker.next_beat = None;
                worker.inbox.push_back(Message::LeaseLost);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// What an execution's transcript shows beyond its first so many responses.
    pub(crate) fn items(&self, step: &StepKey, number: u32, known: usize) -> Vec<MeterItem> {
        let Some(transcript) = self.transcripts.get(&(step.clone(), number)) else { return Vec::new() };
        let again = if self.planted == Planted::UsageTwice && known == 0 { "again/" } else { "" };
        let item = |(i, tokens): (usize, &u64)| MeterItem {
            name: format!("{again}{step}/response/{number}.{i}"),
            input: *tokens,
            cached: 0,
            output: 0,
            cost_micros: None,
            tool_calls: 0,
            certainty: Certainty::Told,
        };
        transcript.responses.iter().enumerate().skip(known).map(item).collect()
    }

    pub(crate) fn checkpoint(step: &StepKey) -> Reached {
        let (policy_version, artifacts) = ("built-in".into(), std::collections::BTreeMap::new());
        Reached { name: step.to_string(), commit: None, policy_version, artifacts }
    }

    /// Tokens by what became of them, for the figures.
    pub(crate) fn count_tokens(&mut self) {
        self.counts.tokens_lost_in_flight = self.provider.tokens(Fate::Lost);
        self.counts.tokens_of_replaced_holders = self.provider.tokens(Fate::Late);
        let known = self.provider.tokens(Fate::Written);
        self.counts.tokens_handed_out =
            known + self.counts.tokens_lost_in_flight + self.counts.tokens_of_replaced_holders;
    }
}

fn word(end: &AttemptEnd) -> String {
    match end {
        AttemptEnd::Done => "done".into(),
        AttemptEnd::Failed(failure) => format!("failed, {}", failure.code),
        AttemptEnd::Waiting(failure) => format!("waits, {}", failure.code),
        AttemptEnd::Unknown(failure) => format!("unknown, {}", failure.code),
        AttemptEnd::UsedUp(_) => "no attempt left".into(),
        AttemptEnd::Stopped(cause) => format!("stopped, {cause:?}"),
    }
}
