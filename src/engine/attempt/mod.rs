//! One attempt, step by step. The loop has one rhythm: ask the domain which moves are due, commit them together with what
//! came before, carry them out, wait for the next message.
//!
//! - `admit` asks whether a provider may be called
//! - `effects` asks the policy before a step that reaches the outside, and ends it as the record says
//! - `wishes` carries out what programs inside the run ask for
//! - `delivery` makes releases and looks at deployments
//! - `begin` starts what is due; `clock` waits, and stops what takes too long or costs too much
//! - `hear` takes in what children say; `end` settles what they leave

mod admit;
mod begin;
mod clock;
mod delivery;
mod effects;
mod end;
mod hear;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::thread::Scope;

use self::admit::ProviderCall;
pub use self::admit::{HeldBack, failure as held_failure};
use self::effects::Asked;
use self::end::Success;
use super::action::errand::UnderWay;
use super::action::mailbox::Met;
use super::error::EngineError;
use super::held::Held;
use super::host::{Host, Inbox, Message, now};
use super::meter::Meter;
use super::observer::{Notice, Observer};
use super::steps::agent::{AtWork, Call};
use super::steps::{command, context};
use super::workspace::Copy;
use crate::domain::budget::Breach;
use crate::domain::change::{Change, StepMove};
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::{ActionId, StepKey};
use crate::domain::outcome::ProcessEnd;
use crate::domain::plan::phase::phase_event;
use crate::domain::plan::pipeline::{self, Move, Waits};
use crate::domain::quantity::{BootMs, Millis};
use crate::domain::record::RunRecord;
use crate::domain::run::PhaseEvent;
use crate::domain::step::StepState;
use crate::domain::task::{StepKind, StepSpec, When};
use crate::domain::template::{ConditionValues, PromptRun, holds};
use crate::process::signals::StopSignal;
use crate::process::{Activity, ChildId};

/// How agents are called that were cut or sent back: by step, with the conversation to go on in.
pub type Calls = BTreeMap<StepKey, (Call, Option<String>)>;

/// Why everything is being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A signal to agentrun.
    Signal(StopSignal),
    /// A person said `cancel`.
    Cancel,
    /// A limit was crossed.
    Budget(Breach),
    /// Another process has taken the run over.
    LeaseLost,
    /// A provider that the run needs may not be called now.
    Held(HeldBack),
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Every step is done.
    Done,
    /// A step failed for this reason.
    Failed(Failure),
    /// What is left waits for a person.
    Waiting(Failure),
    /// An effect may have happened, and nothing goes on before that is known.
    Unknown(Failure),
    /// Nothing was begun: the attempt before was lost, and was the last.
    UsedUp(Failure),
    /// Stopped from outside or at a limit.
    Stopped(Cause),
}

/// What an attempt is carried out with.
pub struct Setting<'a> {
    /// The machine.
    pub host: &'a Host<'a>,
    /// The record.
    pub held: &'a mut Held,
    /// The run as it was claimed.
    pub run: &'a RunRecord,
    /// The working copy.
    pub copy: &'a Copy,
    /// Messages.
    pub inbox: &'a Inbox,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
    /// How agents are called that were cut earlier.
    pub calls: Calls,
    /// Until when the attempt may take.
    pub until: BootMs,
    /// Until when the run may take.
    pub run_until: BootMs,
    /// True when a person wants a provider tried before its time is over: for the first call.
    pub insists: bool,
}

/// An attempt under way.
pub struct Attempt<'a> {
    host: &'a Host<'a>,
    held: &'a mut Held,
    run: &'a RunRecord,
    copy: &'a Copy,
    inbox: &'a Inbox,
    observer: &'a mut dyn Observer,
    calls: Calls,
    until: BootMs,
    run_until: BootMs,
    meter: Meter,
    active: Vec<Active>,
    /// Effects outside that are being carried out.
    under_way: Vec<UnderWay>,
    /// What programs inside the run ask for and is not begun yet.
    wished: Vec<ActionId>,
    /// What of that was met in this attempt.
    met: BTreeSet<Met>,
    /// What was found out about steps that are about to reach the outside.
    asked: BTreeMap<StepKey, Asked>,
    /// Steps that were found to wait for a person in this attempt.
    waiting: BTreeSet<StepKey>,
    calls_under_way: Vec<ProviderCall>,
    /// What came while a provider was waited for, oldest first.
    aside: Vec<Message>,
    insists: bool,
    stopping: Option<Cause>,
    /// How often each step was executed in this attempt: names its log files.
    nth: BTreeMap<StepKey, u32>,
    children: u64,
    /// What commands see of the environment.
    command_vars: BTreeMap<OsString, OsString>,
    /// Ends of steps that are staged: nobody hears of one before it is on disk (I1).
    untold: Vec<Untold>,
    /// The moves of the record ([`Held::moves`]) after which nothing was due.
    waits_since: Option<u64>,
}

