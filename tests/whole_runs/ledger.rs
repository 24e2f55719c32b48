//! One ledger a task (R-R4): what is counted over crashes, signals, send-backs and new runs; what is estimated where nobody
//! told a figure, and that it is said; what is warned of before a limit strikes, and what is set aside.

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, agent_step, told, wait_until};

const FAKE: &str = env!("CARGO_BIN_EXE_fake-agent");

/// A world whose scripted agent has a price, with these budgets in its policy.
fn priced(budgets: &str) -> World {
    let world = World::new();
    let price = "price: { input: 1.00, cached: 1.00, output: 1.00 }";
    let agents = format!("{{ fake: {{ run: [ \"{FAKE}\" ], protocol: agentrun, {price} }} }}");
    world.policy(&[("agents", &agents), ("budgets", budgets)]);
    world
}

fn task(world: &World, script: &str) {
    world.task("t", &format!("steps:\n{}", agent_step("code", script)));
}

fn usage(world: &World, name: &str) -> u64 {
    world.show("run_t_001")["usage"][name].as_u64().unwrap_or(0)
}

/// The line of `show --budget` for one limit.
fn limit(world: &World, run: &str, scope: &str, kind: &str) -> Value {
    let (exit, budget) = world.json(&["show", run, "--budget"]);
    assert_eq!(exit, 0, "{budget:#}");
    let lines = budget["limits"].as_array().unwrap();
    lines.iter().find(|l| l["scope"] == scope && l["kind"] == kind).unwrap().clone()
}

#[test]
fn f44_a_kill_at_nine_tenths_of_any_budget_sets_no_counter_back() {
    let cases = [
        ("tokens", "100k", "usage:90000,tool-open", "tokens", 90_000),
        ("total_tokens", "100k", "usage:90000,tool-open", "total_tokens", 90_000),
        ("tool_calls", "10", "usage:1,tool:8,tool-open", "tool_calls", 9),
        ("cost", "0.10", "usage:90000,tool-open", "tokens", 90_000),
    ];
    for (kind, allowed, script, counter, at_the_kill) in cases {
        let world = priced(&format!("{{ task: {{ {kind}: {allowed}, attempts: 9 }} }}"));
        task(&world, &format!("effect:{},{script},touch:{},silent", world.at("calls"), world.at("in")));
        let running = world.spawn_until(&["start", "t"], "in");
        wait_until("what it used is recorded", || usage(&world, counter) == at_the_kill);
        running.kill();
        assert_eq!(usage(&world, counter), at_the_kill, "{kind}");
        let (exit, run) = world.json(&["resume", "run_t_001"]);
        assert_eq!((exit, &run["code"]), (6, &"BUDGET_EXCEEDED".into()), "{kind}: {run:#}");
        assert!(run["message"].as_str().unwrap().contains(&format!("task.{kind}")), "{kind}: {run:#}");
        assert_eq!((usage(&world, counter), world.lines("calls")), (2 * at_the_kill, 2), "{kind}: the count goes on");
        assert_eq!(world.json(&["resume", "run_t_001"]).0, 6, "{kind}");
        assert_eq!(world.lines("calls"), 2, "{kind}: a new run of the task or a resume begins nothing");
        assert_eq!(world.json(&["start", "t", "--new"]).0, 6, "{kind}");
        assert_eq!(world.lines("calls"), 2, "{kind}");
    }
}

