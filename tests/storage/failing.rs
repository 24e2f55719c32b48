//! The disk of the records is full, read-only or failing while a run is under way: the agent is stopped, one last record says
//! so where there is room, and once the disk works again the run is finished without repeating what was recorded as done.

use serde_json::Value;

use crate::faulty_disk::{EFBIG, EIO, ENOSPC, EROFS, Rule, on_disk};
use crate::world::{Output, World, agent_step, command_step, qa_step, step, wait_until};

const WAL: &str = "agentrun.db-wal";

/// A step that is done, an agent that waits for `go` and then goes on talking, and a check.
fn three_steps(world: &World) {
    let steps = [
        command_step("first", &format!("echo x >> {}", world.at("first"))),
        agent_step(
            "code",
            &format!(
                "echo-session,effect:{},write:w.txt=w,touch:{},wait-for:{},usage:100,tool:1,result:Done.",
                world.at("code"),
                world.at("in"),
                world.at("go")
            ),
        ),
        qa_step("qa", "test -e w.txt"),
    ];
    world.task("t", &format!("steps:\n{}", steps.concat()));
}

/// Starts on a disk that fails from the moment at which the agent works, and says what came of it.
fn starts_and_fails(world: &World, rules: &[Rule]) -> Output {
    three_steps(world);
    let mut command = world.agentrun(&["start", "t", "--json"]);
    on_disk(&mut command, rules);
    let mut running = world.spawn_command(command);
    running.reaches(&world.path("in"));
    world.open("go");
    let output = running.end();
    assert!(world.living().is_empty(), "the tree is gone before agentrun is: {output:?}");
    output
}

/// The disk works again: the run is finished, and the step that was recorded as done is not repeated.
fn goes_on(world: &World) -> Value {
    let before = world.show("run_t_001");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    if step(&before, "first")["state"] == "SUCCEEDED" {
        assert_eq!(step(&run, "first")["runs"], step(&before, "first")["runs"], "I7: {run:#}");
    }
    assert!(run["audit"]["count"].as_u64() > before["audit"]["count"].as_u64(), "I1: {run:#}");
    let runs = step(&run, "first")["runs"].as_u64().unwrap();
    assert!(u64::try_from(world.lines("first")).unwrap() <= runs, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w");
    let was_over = before["status"] == "SUCCEEDED";
    assert!(world.state("state/reserve").exists() || was_over, "the reserve is made again");
    world.assert_sound("run_t_001");
    run
}

fn gate(world: &World) -> std::path::PathBuf {
    world.path("in")
}

#[test]
fn f07_a_full_disk_stops_the_agent_and_says_so_from_the_reserve() {
    let world = World::new();
    let full = Rule::every("write", "agentrun.db", ENOSPC).once(&gate(&world)).until_removed("state/reserve");
    let output = starts_and_fails(&world, &[full]);
    let told = output.json();
    assert_eq!((output.exit, &told["code"], &told["run"]), (12, &"STORE_FULL".into(), &"run_t_001".into()), "{told:#}");
    assert!(told["hint"].as_str().unwrap().contains("agentrun resume run_t_001"), "{told:#}");
    let run = world.show("run_t_001");
    assert_eq!((&run["status"], &run["code"]), (&"INTERRUPTED".into(), &"STORE_FULL".into()), "{run:#}");
    assert_eq!(run["attempts"][0]["state"], "PARKED", "{run:#}");
    assert!(!world.state("state/reserve").exists(), "the room was given for the last record");
    goes_on(&world);
}

#[test]
fn f07_where_even_the_reserve_is_too_little_the_next_resume_takes_over() {
    let world = World::new();
    let full = Rule::every("write", "agentrun.db", ENOSPC).once(&gate(&world));
    let output = starts_and_fails(&world, &[full]);
    let told = output.json();
    assert_eq!((output.exit, &told["code"]), (12, &"STORE_FULL".into()), "{told:#}");
    assert_eq!(world.show("run_t_001")["status"], "RUNNING", "nothing could be written");
    goes_on(&world);
}

#[test]
fn f11_records_that_become_read_only_between_two_steps() {
    let world = World::new();
    // What a file system does that was remounted read-only after an error.
    let rules = ["write", "open", "truncate", "unlink", "rename"]
        .map(|op| Rule::every(op, ".ai-runs/state", EROFS).once(&gate(&world)));
    let output = starts_and_fails(&world, &rules);
    assert_eq!(output.exit, 12, "{output:?}");
    assert!(world.state("state/reserve").exists());
    assert_eq!(world.show("run_t_001")["status"], "RUNNING", "nothing could be written");
    goes_on(&world);
}

#[test]
fn f05_a_disk_whose_fsync_fails_for_good_is_no_failure_of_the_run() {
    let world = World::new();
    let output = starts_and_fails(&world, &[Rule::every("fsync", WAL, EIO).once(&gate(&world))]);
    let told = output.json();
    assert_eq!((output.exit, &told["code"]), (12, &"STORE_COMMIT_UNKNOWN".into()), "{told:#}");
    let run = world.show("run_t_001");
    assert!(["RUNNING", "INTERRUPTED"].contains(&run["status"].as_str().unwrap()), "never FAILED (T1): {run:#}");
    goes_on(&world);
}

#[test]
fn f06_one_fsync_that_fails_is_looked_up_and_the_run_goes_on() {
    for nth in 1..=4 {
        let world = World::new();
        let output = starts_and_fails(&world, &[Rule::nth("fsync", WAL, nth, EIO).once(&gate(&world))]);
        assert_eq!(output.exit, 0, "{nth}: {output:?}");
        let events = world.events("run_t_001");
        let ids: std::collections::BTreeSet<_> = events.iter().map(|e| e["id"].to_string()).collect();
        assert_eq!(ids.len(), events.len(), "no event twice");
        world.assert_sound("run_t_001");
    }
}

#[test]
fn f07_an_agent_that_floods_its_output_is_stopped_all_the_same() {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 1s, heartbeat: 200ms }"), ("timeouts", "{ call: 10ms, grace: 300ms }")]);
    world.agent_task("t", &format!("touch:{},flood:4000000000", world.at("in")));
    let mut command = world.agentrun(&["start", "t", "--json"]);
    on_disk(
        &mut command,
        &[Rule::every("write", "agentrun.db", ENOSPC).once(&gate(&world)).until_removed("state/reserve")],
    );
    let mut running = world.spawn_command(command);
    running.reaches(&world.path("in"));
    let begin = std::time::Instant::now();
    let output = running.end();
    assert_eq!((output.exit, output.json()["code"].as_str()), (12, Some("STORE_FULL")), "{output:?}");
    assert!(begin.elapsed().as_secs() < 8, "nobody waited in vain for the supervisor: {:?}", begin.elapsed());
    assert!(world.living().is_empty());
    assert_eq!(world.show("run_t_001")["status"], "INTERRUPTED");
}

