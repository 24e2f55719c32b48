//! Tests of the steps that reach the outside: what waits for a person, what nobody knows the outcome of, and every history
//! of a delivery, explored over the tables.

use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::domain::delivery::{ActionSpec, DeploySpec, VerifySpec, release_step, verification};
use crate::domain::policy::{ActionType, ApprovalTerms};
use crate::domain::step::StepState as S;

fn deploy() -> StepBody {
    StepBody::Deploy(DeploySpec {
        environment: "production".into(),
        run: CommandLine::Shell("./deploy.sh".into()),
        status: None,
        release: None,
        environment_state: Vec::new(),
        contract: None,
        instance: None,
        irreversible: false,
        rollback: false,
    })
}

fn verify(of: &str) -> StepBody {
    StepBody::Verify(VerifySpec { of: Some(key(of)), health: None, smoke: Some(CommandLine::Shell("true".into())) })
}

fn release() -> StepBody {
    StepBody::Release { release: "r".into() }
}

fn approval() -> StepBody {
    StepBody::Approval { ask: "ship it?".into(), terms: ApprovalTerms::default() }
}

fn tell() -> StepBody {
    StepBody::Action(ActionSpec {
        action: ActionType::Notification,
        target: "#releases".into(),
        account: None,
        input: serde_json::json!({}),
        subject: BTreeMap::new(),
        contract: Some("chat".into()),
        instance: None,
        irreversible: false,
        run: None,
        status: None,
    })
}

fn after(name: &str, need: &str, body: StepBody) -> StepSpec {
    step(name, &[need], false, When::NeedsSucceeded, body)
}

/// A whole delivery.
fn delivery() -> TaskSpec {
    task(vec![
        step("agent", &[], false, When::NeedsSucceeded, agent()),
        after("qa", "agent", qa(1)),
        after("release", "qa", release()),
        after("gate", "release", approval()),
        after("deploy", "gate", deploy()),
        after("deploy_verify", "deploy", verify("deploy")),
        after("tell", "deploy_verify", tell()),
    ])
}

fn set(world: &mut World, name: &str, state: S) {
    world.steps.iter_mut().find(|s| s.key.as_str() == name).unwrap().state = state;
}

fn due_now(world: &World) -> Vec<String> {
    let moves = due(&world.spec, &world.steps, world.attempt, &|_| true);
    moves.iter().map(|m| format!("{} {}", m.step, m.event)).collect()
}

fn all_until(world: &mut World, last: &str) {
    for step in world.spec.steps.clone().iter().take_while(|s| s.key.as_str() != last) {
        set(world, step.key.as_str(), S::Succeeded);
    }
}

#[test]
fn r_s1_a_step_that_waits_for_a_person_is_offered_again_and_nothing_after_it_begins() {
    let mut world = World::new(delivery(), &[]);
    all_until(&mut world, "gate");
    assert_eq!(due_now(&world), ["gate begin"], "whether it is asked first is not decided here");
    world.apply(&key("gate"), StepEvent::Ask);
    assert_eq!(due_now(&world), ["gate approve"]);
    assert_eq!(waits(&world.spec, &world.steps), Waits::Person(key("gate")));
    world.apply(&key("gate"), StepEvent::Approve);
    world.apply(&key("gate"), StepEvent::Succeed);
    assert_eq!(due_now(&world), ["deploy begin"]);
    assert_eq!(waits(&world.spec, &world.steps), Waits::Nothing);
}

#[test]
fn i2_nothing_is_sent_while_an_outcome_is_unknown() {
    let spec = task(vec![
        step("release", &[], false, When::NeedsSucceeded, release()),
        step("deploy", &["release"], true, When::NeedsSucceeded, deploy()),
        step("deploy_verify", &["deploy"], false, When::NeedsSucceeded, verify("deploy")),
        step("tell", &["release"], true, When::NeedsSucceeded, tell()),
        step("lint", &["release"], true, When::NeedsSucceeded, qa(0)),
        step("after", &["deploy_verify"], true, When::Always, command()),
    ]);
    let mut world = World::new(spec, &[]);
    all_until(&mut world, "deploy");
    set(&mut world, "deploy", S::Unknown);
    set(&mut world, "tell", S::WaitingApproval);
    for attempt in [1, 2] {
        world.attempt = attempt;
        assert_eq!(due_now(&world), ["lint begin"], "what stays inside goes on");
    }
    assert_eq!(waits(&world.spec, &world.steps), Waits::Outcome(key("deploy")), "goes before a person");
    world.apply(&key("deploy"), StepEvent::ProveSuccess);
    set(&mut world, "lint", S::Succeeded);
    assert_eq!(due_now(&world), ["deploy_verify begin"]);
}

