//! Which step comes next (R-S1, R-S2, R-R2). Decided anew from the record after every commit, so that a run that was cut
//! goes on exactly as one that was not. Whether a step that reaches the outside may begin is not decided here: it is
//! offered, and whoever carries it out asks the policy first.

use std::cell::Cell;
use std::collections::HashSet;

use crate::domain::ids::StepKey;
use crate::domain::record::StepRecord;
use crate::domain::step::{StepEvent, StepState};
use crate::domain::task::{StepBody, StepKind, StepSpec, TaskSpec, When};

/// One move of a step, to be recorded and, for the ones that begin, to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The step.
    pub step: StepKey,
    /// The event: begin (in one of its forms, approve among them), skip or block.
    pub event: StepEvent,
    /// For block: the step that failed.
    pub because_of: Option<StepKey>,
}

/// What a `when:` expression says; the caller evaluates it (templates are not the domain's).
pub type Evaluate<'a> = &'a dyn Fn(&StepSpec) -> bool;

/// The moves that are due. Empty while something runs that the rest waits for, and empty at the end.
///
/// A step that waits for a person is offered with [`StepEvent::Approve`] whenever nothing else can begin, all such steps at
/// once: nobody knows here whether a person has agreed. The caller drops the ones for which nobody has, and gives the rest
/// to [`together`].
pub fn due(spec: &TaskSpec, steps: &[StepRecord], attempt: u32, evaluate: Evaluate<'_>) -> Vec<Move> {
    let view = View::new(spec, steps, attempt);
    let mut moves: Vec<Move> = Vec::new();
    let mut approvals: Vec<Move> = Vec::new();
    // Nothing is sent while something may have happened.
    let something_is_unknown = steps.iter().any(|s| s.state == StepState::Unknown);
    for step in &spec.steps {
        let Some(decision) = view.decide(step, evaluate) else { continue };
        if decision.event.begins() && step.kind().is_gated() && something_is_unknown {
            continue;
        }
        if decision.event == StepEvent::Approve {
            approvals.push(decision);
        } else if !decision.event.begins() || view.has_room(step, &moves) {
            moves.push(decision);
        }
    }
    let has_room = |m: &Move| spec.step(&m.step).is_some_and(|step| view.has_room(step, &moves));
    approvals.retain(has_room);
    moves.extend(approvals);
    moves
}

/// Those of the moves that can be made at once, the first before the others. The rest is due again afterwards.
pub fn together(spec: &TaskSpec, steps: &[StepRecord], attempt: u32, moves: Vec<Move>) -> Vec<Move> {
    let view = View::new(spec, steps, attempt);
    let mut made: Vec<Move> = Vec::new();
    for one in moves {
        let step = spec.step(&one.step);
        if !one.event.begins() || step.is_some_and(|step| view.has_room(step, &made)) {
            made.push(one);
        }
    }
    made
}

/// What a run waits for when no move is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// For nothing: it has come to its end.
    Nothing,
    /// For a person's agreement to this step, the first of them in the task.
    Person(StepKey),
    /// For what became of this step's effect, the first of them in the task. Goes before a person: nothing is asked while
    /// something may have happened.
    Outcome(StepKey),
}

/// What is left of a run waits for this. To be asked before what failed: an attempt in which one step failed and another
/// may have had an effect has not come to a known end.
pub fn waits(spec: &TaskSpec, steps: &[StepRecord]) -> Waits {
    let first = |state: StepState| {
        let stands = |key: &StepKey| steps.iter().any(|s| s.key == *key && s.state == state);
        spec.steps.iter().map(|s| &s.key).find(|key| stands(key)).cloned()
    };
    match (first(StepState::Unknown), first(StepState::WaitingApproval)) {
        (Some(key), _) => Waits::Outcome(key),
        (None, Some(key)) => Waits::Person(key),
        (None, None) => Waits::Nothing,
    }
}

/// Steps that must be done again when an agent is sent back: the agent, and every finished check or command that rests on
/// it, for a check of the old work proves nothing about the new.
pub fn sent_back(spec: &TaskSpec, steps: &[StepRecord], agent: &StepKey) -> Vec<StepKey> {
    let done = |key: &StepKey| steps.iter().any(|s| s.key == *key && s.state == StepState::Succeeded);
    let repeatable = |s: &StepSpec| matches!(s.kind(), StepKind::Qa | StepKind::Command);
    let again = |s: &&StepSpec| s.key == *agent || (repeatable(s) && rests_on(spec, &s.key, agent));
    spec.steps.iter().filter(again).map(|s| s.key.clone()).filter(done).collect()
}

