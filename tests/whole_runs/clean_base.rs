//! What the next attempt begins from (R-W3, R-W4): the state before the failed step and nothing half, whatever was deleted,
//! cut off in the middle, or written by somebody who outlived his agentrun.

use std::fs;

use serde_json::Value;

use crate::world::{Output, World, agent_step, command_step, wait_until};

/// A world with enough files to lose most of them.
fn many_files() -> World {
    let world = World::new();
    for n in 0..20 {
        world.write(&format!("lib/{n}.txt"), &format!("{n}\n"));
    }
    world.git(&["add", "lib"]);
    world.git(&["commit", "-qm", "many"]);
    world
}

fn saved_patches(world: &World, run: &Value) -> String {
    let saved = run["artifacts"].as_array().unwrap().iter().filter(|a| a["type"] == "SAVED_WORK");
    saved.map(|a| fs::read_to_string(world.state("run_t_001").join(a["path"].as_str().unwrap())).unwrap()).collect()
}

fn tree(world: &World) -> String {
    world.git(&["ls-tree", "-r", "--name-only", "agentrun/run_t_001"])
}

#[test]
fn r_w3_a_retried_agent_finds_what_the_commands_before_it_have_made() {
    let world = World::new();
    let once = format!("test -e {0} && exit 0; touch {0}; echo half > half.txt; exit 1", world.at("tried"));
    world.policy(&[("agents", "{ shell: { run: [ sh, -c ], protocol: text } }")]);
    let agent = |key: &str, script: &str| {
        let script = serde_json::to_string(script).unwrap();
        format!(
            "  - key: {key}\n    kind: agent\n    agent: {{ name: shell, args: [ {script} ] }}\n    prompt: prompts/do.md\n"
        )
    };
    let second = format!("cat made.txt > {}; echo ok; {once}", world.at("seen"));
    let steps = agent("first", "echo first > first.txt; echo ok")
        + &command_step("make", "echo made > made.txt")
        + &agent("second", &second);
    world.task("t", &format!("steps:\n{steps}"));
    assert_ne!(world.start("t").0, 0);
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(fs::read_to_string(world.path("seen")).unwrap(), "made\n", "R-S2: `make` is done and is not repeated");
    let files = tree(&world);
    assert!(files.contains("first.txt") && files.contains("made.txt") && !files.contains("half.txt"), "{files}");
    assert!(saved_patches(&world, &run).contains("+half"), "{run:#}");
}

#[test]
fn r_w3_fr_h28_a_half_deleted_copy_is_made_again_and_what_was_new_in_it_is_saved() {
    let world = many_files();
    let gate = command_step("gate", &format!("test -e {}", world.at("fixed")));
    world.task("t", &format!("steps:\n{}{gate}", agent_step("code", "write:a.txt=a,ok")));
    assert_eq!(world.start("t").0, 1);
    let copy = world.state("work/run_t_001");
    fs::remove_dir_all(copy.join("lib")).unwrap();
    fs::remove_dir_all(copy.join("src")).unwrap();
    fs::write(copy.join("mine.txt"), "mine\n").unwrap();
    world.open("fixed");
    let (exit, told) = world.json(&["resume", "t", "--dry-run"]);
    assert_eq!((exit, &told["differences"][0]["code"]), (0, &"WORKTREE_CHANGED".into()), "{told:#}");
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(tree(&world).contains("lib/7.txt") && tree(&world).contains("a.txt") && !tree(&world).contains("mine.txt"));
    let saved = saved_patches(&world, &run);
    assert!(saved.contains("+mine") && !saved.contains("deleted file"), "{saved}");
    assert!(world.has_event("run_t_001", "warning.raised", "tracked files are gone"));
    assert!(world.has_event("run_t_001", "warning.raised", "it lies at"));
    assert!(world.state("work/run_t_001.broken-1/mine.txt").exists());
    world.assert_sound("run_t_001");
}

