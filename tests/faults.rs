//! Faults of the seams: what is in between two commits, two processes, or two boots. The real program in a hermetic world.
#![cfg(feature = "test-fakes")]
#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows test functions only")]

#[path = "whole_runs/world.rs"]
#[allow(dead_code, reason = "shared with the whole runs, which use all of it")]
mod world;

use std::fs;
use std::time::Duration;

use world::{World, agent_step, command_step, qa_step, states, step, wait_until};

/// A policy with one more agent, `sh`: a shell script that speaks the agentrun protocol, so that it can behave otherwise
/// the second time.
fn shell_agent(world: &World, script: &str, sections: &[(&str, &str)]) {
    world.write("bot.sh", script);
    world.git(&["add", "bot.sh"]);
    world.git(&["commit", "-q", "-m", "bot"]);
    let bot = world.repo().join("bot.sh").display().to_string();
    let agents = format!("{{ sh: {{ run: [ sh, \"{bot}\" ], protocol: agentrun }} }}");
    world.policy(&[&[("agents", agents.as_str())], sections].concat());
}

const SH: &str = "  - key: code\n    kind: agent\n    agent: sh\n    prompt: prompts/do.md\n";
const DONE: &str = r#"echo '{"type":"result","status":"completed","text":"Done."}'"#;

fn database(world: &World) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(world.state("state/agentrun.db")).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    db
}

#[test]
fn r_r2_an_agent_that_was_sent_back_keeps_its_reason_over_a_crash() {
    let world = World::new();
    let script = format!("effect:{},wait-for:{},ok", world.at("calls"), world.at("go"));
    let check = format!("rm {}; echo expected 42; test -e {}", world.at("go"), world.at("fixed"));
    let qa = qa_step("qa", &check) + "    on_fail: { send_back_to: code, rounds: 2 }\n";
    world.task("t", &format!("steps:\n{}{qa}", agent_step("code", &script)));
    world.open("go");
    let first = world.spawn(&["start", "t"]);
    wait_until("the agent was sent back", || world.lines("calls") == 2);
    first.kill();
    world.open("go");
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    let prompt = fs::read_to_string(world.state("run_t_001/attempt-2/code.prompt.md")).unwrap();
    assert!(prompt.contains("expected 42") && prompt.contains("`qa`"), "{prompt}");
}

