//! The user's git folder over a run's whole life (F81): changed after the last agent, changed and then agentrun killed, changed
//! by the user between two attempts.

use crate::world::{World, agent_step, step};

/// A line for a shell that arms the user's git folder, and one that takes it back.
fn arm_and_disarm(world: &World) -> (String, String) {
    let config = world.repo().join(".git/config").display().to_string();
    let arm = format!(
        "cp {config} {0}; printf '[core]\n fsmonitor = touch {1}\n' >> {config}",
        world.at("was"),
        world.at("sentinel")
    );
    (arm, format!("cp {} {config}", world.at("was")))
}

#[test]
fn f81_what_a_command_after_the_last_agent_changes_in_the_git_folder_blocks_the_run() {
    for kind in ["qa", "command"] {
        let world = World::new();
        let (arm, disarm) = arm_and_disarm(&world);
        let last = format!("  - key: last\n    kind: {kind}\n    run: {}\n", serde_json::to_string(&arm).unwrap());
        world.task("t", &format!("steps:\n{}{last}", agent_step("code", "dirty:w.txt,ok")));
        let (exit, run) = world.start("t");
        assert_eq!(
            (exit, &run["status"], &run["code"]),
            (15, &"BLOCKED".into(), &"GIT_TAMPER".into()),
            "{kind}: {run:#}"
        );
        assert!(run["message"].as_str().unwrap().contains("fsmonitor"), "{run:#}");
        assert_eq!(
            world.git(&["-c", "core.fsmonitor=false", "show", "agentrun/run_t_001:w.txt"]),
            "changed by the fake agent"
        );
        assert_eq!(world.run(&["resume", "t"]).exit, 15, "not without saying what was done about it");
        world.command("sh").args(["-c", &disarm]).status().unwrap();
        let (exit, run) = world.json(&["resume", "t", "--reason", "the line was taken out"]);
        assert_eq!((exit, step(&run, "last")["runs"].as_u64()), (0, Some(1)), "{run:#}");
        assert!(!world.path("sentinel").exists());
    }
}

#[test]
fn f81_what_changed_in_the_git_folder_before_agentrun_was_killed_is_seen_by_whoever_takes_over() {
    let world = World::new();
    let (arm, disarm) = arm_and_disarm(&world);
    let line = format!(
        "echo x >> {}; test -e {} && exit 0; {arm}; touch {}; sleep 60",
        world.at("e"),
        world.at("go"),
        world.at("in")
    );
    world.command_task("t", &line);
    world.spawn_until(&["start", "t"], "in").kill();
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!((exit, &run["status"], &run["code"]), (15, &"BLOCKED".into(), &"GIT_TAMPER".into()), "{run:#}");
    assert_eq!(world.lines("e"), 1, "nothing was executed over it");
    world.command("sh").args(["-c", &disarm]).status().unwrap();
    world.open("go");
    let (exit, run) = world.json(&["resume", "t", "--reason", "the line was taken out"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(!world.path("sentinel").exists());
}

#[test]
fn f81_what_a_person_changes_in_the_git_folder_between_two_attempts_is_no_tampering() {
    let world = World::new();
    world.command_task("t", &format!("test -e {}", world.at("go")));
    assert_eq!(world.start("t").0, 1);
    world.git(&["config", "core.editor", "vi"]);
    world.git(&["config", "alias.st", "status"]);
    world.open("go");
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
}
