//! What resume compares before it goes on (R-S5, R-S6, R-F5): each fact of the record, each with a code, the old and the new
//! value and a verdict, and what becomes of a difference that a person accepts.

use std::fs;

use serde_json::Value;

use crate::world::{World, agent_step, command_step};

/// A run that failed at a gate after an agent had worked; `fixed` opens the gate.
fn failed() -> World {
    let world = World::new();
    prepare(&world, "");
    assert_eq!(world.start("t").0, 1);
    world
}

/// The task of [`failed`], with more lines before its steps.
fn prepare(world: &World, lines: &str) {
    world.write("Cargo.lock", "locked\n");
    world.git(&["add", "Cargo.lock"]);
    world.git(&["commit", "-qm", "locked"]);
    let steps =
        agent_step("code", "write:a.txt=a,ok") + &command_step("gate", &format!("test -e {}", world.at("fixed")));
    world.task("t", &format!("{lines}steps:\n{steps}"));
}

fn outlook(world: &World, more: &[&str]) -> (i32, Value) {
    world.json(&[&["resume", "run_t_001", "--dry-run"], more].concat())
}

/// Code and verdict of each difference, without repetitions.
fn codes(told: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let mut codes: Vec<_> =
        told["differences"].as_array().unwrap().iter().map(|d| (text(&d["code"]), text(&d["verdict"]))).collect();
    codes.dedup();
    codes
}

fn expected(codes: &[(&str, &str)]) -> Vec<(String, String)> {
    codes.iter().map(|(code, verdict)| ((*code).to_owned(), (*verdict).to_owned())).collect()
}

fn copy(world: &World, name: &str) -> std::path::PathBuf {
    world.state("work/run_t_001").join(name)
}

const VALID: &str = "VALID";
const REVIEW: &str = "REVIEW_REQUIRED";
const BLOCKED: &str = "RESUME_BLOCKED";

type Case = (&'static str, fn(&World), &'static [(&'static str, &'static str)]);

/// Each fact of R-S5 that this version has, changed alone.
const FACTS: &[Case] = &[
    ("nothing", |_| {}, &[]),
    ("the checkout has moved on", |w| drop(w.git(&["commit", "-q", "--allow-empty", "-m", "on"])), &[]),
    ("the task", |w| prepare_again(w, "mode: other\n"), &[("TASK_SPEC_CHANGED", VALID)]),
    ("the task is gone", |w| fs::remove_file(w.repo().join("tasks/t.yml")).unwrap(), &[("TASK_SPEC_CHANGED", VALID)]),
    ("the task cannot be read", |w| w.write("tasks/t.yml", "task: t\nstepz: 1\n"), &[("TASK_SPEC_CHANGED", VALID)]),
    ("the prompt", |w| w.write("prompts/do.md", "Do it otherwise.\n"), &[("PROMPT_VERSION_CHANGED", VALID)]),
    ("a limit", |w| w.policy(&[("budgets", "{ task: { attempts: 9, tokens: 9k } }")]), &[("POLICY_CHANGED", VALID)]),
    ("the policy is broken", |w| w.write("automation-policy.yml", "version: [\n"), &[("POLICY_CHANGED", VALID)]),
    (
        "a variable more",
        |w| w.policy(&[("env", "[ SECRET ]")]),
        &[("POLICY_CHANGED", VALID), ("POLICY_CHANGED", REVIEW)],
    ),
    ("a file in the copy", |w| fs::write(copy(w, "extra.txt"), "x").unwrap(), &[("WORKTREE_CHANGED", REVIEW)]),
    ("the copy is gone", |w| fs::remove_dir_all(copy(w, "")).unwrap(), &[("WORKTREE_CHANGED", VALID)]),
    (
        "a lock file in the copy",
        |w| fs::write(copy(w, "Cargo.lock"), "other\n").unwrap(),
        &[("WORKTREE_CHANGED", REVIEW), ("LOCKFILE_CHANGED", REVIEW)],
    ),
    (
        "a lock file that is new in the copy",
        |w| fs::write(copy(w, "go.sum"), "new\n").unwrap(),
        &[("WORKTREE_CHANGED", REVIEW), ("LOCKFILE_CHANGED", REVIEW)],
    ),
    ("the record of the files that count", |w| forget_files(w), &[("CONTEXT_CHANGED", REVIEW)]),
    (
        "a kept file",
        |w| fs::write(w.state("run_t_001/artifacts/changes.patch"), "").unwrap(),
        &[("ARTIFACT_CHANGED", BLOCKED)],
    ),
    (
        "a kept file is gone",
        |w| fs::remove_file(w.state("run_t_001/artifacts/changes.patch")).unwrap(),
        &[("ARTIFACT_MISSING", BLOCKED)],
    ),
];