#[test]
fn r_r2_an_agent_that_was_sent_back_and_failed_is_told_its_reason_again() {
    let world = World::new();
    let fail_once =
        format!("echo x >> {0}\nif [ $(wc -l < {0}) -eq 2 ]; then kill -9 $$; fi\n{DONE}\n", world.at("calls"));
    shell_agent(&world, &fail_once, &[]);
    let check = format!("echo expected 42; test $(wc -l < {}) -ge 3", world.at("calls"));
    let qa = qa_step("qa", &check) + "    on_fail: { send_back_to: code, rounds: 2 }\n";
    world.task("t", &format!("steps:\n{SH}{qa}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["attempt"]), (0, &2.into()), "{run:#}");
    let prompt = fs::read_to_string(world.state("run_t_001/attempt-2/code.prompt.md")).unwrap();
    assert!(prompt.contains("expected 42"), "{prompt}");
}

#[test]
fn fr_d13_of_many_resumes_at_once_one_goes_on_and_none_takes_it_away() {
    let world = World::new();
    let line = format!(
        "echo x >> {0}; test $(wc -l < {0}) -ge 2 || exit 1; while ! test -e {1}; do sleep 0.02; done",
        world.at("e"),
        world.at("go")
    );
    world.command_task("t", &line);
    assert_eq!(world.start("t").0, 1);
    let resume = ["resume", "run_t_001", "--json"];
    // This one has seen a run at rest, and looks no further until another works on it.
    let mut late = world.agentrun(&resume);
    late.env("AGENTRUN_FAIL", "after/look:stop@1");
    let late = world.spawn_command(late);
    wait_until("the late one has looked", || is_stopped(late.pid()));
    let all: Vec<_> = (0..5).map(|_| world.spawn(&resume)).collect();
    wait_until("one goes on", || world.lines("e") == 2);
    late.signal(rustix::process::Signal::CONT);
    let mut all: Vec<_> = all.into_iter().chain([late]).collect();
    wait_until("the others gave up", || all.iter_mut().map(world::Running::is_over).filter(|over| *over).count() == 5);
    world.open("go");
    let ended: Vec<_> = all.into_iter().map(world::Running::end).collect();
    let mut exits: Vec<i32> = ended.iter().map(|r| r.exit).collect();
    exits.sort_unstable();
    assert_eq!(exits, [0, 7, 7, 7, 7, 7], "{ended:#?}");
    assert_eq!(world.lines("e"), 2, "the step ran once more, not more often");
    world.assert_sound("run_t_001");
}

/// Whether a signal has put a process to sleep.
fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

#[test]
fn fr_j8_a_run_of_an_earlier_boot_is_taken_over_once_its_lease_has_run_out() {
    let world = World::new();
    world.policy(&[("leases", "{ ttl: 1s, heartbeat: 200ms }")]);
    let line = format!(
        "echo x >> {0}; touch {1}; while ! test -e {2}; do sleep 0.02; done",
        world.at("e"),
        world.at("in"),
        world.at("go")
    );
    world.command_task("t", &line);
    world.spawn_until(&["start", "t"], "in").kill();
    world.open("go");
    database(&world).execute("UPDATE run SET lease_boot_id = 'an-earlier-one'", []).unwrap();
    let (exit, told) = world.json(&["start", "t", "--no-wait"]);
    assert_eq!(exit, 7, "{told:#}");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(world.lines("e"), 2);
}

#[test]
fn r_w2_a_crash_between_branch_and_pin_is_no_obstacle() {
    let world = World::new();
    let work = format!("echo x >> a.txt; test -e {}", world.at("fixed"));
    world.command_task("t", &work);
    assert_eq!(world.start("t").0, 1);
    // As if agentrun had died after the branch was set and before that was noted.
    world.git(&["update-ref", "-d", "refs/agentrun/run_t_001/branch"]);
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:a.txt"]), "x\nx");
}

#[test]
fn r_w2_a_branch_that_a_person_moved_is_not_overwritten() {
    let world = World::new();
    world.command_task("t", &format!("echo x >> a.txt; test -e {}", world.at("fixed")));
    assert_eq!(world.start("t").0, 1);
    world.git(&["branch", "-f", "agentrun/run_t_001", "main"]);
    world.git(&["commit", "-q", "--allow-empty", "-m", "theirs"]);
    world.git(&["branch", "-f", "agentrun/run_t_001", "main"]);
    let theirs = world.git(&["rev-parse", "main"]);
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(world.git(&["rev-parse", "agentrun/run_t_001"]), theirs, "{exit} {run:#}");
}

#[test]
fn r_r2_a_check_of_the_old_work_proves_nothing_about_the_new() {
    let world = World::new();
    let code = agent_step("code", &format!("effect:{},ok", world.at("calls")));
    let slow = qa_step("slow", &format!("echo x >> {}; sleep 0.4", world.at("slow"))) + "    needs: [ code ]\n";
    let quick = qa_step("quick", &format!("test $(wc -l < {}) -ge 2", world.at("calls")))
        + "    needs: [ code ]\n    on_fail: { send_back_to: code, rounds: 1 }\n";
    let fast = qa_step("fast", &format!("echo x >> {}", world.at("fast"))) + "    needs: [ code ]\n";
    world.task("t", &format!("steps:\n{code}{quick}{slow}{fast}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, world.lines("calls")), (0, 2), "{run:#}");
    assert_eq!((world.lines("slow"), world.lines("fast")), (2, 2), "every check saw the work that came home");
}

#[test]
fn r_r2_two_checks_that_fail_side_by_side_send_the_agent_back_once() {
    let world = World::new();
    let code = agent_step("code", &format!("effect:{},ok", world.at("calls")));
    let check = |key: &str| {
        qa_step(key, &format!("test $(wc -l < {}) -ge 2", world.at("calls")))
            + "    needs: [ code ]\n    on_fail: { send_back_to: code, rounds: 1 }\n"
    };
    world.task("t", &format!("steps:\n{code}{}{}", check("a"), check("b")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, world.lines("calls")), (0, 2), "{run:#}");
}

#[test]
fn r_r9_cancel_after_a_crash_keeps_the_work_on_the_branch() {
    let world = World::new();
    world.agent_task("t", &format!("write:a.txt=half,touch:{},hang", world.at("in")));
    world.spawn_until(&["start", "t"], "in").kill();
    let (exit, run) = world.json(&["cancel", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"CANCELED".into()), "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:a.txt"]), "half");
    world.assert_sound("run_t_001");
}

#[test]
fn r_m3_a_run_that_is_canceled_before_it_began_leaves_no_step_open() {
    let world = World::new();
    let task = |id: &str, line: &str| {
        world.task(
            id,
            &format!("concurrency: {{ group: g, when_busy: queue }}\nsteps:\n{}", command_step("work", line)),
        );
    };
    task("a", &format!("touch {}; while ! test -e {}; do sleep 0.02; done", world.at("in"), world.at("go")));
    task("b", "true");
    let first = world.spawn_until(&["start", "a"], "in");
    assert_eq!(world.run(&["start", "b", "--no-wait"]).exit, 7);
    let (exit, run) = world.json(&["cancel", "run_b_001"]);
    assert_eq!((exit, &run["status"]), (0, &"CANCELED".into()), "{run:#}");
    assert_eq!(states(&run), [("work".to_owned(), "CANCELED".to_owned())]);
    world.open("go");
    assert_eq!(first.end().exit, 0);
}

#[test]
fn contract_14_who_follows_a_run_follows_it_through_its_retries() {
    let world = World::new();
    let script = format!(
        "if test -e {0}; then {DONE}; else touch {0}; while ! test -e {1}; do sleep 0.02; done; kill -9 $$; fi",
        world.at("in"),
        world.at("go")
    );
    shell_agent(&world, &script, &[("retry", "{ base: 700ms, max: 1s, jitter: 0, total: 10s }")]);
    world.task("t", &format!("steps:\n{SH}"));
    let first = world.spawn_until(&["start", "t"], "in");
    let second = world.spawn(&["start", "t", "--json"]);
    wait_until("the second has attached", || world.has_event("run_t_001", "run.attached", ""));
    world.open("go");
    let second = second.end();
    assert_eq!((second.exit, first.end().exit), (0, 0), "{} {}", second.stdout, second.stderr);
}

#[test]
fn contract_14_who_follows_a_run_takes_over_when_its_holder_dies() {
    let world = World::new();
    let line = format!("touch {}; while ! test -e {}; do sleep 0.02; done", world.at("in"), world.at("go"));
    world.command_task("t", &line);
    let first = world.spawn_until(&["start", "t"], "in");
    let second = world.spawn(&["start", "t", "--json"]);
    wait_until("the second has attached", || world.has_event("run_t_001", "run.attached", ""));
    first.kill();
    world.open("go");
    let second = second.end();
    assert_eq!(second.exit, 0, "{} {}", second.stdout, second.stderr);
}

#[test]
fn r_w6_a_run_that_joins_a_group_ends_with_the_run_that_holds_it() {
    let world = World::new();
    let task = |id: &str, line: &str| {
        world
            .task(id, &format!("concurrency: {{ group: g, when_busy: join }}\nsteps:\n{}", command_step("work", line)));
    };
    task("a", &format!("touch {}; while ! test -e {}; do sleep 0.02; done", world.at("in"), world.at("go")));
    task("b", &format!("touch {}", world.at("b-ran")));
    let first = world.spawn_until(&["start", "a"], "in");
    assert_eq!(world.run(&["start", "b", "--no-wait"]).exit, 7);
    let second = world.spawn(&["start", "b", "--json"]);
    wait_until("the second has joined", || world.has_event("run_a_001", "run.attached", ""));
    world.open("go");
    assert_eq!(first.end().exit, 0);
    let second = second.end();
    assert_eq!((second.exit, &second.json()["run"]), (0, &"run_a_001".into()), "{}", second.stderr);
    assert!(!world.path("b-ran").exists());
}

#[test]
fn r_r4_a_crash_that_nobody_has_looked_at_yet_counts_as_an_attempt() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 1, time: 30m } }")]);
    world.command_task("t", &format!("echo x >> {0}; touch {1}; sleep 60", world.at("e"), world.at("in")));
    world.spawn_until(&["start", "t"], "in").kill();
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (1, &"DEAD_LETTER".into()), "{run:#}");
    assert_eq!(world.lines("e"), 1);
}