#[test]
fn r_s2_a_failed_deploy_reruns_no_build_and_a_failed_verify_no_deploy() {
    for (fails, first) in [("deploy", "deploy begin_again"), ("deploy_verify", "deploy_verify begin_again")] {
        let mut world = World::new(delivery(), &[(fails, 1)]);
        world.run();
        assert_eq!((world.state(fails), world.state("tell")), (S::Failed, S::Blocked));
        assert_eq!(waits(&world.spec, &world.steps), Waits::Nothing);
        (world.attempt, world.log) = (2, Vec::new());
        world.run();
        assert_eq!(world.log.first().map(String::as_str), Some(first));
        let runs = |name: &str| world.steps.iter().find(|s| s.key.as_str() == name).unwrap().runs;
        assert_eq!((runs("agent"), runs("qa"), runs("release")), (1, 1, 1));
        assert_eq!(runs("deploy"), if fails == "deploy" { 2 } else { 1 });
        assert!(world.states().iter().all(|(_, s)| *s == S::Succeeded));
    }
}

#[test]
fn r_m3_what_was_blocked_is_asked_for_in_the_next_attempt() {
    let mut world = World::new(delivery(), &[("agent", 1)]);
    world.run();
    assert_eq!(world.state("gate"), S::Blocked);
    world.attempt = 2;
    all_until(&mut world, "gate");
    assert_eq!(due_now(&world), ["gate begin_again"]);
    let asked = StepEvent::BeginAgain.asked_first().unwrap();
    world.apply(&key("gate"), asked);
    assert_eq!(due_now(&world), ["gate approve"]);
    world.apply(&key("gate"), StepEvent::Approve);
    world.apply(&key("gate"), StepEvent::Fail);
    assert_eq!(due_now(&world), [] as [&str; 0], "a no is not asked for again");
}

#[test]
fn r_m3_a_step_that_waits_is_blocked_by_what_fails_before_it() {
    let mut world = World::new(delivery(), &[]);
    all_until(&mut world, "deploy");
    world.apply(&key("deploy"), StepEvent::Ask);
    set(&mut world, "gate", S::Failed);
    world.steps.iter_mut().for_each(|s| s.attempt = 1);
    assert_eq!(due_now(&world)[0], "deploy block");
}

