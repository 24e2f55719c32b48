//! R-M1 to R-M4: every pair of state and event, against the database.

use super::*;
use crate::domain::failure::Code;
use crate::domain::machine::Word as _;
use crate::domain::plan::phase::next_phase;
use crate::domain::run::{ATTEMPT, AttemptEvent, AttemptState, PHASE, PhaseEvent, RUN, RunStatus};
use crate::domain::step::{STEP, StepState};
use crate::store::{RunFilter, StoreError};

/// Puts a state into the database past the store, so that every pair can be tried.
fn force(world: &World, table: &str, column: &str, value: &str) {
    world.raw().execute(&format!("UPDATE {table} SET {column} = ?1"), [value]).unwrap();
}

fn stored(world: &World, sql: &str) -> String {
    world.raw().query_row(sql, (), |row| row.get(0)).unwrap()
}

fn assert_refused<T: std::fmt::Debug>(answer: super::super::Result<T>, state: &str, event: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), Code::InvalidState, "{error}");
    let StoreError::Refused(refused) = error else { panic!("{error}") };
    assert!(refused.state.starts_with(state), "{refused} names the state {state}");
    assert_eq!(refused.event, event);
}

#[test]
fn r_m4_every_pair_of_the_step_machine() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    for name in ["codex", "qa"] {
        world.record(&hold, &[step(name, StepEvent::Begin)]).unwrap();
    }
    for state in StepState::ALL {
        for event in StepEvent::ALL {
            // What the row needs beyond the state: a new attempt, a failed check, an agent that was sent back.
            let because_of = (*event == StepEvent::SendBack).then(|| key("qa"));
            let raw = world.raw();
            raw.execute("UPDATE step SET state = ?1, attempt = 0, sent_back = 1", [state.word()]).unwrap();
            raw.execute("UPDATE step SET state = 'FAILED', rounds = 0 WHERE key = 'qa'", ()).unwrap();
            let change = Change::Step(StepMove { because_of, ..StepMove::new(&key("codex"), *event) });
            let answer = world.record(&hold, &[change]);
            let now = stored(&world, "SELECT state FROM step WHERE key = 'codex'");
            if let Ok(to) = STEP.next(*state, *event) {
                answer.unwrap_or_else(|error| panic!("{state} {event}: {error}"));
                assert_eq!(now, to.word(), "{state} by {event}");
            } else {
                assert_refused(answer, state.word(), event.word());
                assert_eq!(now, state.word(), "{state} stays after {event}");
            }
        }
    }
    world.check_chains();
}

#[test]
fn r_m4_every_pair_of_the_run_machine() {
    let mut world = World::new();
    let run = world.started(&new_run("182", "a")).run;
    for state in RunStatus::ALL {
        for event in RunEvent::ALL {
            force(&world, "run", "status", state.word());
            let found = world.store.find_run(&run).unwrap().unwrap();
            let hold = Hold { run: run.clone(), attempt: found.attempt, fence: found.fence };
            let claims = matches!(event, RunEvent::Start | RunEvent::Resume | RunEvent::TakeOver);
            let answer = if claims {
                world.claim(&run, *event, hold.fence).map(drop)
            } else {
                world.record(&hold, &[run_event(*event)]).map(drop)
            };
            let now = world.store.find_run(&run).unwrap().unwrap();
            if let Ok(to) = RUN.next(*state, *event) {
                answer.unwrap_or_else(|error| panic!("{state} {event}: {error}"));
                assert_eq!(now.status, to, "{state} by {event}");
                if *event != RunEvent::Retry {
                    assert_eq!(now.lease.is_some(), to == RunStatus::Running, "{state} {event}");
                }
            } else {
                assert_refused(answer, state.word(), event.word());
                assert_eq!(now.status, *state);
            }
        }
    }
    world.check_chains();
}

#[test]
fn r_m4_every_pair_of_the_attempt_and_phase_machines() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    for state in AttemptState::ALL {
        for event in AttemptEvent::ALL {
            force(&world, "attempt", "state", state.word());
            let answer = world.record(&hold, &[Change::Attempt { event: *event, failure: None }]);
            let now = stored(&world, "SELECT state FROM attempt");
            match ATTEMPT.next(*state, *event) {
                Ok(to) => assert_eq!((answer.is_ok(), now.as_str()), (true, to.word())),
                Err(_) => assert_refused(answer, state.word(), event.word()),
            }
        }
    }
    for state in Phase::ALL {
        for event in PhaseEvent::ALL {
            force(&world, "run", "phase", state.word());
            let answer = world.record(&hold, &[Change::Phase(*event)]);
            let now = stored(&world, "SELECT phase FROM run");
            match PHASE.next(*state, *event) {
                Ok(to) => assert_eq!((answer.is_ok(), now.as_str()), (true, to.word())),
                Err(_) => assert_refused(answer, state.word(), event.word()),
            }
        }
    }
    world.check_chains();
}

