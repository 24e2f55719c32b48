//! agentrun is killed in the middle of a run, and the run goes on: what became of an agent's work, of processes that were
//! left, of a holder that comes back. Kills at every moment stand in `kill_points`.

use std::thread;

use rustix::process::Signal;

use crate::world::{Output, Running, World, agent_step, command_step, qa_step, states, step, told, wait_until};

/// The transcript of the agent has this text.
fn agent_said(world: &World, text: &str) -> bool {
    let file = world.state("run_t_001/attempt-1/code.events.jsonl");
    std::fs::read_to_string(file).unwrap_or_default().contains(text)
}

#[test]
fn r_w4_an_agent_that_had_finished_is_adopted_and_not_paid_twice() {
    let world = World::new();
    let script = format!(
        "session:s,effect:{},write:w.txt=w,usage:100,result:Done.,touch:{},silent",
        world.at("e"),
        world.at("in")
    );
    world.task("t", &format!("steps:\n{}{}", agent_step("code", &script), qa_step("qa", "test -e w.txt")));
    let running = world.spawn_until(&["start", "t"], "in");
    wait_until("its last word is on disk", || agent_said(&world, "Done."));
    running.kill();
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, world.lines("e"), &step(&run, "code")["runs"]), (0, 1, &1.into()), "{run:#}");
    assert_eq!(run["usage"]["tokens"], 100);
    assert!(world.has_event("run_t_001", "agent.adopted", ""));
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w");
    world.assert_sound("run_t_001");
}

#[test]
fn fr_d1_r_w3_an_agent_that_had_not_finished_goes_on_in_its_conversation_and_its_work_is_kept() {
    let world = World::new();
    let script = format!(
        "echo-session,env-to:{},append:w.txt=x,usage:100,touch:{},wait-for:{},result:Done.",
        world.at("env"),
        world.at("in"),
        world.at("go")
    );
    world.task("t", &format!("steps:\n{}", agent_step("code", &script)));
    let running = world.spawn_until(&["start", "t"], "in");
    wait_until("its conversation is recorded", || world.show("run_t_001")["executions"][0]["session"].is_string());
    let session = world.show("run_t_001")["executions"][0]["session"].as_str().unwrap().to_owned();
    running.kill();
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, told(&run)), (0, 200), "each execution is counted once: {run:#}");
    let env = std::fs::read_to_string(world.path("env")).unwrap();
    assert!(env.contains(&format!("AGENTRUN_SESSION={session}\n")), "{env}");
    assert_eq!(run["executions"][1]["session"], session.as_str());
    // The copy was as the agent left it: nothing was put back, and nothing is lost.
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "xx");
    world.assert_sound("run_t_001");
}

#[test]
fn r_w3_an_agent_without_a_conversation_begins_anew_and_its_work_is_kept_as_a_patch() {
    let world = World::new();
    let script = format!("message:hm,append:w.txt=x,touch:{},wait-for:{},result:Done.", world.at("in"), world.at("go"));
    world.task("t", &format!("steps:\n{}", agent_step("code", &script)));
    world.spawn_until(&["start", "t"], "in").kill();
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "x", "from the last snapshot");
    let saved = run["artifacts"].as_array().unwrap().iter().find(|a| a["path"].as_str().unwrap().contains("saved"));
    let saved = saved.unwrap_or_else(|| panic!("{run:#}"))["path"].as_str().unwrap();
    assert!(std::fs::read_to_string(world.state("run_t_001").join(saved)).unwrap().contains("+x"));
    world.assert_sound("run_t_001");
}

#[test]
fn f31_fr_j11_what_a_killed_agentrun_left_running_is_ended_first() {
    let world = World::new();
    let late = world.at("late");
    let line = format!(
        "echo x >> {}; touch {}; (while ! test -e {}; do sleep 0.01; done; touch {late})",
        world.at("e"),
        world.at("in"),
        world.at("go")
    );
    world.command_task("t", &line);
    world.spawn_until(&["start", "t"], "in").kill();
    assert!(!world.living().is_empty(), "the command lives on");
    let orphans = world.living();
    let resumed = world.spawn(&["resume", "run_t_001", "--json"]);
    wait_until("the step began again", || world.lines("e") == 2);
    assert!(orphans.iter().all(|pid| !world.living().contains(pid)), "never beside a living orphan");
    assert!(!world.path("late").exists());
    world.open("go");
    let out = resumed.end();
    assert_eq!(out.exit, 0, "{}", out.stderr);
    assert!(world.has_event("run_t_001", "leftovers.ended", ""));
    world.assert_sound("run_t_001");
}

