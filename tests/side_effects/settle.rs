//! What nobody knows, settled by asking or by a person, from the command line.

use serde_json::json;

use crate::provider::Provider;
use crate::shop::{action, allow_all, http_contract, http_query, order};
use crate::world::World;

/// A run whose order may have happened: the answer was lost, and asking did not help.
fn unknown(query: bool) -> (World, Provider) {
    let (world, provider) = (World::new(), Provider::serving());
    allow_all(&world);
    let lines = if query { http_query(&provider, "100ms") } else { String::new() };
    http_contract(&world, &provider, ("shop", &lines));
    // Questions are not answered either.
    provider.knobs(json!({ "drop": "after", "blind": provider.at("sees") }));
    order(&world, "t", ("shop", 3, ""));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (4, &"OUTCOME_UNKNOWN".into()), "{run:#}");
    (world, provider)
}

#[test]
fn r_a7_reconcile_asks_and_resume_goes_on_without_a_second_effect() {
    let (world, provider) = unknown(true);
    let (exit, listed) = world.json(&["action", "list", "--review"]);
    assert_eq!((exit, listed["actions"].as_array().unwrap().len()), (0, 1), "{listed:#}");
    let (exit, asked) = world.json(&["reconcile"]);
    assert_eq!((exit, &asked["actions"][0]["state"]), (17, &"OUTCOME_UNKNOWN".into()), "{asked:#}");
    provider.open("sees");
    let (exit, asked) = world.json(&["reconcile"]);
    let one = &asked["actions"][0];
    assert_eq!((exit, &one["before"], &one["state"]), (0, &"OUTCOME_UNKNOWN".into(), &"SUCCEEDED".into()), "{asked:#}");
    assert_eq!(provider.requests().iter().filter(|r| r["method"] == "POST").count(), 1, "reconcile sends nothing");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"], provider.ledger().len()), (0, &"SUCCEEDED".into(), 1), "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn r_a7_a_person_settles_what_nobody_can_be_asked_about() {
    let (world, provider) = unknown(false);
    let (_, listed) = world.json(&["action", "list"]);
    let id = listed["actions"][0]["id"].as_str().unwrap().to_owned();
    let (exit, shown) = world.json(&["action", "assign", &id[..13], "--to", "alice", "--due", "4h"]);
    assert_eq!((exit, &shown["owner"]), (0, &"alice".into()), "{shown:#}");
    let resolve =
        ["action", "resolve", &id, "--as", "succeeded", "--reference", "fx_1", "--reason", "seen in the shop"];
    assert_eq!(world.json(&resolve).0, 0);
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &action(&run)["reference"], provider.ledger().len()), (0, &"fx_1".into(), 1), "{run:#}");
    let (exit, error) = world.json(&resolve);
    assert_eq!((exit, &error["code"]), (8, &"INVALID_STATE".into()), "a settled one stays: {error:#}");
}

#[test]
fn r_a7_what_a_person_says_has_not_happened_is_sent_by_resume() {
    let (world, provider) = unknown(false);
    let (_, listed) = world.json(&["action", "list"]);
    let id = listed["actions"][0]["id"].as_str().unwrap().to_owned();
    provider.knobs(json!({}));
    assert_eq!(world.json(&["action", "resolve", &id, "--as", "absent", "--reason", "looked"]).0, 0);
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(
        (exit, &action(&run)["tries"], provider.ledger().len()),
        (0, &2.into(), 2),
        "the person was wrong: {run:#}"
    );
}

#[test]
fn an_agent_decides_nothing_for_a_person() {
    let (mut world, _provider) = unknown(false);
    let (_, listed) = world.json(&["action", "list"]);
    let id = listed["actions"][0]["id"].as_str().unwrap().to_owned();
    world.vars.push(("AGENTRUN_RUN_ID".to_owned(), "run_t_001".to_owned()));
    let (_, error) = world.json(&["action", "resolve", &id, "--as", "succeeded", "--reason", "trust me"]);
    assert_eq!(error["code"], "PERMISSION_DENIED", "{error:#}");
    assert_eq!(world.json(&["reconcile"]).1["code"], "PERMISSION_DENIED");
}