#[test]
fn f44_a_kill_uses_an_attempt_up() {
    let world = priced("{ task: { attempts: 2 } }");
    let script = format!(
        "effect:{},touch:{},wait-for:{},error:NETWORK_TIMEOUT",
        world.at("calls"),
        world.at("in"),
        world.at("go")
    );
    task(&world, &script);
    world.spawn_until(&["start", "t"], "in").kill();
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"], world.lines("calls")), (1, &"DEAD_LETTER".into(), 2), "{run:#}");
}

#[test]
fn r_r4_a_call_that_was_cut_is_estimated_and_said_to_be() {
    let world = priced("{ task: { tokens: 100k, attempts: 9 } }");
    task(&world, &format!("session:s,usage:300,touch:{},silent", world.at("in")));
    let running = world.spawn_until(&["start", "t"], "in");
    wait_until("what it used is recorded", || usage(&world, "tokens") == 300);
    running.signal(Signal::INT);
    let out = running.end();
    assert_eq!(out.exit, 130, "{out:?}");
    let run = world.show("run_t_001");
    let guessed = run["usage"]["estimated_tokens"].as_u64().unwrap();
    // The context is sent again, and the answer may have been long; not more.
    assert!((4300..4500).contains(&guessed), "{run:#}");
    assert_eq!((told(&run), &run["executions"][0]["estimated_tokens"]), (300, &guessed.into()), "{run:#}");
    let line = limit(&world, "t", "task", "tokens");
    assert_eq!((&line["used"], &line["estimated"]), (&(300 + guessed).into(), &guessed.into()), "{line:#}");
    assert_eq!(limit(&world, "t", "task", "cost")["estimated"], guessed, "at a dollar per million");
    assert!(out.stdout.contains("about ") && out.stdout.contains("of them estimated"), "{}", out.stdout);
    let report = std::fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
    assert!(report.contains("about "), "{report}");
    world.assert_sound("run_t_001");
}

#[test]
fn f46_r_r4_a_figure_that_is_not_believed_is_estimated_and_gives_way_to_the_truth() {
    let world = priced("{ task: { attempts: 9 } }");
    let line = |input: &str| format!(r#"raw:{{"type":"usage"\,"response":"a"\,"input":{input}\,"output":5}}"#);
    let of = |script: String| {
        task(&world, &script);
        let (exit, run) = world.json(&["start", "t", "--new"]);
        assert_eq!(exit, 0, "{run:#}");
        (run["usage"]["tokens"].as_u64().unwrap(), run["usage"]["estimated_tokens"].as_u64().unwrap())
    };
    assert_eq!(of(format!("{},result:Done.", line("-7"))), (20_005, 20_005));
    assert_eq!(of(format!("{},{},result:Done.", line("-7"), line("40"))), (45, 0), "the same response, told well");
    assert_eq!(of(format!("{},{},result:Done.", line("40"), line("-7"))), (45, 0), "what was told stands");
}

#[test]
fn f46_fr_f34_r_r4_an_agent_without_figures_is_estimated_and_stopped_at_a_token_limit() {
    let world = World::new();
    let long = "x".repeat(6000);
    let agents =
        format!("{{ plain: {{ run: [ \"{FAKE}\", \"message:{long},message:{long},silent\" ], protocol: text }} }}");
    world.policy(&[("agents", &agents), ("budgets", "{ task: { tokens: 3k } }")]);
    world.task("t", "steps:\n  - { key: code, kind: agent, agent: plain, prompt: prompts/do.md }\n");
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"], told(&run)), (6, &"BUDGET_EXCEEDED".into(), 0), "{run:#}");
    assert!(usage(&world, "estimated_tokens") > 4000, "two bytes or three of text are a token: {run:#}");
}

#[test]
fn fr_f11_a_limit_that_comes_near_is_warned_of_once() {
    let world = World::new();
    world.policy(&[("budgets", "{ warn: 0.5, task: { tokens: 1000, tool_calls: 100 } }")]);
    task(&world, "usage-many:9x100,result:Done.");
    let out = world.run(&["start", "t"]);
    assert_eq!(out.exit, 0, "{out:?}");
    let warning = "task.tokens: 50 % of 1000 are used (500), 500 left";
    assert_eq!(out.stderr.matches("task.tokens:").count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains(warning), "{}", out.stderr);
    assert!(world.has_event("run_t_001", "warning.raised", warning));
    let report = std::fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
    assert!(report.contains("task.tokens: 50"), "{report}");
}

#[test]
fn r_r4_a_time_limit_is_warned_of_while_a_command_is_silent() {
    let world = World::new();
    world.policy(&[("budgets", "{ warn: 0.1, task: { time: 2s } }")]);
    world.command_task("t", &format!("touch {}; until test -e {}; do :; done", world.at("in"), world.at("go")));
    let running = world.spawn_until(&["start", "t"], "in");
    wait_until("the warning", || world.has_event("run_t_001", "warning.raised", "task.time: "));
    world.open("go");
    assert!(running.end().stderr.contains("task.time: "));
}

#[test]
fn fr_f11_a_resumed_run_does_not_warn_again() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { tool_calls: 10, attempts: 9 } }")]);
    task(&world, &format!("tool:4,tool-open,touch:{},wait-for:{},result:Done.", world.at("in"), world.at("go")));
    let running = world.spawn_until(&["start", "t"], "in");
    wait_until("five calls are recorded", || usage(&world, "tool_calls") == 5);
    running.kill();
    world.open("go");
    let out = world.run(&["resume", "run_t_001"]);
    assert!(out.stderr.contains("task.tool_calls: 80 % of 10"), "the first four fifths are in the second: {out:?}");
    let shown = world.show("run_t_001");
    let warnings = shown["warnings"].as_array().unwrap();
    let near = warnings.iter().filter(|w| w.as_str().unwrap().contains("task.tool_calls"));
    assert_eq!(near.count(), 1, "{warnings:?}");
}

#[test]
fn r_r4_new_runs_side_by_side_do_not_pass_the_attempts_together() {
    let world = World::new();
    world.policy(&[("budgets", "{ task: { attempts: 2 } }")]);
    let script = |n: u32| {
        format!("effect:{},touch:{},wait-for:{},ok", world.at("calls"), world.at(&format!("in{n}")), world.at("go"))
    };
    task(&world, &script(1));
    let first = world.spawn_until(&["start", "t"], "in1");
    task(&world, &script(2));
    let second = world.spawn_until(&["start", "t", "--new"], "in2");
    let line = limit(&world, "run_t_001", "task", "attempts");
    assert_eq!((&line["used"], &line["reserved"], &line["left"]), (&0.into(), &2.into(), &0.into()), "{line:#}");
    let (exit, error) = world.json(&["start", "t", "--new"]);
    assert_eq!((exit, &error["code"], world.lines("calls")), (6, &"BUDGET_EXCEEDED".into(), 2), "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("2 under way"), "{error:#}");
    world.open("go");
    assert_eq!((first.end().exit, second.end().exit), (0, 0));
    assert_eq!(world.json(&["start", "t", "--new"]).0, 0, "what did not fail was given back");
}

#[test]
fn contract_6_an_agent_can_look_at_its_budget_inside_its_run() {
    let world = World::new();
    let agentrun = env!("CARGO_BIN_EXE_agentrun");
    let (shown, vars) = (world.at("shown"), world.at("vars"));
    let bot = format!(
        "echo '{{\"type\":\"usage\",\"response\":\"a\",\"input\":250}}'\n\
         until {agentrun} show --budget --json > {shown} && grep -q '\"used\": 254' {shown}; do :; done\n\
         echo \"$AGENTRUN_BUDGET\" > {vars}\n{agentrun} start t --new; echo $? >> {vars}\n\
         echo '{{\"type\":\"result\",\"status\":\"completed\",\"text\":\"Done.\"}}'\n"
    );
    let bot = bot.replace("\"input\":250}", "\"input\":250,\"output\":4}");
    std::fs::write(world.path("bot.sh"), bot).unwrap();
    let agents = format!("{{ sh: {{ run: [ sh, \"{}\" ], protocol: agentrun }} }}", world.at("bot.sh"));
    world.policy(&[("agents", &agents), ("budgets", "{ task: { tokens: 10k, attempts: 3 } }")]);
    world.task("t", "steps:\n  - { key: code, kind: agent, agent: sh, prompt: prompts/do.md }\n");
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    let shown = std::fs::read_to_string(shown).unwrap();
    assert!(shown.contains("9746") && shown.contains("run_t_001"), "{shown}");
    let vars = std::fs::read_to_string(vars).unwrap();
    let (at_start, exit) = vars.trim_end().rsplit_once('\n').unwrap();
    let at_start: Value = serde_json::from_str(at_start).unwrap();
    assert_eq!(at_start["schema"], "agentrun/budget/1", "{at_start:#}");
    assert!(at_start.to_string().contains("\"left\":10000"), "{at_start:#}");
    assert_eq!(exit, "7", "F39: a run inside a run is refused, so no budget is escaped");
}

#[test]
fn r_r3_a_dead_letter_that_was_put_back_and_then_interrupted_is_still_owed_its_attempt() {
    let world = World::new();
    let script = format!("effect:{},touch:{},error:NETWORK_TIMEOUT", world.at("calls"), world.at("in"));
    world.policy(&[("budgets", "{ task: { attempts: 1 } }")]);
    let waits = format!("effect:{},touch:{},wait-for:{},{script}", world.at("calls"), world.at("in"), world.at("go"));
    task(&world, &waits);
    world.open("go");
    assert_eq!(world.start("t").0, 1);
    for name in ["go", "in"] {
        std::fs::remove_file(world.path(name)).unwrap();
    }
    let running = world.spawn_until(&["resume", "run_t_001", "--reason", "the network is back"], "in");
    running.signal(Signal::INT);
    assert_eq!(running.end().exit, 130);
    assert_eq!(world.show("run_t_001")["status"], "INTERRUPTED");
    world.open("go");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (1, &"DEAD_LETTER".into()), "its one attempt, and no more: {run:#}");
    assert_eq!(run["usage"]["failed_attempts"], 2);
    let (exit, error) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &error["code"]), (1, &"DEAD_LETTER".into()), "{error:#}");
}
