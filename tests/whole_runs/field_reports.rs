//! What people reported of other programs that do such work (FR-…), where no other room has the row: going on from elsewhere,
//! repairing what failed and nothing else, limits over many runs.

use serde_json::Value;

use crate::world::{Output, World, command_step, qa_step, states, step};

/// A task that fails until a gate is there, after an effect that must not come twice.
fn repairable(world: &World) {
    let pwd = command_step("where", &format!("pwd >> {0}; test -e {1}", world.at("where"), world.at("fixed")));
    let done = command_step("done", &format!("echo x >> {}", world.at("done")));
    world.task("t", &format!("steps:\n{done}{pwd}"));
}

#[test]
fn fr_d10_a_run_is_gone_on_with_in_its_own_copy_wherever_one_stands() {
    let world = World::new();
    repairable(&world);
    assert_eq!(world.start("t").0, 1);
    world.open("fixed");
    let mut resume = world.agentrun(&["resume", "run_t_001", "--json"]);
    resume.current_dir(world.repo().join("src"));
    let out = Output::of(resume);
    assert_eq!(out.exit, 0, "{}{}", out.stdout, out.stderr);
    let places = std::fs::read_to_string(world.path("where")).unwrap();
    let copy = world.state("work/run_t_001").display().to_string();
    assert!(places.lines().count() == 2 && places.lines().all(|place| place == copy), "{places}");
}

#[test]
fn fr_d11_a_wrong_folder_is_named_as_what_is_wrong() {
    let world = World::new();
    repairable(&world);
    assert_eq!(world.start("t").0, 1);
    let (exit, error) = {
        let other = World::new();
        let mut resume = other.agentrun(&["resume", "run_t_001", "--json"]);
        resume.current_dir(other.repo());
        let out = Output::of(resume);
        (out.exit, out.json()["message"].as_str().unwrap().replace(&other.repo().display().to_string(), "<there>"))
    };
    assert_eq!((exit, error.as_str()), (16, "there is no run, task or support code `run_t_001` in <there>"));
    let nowhere = tempfile::tempdir().unwrap();
    let mut resume = world.agentrun(&["resume", "run_t_001"]);
    resume.current_dir(nowhere.path());
    let out = Output::of(resume);
    assert_eq!(out.exit, 11, "{}", out.stderr);
    assert!(out.stderr.contains(&nowhere.path().display().to_string()), "{}", out.stderr);
}

#[test]
fn fr_d19_fr_d14_what_failed_is_tried_again_and_what_waited_for_it_follows() {
    let world = World::new();
    let rest = command_step("after", &format!("echo x >> {}", world.at("after")));
    repairable(&world);
    let task = world.read("tasks/t.yml");
    world.write("tasks/t.yml", &format!("{task}{rest}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &step(&run, "after")["state"]), (1, &"BLOCKED".into()), "not skipped, and said: {run:#}");
    assert!(run["next"].as_str().unwrap().contains("agentrun resume"), "{run:#}");
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!((exit, &step(&run, "where")["runs"]), (1, &2.into()), "it fails again, and may be tried again");
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!((exit, world.lines("done"), world.lines("after")), (0, 1, 1), "{run:#}");
    assert!(states(&run).iter().all(|(_, state)| state == "SUCCEEDED"), "{run:#}");
}

#[test]
fn fr_d25_of_five_side_by_side_only_the_two_that_failed_run_again() {
    let world = World::new();
    let child = |n: usize| {
        let line = format!("echo x >> {}; {}", world.at(&format!("c{n}")), {
            if n < 3 { "true".to_owned() } else { format!("test -e {}", world.at("fixed")) }
        });
        command_step(&format!("c{n}"), &line) + "    needs: []\n"
    };
    world.task("t", &format!("steps:\n{}", (0..5).map(child).collect::<String>()));
    assert_eq!(world.start("t").0, 1);
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "t"]);
    let lines: Vec<usize> = (0..5).map(|n| world.lines(&format!("c{n}"))).collect();
    assert_eq!((exit, lines), (0, vec![1, 1, 1, 2, 2]), "{run:#}");
}

#[test]
fn fr_d28_work_that_the_agent_left_on_another_branch_comes_home() {
    let world = World::new();
    let line = "git checkout -q -b elsewhere && echo w > w.txt && git add w.txt && \
                git -c user.name=a -c user.email=a@example.invalid commit -q -m mine";
    world.task("t", &format!("steps:\n{}{}", command_step("work", line), qa_step("qa", "test -e w.txt")));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w");
}

#[test]
fn fr_f14_fr_f8_a_limit_holds_over_all_runs_of_a_task_and_refuses_before_anything_is_started() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { tokens: 300, attempts: 20, time: 30m } }")]);
    world.agent_task("t", &format!("session:s,effect:{},usage:100,error:VALIDATION_ERROR", world.at("e")));
    let exits: Vec<i32> = (0..10).map(|_| world.json(&["start", "t", "--new"]).0).collect();
    assert_eq!(exits, [1, 1, 1, 6, 6, 6, 6, 6, 6, 6], "the third uses up what there is, no other begins");
    assert_eq!(world.lines("e"), 3);
    let (_, all) = world.json(&["status", "--all"]);
    assert_eq!(all["runs"].as_array().unwrap().len(), 3, "a refused one is no run");
}

