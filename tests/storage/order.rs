//! What is on disk at every moment: a kill at any single change of a file (F04), and the order in which files and rows are
//! made durable (F21). Both look at what SQLite, libgit2 and agentrun ask of the C library; what the kernel does with it
//! afterwards, as when the power fails, is not shown here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::faulty_disk::{Rule, on_disk, traced};
use crate::world::{Output, World, agent_step, command_step, qa_step, step};

/// Every kind of step, each with an effect that can be counted.
fn every_kind(world: &World) {
    let count = |name: &str| format!("echo x >> {}", world.at(name));
    let steps = [
        "  - context\n".to_owned(),
        command_step("prepare", &count("prepare")),
        agent_step(
            "code",
            &format!("echo-session,effect:{},write:w.txt=w,usage:100,tool:1,result:Done.", world.at("code")),
        ),
        qa_step("qa", &format!("{}; test -e w.txt", count("qa"))) + "    artifacts: [ w.txt ]\n",
        "  - report\n".to_owned(),
    ];
    world.task("t", &format!("steps:\n{}", steps.concat()));
}

/// What a whole run does to files, one change a line.
fn trace(world: &World) -> Vec<String> {
    every_kind(world);
    let log = world.path("trace");
    let mut command = world.agentrun(&["start", "t"]);
    traced(&mut command, &log);
    let output = Output::of(command);
    assert_eq!(output.exit, 0, "{output:?}");
    fs::read_to_string(log).unwrap().lines().map(ToOwned::to_owned).collect()
}

/// Kills at the n-th change of a file, looks, and goes on. False when the run was over before.
fn dies_at(nth: u32) -> bool {
    let world = World::new();
    every_kind(&world);
    let mut command = world.agentrun(&["start", "t"]);
    on_disk(&mut command, &[Rule::nth("any", "/repo/", nth, "kill")]);
    let killed = Output::of(command).exit;
    assert!(killed == -9 || killed == 0, "{nth}: {killed}");
    let before = world.json(&["show", "run_t_001"]);
    let manifest = world.state("run_t_001/manifest.yml");
    if manifest.exists() {
        let text = fs::read_to_string(&manifest).unwrap();
        assert!(
            text.starts_with("manifestVersion: 1\n") && text.contains("\nartifacts:"),
            "{nth}: half a manifest: {text}"
        );
    }
    let (exit, run) = world.json(&["start", "t"]);
    assert_eq!((exit, &run["status"], &run["run"]), (0, &"SUCCEEDED".into(), &"run_t_001".into()), "{nth}: {run:#}");
    for key in ["context", "prepare", "code", "qa", "report"] {
        if before.0 == 0 && step(&before.1, key)["state"] == "SUCCEEDED" {
            assert_eq!(step(&run, key)["runs"], step(&before.1, key)["runs"], "{nth}: I7: {key}");
        }
    }
    if before.0 == 0 {
        assert!(run["audit"]["count"].as_u64() >= before.1["audit"]["count"].as_u64(), "{nth}: I1");
    }
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w", "{nth}");
    world.assert_sound("run_t_001");
    killed == -9
}

#[test]
fn f04_fr_i5_a_kill_at_any_change_of_a_file_leaves_a_run_that_goes_on() {
    let changes = trace(&World::new()).iter().filter(|line| line.contains("/repo/")).count();
    let changes = u32::try_from(changes).unwrap();
    assert!(changes > 300, "{changes}");
    // Spread over the whole run, and others with every change of the program; all of them take minutes.
    let moments: Vec<u32> = (0..40).map(|n| 1 + n * changes / 40 + n % 7).collect();
    let killed: usize = std::thread::scope(|scope| {
        let half = |half: &[u32]| half.iter().filter(|nth| dies_at(**nth)).count();
        let halves: Vec<_> = moments.chunks(20).map(|moments| scope.spawn(move || half(moments))).collect();
        halves.into_iter().map(|half| half.join().unwrap()).sum()
    });
    assert!(killed >= 36, "{killed} of {} moments", moments.len());
}

#[test]
fn f21_a_file_is_written_synced_named_and_its_folder_synced_before_a_row_tells_of_it() {
    let world = World::new();
    let trace = trace(&world);
    let words: Vec<Vec<&str>> = trace.iter().map(|line| line.split(' ').collect()).collect();
    let runs = world.state("run_t_001");
    let mut named = Vec::new();
    for (at, line) in words.iter().enumerate() {
        let ["rename", from, to] = line.as_slice() else { continue };
        if !to.starts_with(runs.to_str().unwrap()) {
            continue;
        }
        named.push(Path::new(to).strip_prefix(&runs).unwrap().to_owned());
        let before = words[..at].iter().rev().filter(|w| w.get(1) == Some(from)).map(|w| w[0]);
        let last: Vec<_> = before.take(2).collect();
        assert_eq!(last, ["fsync", "write"], "{to}: synced after its last byte");
        let folder = Path::new(to).parent().unwrap().to_str().unwrap();
        let later = || words[at..].iter();
        let folder_synced = later().position(|w| w[0] == "fsync" && w[1] == folder);
        let row = later().position(|w| w[0] == "fsync" && w[1].ends_with("agentrun.db-wal"));
        let folder_synced = folder_synced.unwrap_or_else(|| panic!("{to}: its folder was never synced"));
        assert!(row.is_none_or(|row| folder_synced < row), "{to}: a row before the file's name was durable");
    }
    for expected in ["artifacts/qa/w.txt", "artifacts/changes.patch", "report.md", "result.json", "manifest.yml"] {
        assert!(named.contains(&PathBuf::from(expected)), "{expected} is not among {named:?}");
    }
}
