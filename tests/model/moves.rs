//! Who may do what next. A worker decides by its memory and by the program's own functions; what it writes goes through
//! the program's own tables. One move is one commit, or one blow of fate.

use agentrun::domain::failure::{Code, Failure};
use agentrun::domain::lease::{Holding, Liveness, holding};
use agentrun::domain::machine::Refused;
use agentrun::domain::plan::after_failure::{Then, Tried, then};
use agentrun::domain::plan::pipeline;
use agentrun::domain::policy::{Policy, RetryRules};
use agentrun::domain::quantity::{BootId, BootMs, Millis, Now, UtcMs};
use agentrun::domain::record::{Identity, Lease};
use agentrun::domain::run::{ATTEMPT, AttemptEvent, AttemptState, RUN, RunEvent, RunStatus};
use agentrun::domain::step::{STEP, StepEvent, StepState};
use agentrun::domain::task::TaskSpec;

use crate::state::{Doing, Life, Memory, State, Step};
use crate::task::{self, AGENT, QA, ROUNDS, STEPS};

/// Something wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// A write does not ask whether its holder still holds the run.
    NoFence,
    /// A worker takes over whatever it finds RUNNING.
    LiveLeaseTaken,
    /// A failed attempt is recorded as one that was parked.
    FailureUncounted,
    /// What a dead holder's agent used is not counted.
    UsageForgotten,
    /// A failed attempt is always followed by another.
    RetryWithoutEnd,
    /// Whoever takes over begins finished steps again.
    DoneIsRepeated,
    /// A run that was canceled can be claimed.
    FinalIsReopened,
    /// A run whose holder died in the last attempt is not taken over.
    LastCrashRefused,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Stop(usize),
    Continue(usize),
    Die(usize),
    LeaseRunsOut,
    RequestCancel,
    /// A worker reads the run and decides to claim it.
    Look(usize),
    Claim(usize),
    Beat(usize),
    /// What an earlier holder left RUNNING is taken as finished, or put back.
    Adopt(usize),
    PutBack(usize),
    Begin(usize),
    Succeeds(usize, usize),
    Fails(usize, usize),
    Signal(usize),
    /// The attempt has ended by itself, by a cancel, or before it could begin.
    Rest(usize),
}

/// One fact that a holder writes.
enum Write {
    Step { at: usize, event: StepEvent },
    Usage,
    Attempt(AttemptEvent),
    Run(RunEvent),
}

/// The task, its policy, and what is wrong with the program.
pub(crate) struct World {
    spec: TaskSpec,
    rules: RetryRules,
    planted: Planted,
}

/// The attempts that the default policy allows a task.
pub(crate) fn limit() -> u64 {
    Policy::default().budgets.task.attempts.unwrap()
}

type Moves = Vec<(Action, State)>;