#[test]
fn fr_f29_a_refusal_for_good_says_what_must_change() {
    let world = World::new();
    world.agent_task("t", &format!("session:s,effect:{},error:AUTH_FAILED", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"], world.lines("e")), (1, &"AUTH_FAILED".into(), 1), "{run:#}");
    let told = world.run(&["start", "t"]);
    assert_eq!((told.exit, world.lines("e")), (1, 1), "nothing is tried again by itself");
    let words = told.stdout + &told.stderr;
    assert!(words.contains("AUTH_FAILED") && words.contains("agentrun resume"), "{words}");
}

#[test]
fn fr_h8_after_a_cancel_the_same_task_can_be_started() {
    let world = World::new();
    world.agent_task("t", &format!("append:{0}={0},wait-for:{1},write:w.txt=w,ok", world.at("in"), world.at("go")));
    let running = world.spawn_until(&["start", "t"], "in");
    assert_eq!(world.run(&["cancel", "t"]).exit, 0);
    assert_eq!(running.end().exit, 9);
    world.open("go");
    let (exit, run) = world.json(&["start", "t", "--new"]);
    assert_eq!((exit, &run["run"]), (0, &"run_t_002".into()), "{run:#}");
    world.assert_sound("run_t_002");
}

#[test]
fn fr_h14_a_copy_that_could_not_be_made_is_a_failed_attempt_and_can_be_tried_again() {
    let world = World::new();
    world.agent_task("t", "write:w.txt=w,ok");
    assert_eq!(world.json(&["start", "t", "--detach", "--dry-run"]).0, 0);
    std::fs::create_dir_all(world.state("")).unwrap();
    std::fs::write(world.state("work"), "in the way").unwrap();
    let (exit, refused) = world.start("t");
    assert_ne!(exit, 0, "{refused:#}");
    std::fs::remove_file(world.state("work")).unwrap();
    let (exit, run) = world.json(&["start", "t", "--resume"]);
    assert_eq!((exit, &run["status"]), (0, &Value::from("SUCCEEDED")), "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn fr_h25_gc_leaves_a_run_at_work_alone() {
    let world = World::new();
    world.policy(&[("retention", "{ runs: 1ms }")]);
    world.agent_task("t", &format!("append:{0}={0},wait-for:{1},write:w.txt=w,ok", world.at("in"), world.at("go")));
    let running = world.spawn_until(&["start", "t"], "in");
    assert_eq!(world.run(&["gc"]).exit, 0);
    world.open("go");
    assert_eq!(running.end().exit, 0);
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w");
    world.assert_sound("run_t_001");
}

#[test]
fn fr_i13_a_second_caller_waits_for_the_record_and_hears_no_words_of_the_database() {
    let world = World::new();
    world.agent_task("t", "ok");
    assert_eq!(world.start("t").0, 0);
    let db = rusqlite::Connection::open(world.state("state/agentrun.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    world.agent_task("u", "ok");
    let mut waits = world.spawn(&["start", "u", "--json"]);
    let looks = || world.json(&["status"]).0;
    assert_eq!((looks(), waits.is_over()), (0, false), "reading is not in its way");
    db.execute_batch("COMMIT").unwrap();
    let out = waits.end();
    assert_eq!(out.exit, 0, "{}{}", out.stdout, out.stderr);
    assert!(!out.stderr.contains("locked"), "{}", out.stderr);
}
