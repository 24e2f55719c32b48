//! R-R4, I9: what a task used, over all its runs, until its last verified success.

use super::*;
use crate::domain::budget::{Certainty, Usage};
use crate::domain::change::MeterItem;
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::Millis;
use crate::domain::run::AttemptEvent;
use crate::store::StoreError;

fn item(name: &str, input: u64, output: u64) -> MeterItem {
    MeterItem {
        name: name.into(),
        input,
        cached: input / 2,
        output,
        cost_micros: None,
        tool_calls: 0,
        certainty: Certainty::Told,
    }
}

fn used(items: Vec<MeterItem>, active: u64) -> Change {
    Change::Usage { step: key("codex"), items, active: Millis(active) }
}

fn of_task(world: &World) -> Usage {
    world.store.task_usage(&TaskId::new("182").unwrap()).unwrap()
}

#[test]
fn r_r4_the_ledger_counts_over_attempts_runs_and_new_instances() {
    let mut world = World::new();
    assert_eq!(of_task(&world), Usage::default(), "an unknown task has used nothing");
    let first = world.started(&new_run("182", "a"));
    world.record(&first, &[step("codex", StepEvent::Begin), used(vec![item("r1", 100, 10)], 50)]).unwrap();
    let fail = Change::Attempt { event: AttemptEvent::Fail, failure: None };
    let end = ending("codex", StepEvent::Fail, ended(ProcessEnd::Exited { code: 1 }, 60));
    world.record(&first, &[end, fail, run_event(RunEvent::Fail)]).unwrap();
    let again = world.claim(&first.run, RunEvent::Resume, 1).unwrap();
    world.record(&again, &[step("codex", StepEvent::BeginAgain), used(vec![item("r2", 40, 4)], 5)]).unwrap();

    let view = world.store.view(&first.run).unwrap();
    assert_eq!((view.usage.input, view.usage.output, view.usage.active), (140, 14, Millis(65)));
    assert_eq!((view.attempt_usage.input, view.attempt_usage.active), (40, Millis(5)));
    assert_eq!((view.usage.failed_attempts, view.attempt_usage.failed_attempts), (1, 0));
    assert_eq!(view.usage, view.task_usage);

    world.record(&again, &[run_event(RunEvent::Interrupt)]).unwrap();
    let other = world.started(&NewRun { fresh: true, ..new_run("182", "a") });
    world.record(&other, &[step("codex", StepEvent::Begin), used(vec![item("r1", 1, 1)], 1)]).unwrap();
    assert_eq!((of_task(&world).input, of_task(&world).failed_attempts), (141, 1), "--new does not begin anew");
    assert_eq!(world.store.view(&other.run).unwrap().usage.input, 1);

    world.record(&other, &[step("codex", StepEvent::Succeed), Change::CloseLedger]).unwrap();
    assert_eq!(of_task(&world), Usage::default(), "a verified success does");
    let view = world.store.view(&other.run).unwrap();
    assert_eq!((view.usage.input, view.task_usage.input), (1, 0), "the run's own usage stays");
    world.record(&other, &[step("report", StepEvent::Begin), run_event(RunEvent::Succeed)]).unwrap();
}

#[test]
fn i9_a_counter_never_falls_and_a_name_counts_once() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("codex", StepEvent::Begin)]).unwrap();
    for (input, expected) in [(100, 100), (40, 100), (250, 250), (0, 250)] {
        world.record(&hold, &[used(vec![item("r1", input, 0)], input)]).unwrap();
        let usage = world.store.view(&hold.run).unwrap().usage;
        assert_eq!((usage.input, usage.cached, usage.active), (expected, expected / 2, Millis(expected)));
    }
    world.record(&hold, &[used(vec![item("r2", 1, 1), item("r2", 1, 1)], 0)]).unwrap();
    assert_eq!(of_task(&world).output, 1);
}

#[test]
fn i9_usage_of_an_ended_execution_still_counts_for_it() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("codex", StepEvent::Begin), step("codex", StepEvent::Fail)]).unwrap();
    world.record(&hold, &[used(vec![item("r1", 7, 0)], 3)]).unwrap();
    let next = world.claim(&hold.run, RunEvent::TakeOver, 1).unwrap();
    world.record(&next, &[step("codex", StepEvent::BeginAgain)]).unwrap();
    // The same response, told again in the second execution, with a late correction: it belongs to the first.
    world.record(&next, &[used(vec![item("r1", 9, 0)], 3)]).unwrap();
    let view = world.store.view(&hold.run).unwrap();
    assert_eq!((view.usage.input, view.attempt_usage.input), (9, 0));
}

