//! Deployments by a script of the repository: what hangs, dies, is not good, or is there already.

use serde_json::json;

use crate::provider::Provider;
use crate::shop::{action, allow_all, command};
use crate::world::{World, command_step, states};

fn deploys(world: &World, provider: &Provider, more: &str) {
    world.task(
        "ship",
        &format!(
            "steps:\n{}  - {{ key: rel, kind: release, release: \"r-{{{{ run.short_commit }}}}\", artifacts: [ app ] }}\n  \
             - key: deploy\n    kind: deploy\n    environment: production\n    run: {}\n{more}",
            command_step("build", &format!("echo x >> {}; echo app > app", world.at("builds"))),
            command(provider, "act"),
        ),
    );
}

#[test]
fn r_a10_a_release_is_deployed_once_and_the_next_run_is_told_so() {
    let (world, provider) = (World::new(), Provider::new());
    allow_all(&world);
    deploys(&world, &provider, "");
    assert_eq!(world.start("ship").0, 0);
    let (exit, run) = world.json(&["start", "ship", "--new"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1);
    assert!(world.has_event("run_ship_002", "warning.raised", "ALREADY_DEPLOYED"));
}

#[test]
fn fr_deploy_that_hangs_after_it_worked_is_settled_by_its_status() {
    let (world, provider) = (World::new(), Provider::new());
    allow_all(&world);
    provider.knobs(json!({ "hang": true }));
    let status = format!("    status: {}\n    timeout: 1s\n", command(&provider, "status"));
    deploys(&world, &provider, &status);
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn f65_a_deploy_that_is_killed_is_unknown_and_not_run_again() {
    let (world, provider) = (World::new(), Provider::new());
    allow_all(&world);
    provider.knobs(json!({ "die": 9 }));
    deploys(&world, &provider, "");
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["status"]), (4, &"OUTCOME_UNKNOWN".into()), "{run:#}");
    let (exit, run) = world.json(&["resume", "run_ship_001"]);
    assert_eq!((exit, &action(&run)["state"]), (4, &"OUTCOME_UNKNOWN".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 1);
}

#[test]
fn r_s2_a_failed_deploy_reruns_no_build_and_a_bad_deployment_is_not_deployed_again() {
    let (world, provider) = (World::new(), Provider::new());
    allow_all(&world);
    provider.knobs(json!({ "effect": false, "print": "{\"effect\":\"none\"}", "exit": 1, "times": 1 }));
    let verify = format!("    verify: {{ smoke: \"test -e {}\" }}\n", world.at("good"));
    deploys(&world, &provider, &verify);
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["status"]), (1, &"FAILED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 0);
    let (exit, run) = world.json(&["resume", "run_ship_001"]);
    assert_eq!((exit, &run["code"]), (1, &"VERIFY_FAILED".into()), "{run:#}");
    world.open("good");
    let (exit, run) = world.json(&["resume", "run_ship_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{:#?}", states(&run));
    assert_eq!((provider.ledger().len(), world.lines("builds")), (1, 1));
}

#[test]
fn r_a9_a_deploy_that_needs_a_person_parks_at_once_and_survives() {
    let (world, provider) = (World::new(), Provider::new());
    let mut sections = crate::shop::SECTIONS;
    sections[1] = ("rules", "[ { id: prod, approve: deploy } ]");
    world.policy(&sections);
    deploys(&world, &provider, "");
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["status"]), (3, &"WAITING_APPROVAL".into()), "{run:#}");
    let (exit, run) = world.json(&["resume", "run_ship_001"]);
    assert_eq!((exit, &action(&run)["state"]), (3, &"WAITING_APPROVAL".into()), "{run:#}");
    assert_eq!((provider.ledger().len(), world.lines("builds")), (0, 1));
}

#[test]
fn r_p2_without_a_policy_file_nothing_reaches_the_outside() {
    let (world, provider) = (World::new(), Provider::new());
    deploys(&world, &provider, "");
    std::fs::remove_file(world.repo().join("automation-policy.yml")).unwrap();
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["code"]), (5, &"POLICY_DENIED".into()), "{run:#}");
    assert_eq!(provider.ledger().len(), 0);
}

#[test]
fn r_p3_a_deploy_whose_script_does_what_the_policy_denies_is_not_started() {
    let (world, provider) = (World::new(), Provider::new());
    let mut sections = crate::shop::SECTIONS;
    sections[1] = ("rules", "[ { id: all, allow: \"*\" }, { id: no-force, deny: git.push, when: { force: true } } ]");
    world.policy(&sections);
    let build = command_step("build", "echo app > app");
    let line = format!("echo x >> {}; git push --force origin main", world.at("ran"));
    world.task(
        "ship",
        &format!(
            "steps:\n{build}  - {{ key: rel, kind: release, release: r1, artifacts: [ app ] }}\n  \
             - {{ key: deploy, kind: deploy, environment: production, run: \"{line}\" }}\n"
        ),
    );
    let (exit, run) = world.start("ship");
    assert_eq!((exit, &run["code"], world.lines("ran")), (5, &"POLICY_DENIED".into(), 0), "{run:#}");
    assert!(world.has_event("run_ship_001", "policy.denied", "no-force"));
    drop(provider);
}