impl World {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { spec: task::spec(), rules: RetryRules::default(), planted }
    }

    /// Everything that can happen next.
    pub(crate) fn successors(&self, state: &State) -> Moves {
        let mut moves = fate(state);
        for w in 0..state.workers.len() {
            if state.workers[w].life == Life::Alive {
                self.worker(state, w, &mut moves);
            }
        }
        moves
    }

    fn worker(&self, state: &State, w: usize, moves: &mut Moves) {
        match &state.workers[w].task {
            Doing::Idle => {
                if let Some(event) = self.look(state) {
                    let saw = Doing::Saw { event, fence: state.fence };
                    moves.push((Action::Look(w), doing(state, w, saw)));
                }
            }
            // The two are alike, so the first claim is the first one's, if it lives.
            Doing::Saw { .. } if state.fence == 0 && w > 0 && state.workers[0].life == Life::Alive => {}
            Doing::Saw { event, fence } => moves.push((Action::Claim(w), self.claim(state, w, *event, *fence))),
            Doing::Holds(memory) => self.holder(state, w, memory, moves),
        }
    }

    /// As `resume` decides: a dead letter waits for a person, and attempts that are used up for a higher limit.
    fn look(&self, state: &State) -> Option<RunEvent> {
        let used_up = u64::from(state.failed) >= limit() && !state.cancel_requested;
        match state.run {
            RunStatus::Canceled if self.planted == Planted::FinalIsReopened => Some(RunEvent::Resume),
            RunStatus::DeadLetter => None,
            status if RUN.is_final(status) => None,
            RunStatus::Pending => Some(RunEvent::Start),
            RunStatus::Running
                if self.planted == Planted::LastCrashRefused && u64::from(state.failed) + 1 >= limit() =>
            {
                None
            }
            RunStatus::Running => match holding_of(state) {
                Holding::Stuck | Holding::Abandoned => Some(RunEvent::TakeOver),
                _ if self.planted == Planted::LiveLeaseTaken => Some(RunEvent::TakeOver),
                _ => None,
            },
            _ if used_up && self.planted != Planted::RetryWithoutEnd => None,
            _ => Some(RunEvent::Resume),
        }
    }

    fn claim(&self, state: &State, w: usize, event: RunEvent, fence: u8) -> State {
        let reopens = self.planted == Planted::FinalIsReopened && RUN.is_final(state.run);
        if state.fence != fence || (RUN.next(state.run, event).is_err() && !reopens) {
            return doing(state, w, Doing::Idle);
        }
        let mut next = state.clone();
        if let Ok(lost) = ATTEMPT.next(state.tried, AttemptEvent::Lose) {
            (next.tried, next.failed) = (lost, state.failed + 1);
        }
        let repeats = self.planted == Planted::DoneIsRepeated && event == RunEvent::TakeOver;
        for step in next.steps.iter_mut().filter(|s| repeats && s.state == StepState::Succeeded) {
            step.state = StepState::Pending;
        }
        (next.run, next.tried) = (RUN.target(event).unwrap(), ATTEMPT.initial);
        (next.fence, next.attempt) = (state.fence + 1, state.attempt + 1);
        (next.holder, next.lease_ran_out) = (Some(w), false);
        let may_work = u64::from(next.failed) < limit() || self.planted == Planted::RetryWithoutEnd;
        next.workers[w].task = Doing::Holds(Memory {
            fence: next.fence,
            attempt: next.attempt,
            steps: next.steps,
            settled: !next.steps.iter().any(|s| s.state == StepState::Running),
            may_work,
            cancel_seen: state.cancel_requested,
        });
        next
    }

    fn holder(&self, state: &State, w: usize, memory: &Memory, moves: &mut Moves) {
        if state.lease_ran_out || state.fence != memory.fence || state.cancel_requested != memory.cancel_seen {
            moves.push((Action::Beat(w), beat(state, w, memory)));
        }
        let running: Vec<usize> = (0..STEPS).filter(|i| memory.steps[*i].state == StepState::Running).collect();
        let mut push = |action, writes: &[Write]| moves.push((action, self.record(state, w, memory, writes)));
        if !memory.settled {
            // A step that its holder had begun; only an agent leaves records that show that it had finished.
            let at = running[0];
            let usage = || (at == AGENT && self.planted != Planted::UsageForgotten).then_some(Write::Usage);
            let step = |event| Write::Step { at, event };
            let writes = |event| usage().into_iter().chain([step(event)]).collect::<Vec<_>>();
            push(Action::PutBack(w), &writes(StepEvent::Interrupt));
            if at == AGENT {
                push(Action::Adopt(w), &writes(StepEvent::Succeed));
            }
            return;
        }
        let cut = |last: StepEvent| cut(memory, last);
        // Where nothing may begin, nobody listens to signals: the run is put away at once.
        if state.left.signals > 0 && memory.may_work {
            let mut writes = cut(StepEvent::Interrupt);
            writes.extend([Write::Attempt(AttemptEvent::Park), Write::Run(RunEvent::Interrupt)]);
            push(Action::Signal(w), &writes);
        }
        if memory.cancel_seen {
            let mut writes = cut(StepEvent::Cancel);
            writes.extend([Write::Attempt(AttemptEvent::Cancel), Write::Run(RunEvent::Cancel)]);
            return push(Action::Rest(w), &writes);
        }
        for at in &running {
            push(Action::Succeeds(w, *at), &ended(memory, *at, StepEvent::Succeed));
            if *at <= QA {
                push(Action::Fails(w, *at), &self.failed(memory, *at));
            }
        }
        if !running.is_empty() {
            return;
        }
        let records = task::records(&self.spec, &memory.steps);
        let due = pipeline::due(&self.spec, &records, memory.attempt.into(), &|_| true);
        match due.as_slice() {
            [] => push(Action::Rest(w), &self.rest(state, memory)),
            _ if !memory.may_work => {
                push(Action::Rest(w), &[Write::Attempt(AttemptEvent::Park), Write::Run(RunEvent::BuryDead)]);
            }
            due => {
                let writes: Vec<_> =
                    due.iter().map(|m| Write::Step { at: task::at(&m.step), event: m.event }).collect();
                push(Action::Begin(w), &writes);
            }
        }
    }

    /// A failed check sends its agent back in the same commit, while rounds are left.
    fn failed(&self, memory: &Memory, at: usize) -> Vec<Write> {
        let mut writes = ended(memory, at, StepEvent::Fail);
        let rounds_left = u32::from(memory.steps[QA].rounds) < ROUNDS;
        if at == QA && rounds_left && memory.steps[AGENT].state == StepState::Succeeded {
            let mut steps = memory.steps;
            steps[QA].state = StepState::Failed;
            let again = pipeline::sent_back(&self.spec, &task::records(&self.spec, &steps), &task::key(AGENT));
            writes.extend(again.iter().map(|key| Write::Step { at: task::at(key), event: StepEvent::SendBack }));
        }
        writes
    }

    /// How an attempt ends in which nothing is due any more.
    fn rest(&self, state: &State, memory: &Memory) -> Vec<Write> {
        let records = task::records(&self.spec, &memory.steps);
        let Some(failed) = pipeline::failed_step(&records, memory.attempt.into()) else {
            return vec![Write::Attempt(AttemptEvent::Succeed), Write::Run(RunEvent::Succeed)];
        };
        let code = if task::at(&failed.key) == QA { Code::QaFailed } else { Code::WorkerCrash };
        let tried = Tried {
            failed: u64::from(state.failed) + 1,
            limit: Some(limit()).filter(|_| self.planted != Planted::RetryWithoutEnd),
            waited: Millis(0),
            left: Millis::mins(120),
            seed: memory.attempt.into(),
        };
        let event = match then(&Failure::new(code, "it failed"), &self.rules, &tried) {
            Then::Retry(_) | Then::Park(_) => RunEvent::Retry,
            Then::Fail => RunEvent::Fail,
            Then::Bury => RunEvent::BuryDead,
        };
        let uncounted = self.planted == Planted::FailureUncounted;
        let attempt = if uncounted { AttemptEvent::Park } else { AttemptEvent::Fail };
        vec![Write::Attempt(attempt), Write::Run(event)]
    }

    /// One commit of a holder. Who lost the run is told so, and is idle again.
    fn record(&self, state: &State, w: usize, memory: &Memory, writes: &[Write]) -> State {
        if state.fence != memory.fence && self.planted != Planted::NoFence {
            return doing(state, w, Doing::Idle);
        }
        let mut next = state.clone();
        match writes.iter().try_for_each(|write| apply(&mut next, memory.attempt, write)) {
            Ok(()) => {}
            Err(_) if self.planted == Planted::NoFence => return doing(state, w, Doing::Idle),
            Err(refused) => panic!("the holder wanted what the table refuses: {refused}\n{state:#?}"),
        }
        if next.run == RunStatus::Running {
            let settled = !next.steps.iter().any(|s| s.state == StepState::Running) || memory.settled;
            let steps = next.steps;
            next.workers[w].task = Doing::Holds(Memory { steps, settled, ..memory.clone() });
        } else {
            (next.holder, next.lease_ran_out) = (None, false);
            next.workers[w].task = Doing::Idle;
        }
        if writes.iter().any(|write| matches!(write, Write::Run(RunEvent::Interrupt))) {
            next.left.signals -= 1;
        }
        next
    }
}