#[test]
fn r_w3_fr_h28_an_agent_that_deletes_most_files_needs_a_person_unless_it_commits_that() {
    let world = many_files();
    world.policy(&[("agents", "{ shell: { run: [ sh, -c ], protocol: text } }")]);
    let script = format!("test -e {0} || rm -rf lib src; echo x > a.txt; echo ok", world.at("fixed"));
    let agent = |script: &str| {
        let script = serde_json::to_string(script).unwrap();
        format!(
            "steps:\n  - kind: agent\n    agent: {{ name: shell, args: [ {script} ] }}\n    prompt: prompts/do.md\n"
        )
    };
    world.task("t", &agent(&script));
    let (exit, run) = world.start("t");
    assert_eq!(
        (exit, &run["status"], &run["code"]),
        (17, &"REVIEW_REQUIRED".into(), &"REVIEW_REQUIRED".into()),
        "{run:#}"
    );
    assert!(run["message"].as_str().unwrap().contains("21 of 22 tracked files are gone"), "{run:#}");
    assert!(tree(&world).contains("lib/7.txt") && tree(&world).contains("a.txt"), "{}", tree(&world));
    world.open("fixed");
    assert_eq!(world.run(&["resume", "t"]).exit, 17);
    let (exit, run) = world.json(&["resume", "t", "--rebuild"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(tree(&world).contains("lib/7.txt"));

    world.task("u", &agent("git rm -rq lib src; git commit -qm less; echo ok"));
    let (exit, run) = world.start("u");
    assert_eq!(exit, 0, "what is committed is meant: {run:#}");
    assert!(!world.git(&["ls-tree", "-r", "--name-only", "agentrun/run_u_001"]).contains("lib/"));
}

/// Calls agentrun with a kill planned for it.
fn killed_at(world: &World, args: &[&str], point: &str) {
    let mut command = world.agentrun(args);
    command.env("AGENTRUN_FAIL", format!("{point}:kill@1"));
    let out = Output::of(command);
    assert_eq!(out.exit, -9, "{point}: {}", out.stderr);
}

#[test]
fn r_w3_f01_a_kill_in_the_middle_of_a_rebuilding_leaves_nothing_half() {
    for point in ["before/restore", "after/restore"] {
        let world = many_files();
        let script = "write:lib/3.txt=changed,write:left.txt=left,session:s,error:AUTH_FAILED";
        world.task("t", &format!("keep_changes: review\nsteps:\n{}", agent_step("code", script)));
        assert_eq!(world.start("t").0, 17);
        killed_at(&world, &["resume", "t", "--rebuild"], point);
        // As far as the rebuilding got: some of its files are written, some removed, and some not yet.
        let copy = world.state("work/run_t_001");
        fs::write(copy.join("lib/3.txt"), "3\n").unwrap();
        for n in 4..9 {
            let _ = fs::remove_file(copy.join(format!("lib/{n}.txt")));
        }
        world.json(&["resume", "t"]);
        assert!(world.has_event("run_t_001", "warning.raised", "finished now"), "{point}");
        let run = world.show("run_t_001");
        let saved = saved_patches(&world, &run);
        assert!(saved.contains("+left") && saved.contains("+changed"), "{point}: {saved}");
        let files = tree(&world);
        assert!(files.contains("lib/4.txt") && files.contains("lib/8.txt"), "{point}: {files}");
        world.assert_sound("run_t_001");
    }
}

/// A command that is killed with its agentrun, works on when `go` is there, says `late` and stays.
fn orphaned(world: &World, late: &str) {
    let line = format!(
        "test -e {0} && exit 0; touch {0} {1}; while ! test -e {2}; do sleep 0.01; done; {late}; touch {3}; sleep 100",
        world.at("was-here"),
        world.at("in"),
        world.at("go"),
        world.at("late")
    );
    world.task("t", &format!("steps:\n{}{}", agent_step("code", "write:a.txt=a,ok"), command_step("work", &line)));
    world.spawn_until(&["start", "t"], "in").kill();
    world.open("go");
    wait_until("it has worked late", || world.path("late").exists());
}

#[test]
fn f31_r_w4_what_an_orphan_commits_late_is_reported_and_kept_and_no_part_of_the_run() {
    let world = World::new();
    let late = "echo late > late.txt; git add late.txt; GIT_COMMITTER_DATE=2099-01-01T00:00:00Z git commit -qm late";
    orphaned(&world, late);
    let commit = world.git_in(&world.state("work/run_t_001"), &["rev-parse", "HEAD"]);
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.has_event("run_t_001", "leftovers.ended", ""));
    assert!(world.has_event("run_t_001", "warning.raised", &format!("orphan_write: commit {commit}")));
    let history = world.git(&["rev-list", "agentrun/run_t_001"]);
    assert!(!history.contains(&commit), "{history}");
    let pins = world.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/agentrun/run_t_001/kept-*"]);
    assert!(pins.contains(&commit), "{pins}");
    let report = fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
    assert!(report.contains("orphan") && report.contains(&commit), "{report}");
    world.assert_sound("run_t_001");
}

#[test]
fn f31_what_an_orphan_writes_late_is_named() {
    let world = World::new();
    orphaned(
        &world,
        "echo late > late.txt; touch -d 2099-01-01 late.txt; echo early > early.txt; touch -d 2001-01-01 early.txt",
    );
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.has_event("run_t_001", "warning.raised", "when its agentrun was gone: late.txt"));
    assert!(!world.has_event("run_t_001", "warning.raised", "early.txt"));
}

#[test]
fn f31_r_w3_an_agent_in_whose_copy_somebody_wrote_late_begins_anew_and_the_work_is_a_patch() {
    let world = World::new();
    let script =
        format!("echo-session,append:w.txt=x,touch:{},wait-for:{},result:Done.", world.at("in"), world.at("go"));
    world.task("t", &format!("steps:\n{}", agent_step("code", &script)));
    let running = world.spawn_until(&["start", "t"], "in");
    wait_until("its conversation is recorded", || world.show("run_t_001")["executions"][0]["session"].is_string());
    running.kill();
    let late = world.state("work/run_t_001/late.txt");
    fs::write(&late, "late\n").unwrap();
    let touched = world.command("touch").args(["-d", "2099-01-01", late.to_str().unwrap()]).status().unwrap();
    assert!(touched.success());
    world.open("go");
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.has_event("run_t_001", "warning.raised", "orphan_write"));
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "x", "not xx");
    assert!(!tree(&world).contains("late.txt") && saved_patches(&world, &run).contains("+late"), "{run:#}");
}

#[test]
fn r_r4_time_in_which_nobody_worked_is_no_active_time() {
    let world = World::new();
    world.agent_task("t", &format!("session:s,touch:{},wait-for:{},ok", world.at("in"), world.at("go")));
    world.spawn_until(&["start", "t"], "in").kill();
    // It was killed an hour ago.
    let database = rusqlite::Connection::open(world.state("state/agentrun.db")).unwrap();
    for sql in [
        "UPDATE run SET heartbeat_at = heartbeat_at - 3600000",
        "UPDATE execution SET started_at = started_at - 3600000",
    ] {
        assert_eq!(database.execute(sql, ()).unwrap(), 1, "{sql}");
    }
    drop(database);
    world.open("go");
    let (_, run) = world.json(&["resume", "t"]);
    let wall = run["usage"]["wall_ms"].as_u64().unwrap();
    assert!(wall < 600_000, "an hour without agentrun is not counted: {run:#}");
}
