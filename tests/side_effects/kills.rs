//! agentrun is killed at every commit of an action and goes on: what the other side counts never doubles (I2), and what is
//! said to have happened has (I3).

use agentrun::domain::action::ActionState;

use crate::bank::{Bank, Promise};
use crate::world::Output;

const KILLED: i32 = -9;

fn with_plan(bank: &Bank, plan: (&str, &str)) -> Output {
    let mut command = bank.world.agentrun(&["start", "t"]);
    command.env(plan.0, plan.1);
    Output::of(command)
}

/// Kills at every point from the first about the action on; prints what was counted.
fn killed_everywhere(promise: Promise) {
    let learned = Bank::new(promise);
    let out = with_plan(&learned, ("AGENTRUN_FAIL_TRACE", &learned.world.at("points")));
    assert_eq!(out.exit, 0, "{}", out.stderr);
    let text = std::fs::read_to_string(learned.world.path("points")).unwrap();
    let points: Vec<&str> = text.lines().collect();
    let first = points.iter().position(|point| point.contains("action.")).unwrap();
    let last = points.iter().rposition(|point| point.contains("action.")).unwrap();
    let (mut kills, mut by_person) = (0, 0);
    for nth in first..=last + 2 {
        let (bank, moment) = (Bank::new(promise), format!("{nth} {:?}", points.get(nth)));
        let out = with_plan(&bank, ("AGENTRUN_FAIL", &format!("*:kill@{}", nth + 1)));
        if out.exit != KILLED {
            continue;
        }
        kills += 1;
        let (exit, run) = bank.world.json(&["resume", "run_t_001"]);
        let state = bank.action().state;
        assert!(bank.effects() <= 1, "{moment}: I2: {} effects", bank.effects());
        assert_eq!(state == ActionState::Succeeded, exit == 0, "{moment}: {run:#}");
        if state == ActionState::Succeeded {
            assert_eq!(bank.effects(), 1, "{moment}: I3: it is said to be there");
        } else {
            // Nothing is there, and the other side would not know a second one: only a person can say so.
            assert_eq!((state, bank.effects()), (ActionState::OutcomeUnknown, 0), "{moment}: {run:#}");
            assert!(promise != Promise::KeyAndQuery, "{moment}: a query and a key can settle it: {run:#}");
            by_person += 1;
        }
    }
    println!("{kills} kills at {} points, 0 duplicates, {by_person} left to a person", last + 3 - first);
    assert!(kills > 8, "{kills}");
}

#[test]
fn f01_f54_killed_at_every_commit_of_an_action_with_dedupe() {
    killed_everywhere(Promise::KeyAndQuery);
}

#[test]
fn f01_f54_killed_at_every_commit_of_an_action_without_dedupe() {
    killed_everywhere(Promise::QueryAlone);
}
