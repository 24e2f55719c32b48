//! What a run says of itself: three facts kept apart, and no success that is none (contract §9, field reports C).

use crate::world::{World, agent_step, command_step, qa_step, step};

/// Exit, code and success of a run of one agent step.
fn ends_as(script: &str) -> (World, serde_json::Value, i32) {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 1 } }"), ("timeouts", "{ exit: 1s, grace: 300ms }")]);
    world.agent_task("t", script);
    let (exit, run) = world.start("t");
    (world, run, exit)
}

#[test]
fn fr_c5_every_way_an_agent_can_end_has_its_exit() {
    let table: [(&str, i32, &str, &str, bool); 9] = [
        ("ok", 0, "null", "SUCCEEDED", true),
        ("exit0-error-event", 1, "AGENT_FAILED", "FAILED", false),
        ("all-tools-failed", 1, "ALL_TOOLS_FAILED", "FAILED", false),
        ("empty-result", 1, "NO_RESULT", "FAILED", false),
        ("exit1-after-result", 0, "null", "SUCCEEDED", true),
        ("session:s,message:hm,exit:2", 1, "AGENT_FAILED", "FAILED", false),
        ("session:s,message:hm,kill-self:9", 1, "", "", false),
        ("error:AUTH_FAILED", 1, "AUTH_FAILED", "FAILED", false),
        ("exit:3", 1, "AGENT_START_FAILED", "FAILED", false),
    ];
    for (script, exit, code, status, success) in table {
        let (_world, run, found) = ends_as(script);
        assert_eq!((found, run["outcome"]["success"].as_bool()), (exit, Some(success)), "{script}: {run:#}");
        if !code.is_empty() {
            assert_eq!(run["code"].as_str().unwrap_or("null"), code, "{script}");
        }
        if !status.is_empty() {
            assert_eq!(run["status"], status, "{script}");
        }
        assert_eq!(run["exit"], exit, "FR-C5: the number in the document is the one of the process: {script}");
    }
}

#[test]
fn fr_c7_a_good_result_with_exit_1_is_a_success_with_a_warning() {
    let (world, run, exit) = ends_as("exit1-after-result");
    assert_eq!((exit, &run["executions"][0]["exit_code"]), (0, &1.into()), "both facts are kept");
    let shown = world.show("run_t_001");
    assert!(shown["warnings"].to_string().contains('1'), "{shown:#}");
}

#[test]
fn fr_c2_the_number_of_failed_calls_is_told() {
    let (_world, run, _) = ends_as("all-tools-failed");
    assert!(run["message"].as_str().unwrap().contains('1'), "{run:#}");
}

#[test]
fn fr_c19_how_a_process_ended_is_classified() {
    let table =
        [("exit:2", "exited"), ("exit:124", "exited"), ("kill-self:9", "signalled"), ("kill-self:6", "signalled")];
    let mut seen = Vec::new();
    for (script, fact) in table {
        let (_world, run, _) = ends_as(&format!("session:s,{script}"));
        assert_eq!(run["outcome"]["process"], fact, "{script}: {run:#}");
        seen.push(run["message"].as_str().unwrap().to_owned());
    }
    seen.dedup();
    assert_eq!(seen.len(), 4, "four ends, four texts: {seen:?}");
}

#[test]
fn fr_c4_a_kill_during_a_tool_call_is_no_success() {
    let (_world, run, exit) = ends_as("session:s,tool-open,kill-self:9");
    assert_ne!(exit, 0);
    assert_eq!(run["outcome"]["success"], false);
}

#[test]
fn fr_c8_partial_work_of_an_agent_that_died_is_kept_and_not_accepted() {
    let (world, run, exit) = ends_as("session:s,dirty:half.txt,kill-self:9");
    assert_ne!(exit, 0, "{run:#}");
    assert_eq!(run["outcome"]["verification"], "none");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:half.txt"]), "changed by the fake agent");
}

