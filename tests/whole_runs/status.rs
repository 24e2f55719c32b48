//! What a person is told of runs (R-U4, field reports K): always true, in meaning, and without touching anything.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::world::{World, command_step, wait_until};

#[test]
fn fr_k2_a_finished_run_stays_finished() {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 200ms, heartbeat: 50ms }")]);
    world.command_task("t", "true");
    assert_eq!(world.start("t").0, 0);
    let finished = world.show("run_t_001")["finished_at"].clone();
    wait_until("its lease would have run out", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        true
    });
    let (_, status) = world.json(&["status", "t"]);
    let run = &status["runs"][0];
    assert_eq!(
        (&run["status"], &run["meaning"], &run["reading"]),
        (&"SUCCEEDED".into(), &"done".into(), &serde_json::Value::Null)
    );
    assert_eq!(run["finished_at"], finished);
}

#[test]
fn r_u4_every_state_has_its_meaning_and_its_next_command() {
    let world = World::new();
    world.policy(&[
        ("retry", "{ base: 10ms, max: 1s, jitter: 0, total: 2h }"),
        ("budgets", "{ task: { attempts: 2 } }"),
    ]);
    world.agent_task("good", "ok");
    world.agent_task("bad", "error:AUTH_FAILED");
    world.agent_task("later", "error:RATE_LIMIT:3600");
    world.agent_task("dead", "error:NETWORK_TIMEOUT");
    world.task("over", &format!("budget: {{ task: {{ time: 50ms }} }}\nsteps:\n{}", command_step("slow", "sleep 20")));
    world.agent_task("cut", &format!("touch:{},silent", world.at("in")));
    for id in ["good", "bad", "dead", "over"] {
        world.start(id);
    }
    let running = world.spawn_until(&["start", "cut"], "in");
    let meaning = |id: &str| {
        let (exit, status) = world.json(&["status", id]);
        assert_eq!(exit, 0, "status exits 0 when it could answer");
        let run = status["runs"][0].clone();
        assert!(!run["sentence"].as_str().unwrap().is_empty() && run["since"].is_string());
        (run["meaning"].as_str().unwrap().to_owned(), run["next"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(meaning("cut").0, "in_progress");
    running.signal(Signal::INT);
    assert_eq!(running.end().exit, 130);
    // Last: from then on its provider is left alone.
    world.start("later");
    for (id, word, next) in [
        ("good", "done", "agentrun show"),
        ("later", "waiting", ""),
        ("dead", "needs_a_person", "--reason"),
        ("over", "needs_a_person", "--budget"),
        ("cut", "can_be_retried", "agentrun resume"),
    ] {
        let (found, command) = meaning(id);
        assert_eq!(found, word, "{id}");
        assert!(command.contains(next), "{id}: {command}");
    }
    assert!(["failed_for_good", "needs_a_person"].contains(&meaning("bad").0.as_str()));
    let table = world.run(&["status"]);
    for id in ["run_good_001", "run_dead_001", "run_cut_001"] {
        assert!(table.stdout.contains(id), "{}", table.stdout);
    }
}

#[test]
fn fr_k5_canceling_is_told_until_it_is_true() {
    let world = World::new();
    world.policy(&[("timeouts", "{ call: 10ms, grace: 1500ms }")]);
    world.agent_task("t", &format!("ignore-term,touch:{},silent", world.at("in")));
    let running = world.spawn_until(&["start", "t"], "in");
    let cancel = world.spawn(&["cancel", "t", "--json"]);
    wait_until("the wish is recorded", || world.show("run_t_001")["cancel_requested"] == true);
    let (_, status) = world.json(&["status", "t"]);
    let run = &status["runs"][0];
    if !world.living().is_empty() && run["status"] == "RUNNING" {
        assert!(run["sentence"].as_str().unwrap().contains("being canceled"), "{run:#}");
    }
    let out = cancel.end();
    assert_eq!((out.exit, &out.json()["status"]), (0, &"CANCELED".into()), "{}", out.stderr);
    assert_eq!(running.end().exit, 9);
    world.assert_sound("run_t_001");
}

#[test]
fn fr_k7_a_dead_process_is_never_listed_as_active() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},silent", world.at("in")));
    world.spawn_until(&["start", "t"], "in").kill();
    let table = world.run(&["status"]);
    assert!(!table.stdout.contains("goes on"), "{}", table.stdout);
    let (_, status) = world.json(&["status"]);
    assert_eq!(status["runs"][0]["goes_on_by_itself"], false);
}

#[test]
fn contract_6_looking_works_where_nothing_can_be_written() {
    let world = World::new();
    world.command_task("t", "true");
    assert_eq!(world.start("t").0, 0);
    let state = world.state("state");
    let close = |mode: u32| {
        for path in [state.clone(), world.state("")] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    close(0o500);
    let before: Vec<_> = fs::read_dir(&state).unwrap().map(|e| e.unwrap().file_name()).collect();
    for args in [&["status"][..], &["show", "t"], &["logs", "t"], &["audit", "verify"], &["artifact", "verify", "t"]] {
        let out = world.run(args);
        assert_eq!(out.exit, 0, "{args:?}: {}", out.stderr);
    }
    let after: Vec<_> = fs::read_dir(&state).unwrap().map(|e| e.unwrap().file_name()).collect();
    close(0o700);
    assert_eq!(before, after, "nothing was made");
}

#[test]
fn contract_6_looking_before_the_first_run_makes_nothing() {
    let world = World::new();
    let (exit, status) = world.json(&["status"]);
    assert_eq!((exit, status["runs"].as_array().unwrap().len()), (0, 0));
    assert_eq!(world.run(&["show", "t"]).exit, 16);
    assert!(!world.repo().join(".ai-runs").exists());
}

#[test]
fn r_u4_a_run_is_found_by_id_task_and_support_code() {
    let world = World::new();
    world.command_task("t", "true");
    let (_, run) = world.start("t");
    for name in ["run_t_001", "t", run["support_code"].as_str().unwrap()] {
        assert_eq!(world.show(name)["run"], "run_t_001", "{name}");
    }
    let (exit, error) = world.json(&["show", "run_t_009"]);
    assert_eq!((exit, &error["code"]), (16, &"NOT_FOUND".into()));
}