/// Whether a step needs another one, by however many steps in between.
pub fn rests_on(spec: &TaskSpec, step: &StepKey, on: &StepKey) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![step];
    while let Some(key) = open.pop() {
        let needs = spec.step(key).map(|s| s.needs.as_slice()).unwrap_or_default();
        for need in needs {
            if need == on {
                return true;
            }
            if seen.insert(need) {
                open.push(need);
            }
        }
    }
    false
}

/// The check whose failure an agent is yet to answer: it was sent back, and the check was not carried out again since.
pub fn unanswered<'s>(spec: &TaskSpec, steps: &'s [StepRecord], agent: &StepKey) -> Option<&'s StepRecord> {
    let asks = |key: &StepKey| match spec.step(key).map(|s| &s.body) {
        Some(StepBody::Qa { on_fail: Some(back), .. }) => back.send_back_to == *agent,
        _ => false,
    };
    steps.iter().find(|s| s.state == StepState::Failed && s.sent_back && asks(&s.key))
}

/// Whether this attempt fails whatever becomes of the step `but`: another one failed for good.
pub fn fails_anyway(steps: &[StepRecord], attempt: u32, but: &StepKey) -> bool {
    let for_good = |s: &&StepRecord| s.state == StepState::Failed && s.attempt == attempt && !s.sent_back;
    steps.iter().filter(for_good).any(|s| s.key != *but)
}

/// The first failed step of this attempt, in the order of the task: what the run failed of.
pub fn failed_step(steps: &[StepRecord], attempt: u32) -> Option<&StepRecord> {
    steps.iter().find(|s| s.state == StepState::Failed && s.attempt == attempt)
}

struct View<'a> {
    spec: &'a TaskSpec,
    steps: &'a [StepRecord],
    /// Where the last step that was looked up stands. A step needs, as a rule, the one before it, and both lists are in
    /// the order of the task: looking there first spares the question after each commit the square of the steps.
    near: Cell<usize>,
    attempt: u32,
}

/// How a step reads to the steps that need it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Open,
    Good,
    Bad,
}

impl<'a> View<'a> {
    fn new(spec: &'a TaskSpec, steps: &'a [StepRecord], attempt: u32) -> Self {
        Self { spec, steps, near: Cell::new(0), attempt }
    }