/// What nobody decides.
fn fate(state: &State) -> Moves {
    let mut moves = Moves::new();
    let mut push = |action, change: &dyn Fn(&mut State)| {
        let mut next = state.clone();
        change(&mut next);
        moves.push((action, next));
    };
    for (w, worker) in state.workers.iter().enumerate() {
        if worker.life == Life::Alive && state.left.pauses > 0 {
            push(Action::Stop(w), &|s| (s.workers[w].life, s.left.pauses) = (Life::Stopped, s.left.pauses - 1));
        }
        if worker.life == Life::Stopped {
            push(Action::Continue(w), &|s| s.workers[w].life = Life::Alive);
        }
        if worker.life != Life::Dead && state.left.crashes > 0 {
            push(Action::Die(w), &|s| (s.workers[w].life, s.left.crashes) = (Life::Dead, s.left.crashes - 1));
        }
    }
    // A holder that lives and is not stopped says so in time.
    let silent = state.holder.is_some_and(|w| state.workers[w].life != Life::Alive);
    if silent && !state.lease_ran_out {
        push(Action::LeaseRunsOut, &|s| s.lease_ran_out = true);
    }
    if state.left.cancels > 0 && RUN.next(state.run, RunEvent::Cancel).is_ok() {
        push(Action::RequestCancel, &|s| (s.cancel_requested, s.left.cancels) = (true, s.left.cancels - 1));
    }
    moves
}

