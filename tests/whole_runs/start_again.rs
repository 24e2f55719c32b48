//! What `start` does when the fingerprint has a run (contract §14), and who wins when many start at once.

use std::thread;

use serde_json::Value;

use crate::world::{World, agent_step, wait_until};

#[test]
fn r_f3_an_equal_succeeded_run_is_returned_and_nothing_runs_again() {
    let world = World::new();
    world.agent_task("t", &format!("effect:{},ok", world.at("effects")));
    let (_, first) = world.start("t");
    let (exit, again) = world.start("t");
    assert_eq!((exit, &again["run"]), (0, &first["run"]));
    assert_eq!((&again["via"], &again["reused"]), (&"reused".into(), &true.into()));
    assert_eq!(world.lines("effects"), 1);
    assert!(world.has_event("run_t_001", "run.reused", ""), "a skip is never silent (R-M7)");
}

#[test]
fn r_f2_key_order_and_comments_are_the_same_run_and_meaning_is_not() {
    let world = World::new();
    let step = agent_step("code", "ok");
    world.task("t", &format!("mode: implement\ntitle: A\nsteps:\n{step}"));
    let (_, first) = world.start("t");
    world.task(
        "t",
        &format!(
            "# said otherwise\ntitle: B\nbudget: {{ attempt: {{ time: 5m }} }}\nsteps:\n{step}\nmode:   implement\n"
        ),
    );
    let (_, same) = world.start("t");
    assert_eq!((&same["run"], &same["via"]), (&first["run"], &"reused".into()));
    world.task("t", &format!("mode: review\nsteps:\n{step}"));
    let (_, other) = world.start("t");
    assert_eq!((&other["run"], &other["via"]), (&"run_t_002".into(), &"new".into()));
    let (_, input) = world.json(&["start", "t", "--input", "x=1"]);
    assert_eq!((&input["run"], &input["via"]), (&"run_t_003".into(), &"new".into()), "inputs count");
}

#[test]
fn r_f3_new_makes_the_next_instance_on_purpose() {
    let world = World::new();
    world.agent_task("t", &format!("effect:{},ok", world.at("effects")));
    let (_, first) = world.start("t");
    let (exit, second) = world.json(&["start", "t", "--new"]);
    assert_eq!((exit, &second["run"], &second["via"]), (0, &"run_t_002".into(), &"new".into()));
    assert_eq!((&second["fingerprint"], world.lines("effects")), (&first["fingerprint"], 2));
    let (_, third) = world.start("t");
    assert_eq!(third["run"], "run_t_002", "the newest instance counts");
}

#[test]
fn r_f3_a_run_in_progress_is_followed_or_told_of() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},wait-for:{},effect:{},ok", world.at("in"), world.at("go"), world.at("e")));
    let first = world.spawn_until(&["start", "t", "--json"], "in");
    for flag in ["--no-wait", "--detach"] {
        let (exit, told) = world.json(&["start", "t", flag]);
        assert_eq!((exit, &told["run"], &told["via"]), (7, &"run_t_001".into(), &"attached".into()), "{flag}");
    }
    let second = world.spawn(&["start", "t", "--json"]);
    wait_until("the second has attached", || world.has_event("run_t_001", "run.attached", ""));
    world.open("go");
    let (first, second) = (first.end(), second.end());
    assert_eq!((first.exit, second.exit), (0, 0), "{}", second.stderr);
    assert_eq!(second.json()["via"], "attached");
    assert_eq!(second.json()["status"], "SUCCEEDED");
    assert_eq!(world.lines("e"), 1);
}