#[test]
fn f31_the_agent_dies_with_its_agentrun() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},silent", world.at("in")));
    world.spawn_until(&["start", "t"], "in").kill();
    wait_until("nobody is left", || world.living().is_empty());
}

#[test]
fn fr_d13_of_two_resumes_at_once_one_works_and_the_other_is_told() {
    let world = World::new();
    world.agent_task(
        "t",
        &format!("echo-session,effect:{},touch:{},wait-for:{},ok", world.at("e"), world.at("in"), world.at("go")),
    );
    world.spawn_until(&["start", "t"], "in").kill();
    let mut both: Vec<Running> = (0..2).map(|_| world.spawn(&["resume", "run_t_001", "--json"])).collect();
    wait_until("one is told", || both.iter_mut().any(Running::is_over));
    world.open("go");
    let outs: Vec<Output> = both.into_iter().map(Running::end).collect();
    let mut exits: Vec<i32> = outs.iter().map(|o| o.exit).collect();
    exits.sort_unstable();
    assert!(exits == [0, 7] || exits == [0, 8], "{exits:?} {outs:#?}");
    assert_eq!(exits, [0, 7], "{outs:#?}");
    assert_eq!((world.lines("e"), &world.show("run_t_001")["attempt"]), (2, &2.into()));
    world.assert_sound("run_t_001");
}

#[test]
fn fr_d20_a_stall_after_three_steps_loses_at_most_the_fourth() {
    let world = World::new();
    let done = |n: u32| command_step(&format!("s{n}"), &format!("echo {n} >> {}", world.at("order")));
    let stuck = format!(
        "touch {}; while ! test -e {}; do sleep 0.01; done; echo 4 >> {}",
        world.at("in"),
        world.at("go"),
        world.at("order")
    );
    world.task("t", &format!("steps:\n{}{}{}{}", done(1), done(2), done(3), command_step("s4", &stuck)));
    world.spawn_until(&["start", "t"], "in").kill();
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    // The orphan of the first attempt may have written its line before it was ended.
    let order = std::fs::read_to_string(world.path("order")).unwrap();
    assert!(order == "1\n2\n3\n4\n" || order == "1\n2\n3\n4\n4\n", "{order}");
    assert!(states(&run).iter().all(|(_, state)| state == "SUCCEEDED"));
}

#[test]
fn f33_fr_d29_fr_j10_fr_j13_fr_j14_a_holder_that_was_asleep_writes_nothing_after_the_takeover() {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 1500ms, heartbeat: 400ms }"), ("timeouts", "{ call: 10ms, grace: 300ms }")]);
    world.agent_task(
        "t",
        &format!("echo-session,effect:{},touch:{},wait-for:{},ok", world.at("e"), world.at("in"), world.at("go")),
    );
    let asleep = world.spawn_until(&["start", "t", "--json"], "in");
    // Asleep in the middle of a commit it would hold the database's lock, which is another story: put to sleep right after
    // a heartbeat, it does not.
    let beat = || world.show("run_t_001")["last_heartbeat_at"].clone();
    loop {
        let last = beat();
        wait_until("a heartbeat", || beat() != last);
        asleep.signal(Signal::STOP);
        let (_, told) = world.json(&["start", "t", "--no-wait"]);
        if told["code"] != "STORE_BUSY" {
            break;
        }
        asleep.signal(Signal::CONT);
    }
    wait_until("its lease has run out", || world.json(&["status", "t"]).1["runs"][0]["reading"].is_string());
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"], &run["attempt"]), (0, &"SUCCEEDED".into(), &2.into()), "{run:#}");
    let count = world.show("run_t_001")["audit"]["count"].clone();
    asleep.signal(Signal::CONT);
    let late = asleep.end();
    assert_eq!(late.exit, 8, "{}\n{}", late.stdout, late.stderr);
    assert_eq!(late.json()["code"], "FENCED");
    let after = world.show("run_t_001");
    assert_eq!((&after["status"], &after["attempt"]), (&"SUCCEEDED".into(), &2.into()), "I6: terminal is final");
    let new: Vec<_> = world.events("run_t_001").split_off(usize::try_from(count.as_u64().unwrap()).unwrap());
    assert!(new.iter().all(|e| e["kind"] == "write.fenced"), "late facts are kept as evidence only: {new:#?}");
    world.assert_sound("run_t_001");
}

