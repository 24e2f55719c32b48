//! Providers that fail or refuse, and limits on what goes on at the same time (R-R8, R-R1, field reports G): what one run
//! learns holds for all, waiting costs nothing, and who came first goes first.

use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Running, World, agent_step, command_step, wait_until};

/// A world whose agent `bot` of the provider `acme` says `failing` and ends, until the file `up` exists: then it works. Each
/// call is a line in the file `calls`.
fn world(failing: &str, more: &[(&str, &str)]) -> World {
    let world = World::new();
    let fake = env!("CARGO_BIN_EXE_fake-agent");
    let (calls, up) = (world.at("calls"), world.at("up"));
    let script =
        format!("echo call >> {calls}; if test -e {up}; then exec {fake} ok; else exec {fake} '{failing}'; fi");
    let script = serde_json::to_string(&script).unwrap();
    let agents = format!("{{ bot: {{ run: [ sh, -c, {script} ], protocol: agentrun, provider: acme }} }}");
    let mut sections = vec![("agents", agents.as_str()), ("breaker", "{ failures: 3, per: 1h, open: 1h, max: 2h }")];
    sections.retain(|(name, _)| !more.iter().any(|(n, _)| n == name));
    sections.extend(more);
    world.policy(&sections);
    for id in ["a", "b", "c", "d", "e"] {
        world.task(id, "steps:\n  - { key: code, kind: agent, agent: bot, prompt: prompts/do.md }\n");
    }
    world
}

fn providers(world: &World) -> Vec<Value> {
    let (exit, status) = world.json(&["status"]);
    assert_eq!(exit, 0, "{status:#}");
    status["providers"].as_array().unwrap().clone()
}

fn provider(world: &World) -> Value {
    providers(world).into_iter().next().unwrap_or(Value::Null)
}