#[test]
fn f81_a_run_that_was_stopped_for_tampering_goes_on_by_a_person_alone() {
    let world = World::new();
    let repo = world.repo().display().to_string();
    let script = format!("git -C {repo} config core.fsmonitor evil\n{DONE}\n");
    shell_agent(&world, &script, &[]);
    world.task("t", &format!("steps:\n{SH}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], &run["code"]), (15, &"BLOCKED".into(), &"GIT_TAMPER".into()), "{run:#}");
    for args in [&["resume", "run_t_001"][..], &["start", "t", "--resume"]] {
        let (exit, told) = world.json(args);
        assert_eq!((exit, &told["code"]), (15, &"GIT_TAMPER".into()), "{told:#}");
    }
    world.git(&["config", "--unset", "core.fsmonitor"]);
}

#[test]
fn f81_tampering_by_an_agent_that_then_fails_is_found_all_the_same() {
    let world = World::new();
    let repo = world.repo().display().to_string();
    shell_agent(&world, &format!("git -C {repo} config core.fsmonitor evil\nkill -9 $$\n"), &[]);
    world.task("t", &format!("steps:\n{SH}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"], &run["attempt"]), (15, &"GIT_TAMPER".into(), &1.into()), "{run:#}");
    world.git(&["config", "--unset", "core.fsmonitor"]);
}

#[test]
fn fr_h1_in_place_a_retry_leaves_the_persons_own_uncommitted_work_alone() {
    let world = World::new();
    let script =
        format!("if test -e {0}; then {DONE}; else touch {0}; echo bad > junk.txt; kill -9 $$; fi", world.at("once"));
    shell_agent(&world, &script, &[]);
    world.task("t", &format!("workspace: in-place\nsteps:\n{SH}"));
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "all"]);
    world.write("src/lib.txt", "mine\n");
    world.write("notes.txt", "mine too\n");
    let (exit, run) = world.json(&["start", "t", "--ignore-dirty"]);
    assert_eq!((exit, &run["attempt"]), (0, &2.into()), "{run:#}");
    assert_eq!((world.read("src/lib.txt").as_str(), world.read("notes.txt").as_str()), ("mine\n", "mine too\n"));
    assert!(!world.repo().join("junk.txt").exists(), "what the failed attempt left is put away");
}