fn prepare_again(world: &World, lines: &str) {
    let text = world.read("tasks/t.yml");
    world.write("tasks/t.yml", &text.replacen("steps:", &format!("{lines}steps:"), 1));
}

/// Takes the relevant files out of the record.
fn forget_files(world: &World) {
    let database = rusqlite::Connection::open(world.state("state/agentrun.db")).unwrap();
    let changed =
        database.execute("UPDATE run_inputs SET inputs = json_set(inputs, '$.files', json('[]'))", ()).unwrap();
    assert_eq!(changed, 1);
}

#[test]
fn r_s5_each_fact_that_changed_has_a_code_two_values_and_a_verdict() {
    for (what, change, found) in FACTS {
        let world = World::new();
        prepare(&world, "context: { files: [ \"src/**\" ] }\n");
        assert_eq!(world.start("t").0, 1);
        change(&world);
        let (exit, told) = outlook(&world, &[]);
        assert_eq!(codes(&told), expected(found), "{what}: {told:#}");
        let worst = found
            .iter()
            .map(|(_, verdict)| *verdict)
            .max_by_key(|v| [VALID, REVIEW, BLOCKED].iter().position(|w| w == v));
        assert_eq!(
            (exit, &told["verdict"]),
            (if worst.unwrap_or(VALID) == VALID { 0 } else { 17 }, &worst.unwrap_or(VALID).into()),
            "{what}"
        );
        for difference in told["differences"].as_array().unwrap() {
            assert_ne!(difference["old"], difference["new"], "{what}: {told:#}");
            assert!(!difference["note"].as_str().unwrap().is_empty(), "{what}: {told:#}");
        }
        let text = world.run(&["resume", "run_t_001", "--dry-run"]).stdout;
        let lines = found.iter().filter(|(code, verdict)| text.contains(&format!("{code} ({verdict})")));
        assert_eq!(lines.count(), found.len(), "{what}: {text}");
    }
}

#[test]
fn r_s5_a_lock_file_that_the_run_itself_changed_is_told_and_goes_on() {
    let world = World::new();
    world.write("Cargo.lock", "locked\n");
    world.git(&["add", "Cargo.lock"]);
    world.git(&["commit", "-qm", "locked"]);
    let steps = agent_step("code", "write:Cargo.lock=newer,ok")
        + &command_step("gate", &format!("test -e {}", world.at("fixed")));
    world.task("t", &format!("steps:\n{steps}"));
    assert_eq!(world.start("t").0, 1);
    let (exit, told) = outlook(&world, &[]);
    assert_eq!((exit, codes(&told)), (0, expected(&[("LOCKFILE_CHANGED", VALID)])), "{told:#}");
    assert!(told["differences"][0]["old"].as_str().unwrap().starts_with("Cargo.lock sha256:"), "{told:#}");
}

