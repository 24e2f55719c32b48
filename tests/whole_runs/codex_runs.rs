//! The real Codex below the real agentrun, against the scripted model (`tests/agents/README.md`): no account, no network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::Signal;
use serde_json::Value;

use crate::inside;
use crate::world::{Output, World, command_step, qa_step, step, wait_until};

/// The most that a call of the scripted model is guessed at: its context, Codex's own instructions, a long answer.
const GUESS: u64 = 25_000;

/// A world with the scripted model, and a policy whose Codex talks to it.
struct CodexWorld {
    world: World,
    server: Child,
}

impl CodexWorld {
    fn new(scenario: &str) -> Self {
        Self::with(scenario, &[])
    }

    fn with(scenario: &str, sections: &[(&str, &str)]) -> Self {
        Self::of(World::new(), scenario, sections)
    }

    fn of(mut world: World, scenario: &str, sections: &[(&str, &str)]) -> Self {
        world.vars.push(("MODEL_KEY".to_owned(), "any-text".to_owned()));
        fs::create_dir(world.path("gates")).unwrap();
        let (server, port) = serve(&world, scenario);
        let args = [
            "model_provider=mock",
            "model_providers.mock.name=mock",
            "model_providers.mock.wire_api=responses",
            "model_providers.mock.env_key=MODEL_KEY",
            "model_providers.mock.request_max_retries=1",
            "model_providers.mock.stream_max_retries=1",
            &format!("model_providers.mock.base_url=\"http://127.0.0.1:{port}/v1\""),
        ];
        let settings: Vec<&str> = args.iter().flat_map(|setting| ["-c", *setting]).collect();
        let args = serde_json::to_string(&[&["--model", "mock-model"], &settings[..]].concat()).unwrap();
        let bin = agents_folder().join("node_modules/.bin/codex");
        let agents = format!(
            "{{ codex: {{ bin: {}, home: private, env: [ MODEL_KEY ], args: {args} }} }}",
            serde_json::to_string(&bin).unwrap()
        );
        world.policy(&[&[("agents", agents.as_str())], sections].concat());
        Self { world, server }
    }

    fn task(&self, head: &str, rest: &str) {
        let code = "  - { key: code, kind: agent, agent: codex, prompt: prompts/do.md }\n";
        self.world.task("t", &format!("{head}steps:\n{code}{rest}"));
    }

    fn records(&self, event: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.world.path("requests.jsonl")).unwrap_or_default();
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter(|r| r["event"] == event).collect()
    }

    /// Conversations that the model saw, in order, each once.
    fn threads(&self) -> Vec<String> {
        let mut threads: Vec<String> =
            self.records("request").iter().map(|r| r["thread"].as_str().unwrap().to_owned()).collect();
        threads.dedup();
        threads
    }

    /// What the model handed out: uncached input plus output, and all of it.
    fn handed_out(&self) -> (u64, u64) {
        let number = |v: &Value| v.as_u64().unwrap_or(0);
        self.records("response").iter().fold((0, 0), |(fresh, all), r| {
            let t = &r["tokens"];
            let total = number(&t["in"]) + number(&t["out"]);
            (fresh + total - number(&t["cached"]), all + total)
        })
    }

    /// R-R4: the ledger says what was handed out, exactly where nothing is estimated; a guess is never lower than the truth,
    /// and not much higher.
    fn assert_counted(&self, run: &Value) {
        let figure = |name: &str| run["usage"][name].as_u64().unwrap();
        let counted = [figure("tokens"), figure("total_tokens")];
        let guessed = [figure("estimated_tokens"), figure("estimated_total_tokens")];
        let (fresh, all) = self.handed_out();
        for ((counted, guessed), handed_out) in counted.into_iter().zip(guessed).zip([fresh, all]) {
            let told = counted - guessed;
            assert!(told <= handed_out && handed_out <= counted, "{told} {handed_out} {counted}: {run:#}");
            assert!(guessed <= GUESS, "{guessed}: {run:#}");
        }
    }

    fn gate(&self, name: &str) -> PathBuf {
        self.world.path("gates").join(name)
    }

    fn open(&self, gate: &str) {
        fs::write(self.gate(gate), "").unwrap();
    }
}

