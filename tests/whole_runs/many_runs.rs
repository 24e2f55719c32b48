//! Several runs on one repository (field reports I, R-W6): none disturbs another.

use std::thread;

use crate::world::{Running, World, agent_step, command_step, idle_steps, wait_until};

#[test]
fn fr_i1_r_w2_eight_starts_at_once_all_succeed_and_never_mix() {
    let world = World::new();
    for n in 0..8 {
        world.agent_task(&format!("t{n}"), &format!("write:mine.txt={n},append:src/lib.txt={n},ok"));
    }
    let exits: Vec<_> = thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|n| {
                let world = &world;
                scope.spawn(move || world.start(&format!("t{n}")))
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for (n, (exit, run)) in exits.iter().enumerate() {
        assert_eq!(*exit, 0, "{run:#}");
        let branch = format!("agentrun/run_t{n}_001");
        assert_eq!(world.git(&["show", &format!("{branch}:mine.txt")]), n.to_string());
        assert_eq!(world.git(&["show", &format!("{branch}:src/lib.txt")]), format!("one\n{n}"));
    }
    assert_eq!(world.git(&["branch", "--list", "agentrun/*"]).lines().count(), 8, "FR-I2: no branch is left over");
    world.git(&["fsck", "--no-progress"]);
    world.assert_sound("run_t0_001");
}

fn grouped(world: &World, id: &str, when_busy: &str) {
    let script = format!("effect:{0},touch:{0}-{id},wait-for:{1},ok", world.at("e"), world.at("go"));
    let group = format!("concurrency: {{ group: main, when_busy: {when_busy} }}\n");
    world.task(id, &format!("{group}steps:\n{}", agent_step("code", &script)));
}

#[test]
fn r_w6_the_next_run_of_a_group_waits_for_its_turn() {
    let world = World::new();
    grouped(&world, "a", "queue");
    grouped(&world, "b", "queue");
    let first = world.spawn_until(&["start", "a", "--json"], "e-a");
    let mut second = world.spawn(&["start", "b", "--json"]);
    wait_until("it is accepted", || world.run(&["show", "run_b_001"]).exit == 0);
    let (_, status) = world.json(&["status", "b"]);
    assert_eq!((&status["runs"][0]["status"], &status["runs"][0]["meaning"]), (&"PENDING".into(), &"waiting".into()));
    assert!(status["runs"][0]["sentence"].as_str().unwrap().contains("main"), "FR-K8: {status:#}");
    assert!(!second.is_over() && world.lines("e") == 1, "one at a time");
    world.open("go");
    let (first, second) = (first.end(), second.end());
    assert_eq!((first.exit, second.exit, world.lines("e")), (0, 0, 2), "{}", second.stderr);
    assert_eq!(second.json()["run"], "run_b_001");
    world.assert_sound("run_b_001");
}

#[test]
fn r_w6_three_of_a_group_come_one_after_the_other() {
    let world = World::new();
    for id in ["a", "b", "c"] {
        let line = format!(
            "test ! -e {0} || echo both >> {1}; touch {0}; while ! test -e {2}; do sleep 0.01; done; rm {0}; echo x >> {3}",
            world.at("inside"),
            world.at("both"),
            world.at("go"),
            world.at("done"),
        );
        world.task(
            id,
            &format!("concurrency: {{ group: main, when_busy: queue }}\nsteps:\n{}", command_step("work", &line)),
        );
    }
    let first = world.spawn_until(&["start", "a"], "inside");
    let others: Vec<Running> = ["b", "c"].iter().map(|id| world.spawn(&["start", id])).collect();
    for run in ["run_b_001", "run_c_001"] {
        wait_until("it is accepted", || world.run(&["show", run]).exit == 0);
    }
    world.open("go");
    assert_eq!(first.end().exit, 0);
    for other in others {
        let out = other.end();
        assert_eq!(out.exit, 0, "{}", out.stderr);
    }
    assert_eq!((world.lines("done"), world.path("both").exists()), (3, false));
}

#[test]
fn r_w6_a_busy_group_is_refused_or_joined_as_the_task_says() {
    let world = World::new();
    grouped(&world, "a", "queue");
    grouped(&world, "no", "refuse");
    grouped(&world, "with", "join");
    let first = world.spawn_until(&["start", "a", "--json"], "e-a");
    let (exit, error) = world.start("no");
    assert_eq!((exit, &error["code"]), (7, &"GROUP_BUSY".into()), "{error:#}");
    assert!(error.to_string().contains("run_a_001"), "{error:#}");
    let joined = world.spawn(&["start", "with", "--json"]);
    wait_until("it has joined", || world.has_event("run_a_001", "run.attached", ""));
    world.open("go");
    assert_eq!(first.end().exit, 0);
    let joined = joined.end();
    assert_eq!((joined.exit, &joined.json()["run"]), (0, &"run_a_001".into()), "{}", joined.stderr);
    assert_eq!(world.lines("e"), 1);
}

#[test]
fn r_w6_a_run_that_waits_for_its_turn_can_be_interrupted_and_canceled() {
    let world = World::new();
    grouped(&world, "a", "queue");
    grouped(&world, "b", "queue");
    let first = world.spawn_until(&["start", "a"], "e-a");
    let second = world.spawn(&["start", "b", "--json"]);
    wait_until("it is accepted", || world.run(&["show", "run_b_001"]).exit == 0);
    second.signal(rustix::process::Signal::INT);
    let out = second.end();
    assert_ne!(out.exit, 0, "{}", out.stdout);
    let canceled = world.run(&["cancel", "b"]);
    assert_eq!(canceled.exit, 0, "{}", canceled.stderr);
    assert_eq!(world.show("run_b_001")["status"], "CANCELED");
    world.open("go");
    assert_eq!(first.end().exit, 0);
    assert_eq!(world.lines("e"), 1);
}

#[test]
fn r_s5_what_changed_while_a_run_waited_for_its_turn_is_seen() {
    let world = World::new();
    grouped(&world, "a", "queue");
    grouped(&world, "b", "queue");
    let first = world.spawn_until(&["start", "a"], "e-a");
    let second = world.spawn(&["start", "b", "--json"]);
    let (waits, turn) = (|| world.json(&["status", "b"]).1["runs"][0]["sentence"].clone(), "waits for");
    wait_until("it waits", || waits().as_str().is_some_and(|text| text.contains(turn)));
    // More than the run was accepted under.
    world.policy(&[("env", "[ SOMETHING_MORE ]")]);
    world.open("go");
    assert_eq!(first.end().exit, 0);
    let out = second.end();
    assert_eq!((out.exit, &out.json()["code"]), (17, &"REVIEW_REQUIRED".into()), "{}", out.stderr);
    assert_eq!(world.lines("e"), 1, "nothing was executed");
}

#[test]
fn fr_i7_two_state_folders_of_one_repository_do_not_collide() {
    let world = World::new();
    world.agent_task("t", "dirty:w.txt,ok");
    assert_eq!(world.start("t").0, 0);
    let mut call = world.agentrun(&["start", "t", "--json"]);
    call.env("AGENTRUN_HOME", world.path("other-state"));
    let out = crate::world::Output::of(call);
    assert_eq!(out.exit, 0, "{}", out.stdout);
    assert_eq!(out.json()["run"], "run_t_002", "R-M2: a ref is never overwritten");
    assert!(world.path("other-state/run_t_002").is_dir());
}

#[test]
fn fr_i4_fr_i10_fr_i11_many_writers_and_readers_meet_no_lock() {
    let world = World::new();
    for n in 0..6 {
        let steps = idle_steps(15);
        world.task(&format!("t{n}"), &format!("steps:\n{steps}"));
    }
    thread::scope(|scope| {
        let world = &world;
        let writers: Vec<_> = (0..6).map(|n| scope.spawn(move || world.start(&format!("t{n}")))).collect();
        let readers: Vec<_> =
            (0..3).map(|_| scope.spawn(move || (0..10).map(|_| world.run(&["status"]).exit).max())).collect();
        for writer in writers {
            let (exit, run) = writer.join().unwrap();
            assert_eq!(exit, 0, "{run:#}");
        }
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Some(0));
        }
    });
    let (exit, log) = world.json(&["audit", "verify"]);
    assert_eq!(exit, 0, "{log:#}");
}