#[test]
fn r_s5_a_base_commit_that_is_gone_blocks_and_in_place_one_that_moved_needs_a_person() {
    let world = World::new();
    prepare(&world, "workspace: in-place\n");
    world.git(&["add", "."]);
    world.git(&["commit", "-qm", "own files"]);
    assert_eq!(world.start("t").0, 1);
    assert_eq!(outlook(&world, &[]).0, 0);
    world.git(&["commit", "-q", "--allow-empty", "-m", "on"]);
    let (exit, told) = outlook(&world, &[]);
    assert_eq!((exit, codes(&told)), (17, expected(&[("BASE_COMMIT_CHANGED", REVIEW)])), "{told:#}");
    assert_eq!(outlook(&world, &["--accept", "BASE_COMMIT_CHANGED"]).0, 0);
    fs::write(world.repo().join("Cargo.lock"), "other\n").unwrap();
    let (_, told) = outlook(&world, &[]);
    assert!(codes(&told).contains(&("LOCKFILE_CHANGED".into(), REVIEW.into())), "in place, too: {told:#}");

    let world = failed();
    let base = world.show("run_t_001")["base_commit"].as_str().unwrap().to_owned();
    fs::remove_file(world.repo().join(format!(".git/objects/{}/{}", &base[..2], &base[2..]))).unwrap();
    let (exit, told) = outlook(&world, &["--accept", "BASE_COMMIT_CHANGED"]);
    assert_eq!((exit, &told["verdict"]), (17, &BLOCKED.into()), "nobody can accept that: {told:#}");
}

#[test]
fn r_s5_what_is_accepted_is_in_the_record_with_who_when_old_and_new_and_in_the_report() {
    let world = failed();
    fs::write(copy(&world, "Cargo.lock"), "other\n").unwrap();
    world.open("fixed");
    let one = ["resume", "run_t_001", "--accept", "WORKTREE_CHANGED"];
    assert_eq!(world.run(&one).exit, 17, "the lock file is a difference of its own");
    let both = [&one[..], &["--accept", "LOCKFILE_CHANGED", "--reason", "the mirror is down"]].concat();
    let (exit, run) = world.json(&both);
    assert_eq!(exit, 0, "{run:#}");
    let accepted: Vec<_> =
        world.events("run_t_001").into_iter().filter(|e| e["kind"] == "difference.accepted").collect();
    assert_eq!(accepted.len(), 2, "{accepted:#?}");
    for event in &accepted {
        let body: Value = match &event["body"] {
            Value::String(text) => serde_json::from_str(text).unwrap(),
            body => body.clone(),
        };
        assert!(body["old"].is_string() && body["new"].is_string() && body["old"] != body["new"], "{event:#}");
        assert_eq!((&body["verdict"], &body["by"]), (&REVIEW.into(), &"--accept".into()), "{event:#}");
        assert!(event["actor"].is_string() && event["at"].is_string(), "{event:#}");
    }
    let report = fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
    assert!(report.contains("LOCKFILE") && report.contains("the mirror is down"), "{report}");
}

#[test]
fn r_s5_a_difference_that_is_not_there_cannot_be_accepted_and_a_blocked_one_neither() {
    let world = failed();
    for more in [&["--accept", "LOCKFILE_CHANGED"][..], &["--accept", "LOCKFILE_CHANGED", "--dry-run"]] {
        let (exit, error) = world.json(&[&["resume", "run_t_001"], more].concat());
        assert_eq!((exit, &error["code"]), (8, &"INVALID_STATE".into()), "{error:#}");
        assert!(error["message"].as_str().unwrap().contains("nothing differs"), "{error:#}");
    }
    fs::remove_file(world.state("run_t_001/artifacts/changes.patch")).unwrap();
    let (exit, error) = world.json(&["resume", "run_t_001", "--accept", "ARTIFACT_MISSING"]);
    assert_eq!((exit, &error["code"]), (17, &"RESUME_BLOCKED".into()), "{error:#}");
    assert_eq!(world.show("run_t_001")["attempt"], 1, "nothing was begun");
}