#[test]
fn r_r4_an_unknown_cost_stays_unknown_and_a_known_one_adds_up() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("codex", StepEvent::Begin), used(vec![item("r1", 1, 1)], 1)]).unwrap();
    assert_eq!(of_task(&world).cost_micros, None);
    let costs = |name: &str, cost| MeterItem { cost_micros: Some(cost), ..item(name, 1, 1) };
    world.record(&hold, &[used(vec![costs("r1", 5), costs("r2", 0)], 1)]).unwrap();
    world.record(&hold, &[used(vec![costs("r1", 3), item("r1", 1, 1)], 1)]).unwrap();
    assert_eq!(of_task(&world).cost_micros, Some(5));
}

#[test]
fn f46_impossible_numbers_do_not_break_the_sums() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let huge = (0..50).map(|n| MeterItem { tool_calls: u64::MAX, ..item(&format!("r{n}"), u64::MAX, u64::MAX) });
    world.record(&hold, &[step("codex", StepEvent::Begin), used(huge.collect(), u64::MAX)]).unwrap();
    let usage = of_task(&world);
    assert!(usage.input > 1 << 50 && usage.tokens() > 0);
}

#[test]
fn r_r4_a_failed_attempt_counts_in_the_ledger_in_which_it_began() {
    let mut world = World::new();
    let one = world.started(&new_run("182", "a"));
    let two = world.started(&new_run("182", "b"));
    world.record(&two, &[Change::CloseLedger]).unwrap();
    world.record(&one, &[Change::Attempt { event: AttemptEvent::Fail, failure: None }]).unwrap();
    assert_eq!(of_task(&world).failed_attempts, 0);
    let park = Change::Attempt { event: AttemptEvent::Park, failure: None };
    world.record(&two, &[park, run_event(RunEvent::Interrupt)]).unwrap();
    let two = world.claim(&two.run, RunEvent::Resume, 1).unwrap();
    assert_eq!(of_task(&world).failed_attempts, 0, "a signal uses none up");
    world.claim(&two.run, RunEvent::TakeOver, 2).unwrap();
    assert_eq!(of_task(&world).failed_attempts, 1, "a crash does");
}

fn guess(name: &str, input: u64) -> MeterItem {
    MeterItem { certainty: Certainty::Estimated, ..item(name, input, 0) }
}

#[test]
fn r_r4_an_estimate_counts_until_a_true_figure_takes_its_place() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("codex", StepEvent::Begin), used(vec![item("r1", 100, 0)], 1)]).unwrap();
    // What is recorded, then: tokens, of them estimated.
    let history = [
        (guess("cut", 1000), (550, 500)),
        (guess("cut", 600), (350, 300)),
        (item("cut", 40, 0), (70, 0)),
        (guess("cut", 9000), (70, 0)),
        (guess("r1", 9000), (70, 0)),
        (item("cut", 60, 0), (80, 0)),
    ];
    for (told, expected) in history {
        world.record(&hold, &[used(vec![told.clone()], 1)]).unwrap();
        let usage = of_task(&world);
        assert_eq!((usage.tokens(), usage.estimated.tokens()), expected, "{told:?}");
    }
    let costly = MeterItem { cost_micros: Some(7), ..guess("late", 2) };
    world.record(&hold, &[step("codex", StepEvent::Fail), used(vec![costly], 1)]).unwrap();
    let view = world.store.view(&hold.run).unwrap();
    assert_eq!((view.usage.cost_micros, view.usage.cost(), view.executions[0].estimated), (None, Some(7), 1));
}

#[test]
fn r_r4_attempts_of_runs_side_by_side_are_reserved_when_they_begin() {
    let mut world = World::new();
    let limited = |mut new: NewRun| {
        new.inputs.policy.budgets.task.attempts = Some(2);
        new
    };
    let one = world.started(&limited(new_run("182", "a")));
    let two = world.started(&limited(new_run("182", "b")));
    assert_eq!(world.store.view(&one.run).unwrap().open_attempts, 2);
    let third = limited(new_run("182", "c"));
    let reserved = |used, reserved| StoreError::AttemptsReserved { limit: 2, used, reserved };
    let refused = |world: &mut World| {
        let ctx = world.ctx();
        world.store.start_or_attach(&third, &ctx).unwrap_err()
    };
    assert_eq!(refused(&mut world), reserved(0, 2));
    // A failed one is used up, not given back; one that was parked is given back.
    let (fail, park) = (AttemptEvent::Fail, AttemptEvent::Park);
    let end = |event| Change::Attempt { event, failure: None };
    world.record(&one, &[end(fail), run_event(RunEvent::Fail)]).unwrap();
    assert_eq!(refused(&mut world), reserved(1, 1));
    world.record(&two, &[end(park), run_event(RunEvent::Interrupt)]).unwrap();
    let three = world.started(&third);
    let again = Claim { attempts: Some(2), ..claim(RunEvent::Resume, two.fence) };
    let ctx = world.ctx();
    assert_eq!(world.store.claim(&two.run, &again, &ctx).unwrap_err(), reserved(1, 1));
    assert_ne!(three.run, two.run);
}