/// The end of a step that is not told yet.
struct Untold {
    step: StepKey,
    state: StepState,
    took: Millis,
    failure: Option<Failure>,
}

/// A step that has a process.
struct Active {
    step: StepSpec,
    started: BootMs,
    /// Its active time is recorded up to here.
    counted_until: BootMs,
    child: ChildId,
    activity: Activity,
    agent: Option<ActiveAgent>,
    /// Why it is being stopped.
    cause: Option<ProcessEnd>,
}

/// What an agent step has beyond its process.
struct ActiveAgent {
    at_work: AtWork,
    call: Call,
    side_bytes: u64,
    side_grew_at: Option<BootMs>,
}

impl<'a> Attempt<'a> {
    /// An attempt that begins.
    pub fn new(setting: Setting<'a>) -> Result<Self, EngineError> {
        let Setting { host, held, run, copy, inbox, observer, calls, until, run_until, insists } = setting;
        let meter = Meter::load(held)?;
        let command_vars = command::vars(host, &held.inputs);
        Ok(Self {
            host,
            held,
            run,
            copy,
            inbox,
            observer,
            calls,
            until,
            run_until,
            meter,
            active: Vec::new(),
            under_way: Vec::new(),
            wished: Vec::new(),
            met: BTreeSet::new(),
            asked: BTreeMap::new(),
            waiting: BTreeSet::new(),
            calls_under_way: Vec::new(),
            aside: Vec::new(),
            insists,
            stopping: None,
            nth: BTreeMap::new(),
            children: 0,
            command_vars,
            untold: Vec::new(),
            waits_since: None,
        })
    }

    /// Carries out everything that is due, until nothing is or everything was stopped.
    pub fn carry_out(self) -> Result<AttemptEnd, EngineError> {
        std::thread::scope(|scope| self.carry_on(scope))
    }

