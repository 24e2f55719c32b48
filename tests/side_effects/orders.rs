//! An order over HTTP: answers that get lost, keys that come again.

use serde_json::json;

use crate::provider::Provider;
use crate::shop::{action, allow_all, http_contract, http_query, order};
use crate::world::World;

fn shop() -> (World, Provider) {
    let (world, provider) = (World::new(), Provider::serving());
    allow_all(&world);
    (world, provider)
}

#[test]
fn an_order_is_sent_once_with_its_key_and_its_reference_is_kept() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", "dedupe: key\nkey: { header: Idempotency-Key }\n"));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1);
    assert_eq!(provider.effects_of("generic:local:live:-:shop:order-7"), 1);
    assert_eq!(action(&run)["reference"], provider.ledger()[0]["id"], "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn test_1_f54_an_answer_lost_after_the_provider_stored_it_is_found_by_asking() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", &http_query(&provider, "100ms")));
    provider.knobs(json!({ "drop": "after" }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "one effect");
    assert_eq!((&action(&run)["state"], &action(&run)["tries"]), (&"SUCCEEDED".into(), &1.into()));
    let moves = world.events("run_t_001");
    let moved = |event: &str| moves.iter().any(|e| e["kind"] == "action.moved" && e["body"]["event"] == event);
    assert!(moved("lose_outcome") && moved("prove_success"), "{moves:#?}");
}

#[test]
fn test_2_new_runs_and_new_instances_want_the_same_and_get_it_once() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", "dedupe: none\n"));
    order(&world, "t", ("shop", 3, ""));
    order(&world, "u", ("shop", 3, ""));
    let ids: Vec<_> = [&["start", "t"][..], &["start", "t", "--new"], &["start", "u"]]
        .iter()
        .map(|args| {
            let (exit, run) = world.json(args);
            assert_eq!(exit, 0, "{run:#}");
            action(&run)["id"].clone()
        })
        .collect();
    assert!(ids[0].is_string() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn test_4_f53_another_amount_under_the_same_id_is_a_conflict_before_any_call() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", "dedupe: key\nkey: { header: Idempotency-Key }\n"));
    order(&world, "t", ("shop", 3, ""));
    assert_eq!(world.start("t").0, 0);
    order(&world, "u", ("shop", 4, ""));
    let (exit, run) = world.start("u");
    assert_eq!((exit, &run["code"]), (8, &"IDEMPOTENCY_KEY_REUSED".into()), "{run:#}");
    assert_eq!(provider.requests().len(), 1, "no call");
    assert!(world.events("run_u_001").iter().any(|e| e["kind"] == "action.refused"));
}

#[test]
fn control_the_same_order_twice_on_purpose_is_two_effects() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", "dedupe: key\nkey: { header: Idempotency-Key }\n"));
    order(&world, "t", ("shop", 3, ""));
    order(&world, "u", ("shop", 3, "    instance: \"2\"\n"));
    assert_eq!((world.start("t").0, world.start("u").0), (0, 0));
    assert_eq!(provider.ledger().len(), 2);
}

#[test]
fn test_6_f58_without_key_and_query_nothing_is_sent_again_and_a_person_has_it() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", ""));
    provider.knobs(json!({ "drop": "after" }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (4, &"OUTCOME_UNKNOWN".into()), "{run:#}");
    provider.knobs(json!({}));
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (4, &"OUTCOME_UNKNOWN".into()), "{run:#}");
    assert_eq!(provider.requests().len(), 1, "sent once, and never again");
}

#[test]
fn f57_a_query_that_is_blind_for_a_while_is_not_believed() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", &format!("dedupe: natural\n{}", http_query(&provider, "700ms"))));
    provider.knobs(json!({ "drop": "after", "blind_ms": 500 }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "not found was not taken for not done");
}

#[test]
fn r_a7_what_is_proved_absent_is_sent_with_the_same_key() {
    let (world, provider) = shop();
    let lines = format!("dedupe: key\nkey: {{ header: Idempotency-Key }}\n{}", http_query(&provider, "100ms"));
    http_contract(&world, &provider, ("shop", &lines));
    provider.knobs(json!({ "drop": "before", "times": 1 }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!((provider.ledger().len(), &action(&run)["tries"]), (1, &2.into()));
}

#[test]
fn f60_f61_a_key_that_is_being_worked_on_is_asked_for_again_with_the_same_key() {
    let (world, provider) = shop();
    let lines = "dedupe: key\nkey: { header: Idempotency-Key }\nanswers: { \"409\": same_key_in_progress }\n";
    http_contract(&world, &provider, ("shop", lines));
    provider.knobs(json!({ "busy": true, "times": 1, "dedupe": "key" }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn f61_a_limit_is_waited_for_and_a_refusal_is_final() {
    let (world, provider) = shop();
    http_contract(&world, &provider, ("shop", "dedupe: key\nkey: { header: Idempotency-Key }\n"));
    provider.knobs(json!({ "status": 429, "retry_after": "1", "times": 1 }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &action(&run)["tries"]), (0, &2.into()), "{run:#}");
    provider.knobs(json!({ "status": 422 }));
    order(&world, "u", ("shop", 3, "    instance: \"2\"\n"));
    let (exit, run) = world.start("u");
    assert_eq!((exit, &run["status"], &action(&run)["tries"]), (1, &"FAILED".into(), &1.into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn f55_f66_a_provider_that_is_down_is_called_as_often_as_the_policy_says_and_then_left_alone() {
    let (world, mut provider) = shop();
    http_contract(&world, &provider, ("shop", "dedupe: key\nkey: { header: Idempotency-Key }\n"));
    provider.kill();
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], &run["attempt"]), (1, &"FAILED".into(), &1.into()), "{run:#}");
    assert_eq!(
        (&action(&run)["state"], &action(&run)["tries"]),
        (&"FAILED".into(), &3.into()),
        "known: nothing happened"
    );
    provider.serve();
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, provider.ledger().len()), (0, 1), "{run:#}");
}