impl Drop for CodexWorld {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn agents_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents")
}

fn serve(world: &World, scenario: &str) -> (Child, u16) {
    let port_file = world.path("port");
    let server = Command::new("python3")
        .arg(agents_folder().join("mock_model.py"))
        .arg("--scenario")
        .arg(agents_folder().join(format!("scenarios/{scenario}.json")))
        .arg("--port-file")
        .arg(&port_file)
        .arg("--log")
        .arg(world.path("requests.jsonl"))
        .arg("--gates")
        .arg(world.path("gates"))
        .spawn()
        .unwrap();
    wait_until("the model listens", || port_file.exists());
    (server, fs::read_to_string(&port_file).unwrap().trim().parse().unwrap())
}

#[test]
#[ignore = "needs the real Codex"]
fn a_command_a_patch_and_a_message_are_a_run_that_succeeds() {
    let codex = CodexWorld::new("success");
    codex.task("", &qa_step("qa", "grep -q 'hello world' hello.txt"));
    let (exit, run) = codex.world.start("t");
    assert_eq!(
        (exit, &run["status"], &run["outcome"]["verification"]),
        (0, &"SUCCEEDED".into(), &"passed".into()),
        "{run:#}"
    );
    assert_eq!(run["usage"]["tool_calls"], 2);
    codex.assert_counted(&run);
    assert_eq!(codex.world.git(&["show", "agentrun/run_t_001:hello.txt"]), "hello world");
    assert!(codex.world.events("run_t_001").iter().any(|e| e["kind"] == "agent.identified"), "its version is recorded");
    assert!(!codex.world.home().join(".codex").exists(), "home: private leaves the user's alone");
    let (_, again) = codex.world.start("t");
    assert_eq!((&again["reused"], codex.records("request").len()), (&true.into(), 3));
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn r_r2_a_red_check_sends_codex_back_in_the_same_thread() {
    let codex = CodexWorld::new("qa_fixed_on_second_round");
    let qa = qa_step("qa", "test $(cat answer.txt) = 42 || { echo expected 42; exit 1; }");
    codex.task("", &format!("{qa}    on_fail: {{ send_back_to: code, rounds: 2 }}\n"));
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &step(&run, "code")["runs"], &run["attempt"]), (0, &2.into(), &1.into()), "{run:#}");
    assert_eq!(codex.threads().len(), 1, "one conversation");
    assert!(codex.records("request").iter().any(|r| r["last_input"].as_str().unwrap().contains("expected 42")));
    codex.assert_counted(&run);
    assert_eq!(codex.world.git(&["show", "agentrun/run_t_001:answer.txt"]), "42");
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_g1_a_429_with_retry_after_is_no_failure() {
    let codex = CodexWorld::new("http_429_once");
    codex.task("", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    codex.assert_counted(&run);
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_g1_fr_g4_a_limit_that_stays_is_tried_again_within_bounds() {
    let codex = CodexWorld::with("http_429_forever", &[("budgets", "{ task: { attempts: 2 } }")]);
    codex.task("", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!(run["code"], "RATE_LIMIT", "{run:#}");
    assert!([1, 18].contains(&exit), "{run:#}");
    assert!(run["attempts"].as_array().unwrap().len() <= 2);
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_f26_a_401_is_not_tried_again() {
    let codex = CodexWorld::new("http_401");
    codex.task("", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((&run["code"], run["attempts"].as_array().unwrap().len()), (&"AUTH_FAILED".into(), 1), "{run:#}");
    assert_eq!((exit, &run["retry_at"]), (1, &Value::Null), "never a hold: {run:#}");
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn a_stream_that_breaks_off_is_survived_and_no_command_is_lost() {
    let codex = CodexWorld::new("drop_after_tool");
    codex.task("", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(codex.world.git(&["show", "agentrun/run_t_001:ran.txt"]), "ran");
    codex.assert_counted(&run);
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_a14_a_network_that_is_gone_ends_with_its_name() {
    let codex = CodexWorld::with("drop_forever", &[("budgets", "{ task: { attempts: 2 } }")]);
    codex.task("", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (1, &"DEAD_LETTER".into()), "{run:#}");
    assert_eq!(run["code"], "TEMPORARY_PROVIDER_ERROR", "{run:#}");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_a7_a_model_that_hangs_is_stopped_at_the_idle_limit() {
    for scenario in ["hang_request", "hang_stream"] {
        let sections = [
            ("timeouts", "{ call: 10ms, first_output: 10s, idle: 1500ms, exit: 1s, grace: 1s }"),
            ("budgets", "{ task: { attempts: 1 } }"),
        ];
        let codex = CodexWorld::with(scenario, &sections);
        codex.task("", "");
        let (exit, run) = codex.world.start("t");
        assert_eq!((exit, &run["code"]), (1, &"MODEL_TIMEOUT".into()), "{scenario} {run:#}");
        assert!(run["message"].as_str().unwrap().contains("idle"), "{scenario} {run:#}");
        codex.world.assert_sound("run_t_001");
    }
}

#[test]
#[ignore = "needs the real Codex"]
fn r_r4_a_token_limit_stops_codex_while_it_works_one_call_over_at_most() {
    let codex = CodexWorld::new("endless_tools");
    codex.task("budget: { task: { tokens: 3k } }\n", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (6, &"BUDGET_EXCEEDED".into()), "{run:#}");
    assert!(run["message"].as_str().unwrap().contains("task.tokens"), "{run:#}");
    // Each call costs 1,100. 3,300 is over; what was asked of the model meanwhile is at most one call more.
    let (handed_out, _) = codex.handed_out();
    assert!((3300..=4400).contains(&handed_out), "{handed_out}");
    assert_eq!(step(&run, "code")["state"], "PENDING");
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn r_r4_a_limit_of_tool_calls_stops_codex_one_call_over_at_most() {
    let codex = CodexWorld::new("endless_tools");
    codex.task("budget: { task: { tool_calls: 2 } }\n", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (6, &"BUDGET_EXCEEDED".into()), "{run:#}");
    assert!(run["message"].as_str().unwrap().contains("task.tool_calls"), "{run:#}");
    assert!((3..=4).contains(&codex.records("response").len()), "{:#?}", codex.records("response"));
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_f13_a_raised_limit_lets_codex_go_on_in_its_thread() {
    let sections = [("budgets", "{ task: { tokens: 50k, attempts: 3 } }")];
    let codex = CodexWorld::with("slow_then_finish", &sections);
    codex.open("go");
    codex.task("budget: { task: { tokens: 1040 } }\n", "");
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (6, &"BUDGET_EXCEEDED".into()), "{run:#}");
    let (exit, run) = codex.world.json(&["resume", "t", "--budget", "task.tokens=20k"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(codex.threads().len(), 1, "{:?}", codex.threads());
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_d1_r_w4_a_killed_agentrun_goes_on_in_the_same_thread() {
    let codex = CodexWorld::new("slow_then_finish");
    codex.task("", &qa_step("qa", "test -e one.txt"));
    let mut running = codex.world.spawn(&["start", "t"]);
    running.reaches(&codex.gate("reached"));
    wait_until("the conversation is recorded", || {
        codex.world.show("run_t_001")["executions"][0]["session"].is_string()
    });
    running.kill();
    codex.open("go");
    let (exit, run) = codex.world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(codex.threads().len(), 1, "{:?}", codex.threads());
    assert_eq!(run["executions"][0]["session"], run["executions"][1]["session"]);
    assert_eq!(codex.world.git(&["show", "agentrun/run_t_001:one.txt"]), "one", "nothing is lost");
    codex.world.assert_sound("run_t_001");
}

/// How often agentrun is killed in the run of the next test.
const MOMENTS: usize = 10;

#[test]
#[ignore = "needs the real Codex"]
fn f01_r_r4_agentrun_killed_at_ten_moments_counts_what_the_model_handed_out() {
    let made = || {
        let codex = CodexWorld::with("success", &[("budgets", "{ task: { attempts: 9 } }")]);
        // The scripted model goes on with its next turn, whatever became of the last: its patch may never be made.
        codex.task("", &qa_step("qa", "true"));
        codex
    };
    let whole = made();
    let trace = whole.world.at("points");
    let mut start = whole.world.agentrun(&["start", "t"]);
    start.env("AGENTRUN_FAIL_TRACE", &trace);
    assert_eq!(Output::of(start).exit, 0);
    let points = fs::read_to_string(trace).unwrap().lines().count();
    for moment in 1..=MOMENTS {
        let codex = made();
        let nth = moment * points / (MOMENTS + 1);
        let mut start = codex.world.agentrun(&["start", "t"]);
        start.env("AGENTRUN_FAIL", format!("*:kill@{nth}"));
        assert_eq!(Output::of(start).exit, -9, "point {nth} of {points}");
        let there = codex.world.json(&["show", "run_t_001"]).0 == 0;
        let go_on: &[&str] = if there { &["resume", "run_t_001"] } else { &["start", "t"] };
        let (exit, run) = codex.world.json(go_on);
        assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "point {nth} of {points}: {run:#}");
        codex.assert_counted(&run);
        codex.world.assert_sound("run_t_001");
    }
}

#[test]
#[ignore = "needs the real Codex"]
fn r_w4_a_codex_that_had_finished_is_adopted() {
    let codex = CodexWorld::with("success", &[("timeouts", "{ exit: 60s }")]);
    codex.task("", "");
    // agentrun is asleep while Codex finishes, and is killed before it sees the end.
    let running = codex.world.spawn(&["start", "t"]);
    wait_until("the last call", || codex.records("request").len() >= 2);
    wait_until("its conversation is recorded", || {
        codex.world.show("run_t_001")["executions"][0]["session"].is_string()
    });
    running.signal(Signal::STOP);
    wait_until("Codex has ended or the model has said its last", || codex.records("response").len() == 3);
    wait_until("Codex wrote its last word", || last_word(&codex.world.path("repo/.ai-runs")));
    running.kill();
    let (exit, run) = codex.world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(
        (codex.records("request").len(), &step(&run, "code")["runs"]),
        (3, &1.into()),
        "not paid twice: {run:#}"
    );
    codex.assert_counted(&run);
    assert!(codex.world.has_event("run_t_001", "agent.adopted", ""));
    codex.world.assert_sound("run_t_001");
}

/// Some session file below the folder tells that its turn is complete.
fn last_word(dir: &Path) -> bool {
    fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).any(|entry| {
        let path = entry.path();
        let is_session =
            path.extension().is_some_and(|e| e == "jsonl") && path.display().to_string().contains("sessions");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => last_word(&path),
            _ => is_session && fs::read_to_string(&path).unwrap_or_default().contains("task_complete"),
        }
    })
}

#[test]
#[ignore = "needs the real Codex"]
fn r_r9_ctrl_c_leaves_a_codex_run_that_goes_on_in_the_same_thread() {
    let codex = CodexWorld::new("slow_command");
    codex.task("", "");
    let running = codex.world.spawn(&["start", "t", "--json"]);
    let reached = codex.world.state("work/run_t_001/reached.txt");
    wait_until("its command runs", || reached.exists());
    running.signal(Signal::INT);
    let out = running.end();
    assert_eq!((out.exit, &out.json()["status"]), (130, &"INTERRUPTED".into()), "{}", out.stderr);
    assert!(codex.world.living().is_empty(), "its command is gone, too");
    codex.open("go");
    let (exit, run) = codex.world.json(&["resume", "t"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(codex.threads().len(), 1, "{:?}", codex.threads());
    assert_eq!(run["usage"]["failed_attempts"], 0);
    codex.assert_counted(&run);
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_e2_two_starts_at_once_are_one_codex() {
    let codex = CodexWorld::new("slow_then_finish");
    codex.task("", "");
    let mut both = [codex.world.spawn(&["start", "t", "--json"]), codex.world.spawn(&["start", "t", "--json"])];
    wait_until("one works", || codex.gate("reached").exists());
    wait_until("the other follows", || codex.world.has_event("run_t_001", "run.attached", ""));
    assert!(both.iter_mut().all(|r| !r.is_over()));
    codex.open("go");
    let outs = both.map(crate::world::Running::end);
    let mut vias: Vec<String> = outs.iter().map(|o| o.json()["via"].as_str().unwrap().to_owned()).collect();
    vias.sort();
    assert_eq!(vias, ["attached", "new"]);
    assert!(outs.iter().all(|o| o.exit == 0 && o.json()["run"] == "run_t_001"));
    assert_eq!(codex.threads().len(), 1);
    codex.assert_counted(&outs[0].json());
    codex.world.assert_sound("run_t_001");
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_c2_fr_c17_ends_that_only_look_good_are_no_success() {
    for (scenario, code) in [("failing_tools", "ALL_TOOLS_FAILED"), ("empty_reply", "NO_RESULT")] {
        let codex = CodexWorld::with(scenario, &[("budgets", "{ task: { attempts: 1 } }")]);
        codex.task("", "");
        let (exit, run) = codex.world.start("t");
        assert_eq!((exit, &run["code"], &run["outcome"]["success"]), (1, &code.into(), &false.into()), "{run:#}");
        codex.assert_counted(&run);
    }
}

#[test]
#[ignore = "needs the real Codex"]
fn contract_6_doctor_looks_at_codex_and_its_sandbox() {
    let codex = CodexWorld::new("chat");
    let (exit, checks) = codex.world.json(&["doctor", "--agent", "codex"]);
    assert_eq!(exit, 0, "{checks:#}");
    assert!(checks.to_string().contains("codex"), "{checks:#}");
}

/// What the tools of agentrun answered in a run: as Codex says, whether it failed and the document.
fn asked_over_mcp(world: &World, run: &str) -> Vec<(String, Value)> {
    let log = world.run(&["logs", run, "--raw"]).stdout;
    let items = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let items = items.filter(|e| e["type"] == "item.completed" && e["item"]["type"] == "mcp_tool_call");
    let answer = |e: Value| {
        let text = e["item"]["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no result: {e:#}"));
        (e["item"]["status"].as_str().unwrap().to_owned(), serde_json::from_str(text).unwrap())
    };
    items.map(answer).collect()
}

#[test]
#[ignore = "needs the real Codex"]
fn r_a2_what_codex_asks_for_twice_and_in_a_new_run_is_done_once() {
    let codex = CodexWorld::of(inside::world(inside::FREE), "asks_over_mcp", &[("rules", inside::FREE)]);
    let keep = format!("printf %s \"$AGENTRUN_TOKEN\" > {}", codex.world.at("token"));
    codex.task("", &command_step("keep", &keep));
    let (exit, run) = codex.world.start("t");
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    assert_eq!(run["usage"]["tool_calls"], 2, "{run:#}");
    let (exit, run) = codex.world.json(&["start", "t", "--new"]);
    assert_eq!((exit, &run["run"]), (0, &"run_t_002".into()), "{run:#}");
    let answers = [asked_over_mcp(&codex.world, "run_t_001"), asked_over_mcp(&codex.world, "run_t_002")].concat();
    assert_eq!(answers.len(), 3, "{answers:#?}");
    for (n, (status, document)) in answers.iter().enumerate() {
        assert_eq!((status.as_str(), &document["answer"]), ("completed", &"done".into()), "{n}: {document:#}");
        assert_eq!(document["duplicate"], n > 0, "{n}: {document:#}");
        assert_eq!(document["id"], answers[0].1["id"], "one record");
    }
    assert_eq!(codex.world.lines("ledger"), 1, "sent once");
    let prompt = codex.records("request")[0]["last_input"].as_str().unwrap().to_owned();
    assert!(prompt.contains("`request_action` of the MCP server `agentrun`"), "it is told: {prompt}");
    let (_, action) = codex.world.json(&["action", "show", answers[0].1["id"].as_str().unwrap()]);
    assert!(action.to_string().contains(&codex.threads()[0]), "its conversation is on record: {action:#}");
    let token = fs::read(codex.world.path("token")).unwrap();
    assert_eq!((token.len(), inside::files_with(&codex.world.state(""), &token)), (32, vec![]), "nor by Codex");
    codex.world.assert_sound("run_t_001");
    codex.world.assert_sound("run_t_002");
}
