//! agentrun is killed at every named moment of a run (F01), at two of them one after the other (F02), and at any time
//! (F03); then the run goes on. Four counters must stand at zero: acknowledged records that were lost, steps that were done
//! twice, counters that fell, processes that were left over.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::world::{Output, World, agent_step, command_step, qa_step, step};

/// A number from the environment: a night can do more than a test run has time for.
fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Every kind of step, each with an effect that can be counted.
fn every_kind() -> World {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 9 } }")]);
    let effect = |name: &str| format!("effect:{}", world.at(name));
    let count = |name: &str| format!("echo x >> {}", world.at(name));
    // The check is red once, so that the agent is sent back.
    let check = format!("{0}; test -e {1} || {{ touch {1}; exit 1; }}", count("qa"), world.at("checked"));
    let steps = [
        "  - context\n".to_owned(),
        command_step("prepare", &count("prepare")),
        agent_step("code", &format!("echo-session,{},write:w.txt=w,usage:100,tool:1,result:Done.", effect("code"))),
        qa_step("qa", &check) + "    artifacts: [ w.txt ]\n    on_fail: { send_back_to: code, rounds: 2 }\n",
        "  - report\n".to_owned(),
    ];
    world.task("t", &format!("steps:\n{}", steps.concat()));
    world
}

/// Calls agentrun with something planned for it.
fn with_plan(world: &World, args: &[&str], plan: (&str, &str)) -> Output {
    let mut command = world.agentrun(args);
    command.env(plan.0, plan.1);
    Output::of(command)
}

/// The points that a command reaches, in order.
fn points(world: &World, args: &[&str]) -> Vec<String> {
    let trace = world.at("points");
    let out = with_plan(world, args, ("AGENTRUN_FAIL_TRACE", &trace));
    assert_eq!(out.exit, 0, "{}", out.stderr);
    std::fs::read_to_string(trace).unwrap().lines().map(ToOwned::to_owned).collect()
}

const KILLED: i32 = -9;

/// Kills a command at the n-th point that it reaches. False when it reaches fewer.
fn killed_at(world: &World, args: &[&str], nth: usize) -> bool {
    let out = with_plan(world, args, ("AGENTRUN_FAIL", &format!("*:kill@{nth}")));
    assert!([KILLED, 0].contains(&out.exit), "point {nth}: exit {}\n{}", out.exit, out.stderr);
    out.exit == KILLED
}

fn recorded(world: &World) -> Option<Value> {
    let (exit, run) = world.json(&["show", "run_t_001"]);
    (exit == 0).then_some(run)
}

/// How to go on: a run that is not there was never accepted.
fn go_on(before: Option<&Value>) -> &'static [&'static str] {
    if before.is_some() { &["resume", "run_t_001"] } else { &["start", "t"] }
}

/// What was recorded before a kill still is, and no finished step was done again.
fn compare(before: &Value, after: &Value, moment: &str) {
    for key in ["context", "prepare", "report"] {
        if step(before, key)["state"] == "SUCCEEDED" {
            assert_eq!(step(after, key)["runs"], step(before, key)["runs"], "{moment}: I7, R-S2: {key} was done");
        }
    }
    let number = |run: &Value, path: &str| run.pointer(path).and_then(Value::as_u64).unwrap();
    for counter in ["/usage/tokens", "/usage/tool_calls", "/audit/count", "/attempt"] {
        assert!(number(after, counter) >= number(before, counter), "{moment}: I1, I9: {counter} fell");
    }
    let checkpoints = |run: &Value| run["checkpoints"].as_array().unwrap().clone();
    assert!(checkpoints(after).starts_with(&checkpoints(before)), "{moment}: a checkpoint was lost");
}

/// A run that was killed so often is brought to its end, and is what it would have been.
fn ends_well(world: &World, moment: &str, kills: usize) {
    let before = recorded(world);
    let (exit, run) = world.json(go_on(before.as_ref()));
    let found = (exit, run["status"].as_str(), run["run"].as_str());
    assert_eq!(found, (0, Some("SUCCEEDED"), Some("run_t_001")), "{moment}: {run:#}");
    if let Some(before) = &before {
        compare(before, &run, moment);
    }
    // The check is red once by itself, unless it was cut after it had said so to itself. A kill costs at most one more.
    for (key, least, usual) in [("prepare", 1, 1), ("code", 1, 2), ("qa", 2, 2)] {
        let (runs, lines) = (step(&run, key)["runs"].as_u64().unwrap(), world.lines(key));
        assert!((least..=usual + kills).contains(&lines), "{moment}: {key} had {lines} effects");
        assert!(lines as u64 <= runs, "{moment}: {key} had {lines} effects in {runs} executions");
    }
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w", "{moment}");
    assert_eq!(std::fs::read_to_string(world.state("run_t_001/artifacts/qa/w.txt")).unwrap(), "w", "{moment}");
    assert!(!world.state("work/run_t_001").exists(), "{moment}");
    let (_, again) = world.start("t");
    assert_eq!(again["reused"], true, "{moment}: {again:#}");
    world.assert_sound("run_t_001");
}

/// Does something with 0, 1, 2 … on every processor, as long as there is more to do.
fn in_parallel(more: impl Fn(usize) -> bool + Sync, act: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if !more(n) {
                break;
            }
            act(n);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
}

/// The moments of the fault matrix that this version has. What is no commit has a name of its own.
const BOUNDARIES: &[&str] = &[
    "run.created",
    "run.started",
    "workspace.prepared",
    "step.moved",
    "child.started",
    "session.opened",
    "usage.recorded",
    "snapshot.taken",
    "artifact.recorded",
    "attempt.ended",
    "run.moved",
    "workspace.removed",
    "file",
    "ref",
];

