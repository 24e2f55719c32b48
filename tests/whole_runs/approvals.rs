//! What persons are asked for and what they say: parked in a moment, decided elsewhere, used once (R-A9).

use crate::world::{World, command_step};

/// A deployment that a person must agree to; each one that takes place is a line in `deployed`.
fn parked(world: &World, approval: &str) {
    world.policy(&[("rules", &format!("[ {{ id: prod, approve: deploy{approval} }} ]"))]);
    let build = command_step("build", &format!("echo x >> {}; echo app > app", world.at("builds")));
    let deploy = format!("echo $AGENTRUN_RELEASE >> {}", world.at("deployed"));
    world.task(
        "ship",
        &format!(
            "steps:\n{build}  - {{ key: rel, kind: release, release: r1, artifacts: [ app ] }}\n  \
             - {{ key: deploy, kind: deploy, environment: production, run: \"{deploy}\" }}\n"
        ),
    );
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["status"]), (3, &"WAITING_APPROVAL".into()), "{run:#}");
    assert_eq!(world.lines("deployed"), 0);
}

#[test]
fn r_a9_fr_b1_fr_b10_parked_approved_and_resumed_nothing_is_repeated() {
    let world = World::new();
    parked(&world, "");
    let (exit, asked) = world.json(&["approval", "show", "run_ship_001_deploy"]);
    assert_eq!((exit, &asked["state"], &asked["subject"]["target"]), (0, &"OPEN".into(), &"production".into()));
    let digest = asked["digest"].as_str().unwrap().to_owned();
    let silent = world.run(&["approve", "run_ship_001_deploy"]);
    assert_eq!(silent.exit, 2, "nobody is asked on a pipe: {}", silent.stderr);
    assert!(silent.stderr.contains(&digest), "the exact command is told: {}", silent.stderr);
    let (exit, agreed) = world.json(&["approve", "run_ship_001_deploy", "--digest", &digest, "--reason", "looked"]);
    assert_eq!((exit, &agreed["state"]), (0, &"APPROVED".into()), "{agreed:#}");
    let (exit, run) = world.json(&["resume", "run_ship_001"]);
    assert_eq!((exit, &run["status"], &run["attempt"]), (0, &"SUCCEEDED".into(), &2.into()), "{run:#}");
    assert_eq!((world.lines("deployed"), world.lines("builds")), (1, 1));
    let (_, used) = world.json(&["approval", "show", "run_ship_001_deploy"]);
    assert_eq!((&used["state"], &used["decided_by"]), (&"USED".into(), &agreed["decided_by"]));
    world.assert_sound("run_ship_001");
}

#[test]
fn f49_fr_b8_what_is_changed_after_it_was_approved_is_asked_for_anew() {
    let world = World::new();
    parked(&world, "");
    assert_eq!(world.json(&["approve", "run_ship_001", "--yes"]).0, 0);
    std::fs::write(world.state("work/run_ship_001/app2"), "other contents").unwrap();
    let (exit, run) = world.json(&["resume", "run_ship_001", "--keep"]);
    assert_eq!((exit, &run["status"], world.lines("deployed")), (3, &"WAITING_APPROVAL".into(), 0), "{run:#}");
    let (_, all) = world.json(&["approval", "list", "--all"]);
    let states: Vec<_> = all["approvals"].as_array().unwrap().iter().map(|a| a["state"].clone()).collect();
    assert_eq!(states, ["OPEN", "VOID"], "{all:#}");
}

#[test]
fn f49_a_digest_of_something_else_decides_nothing() {
    let world = World::new();
    parked(&world, "");
    let other = format!("sha256:{}", "0".repeat(64));
    let (exit, error) = world.json(&["approve", "run_ship_001", "--digest", &other]);
    assert_eq!((exit, &error["code"]), (8, &"APPROVAL_MISMATCH".into()), "{error:#}");
    assert_eq!(world.json(&["approval", "show", "run_ship_001"]).1["state"], "OPEN");
}

#[test]
fn f48_of_many_who_decide_one_does_and_the_others_are_told_who() {
    let world = World::new();
    parked(&world, "");
    let decide = |verb| world.spawn(&[verb, "run_ship_001", "--yes", "--json"]);
    let all: Vec<_> = (0..8).map(|n| decide(if n % 2 == 0 { "approve" } else { "reject" })).collect();
    let ended: Vec<_> = all.into_iter().map(crate::world::Running::end).collect();
    assert_eq!(ended.iter().filter(|one| one.exit == 0).count(), 1, "{ended:#?}");
    assert!(ended.iter().all(|one| [0, 8].contains(&one.exit)), "{ended:#?}");
}

#[test]
fn f51_an_approval_lets_one_deployment_go_however_often_the_run_is_resumed() {
    let world = World::new();
    parked(&world, "");
    assert_eq!(world.json(&["approve", "run_ship_001", "--yes"]).0, 0);
    let all: Vec<_> = (0..8).map(|_| world.spawn(&["resume", "run_ship_001", "--json"])).collect();
    for one in all {
        one.end();
    }
    assert_eq!(world.json(&["resume", "run_ship_001"]).1["status"], "SUCCEEDED");
    assert_eq!(world.lines("deployed"), 1);
}

#[test]
fn fr_b7_an_approval_whose_time_is_over_is_asked_for_again() {
    let world = World::new();
    parked(&world, ", approval: { expires: 1s }");
    assert_eq!(world.json(&["approve", "run_ship_001", "--yes"]).0, 0);
    crate::world::wait_until("its time is over", || {
        let at = world.json(&["approval", "show", "run_ship_001"]).1["expires_at"].as_str().unwrap().to_owned();
        let at: jiff::Timestamp = at.parse().unwrap();
        at < jiff::Timestamp::now()
    });
    let (exit, run) = world.json(&["resume", "run_ship_001"]);
    assert_eq!((exit, world.lines("deployed")), (3, 0), "{run:#}");
}

#[test]
fn r_a9_a_no_ends_the_run_and_says_why() {
    let world = World::new();
    parked(&world, "");
    assert_eq!(world.json(&["reject", "run_ship_001", "--yes", "--reason", "not today"]).0, 0);
    let run = world.show("run_ship_001");
    assert_eq!((&run["status"], &run["code"]), (&"FAILED".into(), &"APPROVAL_REJECTED".into()), "{run:#}");
    assert!(run["message"].as_str().unwrap().contains("not today"), "{run:#}");
    assert_eq!(world.lines("deployed"), 0);
}

#[test]
fn f50_an_approval_that_comes_after_a_cancel_is_refused() {
    let world = World::new();
    parked(&world, "");
    let (_, asked) = world.json(&["approval", "show", "run_ship_001"]);
    let id = asked["approval"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["cancel", "run_ship_001"]).exit, 0);
    let (exit, error) = world.json(&["approve", &id, "--yes"]);
    assert!([8, 9].contains(&exit), "{error:#}");
    assert_eq!(world.lines("deployed"), 0);
}

#[test]
fn fr_b5_what_waits_for_a_person_waits_over_kills_and_restarts() {
    let world = World::new();
    parked(&world, "");
    for _ in 0..3 {
        let (exit, run) = world.json(&["resume", "run_ship_001"]);
        assert_eq!((exit, &run["status"]), (3, &"WAITING_APPROVAL".into()), "{run:#}");
    }
    let (_, list) = world.json(&["approval", "list"]);
    assert_eq!(list["approvals"].as_array().unwrap().len(), 1, "one question, however often it is resumed: {list:#}");
}
