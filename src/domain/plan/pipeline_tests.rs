//! Tests of the pipeline: a tiny world in which steps succeed or fail by their name.

#[path = "pipeline_delivery_tests.rs"]
mod delivery;

use std::collections::BTreeMap;

use super::*;
use crate::domain::ids::TaskId;
use crate::domain::quantity::UtcMs;
use crate::domain::step::STEP;
use crate::domain::task::{
    AgentSpec, CommandLine, ContextSpec, KeepChanges, PromptRef, Protocol, SendBack, WorkspaceKind,
};

fn key(text: &str) -> StepKey {
    StepKey::new(text).unwrap()
}

fn step(name: &str, needs: &[&str], explicit: bool, when: When, body: StepBody) -> StepSpec {
    StepSpec {
        key: key(name),
        needs: needs.iter().map(|n| key(n)).collect(),
        explicit_needs: explicit,
        timeout: None,
        when,
        artifacts: Vec::new(),
        env: BTreeMap::new(),
        body,
    }
}

fn agent() -> StepBody {
    let agent = AgentSpec {
        name: "x".into(),
        protocol: Protocol::Agentrun,
        model: None,
        args: Vec::new(),
        events: None,
        patch: None,
    };
    StepBody::Agent { agent, prompt: PromptRef::Text("do it".into()) }
}

fn command() -> StepBody {
    StepBody::Command { run: CommandLine::Shell("true".into()) }
}

fn qa(rounds: u32) -> StepBody {
    let on_fail = (rounds > 0).then(|| SendBack { send_back_to: key("agent"), rounds });
    StepBody::Qa { run: CommandLine::Shell("true".into()), on_fail }
}

fn task(steps: Vec<StepSpec>) -> TaskSpec {
    TaskSpec {
        task: TaskId::new("1").unwrap(),
        title: None,
        mode: "implement".into(),
        inputs: BTreeMap::new(),
        workspace: WorkspaceKind::Isolated,
        keep_changes: KeepChanges::Save,
        concurrency: None,
        context: ContextSpec::default(),
        budget: crate::domain::budget::Budget::default(),
        steps,
    }
}

/// Carries out a task: each step fails as often as `fails` says, then succeeds. Answers the order of events.
struct World {
    spec: TaskSpec,
    steps: Vec<StepRecord>,
    attempt: u32,
    fails: BTreeMap<&'static str, u32>,
    clock: i64,
    log: Vec<String>,
}

