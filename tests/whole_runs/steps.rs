//! Steps: their order, conditions, what they keep, and the way back to the agent.

use serde_json::Value;

use crate::world::{World, agent_step, command_step, qa_step, states, step};

fn state_words(run: &Value) -> Vec<String> {
    states(run).into_iter().map(|(key, state)| format!("{key}={state}")).collect()
}

#[test]
fn r_s1_a_step_needs_the_one_before_it_and_a_failure_blocks_the_rest() {
    let world = World::new();
    let log = |n: u32| command_step(&format!("s{n}"), &format!("echo {n} >> {}", world.at("order")));
    let bad = command_step("bad", "echo out; echo err >&2; exit 3");
    world.task("t", &format!("steps:\n{}{}{bad}{}", log(1), log(2), log(3)));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"COMMAND_FAILED".into()), "{run:#}");
    assert_eq!(state_words(&run), ["s1=SUCCEEDED", "s2=SUCCEEDED", "bad=FAILED", "s3=BLOCKED"]);
    assert_eq!(std::fs::read_to_string(world.path("order")).unwrap(), "1\n2\n");
    // R-M3: what blocked a step is named; the child's own exit code is a fact, not ours.
    assert!(step(&run, "s3")["message"].as_str().unwrap().contains("bad"), "{run:#}");
    assert_eq!(run["executions"][2]["exit_code"], 3);
    let out = world.run(&["logs", "run_t_001", "--step", "bad"]);
    assert!(out.stdout.contains("out") && out.stdout.contains("err"), "{}", out.stdout);
}

#[test]
fn r_s1_independent_checks_run_side_by_side() {
    let world = World::new();
    // Each waits for the other: only side by side can they end.
    let line = |own: &str, other: &str| {
        let (own, other) = (world.at(own), world.at(other));
        format!("touch {own}; for i in $(seq 600); do test -e {other} && exit 0; sleep 0.05; done; exit 1")
    };
    let first = command_step("first", "true");
    let a = qa_step("a", &line("a", "b")) + "    needs: [ first ]\n";
    let b = qa_step("b", &line("b", "a")) + "    needs: [ first ]\n";
    let last = command_step("last", "true") + "    needs: [ a, b ]\n";
    world.task("t", &format!("steps:\n{first}{a}{b}{last}"));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(run["phase"], "QA_PASSED");
}

#[test]
fn r_s1_one_of_two_checks_side_by_side_fails_and_the_other_ends() {
    let world = World::new();
    let first = command_step("first", "true");
    let good = qa_step("good", &format!("while ! test -e {}; do sleep 0.01; done", world.at("failed")));
    let bad = qa_step("bad", &format!("touch {}; exit 1", world.at("failed")));
    let needs = "    needs: [ first ]\n";
    world.task(
        "t",
        &format!("steps:\n{first}{good}{needs}{bad}{needs}{}    needs: [ good, bad ]\n", command_step("last", "true")),
    );
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"QA_FAILED".into()), "{run:#}");
    assert_eq!(state_words(&run), ["first=SUCCEEDED", "good=SUCCEEDED", "bad=FAILED", "last=BLOCKED"]);
    assert_eq!(run["outcome"]["verification"], "failed");
}

#[test]
fn r_m3_when_decides_and_a_skip_is_said() {
    let world = World::new();
    let skipped = command_step("no", "exit 1") + "    when: \"inputs.kind == 'other'\"\n";
    let taken = command_step("yes", "true") + "    when: \"inputs.kind == 'mine' and steps.no.state == 'SKIPPED'\"\n";
    let never = command_step("failure", "exit 1") + "    when: on_failure\n";
    let always = command_step("always", "true") + "    when: always\n";
    world.task("t", &format!("inputs: {{ kind: mine }}\nsteps:\n{skipped}{taken}{never}{always}"));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(state_words(&run), ["no=SKIPPED", "yes=SUCCEEDED", "failure=SKIPPED", "always=SUCCEEDED"]);
    let events = world.events("run_t_001");
    let skip = events.iter().find(|e| e["kind"] == "step.moved" && e["step"] == "no").unwrap();
    assert_eq!(skip["body"]["to"], "SKIPPED", "a skip is never silent (R-M7): {skip:#}");
}