#[test]
fn r_r3_r_r4_a_crash_uses_an_attempt_up_and_after_the_last_one_the_run_is_a_dead_letter() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 2 } }")]);
    world.agent_task(
        "t",
        &format!("effect:{0},append:{1}={0},wait-for:{2},ok", world.at("e"), world.at("in"), world.at("go")),
    );
    let mut running = world.spawn(&["start", "t"]);
    running.reaches(&world.path("in"));
    running.kill();
    std::fs::remove_file(world.path("in")).unwrap();
    world.spawn_until(&["resume", "t"], "in").kill();
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!((exit, &run["status"], world.lines("e")), (1, &"DEAD_LETTER".into(), 2), "FR-F16, FR-F25: {run:#}");
    assert!(world.living().is_empty(), "what the last attempt left is ended");
    world.assert_sound("run_t_001");
    let (exit, error) = world.json(&["resume", "t"]);
    assert_eq!((exit, &error["code"], world.lines("e")), (1, &"DEAD_LETTER".into(), 2), "{error:#}");
}

#[test]
fn fr_h10_a_working_copy_that_vanished_under_a_run_is_said_and_made_again() {
    let world = World::new();
    let gate = command_step("gate", &format!("test -e {}", world.at("fixed")));
    world.task(
        "t",
        &format!("steps:\n{}{gate}{}", agent_step("code", "write:w.txt=w,ok"), command_step("look", "cat w.txt")),
    );
    assert_eq!(world.start("t").0, 1);
    std::fs::remove_dir_all(world.state("work/run_t_001")).unwrap();
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w", "from the last snapshot");
}

#[test]
fn fr_h11_fr_h1_a_copy_without_its_git_folder_is_no_loss() {
    let world = World::new();
    let gate = command_step("gate", &format!("test -e {}", world.at("fixed")));
    world.task("t", &format!("steps:\n{}{gate}", agent_step("code", "write:w.txt=w,ok")));
    assert_eq!(world.start("t").0, 1);
    let copy = world.state("work/run_t_001");
    std::fs::remove_dir_all(copy.join(".git")).unwrap();
    std::fs::write(copy.join("mine.txt"), "mine\n").unwrap();
    world.open("fixed");
    let (exit, error) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &error["code"]), (17, &"REVIEW_REQUIRED".into()), "{error:#}");
    let (exit, run) = world.json(&["resume", "run_t_001", "--rebuild"]);
    assert_eq!(exit, 0, "{run:#}");
    let patches = run["artifacts"].as_array().unwrap().iter().map(|a| a["path"].as_str().unwrap());
    let saved = patches
        .filter(|p| p.contains("saved"))
        .any(|path| std::fs::read_to_string(world.state("run_t_001").join(path)).unwrap().contains("mine.txt"));
    assert!(saved, "nothing unsaved is deleted: {run:#}");
}

#[test]
fn fr_k1_fr_k2_status_says_at_once_that_the_holder_died_and_changes_nothing() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},silent", world.at("in")));
    world.spawn_until(&["start", "t"], "in").kill();
    let before = world.events("run_t_001").len();
    let (exit, status) = world.json(&["status", "t"]);
    let run = &status["runs"][0];
    assert_eq!((exit, &run["status"], &run["reading"]), (0, &"RUNNING".into(), &"RETRYABLE_STUCK".into()), "{run:#}");
    assert_eq!((&run["meaning"], &run["goes_on_by_itself"]), (&"can_be_retried".into(), &false.into()));
    assert!(run["next"].as_str().unwrap().contains("resume"), "{run:#}");
    assert_eq!(world.events("run_t_001").len(), before, "looking changes nothing");
    // `resume --stale` finds it.
    world.agent_task("t", "ok");
    let out = world.run(&["cancel", "t"]);
    assert_eq!(out.exit, 0, "{}", out.stderr);
    assert_eq!(world.show("run_t_001")["status"], "CANCELED");
}

