//! Laws over random histories: whatever holders, late holders and claimants try in whatever order, the invariants hold.

use proptest::prelude::*;

use super::*;
use crate::domain::budget::Certainty;
use crate::domain::change::MeterItem;
use crate::domain::event::Event;
use crate::domain::machine::Word as _;
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::Millis;
use crate::domain::record::RunView;
use crate::domain::run::{AttemptEvent, RUN, RunStatus};
use crate::domain::step::{STEP, StepState};

/// What somebody tries.
#[derive(Debug, Clone)]
enum Try {
    /// The newest holder, or one of the earlier ones, records something.
    Record { holder: usize, changes: Vec<Change> },
    /// Somebody claims with the newest fence, or an older one.
    Claim { event: RunEvent, behind: u64 },
}

fn any_word<W: crate::domain::machine::Word>() -> impl Strategy<Value = W> {
    (0..W::ALL.len()).prop_map(|i| W::ALL[i])
}

fn any_key() -> impl Strategy<Value = StepKey> {
    prop::sample::select(vec!["context", "codex", "lint", "qa", "report"]).prop_map(key)
}

/// Few names, so that figures come again: told after estimated, and the other way round.
fn any_usage() -> impl Strategy<Value = Change> {
    let usage = (any_key(), 0..2_u8, 0..100_u64, 0..50_u64, any::<bool>());
    usage.prop_map(|(step, name, input, active, is_guess)| Change::Usage {
        step,
        items: vec![MeterItem {
            name: format!("r{name}"),
            input,
            cached: input / 4,
            output: input / 3,
            cost_micros: Some(input),
            tool_calls: u64::from(!is_guess),
            certainty: if is_guess { Certainty::Estimated } else { Certainty::Told },
        }],
        active: Millis(active),
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    // Moves that many histories need are likelier, so that they get somewhere.
    let useful = prop::sample::select(vec![
        StepEvent::Begin,
        StepEvent::Succeed,
        StepEvent::Fail,
        StepEvent::SendBack,
        StepEvent::Recheck,
        StepEvent::BeginAgain,
        StepEvent::Interrupt,
    ]);
    let moved = |event: BoxedStrategy<StepEvent>| {
        (any_key(), event).prop_map(|(step, event)| {
            let because_of = (event == StepEvent::SendBack).then(|| key("qa"));
            Change::Step(StepMove { because_of, ..StepMove::new(&step, event) })
        })
    };
    let leaving = prop::sample::select(vec![StepEvent::Succeed, StepEvent::Fail, StepEvent::Interrupt]);
    let ended = (any_key(), leaving, 0..90_u64).prop_map(|(step, event, active)| {
        let ended = Some(ended(ProcessEnd::Exited { code: 0 }, active));
        Change::Step(StepMove { ended, ..StepMove::new(&step, event) })
    });
    prop_oneof![
        8 => moved(useful.boxed()),
        2 => moved(any_word::<StepEvent>().boxed()),
        3 => any_usage(),
        2 => ended,
        1 => any_word::<RunEvent>().prop_map(run_event),
        1 => any_word::<AttemptEvent>().prop_map(|event| Change::Attempt { event, failure: None }),
        1 => Just(Change::CloseLedger),
    ]
}

fn any_try() -> impl Strategy<Value = Try> {
    let changes = prop::collection::vec(any_change(), 1..4);
    let event = prop::sample::select(vec![RunEvent::Start, RunEvent::Resume, RunEvent::TakeOver]);
    prop_oneof![
        2 => any_usage().prop_map(|usage| Try::Record { holder: 0, changes: vec![usage] }),
        6 => (0..4_usize, changes).prop_map(|(holder, changes)| Try::Record { holder: holder / 3, changes }),
        1 => (event, 0..4_u64).prop_map(|(event, behind)| Try::Claim { event, behind: behind / 3 }),
    ]
}

/// Carries one try out. Errors are answers here; what they left behind is what is checked.
fn carry_out(world: &mut World, holds: &mut Vec<Hold>, attempted: &Try) {
    match attempted {
        Try::Record { holder, changes } => {
            let hold = holds[holds.len().saturating_sub(1 + holder)].clone();
            let _ = world.record(&hold, changes);
        }
        Try::Claim { event, behind } => {
            let newest = holds[holds.len() - 1].clone();
            if let Ok(hold) = world.claim(&newest.run, *event, newest.fence.saturating_sub(*behind)) {
                holds.push(hold);
            }
        }
    }
}

/// The invariants that hold between two looks at a run.
fn check(before: &RunView, after: &RunView) {
    assert!(after.run.fence >= before.run.fence, "I4: the fence never falls");
    assert!(after.run.attempt >= before.run.attempt && after.chain.count >= before.chain.count);
    if RUN.is_final(before.run.status) {
        assert_eq!(after.run.status, before.run.status, "I6: a final status is final");
    }
    for (was, is) in before.steps.iter().zip(&after.steps) {
        assert!(is.runs >= was.runs && is.rounds >= was.rounds);
        if STEP.is_final(was.state) {
            assert_eq!(is.state, was.state, "I6: {} is final", was.key);
        }
    }
    let (was, is) = (before.usage, after.usage);
    assert!(
        is.input >= was.input && is.output >= was.output && is.tool_calls >= was.tool_calls && is.active >= was.active,
        "I9: no counter falls: {was:?} {is:?}"
    );
    assert!(is.cost_micros >= was.cost_micros, "I9");
    assert!(is.failed_attempts >= was.failed_attempts, "I9");
    match (after.run.status, after.run.lease.is_some()) {
        (RunStatus::Running, false) => panic!("who is RUNNING is held"),
        (RunStatus::Running | RunStatus::Retrying, _) | (_, false) => {}
        (status, true) => panic!("who is {status} is not held"),
    }
    let open: Vec<_> = after.attempts.iter().filter(|a| a.finished_at.is_none()).map(|a| a.number).collect();
    assert!(open.is_empty() || open == [after.run.attempt], "only the newest attempt can be open");
    for step in &after.steps {
        let open = after.executions.iter().filter(|e| e.step == step.key && e.finished_at.is_none()).count();
        assert!(open <= usize::from(step.state == StepState::Running), "an open execution belongs to a RUNNING step");
    }
}

/// I7: between two begins of a step that succeeded in between lies a send-back.
fn check_step_once(events: &[Event]) {
    let mut done = std::collections::BTreeSet::new();
    for event in events.iter().filter(|event| event.kind.word() == "step.moved") {
        let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
        let step = event.step.clone().unwrap();
        match (body["to"].as_str().unwrap(), body["event"].as_str().unwrap()) {
            ("SUCCEEDED", _) => assert!(done.insert(step)),
            ("PENDING", "send_back") => assert!(done.remove(&step)),
            ("RUNNING", _) => assert!(!done.contains(&step), "I7: {step} was done"),
            _ => {}
        }
    }
}

/// I9, R-R4: what is kept with the executions is what the rows add up to, the told apart from the guessed.
fn check_sums(world: &World, after: &RunView) {
    let raw = world.raw();
    let sum = |column: &str, estimated: u8| -> u64 {
        let sql = format!("SELECT coalesce(sum({column}), 0) FROM meter WHERE estimated = {estimated}");
        u64::try_from(raw.query_row(&sql, (), |row| row.get::<_, i64>(0)).unwrap()).unwrap()
    };
    let (told, guessed) = (after.usage, after.usage.estimated);
    assert_eq!((told.input, told.cached, told.output), (sum("input", 0), sum("cached", 0), sum("output", 0)));
    assert_eq!((guessed.input, guessed.cached, guessed.output), (sum("input", 1), sum("cached", 1), sum("output", 1)));
    assert_eq!(guessed.cost_micros.unwrap_or(0), sum("cost_micros", 1));
    assert_eq!(after.usage.tokens(), told.input - told.cached + told.output + guessed.tokens());
}

fn fences(world: &World) -> Vec<i64> {
    let raw = world.raw();
    let mut rows = raw.prepare("SELECT fence FROM event WHERE chain <> 'home' ORDER BY n").unwrap();
    rows.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i4_i6_i7_i8_i9_hold_after_every_step_of_any_history(tries in prop::collection::vec(any_try(), 1..40)) {
        let mut world = World::new();
        // The law is about what is written, not about the disk.
        world.store.db.pragma_update(None, "synchronous", "OFF").unwrap();
        let mut holds = vec![world.started(&new_run("182", "a"))];
        let run = holds[0].run.clone();
        let begun = ["context", "codex"].map(|name| step(name, StepEvent::Begin));
        world.record(&holds[0], &begun).unwrap();
        let mut before = world.store.view(&run).unwrap();
        for attempted in &tries {
            carry_out(&mut world, &mut holds, attempted);
            let after = world.store.view(&run).unwrap();
            check(&before, &after);
            check_sums(&world, &after);
            before = after;
        }
        world.check_chains();
        check_step_once(&world.store.chain(run.as_str()).unwrap());
        let fences = fences(&world);
        prop_assert!(fences.is_sorted(), "I4: along the events of a run the fence never falls: {:?}", fences);
        world.store.integrity().unwrap();
    }
}