#[test]
fn r_m3_steps_for_failures_run_after_one() {
    let world = World::new();
    let bad = command_step("bad", "exit 1");
    let failure = command_step("failure", &format!("touch {}", world.at("failure"))) + "    when: on_failure\n";
    let always = command_step("always", &format!("touch {}", world.at("always"))) + "    when: always\n";
    world.task("t", &format!("steps:\n{bad}{failure}{always}{}", command_step("last", "true")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (1, &"FAILED".into()), "{run:#}");
    assert!(world.path("failure").exists() && world.path("always").exists(), "{run:#}");
    assert_eq!(step(&run, "last")["state"], "BLOCKED");
}

#[test]
fn r_s7_artifacts_are_kept_with_their_hashes_and_a_glob_without_a_match_fails() {
    let world = World::new();
    let made = command_step("make", "mkdir -p out; echo 1 > out/a.txt; echo 2 > out/b.txt")
        + "    artifacts: [ \"out/*.txt\" ]\n";
    world.task("t", &format!("steps:\n{made}"));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    let paths: Vec<_> = run["artifacts"].as_array().unwrap().iter().map(|a| a["path"].as_str().unwrap()).collect();
    for path in ["artifacts/make/out/a.txt", "artifacts/make/out/b.txt"] {
        assert!(paths.contains(&path) && world.state("run_t_001").join(path).is_file(), "{path}: {paths:?}");
    }
    let none = command_step("make", "true") + "    artifacts: [ \"nothing/*.txt\" ]\n";
    world.task("u", &format!("steps:\n{none}"));
    let (exit, run) = world.start("u");
    assert_eq!((exit, &step(&run, "make")["state"]), (1, &"FAILED".into()), "{run:#}");
    let optional = command_step("make", "true") + "    artifacts: [ { glob: \"nothing/*.txt\", optional: true } ]\n";
    world.task("v", &format!("steps:\n{optional}"));
    let (exit, run) = world.start("v");
    assert_eq!(exit, 0, "{run:#}");
}

#[test]
fn r_s7_a_changed_or_missing_artifact_is_found() {
    let world = World::new();
    let made = command_step("make", "echo 1 > a.txt; echo 2 > b.txt") + "    artifacts: [ a.txt, b.txt ]\n";
    world.task("t", &format!("steps:\n{made}"));
    assert_eq!(world.start("t").0, 0);
    let kept = world.state("run_t_001/artifacts/make");
    std::fs::write(kept.join("a.txt"), "other\n").unwrap();
    std::fs::remove_file(kept.join("b.txt")).unwrap();
    let (exit, found) = world.json(&["artifact", "verify", "run_t_001"]);
    assert_eq!(exit, 13, "{found:#}");
    let text = found.to_string();
    assert!(text.contains("a.txt") && text.contains("b.txt"), "{found:#}");
}

fn send_back_task(world: &World, script: &str, rounds: u32) {
    let code = agent_step("code", script);
    let qa = qa_step("qa", &format!("echo expected 42 >&2; test $(wc -l < {}) -ge 2", world.at("effects")));
    world.task("t", &format!("steps:\n{code}{qa}    on_fail: {{ send_back_to: code, rounds: {rounds} }}\n"));
}

#[test]
fn r_r2_a_failed_check_sends_the_agent_back_with_the_output() {
    let world = World::new();
    let script = format!("effect:{},env-to:{},echo-session,read-stdin,ok", world.at("effects"), world.at("env"));
    send_back_task(&world, &script, 2);
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["attempt"]), (0, &1.into()), "{run:#}");
    assert_eq!((&step(&run, "code")["runs"], &step(&run, "qa")["runs"]), (&2.into(), &2.into()));
    let prompt = std::fs::read_to_string(world.state("run_t_001/attempt-1/code.2.prompt.md")).unwrap();
    assert!(prompt.contains("expected 42") && prompt.contains("`qa`"), "{prompt}");
    let env = std::fs::read_to_string(world.path("env")).unwrap();
    assert!(env.contains("AGENTRUN_SESSION="), "the same conversation: {env}");
    assert_eq!((&run["phase"], &run["outcome"]["verification"]), (&"QA_PASSED".into(), &"passed".into()));
    assert_eq!(run["usage"]["tokens"], 2100, "each execution is paid for");
    world.assert_sound("run_t_001");
}