#[test]
fn fr_c8_a_check_that_could_not_be_asked_is_no_success() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 1 } }")]);
    world.task(
        "t",
        &format!(
            "steps:\n{}{}",
            agent_step("code", "ok"),
            qa_step("qa", "").replace("run: \"\"", "run: [ no-such-program-here ]")
        ),
    );
    let (exit, run) = world.start("t");
    assert_eq!(
        (run["outcome"]["success"].as_bool(), &run["code"]),
        (Some(false), &"COMMAND_NOT_FOUND".into()),
        "{run:#}"
    );
    assert_ne!(exit, 0);
}

#[test]
fn fr_c10_a_word_in_prose_is_no_refusal() {
    let (_world, run, exit) = ends_as("session:s,message:HTTP 429 rate limit exceeded\\, quota,ok");
    assert_eq!((exit, &run["code"], &run["retry_at"]), (0, &serde_json::Value::Null, &serde_json::Value::Null));
}

#[test]
fn contract_12_plain_text_is_an_answer_of_unknown_price() {
    let world = World::new();
    let plain = "    kind: agent\n    agent: { name: plain, args: [ ok-text ] }\n    prompt: prompts/do.md\n";
    world.task("t", &format!("steps:\n  - key: code\n{plain}"));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["usage"]["cost_usd"]), (0, &serde_json::Value::Null), "{run:#}");
}

#[test]
fn fr_c22_standard_output_is_exactly_one_document() {
    let world = World::new();
    world.command_task("good", "echo noise; echo noise >&2");
    world.command_task("bad", "echo noise; exit 1");
    for args in [
        vec!["start", "good"],
        vec!["start", "bad"],
        vec!["start", "nothing"],
        vec!["start", "good", "--dry-run"],
        vec!["resume", "run_bad_001"],
        vec!["resume", "run_bad_001", "--dry-run"],
        vec!["status"],
        vec!["status", "--all"],
        vec!["show", "run_bad_001"],
        vec!["show", "run_none_001"],
        vec!["diff", "run_good_001", "run_bad_001"],
        vec!["fingerprint", "good"],
        vec!["artifact", "list", "run_good_001"],
        vec!["artifact", "verify", "run_good_001"],
        vec!["audit", "log"],
        vec!["audit", "verify"],
        vec!["explain"],
        vec!["explain", "RATE_LIMIT"],
        vec!["explain", "NO_SUCH_CODE"],
        vec!["doctor"],
        vec!["gc", "--dry-run"],
        vec!["init"],
        vec!["no-such-command"],
        vec!["apply", "run_good_001"],
        vec!["cancel", "run_good_001"],
    ] {
        let output = world.run(&[&args[..], &["--json"]].concat());
        let document = output.json();
        let schema = document["schema"].as_str().unwrap_or_default();
        assert!(schema.starts_with("agentrun/") && schema.ends_with("/1"), "{args:?}: {document:#}");
        assert!(output.stdout.trim_start().starts_with('{'), "{args:?}");
        if schema == "agentrun/error/1" {
            assert_eq!(document["exit"], output.exit, "{args:?}: {document:#}");
            for field in ["code", "message", "retry", "effect", "hint", "causes", "support_code"] {
                assert!(document.get(field).is_some(), "{field}: {document:#}");
            }
        }
    }
}

#[test]
fn contract_7_a_childs_exit_code_is_never_passed_through() {
    for code in [3, 4, 6, 7, 17, 70, 143] {
        let world = World::new();
        world.task("t", &format!("steps:\n{}", command_step("work", &format!("exit {code}"))));
        let (exit, run) = world.start("t");
        assert_eq!((exit, &run["executions"][0]["exit_code"]), (1, &code.into()), "{run:#}");
    }
}

#[test]
fn r_r1_a_failed_command_is_a_failed_step_with_its_code() {
    let world = World::new();
    world.command_task("t", "exit 1");
    let (_, run) = world.start("t");
    assert_eq!((&step(&run, "work")["code"], &run["code"]), (&"COMMAND_FAILED".into(), &"COMMAND_FAILED".into()));
}