    /// Effects are carried out on threads of their own; those end with the attempt, whatever it ends of.
    fn carry_on<'scope>(mut self, scope: &'scope Scope<'scope, '_>) -> Result<AttemptEnd, EngineError>
    where
        'a: 'scope,
    {
        let _mailbox = self.open_mailbox(scope)?;
        self.ask_about_unknown(scope)?;
        self.find_wishes()?;
        loop {
            self.begin_wishes(scope)?;
            let due = self.due();
            let moves = if self.admit(&due)? { self.gate(due)? } else { Vec::new() };
            for step_move in &moves {
                self.stage_move(step_move)?;
            }
            // If we die before this commit: what ended counts as cut and is looked at by whoever takes over.
            // If we die after it: what began has no process yet, and begins again.
            self.commit()?;
            for step_move in &moves {
                self.carry_out_move(scope, step_move)?;
            }
            if !self.active.is_empty() || !self.under_way.is_empty() {
                self.wait()?;
            } else if self.stopping.is_some() || (moves.is_empty() && !self.find_wishes()?) {
                return self.finish();
            }
        }
    }

    fn due(&mut self) -> Vec<Move> {
        let made = Some(self.held.moves());
        if self.stopping.is_some() || self.waits_since == made {
            return Vec::new();
        }
        let moves = self.ask_pipeline();
        if moves.is_empty() {
            self.waits_since = made;
        }
        moves
    }

    fn ask_pipeline(&self) -> Vec<Move> {
        let inputs = &self.held.inputs;
        let evaluate = |step: &StepSpec| match &step.when {
            When::Expression(text) => {
                let values = ConditionValues {
                    inputs: inputs.spec.inputs.clone(),
                    run: PromptRun::of(self.run.id.as_str(), &self.run.components.base_commit),
                    steps: self.held.states(),
                };
                // Checked when the task was read; what fails here all the same does not run.
                holds(text, &values).unwrap_or(false)
            }
            _ => true,
        };
        pipeline::due(&inputs.spec, &self.held.steps, self.held.hold.attempt, &evaluate)
    }

    fn stage_move(&mut self, step_move: &Move) -> Result<(), EngineError> {
        let because = step_move.because_of.as_ref();
        let failure = because.map(|key| Failure::new(Code::StepBlocked, format!("step `{key}` did not succeed")));
        let kind = self.held.inputs.spec.step(&step_move.step).map(StepSpec::kind);
        if kind == Some(StepKind::Qa) && step_move.event.begins() {
            self.held.move_phase(PhaseEvent::RecheckQa)?;
        }
        if let Some(event) = kind.and_then(|kind| phase_event(kind, step_move.event)) {
            self.held.move_phase(event)?;
        }
        let because_of = step_move.because_of.clone();
        self.held.stage(Change::Step(StepMove {
            failure,
            because_of,
            ..StepMove::new(&step_move.step, step_move.event)
        }))
    }

    fn carry_out_move<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, step_move: &Move) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let Some(step) = self.held.inputs.spec.step(&step_move.step).cloned() else { return Ok(()) };
        if !step_move.event.begins() {
            self.tell_end(&step.key, Millis(0), None);
            return Ok(());
        }
        let what = command::shown(&step);
        self.observer.notice(&Notice::StepBegan { step: &step.key, kind: step.kind(), what });
        match step.kind() {
            StepKind::Context => {
                context::carry_out(self.host, self.held, &step.key)?;
                self.succeed(&step, Success { name: "CONTEXT_PREPARED", commit: None, ended: None })
            }
            StepKind::Report => self.succeed(&step, Success { name: step.key.as_str(), commit: None, ended: None }),
            StepKind::Agent | StepKind::Qa | StepKind::Command => self.launch(step),
            StepKind::Release => self.make_release(&step),
            StepKind::Verify => self.begin_verify(scope, &step),
            StepKind::Deploy | StepKind::Action | StepKind::Approval => self.carry_out_effect(scope, &step),
        }
    }

    /// Commits what is staged, then tells which steps ended with it.
    fn commit(&mut self) -> Result<(), EngineError> {
        self.held.commit()?;
        for Untold { step, state, took, failure } in self.untold.drain(..) {
            self.observer.notice(&Notice::StepEnded { step: &step, state, took, failure: failure.as_ref() });
        }
        Ok(())
    }

    fn tell_end(&mut self, key: &StepKey, took: Millis, failure: Option<&Failure>) {
        let state = self.held.step(key).map_or(StepState::Pending, |s| s.state);
        self.untold.push(Untold { step: key.clone(), state, took, failure: failure.cloned() });
    }

    fn finish(mut self) -> Result<AttemptEnd, EngineError> {
        self.leave_providers()?;
        self.commit()?;
        let (unknown, waiting) = self.wishes_left()?;
        let failed = pipeline::failed_step(&self.held.steps, self.held.hold.attempt);
        let is_tampered = failed.is_some_and(|s| s.code == Some(Code::GitTamper));
        if let Some(cause) = self.stopping.take().filter(|_| !is_tampered) {
            return Ok(AttemptEnd::Stopped(cause));
        }
        // Of several causes the most careful wins: what may have happened comes before what has failed.
        let waits = pipeline::waits(&self.held.inputs.spec, &self.held.steps);
        Ok(match (waits, unknown, failed, waiting) {
            (Waits::Outcome(key), ..) if !is_tampered => AttemptEnd::Unknown(self.failure_at(&key)),
            (_, Some(unknown), ..) if !is_tampered => AttemptEnd::Unknown(unknown),
            (_, _, Some(step), _) => AttemptEnd::Failed(self.held.failure_of(step)),
            (Waits::Person(key), ..) => {
                let what = format!("step `{key}` waits for a person");
                AttemptEnd::Waiting(Failure::new(Code::NeedsApproval, what))
            }
            (.., Some(waiting)) => AttemptEnd::Waiting(waiting),
            (..) => AttemptEnd::Done,
        })
    }

    fn failure_at(&self, key: &StepKey) -> Failure {
        let unknown = || Failure::new(Code::OutcomeUnknown, format!("nobody knows what became of step `{key}`"));
        self.held.step(key).map_or_else(unknown, |step| self.held.failure_of(step))
    }
}

impl Active {
    /// The last sign of life: a byte on a stream, or a side file that grew.
    fn last_sign(&self) -> Option<BootMs> {
        self.activity.last().max(self.agent.as_ref().and_then(|a| a.side_grew_at))
    }
}

impl ActiveAgent {
    fn new(at_work: AtWork, call: Call) -> Self {
        Self { at_work, call, side_bytes: 0, side_grew_at: None }
    }

    fn note_side_bytes(&mut self) {
        let bytes = self.at_work.reader.side_bytes();
        if bytes > self.side_bytes {
            self.side_bytes = bytes;
            self.side_grew_at = Some(now().boot);
        }
    }
}