#[test]
fn r_s6_a_stricter_policy_holds_from_here_on_and_a_looser_one_only_when_a_person_agrees() {
    let world = failed();
    world.policy(&[("rules", "[ { id: no-push, deny: git.push } ]"), ("budgets", "{ task: { attempts: 7 } }")]);
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.has_event("run_t_001", "policy.replaced", "budgets.task.attempts"));
    assert!(world.has_event("run_t_001", "policy.replaced", "rules.no-push"));
    let last = run["checkpoints"].as_array().unwrap().last().unwrap();
    assert_eq!(last["policy_version"], "t2", "{run:#}");

    let world = failed();
    world.policy(&[("rules", "[ { id: push, allow: git.push } ]")]);
    world.open("fixed");
    let (exit, error) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &error["code"]), (17, &"REVIEW_REQUIRED".into()), "{error:#}");
    let (exit, run) = world.json(&["resume", "run_t_001", "--accept", "POLICY_CHANGED"]);
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.has_event("run_t_001", "difference.accepted", "allow git.push"));
}

#[test]
fn r_s6_in_place_what_an_agent_wrote_into_the_policy_does_not_hold_by_itself() {
    let world = World::new();
    let looser = world.at("looser.yml");
    prepare(&world, "");
    let text = world.read("automation-policy.yml").replacen("version: t1", "version: mine", 1);
    fs::write(&looser, text.replacen("attempts: 3", "attempts: 99", 1)).unwrap();
    let gate = format!("cp {looser} automation-policy.yml; test -e {}", world.at("fixed"));
    world.task("t", &format!("workspace: in-place\nsteps:\n{}", command_step("gate", &gate)));
    world.git(&["add", "."]);
    world.git(&["commit", "-qm", "own files"]);
    assert_eq!(world.start("t").0, 1);
    let (_, told) = outlook(&world, &[]);
    assert!(
        told.to_string().contains("attempts: 99") && told.to_string().contains("the recorded policy goes on"),
        "{told:#}"
    );
    assert_eq!(world.run(&["resume", "run_t_001"]).exit, 1);
    assert!(!world.has_event("run_t_001", "policy.replaced", ""));
    world.open("fixed");
    assert_eq!(world.run(&["resume", "run_t_001", "--accept", "POLICY_CHANGED"]).exit, 0);
    assert!(world.has_event("run_t_001", "policy.replaced", "mine"));
}

#[test]
fn r_f5_a_policy_version_with_other_content_is_refused_by_resume_too() {
    let world = failed();
    let text = world.read("automation-policy.yml");
    world.write("automation-policy.yml", &text.replacen("attempts: 3", "attempts: 9", 1));
    for args in [&["resume", "run_t_001"][..], &["resume", "run_t_001", "--dry-run"], &["start", "t"]] {
        let (exit, error) = world.json(args);
        assert_eq!((exit, &error["code"]), (8, &"POLICY_VERSION_REUSED".into()), "{args:?}: {error:#}");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("automation-policy.yml") && hint.contains("version:"), "{error:#}");
    }
    // A version that only a resumed run has used is used, too.
    world.write("automation-policy.yml", &text.replacen("version: t1", "version: t2", 1));
    assert_eq!(world.run(&["resume", "run_t_001"]).exit, 1);
    let other = text.replacen("version: t1", "version: t2", 1).replacen("attempts: 3", "attempts: 9", 1);
    world.write("automation-policy.yml", &other);
    assert_eq!(world.json(&["resume", "run_t_001"]).1["code"], "POLICY_VERSION_REUSED");
    world.write("automation-policy.yml", &other.replacen("version: t2", "version: t3", 1));
    world.open("fixed");
    assert_eq!(world.run(&["resume", "run_t_001"]).exit, 0);
}