#[test]
fn contract_14_a_failed_run_is_offered_and_goes_on_when_asked_to() {
    let world = World::new();
    world.command_task("t", &format!("echo x >> {}; test -e {}", world.at("e"), world.at("fixed")));
    let (exit, failed) = world.start("t");
    assert_eq!((exit, &failed["status"], &failed["code"]), (1, &"FAILED".into(), &"COMMAND_FAILED".into()));
    let (exit, told) = world.start("t");
    assert_eq!((exit, &told["run"], world.lines("e")), (1, &"run_t_001".into(), 1), "nothing runs");
    assert_eq!(told["next"], "agentrun resume run_t_001");
    world.open("fixed");
    let (exit, done) = world.json(&["start", "t", "--resume"]);
    assert_eq!((exit, &done["status"], &done["via"]), (0, &"SUCCEEDED".into(), &"resumed".into()), "{done:#}");
    assert_eq!((&done["attempt"], world.lines("e")), (&2.into(), 2));
}

#[test]
fn contract_14_a_canceled_run_stays_canceled() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},write:w.txt=w,silent", world.at("in")));
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    let (exit, canceled) = world.json(&["cancel", "run_t_001", "--reason", "not wanted"]);
    assert_eq!((exit, &canceled["status"]), (0, &"CANCELED".into()), "{canceled:#}");
    assert_eq!(running.end().exit, 9);
    let (exit, told) = world.start("t");
    assert_eq!((exit, &told["status"]), (9, &"CANCELED".into()));
    assert!(told["next"].as_str().unwrap().contains("--new"), "{told:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w", "R-R9: the work is kept");
    world.assert_sound("run_t_001");
}

#[test]
fn contract_14_a_run_whose_holder_died_is_taken_over_by_start() {
    let world = World::new();
    world.agent_task("t", &format!("effect:{},touch:{},wait-for:{},ok", world.at("e"), world.at("in"), world.at("go")));
    let running = world.spawn_until(&["start", "t"], "in");
    running.kill();
    world.open("go");
    let (exit, done) = world.start("t");
    assert_eq!((exit, &done["run"], &done["attempt"]), (0, &"run_t_001".into(), &2.into()), "{done:#}");
    assert_eq!(done["attempts"][1]["opened_by"], "takeover");
    world.assert_sound("run_t_001");
}

#[test]
fn contract_14_a_run_that_waits_for_its_retry_says_when() {
    let world = World::new();
    world.policy(&[("retry", "{ base: 10ms, max: 1s, jitter: 0, total: 2h }")]);
    world.agent_task("t", &format!("effect:{},error:RATE_LIMIT:3600", world.at("e")));
    for _ in 0..2 {
        let (exit, told) = world.start("t");
        assert_eq!((exit, &told["status"], &told["code"]), (18, &"RETRYING".into(), &"RATE_LIMIT".into()), "{told:#}");
        assert!(told["retry_at"].is_string());
    }
    assert_eq!(world.lines("e"), 1, "FR-G7: nothing is spawned during the hold");
}

#[test]
fn f19_r_f4_fr_e1_fr_e2_a_hundred_simultaneous_starts_are_one_run() {
    let world = World::new();
    world.agent_task("t", &format!("effect:{},wait-for:{},ok", world.at("e"), world.at("go")));
    let answers: Vec<(i32, Value)> = thread::scope(|scope| {
        // Ten follow, ninety are told; the run ends only when all of the latter have had their answer.
        let follow: Vec<_> = (0..10).map(|_| scope.spawn(|| world.json(&["start", "t"]))).collect();
        let told: Vec<_> = (0..90).map(|_| scope.spawn(|| world.json(&["start", "t", "--no-wait"]))).collect();
        wait_until("one has begun", || world.path("e").exists());
        let mut last = Vec::new();
        let mut answers = Vec::new();
        for thread in told {
            // One of these may be the one that runs it.
            if thread.is_finished() { answers.push(thread.join().unwrap()) } else { last.push(thread) }
        }
        wait_until("all but the one that works have an answer", || {
            last.iter().filter(|t| !t.is_finished()).count() <= 1
        });
        world.open("go");
        answers.extend(last.into_iter().chain(follow).map(|t| t.join().unwrap()));
        answers
    });
    assert_eq!(world.lines("e"), 1, "one execution");
    assert!(answers.iter().all(|(_, run)| run["run"] == "run_t_001"));
    assert_eq!(answers.iter().filter(|(_, run)| run["via"] == "new").count(), 1);
    assert!(answers.iter().all(|(exit, _)| [0, 7].contains(exit)), "{:?}", answers.iter().map(|a| a.0));
    assert_eq!(answers.iter().filter(|(_, run)| run["status"] == "SUCCEEDED").count(), {
        answers.iter().filter(|(exit, _)| *exit == 0).count()
    });
    let run = world.show("run_t_001");
    assert_eq!((&run["attempt"], run["attempts"].as_array().unwrap().len()), (&1.into(), 1));
    let (_, all) = world.json(&["status", "--all"]);
    assert_eq!(all["runs"].as_array().unwrap().len(), 1);
    world.assert_sound("run_t_001");
}

