//! Limits, live (R-R4): a run over one is stopped while it works, keeps its work, and goes on when the limit is raised.

use agentrun::domain::ids::{RequestId, RunId};
use agentrun::domain::run::RunEvent;
use agentrun::engine::host::Who;
use agentrun::store::{Decision, Store};
use serde_json::Value;

use crate::world::{World, agent_step, command_step, step, told, wait_until};

fn message(run: &Value) -> String {
    run["message"].as_str().unwrap_or_default().to_owned()
}

/// A task with this budget whose agent plays this script.
fn limited(world: &World, budget: &str, script: &str) {
    world.task("t", &format!("budget: {budget}\nsteps:\n{}", agent_step("code", script)));
}

#[test]
fn fr_f4_each_limit_of_one_stops_the_run_and_says_which() {
    let agents = format!(
        "{{ fake: {{ run: [ \"{}\" ], protocol: agentrun, price: {{ input: 1.00, cached: 0.10, output: 1.00 }} }} }}",
        env!("CARGO_BIN_EXE_fake-agent")
    );
    let cases = [
        ("tokens", "1", "usage:5,silent"),
        ("total_tokens", "1", "usage:5,silent"),
        ("tool_calls", "1", "tool:2,silent"),
        ("cost", "0.000001", "usage:5,silent"),
        ("time", "1ms", "silent"),
    ];
    for scope in ["attempt", "task"] {
        for (limit, value, script) in cases {
            let world = World::new();
            world.policy(&[("agents", &agents)]);
            limited(&world, &format!("{{ {scope}: {{ {limit}: {value} }} }}"), &format!("write:w.txt=w,{script}"));
            let (exit, run) = world.start("t");
            let named = format!("{scope}.{limit}");
            assert_eq!((exit, &run["status"]), (6, &"BUDGET_EXCEEDED".into()), "{named}: {run:#}");
            assert_eq!((&run["code"], &run["outcome"]["success"]), (&"BUDGET_EXCEEDED".into(), &false.into()));
            assert!(message(&run).contains(&named), "{named}: {}", message(&run));
            assert_eq!(step(&run, "code")["state"], "PENDING", "{named}: the step was cut, it did not fail");
            // Work and state are kept; how far it had got when a millisecond was over is chance.
            if limit != "time" {
                assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "w", "{named}");
            }
            world.assert_sound("run_t_001");
        }
    }
}

#[test]
fn fr_f4_an_unknown_limit_is_refused() {
    let world = World::new();
    limited(&world, "{ task: { tockens: 5 } }", "ok");
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (10, &"CONFIG_INVALID".into()));
    assert!(message(&error).contains("tokens"), "the nearest name is said: {}", message(&error));
}

#[test]
fn r_r4_one_attempt_is_one_attempt() {
    let world = World::new();
    limited(&world, "{ task: { attempts: 1 } }", &format!("effect:{},error:NETWORK_TIMEOUT", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], world.lines("e")), (1, &"DEAD_LETTER".into(), 1), "{run:#}");
    assert!(run["next"].as_str().unwrap().contains("--reason"), "{run:#}");
    let (exit, error) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, world.lines("e")), (1, 1), "{error:#}");
}

#[test]
fn fr_f31_a_retryable_failure_is_tried_again_and_bounded() {
    let world = World::new();
    world.agent_task("t", &format!("effect:{},error:NETWORK_TIMEOUT", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], world.lines("e")), (1, &"DEAD_LETTER".into(), 3), "{run:#}");
    let opened: Vec<_> = run["attempts"].as_array().unwrap().iter().map(|a| a["opened_by"].as_str().unwrap()).collect();
    assert_eq!(opened, ["start", "retry", "retry"]);
    let (_, dead) = world.json(&["status", "--dead"]);
    assert_eq!(dead["runs"][0]["run"], "run_t_001");
}