#[test]
fn r_w1_in_place_a_checkout_that_changed_since_is_no_valid_place_to_go_on() {
    let world = World::new();
    let script = format!(
        "if test -e {0}; then {DONE}; else touch {0}; echo '{{\"type\":\"error\",\"code\":\"AUTH_FAILED\",\"message\":\"no\"}}'; fi",
        world.at("once")
    );
    shell_agent(&world, &script, &[]);
    world.task("t", &format!("workspace: in-place\nsteps:\n{SH}"));
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "all"]);
    assert_eq!(world.start("t").0, 1, "not 1: the login failed");
    world.write("notes.txt", "mine\n");
    let (exit, told) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &told["code"]), (17, &"REVIEW_REQUIRED".into()), "{told:#}");
    assert_eq!(world.read("notes.txt"), "mine\n");
    let (exit, run) = world.json(&["resume", "run_t_001", "--keep"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.read("notes.txt"), "mine\n");
}

#[test]
fn r_w4_an_adopted_agent_keeps_its_artifacts() {
    let world = World::new();
    let script = format!("write:out.txt=made,ok,touch:{},hang", world.at("in"));
    world.policy(&[("timeouts", "{ grace: 500ms, exit: 30s }")]);
    world.task("t", &format!("steps:\n{}    artifacts: [ out.txt ]\n", agent_step("code", &script)));
    let first = world.spawn(&["start", "t"]);
    let log = world.state("run_t_001/attempt-1/code.events.jsonl");
    wait_until("the last word is kept", || fs::read_to_string(&log).is_ok_and(|text| text.contains("completed")));
    first.kill();
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &step(&run, "code")["runs"]), (0, &1.into()), "{run:#}");
    assert!(world.state("run_t_001/artifacts/code/out.txt").exists(), "{run:#}");
}

#[test]
fn r_r5_a_run_whose_own_time_is_over_is_not_tried_again() {
    let world = World::new();
    world.policy(&[(
        "timeouts",
        "{ call: 10ms, first_output: 100ms, idle: 200ms, exit: 100ms, grace: 100ms, step: 300ms, attempt: 400ms, run: 500ms }",
    )]);
    world.command_task("t", &format!("echo x >> {}; sleep 60", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"TOOL_TIMEOUT".into()), "{run:#}");
    assert!(world.lines("e") <= 2, "{run:#}");
    assert!(run["attempt"].as_u64().unwrap() <= 2, "{run:#}");
}