#[test]
fn r_f7_fr_e23_an_idempotency_key_names_one_request() {
    let world = World::new();
    world.agent_task("a", "ok");
    world.agent_task("b", "ok");
    let (exit, first) = world.json(&["start", "a", "--idempotency-key", "job-7"]);
    assert_eq!(exit, 0);
    let (exit, again) = world.json(&["start", "a", "--idempotency-key", "job-7"]);
    assert_eq!((exit, &again["run"]), (0, &first["run"]));
    let (exit, error) = world.json(&["start", "b", "--idempotency-key", "job-7"]);
    assert_eq!((exit, &error["code"]), (8, &"IDEMPOTENCY_KEY_REUSED".into()), "{error:#}");
    assert_eq!(error["schema"], "agentrun/error/1");
    let (_, all) = world.json(&["status", "--all"]);
    assert_eq!(all["runs"].as_array().unwrap().len(), 1, "nothing was begun");
}

#[test]
fn r_f7_an_expired_key_is_said_to_be_expired() {
    let world = World::new();
    world.policy(&[("retention", "{ start: 1ms }")]);
    world.agent_task("a", "ok");
    let (exit, first) = world.json(&["start", "a", "--idempotency-key", "job-7"]);
    assert_eq!(exit, 0, "{first:#}");
    let told = world.run(&["start", "a", "--idempotency-key", "job-7", "--json"]);
    assert!(told.stdout.to_lowercase().contains("expired"), "{}\n{}", told.stdout, told.stderr);
}

#[test]
fn r_f5_a_version_names_one_text() {
    let world = World::new();
    let prompt = |version: &str, text: &str| {
        world.write("prompts/p.md", &format!("---\nversion: {version}\n---\n{text}\n"));
    };
    let task =
        "steps:\n  - key: code\n    kind: agent\n    agent: { name: fake, args: [ ok ] }\n    prompt: prompts/p.md\n";
    world.task("t", task);
    prompt("v1", "one");
    assert_eq!(world.start("t").0, 0);
    prompt("v1", "two");
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (8, &"PROMPT_VERSION_REUSED".into()), "{error:#}");
    prompt("v2", "two");
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["prompt_version"]), (0, &"v2".into()));
    let policy = world.read("automation-policy.yml");
    world.write("automation-policy.yml", &format!("{policy}logs: {{ max: 1MiB }}\n"));
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (8, &"POLICY_VERSION_REUSED".into()), "{error:#}");
}

#[test]
fn r_f6_fingerprint_explains_every_part_and_what_differs() {
    let world = World::new();
    world.agent_task("t", "ok");
    let (_, run) = world.start("t");
    let (exit, same) = world.json(&["fingerprint", "t", "--against", "run_t_001"]);
    assert_eq!((exit, &same["fingerprint"]), (0, &run["fingerprint"]), "{same:#}");
    world.write("src/lib.txt", "two\n");
    world.git(&["commit", "-qam", "second"]);
    let (_, other) = world.json(&["fingerprint", "t", "--against", "run_t_001"]);
    assert_ne!(other["fingerprint"], run["fingerprint"]);
    assert!(other.to_string().contains(run["base_commit"].as_str().unwrap()), "{other:#}");
}
