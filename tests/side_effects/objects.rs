//! Objects at the other side, each there once: notifications, exports, pull requests, comments (R-A11, R-A12, F63, F64).

use serde_json::json;

use crate::provider::Provider;
use crate::shop::action;
use crate::world::{World, wait_until};

/// What these tests send goes without a person.
const RULES: &str = "[ { id: a, allow: notification }, { id: b, allow: export }, { id: c, allow: pull_request }, \
                     { id: d, allow: generic } ]";

/// A world whose policy lets these actions go, and waits shortly.
fn world() -> World {
    let world = World::new();
    let mut sections = crate::shop::SECTIONS;
    sections[1] = ("rules", RULES);
    world.policy(&sections);
    world
}

/// A contract over HTTP. `more` is whatever this endpoint guarantees.
fn contract(world: &World, provider: &Provider, name: &str, (body, more): (&str, &str)) {
    let url = provider.url("/objects");
    let text = format!(
        "version: \"1\"\nenvironment: test\nsend:\n  http: {{ url: \"{url}\", inside: true, body: {body} }}\nreference: /id\n{more}"
    );
    world.write(&format!("policies/contracts/{name}.yml"), &text);
}

/// A question about objects whose field equals a template.
fn query(provider: &Provider, equals: &str) -> String {
    format!(
        "query:\n  http: {{ url: \"{}\", inside: true }}\n  settle: 10ms\n  find: {{ list: /data, more: /has_more, equals: {equals} }}\n",
        provider.url("/effects")
    )
}

const BODY: &str = "{ key: \"{{ key }}\", text: \"{{ input.text }}\" }";

fn pull_request(world: &World, provider: &Provider) {
    let body = "{ unique: \"{{ subject.head }} {{ subject.base }}\", marker: \"{{ key }}\" }";
    let same = query(provider, "{ /body/unique: \"{{ subject.head }} {{ subject.base }}\" }");
    contract(world, provider, "forge", (body, &format!("dedupe: natural\nlook_first: true\n{same}")));
}

fn pull_request_task(world: &World, id: &str) {
    let step = "steps:\n  - { key: open, kind: action, type: pull_request, target: acme/shop, contract: forge, \
                subject: { head: feature, base: main }, input: { title: t } }\n";
    world.task(id, step);
}

fn action_task(world: &World, id: &str, (kind, subject): (&str, &str)) {
    let step = format!(
        "steps:\n  - {{ key: act, kind: action, type: {kind}, target: there, contract: there, subject: {subject}, \
         input: {{ text: \"done\" }} }}\n"
    );
    world.task(id, &step);
}

#[test]
fn r_a11_a_notification_is_one_per_key_and_keeps_the_other_sides_id() {
    let (world, provider) = (world(), Provider::serving());
    contract(&world, &provider, "there", (BODY, "dedupe: none\n"));
    action_task(&world, "a", ("notification", "{ event: released-v1 }"));
    action_task(&world, "b", ("notification", "{ event: released-v1 }"));
    for task in ["a", "b"] {
        let (exit, run) = world.start(task);
        assert_eq!((exit, &action(&run)["reference"]), (0, &"fx_1".into()), "{run:#}");
        world.assert_sound(run["run"].as_str().unwrap());
    }
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
}