#[test]
fn r_f2_included_changes_that_are_others_by_the_time_it_begins_are_refused() {
    let world = World::new();
    world.command_task("t", "cat src/lib.txt > seen.txt");
    world.write("src/lib.txt", "counted\n");
    let task = fs::read_to_string(world.repo().join("tasks/t.yml")).unwrap();
    world.write("tasks/t.yml", &format!("{task}concurrency: {{ group: g, when_busy: queue }}\n"));
    world.task(
        "a",
        &format!(
            "concurrency: {{ group: g, when_busy: queue }}\nsteps:\n{}",
            command_step(
                "work",
                &format!("touch {}; while ! test -e {}; do sleep 0.02; done", world.at("in"), world.at("go"))
            )
        ),
    );
    let first = world.spawn_until(&["start", "a", "--ignore-dirty"], "in");
    assert_eq!(world.run(&["start", "t", "--include-dirty", "--no-wait"]).exit, 7);
    world.open("go");
    assert_eq!(first.end().exit, 0);
    world.write("src/lib.txt", "another\n");
    let (exit, told) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 19, "{told:#}");
    world.write("src/lib.txt", "counted\n");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:seen.txt"]), "counted");
}

#[test]
fn r_r4_a_limit_that_a_person_raised_stays_raised() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 9, time: 30m, tool_calls: 100 } }")]);
    let script = format!("tool:3,effect:{},wait-for:{},ok", world.at("e"), world.at("go"));
    world.task("t", &format!("budget: {{ task: {{ tool_calls: 1 }} }}\nsteps:\n{}", agent_step("code", &script)));
    assert_eq!(world.start("t").0, 6);
    let before = world.lines("e");
    let second = world.spawn(&["resume", "run_t_001", "--budget", "task.tool_calls=50"]);
    wait_until("it works again", || world.lines("e") > before);
    second.kill();
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
}

#[test]
fn f_policy_what_an_agent_wrote_into_the_policy_in_place_does_not_count() {
    let world = World::new();
    let script = format!(
        "sed -i 's/tool_calls: 1 /tool_calls: 99 /' automation-policy.yml; for i in 1 2 3; do echo \"{{\\\"type\\\":\\\"tool_call\\\",\\\"id\\\":\\\"$i$$\\\",\\\"name\\\":\\\"x\\\",\\\"input\\\":{{}}}}\"; done; sleep 2; {DONE}"
    );
    shell_agent(&world, &script, &[("budgets", "{ task: { attempts: 9, time: 30m, tool_calls: 1 } }")]);
    world.task("t", &format!("workspace: in-place\nsteps:\n{SH}"));
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "all"]);
    let (exit, run) = world.start("t");
    assert_eq!(exit, 6, "{run:#}");
    let (exit, told) = world.json(&["resume", "run_t_001", "--keep"]);
    assert_eq!(exit, 6, "{told:#}");
}

#[test]
fn contract_5_on_a_pull_request_the_policy_is_the_base_branchs() {
    let mut world = World::new();
    world.command_task("t", "true");
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "base"]);
    let base = world.read("automation-policy.yml");
    world.git(&["checkout", "-q", "-b", "pr"]);
    world.write("automation-policy.yml", &base.replace("version: t1", "version: loosened"));
    world.git(&["commit", "-qam", "loosen"]);
    world.vars.push(("CI".to_owned(), "true".to_owned()));
    world.vars.push(("GITHUB_BASE_REF".to_owned(), "main".to_owned()));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["policy_version"]), (0, &"t1".into()), "{run:#}");
    world.vars.pop();
    world.vars.push(("GITHUB_BASE_REF".to_owned(), "not-fetched".to_owned()));
    let (exit, told) = world.start("t");
    assert_eq!((exit, &told["code"]), (10, &"CONFIG_INVALID".into()), "{told:#}");
}

#[test]
fn f95_hidden_text_in_a_prompt_is_said() {
    let world = World::new();
    world.write("prompts/do.md", "Do it.\u{e0041}\u{e0042}\u{200b}\n");
    world.agent_task("t", "ok");
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.has_event("run_t_001", "warning.raised", "invisible_chars=3"), "{run:#}");
}

#[test]
fn r_f7_the_same_key_with_new_is_the_same_run() {
    let world = World::new();
    world.command_task("t", &format!("echo x >> {}", world.at("e")));
    for _ in 0..2 {
        let (exit, run) = world.json(&["start", "t", "--new", "--idempotency-key", "k1"]);
        assert_eq!((exit, &run["run"]), (0, &"run_t_001".into()), "{run:#}");
    }
    assert_eq!(world.lines("e"), 1);
}

#[test]
fn f07_a_store_that_fails_leaves_no_agent_behind() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},wait-for:{},ok", world.at("in"), world.at("go")));
    let first = world.spawn_until(&["start", "t"], "in");
    database(&world).execute("UPDATE run SET fence = fence + 1", []).unwrap();
    world.open("go");
    let output = first.end();
    assert_eq!(output.exit, 8, "{}", output.stderr);
    wait_until("no process is left", || world.living().is_empty());
}
