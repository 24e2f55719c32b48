//! The disk is unfit from the beginning, or another one than that of the records: read-only (F10), without room for artifacts
//! (F08), a real disk of one megabyte (F07), and a machine without open files or threads to give (F12).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::faulty_disk::{EAGAIN, ENOSPC, EROFS, Rule, on_disk};
use crate::world::{Output, World, agent_step, command_step, qa_step, step};

fn on_a_disk(world: &World, args: &[&str], rules: &[Rule]) -> (i32, Value) {
    let mut command = world.agentrun(&[args, &["--json"]].concat());
    on_disk(&mut command, rules);
    let output = Output::of(command);
    (output.exit, output.json())
}

fn read_only(part: &str) -> Vec<Rule> {
    ["write", "open", "truncate", "unlink", "rename", "mkdir"].map(|op| Rule::every(op, part, EROFS)).to_vec()
}

/// Every file below a folder with its content.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn f08_no_room_for_artifacts_fails_the_step_and_leaves_no_half_file() {
    let world = World::new();
    let qa = qa_step("qa", "echo kept > out.txt") + "    artifacts: [ out.txt ]\n";
    world.task(
        "t",
        &format!("steps:\n{}{qa}", agent_step("code", &format!("effect:{},write:w.txt=w,ok", world.at("e")))),
    );
    let (exit, run) = on_a_disk(&world, &["start", "t"], &[Rule::every("write", "/artifacts/", ENOSPC)]);
    assert_eq!((exit, &run["status"], &run["code"]), (12, &"FAILED".into(), &"ARTIFACT_NO_SPACE".into()), "{run:#}");
    assert_eq!(step(&run, "qa")["code"], "ARTIFACT_NO_SPACE", "{run:#}");
    let files = contents(&world.state("run_t_001"));
    assert!(!files.iter().any(|(path, _)| path.contains(".agentrun-tmp-") || path.ends_with("out.txt")), "{files:?}");
    let kept = |run: &Value, name: &str| {
        run["artifacts"].as_array().unwrap().iter().any(|a| a["path"].as_str().unwrap().ends_with(name))
    };
    assert!(!kept(&run, "out.txt") && !kept(&run, "changes.patch"), "no row for a file that is not whole: {run:#}");
    world.assert_sound("run_t_001");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, world.lines("e")), (0, 1), "{run:#}");
    assert!(kept(&run, "out.txt") && kept(&run, "changes.patch"), "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn f08_a_first_last_file_without_room_is_no_success() {
    let world = World::new();
    world.command_task("t", "echo w > w.txt");
    let (exit, told) = on_a_disk(&world, &["start", "t"], &[Rule::every("write", "/artifacts/", ENOSPC)]);
    assert_eq!((exit, &told["code"]), (12, &"ARTIFACT_NO_SPACE".into()), "{told:#}");
    assert_eq!(world.show("run_t_001")["status"], "INTERRUPTED");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &step(&run, "work")["runs"]), (0, &1.into()), "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn f10_records_that_cannot_be_written_start_nothing_and_change_nothing() {
    let world = World::new();
    world.command_task("t", &format!("touch {}", world.at("ran")));
    let (exit, told) = on_a_disk(&world, &["start", "t"], &read_only(".ai-runs"));
    assert_eq!((exit, &told["code"]), (12, &"STORE_READONLY".into()), "{told:#}");
    assert!(!world.state("").exists() && !world.path("ran").exists());
    world.command_task("other", "true");
    assert_eq!(world.start("other").0, 0);
    let before = contents(&world.state(""));
    let (exit, told) = on_a_disk(&world, &["start", "t"], &read_only(".ai-runs"));
    assert_eq!((exit, &told["code"]), (12, &"STORE_READONLY".into()), "{told:#}");
    assert!(told["hint"].as_str().unwrap().contains("AGENTRUN_HOME"), "{told:#}");
    let is_index = |path: &str| path.ends_with("-shm") || path.ends_with("-wal");
    let after = contents(&world.state(""));
    let same =
        |files: &[(String, Vec<u8>)]| files.iter().filter(|(path, _)| !is_index(path)).cloned().collect::<Vec<_>>();
    assert!(same(&before) == same(&after) && !world.path("ran").exists());
    let (exit, shown) = on_a_disk(&world, &["show", "other"], &read_only(".ai-runs"));
    assert_eq!((exit, &shown["status"]), (0, &"SUCCEEDED".into()), "looking goes on: {shown:#}");
}

#[test]
fn f07_there_is_no_run_without_room_for_its_last_record() {
    let world = World::new();
    world.command_task("t", &format!("touch {}", world.at("ran")));
    let (exit, told) =
        on_a_disk(&world, &["start", "t"], &[Rule::every("write", ".ai-runs/state/.agentrun-tmp", ENOSPC)]);
    assert_eq!((exit, &told["code"]), (12, &"STORE_FULL".into()), "{told:#}");
    assert!(!world.path("ran").exists() && world.json(&["show", "t"]).0 == 16, "nothing was accepted");
}