#[test]
fn r_f5_a_prompt_version_with_other_text_is_refused_when_the_new_text_is_to_be_taken() {
    let world = World::new();
    world.write("prompts/do.md", "---\nversion: v1\n---\nDo it.\n");
    world.task("t", &format!("steps:\n{}", agent_step("code", "error:AUTH_FAILED")));
    world.start("t");
    world.write("prompts/do.md", "---\nversion: v1\n---\nDo it otherwise.\n");
    let (exit, error) = world.json(&["resume", "run_t_001", "--accept", "PROMPT_VERSION_CHANGED"]);
    assert_eq!((exit, &error["code"]), (8, &"PROMPT_VERSION_REUSED".into()), "{error:#}");
    world.write("prompts/do.md", "---\nversion: v2\n---\nDo it otherwise.\n");
    world.run(&["resume", "run_t_001", "--accept", "PROMPT_VERSION_CHANGED"]);
    assert!(world.has_event("run_t_001", "difference.accepted", "v1"));
    assert_eq!(codes(&outlook(&world, &[]).1), [], "the new one is the recorded one now");
}

#[test]
fn contract_5_fr_d7_resume_reads_the_policy_from_the_revision_that_start_was_given() {
    let world = World::new();
    prepare(&world, "");
    world.git(&["add", "automation-policy.yml"]);
    world.git(&["commit", "-qm", "policy"]);
    world.git(&["branch", "trusted"]);
    // The checkout's own policy is another: it must not count.
    world.policy(&[("env", "[ SECRET ]")]);
    let (exit, run) = world.json(&["start", "t", "--policy-ref", "trusted", "--agent", "fake"]);
    assert_eq!((exit, &run["policy_version"]), (1, &"t1".into()), "{run:#}");
    let (exit, told) = outlook(&world, &[]);
    assert_eq!((exit, codes(&told), &told["policy_ref"]), (0, vec![], &"trusted".into()), "{told:#}");
    assert!(world.run(&["resume", "run_t_001", "--dry-run"]).stdout.contains("read from trusted"));
    // The branch moves on: what stands there now holds.
    world.policy(&[("budgets", "{ task: { attempts: 8 } }")]);
    world.git(&["checkout", "-q", "trusted"]);
    world.git(&["commit", "-qam", "stricter"]);
    world.git(&["checkout", "-q", "main"]);
    let (exit, told) = outlook(&world, &[]);
    assert_eq!((exit, codes(&told)), (0, expected(&[("POLICY_CHANGED", VALID)])), "{told:#}");
    assert!(told.to_string().contains("attempts: 8"), "{told:#}");
    // A revision that is gone: the recorded policy goes on, and it is said.
    world.git(&["branch", "-q", "-D", "trusted"]);
    let (exit, told) = outlook(&world, &[]);
    assert_eq!((exit, codes(&told)), (0, expected(&[("POLICY_CHANGED", VALID)])), "{told:#}");
    assert!(told["differences"][0]["note"].as_str().unwrap().contains("cannot be read"), "{told:#}");
}

#[test]
fn r_a8_contracts_are_read_where_the_policy_is_read() {
    let world = World::new();
    world.command_task("t", "true");
    let contract = "policies/contracts/shop.yml";
    world.write(contract, "version: \"1\"\nsend: { run: ./effect.sh }\n");
    world.git(&["add", "automation-policy.yml", contract]);
    world.git(&["commit", "-qm", "policy"]);
    world.write(contract, "version: \"1\"\nsend: { runs: ./effect.sh }\n");
    let (exit, error) = world.json(&["start", "t"]);
    assert_eq!((exit, &error["code"]), (10, &"CONFIG_INVALID".into()), "{error:#}");
    assert!(error.to_string().contains("policies/contracts/shop.yml:2:9"), "{error:#}");
    let (exit, run) = world.json(&["start", "t", "--policy-ref", "HEAD"]);
    assert_eq!(exit, 0, "{run:#}");
}

#[test]
fn r_s5_a_task_with_other_steps_is_not_taken_over_in_silence() {
    let world = failed();
    world.task("t", &format!("steps:\n{}", command_step("other", "true")));
    let (exit, error) = world.json(&["resume", "run_t_001", "--accept", "TASK_SPEC_CHANGED"]);
    assert_eq!((exit, &error["code"]), (8, &"INVALID_STATE".into()), "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("code, gate"), "{error:#}");
}
