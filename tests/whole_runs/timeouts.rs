//! Clocks that bite (R-R5, field reports A): every kind of hang ends, in bounded time, with its name.

use std::time::{Duration, Instant};

use crate::world::{World, command_step, qa_step, step, told};

const QUICK: &str = "{ call: 10ms, first_output: 400ms, idle: 500ms, exit: 300ms, grace: 200ms }";

fn quick_world() -> World {
    let world = World::new();
    world.policy(&[("timeouts", QUICK), ("budgets", "{ task: { attempts: 1, time: 30m } }")]);
    world
}

#[test]
fn fr_a1_a_child_gets_an_end_of_file_though_ours_is_an_open_pipe() {
    let world = World::new();
    world.task(
        "t",
        &format!("steps:\n{}{}", crate::world::agent_step("code", "read-stdin,ok"), command_step("cat", "cat")),
    );
    let mut call = world.agentrun(&["start", "t", "--json"]);
    call.stdin(std::process::Stdio::piped());
    call.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = call.spawn().unwrap();
    let open = child.stdin.take();
    let status = child.wait().unwrap();
    drop(open);
    assert_eq!(status.code(), Some(0));
}

#[test]
fn fr_a2_fr_a13_an_agent_that_never_says_a_byte_is_stopped_at_the_first_output_limit() {
    let world = quick_world();
    world.agent_task("t", "silent");
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"MODEL_TIMEOUT".into()), "{run:#}");
    assert!(run["message"].as_str().unwrap().contains("first_output"), "{run:#}");
    assert_eq!(step(&run, "code")["state"], "FAILED");
    world.assert_sound("run_t_001");
}

#[test]
fn fr_a7_an_agent_that_stalls_after_it_began_is_stopped_at_the_idle_limit_and_tried_again() {
    let world = quick_world();
    world.policy(&[("timeouts", QUICK), ("budgets", "{ task: { attempts: 2 } }")]);
    world.agent_task("t", &format!("effect:{},stall-after-start", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"], &run["status"]), (1, &"MODEL_TIMEOUT".into(), &"DEAD_LETTER".into()), "{run:#}");
    assert!(run["message"].as_str().unwrap().contains("idle"), "{run:#}");
    assert_eq!((world.lines("e"), run["attempts"].as_array().unwrap().len()), (2, 2), "retryable, recorded");
}

#[test]
fn fr_a5_fr_a8_a_finished_agent_that_does_not_exit_is_a_success_with_a_warning() {
    let world = quick_world();
    world.agent_task("t", "write:w.txt=w,emit-then-hang");
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert!(
        !run["warnings"].as_array().unwrap().is_empty()
            || !world.show("run_t_001")["warnings"].as_array().unwrap().is_empty()
    );
    world.assert_sound("run_t_001");
}

#[test]
fn fr_a11_a_step_that_ignores_the_polite_signal_is_gone_after_its_limit_and_the_grace() {
    let world = quick_world();
    let pid = world.at("pid");
    world.task(
        "t",
        &format!(
            "steps:\n{}    timeout: 500ms\n",
            crate::world::agent_step("code", &format!("pid-to:{pid},ignore-term,session:s,tool-open,spin"))
        ),
    );
    let began = Instant::now();
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"TOOL_TIMEOUT".into()), "{run:#}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(world.has_event("run_t_001", "warning.raised", "kill_escalated=true"), "FR-A23, F27");
    world.assert_sound("run_t_001");
}

#[test]
fn fr_a10_commands_and_checks_have_clocks_too() {
    for line in [command_step("slow", "sleep 100"), qa_step("slow", "sleep 100")] {
        let world = quick_world();
        world.task("t", &format!("steps:\n{line}    timeout: 300ms\n"));
        let (exit, run) = world.start("t");
        assert_eq!((exit, &run["code"]), (1, &"TOOL_TIMEOUT".into()), "{run:#}");
        world.assert_sound("run_t_001");
    }
}

#[test]
fn r_r5_attempt_and_run_have_clocks() {
    for (timeouts, layer) in [
        ("{ call: 10ms, step: 20s, attempt: 30s, run: 40s, grace: 200ms }", ""),
        ("{ call: 10ms, step: 100ms, attempt: 600ms, run: 40s, grace: 200ms }", "attempt"),
    ] {
        let world = World::new();
        world.policy(&[("timeouts", timeouts), ("budgets", "{ task: { attempts: 1 } }")]);
        if layer.is_empty() {
            world.command_task("t", "true");
            assert_eq!(world.start("t").0, 0);
            continue;
        }
        // No step is over its own limit; together they are over the attempt's.
        let steps: String = (0..40).map(|n| command_step(&format!("s{n}"), "sleep 0.05")).collect();
        world.task("t", &format!("steps:\n{steps}"));
        let (exit, run) = world.start("t");
        assert_eq!((exit, &run["code"]), (1, &"TOOL_TIMEOUT".into()), "{run:#}");
        assert!(run["message"].as_str().unwrap().contains(layer), "{run:#}");
    }
}

#[test]
fn r_r5_an_inner_clock_that_is_not_shorter_is_refused() {
    let world = World::new();
    world.policy(&[("timeouts", "{ step: 30m, attempt: 25m }")]);
    world.command_task("t", "true");
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (10, &"CONFIG_INVALID".into()), "{error:#}");
}

#[test]
fn contract_5_a_tool_call_in_progress_is_no_idleness() {
    let world = quick_world();
    world.agent_task("t", "session:s,tool-open,sleep:1500,result:Done.");
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
}

#[test]
fn fr_l1_fr_l2_what_a_stopped_agent_said_is_kept() {
    let world = quick_world();
    world.agent_task("t", "session:s,message:half way there,usage:70,silent");
    let (exit, run) = world.start("t");
    assert_eq!((exit, told(&run)), (1, 70), "{run:#}");
    let said = std::fs::read_to_string(world.state("run_t_001/attempt-1/code.events.jsonl")).unwrap();
    assert!(said.contains("half way there"), "{said}");
    let report = std::fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
    assert!(report.contains("MODEL_TIMEOUT"), "{report}");
}