#[test]
fn f12_too_few_open_files_are_said_before_anything_begins() {
    for files in [3, 8, 12, 16, 20, 24, 28, 40, 63] {
        let world = World::new();
        world.command_task("t", &format!("touch {}", world.at("ran")));
        let mut shell = world.command("sh");
        let program = env!("CARGO_BIN_EXE_agentrun");
        shell.args(["-c", &format!("ulimit -n {files}; exec {program} start t --json")]);
        let output = Output::of(shell);
        // Below a dozen not even the program's own libraries can be opened.
        if files >= 12 {
            assert_eq!((output.exit, output.json()["code"].as_str()), (11, Some("ENV_LIMIT")), "{files}: {output:?}");
        }
        assert!(output.exit != 0 && !world.path("ran").exists(), "{files}: {output:?}");
        assert!(!world.state("run_t_001").exists(), "{files}: nothing was begun");
    }
}

#[test]
fn f12_a_machine_without_threads_or_processes_leaves_no_half_started_attempt() {
    for (op, nth) in [("thread", 1), ("thread", 2), ("thread", 3), ("fork", 1)] {
        let world = World::new();
        world.command_task("t", &format!("touch {}", world.at("ran")));
        let (exit, told) = on_a_disk(&world, &["start", "t"], &[Rule::every(op, "-", EAGAIN).from(nth)]);
        assert_eq!((exit, &told["code"]), (11, &"ENV_LIMIT".into()), "{op} {nth}: {told:#}");
        assert!(!world.path("ran").exists() && world.living().is_empty());
        let (known, run) = world.json(&["show", "run_t_001"]);
        let status = run["status"].as_str().unwrap_or("none");
        assert!(known == 16 || ["INTERRUPTED", "FAILED"].contains(&status), "{op} {nth}: {run:#}");
        let (exit, run) = world.json(&["start", "t", "--resume"]);
        assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{op} {nth}: {run:#}");
        world.assert_sound("run_t_001");
    }
}

/// Runs one of the tests below in a mount namespace of its own: what it mounts is gone with it. Where no kind of
/// namespace is allowed, the same faults are shown by the shim alone.
#[expect(clippy::print_stderr, reason = "what was not shown is said")]
fn in_a_namespace(test: &str) {
    let own = std::env::current_exe().unwrap();
    let as_root: &[&str] = &["--mount"];
    for flags in [as_root, &["--user", "--map-root-user", "--mount"]] {
        let may = Command::new("unshare")
            .args(flags)
            .args(["mount", "-t", "tmpfs", "none", env!("CARGO_TARGET_TMPDIR")])
            .output();
        if may.is_ok_and(|tried| tried.status.success()) {
            let mut again = Command::new("unshare");
            again.args(flags).arg(&own).args(["--exact", test, "--nocapture"]).env("AGENTRUN_TEST_INSIDE", "1");
            let ended = again.output().unwrap();
            let said = [ended.stdout, ended.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
            assert!(ended.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
    }
    eprintln!("NOT SHOWN on a real disk: mounting is not allowed here");
}

fn is_inside() -> bool {
    std::env::var_os("AGENTRUN_TEST_INSIDE").is_some()
}

fn mount(args: &[&str], path: &Path) {
    let mounted = Command::new("mount").args(args).arg(path).output().unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
}

#[test]
fn f07_a_real_disk_of_one_megabyte_fills_up_and_is_enlarged() {
    if !is_inside() {
        in_a_namespace("places::f07_a_real_disk_of_one_megabyte_fills_up_and_is_enlarged");
        return;
    }
    let world = World::new();
    fs::create_dir(world.state("")).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=1m,mode=0700", "none"], &world.state(""));
    let steps = (0..40).map(|n| command_step(&format!("s{n}"), &format!("echo x >> {}", world.at(&format!("s{n}")))));
    // Output enough to fill the disk a little with every step.
    let noisy =
        agent_step("code", &format!("effect:{},flood-stderr:300000,touch:{},ok", world.at("code"), world.at("in")));
    world.task("t", &format!("steps:\n{}{noisy}", steps.collect::<String>()));
    let output = Output::of(world.agentrun(&["start", "t", "--json"]));
    let told = output.json();
    assert_eq!((output.exit, &told["run"]), (12, &"run_t_001".into()), "{told:#}");
    assert!(world.living().is_empty());
    mount(&["-o", "remount,size=64m"], &world.state(""));
    let before = world.show("run_t_001");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    for done in before["steps"].as_array().unwrap().iter().filter(|s| s["state"] == "SUCCEEDED") {
        let key = done["key"].as_str().unwrap();
        assert_eq!((&step(&run, key)["runs"], world.lines(key)), (&done["runs"], 1), "I7: {key}");
    }
    world.assert_sound("run_t_001");
}

#[test]
fn f10_a_real_read_only_mount_starts_nothing() {
    if !is_inside() {
        in_a_namespace("places::f10_a_real_read_only_mount_starts_nothing");
        return;
    }
    let world = World::new();
    world.command_task("other", "true");
    assert_eq!(world.start("other").0, 0);
    let state = world.state("").display().to_string();
    mount(&["--bind", &state], &world.state(""));
    mount(&["-o", "remount,bind,ro"], &world.state(""));
    world.command_task("t", &format!("touch {}", world.at("ran")));
    let (exit, told) = world.start("t");
    assert_eq!((exit, &told["code"]), (12, &"STORE_READONLY".into()), "{told:#}");
    assert!(!world.path("ran").exists());
    assert_eq!(world.show("other")["status"], "SUCCEEDED", "looking goes on");
}