#[test]
fn r_m5_a_run_without_a_check_enters_the_phase_that_it_comes_to() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    for event in PhaseEvent::ALL {
        world.raw().execute("UPDATE run SET phase = NULL", ()).unwrap();
        let answer = world.record(&hold, &[Change::Phase(*event)]);
        match next_phase(None, *event) {
            Ok(to) => assert_eq!((answer.is_ok(), stored(&world, "SELECT phase FROM run").as_str()), (true, to.word())),
            Err(_) => assert_refused(answer, "none", event.word()),
        }
    }
    world.check_chains();
}

#[test]
fn r_u4_a_list_names_the_step_that_a_run_is_parked_on() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("codex", StepEvent::Begin), step("codex", StepEvent::Fail)]).unwrap();
    world.record(&hold, &[step("qa", StepEvent::Ask), step("lint", StepEvent::Begin)]).unwrap();
    world.record(&hold, &[step("lint", StepEvent::LoseOutcome)]).unwrap();
    for (status, parked_on) in [("WAITING_APPROVAL", "qa"), ("OUTCOME_UNKNOWN", "lint")] {
        force(&world, "run", "status", status);
        let listed = world.store.runs(&RunFilter::All).unwrap();
        assert_eq!(listed[0].step, Some(key(parked_on)), "{status}");
    }
}

#[test]
fn r_m3_a_step_needs_more_than_its_state() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let fail = |name: &str| [step(name, StepEvent::Begin), step(name, StepEvent::Fail)];
    world.record(&hold, &fail("qa")).unwrap();
    assert_refused(world.record(&hold, &[step("qa", StepEvent::BeginAgain)]), "FAILED", "begin_again");
    assert_refused(world.record(&hold, &[step("qa", StepEvent::AskAgain)]), "FAILED", "ask_again");
    assert_refused(world.record(&hold, &[step("qa", StepEvent::Recheck)]), "FAILED", "recheck");
    let back = |name: &str, qa: Option<&str>| {
        Change::Step(StepMove { because_of: qa.map(key), ..StepMove::new(&key(name), StepEvent::SendBack) })
    };
    for name in ["context", "codex", "lint"] {
        world.record(&hold, &[step(name, StepEvent::Begin), step(name, StepEvent::Succeed)]).unwrap();
    }
    assert_refused(world.record(&hold, &[back("codex", None)]), "SUCCEEDED", "send_back");
    assert_refused(world.record(&hold, &[back("codex", Some("lint"))]), "SUCCEEDED", "send_back");
    assert_refused(world.record(&hold, &[back("context", Some("qa"))]), "SUCCEEDED", "send_back");
    world.record(&hold, &[back("codex", Some("qa")), back("lint", Some("qa"))]).unwrap();
    let view = world.store.view(&hold.run).unwrap();
    let step_of = |name: &str| view.steps.iter().find(|s| s.key == key(name)).unwrap().clone();
    assert_eq!((step_of("qa").rounds, step_of("qa").sent_back), (1, true), "one round, though two steps went back");
    assert_eq!(step_of("codex").state, StepState::Pending);
    world.record(&hold, &[step("qa", StepEvent::Recheck)]).unwrap();
    let qa = world.store.view(&hold.run).unwrap().steps.into_iter().find(|s| s.key == key("qa")).unwrap();
    assert_eq!((qa.runs, qa.rounds, qa.sent_back), (2, 1, false));
}

#[test]
fn r_m1_task_run_attempt_and_step_are_separate_records() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("context", StepEvent::Begin)]).unwrap();
    let raw = world.raw();
    for (table, rows) in [("task", 1), ("run", 1), ("attempt", 1), ("step", 5), ("execution", 1)] {
        let found: i64 = raw.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap();
        assert_eq!(found, rows, "{table}");
    }
    let twice = "INSERT INTO step SELECT * FROM step LIMIT 1";
    assert!(raw.execute(twice, ()).is_err(), "a step is unique on run and key");
}

#[test]
fn fr_i14_a_double_transition_is_rejected() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let mut other = Store::open(&world.path()).unwrap();
    world.record(&hold, &[step("qa", StepEvent::Begin)]).unwrap();
    assert_refused(other.record(&hold, &[step("qa", StepEvent::Begin)], &ctx(5)), "RUNNING", "begin");
}

#[test]
fn fr_k2_a_finished_run_stays_finished() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[run_event(RunEvent::Succeed)]).unwrap();
    assert_refused(world.claim(&hold.run, RunEvent::TakeOver, hold.fence), "SUCCEEDED", "take_over");
    assert_refused(world.record(&hold, &[step("qa", StepEvent::Begin)]), "SUCCEEDED", "a step's move");
    assert_refused(world.store.heartbeat(&hold, BootMs(1), &ctx(1)), "SUCCEEDED", "heartbeat");
    assert!(world.store.stale_candidates().unwrap().is_empty());
}

#[test]
fn all_changes_are_recorded_or_none() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let before = world.store.view(&hold.run).unwrap();
    let changes = [step("context", StepEvent::Begin), step("qa", StepEvent::Succeed)];
    assert!(world.record(&hold, &changes).is_err());
    assert_eq!(world.store.view(&hold.run).unwrap(), before, "neither the state nor the log moved");
}