#[test]
fn fr_f26_what_stays_wrong_is_not_tried_again() {
    for code in ["AUTH_FAILED", "QUOTA_EXCEEDED", "PERMISSION_DENIED", "VALIDATION_ERROR"] {
        let world = World::new();
        world.agent_task("t", &format!("effect:{},error:{code}", world.at("e")));
        let (exit, run) = world.start("t");
        assert_ne!(exit, 0, "{code}");
        assert_eq!((&run["code"], world.lines("e")), (&code.into(), 1), "{run:#}");
    }
}

#[test]
fn r_r4_a_person_requeues_a_dead_letter_and_the_counters_go_on() {
    let world = World::new();
    limited(&world, "{ task: { attempts: 1 } }", &format!("effect:{},error:NETWORK_TIMEOUT", world.at("e")));
    assert_eq!(world.start("t").0, 1);
    world.policy(&[("budgets", "{ task: { attempts: 5 } }")]);
    let reason = ["resume", "run_t_001", "--reason", "the network is back", "--budget", "task.attempts=2"];
    let (exit, run) = world.json(&reason);
    assert_eq!((exit, world.lines("e")), (1, 2), "{run:#}");
    assert_eq!(run["status"], "DEAD_LETTER", "one more, not two more: {run:#}");
}

#[test]
fn r_r3_a_dead_letter_that_was_put_back_has_its_attempt_also_when_the_person_was_cut_off() {
    let world = World::new();
    limited(&world, "{ task: { attempts: 1 } }", &format!("effect:{},error:NETWORK_TIMEOUT", world.at("e")));
    assert_eq!(world.start("t").0, 1);
    // `resume --reason` puts it back and then claims it; here it dies in between.
    let mut store = Store::open(&world.state("state/agentrun.db")).unwrap();
    let dead = store.find_run(&RunId::recorded("run_t_001")).unwrap().unwrap();
    let decision = Decision {
        event: RunEvent::Requeue,
        expected_fence: dead.fence,
        failure: None,
        retry_at: None,
        reason: "the network is back".into(),
    };
    let who = Who { actor: "alice".into(), request_id: RequestId::recorded("a-request") };
    store.decide(&dead.id, &decision, &who.context()).unwrap();
    drop(store);
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"], world.lines("e")), (1, &"DEAD_LETTER".into(), 2), "one more: {run:#}");
    assert_eq!((world.json(&["resume", "run_t_001"]).0, world.lines("e")), (1, 2), "and only one");
}

#[test]
fn fr_f13_a_raised_limit_lets_the_run_go_on() {
    let world = World::new();
    let script = format!("effect:{},echo-session,usage:600,wait-for:{},ok", world.at("e"), world.at("go"));
    world.policy(&[("budgets", "{ task: { tokens: 10k, attempts: 1 } }")]);
    limited(&world, "{ task: { tokens: 500 } }", &script);
    let (exit, run) = world.start("t");
    assert_eq!((exit, told(&run)), (6, 600), "{run:#}");
    assert!(
        message(&run).contains("600") && message(&run).contains("500"),
        "the overshoot is named: {}",
        message(&run)
    );
    // As it stands nothing is begun.
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, world.lines("e")), (6, 1), "{run:#}");
    // Up to the policy's and no further.
    let (exit, error) = world.json(&["resume", "run_t_001", "--budget", "task.tokens=20k"]);
    assert_eq!((exit, &error["code"]), (5, &"POLICY_DENIED".into()), "{error:#}");
    let (exit, _) = world.json(&["resume", "run_t_001", "--budget", "task.tokens=many"]);
    assert_eq!(exit, 2, "FR-D22");
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001", "--budget", "task.tokens=9k"]);
    assert_eq!((exit, &run["status"], world.lines("e")), (0, &"SUCCEEDED".into(), 2), "no attempt is used up: {run:#}");
    // 600 of the cut execution, 600 and 1,050 of the second; the names of responses differ between executions.
    assert_eq!(told(&run), 2250);
    assert_eq!(run["usage"]["failed_attempts"], 0);
    assert!(world.has_event("run_t_001", "budget.raised", ""));
}