fn doing(state: &State, w: usize, task: Doing) -> State {
    let mut next = state.clone();
    next.workers[w].task = task;
    next
}

/// The program's own reading of the lease in the record.
pub(crate) fn holding_of(state: &State) -> Holding {
    let Some(holder) = state.holder else { return Holding::Free };
    let boot_id = BootId("boot".into());
    let lease = Lease {
        holder: Identity { pid: 1, start_ticks: 1, boot_id: boot_id.clone() },
        until: BootMs(if state.lease_ran_out { 0 } else { 2 }),
    };
    let dead = state.workers[holder].life == Life::Dead;
    let liveness = if dead { Liveness::Dead } else { Liveness::Alive };
    holding(Some(&lease), liveness, &Now { utc: UtcMs(1), boot: BootMs(1), boot_id })
}

fn beat(state: &State, w: usize, memory: &Memory) -> State {
    if state.fence != memory.fence {
        return doing(state, w, Doing::Idle);
    }
    let memory = Memory { cancel_seen: state.cancel_requested, ..memory.clone() };
    State { lease_ran_out: false, ..doing(state, w, Doing::Holds(memory)) }
}

/// An execution that its holder saw end.
fn ended(memory: &Memory, at: usize, event: StepEvent) -> Vec<Write> {
    debug_assert_eq!(memory.steps[at].state, StepState::Running);
    let usage = (at == AGENT).then_some(Write::Usage);
    usage.into_iter().chain([Write::Step { at, event }]).collect()
}

/// Whatever runs is cut; a cancel takes what has not begun with it.
fn cut(memory: &Memory, last: StepEvent) -> Vec<Write> {
    let mut writes = Vec::new();
    for (at, step) in memory.steps.iter().enumerate() {
        match step.state {
            StepState::Running => writes.extend(ended(memory, at, last)),
            StepState::Pending if last == StepEvent::Cancel => writes.push(Write::Step { at, event: last }),
            _ => {}
        }
    }
    writes
}

/// One fact into the record: the tables say what it leads to.
fn apply(state: &mut State, attempt: u8, write: &Write) -> Result<(), Refused> {
    match write {
        Write::Usage => state.used += 1,
        Write::Run(event) => state.run = RUN.next(state.run, *event)?,
        Write::Attempt(event) => {
            state.tried = ATTEMPT.next(state.tried, *event)?;
            let counts = matches!(state.tried, AttemptState::Failed | AttemptState::Lost);
            state.failed += u8::from(counts);
        }
        Write::Step { at, event } => {
            let step = &mut state.steps[*at];
            step.state = STEP.next(step.state, *event)?;
            if step.state == StepState::Running {
                *step = Step { attempt, runs: step.runs + 1, sent_back: false, ..*step };
            }
            if (*at, *event) == (AGENT, StepEvent::SendBack) {
                let qa = &mut state.steps[QA];
                (qa.rounds, qa.sent_back) = (qa.rounds + 1, true);
            }
        }
    }
    Ok(())
}
