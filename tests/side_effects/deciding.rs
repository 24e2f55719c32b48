//! The failure tests that decide, by their number.

use agentrun::domain::action::ActionState;
use serde_json::json;

use crate::bank::{Bank, Promise};
use crate::world::wait_until;

#[test]
fn test_1_f54_r_a7_an_answer_lost_after_the_effect_is_asked_about_and_found() {
    let bank = Bank::new(Promise::QueryAlone);
    bank.knobs(Promise::QueryAlone, json!({ "drop": "after" }));
    let (exit, run) = bank.world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    let action = bank.action();
    assert_eq!((bank.effects(), bank.writes(), action.tries), (1, 1, 1));
    assert_eq!(action.state, ActionState::Succeeded);
    assert_eq!(bank.provider.ledger()[0]["operation"], action.id.as_str());
    assert_eq!(bank.provider.ledger()[0]["body"]["amount"], 5);
    assert_eq!(action.reference.as_deref(), Some("fx_1"));
    let moves = bank.world.events("run_t_001");
    let to = |state: &str| moves.iter().any(|event| event["body"]["to"] == state);
    assert!(to("OUTCOME_UNKNOWN") && to("SUCCEEDED"), "{moves:#?}");
}

#[test]
fn test_2_r_a2_whoever_wants_the_same_is_led_to_one_operation() {
    let bank = Bank::new(Promise::KeyAndQuery);
    assert_eq!(bank.world.start("t").0, 0);
    let first = bank.action().id;
    let (exit, again) = bank.world.json(&["start", "t", "--new"]);
    assert_eq!(exit, 0, "{again:#}");
    bank.order("replanned", 5, "");
    let (exit, other) = bank.world.start("replanned");
    assert_eq!(exit, 0, "{other:#}");
    assert_eq!((bank.effects(), bank.writes()), (1, 1));
    assert_eq!((bank.action().id, bank.wanted()), (first, 3));
}

#[test]
fn test_3_f34_a_second_worker_asks_and_sends_nothing_new() {
    let bank = Bank::new(Promise::QueryAlone);
    bank.knobs(Promise::QueryAlone, json!({ "wait_after": bank.provider.at("gate"), "times": 1 }));
    let first = bank.world.spawn(&["start", "t"]);
    wait_until("the effect is there", || bank.effects() == 1);
    first.kill();
    let (exit, run) = bank.world.json(&["resume", "run_t_001"]);
    bank.provider.open("gate");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!((bank.effects(), bank.writes(), bank.action().tries), (1, 1, 1));
    assert!(bank.readings().iter().any(|reading| reading.source == "query"));
    assert_eq!(bank.action().state, ActionState::Succeeded);
}

#[test]
fn test_4_f53_another_quantity_under_the_same_id_is_a_conflict_before_any_call() {
    let bank = Bank::new(Promise::KeyAndQuery);
    assert_eq!(bank.world.start("t").0, 0);
    let recorded = bank.action();
    bank.order("more", 6, "");
    let (exit, run) = bank.world.start("more");
    assert_ne!(exit, 0, "{run:#}");
    assert_eq!(run["code"], "IDEMPOTENCY_KEY_REUSED", "{run:#}");
    assert_eq!((bank.effects(), bank.writes()), (1, 1));
    assert_eq!(bank.provider.ledger()[0]["body"]["amount"], 5);
    assert_eq!((bank.action().request_hash, bank.wanted()), (recorded.request_hash, 2));
}

#[test]
fn test_6_f57_f58_r_a8_nothing_is_sent_after_an_empty_answer_and_a_person_looks() {
    let bank = Bank::new(Promise::QueryAlone);
    bank.knobs(Promise::QueryAlone, json!({ "drop": "after", "blind": bank.provider.at("sight") }));
    let (exit, run) = bank.world.start("t");
    assert_ne!(exit, 0, "{run:#}");
    let action = bank.action();
    assert_eq!(action.state, ActionState::OutcomeUnknown);
    assert!(action.owner.is_some() && action.due.is_some() && action.review.is_some(), "{action:#?}");
    bank.world.json(&["resume", "run_t_001"]);
    assert_eq!((bank.effects(), bank.writes()), (1, 1));
}

#[test]
fn f58_without_key_and_query_nothing_is_sent_again() {
    let bank = Bank::new(Promise::Nothing);
    bank.knobs(Promise::Nothing, json!({ "drop": "after" }));
    let (exit, run) = bank.world.start("t");
    assert_ne!(exit, 0, "{run:#}");
    bank.world.json(&["resume", "run_t_001"]);
    assert_eq!((bank.effects(), bank.writes()), (1, 1));
    assert_eq!(bank.action().state, ActionState::OutcomeUnknown);
}

#[test]
fn control_r_a4_the_same_order_twice_on_purpose_is_two_effects() {
    let bank = Bank::new(Promise::KeyAndQuery);
    assert_eq!(bank.world.start("t").0, 0);
    bank.order("second", 5, ", instance: second");
    let (exit, run) = bank.world.start("second");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!((bank.effects(), bank.actions().len()), (2, 2));
}

#[test]
fn f61_a_500_after_the_effect_is_unknown_and_a_422_is_failed() {
    let bank = Bank::new(Promise::QueryAlone);
    bank.knobs(Promise::QueryAlone, json!({ "status_after": 500 }));
    let (exit, run) = bank.world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!((bank.effects(), bank.writes()), (1, 1));
    let refused = Bank::new(Promise::QueryAlone);
    refused.knobs(Promise::QueryAlone, json!({ "status": 422 }));
    assert_ne!(refused.world.start("t").0, 0);
    assert_eq!((refused.effects(), refused.writes()), (0, 1));
    assert_eq!(refused.action().state, ActionState::Failed);
}

#[test]
fn r_a13_what_cannot_be_undone_is_not_sent_a_second_time() {
    let bank = Bank::new(Promise::KeyAndQuery);
    bank.order("t", 5, ", irreversible: true");
    bank.knobs(Promise::KeyAndQuery, json!({ "drop": "before" }));
    let (exit, run) = bank.world.start("t");
    assert_ne!(exit, 0, "{run:#}");
    bank.world.json(&["resume", "run_t_001"]);
    assert_eq!((bank.effects(), bank.writes()), (0, 1));
    assert!(bank.action().review.is_some());
}
