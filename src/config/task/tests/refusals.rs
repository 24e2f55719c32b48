//! What is refused: each with its place, the thing, and what was meant.

use super::*;

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
