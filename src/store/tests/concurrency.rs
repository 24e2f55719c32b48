//! R-F4, F19, F20, FR-I10, FR-I11: many writers at once, each with a connection of its own.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::*;
use crate::domain::event::EventKind;
use crate::store::{Note, RunFilter, StoreError};

/// Starts from `count` threads at the same instant; each opens its own connection after the signal.
fn starts(path: &Path, count: usize) -> Vec<Started> {
    let gate = Barrier::new(count);
    let one = || {
        gate.wait();
        Store::open(path).and_then(|mut store| store.start_or_attach(&new_run("182", "a"), &ctx(1))).unwrap()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn r_f4_a_hundred_starts_at_once_make_one_run() {
    // The database does not exist either: creating it is part of the race.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentrun.db");
    let answers = starts(&path, 100);
    let new = answers.iter().filter(|answer| matches!(answer, Started::New(_))).count();
    assert_eq!(new, 1);
    let run = RunId::recorded("run_182_001");
    let same = |answer: &&Started| **answer == Started::Existing(run.clone());
    assert_eq!(answers.iter().filter(same).count(), 99, "nobody saw an error of the database");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.runs(&RunFilter::All).unwrap().len(), 1);
    assert_eq!(store.chain_head("run_182_001").unwrap().count, 2);
    store.integrity().unwrap();
}

/// Does nothing by itself; `f19_processes…` runs it in processes of their own.
#[test]
fn process_of_f19() {
    let Some(path) = std::env::var_os("AGENTRUN_TEST_DATABASE") else { return };
    let mut store = Store::open(Path::new(&path)).unwrap();
    match store.start_or_attach(&new_run("182", "a"), &ctx(1)).unwrap() {
        Started::New(hold) => println!("NEW {}", hold.run),
        Started::Existing(run) => println!("EXISTING {run}"),
        Started::Queued { .. } => panic!("no group"),
    }
}

#[test]
fn f19_processes_that_start_at_the_same_instant_make_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentrun.db");
    let start = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::concurrency::process_of_f19", "--nocapture"])
            .env("AGENTRUN_TEST_DATABASE", &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(|_| start()).collect();
    let said = children.into_iter().map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    });
    let said: String = said.collect();
    let count = |word: &str| said.matches(word).count();
    assert_eq!((count("NEW run_182_001"), count("EXISTING run_182_001")), (1, 7), "{said}");
}