#[test]
fn r_s1_steps_that_reach_the_outside_run_alone() {
    let spec = task(vec![
        step("a", &[], true, When::NeedsSucceeded, tell()),
        step("b", &[], true, When::NeedsSucceeded, tell()),
        step("c", &[], true, When::NeedsSucceeded, command()),
    ]);
    let mut world = World::new(spec, &[]);
    assert_eq!(due_now(&world), ["a begin"]);
    set(&mut world, "a", S::WaitingApproval);
    set(&mut world, "b", S::WaitingApproval);
    assert_eq!(due_now(&world), ["c begin"], "who may begin is not kept back by who waits");
    set(&mut world, "c", S::Running);
    assert_eq!(due_now(&world), [] as [&str; 0]);
    set(&mut world, "c", S::Succeeded);
    let offered = due(&world.spec, &world.steps, 1, &|_| true);
    assert_eq!(offered.len(), 2, "any of them may have been agreed to");
    let made = together(&world.spec, &world.steps, 1, offered);
    assert_eq!(made.iter().map(|m| m.step.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn r_a10_a_deployment_that_did_not_take_place_is_not_verified() {
    let spec = |when: When| {
        task(vec![
            step("build", &[], false, When::NeedsSucceeded, command()),
            step("deploy", &["build"], false, when.clone(), deploy()),
            step(
                "deploy_verify",
                &["deploy"],
                false,
                if when == When::OnFailure { when } else { When::NeedsSucceeded },
                verify("deploy"),
            ),
        ])
    };
    let mut skipped = World::new(spec(When::Expression("no".into())), &[]);
    skipped.run();
    assert_eq!((skipped.state("deploy"), skipped.state("deploy_verify")), (S::Skipped, S::Skipped));
    let mut rescued = World::new(spec(When::OnFailure), &[("build", 1)]);
    rescued.run();
    assert_eq!(rescued.state("deploy_verify"), S::Succeeded, "a rollback is looked at though something failed before");
    let mut failed = World::new(spec(When::OnFailure), &[("build", 1), ("deploy", 1)]);
    failed.run();
    assert_eq!((failed.state("deploy"), failed.state("deploy_verify")), (S::Failed, S::Blocked));
}

#[test]
fn the_parts_of_a_delivery_know_each_other() {
    let spec = delivery();
    assert_eq!(release_step(&spec, &key("tell")).unwrap().key, key("release"));
    assert!(release_step(&spec, &key("qa")).is_none());
    assert_eq!(verification(&spec, &key("deploy")).unwrap().key, key("deploy_verify"));
    assert!(verification(&spec, &key("gate")).is_none());
}

/// One moment of a delivery, as far as moves depend on it.
type Moment = Vec<(S, u32, u32, bool)>;

/// Every history of a delivery over two attempts: each step that begins may be asked for first, agreed to or not, succeed,
/// fail, be cut or have an unknown outcome that is proved either way.
#[test]
fn i2_i7_every_history_of_a_delivery_keeps_its_laws() {
    let mut beside = delivery();
    beside.steps.push(step("export", &["qa"], true, When::NeedsSucceeded, tell()));
    beside.steps.push(step("lint", &["qa"], true, When::NeedsSucceeded, command()));
    for (spec, at_least) in [(delivery(), 300), (beside, 5_000)] {
        explore(spec, at_least);
    }
}

fn explore(spec: TaskSpec, at_least: usize) {
    let world = World::new(spec, &[]);
    let (mut seen, mut open) = (HashSet::new(), vec![(world.steps.clone(), 1_u32)]);
    let mut ends = BTreeSet::new();
    while let Some((steps, attempt)) = open.pop() {
        let moment: Moment = steps.iter().map(|s| (s.state, s.attempt, s.rounds, s.sent_back)).collect();
        if !seen.insert((moment, attempt)) {
            continue;
        }
        let next = successors(&world.spec, &steps, attempt);
        if next.is_empty() {
            let failed = failed_step(&steps, attempt).is_some();
            let done = steps.iter().all(|s| s.state == S::Succeeded);
            ends.insert(format!("{:?}", (done, failed)));
            assert!(done || failed, "it comes to an end: {steps:?}");
            if attempt < 2 && !done {
                open.push((steps, attempt + 1));
            }
        }
        open.extend(next.into_iter().map(|steps| (steps, attempt)));
    }
    assert!(seen.len() > at_least, "{} moments", seen.len());
    assert_eq!(ends.len(), 2, "{ends:?}");
}

fn successors(spec: &TaskSpec, steps: &[StepRecord], attempt: u32) -> Vec<Vec<StepRecord>> {
    let mut found = Vec::new();
    let mut push = |at: usize, event: StepEvent| {
        let mut next = steps.to_vec();
        next[at].state = STEP.next(next[at].state, event).unwrap();
        if event.begins() {
            (next[at].attempt, next[at].sent_back) = (attempt, false);
            assert_ne!(steps[at].state, S::Succeeded, "I7: what is done is not begun again");
            let is_open = |s: &StepRecord| s.state == S::Unknown;
            assert!(!(spec.steps[at].kind().is_gated() && steps.iter().any(is_open)), "I2: {} is sent", steps[at].key);
            assert!(!steps.iter().any(|s| s.state == S::Running), "it runs alone");
        }
        let StepBody::Qa { on_fail: Some(back), .. } = &spec.steps[at].body else { return found.push(next) };
        if event == StepEvent::Fail && next[at].rounds < back.rounds {
            (next[at].rounds, next[at].sent_back) = (next[at].rounds + 1, true);
            for key in sent_back(spec, &next, &back.send_back_to) {
                let again = next.iter_mut().find(|s| s.key == key).unwrap();
                assert!(!matches!(again.kind, StepKind::Deploy | StepKind::Release | StepKind::Action));
                again.state = STEP.next(again.state, StepEvent::SendBack).unwrap();
            }
        }
        found.push(next);
    };
    for (at, step) in steps.iter().enumerate() {
        let ends: &[StepEvent] = match step.state {
            S::Running if !step.kind.is_gated() => &[StepEvent::Succeed, StepEvent::Fail, StepEvent::Interrupt],
            S::Running => &[StepEvent::Succeed, StepEvent::Fail, StepEvent::LoseOutcome],
            S::Unknown => &[StepEvent::ProveSuccess, StepEvent::ProveFailure],
            _ => &[],
        };
        for event in ends {
            push(at, *event);
        }
    }
    for one in due(spec, steps, attempt, &|_| true) {
        let at = steps.iter().position(|s| s.key == one.step).unwrap();
        push(at, one.event);
        if let Some(asked) = one.event.asked_first().filter(|_| spec.steps[at].kind().is_gated()) {
            push(at, asked);
        }
    }
    found
}
