//! Several at once, and one that comes back from the dead: workers that are stopped in the middle, approvals that end while nobody
//! knows, duplicates from many processes.

use rustix::process::Signal;
use serde_json::json;

use crate::provider::Provider;
use crate::shop::{SECTIONS, action, allow_all, http_contract, http_query, order};
use crate::world::{World, wait_until};

fn posts(provider: &Provider) -> usize {
    provider.requests().iter().filter(|request| request["method"] == "POST").count()
}

/// An order whose sender is put to sleep after the other side has stored it, and whose run another process takes over.
fn taken_over(lines: &str) -> (World, Provider, i32) {
    let (world, provider) = (World::new(), Provider::serving());
    let leases = ("leases", "{ ttl: 2s, heartbeat: 500ms }");
    world.policy(&[&SECTIONS[..], &[leases]].concat());
    http_contract(&world, &provider, ("shop", lines));
    provider.knobs(json!({ "dedupe": "key" }));
    order(&world, "t", ("shop", 3, ""));
    // It falls asleep with the answer in its hand.
    let mut start = world.agentrun(&["start", "t", "--json"]);
    start.env("AGENTRUN_FAIL", "after/send:stop@1");
    let first = world.spawn_command(start);
    provider.wait("the other side has it", |p| p.ledger().len() == 1);
    wait_until("its lease is over", || world.json(&["status", "run_t_001"]).1["runs"][0]["reading"] == "STUCK");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert!([0, 4].contains(&exit), "{run:#}");
    first.signal(Signal::CONT);
    let late = first.end();
    assert_eq!(late.exit, 8, "it was fenced off: {late:?}");
    (world, provider, exit)
}

#[test]
fn test_3_f34_the_second_worker_asks_and_the_first_ones_late_answer_is_evidence() {
    let (world, provider, exit) = taken_over("");
    assert_eq!(
        (exit, provider.ledger().len(), posts(&provider)),
        (4, 1, 1),
        "nobody can be asked: nothing is sent again"
    );
    let events = world.events("run_t_001");
    assert!(events.iter().any(|e| e["kind"] == "action.late"), "{events:#?}");
    // The late answer proves it.
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &action(&run)["state"], posts(&provider)), (0, &"SUCCEEDED".into(), 1), "{run:#}");
}

#[test]
fn f34_where_the_other_side_knows_the_key_the_second_worker_sends_the_same_again() {
    let lines = "dedupe: key\nkey: { header: Idempotency-Key }\n";
    let (_world, provider, exit) = taken_over(lines);
    assert_eq!((exit, posts(&provider)), (0, 2), "the same key, twice");
}

#[test]
fn test_5_f47_an_approval_that_ends_while_nobody_knows_lets_nothing_more_be_sent() {
    let (world, provider) = (World::new(), Provider::serving());
    let mut sections = SECTIONS;
    sections[1] = ("rules", "[ { id: all, approve: generic, approval: { expires: 2s } } ]");
    world.policy(&sections);
    let lines = format!("dedupe: key\nkey: {{ header: Idempotency-Key }}\n{}", http_query(&provider, "100ms"));
    http_contract(&world, &provider, ("shop", &lines));
    provider.knobs(json!({ "drop": "after", "query_status": 503, "dedupe": "key" }));
    order(&world, "t", ("shop", 3, ""));
    assert_eq!(world.start("t").0, 3);
    assert_eq!(world.json(&["approve", "run_t_001", "--yes"]).0, 0);
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert!([3, 4].contains(&exit), "{run:#}");
    wait_until("its time is over", || {
        let at = world.json(&["approval", "list", "--all"]).1["approvals"][0]["expires_at"].clone();
        at.as_str().is_none_or(|at| at.parse::<jiff::Timestamp>().unwrap() < jiff::Timestamp::now())
    });
    let before = posts(&provider);
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert!([3, 4].contains(&exit), "{run:#}");
    assert_eq!(posts(&provider), before, "no further write without an approval that counts");
    provider.knobs(json!({}));
    let (_, asked) = world.json(&["reconcile"]);
    let (_, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((&action(&run)["state"], provider.ledger().len()), (&"SUCCEEDED".into(), 1), "{asked:#}\n{run:#}");
}

#[test]
fn f52_many_runs_that_want_the_same_at_once_make_one_effect() {
    let (world, provider) = (World::new(), Provider::serving());
    allow_all(&world);
    http_contract(&world, &provider, ("shop", ""));
    for n in 0..24 {
        order(&world, &format!("t{n}"), ("shop", 3, ""));
    }
    for round in 0..3 {
        let tasks = (0..8).map(|n| format!("t{}", round * 8 + n));
        let all: Vec<_> = tasks.map(|task| world.spawn(&["start", &task, "--json"])).collect();
        for one in all {
            let one = one.end();
            assert_eq!(one.exit, 0, "each is led to the same: {one:?}");
        }
    }
    assert_eq!((provider.ledger().len(), posts(&provider)), (1, 1));
}
