//! Leases: the pulse hangs, the machine sleeps, a record comes from another boot. Who holds a run knows it before each write,
//! and who takes one has seen that nobody else has it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, wait_until};

/// A world with short leases and a task whose agent waits for a gate.
fn with_short_leases() -> World {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 1500ms, heartbeat: 400ms }"), ("timeouts", "{ call: 10ms, grace: 300ms }")]);
    let script = format!("effect:{},append:{1}={1},wait-for:{2},ok", world.at("e"), world.at("in"), world.at("go"));
    world.agent_task("t", &script);
    world
}

/// What `status` says about the holder; nothing while all is well.
fn reading(world: &World) -> Value {
    world.json(&["status", "t"]).1["runs"][0]["reading"].clone()
}

#[test]
fn f42_a_holder_that_slept_past_its_lease_goes_on_where_nobody_took_the_run() {
    let world = with_short_leases();
    let asleep = world.spawn_until(&["start", "t", "--json"], "in");
    asleep.signal(Signal::STOP);
    wait_until("its lease has run out", || reading(&world).is_string());
    asleep.signal(Signal::CONT);
    wait_until("its lease was renewed", || reading(&world).is_null());
    world.open("go");
    let out = asleep.end();
    assert_eq!((out.exit, out.json()["attempt"].as_u64(), world.lines("e")), (0, Some(1), 1), "{}", out.stderr);
    world.assert_sound("run_t_001");
}

#[test]
fn f43_a_pulse_that_hangs_is_no_lost_lease() {
    let world = with_short_leases();
    let mut start = world.agentrun(&["start", "t", "--json"]);
    start.env("AGENTRUN_FAIL", "after/heartbeat:pause@1");
    let mut running = world.spawn_command(start);
    running.reaches(&world.path("in"));
    let beat = || world.show("run_t_001")["last_heartbeat_at"].clone();
    for nth in 1..=3 {
        let last = beat();
        wait_until(&format!("sign of life {nth}"), || beat() != last);
        assert_eq!(reading(&world), Value::Null);
    }
    world.open("go");
    let out = running.end();
    assert_eq!((out.exit, out.json()["attempt"].as_u64(), world.lines("e")), (0, Some(1), 1), "{}", out.stderr);
    world.assert_sound("run_t_001");
}

#[test]
fn f41_a_lease_of_another_boot_is_taken_only_after_its_pulse_stood_still_for_a_whole_lease() {
    let world = with_short_leases();
    world.spawn_until(&["start", "t"], "in").kill();
    wait_until("nobody is left", || world.living().is_empty());
    let db = rusqlite::Connection::open(world.state("state/agentrun.db")).unwrap();
    assert_eq!(db.execute("UPDATE run SET lease_boot_id = 'another boot'", ()).unwrap(), 1);
    drop(db);
    world.open("go");
    let begun = Instant::now();
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!((exit, &run["status"], &run["attempt"]), (0, &"SUCCEEDED".into(), &2.into()), "{run:#}");
    assert!(begun.elapsed() >= Duration::from_millis(1500), "not before a whole lease was seen to pass");
    world.assert_sound("run_t_001");
}