#[test]
fn contract_6_resume_stale_goes_on_with_every_abandoned_run() {
    let world = World::new();
    for id in ["a", "b"] {
        world.agent_task(id, &format!("touch:{},wait-for:{},ok", world.at(id), world.at("go")));
        world.spawn_until(&["start", id], id).kill();
    }
    // Whoever starts something else hears of them.
    world.command_task("other", "true");
    let told = world.run(&["start", "other"]).stderr;
    let line = "the process that worked on run_a_001, run_b_001 is gone: agentrun resume --stale goes on";
    assert!(told.contains(line), "R-R6: {told}");
    world.open("go");
    let out = world.run(&["resume", "--stale"]);
    assert_eq!(out.exit, 0, "{}", out.stderr);
    for run in ["run_a_001", "run_b_001"] {
        assert_eq!(world.show(run)["status"], "SUCCEEDED");
        world.assert_sound(run);
    }
}

#[test]
fn f20_kills_of_many_runs_at_once_harm_no_other() {
    let world = World::new();
    let ids: Vec<String> = (0..6).map(|n| format!("t{n}")).collect();
    for id in &ids {
        let steps: String =
            (0..12).map(|n| command_step(&format!("s{n}"), &format!("echo x >> {}-{id}", world.at("done")))).collect();
        world.task(id, &format!("steps:\n{steps}"));
    }
    thread::scope(|scope| {
        for (n, id) in ids.iter().enumerate() {
            let world = &world;
            scope.spawn(move || {
                let mut running = world.spawn(&["start", id]);
                let done = format!("done-{id}");
                wait_until("it is far enough", || world.lines(&done) > 2 * n || running.is_over());
                if !running.is_over() {
                    running.kill();
                }
            });
        }
    });
    let out = world.run(&["resume", "--stale"]);
    assert_eq!(out.exit, 0, "{}", out.stderr);
    for id in &ids {
        let run = world.show(id);
        assert_eq!(run["status"], "SUCCEEDED", "{run:#}");
        // A step that was cut may have had its effect; every other one has it once.
        let lines = world.lines(&format!("done-{id}"));
        assert!((12..=13).contains(&lines), "{id}: {lines}");
    }
    world.assert_sound("run_t0_001");
}

#[test]
fn r_w3_a_person_decides_where_the_task_says_so() {
    for (flag, kept) in [("--keep", "xx"), ("--rebuild", "x")] {
        let world = World::new();
        let script = format!("session:s,append:w.txt=x,effect:{0},error:VALIDATION_ERROR", world.at("e"));
        world.task("t", &format!("keep_changes: review\nsteps:\n{}", agent_step("code", &script)));
        let (exit, run) = world.start("t");
        assert_eq!((exit, &run["status"]), (17, &"REVIEW_REQUIRED".into()), "{run:#}");
        let (exit, told) = world.start("t");
        assert_eq!((exit, world.lines("e")), (17, 1), "nothing runs: {told:#}");
        assert_eq!(world.run(&["resume", "t"]).exit, 17);
        world.json(&["resume", "t", flag]);
        assert_eq!(world.lines("e"), 2, "{flag}");
        assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), kept, "{flag}");
    }
}

#[test]
fn r_w3_a_retry_begins_from_the_last_snapshot_and_the_failed_work_is_a_patch() {
    let world = World::new();
    world.agent_task("t", &format!("session:s,append:w.txt=x,effect:{},error:NETWORK_TIMEOUT", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, world.lines("e")), (1, 3), "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "x", "each attempt began anew");
    let saved = run["artifacts"].as_array().unwrap().iter().filter(|a| a["type"] == "SAVED_WORK").count();
    assert!(saved >= 1, "{run:#}");
    world.assert_sound("run_t_001");
}