#[test]
fn f09_a_limit_on_the_size_of_files_is_an_error_and_no_death() {
    let world = World::new();
    let output = starts_and_fails(&world, &[Rule::every("write", WAL, EFBIG).once(&gate(&world))]);
    assert_eq!((output.exit, output.json()["code"].as_str()), (12, Some("STORE_IO")), "{output:?}");
    goes_on(&world);
}

#[test]
fn f09_under_a_real_ulimit_f_agentrun_lives_and_its_children_do_not() {
    let limited = |world: &World, args: &str, blocks: u32| {
        let mut shell = world.command("sh");
        let program = env!("CARGO_BIN_EXE_agentrun");
        shell.args(["-c", &format!("ulimit -f {blocks}; exec {program} {args}")]);
        Output::of(shell)
    };
    let mut failed = 0;
    // Blocks of 512 bytes: too little for the log of the database to grow into a run.
    for blocks in [1050, 1200, 1350] {
        let world = World::new();
        three_steps(&world);
        world.open("go");
        let output = limited(&world, "start t --json", blocks);
        assert!([0, 12].contains(&output.exit), "{blocks}: {output:?}");
        assert!(world.living().is_empty());
        failed += u32::from(output.exit == 12);
        if output.exit == 12 {
            goes_on(&world);
        }
    }
    assert!(failed > 0);
    let world = World::new();
    let child =
        "grep SigIgn /proc/self/status > ignored.txt; dd if=/dev/zero of=big bs=1k count=4096; echo $? > died.txt";
    world.command_task("child", child);
    let output = limited(&world, "start child --json", 4000);
    assert_eq!(output.exit, 0, "{output:?}");
    let shown = |name: &str| world.git(&["show", &format!("agentrun/run_child_001:{name}")]);
    let ignored = u64::from_str_radix(shown("ignored.txt").trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored >> 24 & 1, 0, "SIGXFSZ has its default action in children");
    assert_eq!(shown("died.txt"), "153");
}

#[test]
fn f07_a_heartbeat_that_cannot_be_written_for_a_whole_lease_stops_the_agent() {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 1s, heartbeat: 200ms }"), ("timeouts", "{ call: 10ms, grace: 300ms }")]);
    world.agent_task("t", &format!("touch:{},silent", world.at("in")));
    let mut command = world.agentrun(&["start", "t", "--json"]);
    on_disk(
        &mut command,
        &[Rule::every("write", "agentrun.db", ENOSPC).once(&gate(&world)).until_removed("state/reserve")],
    );
    let output = world.spawn_command(command).end();
    assert_eq!((output.exit, output.json()["code"].as_str()), (12, Some("STORE_FULL")), "{output:?}");
    wait_until("every process is gone", || world.living().is_empty());
    assert_eq!(world.show("run_t_001")["status"], "INTERRUPTED");
}

#[test]
fn f33_a_holder_that_lost_its_run_leaves_the_new_holders_agent_alone() {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 1500ms, heartbeat: 400ms }"), ("timeouts", "{ call: 10ms, grace: 300ms }")]);
    let script = format!("effect:{},touch:{},wait-for:{},ok", world.at("e"), world.at("in"), world.at("go"));
    world.agent_task("t", &script);
    let asleep = world.spawn_until(&["start", "t", "--json"], "in");
    // Put to sleep right after a heartbeat, it does not hold the lock of the database.
    let beat = || world.show("run_t_001")["last_heartbeat_at"].clone();
    let last = beat();
    wait_until("a heartbeat", || beat() != last);
    asleep.signal(rustix::process::Signal::STOP);
    wait_until("its lease has run out", || world.json(&["status", "t"]).1["runs"][0]["reading"].is_string());
    let new = world.spawn(&["resume", "run_t_001", "--json"]);
    wait_until("the new holder's agent works", || world.lines("e") == 2);
    asleep.signal(rustix::process::Signal::CONT);
    let late = asleep.end();
    assert_eq!((late.exit, late.json()["code"].as_str()), (8, Some("FENCED")), "{late:?}");
    world.open("go");
    let new = new.end();
    assert_eq!((new.exit, world.lines("e")), (0, 2), "nobody ended the agent: {new:?}");
    world.assert_sound("run_t_001");
}