    fn record(&self, key: &StepKey) -> Option<&'a StepRecord> {
        self.find(self.steps, |record| record.key == *key)
    }

    fn step(&self, key: &StepKey) -> Option<&'a StepSpec> {
        self.find(&self.spec.steps, |step| step.key == *key)
    }

    fn find<T>(&self, list: &'a [T], is_it: impl Fn(&T) -> bool) -> Option<&'a T> {
        let near = self.near.get();
        let nearby = [near, near + 1, near + 2, near.wrapping_sub(1)];
        let found = nearby.into_iter().find(|at| list.get(*at).is_some_and(&is_it));
        let found = found.or_else(|| list.iter().position(&is_it))?;
        self.near.set(found);
        list.get(found)
    }

    fn decide(&self, step: &StepSpec, evaluate: Evaluate<'_>) -> Option<Move> {
        let record = self.record(&step.key)?;
        let begin = match record.state {
            StepState::Pending => StepEvent::Begin,
            StepState::WaitingApproval => StepEvent::Approve,
            StepState::Blocked => StepEvent::BeginAgain,
            StepState::Failed if record.attempt < self.attempt => StepEvent::BeginAgain,
            StepState::Failed if self.is_to_be_rechecked(step, record) => StepEvent::Recheck,
            _ => return None,
        };
        let made = |event, because_of| Some(Move { step: step.key.clone(), event, because_of });
        let bad = step.needs.iter().find_map(|key| self.culprit(key));
        let settled = step.needs.iter().all(|key| self.reading(key) != Reading::Open);
        // A blocked step that stays blocked, or would now be skipped, has no move: its record already says why.
        let at_first = |event, because_of| if begin == StepEvent::Begin { made(event, because_of) } else { None };
        let block = |key: &StepKey| match begin {
            StepEvent::Begin | StepEvent::Approve => made(StepEvent::Block, Some(key.clone())),
            _ => None,
        };
        // A deployment that did not take place is not looked at, whatever `when` says.
        if let Some(of) = looks_at(step) {
            match self.record(of).map(|deploy| deploy.state) {
                Some(StepState::Skipped) => return at_first(StepEvent::Skip, None),
                _ if self.reading(of) == Reading::Bad => return block(of),
                _ => {}
            }
        }
        match &step.when {
            When::Always if settled => made(begin, None),
            When::Always => None,
            When::OnFailure => match (settled, self.something_failed_before(step)) {
                (false, _) => None,
                (true, true) => made(begin, None),
                (true, false) => at_first(StepEvent::Skip, None),
            },
            When::NeedsSucceeded | When::Expression(_) => match bad {
                Some(key) => block(key),
                None if !settled => None,
                None if matches!(step.when, When::Expression(_)) && !evaluate(step) => at_first(StepEvent::Skip, None),
                None => made(begin, None),
            },
        }
    }

    /// The step that stands in the way of those that need `key`. A step that runs whatever came before it (to clean up, to
    /// tell somebody) does not make good what failed before it.
    fn culprit<'k>(&'k self, key: &'k StepKey) -> Option<&'k StepKey> {
        match self.reading(key) {
            Reading::Bad => Some(key),
            Reading::Open => None,
            Reading::Good => {
                let step = self.step(key).filter(|s| matches!(s.when, When::Always | When::OnFailure))?;
                step.needs.iter().find_map(|need| self.culprit(need))
            }
        }
    }

    fn reading(&self, key: &StepKey) -> Reading {
        let Some(record) = self.record(key) else { return Reading::Bad };
        match record.state {
            StepState::Succeeded | StepState::Skipped => Reading::Good,
            StepState::Canceled => Reading::Bad,
            StepState::Failed if record.attempt == self.attempt && !self.waits_for_recheck(record) => Reading::Bad,
            StepState::Blocked if self.stays_blocked(key) => Reading::Bad,
            _ => Reading::Open,
        }
    }

    fn stays_blocked(&self, key: &StepKey) -> bool {
        self.step(key).is_some_and(|s| s.needs.iter().any(|need| self.culprit(need).is_some()))
    }

    /// A failed check whose agent was sent back: it will be checked again unless the agent fails on its way.
    fn waits_for_recheck(&self, record: &StepRecord) -> bool {
        let on_its_way = |s: StepState| matches!(s, StepState::Pending | StepState::Running | StepState::Succeeded);
        record.sent_back && self.sent_back_agent(&record.key).is_some_and(|agent| on_its_way(agent.state))
    }

    fn is_to_be_rechecked(&self, step: &StepSpec, record: &StepRecord) -> bool {
        let agent = self.sent_back_agent(&step.key);
        self.waits_for_recheck(record) && agent.is_some_and(|a| a.state == StepState::Succeeded)
    }

    fn sent_back_agent(&self, key: &StepKey) -> Option<&StepRecord> {
        match &self.step(key)?.body {
            StepBody::Qa { on_fail: Some(send_back), .. } => self.record(&send_back.send_back_to),
            _ => None,
        }
    }

    fn something_failed_before(&self, step: &StepSpec) -> bool {
        let before = self.spec.steps.iter().take_while(|s| s.key != step.key);
        before.into_iter().any(|s| self.reading(&s.key) == Reading::Bad)
    }

    /// Side by side run only qa and command steps with explicit needs; everything else runs alone.
    fn has_room(&self, step: &StepSpec, moves: &[Move]) -> bool {
        let begun = moves.iter().filter(|m| m.event.begins()).map(|m| &m.step);
        let running = self.steps.iter().filter(|s| s.state == StepState::Running).map(|s| &s.key);
        let mut others = begun.chain(running).filter_map(|key| self.step(key)).peekable();
        others.peek().is_none() || (is_social(step) && others.all(is_social))
    }
}

/// The deployment that a step verifies.
fn looks_at(step: &StepSpec) -> Option<&StepKey> {
    match &step.body {
        StepBody::Verify(verify) => verify.of.as_ref(),
        _ => None,
    }
}

fn is_social(step: &StepSpec) -> bool {
    step.explicit_needs && matches!(step.kind(), StepKind::Qa | StepKind::Command)
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