#[test]
fn f01_a_kill_at_every_point_loses_nothing_and_repeats_nothing() {
    let reached = points(&every_kind(), &["start", "t"]);
    let names: BTreeSet<&str> = reached.iter().flat_map(|line| line.split('+')).collect();
    for name in BOUNDARIES {
        for when in ["before", "after"] {
            assert!(names.contains(format!("{when}/{name}").as_str()), "{when}/{name} is not reached: {names:#?}");
        }
    }
    assert!(names.contains("after/spawn"), "{names:#?}");
    let killed = AtomicUsize::new(0);
    in_parallel(
        |n| n < reached.len(),
        |n| {
            let world = every_kind();
            if killed_at(&world, &["start", "t"], n + 1) {
                killed.fetch_add(1, Ordering::Relaxed);
                ends_well(&world, &format!("{} {}", n + 1, reached[n]), 1);
            }
        },
    );
    let (killed, all) = (killed.into_inner(), reached.len());
    println!("F01: killed at {killed} of {all} points, {} names", names.len());
    // A command that takes 50 ms on a busy machine adds a point, so that a run without it does not reach the last ones.
    assert!(killed + 4 >= all, "killed at {killed} of {all} points");
}

#[test]
fn f02_a_second_kill_while_recovering_loses_nothing_and_repeats_nothing() {
    let first = points(&every_kind(), &["start", "t"]).len();
    let twice = AtomicUsize::new(0);
    let pairs = setting("AGENTRUN_KILL_PAIRS", 40);
    in_parallel(
        |n| n < pairs,
        |n| {
            let world = every_kind();
            // Spread over all pairs, the same ones in each run of the test.
            let (one, other) = (1 + n * first / pairs, 1 + n * 7 % 31);
            if !killed_at(&world, &["start", "t"], one) {
                return;
            }
            let before = recorded(&world);
            let moment = format!("{one}, then {other}");
            if killed_at(&world, go_on(before.as_ref()), other) {
                twice.fetch_add(1, Ordering::Relaxed);
                if let (Some(before), Some(after)) = (before, recorded(&world)) {
                    compare(&before, &after, &moment);
                }
            }
            ends_well(&world, &moment, 2);
        },
    );
    let twice = twice.into_inner();
    println!("F02: {pairs} pairs, {twice} of them killed twice");
    assert!(twice * 3 >= pairs, "{twice} of {pairs}");
}

/// A small generator of numbers: the same seed, the same kills.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const MANY: usize = 80;

/// Many short steps, each leaving a line at its end; here and there an agent.
fn many_steps() -> World {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 100000, time: 10h } }")]);
    let mut steps = String::new();
    for n in 0..MANY {
        let key = format!("s{n}");
        steps += &if n % 10 == 5 {
            agent_step(
                &key,
                &format!("echo-session,append:w.txt={n}.,usage:100,effect:{},result:Done.", world.at(&key)),
            )
        } else {
            command_step(&key, &format!("echo x >> {}", world.at(&key)))
        };
    }
    world.task("t", &format!("steps:\n{steps}"));
    world
}

/// The steps whose success was told on a terminal or in a log: what was said must have been on disk.
fn acknowledged(stderr: &str) -> impl Iterator<Item = &str> {
    stderr.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(" SUCCEEDED ").map(|(key, _)| key))
}

/// One run, killed again and again until it is over. Answers how often.
fn killed_at_random(seed: u64) -> usize {
    let (world, mut chance) = (many_steps(), Chance(seed));
    let mut done: Vec<(String, usize)> = Vec::new();
    let (mut kills, mut tokens, mut accepted) = (0, 0, None);
    loop {
        if kills > 0 && accepted.is_none() {
            accepted = recorded(&world);
        }
        let running = world.spawn(go_on(accepted.as_ref()));
        thread::sleep(Duration::from_micros(chance.below(250_000)));
        let (killed, said) = running.kill_and_hear();
        for key in acknowledged(&said) {
            done.push((key.to_owned(), world.lines(key)));
        }
        if !killed {
            break;
        }
        kills += 1;
        if let Some(run) = recorded(&world).filter(|_| kills % 8 == 0) {
            let now = run["usage"]["tokens"].as_u64().unwrap();
            assert!(now >= tokens, "seed {seed}: I9: {tokens} tokens became {now}");
            tokens = now;
        }
    }
    let run = world.show("run_t_001");
    assert_eq!(run["status"], "SUCCEEDED", "seed {seed}: {run:#}");
    for (key, lines) in &done {
        assert_eq!(world.lines(key), *lines, "seed {seed}: I1, I7: {key} was acknowledged and done again");
        assert_eq!(step(&run, key)["state"], "SUCCEEDED", "seed {seed}: I1: {key} was acknowledged");
    }
    let written = world.git(&["show", "agentrun/run_t_001:w.txt"]);
    let agents: Vec<String> = (0..MANY).filter(|n| n % 10 == 5).map(|n| format!("{n}.")).collect();
    for part in &agents {
        assert!(written.contains(part.as_str()), "seed {seed}: {part} is missing in {written}");
    }
    world.assert_sound("run_t_001");
    kills
}

#[test]
fn f03_kills_at_any_time_lose_nothing_and_repeat_nothing() {
    let wanted = setting("AGENTRUN_KILLS", 1_000);
    let first = setting("AGENTRUN_KILL_SEED", 1) as u64;
    let (kills, seeds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let more = |_| kills.load(Ordering::Relaxed) < wanted;
    in_parallel(more, |n| {
        kills.fetch_add(killed_at_random(first + n as u64), Ordering::Relaxed);
        seeds.fetch_add(1, Ordering::Relaxed);
    });
    println!("F03: {} kills in {} runs", kills.into_inner(), seeds.into_inner());
}