/// Notes from many threads; answers how long each write took.
fn notes(world: &World, run: &RunId, threads: usize, each: usize) -> Vec<Duration> {
    let path = world.path();
    let write = || {
        let mut store = Store::open(&path).unwrap();
        let (kind, body) = (EventKind::WarningRaised, serde_json::json!({}));
        let note = Note { kind, reason: "odd".into(), body };
        let mut times = Vec::new();
        for _ in 0..each {
            let begun = Instant::now();
            store.note(Some(run), &note, &ctx(1)).unwrap();
            times.push(begun.elapsed());
        }
        times
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn f20_eight_writers_append_to_one_chain_and_busy_never_surfaces() {
    let mut world = World::new();
    let run = world.started(&new_run("182", "a")).run;
    let mut times = notes(&world, &run, 8, 200);
    times.sort();
    assert_eq!(world.store.chain_head(run.as_str()).unwrap().count, 2 + 1600);
    world.check_chains();
    world.store.integrity().unwrap();
    assert!(times[times.len() * 99 / 100] < Duration::from_secs(1), "p99: {:?}", times[times.len() * 99 / 100]);
}

/// Does nothing by itself; `f20_…random_kills…` runs it in processes of their own. It says what is acknowledged, and how long
/// each took.
#[test]
fn process_of_f20() {
    let Some(path) = std::env::var_os("AGENTRUN_TEST_APPENDS") else { return };
    let word = |name: &str| std::env::var(name).unwrap();
    let (name, from) = (word("AGENTRUN_TEST_NAME"), word("AGENTRUN_TEST_FROM").parse::<usize>().unwrap());
    let mut store = Store::open(Path::new(&path)).unwrap();
    for n in from..APPENDS {
        let begun = Instant::now();
        let note = Note { kind: EventKind::WarningRaised, reason: format!("{name}-{n}"), body: serde_json::json!({}) };
        store.note(Some(&RunId::recorded("run_182_001")), &note, &ctx(1)).unwrap();
        println!("ACK {n} {}", begun.elapsed().as_micros());
    }
}

const APPENDS: usize = 200;

/// One writer's life: killed again and again after a number of acknowledged appends that no one could foresee, and going on
/// after the last of them. Answers how long each append took.
fn appends_under_kills(path: &Path, name: &str, mut seed: u64) -> Vec<Duration> {
    use std::io::BufRead as _;
    use std::os::unix::process::ExitStatusExt as _;
    let (mut next, mut times) = (0, Vec::new());
    while next < APPENDS {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut lives_for = usize::try_from(seed >> 33).unwrap() % 80 + 1;
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::concurrency::process_of_f20", "--nocapture"])
            .env("AGENTRUN_TEST_APPENDS", path)
            .env("AGENTRUN_TEST_NAME", name)
            .env("AGENTRUN_TEST_FROM", next.to_string())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        for line in std::io::BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(words) = line.split_once("ACK ").and_then(|(_, rest)| rest.split_once(' ')) else { continue };
            next = words.0.parse::<usize>().unwrap() + 1;
            times.push(Duration::from_micros(words.1.parse().unwrap()));
            lives_for = lives_for.saturating_sub(1);
            if lives_for == 0 {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(status.success() || status.signal() == Some(9), "{name}: {status}: an error surfaced");
    }
    times
}

#[test]
fn f20_eight_processes_under_random_kills_lose_nothing_that_was_acknowledged() {
    let mut world = World::new();
    let run = world.started(&new_run("182", "a")).run;
    let path = world.path();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let path = &path;
        let writers: Vec<_> =
            (1..=8).map(|n| scope.spawn(move || appends_under_kills(path, &format!("w{n}"), n))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    world.store.integrity().unwrap();
    world.check_chains();
    let there: std::collections::BTreeSet<String> =
        world.store.chain(run.as_str()).unwrap().into_iter().filter_map(|event| event.reason).collect();
    for (writer, n) in (1..=8).flat_map(|writer| (0..APPENDS).map(move |n| (writer, n))) {
        assert!(there.contains(&format!("w{writer}-{n}")), "I1: w{writer}-{n} was acknowledged");
    }
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < Duration::from_secs(1), "p99: {p99:?}");
}

#[test]
fn fr_i10_thirty_two_writers_see_no_busy_error() {
    let mut world = World::new();
    let run = world.started(&new_run("182", "a")).run;
    notes(&world, &run, 32, 25);
    assert_eq!(world.store.chain_head(run.as_str()).unwrap().count, 2 + 800);
}

#[test]
fn fr_i11_a_lock_held_elsewhere_for_three_seconds_is_waited_for() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let raw = world.raw();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        raw.execute_batch("ROLLBACK").unwrap();
    });
    world.record(&hold, &[step("qa", StepEvent::Begin)]).unwrap();
    assert!(begun.elapsed() > Duration::from_millis(2900));
    release.join().unwrap();
}

#[test]
fn r_r7_of_many_that_take_over_one_succeeds() {
    let mut world = World::new();
    let run = world.started(&new_run("182", "a")).run;
    let path = world.path();
    let gate = Barrier::new(16);
    let take = || {
        let mut store = Store::open(&path).unwrap();
        gate.wait();
        store.claim(&run, &claim(RunEvent::TakeOver, 1), &ctx(1))
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let held = Err(StoreError::Held { run: run.clone(), fence: 2 });
    assert_eq!(answers.iter().filter(|answer| **answer == held).count(), 15);
}