#[test]
fn r_r2_rounds_are_bounded_and_then_a_person_must_look() {
    let world = World::new();
    let code = agent_step("code", &format!("effect:{},ok", world.at("effects")));
    let qa = qa_step("qa", "exit 1") + "    on_fail: { send_back_to: code, rounds: 2 }\n";
    world.task("t", &format!("steps:\n{code}{qa}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], &run["code"]), (1, &"FAILED".into(), &"QA_FAILED".into()), "{run:#}");
    assert_eq!((world.lines("effects"), &run["attempt"]), (3, &1.into()), "never retried by itself");
    // One more round on purpose: the agent's work of before is not thrown away.
    let (exit, run) = world.json(&["resume", "run_t_001", "--send-back"]);
    assert_eq!((exit, world.lines("effects")), (1, 4), "{run:#}");
}

#[test]
fn r_s2_resume_repeats_no_step_that_succeeded() {
    let world = World::new();
    let log = |n: u32| command_step(&format!("s{n}"), &format!("echo {n} >> {}", world.at("order")));
    let gate = command_step("gate", &format!("test -e {}", world.at("fixed")));
    world.task(
        "t",
        &format!(
            "steps:\n{}{}{}{gate}{}",
            log(1),
            agent_step("code", &format!("effect:{},ok", world.at("e"))),
            log(2),
            log(3)
        ),
    );
    assert_eq!(world.start("t").0, 1);
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(std::fs::read_to_string(world.path("order")).unwrap(), "1\n2\n3\n", "FR-D16");
    assert_eq!((world.lines("e"), &step(&run, "s1")["runs"], &step(&run, "gate")["runs"]), (1, &1.into(), &2.into()));
}

#[test]
fn fr_d26_resume_goes_on_at_the_failure_that_is_open() {
    let world = World::new();
    let bad = |name: &str| command_step(name, &format!("echo x >> {0}-runs; test -e {0}-fixed", world.at(name)));
    world.task("t", &format!("steps:\n{}{}", bad("a"), bad("b")));
    assert_eq!(world.start("t").0, 1);
    world.open("a-fixed");
    assert_eq!(world.run(&["resume", "t"]).exit, 1);
    world.open("b-fixed");
    let (exit, run) = world.json(&["resume", "t"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!((world.lines("a-runs"), world.lines("b-runs")), (2, 2));
}

#[test]
fn r_s5_resume_prints_every_difference_with_its_verdict() {
    let world = World::new();
    let gate = command_step("gate", &format!("test -e {}", world.at("fixed")));
    let make = command_step("make", "echo 1 > a.txt") + "    artifacts: [ a.txt ]\n";
    world.task("t", &format!("steps:\n{make}{gate}"));
    assert_eq!(world.start("t").0, 1);
    let outlook = || world.json(&["resume", "run_t_001", "--dry-run"]);
    let (exit, fine) = outlook();
    assert_eq!((exit, &fine["verdict"], &fine["next_step"]), (0, &"VALID".into(), &"gate".into()), "{fine:#}");
    assert_eq!(fine["schema"], "agentrun/resume/1");
    // A changed task: the recorded one goes on.
    world.task("t", &format!("mode: other\nsteps:\n{make}{gate}"));
    let (exit, told) = outlook();
    assert_eq!((exit, &told["differences"][0]["code"]), (0, &"TASK_SPEC_CHANGED".into()), "{told:#}");
    // Somebody worked in the run's own copy: a person must say so.
    std::fs::write(world.state("work/run_t_001/extra.txt"), "mine\n").unwrap();
    let (exit, told) = outlook();
    assert_eq!((exit, &told["verdict"]), (17, &"REVIEW_REQUIRED".into()), "{told:#}");
    assert_eq!(world.run(&["resume", "run_t_001"]).exit, 17);
    // A kept file that is gone: nobody can accept that.
    std::fs::remove_file(world.state("run_t_001/artifacts/make/a.txt")).unwrap();
    let (exit, told) = outlook();
    assert_eq!((exit, &told["verdict"]), (17, &"RESUME_BLOCKED".into()), "{told:#}");
    let (exit, error) = world.json(&["resume", "run_t_001", "--accept", "ARTIFACT_MISSING", "--keep"]);
    assert_eq!((exit, &error["code"]), (17, &"RESUME_BLOCKED".into()), "{error:#}");
}

#[test]
fn r_s5_fr_h1_a_person_says_what_becomes_of_foreign_changes_in_the_copy() {
    for (flag, kept) in [("--keep", true), ("--rebuild", false)] {
        let world = World::new();
        let gate = command_step("gate", &format!("test -e {}", world.at("fixed")));
        world.task("t", &format!("steps:\n{}{gate}", agent_step("code", "write:a.txt=a,ok")));
        assert_eq!(world.start("t").0, 1);
        std::fs::write(world.state("work/run_t_001/extra.txt"), "mine\n").unwrap();
        world.open("fixed");
        let (exit, run) = world.json(&["resume", "run_t_001", flag]);
        assert_eq!(exit, 0, "{flag} {run:#}");
        let files = world.git(&["ls-tree", "--name-only", "agentrun/run_t_001"]);
        assert_eq!((files.contains("extra.txt"), files.contains("a.txt")), (kept, true), "{flag}: {files}");
        let saved = run["artifacts"].as_array().unwrap().iter().any(|a| {
            let path = world.state("run_t_001").join(a["path"].as_str().unwrap());
            std::fs::read_to_string(path).unwrap_or_default().contains("extra.txt")
        });
        assert!(saved, "{flag}: nothing is thrown away unsaved: {run:#}");
    }
}