fn sentence(world: &World, id: &str) -> String {
    let (_, status) = world.json(&["status", id]);
    status["runs"][0]["sentence"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn fr_g1_fr_g4_fr_g7_r_r1_a_limit_with_a_known_end_holds_every_other_run_and_waiting_costs_nothing() {
    let world = world("error:RATE_LIMIT:3600", &[]);
    let (exit, first) = world.start("a");
    assert_eq!((exit, &first["status"], &first["code"]), (18, &"RETRYING".into(), &"RATE_LIMIT".into()), "{first:#}");
    let (exit, second) = world.start("b");
    assert_eq!(
        (exit, &second["status"], &second["code"]),
        (18, &"RETRYING".into(), &"RATE_LIMIT".into()),
        "{second:#}"
    );
    assert!(second["message"].as_str().unwrap().contains("acme"), "{second:#}");
    assert_eq!(second["attempts"][0]["state"], "PARKED");
    assert_eq!((&second["steps"][0]["state"], &second["steps"][0]["runs"]), (&"PENDING".into(), &0.into()));
    for _ in 0..20 {
        let (exit, error) = world.json(&["resume", "b"]);
        assert_eq!((exit, &error["code"]), (18, &"RATE_LIMIT".into()), "{error:#}");
    }
    assert_eq!(world.lines("calls"), 1, "20 ticks during a hold: no call");
    let held = provider(&world);
    assert_eq!(held["until"], second["retry_at"], "the same end");
    assert_eq!((&held["provider"], &held["state"], &held["cause"]), (&"acme".into(), &"OPEN".into(), &"limit".into()));
    assert_eq!((&held["code"], &held["agent"]), (&"RATE_LIMIT".into(), &Value::Null), "of the whole provider");
    let text = world.run(&["status"]).stdout;
    assert!(text.contains("provider acme: left alone until") && text.contains("--now"), "{text}");
    world.assert_sound("run_b_001");
}

#[test]
fn fr_g2_a_hold_that_outlives_its_reason_is_probed_by_one_command() {
    let world = world("error:RATE_LIMIT:3600", &[]);
    world.start("a");
    world.start("b");
    let (exit, again) = world.json(&["resume", "b", "--now"]);
    assert_eq!((exit, &again["code"]), (18, &"RATE_LIMIT".into()), "it was tried, and is held again: {again:#}");
    assert_eq!(world.lines("calls"), 2);
    world.open("up");
    let (exit, done) = world.json(&["resume", "b", "--now"]);
    assert_eq!((exit, &done["status"]), (0, &"SUCCEEDED".into()), "{done:#}");
    assert_eq!(providers(&world), Vec::<Value>::new());
    let (exit, done) = world.start("c");
    assert_eq!(exit, 0, "the hold is over for everybody: {done:#}");
    let (_, log) = world.json(&["audit", "log"]);
    let of = |kind: &str| log["events"].as_array().unwrap().iter().filter(|e| e["kind"] == kind).count();
    assert_eq!(
        (of("provider.held"), of("provider.tried"), of("provider.freed")),
        (2, 2, 1),
        "each change has its event"
    );
    world.assert_sound("run_b_001");
}

#[test]
fn fr_g5_parked_runs_go_on_by_one_command_in_their_order_when_their_time_has_come() {
    let world = world("error:RATE_LIMIT:2", &[("retry", "{ base: 10ms, max: 20ms, jitter: 0, total: 10s }")]);
    for id in ["b", "a", "c"] {
        assert_eq!(world.start(id).0, 18);
    }
    let calls = world.lines("calls");
    world.open("up");
    wait_until("their time has come", || sentence(&world, "c").starts_with("may be tried again now"));
    let out = world.run(&["resume", "--due"]);
    assert_eq!(out.exit, 0, "{}", out.stderr);
    let at = |id: &str| out.stdout.find(&format!("run_{id}_001 SUCCEEDED")).unwrap_or_else(|| panic!("{}", out.stdout));
    assert!(at("b") < at("a") && at("a") < at("c"), "{}", out.stdout);
    assert_eq!(world.lines("calls"), calls + 3);
    assert!(world.run(&["resume", "--due"]).stderr.contains("no parked run"));
}

#[test]
fn r_r3_a_hold_that_is_short_enough_is_waited_for_in_the_process_and_status_says_until_when() {
    let retry = ("retry", "{ base: 10ms, max: 90m, jitter: 0, total: 3h }");
    let world = world("error:RATE_LIMIT:3600", &[retry]);
    let first = world.spawn(&["start", "a"]);
    wait_until("the provider is held", || !providers(&world).is_empty());
    let second = world.spawn(&["start", "b", "--json"]);
    wait_until("it waits", || sentence(&world, "b").starts_with("waits for acme until "));
    let says = sentence(&world, "b");
    assert!(says.contains("because RATE_LIMIT") && says.ends_with("it goes on"), "{says}");
    first.signal(Signal::INT);
    assert_eq!(first.end().exit, 130);
    world.open("up");
    assert_eq!(world.json(&["resume", "a", "--now"]).0, 0, "it tries, and frees the provider");
    let second = second.end();
    assert_eq!((second.exit, world.lines("calls")), (0, 3), "{}", second.stderr);
    assert_eq!(second.json()["attempts"].as_array().unwrap().len(), 1, "waiting is no attempt");
    assert!(world.has_event("run_b_001", "turn.taken", ""));
}

#[test]
fn r_r1_a_used_up_quota_holds_the_provider_for_a_cool_down_and_is_not_retried() {
    let world = world("error:QUOTA_EXCEEDED", &[]);
    let (exit, first) = world.start("a");
    assert_eq!((exit, &first["status"]), (18, &"FAILED".into()), "{first:#}");
    let (exit, second) = world.start("b");
    assert_eq!((exit, &second["status"], &second["code"]), (18, &"RETRYING".into(), &"QUOTA_EXCEEDED".into()));
    assert!(second["retry_at"].is_string() && world.lines("calls") == 1, "{second:#}");
    assert_eq!(provider(&world)["cause"], "quota");
}

#[test]
fn r_r1_fr_f26_what_only_a_person_can_help_refuses_others_at_once_and_the_run_that_met_it_is_the_way_out() {
    for code in ["AUTH_FAILED", "PAYMENT_REQUIRED"] {
        let world = world(&format!("error:{code}"), &[]);
        let (exit, first) = world.start("a");
        assert_eq!((exit, &first["status"], &first["code"]), (1, &"FAILED".into(), &code.into()), "{first:#}");
        let (exit, error) = world.start("b");
        assert_eq!((exit, &error["schema"], &error["code"]), (1, &"agentrun/error/1".into(), &code.into()));
        assert!(error["message"].as_str().unwrap().contains("acme"), "{error:#}");
        assert!(error["hint"].as_str().unwrap().contains("agentrun resume run_a_001"), "{error:#}");
        assert_eq!(world.run(&["show", "run_b_001"]).exit, 16, "refused before there is a run");
        world.open("up");
        let (exit, done) = world.json(&["resume", "a"]);
        assert_eq!((exit, &done["status"]), (0, &"SUCCEEDED".into()), "a person's resume tries: {done:#}");
        assert_eq!((world.start("b").0, world.lines("calls")), (0, 3));
    }
}

#[test]
fn fr_c10_words_in_the_models_text_hold_nobody() {
    let world = world("message:429 Too Many Requests\\, quota exceeded\\, invalid api key,ok", &[]);
    assert_eq!(world.start("a").0, 0);
    assert_eq!(providers(&world), Vec::<Value>::new());
}

#[test]
fn f66_r_r8_fr_f1_a_provider_that_is_down_is_called_no_more_and_then_by_one_trial_alone() {
    let budgets = ("budgets", "{ task: { attempts: 2 } }");
    let world = world("error:TEMPORARY_PROVIDER_ERROR", &[budgets]);
    let (exit, first) = world.start("a");
    assert_eq!(
        (exit, &first["status"], world.lines("calls")),
        (1, &"DEAD_LETTER".into(), 2),
        "attempts as the policy says"
    );
    let (exit, second) = world.start("b");
    assert_eq!((exit, &second["status"]), (18, &"RETRYING".into()), "the third failure opens: {second:#}");
    for id in ["c", "d", "e"] {
        let (exit, run) = world.start(id);
        assert_eq!((exit, &run["code"]), (18, &"TEMPORARY_PROVIDER_ERROR".into()), "accepted, and parked: {run:#}");
    }
    assert_eq!(world.lines("calls"), 3, "no further call");
    let open = provider(&world);
    assert_eq!((&open["state"], &open["cause"], &open["agent"]), (&"OPEN".into(), &"outage".into(), &"bot".into()));

    // A trial that fails opens it again, for longer.
    let (exit, _) = world.json(&["resume", "c", "--now"]);
    assert_eq!((exit, world.lines("calls")), (18, 4));
    let again = provider(&world);
    assert!(again["until"].as_str().unwrap() > open["until"].as_str().unwrap(), "{again:#}");
    assert_eq!(again["state"], "OPEN");
    world.assert_sound("run_c_001");
}

#[test]
fn r_r8_fr_g5_of_all_that_try_at_once_one_does_and_its_answer_lets_the_others_go() {
    let world = World::new();
    let fake = env!("CARGO_BIN_EXE_fake-agent");
    let (calls, up, go) = (world.at("calls"), world.at("up"), world.at("go"));
    // The first call that works waits for the test, before its first answer.
    let script = format!(
        "echo call >> {calls}; if test -e {up}; then exec {fake} session:s,wait-for:{go},ok; \
         else exec {fake} error:NETWORK_TIMEOUT; fi"
    );
    let script = serde_json::to_string(&script).unwrap();
    let agents = format!("{{ bot: {{ run: [ sh, -c, {script} ], protocol: agentrun, provider: acme }} }}");
    let breaker = "{ failures: 1, per: 1h, open: 1h, max: 2h }";
    let retry = "{ base: 10ms, max: 60s, jitter: 0, total: 60s }";
    world.policy(&[("agents", agents.as_str()), ("breaker", breaker), ("retry", retry)]);
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        world.task(id, "steps:\n  - { key: code, kind: agent, agent: bot, prompt: prompts/do.md }\n");
        assert_eq!(world.start(id).0, 18);
    }
    assert_eq!(world.lines("calls"), 1, "one failure was enough");
    world.open("up");
    let racers: Vec<Running> = ids.iter().map(|id| world.spawn(&["resume", id, "--now", "--json"])).collect();
    wait_until("one tries and the others wait", || {
        let acme = provider(&world);
        (acme["state"].as_str(), acme["waiting"].as_u64(), acme["calls"].as_u64())
            == (Some("HALF_OPEN"), Some(3), Some(1))
    });
    assert_eq!(world.lines("calls"), 2, "exactly one trial");
    world.open("go");
    for racer in racers {
        let out = racer.end();
        assert_eq!(out.exit, 0, "{}", out.stderr);
    }
    assert_eq!(world.lines("calls"), 5);
    let (_, log) = world.json(&["audit", "log"]);
    let tried = log["events"].as_array().unwrap().iter().filter(|e| e["kind"] == "provider.tried").count();
    assert_eq!(tried, 1);
    world.assert_sound("run_a_001");
}

#[test]
fn r_r8_a_trial_whose_process_died_blocks_nobody() {
    let world = World::new();
    let fake = env!("CARGO_BIN_EXE_fake-agent");
    let (up, there, go) = (world.at("up"), world.at("there"), world.at("go"));
    let script = format!(
        "if test -e {go}; then exec {fake} ok; elif test -e {up}; then exec {fake} touch:{there},silent; \
         else exec {fake} error:NETWORK_TIMEOUT; fi"
    );
    let script = serde_json::to_string(&script).unwrap();
    let agents = format!("{{ bot: {{ run: [ sh, -c, {script} ], protocol: agentrun, provider: acme }} }}");
    let breaker = "{ failures: 1, per: 1h, open: 1h, max: 2h }";
    world.policy(&[("agents", agents.as_str()), ("breaker", breaker)]);
    for id in ["a", "b"] {
        world.task(id, "steps:\n  - { key: code, kind: agent, agent: bot, prompt: prompts/do.md }\n");
        assert_eq!(world.start(id).0, 18);
    }
    world.open("up");
    world.spawn_until(&["resume", "a", "--now"], "there").kill();
    assert_eq!(provider(&world)["state"], "HALF_OPEN");
    world.open("go");
    let (exit, run) = world.json(&["resume", "b", "--now"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(providers(&world).len(), 0);
}

/// Three tasks that say when they are in, and go on when the test says so.
fn queueing(world: &World, sections: &[(&str, &str)], group: &str, as_agents: bool) {
    world.policy(sections);
    for id in ["a", "b", "c"] {
        let (inside, both, go, done) = (world.at("inside"), world.at("both"), world.at("go"), world.at("done"));
        let step = if as_agents {
            agent_step("code", &format!("session:s,touch:{inside}-{id},wait-for:{go},append:{done}={id}\\n,ok"))
        } else {
            command_step(
                "work",
                &format!(
                    "test ! -e {inside} || echo both >> {both}; touch {inside} {inside}-{id}; \
                     while ! test -e {go}; do sleep 0.01; done; echo {id} >> {done}; rm {inside}"
                ),
            )
        };
        world.task(id, &format!("{group}steps:\n{step}"));
    }
}

fn order(world: &World) -> String {
    std::fs::read_to_string(world.path("done")).unwrap_or_default().split_whitespace().collect()
}

#[test]
fn r_r8_so_many_calls_to_one_provider_at_a_time_and_first_come_first_served() {
    let world = World::new();
    queueing(&world, &[("concurrency", "{ providers: { fake: 1 } }")], "", true);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let mut others = Vec::new();
    for (id, waiting) in [("b", 1), ("c", 2)] {
        others.push(world.spawn(&["start", id]));
        wait_until("it waits", || provider(&world)["waiting"] == waiting);
    }
    assert_eq!(provider(&world)["calls"], 1);
    assert!(sentence(&world, "c").starts_with("waits for its turn at fake; 2 before it"), "{}", sentence(&world, "c"));
    assert!(!world.path("inside-b").exists() && !world.path("inside-c").exists());
    world.open("go");
    for running in std::iter::once(first).chain(others) {
        let out = running.end();
        assert_eq!(out.exit, 0, "{}", out.stderr);
    }
    assert_eq!(order(&world), "abc");
    world.assert_sound("run_c_001");
}

#[test]
fn r_r8_fr_f2_so_many_runs_at_a_time_the_others_stay_accepted_in_their_order() {
    let world = World::new();
    queueing(&world, &[("concurrency", "{ runs: 1 }")], "", false);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let mut others = Vec::new();
    for (id, ahead) in [("b", 1), ("c", 2)] {
        others.push(world.spawn(&["start", id, "--json"]));
        let says = format!("waits for room for a run on this machine; {ahead} before it");
        wait_until("it waits", || sentence(&world, id) == says);
    }
    let (_, status) = world.json(&["status", "b"]);
    let run = &status["runs"][0];
    assert_eq!((&run["status"], &run["goes_on_by_itself"]), (&"PENDING".into(), &true.into()), "{run:#}");
    let (exit, busy) = world.json(&["start", "b", "--no-wait"]);
    assert_eq!((exit, &busy["run"]), (7, &"run_b_001".into()), "an equal start finds it: {busy:#}");
    world.open("go");
    assert_eq!(first.end().exit, 0);
    for other in others {
        let out = other.end();
        assert_eq!((out.exit, &out.json()["via"]), (0, &"new".into()), "{}", out.stderr);
    }
    assert_eq!((order(&world).as_str(), world.path("both").exists()), ("abc", false));
}

#[test]
fn r_r8_places_of_the_dead_are_free_at_once() {
    let world = World::new();
    queueing(&world, &[("concurrency", "{ runs: 1 }")], "", false);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let second = world.spawn(&["start", "b"]);
    wait_until("it waits", || sentence(&world, "b").ends_with("1 before it"));
    let third = world.spawn(&["start", "c"]);
    wait_until("it waits", || sentence(&world, "c").ends_with("2 before it"));
    second.kill();
    first.kill();
    std::fs::remove_file(world.path("inside")).unwrap();
    world.open("go");
    let out = third.end();
    assert_eq!(out.exit, 0, "{}", out.stderr);
    assert_eq!(order(&world).replace('a', ""), "c", "who died while it waited is passed");
    // What was accepted goes on when somebody says so.
    assert_eq!(world.start("b").0, 0);
}

#[test]
fn r_w6_r_r8_a_group_is_first_come_first_served_too() {
    let world = World::new();
    queueing(&world, &[], "concurrency: { group: main, when_busy: queue }\n", false);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let mut others = Vec::new();
    for (id, ahead) in [("b", 1), ("c", 2)] {
        others.push(world.spawn(&["start", id]));
        wait_until("it waits", || sentence(&world, id).ends_with(&format!("{ahead} before it")));
    }
    world.open("go");
    for running in std::iter::once(first).chain(others) {
        assert_eq!(running.end().exit, 0);
    }
    assert_eq!((order(&world).as_str(), world.path("both").exists()), ("abc", false));
}

#[test]
fn r_r8_who_waits_can_be_canceled_and_interrupted() {
    let world = World::new();
    queueing(&world, &[("concurrency", "{ runs: 1, providers: { fake: 1 } }")], "", true);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let canceled = world.spawn(&["start", "b", "--json"]);
    wait_until("it waits", || sentence(&world, "b").contains("room"));
    assert_eq!(world.run(&["cancel", "b"]).exit, 0);
    let out = canceled.end();
    assert_eq!((out.exit, &out.json()["status"]), (9, &"CANCELED".into()), "{}", out.stderr);
    let interrupted = world.spawn(&["start", "c", "--json"]);
    wait_until("it waits", || sentence(&world, "c").contains("room"));
    interrupted.signal(Signal::INT);
    assert_eq!(interrupted.end().exit, 130);
    world.open("go");
    assert_eq!(first.end().exit, 0);
    let (exit, run) = world.start("c");
    assert_eq!((exit, order(&world).as_str()), (0, "ac"), "{run:#}");
}

#[test]
fn r_r8_an_interrupt_at_a_providers_door_leaves_a_run_that_goes_on() {
    let world = World::new();
    queueing(&world, &[("concurrency", "{ providers: { fake: 1 } }")], "", true);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let second = world.spawn(&["start", "b", "--json"]);
    wait_until("it waits", || sentence(&world, "b").contains("turn at fake"));
    second.signal(Signal::INT);
    let out = second.end();
    assert_eq!((out.exit, &out.json()["status"]), (130, &"INTERRUPTED".into()), "{}", out.stderr);
    world.open("go");
    assert_eq!(first.end().exit, 0);
    let (exit, run) = world.json(&["resume", "b"]);
    assert_eq!((exit, &run["steps"][0]["runs"]), (0, &1.into()), "{run:#}");
    world.assert_sound("run_b_001");
}

#[test]
fn r_s2_what_ended_before_a_wait_is_on_disk_while_it_lasts() {
    let world = World::new();
    queueing(&world, &[("concurrency", "{ providers: { fake: 1 } }")], "", true);
    let first = world.spawn_until(&["start", "a"], "inside-a");
    let steps = command_step("make", &format!("echo x >> {}", world.at("e"))) + &agent_step("code", "ok");
    world.task("t", &format!("steps:\n{steps}"));
    let second = world.spawn(&["start", "t"]);
    wait_until("it waits", || sentence(&world, "t").contains("turn at fake"));
    second.kill();
    world.open("go");
    assert_eq!(first.end().exit, 0);
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!((exit, world.lines("e")), (0, 1), "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn f67_r_r8_many_at_once_never_pass_the_limit() {
    let world = World::new();
    world.policy(&[("concurrency", "{ providers: { fake: 2 } }")]);
    let log = world.at("log");
    for n in 0..8 {
        world.agent_task(&format!("t{n}"), &format!("session:s,append:{log}=in\\n,sleep:50,append:{log}=out\\n,ok"));
    }
    thread::scope(|scope| {
        let world = &world;
        let starts: Vec<_> = (0..8).map(|n| scope.spawn(move || world.start(&format!("t{n}")).0)).collect();
        for start in starts {
            assert_eq!(start.join().unwrap(), 0);
        }
    });
    let text = std::fs::read_to_string(&log).unwrap();
    let (mut inside, mut most) = (0, 0);
    for line in text.lines() {
        inside += if line == "in" { 1 } else { -1 };
        most = most.max(inside);
    }
    assert_eq!((inside, most), (0, 2), "{text}");
}
