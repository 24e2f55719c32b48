//! The documented task file, what follows from its policy (R-R4, R-R5), and how a task is found. Every refusal with its place
//! stands in `refusals`, what may not change a task's meaning in `layout`, steps that reach the outside in `delivery`.

mod delivery;
mod layout;
mod refusals;

use std::collections::BTreeMap;

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
    load_task("tasks/t.yml", text.as_bytes(), &TaskContext { policy, overrides, contracts: None })
}

fn load(text: &str) -> Result<TaskSpec, ConfigError> {
    load_with(text, &LoadedPolicy::built_in(), &Overrides::default())
}

fn fixture(name: &str) -> TaskSpec {
    let source = DiskSource::new(FIXTURES);
    let policy = load_policy(&source).unwrap();
    let found = find_task(&source, name).unwrap();
    let context = TaskContext { policy: &policy, overrides: &Overrides::default(), contracts: None };
    load_task(&found.path, &found.bytes, &context).unwrap()
}

/// A task around some steps.
fn with_steps(steps: &str) -> String {
    format!("task: t\ninputs: {{ ticket: a }}\nsteps:\n{steps}")
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
    let context = TaskContext { policy: &built_in, overrides: &overrides, contracts: None };
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