#[test]
fn fr_f7_fr_f32_retries_and_new_runs_share_one_allowance() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { tool_calls: 10, attempts: 9 } }")]);
    world.agent_task("t", &format!("effect:{},tool:4,error:NETWORK_TIMEOUT", world.at("e")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], world.lines("e")), (6, &"BUDGET_EXCEEDED".into(), 3), "{run:#}");
    assert!(run["usage"]["tool_calls"].as_u64().unwrap() <= 12);
    // A new run of the same task has no new allowance (R-R4).
    let (exit, error) = world.json(&["start", "t", "--new"]);
    assert_eq!(
        (exit, &error["code"], world.lines("e")),
        (6, &"BUDGET_EXCEEDED".into(), 3),
        "nothing is begun: {error:#}"
    );
}

#[test]
fn r_r4_the_ledger_begins_anew_after_a_success() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { tool_calls: 10, attempts: 9 } }")]);
    world.agent_task("t", "tool:7,ok");
    for _ in 0..3 {
        let (exit, run) = world.json(&["start", "t", "--new"]);
        assert_eq!((exit, &run["usage"]["tool_calls"]), (0, &8.into()), "FR-F19: {run:#}");
    }
}

#[test]
fn fr_f11_many_small_responses_add_up() {
    let world = World::new();
    limited(&world, "{ task: { tokens: 5k } }", "usage-many:1000x100,silent");
    let (exit, run) = world.start("t");
    assert_eq!(exit, 6, "{run:#}");
    assert!(run["usage"]["tokens"].as_u64().unwrap() >= 5000);
}

#[test]
fn r_r4_time_counts_over_crashes() {
    let world = World::new();
    let script = format!("effect:{},touch:{},silent", world.at("e"), world.at("in"));
    limited(&world, "{ task: { time: 2s } }", &script);
    let running = world.spawn_until(&["start", "t"], "in");
    // Long enough to be seen in the record, far from the limit.
    wait_until("time has passed", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        world.show("run_t_001")["run"] == "run_t_001"
    });
    running.kill();
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["code"]), (6, &"BUDGET_EXCEEDED".into()), "{run:#}");
    assert!(run["usage"]["wall_ms"].as_u64().unwrap() >= 2000, "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn r_r4_a_cost_limit_without_figures_is_refused() {
    let world = World::new();
    world.task("t", "budget: { task: { cost: 1.00 } }\nsteps:\n  - key: code\n    kind: agent\n    agent: plain\n    prompt: prompts/do.md\n");
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (10, &"BUDGET_UNENFORCEABLE".into()), "{error:#}");
}

#[test]
fn r_r4_commands_count_against_the_time_of_a_task() {
    let world = World::new();
    world.task("t", &format!("budget: {{ task: {{ time: 200ms }} }}\nsteps:\n{}", command_step("slow", "sleep 30")));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (6, &"BUDGET_EXCEEDED".into()), "{run:#}");
    world.assert_sound("run_t_001");
}

#[test]
fn contract_6_show_budget_tells_used_and_left() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { tokens: 10k, attempts: 3 } }")]);
    world.agent_task("t", "usage:100,error:VALIDATION_ERROR");
    world.start("t");
    let (exit, budget) = world.json(&["show", "run_t_001", "--budget"]);
    assert_eq!(exit, 0);
    let text = budget.to_string();
    assert!(text.contains("10000") && text.contains("9900"), "{budget:#}");
    assert!(world.run(&["show", "run_t_001", "--budget"]).stdout.contains("tokens"));
}

#[test]
fn fr_f35_an_agent_is_told_limit_used_and_left() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { tokens: 10k, attempts: 3 } }")]);
    world.agent_task("t", "ok");
    world.start("t");
    let prompt = std::fs::read_to_string(world.state("run_t_001/attempt-1/code.prompt.md")).unwrap();
    assert!(prompt.contains("task.tokens: limit 10000, used 0, left 10000"), "{prompt}");
}