impl World {
    fn new(spec: TaskSpec, fails: &[(&'static str, u32)]) -> Self {
        let blank = |s: &StepSpec| StepRecord {
            key: s.key.clone(),
            kind: s.kind(),
            state: StepState::Pending,
            attempt: 0,
            runs: 0,
            rounds: 0,
            sent_back: false,
            code: None,
            message: None,
            started_at: None,
            finished_at: None,
        };
        let steps = spec.steps.iter().map(blank).collect();
        Self { spec, steps, attempt: 1, fails: fails.iter().copied().collect(), clock: 0, log: Vec::new() }
    }

    fn apply(&mut self, name: &StepKey, event: StepEvent) {
        self.clock += 1;
        let record = self.steps.iter_mut().find(|s| s.key == *name).unwrap();
        record.state = STEP.next(record.state, event).unwrap();
        match event {
            event if event.begins() => {
                record.attempt = self.attempt;
                record.runs += 1;
                record.sent_back = false;
                record.started_at = Some(UtcMs(self.clock));
            }
            _ => record.finished_at = Some(UtcMs(self.clock)),
        }
        self.log.push(format!("{name} {event}"));
    }

    fn finish(&mut self, name: &StepKey) {
        let left = self.fails.get_mut(name.as_str());
        let fails = left.is_some_and(|n| {
            let fails = *n > 0;
            *n = n.saturating_sub(1);
            fails
        });
        self.apply(name, if fails { StepEvent::Fail } else { StepEvent::Succeed });
        let StepBody::Qa { on_fail: Some(back), .. } = self.spec.step(name).unwrap().body.clone() else { return };
        let record = self.steps.iter_mut().find(|s| s.key == *name).unwrap();
        if fails && record.rounds < back.rounds {
            record.rounds += 1;
            record.sent_back = true;
            for step in sent_back(&self.spec, &self.steps.clone(), &back.send_back_to) {
                self.apply(&step, StepEvent::SendBack);
            }
        }
    }

    /// Runs the attempt to its end; the widest number of steps at once.
    fn run(&mut self) -> usize {
        let mut widest = 0;
        for _ in 0..200 {
            let moves =
                due(&self.spec, &self.steps, self.attempt, &|s| !matches!(&s.when, When::Expression(e) if e == "no"));
            for m in &moves {
                self.apply(&m.step.clone(), m.event);
            }
            let running: Vec<_> =
                self.steps.iter().filter(|s| s.state == StepState::Running).map(|s| s.key.clone()).collect();
            widest = widest.max(running.len());
            match running.first() {
                Some(first) => self.finish(&first.clone()),
                None if moves.is_empty() => return widest,
                None => {}
            }
        }
        panic!("the attempt does not end: {:?}", self.log);
    }

    fn states(&self) -> Vec<(String, StepState)> {
        self.steps.iter().map(|s| (s.key.to_string(), s.state)).collect()
    }

    fn state(&self, name: &str) -> StepState {
        self.steps.iter().find(|s| s.key.as_str() == name).unwrap().state
    }
}

fn line() -> TaskSpec {
    task(vec![
        step("agent", &[], false, When::NeedsSucceeded, agent()),
        step("lint", &["agent"], false, When::NeedsSucceeded, qa(0)),
        step("qa", &["lint"], false, When::NeedsSucceeded, qa(2)),
        step("tail", &["qa"], false, When::NeedsSucceeded, command()),
    ])
}

#[test]
fn r_s1_steps_run_one_after_the_other() {
    let mut world = World::new(line(), &[]);
    assert_eq!(world.run(), 1);
    assert!(world.states().iter().all(|(_, s)| *s == StepState::Succeeded));
}

#[test]
fn r_m3_steps_after_a_failed_one_are_blocked() {
    let mut world = World::new(line(), &[("agent", 1)]);
    world.run();
    assert_eq!(world.state("agent"), StepState::Failed);
    assert!(["lint", "qa", "tail"].iter().all(|s| world.state(s) == StepState::Blocked));
    assert_eq!(failed_step(&world.steps, 1).unwrap().key, key("agent"));
}

#[test]
fn r_s2_the_next_attempt_repeats_nothing_that_succeeded() {
    let mut world = World::new(line(), &[("lint", 1)]);
    world.run();
    world.attempt = 2;
    world.log.clear();
    world.run();
    assert_eq!(world.log.first().map(String::as_str), Some("lint begin_again"));
    assert!(!world.log.iter().any(|l| l.starts_with("agent")));
    assert!(world.states().iter().all(|(_, s)| *s == StepState::Succeeded));
}

#[test]
fn r_r2_a_failed_check_sends_the_agent_back_and_everything_is_checked_again() {
    let mut world = World::new(line(), &[("qa", 1)]);
    world.run();
    let runs = |name: &str| world.steps.iter().find(|s| s.key.as_str() == name).unwrap().runs;
    assert_eq!((runs("agent"), runs("lint"), runs("qa"), runs("tail")), (2, 2, 2, 1));
    assert!(world.states().iter().all(|(_, s)| *s == StepState::Succeeded));
}

#[test]
fn r_r2_rounds_are_bounded() {
    let mut world = World::new(line(), &[("qa", 99)]);
    world.run();
    let agent = world.steps.iter().find(|s| s.key.as_str() == "agent").unwrap();
    assert_eq!(agent.runs, 3, "once, and two rounds");
    assert_eq!(world.state("qa"), StepState::Failed);
    assert_eq!(world.state("tail"), StepState::Blocked);
}

#[test]
fn an_agent_that_fails_on_its_way_back_leaves_the_check_failed() {
    let mut world = World::new(line(), &[("qa", 1)]);
    // The agent succeeds once and fails when it is sent back.
    world.fails.insert("agent", 0);
    let moves = due(&world.spec, &world.steps, 1, &|_| true);
    world.apply(&moves[0].step.clone(), StepEvent::Begin);
    world.finish(&key("agent"));
    world.fails.insert("agent", 1);
    world.run();
    assert_eq!(world.state("agent"), StepState::Failed);
    assert_eq!(world.state("qa"), StepState::Failed);
}

#[test]
fn r_s1_independent_checks_run_side_by_side_but_an_agent_runs_alone() {
    let spec = task(vec![
        step("agent", &[], false, When::NeedsSucceeded, agent()),
        step("a", &["agent"], true, When::NeedsSucceeded, qa(0)),
        step("b", &["agent"], true, When::NeedsSucceeded, qa(0)),
        step("c", &["agent"], true, When::NeedsSucceeded, command()),
        step("second-agent", &["agent"], true, When::NeedsSucceeded, agent()),
    ]);
    let mut world = World::new(spec, &[]);
    assert_eq!(world.run(), 3);
    assert!(world.states().iter().all(|(_, s)| *s == StepState::Succeeded));
}

#[test]
fn when_decides() {
    let spec = task(vec![
        step("a", &[], false, When::NeedsSucceeded, command()),
        step("never", &["a"], false, When::Expression("no".into()), command()),
        step("rescue", &["never"], false, When::OnFailure, command()),
        step("always", &["rescue"], false, When::Always, command()),
    ]);
    let mut good = World::new(spec.clone(), &[]);
    good.run();
    assert_eq!(good.state("never"), StepState::Skipped);
    assert_eq!(good.state("rescue"), StepState::Skipped);
    assert_eq!(good.state("always"), StepState::Succeeded);

    let mut bad = World::new(spec, &[("a", 1)]);
    bad.run();
    assert_eq!(bad.state("never"), StepState::Blocked);
    assert_eq!(bad.state("rescue"), StepState::Succeeded);
    assert_eq!(bad.state("always"), StepState::Succeeded);
}

#[test]
fn r_m3_a_step_that_runs_whatever_happened_makes_no_failure_good() {
    let spec = task(vec![
        step("a", &[], false, When::NeedsSucceeded, command()),
        step("tell", &["a"], false, When::Always, command()),
        step("b", &["tell"], false, When::NeedsSucceeded, command()),
    ]);
    let mut bad = World::new(spec.clone(), &[("a", 1)]);
    bad.run();
    assert_eq!((bad.state("tell"), bad.state("b")), (StepState::Succeeded, StepState::Blocked));
    let mut good = World::new(spec, &[]);
    good.run();
    assert_eq!(good.state("b"), StepState::Succeeded);
}