#[test]
fn r_a11_a_crash_between_send_and_record_does_not_notify_twice() {
    let (world, provider) = (world(), Provider::serving());
    contract(&world, &provider, "there", (BODY, &query(&provider, "{ /key: \"{{ key }}\" }")));
    action_task(&world, "a", ("notification", "{ event: released-v1 }"));
    provider.knobs(json!({ "wait_after": provider.at("go") }));
    let running = world.spawn(&["start", "a"]);
    wait_until("it happened", || provider.ledger().len() == 1);
    running.kill();
    provider.open("go");
    provider.knobs(json!({}));
    wait_until("its processes are gone", || world.living().is_empty());
    let (exit, run) = world.json(&["resume", "run_a_001"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
    world.assert_sound(run["run"].as_str().unwrap());
}

#[test]
fn r_a12_the_same_export_is_the_same_job_and_a_finished_one_is_not_made_again() {
    let (world, provider) = (world(), Provider::serving());
    let keyed = format!("dedupe: natural\n{}", query(&provider, "{ /key: \"{{ key }}\" }"));
    let state = "state: { at: /status, words: { succeeded: succeeded, in_progress: in_progress } } }";
    let keyed = keyed.replace("\" } }\n", &format!("\" }}, {state}\n"));
    contract(&world, &provider, "there", (BODY, &keyed));
    provider.knobs(json!({ "accept": true, "finish": provider.at("finish") }));
    action_task(&world, "a", ("export", "{ document: report-7 }"));
    action_task(&world, "b", ("export", "{ document: report-7 }"));
    let running = world.spawn(&["start", "a", "--json"]);
    provider.wait("the job was taken on and asked about", |p| p.requests().iter().any(|r| r["method"] == "GET"));
    provider.open("finish");
    let ended = running.end();
    assert_eq!(ended.exit, 0, "{ended:?}");
    let (exit, run) = world.start("b");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
}

#[test]
fn f63_fr_e8_a_pull_request_that_is_open_already_is_adopted() {
    let (world, provider) = (world(), Provider::serving());
    pull_request(&world, &provider);
    pull_request_task(&world, "a");
    // Somebody else was first: an agent, or an earlier life of this home.
    let by_hand = self::world();
    pull_request(&by_hand, &provider);
    pull_request_task(&by_hand, "x");
    assert_eq!(by_hand.start("x").0, 0);
    let (exit, run) = world.start("a");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
    let sent = provider.requests().iter().filter(|request| request["method"] == "POST").count();
    assert_eq!(sent, 1, "it was looked for before it was sent");
    assert_eq!(
        (&action(&run)["reference"], &action(&run)["tries"]),
        (&"fx_1".into(), &0.into()),
        "adopted by its name"
    );
}

#[test]
fn f63_a_pull_request_whose_answer_was_lost_is_found_again() {
    let (world, provider) = (world(), Provider::serving());
    pull_request(&world, &provider);
    pull_request_task(&world, "a");
    provider.knobs(json!({ "dedupe": "natural", "drop": "after", "times": 1 }));
    let (exit, run) = world.start("a");
    let exit = if exit == 0 { exit } else { world.json(&["resume", "run_a_001"]).0 };
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
}

#[test]
fn f64_two_runs_that_open_the_same_pull_request_at_once_open_one() {
    for round in 0..20 {
        let (world, provider) = (world(), Provider::serving());
        // The forge would take a second one: that there is one is ours alone.
        provider.knobs(json!({ "dedupe": "none" }));
        pull_request(&world, &provider);
        for task in ["a", "b"] {
            pull_request_task(&world, task);
        }
        let running = ["a", "b"].map(|task| world.spawn(&["start", task, "--json"]));
        for ended in running.map(crate::world::Running::end) {
            assert_eq!(ended.exit, 0, "round {round}: {ended:?}");
        }
        assert_eq!(provider.ledger().len(), 1, "round {round}: {:#?}", provider.ledger());
    }
}

#[test]
fn fr_e10_fr_e11_reruns_of_one_topic_make_one_comment() {
    let (world, provider) = (world(), Provider::serving());
    let looked = format!("look_first: true\n{}", query(&provider, "{ /key: \"{{ key }}\" }"));
    contract(&world, &provider, "there", (BODY, &looked));
    for (task, head) in [("a", "1"), ("b", "2"), ("c", "3")] {
        world.write("src/lib.txt", head);
        world.git(&["commit", "-qam", head]);
        action_task(&world, task, ("generic", "{ document: review-of-pr-7 }"));
        let (exit, run) = world.start(task);
        assert_eq!(exit, 0, "{run:#}");
    }
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
}

#[test]
fn fr_e14_a_forge_that_cannot_be_read_is_not_written_to() {
    let (world, mut provider) = (world(), Provider::serving());
    pull_request(&world, &provider);
    pull_request_task(&world, "a");
    provider.kill();
    let (exit, run) = world.start("a");
    assert_eq!((exit, &action(&run)["tries"]), (17, &0.into()), "{run:#}");
    provider.serve();
    let (exit, run) = world.json(&["resume", "run_a_001"]);
    assert_eq!((exit, provider.ledger().len()), (0, 1), "looked for, and then opened: {run:#}");
}

#[test]
fn fr_e31_two_steps_of_one_run_that_want_the_same_make_one_object() {
    let (world, provider) = (world(), Provider::serving());
    contract(&world, &provider, "there", (BODY, "dedupe: none\n"));
    let step = |key: &str| {
        format!(
            "  - {{ key: {key}, kind: action, type: generic, target: there, contract: there, needs: [], \
             subject: {{ document: review }}, input: {{ text: same }} }}\n"
        )
    };
    world.task("a", &format!("steps:\n{}{}", step("one"), step("other")));
    let (exit, run) = world.start("a");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(provider.ledger().len(), 1, "{:#?}", provider.ledger());
}
