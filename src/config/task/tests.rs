//! The documented task file, what follows from its policy (R-R4, R-R5), and every refusal with its place.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::policy::{POLICY_FILE, load_policy};
use crate::config::source::{DiskSource, Source};
use crate::domain::failure::Code;
use crate::domain::quantity::Millis;
use crate::domain::task::{AgentSpec, CommandLine, PromptRef, Protocol, StepBody, StepKind, When};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config");

struct Memory(BTreeMap<String, String>);

impl Source for Memory {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ConfigError> {
        Ok(self.0.get(path).map(|text| text.clone().into_bytes()))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, ConfigError> {
        let below = self.0.keys().filter_map(|path| path.strip_prefix(&format!("{folder}/")));
        Ok(below.map(ToOwned::to_owned).collect())
    }
}

fn memory(files: &[(&str, &str)]) -> Memory {
    Memory(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
}

fn policy(text: &str) -> LoadedPolicy {
    load_policy(&memory(&[(POLICY_FILE, text)])).unwrap()
}

fn load_with(text: &str, policy: &LoadedPolicy, overrides: &Overrides) -> Result<TaskSpec, ConfigError> {
    load_task("tasks/t.yml", text.as_bytes(), &TaskContext { policy, overrides })
}

fn load(text: &str) -> Result<TaskSpec, ConfigError> {
    load_with(text, &LoadedPolicy::built_in(), &Overrides::default())
}

fn fixture(name: &str) -> TaskSpec {
    let source = DiskSource::new(FIXTURES);
    let policy = load_policy(&source).unwrap();
    let found = find_task(&source, name).unwrap();
    let context = TaskContext { policy: &policy, overrides: &Overrides::default() };
    load_task(&found.path, &found.bytes, &context).unwrap()
}

fn agent(task: &TaskSpec) -> &AgentSpec {
    let body = task.steps.iter().map(|s| &s.body).find(|body| matches!(body, StepBody::Agent { .. }));
    match body {
        Some(StepBody::Agent { agent, .. }) => agent,
        _ => panic!("no agent step"),
    }
}

#[test]
fn the_documented_task_is_read_completely() {
    let task = fixture("182");
    assert_eq!((task.task.as_str(), task.mode.as_str()), ("182", "implement"));
    assert_eq!(task.inputs["ticket"], "LOGIN-42");
    assert_eq!(task.concurrency.as_ref().unwrap().group, "main");
    assert_eq!((task.context.files[0].as_str(), task.context.rules[0].as_str()), ("src/auth/**", "AGENTS.md"));
    assert_eq!((task.budget.task.tokens, task.budget.task.cost_micros), (Some(500_000), Some(5_000_000)));
    assert_eq!(task.budget.attempt.time, Some(Millis::mins(15)));
    let shape: Vec<_> = task.steps.iter().map(|s| (s.key.as_str(), s.kind(), s.explicit_needs)).collect();
    let expected = [
        ("context", StepKind::Context, false),
        ("codex", StepKind::Agent, false),
        ("qa", StepKind::Qa, false),
        ("package", StepKind::Command, true),
        ("cleanup", StepKind::Command, false),
        ("tell", StepKind::Command, false),
        ("report", StepKind::Report, false),
    ];
    assert_eq!(shape, expected);
    assert_eq!(task.steps[0].needs, []);
    assert_eq!(task.steps[2].needs[0].as_str(), "codex");
    assert_eq!(task.steps[1].timeout, Some(Millis::mins(12)));
    assert_eq!(agent(&task).args, ["--model", "gpt-5-codex"]);
    let StepBody::Qa { run: CommandLine::Shell(line), on_fail: Some(back) } = &task.steps[2].body else { panic!() };
    assert_eq!((line.as_str(), back.send_back_to.as_str(), back.rounds), ("cargo test --quiet", "codex", 2));
    assert_eq!(task.steps[2].artifacts.iter().map(|a| a.optional).collect::<Vec<_>>(), [false, true]);
    assert!(matches!(&task.steps[3].body, StepBody::Command { run: CommandLine::List(list) } if list.len() == 4));
    assert_eq!(task.steps[3].env["SOURCE_DATE_EPOCH"], "0");
    assert_eq!(task.steps[4].when, When::Always);
    assert!(matches!(&task.steps[5].when, When::Expression(e) if e.starts_with("steps.qa.state")));
}

#[test]
fn a_recording_is_played_by_its_paths() {
    let task = fixture("tasks/replay.yml");
    let agent = agent(&task);
    assert_eq!((agent.name.as_str(), agent.protocol), ("replay", Protocol::Replay));
    assert_eq!(agent.events.as_deref(), Some("recordings/fix.jsonl"));
    assert_eq!(agent.patch.as_deref(), Some("recordings/fix.patch"));
}

/// A task around some steps.
fn with_steps(steps: &str) -> String {
    format!("task: t\ninputs: {{ ticket: a }}\nsteps:\n{steps}")
}

/// Whole files and what is said about them.
const REFUSED_TASKS: &[(&str, &str)] = &[
    ("task: a b\nsteps: [report]\n", "1:7: task id `a b` is not allowed"),
    ("task: t\n", "1:1: missing key `steps`"),
    ("steps: [report]\n", "1:1: missing key `task`"),
    ("task: t\nsteps: []\n", "2:8: a task needs at least one step"),
    ("task: t\nstesp: [report]\n", "2:1: unknown key `stesp`; did you mean `steps`?"),
    (
        "task: t\nworkspace: isolatd\nsteps: [report]\n",
        "2:12: workspace: `isolatd` is not known; did you mean `isolated`?",
    ),
    ("task: t\nkeep_changes: true\nsteps: [report]\n", "2:15: keep_changes: `true` is not known"),
    (
        "task: t\nconcurrency: { group: a, when_busy: wait }\nsteps: [report]\n",
        "2:37: concurrency.when_busy: `wait` is not known; known are queue, join, refuse",
    ),
    ("task: t\nmode: \"\"\nsteps: [report]\n", "2:7: `mode` must be a word"),
    ("task: t\ninputs: { a-b: 1 }\nsteps: [report]\n", "2:11: `a-b` is no name of an input"),
    ("task: t\ninputs: { a: 1, A: 2 }\nsteps: [report]\n", "inputs `A` and `a` differ only in case"),
    ("task: t\ninputs: { a: [1] }\nsteps: [report]\n", "2:14: inputs.a: found list, expected a string"),
    ("task: t\ncontext: { files: [/etc/passwd] }\nsteps: [report]\n", "2:20: `/etc/passwd` must be relative"),
    ("task: t\ncontext: { rules: [ok, a/../../b] }\nsteps: [report]\n", "2:24: `a/../../b` must not contain `..`"),
    ("task: t\ncontext: { files: ['a['] }\nsteps: [report]\n", "2:20: `a[` is no glob"),
    (
        "task: t\nbudget: { task: { tokns: 5 } }\nsteps: [report]\n",
        "2:19: unknown key `tokns` in budget.task; did you mean `tokens`?",
    ),
    (
        "task: t\nbudget: { run: { tokens: 5 } }\nsteps: [report]\n",
        "2:11: unknown key `run` in budget; known are attempt, task",
    ),
    (
        "task: t\nconcurrency: [main, queue]\nsteps: [report]\n",
        "2:14: concurrency: found list, expected `group` and `when_busy`",
    ),
];

/// Steps, from line 4 on, and what is said about them.
const REFUSED_STEPS: &[(&str, &str)] = &[
    ("- reprot\n", "4:3: kind `reprot` is not known; did you mean `report`?"),
    ("- 5\n", "4:3: kind `5` is not known"),
    ("- [report]\n", "4:3: steps[0]: found list, expected a text, or the longer form with keys"),
    ("- {}\n", "4:3: a step needs `kind`"),
    (
        "- { kind: command, run: x, artifacts: [[a, true]] }\n",
        "4:40: steps[0].artifacts[0]: found list, expected a text",
    ),
    ("- { key: a }\n", "4:3: a step needs `kind`, one of context, agent, qa, command, report"),
    ("- { kind: deploi }\n", "4:11: kind `deploi` is not known; did you mean `deploy`?"),
    ("- deploy\n", "4:3: this version does not run steps of kind `deploy` yet"),
    ("- key: r\n  kind: release\n  release: x\n", "5:9: this version does not run steps of kind `release` yet"),
    ("- key: codex\n  kind: agent\n  promt: p.md\n", "6:3: unknown key `promt`; did you mean `prompt`?"),
    (
        "- { kind: qa, run: x, prompt: p.md }\n",
        "4:23: `prompt` does not belong to a step of kind qa; it takes key, kind",
    ),
    ("- { kind: report, env: { A: b } }\n", "`env` does not belong to a step of kind report"),
    ("- { kind: command, run: x, key: Up }\n", "4:33: step key `Up` is not allowed"),
    ("- { kind: command, run: x, env: { AGENTRUN_STEP: b } }\n", "4:35: `AGENTRUN_STEP` is reserved"),
    ("- agent\n", "4:3: a step of kind agent needs `prompt`"),
    ("- qa\n", "4:3: a step of kind qa needs `run`"),
    ("- { kind: qa, run: '' }\n", "4:20: `run` is empty"),
    ("- { kind: qa, run: [] }\n", "4:20: `run` must name a program"),
    ("- { kind: qa, run: 5 }\n", "4:20: steps[0].run: found integer `5`, expected a text"),
    ("- { kind: agent, prompt: ../p.md }\n", "4:26: `../p.md` must not contain `..`"),
    ("- { kind: agent, prompt: p.md, agent: codx }\n", "4:39: agent `codx` is not known; did you mean `codex`?"),
    ("- { kind: agent, prompt: p.md, agent: { name: codx } }\n", "4:47: agent `codx` is not known"),
    ("- { kind: agent, prompt: p.md, agent: claude }\n", "4:39: this version does not run `claude` yet"),
    (
        "- { kind: agent, prompt: p.md, agent: { name: codex, modle: x } }\n",
        "unknown key `modle` in steps[0].agent; did you mean `model`?",
    ),
    (
        "- { kind: agent, prompt: p.md, agent: { name: codex, events: x } }\n",
        "4:39: `events` and `patch` are for replay",
    ),
    ("- { kind: agent, prompt: p.md, agent: replay }\n", "4:39: agent `replay` needs `events`"),
    ("- { kind: agent, prompt: p.md, agent: { name: replay, events: /x } }\n", "4:63: `/x` must be relative"),
    ("- context\n- context\n", "5:3: step key `context` is used twice, first in line 4"),
    ("- context\n- { key: context, kind: report }\n", "5:10: step key `context` is used twice"),
    (
        "- context\n- { kind: report, needs: [ contxt ] }\n",
        "5:28: step `report` needs unknown step `contxt`; did you mean `context`?",
    ),
    ("- { kind: report, needs: [ report ] }\n", "4:26: steps need each other in a circle: report → report"),
    (
        "- context\n- { kind: command, key: a, run: x, needs: [b] }\n- { kind: command, key: b, run: x, needs: [context, c] }\n- { kind: command, key: c, run: x, needs: [a] }\n",
        "5:43: steps need each other in a circle: a → b → c → a",
    ),
    (
        "- { kind: agent, prompt: p.md }\n- { kind: qa, run: x, on_fail: { send_back_to: agnt } }\n",
        "5:48: step `qa` sends back to unknown step `agnt`; did you mean `agent`?",
    ),
    (
        "- context\n- { kind: qa, run: x, on_fail: { send_back_to: context } }\n",
        "step `qa` sends back to `context`, a context step; only an agent step",
    ),
    (
        "- { kind: qa, run: x, on_fail: { send_back_to: agent } }\n- { kind: agent, prompt: p.md }\n",
        "step `qa` sends back to `agent`, which it does not come after",
    ),
    (
        "- { kind: agent, prompt: p.md }\n- { kind: qa, run: x, on_fail: { send_back_to: agent, rounds: 0 } }\n",
        "`0` is not allowed",
    ),
    (
        "- { kind: agent, prompt: p.md }\n- { kind: qa, run: x, on_fail: { send_back_to: agent, rounds: 101 } }\n",
        "at most 100 rounds, not 101",
    ),
    ("- { kind: report, when: alwys }\n", "4:25: `when` alwys: unknown variable `alwys`"),
    (
        "- context\n- { kind: report, when: steps.contxt.state == 'FAILED' }\n",
        "unknown variable `steps.contxt.state`; did you mean `steps.context.state`?",
    ),
    (
        "- { kind: report, when: inputs.tiket == 'a' }\n",
        "unknown variable `inputs.tiket`; did you mean `inputs.ticket`?",
    ),
    ("- { kind: report, when: inputs.ticket }\n", "the condition gives a, not true or false"),
    ("- { kind: report, when: '1 +' }\n", "4:25: `when` 1 +: syntax error"),
    ("- { kind: context, when: steps.report.state == 'FAILED' }\n- report\n", "unknown variable `steps.report.state`"),
    (
        "- { kind: command, run: x, artifacts: [ { path: a } ] }\n",
        "unknown key `path` in steps[0].artifacts[0]; known are glob, optional",
    ),
    ("- { kind: command, run: x, artifacts: [ { glob: a, optional: yes } ] }\n", "expected true or false"),
    ("- { kind: command, run: x, artifacts: [ /a ] }\n", "4:41: `/a` must be relative"),
    ("- { kind: command, run: x, timeout: 90 }\n", "4:37: steps[0].timeout: `90` is not a time such as 90s, 15m or 2h"),
];

#[test]
fn errors_name_the_place_the_thing_and_what_was_meant() {
    let tasks = REFUSED_TASKS.iter().map(|(text, expected)| ((*text).to_owned(), expected));
    let steps = REFUSED_STEPS.iter().map(|(steps, expected)| (with_steps(steps), expected));
    for (text, expected) in tasks.chain(steps) {
        let error = load(&text).expect_err(&text);
        let shown = error.to_string();
        assert!(shown.contains(expected), "{text}\nfound    {shown}\nexpected {expected}");
        assert!(shown.starts_with("tasks/t.yml:") && error.excerpt().is_some(), "{shown}");
        assert_eq!(error.code(), Code::ConfigInvalid);
    }
}

#[test]
fn f88_many_steps_are_refused_fast() {
    let begin = std::time::Instant::now();
    let chain =
        |n: usize| (0..n).map(|i| format!("- {{ kind: command, run: x, key: k{i} }}\n")).collect::<Vec<_>>().concat();
    let error = load(&with_steps(&chain(6000))).unwrap_err().to_string();
    assert!(error.contains("a task has at most 200 steps, not 6000"), "{error}");
    load(&with_steps(&chain(200))).unwrap();
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn f95_templates_reach_no_command() {
    for (run, expected) in [
        (
            "echo \"{{ inputs.ticket }}\"",
            "`{{ inputs.ticket }}` is not replaced in commands; use the environment, such as \"$AGENTRUN_INPUT_TICKET\"",
        ),
        ("docker ps --format '{{.Names}}' && echo {{title}}", "`{{ title }}` is not replaced"),
    ] {
        let yaml = serde_json::to_string(run).unwrap();
        for run in [yaml.clone(), format!("[sh, -c, {yaml}]")] {
            let error = load(&with_steps(&format!("- {{ kind: command, run: {run} }}\n"))).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
    assert!(load(&with_steps("- { kind: command, run: \"docker ps --format '{{.Names}} {{ .ID }}'\" }\n")).is_ok());
}

#[test]
fn r_r4_a_task_is_only_stricter_than_its_policy() {
    let policy =
        policy("version: v1\nbudgets:\n  task: { tokens: 500k, cost: 10.00 }\n  attempt: { tool_calls: 50 }\n");
    let task = |budget: &str| format!("task: t\nbudget: {{ {budget} }}\nsteps: [ report ]\n");
    let outcome = |budget: &str| load_with(&task(budget), &policy, &Overrides::default());
    let same = outcome("task: { tokens: 500k, cost: 10.00, total_tokens: 9M, attempts: 3 }, attempt: { tokens: 900k }")
        .unwrap();
    assert_eq!(same.budget.task.total_tokens, Some(9_000_000), "what the policy leaves open is the task's");
    for (budget, expected) in [
        (
            "task: { tokens: 500001 }",
            "2:27: budget `task.tokens` 500001 is looser than the policy's 500000 (automation-policy.yml:3:19)",
        ),
        (
            "task: { cost: 10.000001 }",
            "budget `task.cost` 10.000001 is looser than the policy's 10.00 (automation-policy.yml:3:31)",
        ),
        ("task: { time: 31m }", "budget `task.time` 31m is looser than the policy's 30m (built-in)"),
        ("task: { attempts: 4 }", "budget `task.attempts` 4 is looser than the policy's 3 (built-in)"),
        (
            "attempt: { tool_calls: 51 }",
            "budget `attempt.tool_calls` 51 is looser than the policy's 50 (automation-policy.yml:4:26)",
        ),
    ] {
        let error = outcome(budget).unwrap_err().to_string();
        assert!(error.contains(expected), "found    {error}\nexpected {expected}");
    }
}

#[test]
fn r_r5_the_clock_of_a_step_lies_between_call_and_attempt() {
    let policy = policy("version: v1\ntimeouts: { attempt: 20m }\n");
    let task = |timeout: &str| with_steps(&format!("- {{ kind: command, run: x, timeout: {timeout} }}\n"));
    let outcome = |timeout: &str| load_with(&task(timeout), &policy, &Overrides::default());
    for good in ["61s", "16m", "1199s"] {
        assert!(outcome(good).is_ok(), "{good}: a step's own clock replaces the policy's");
    }
    let longer = outcome("20m").unwrap_err().to_string();
    let expected = "tasks/t.yml:4:37: timeout 20m of step `command` must be shorter than the policy's `attempt` 20m (automation-policy.yml:2:22)";
    assert_eq!(longer, expected);
    let shorter = outcome("60s").unwrap_err().to_string();
    assert!(shorter.ends_with("must be longer than the policy's `call` 1m (built-in)"), "{shorter}");
}

#[test]
fn the_command_line_overrides_agent_and_inputs() {
    let policy = policy("version: v1\nagents: { bot: { run: [b], protocol: text, args: [-q] } }\n");
    let text = "task: t\ninputs: { ticket: A, other: B }\nsteps:\n- kind: agent\n  prompt: p.md\n  agent: { name: codex, model: m, args: [-x], }\n";
    let with = |agent: Option<&str>, inputs: &[(&str, &str)]| {
        let inputs = inputs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        load_with(text, &policy, &Overrides { agent: agent.map(Into::into), inputs })
    };
    let task = with(Some("bot"), &[("ticket", "C"), ("more", "D")]).unwrap();
    assert_eq!((agent(&task).name.as_str(), agent(&task).model.as_deref()), ("bot", None));
    assert_eq!(agent(&task).args, ["-q"], "arguments for codex mean nothing to another agent");
    assert_eq!(task.inputs.values().collect::<Vec<_>>(), ["D", "B", "C"]);
    let same = with(Some("codex"), &[]).unwrap();
    assert_eq!((agent(&same).model.as_deref(), agent(&same).args.len()), (Some("m"), 1));
    for (name, expected) in
        [("bott", "did you mean `bot`?"), ("claude", "does not run `claude` yet"), ("replay", "needs `events`")]
    {
        let error = with(Some(name), &[]).unwrap_err();
        assert_eq!(error.code(), Code::Usage);
        assert!(error.to_string().starts_with("--agent: ") && error.to_string().contains(expected), "{error}");
    }
    let mut given = Overrides::default();
    given.add_input("a=b=c").unwrap();
    assert_eq!(given.inputs["a"], "b=c");
    assert!(given.add_input("a=d").is_err() && given.add_input("b").is_err());
    for bad in ["a-b", "", "TICKET"] {
        assert_eq!(with(None, &[(bad, "x")]).unwrap_err().code(), Code::Usage, "{bad}");
    }
}

#[test]
fn a_task_is_found_by_its_id_or_path() {
    let files = memory(&[
        ("tasks/a.yml", "task: Login-1\nsteps: [report]\n"),
        ("tasks/b.yml", "task: 182\nsteps: [report]\n"),
        ("tasks/c.yml", "task: dup\nsteps: [report]\n"),
        ("tasks/d.yml", "task: DUP\nsteps: [report]\n"),
        ("tasks/e.yml", "task: 'broken'\nsteps: [report\n"),
        ("tasks/notes.txt", "task: 182"),
        ("other/f.yml", "task: f\nsteps: [report]\n"),
    ]);
    let found = |id: &str| find_task(&files, id).map(|task| task.path);
    assert_eq!(found("182").unwrap(), "tasks/b.yml");
    assert_eq!(found("LOGIN-1").unwrap(), "tasks/a.yml");
    assert_eq!(found("./other/f.yml").unwrap(), "other/f.yml");
    let twice = found("Dup").unwrap_err();
    assert_eq!(
        twice.to_string(),
        "tasks/d.yml:1:7: task `Dup` stands also in tasks/c.yml; ids are unique, whatever their case"
    );
    let near = found("logn-1").unwrap_err();
    assert_eq!(near.code(), Code::NotFound);
    assert!(
        near.to_string().contains("did you mean `Login-1`?") && near.to_string().contains("tasks/e.yml:"),
        "{near}"
    );
    assert_eq!(found("broken").unwrap_err().code(), Code::ConfigInvalid, "its own error is the answer");
    assert_eq!(found("other/g.yml").unwrap_err().code(), Code::NotFound);
    assert_eq!(found("../x.yml").unwrap_err().code(), Code::NotFound);
    assert_eq!(find_task(&memory(&[]), "1").unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_prompt_makes_a_task() {
    let built_in = LoadedPolicy::built_in();
    let overrides = Overrides::default();
    let context = TaskContext { policy: &built_in, overrides: &overrides };
    let make = |text: &str, qa: Option<&str>| task_from_prompt(text, qa, &context);
    let task = make("Fix the login {{ redirect }}!\nPlease.", Some("cargo test")).unwrap();
    assert!(task.task.as_str().starts_with("fix-the-login-redirect-please-"), "{}", task.task);
    assert_eq!(task.title.as_deref(), Some("Fix the login {{ redirect }}!"));
    let keys: Vec<_> = task.steps.iter().map(|s| s.key.as_str()).collect();
    assert_eq!(keys, ["context", "agent", "qa", "report"]);
    assert!(
        matches!(&task.steps[1].body, StepBody::Agent { prompt: PromptRef::Text(t), .. } if t.contains("{{ redirect }}"))
    );
    assert!(matches!(&task.steps[2].body, StepBody::Qa { on_fail: Some(back), .. } if back.rounds == 2));
    assert_eq!(make("x", None).unwrap().steps.len(), 3);
    assert_eq!(make("修复登录", None).unwrap().task.as_str().split_once('-').unwrap().0, "prompt");
    assert_ne!(make("a b", None).unwrap().task, make("a  b", None).unwrap().task, "another text is another task");
    assert_eq!(make(" \n", None).unwrap_err().code(), Code::Usage);
    assert_eq!(make("x", Some(" ")).unwrap_err().code(), Code::Usage);
    make(&"Wörter-".repeat(50), None).unwrap();
}

#[test]
fn r_f2_comments_order_of_keys_spelling_and_limits_do_not_change_the_meaning() {
    let base = load(&with_steps(
        "- context\n- { kind: command, key: a, run: x, needs: [context], env: { A: '1', B: '2' } }\n",
    ))
    .unwrap();
    let same = "# c\nsteps:\n  - { kind: context, timeout: 2m }\n\n  - env: {B: \"2\",\n        A: 1}\n    needs:\n    - context\n    - context\n    run: \"x\"   # c\n    key: a\n    kind: command\nbudget: { task: { tokens: 5 } }\ntitle: T\ninputs:\n  ticket: 'a'\ntask: t\n";
    assert_eq!(load(same).unwrap().meaning(), base.meaning());
    for other in
        ["- context\n", "- context\n- { kind: command, key: a, run: y, needs: [context], env: { A: '1', B: '2' } }\n"]
    {
        assert_ne!(load(&with_steps(other)).unwrap().meaning(), base.meaning());
    }
}

/// Tasks as text, in two layouts, from the same parts.
fn layouts(mode: &str, files: &[String], run: &[String], timeout: u32) -> [String; 2] {
    let quoted = |s: &String| serde_json::to_string(s).unwrap();
    let list = |items: &[String]| items.iter().map(quoted).collect::<Vec<_>>().join(", ");
    let (files, run) = (list(files), list(run));
    let flow = format!(
        "{{task: t, mode: \"{mode}\", context: {{files: [{files}]}}, steps: [context, {{kind: command, run: [go, {run}], timeout: {timeout}s}}]}}\n"
    );
    let block = format!(
        "# comment\nsteps:\n\n- kind: context\n- run:\n  - go\n{}  timeout: {timeout}s # c\n  kind: command\ncontext:\n  files: [ {files} ]\nmode: {mode}\n\n\ntask: \"t\"\n",
        run.split(", ").filter(|r| !r.is_empty()).map(|r| format!("  - {r}\n")).collect::<Vec<_>>().concat()
    );
    [flow, block]
}

proptest! {
    #[test]
    fn r_f2_layout_never_changes_the_meaning(
        mode in "[a-z]{1,8}",
        files in prop::collection::vec("[a-z]{1,5}/[a-z*]{1,5}", 0..4),
        run in prop::collection::vec("[a-z0-9$;'#: -]{1,8}", 0..4),
        timeout in 61_u32..1400,
    ) {
        let [flow, block] = layouts(&mode, &files, &run, timeout).map(|text| load(&text).unwrap());
        prop_assert_eq!(flow.meaning(), block.meaning());
        prop_assert_eq!(&flow, &block);
    }

    /// What was recorded (JSON in the database) is what was meant.
    #[test]
    fn a_recorded_task_is_read_back(run in prop::collection::vec("[ -z]{1,8}", 1..4), value in "[ -z]{0,12}") {
        prop_assume!(!run[0].trim().is_empty());
        let text = format!("task: t\ninputs: {{ a: {} }}\nsteps: [ {{ kind: command, run: {} }} ]\n",
            serde_json::to_string(&value).unwrap(), serde_json::to_string(&run).unwrap());
        let task = load(&text).unwrap();
        let back: TaskSpec = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
        prop_assert_eq!(back.meaning(), task.meaning());
        prop_assert_eq!(back, task);
    }

    #[test]
    fn f88_no_text_makes_the_reader_panic(text in "(task|steps|kind|needs|when|run|agent|[\\[\\]{}:,\n \"'#-]){0,40}") {
        let _ = load(&text);
    }
}
