//! What people see, as snapshots. Only tests.

use super::action_json::Keys;
use super::compare::{Side, compare};
use super::document;
use super::html::html;
use super::input::{ChangeKind, FileChange, PatchText, StepTail};
use super::junit::junit;
use super::markdown::markdown;
use super::record_json::{ResumeDifference, ResumeDocument};
use super::run_json::{Extras, StatusEntry, run_json, status_json};
use super::sample::World;
use super::text::{StatusRow, Style, budget_table, diff_text, end_block, resume_text, show_tree, status_table};
use crate::domain::budget::{Budget, Limits, Usage};
use crate::domain::event::EventKind;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::lease::Holding;
use crate::domain::machine::Word as _;
use crate::domain::outcome::{ProcessEnd, TimeoutLayer};
use crate::domain::plan::meaning::{MeaningInput, meaning};
use crate::domain::quantity::Millis;
use crate::domain::record::Dirty;
use crate::domain::run::RunStatus;
use crate::domain::sample::{at, event, key, meaning_of, summary, view};
use crate::domain::step::StepState;
use crate::domain::task::{CommandLine, Prompt, StepBody};

const LIMITS: Budget = Budget {
    attempt: Limits {
        tokens: Some(200_000),
        total_tokens: None,
        time: Some(Millis(900_000)),
        tool_calls: Some(60),
        cost_micros: None,
        attempts: None,
    },
    task: Limits {
        tokens: Some(500_000),
        total_tokens: None,
        time: Some(Millis(1_800_000)),
        tool_calls: Some(100),
        cost_micros: Some(5_000_000),
        attempts: Some(3),
    },
};

fn world(status: RunStatus) -> World {
    let mut view = view(status);
    view.inputs.notes = vec!["submodule vendor/lib is not part of the working copy".into()];
    view.inputs.dirty = Dirty::Ignored { paths: vec!["notes.txt".into(), "src/wip.rs".into()] };
    let change = |path: &str, kind, added, removed| FileChange { path: path.into(), kind, added, removed };
    let changes = vec![
        change("src/auth/session.rs", ChangeKind::Modified, Some(12), Some(4)),
        change("src/auth/loop.rs", ChangeKind::Deleted, Some(0), Some(57)),
        change("assets/logo.png", ChangeKind::Added, None, None),
    ];
    let patch = PatchText {
        path: "artifacts/changes.patch".into(),
        text: "diff --git a/src/auth/session.rs b/src/auth/session.rs\n--- a/src/auth/session.rs\n+++ b/src/auth/session.rs\n\
               @@ -10,4 +10,4 @@ fn redirect\n     let target = next(&session);\n-    loop { follow(target) }\n+    follow(target)\n \
               }\n".into(),
        cut: false,
    };
    let events = vec![
        event(EventKind::BudgetRaised, "task.tokens from 200000 to 500000"),
        event(EventKind::WarningRaised, "the repository's git configuration was changed during the run"),
        event(EventKind::StepMoved, "not worth telling"),
    ];
    let tail = "running 3 tests\ntest login::redirects_once ... FAILED\n\nfailures: 1\n";
    let tails = vec![StepTail { step: key("qa"), path: "attempt-1/qa.stdout".into(), text: tail.into(), cut: true }];
    let meaning = meaning_of(&view.run);
    World { view, meaning, changes, patch, events, tails, warnings: Vec::new(), limits: LIMITS }
}

#[test]
fn r_u3_the_markdown_report() {
    insta::assert_snapshot!("markdown_succeeded", markdown(&world(RunStatus::Succeeded).input()));
    insta::assert_snapshot!("markdown_failed", markdown(&world(RunStatus::Failed).input()));
}

#[test]
fn r_u3_the_html_report_tells_what_the_markdown_report_tells() {
    let world = world(RunStatus::Failed);
    let (page, text) = (html(&world.input()), markdown(&world.input()));
    let headings = |t: &str, open: &str, close: &str| {
        t.split(open).skip(1).map(|p| p.split(close).next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(headings(&page, "<h2>", "</h2>"), headings(&text, "\n## ", "\n"));
    for part in ["QA_FAILED", "redirects_once", "src/auth/loop.rs", "500,000", "notes.txt", "42 events", "--send-back"]
    {
        assert!(page.contains(part), "{part}");
    }
    let line = |class: &str, text: &str| format!("<span class=\"{class}\">{text}\n</span>");
    assert!(page.contains(&line("added", "+    follow(target)")));
    assert!(page.contains(&line("removed", "-    loop { follow(target) }")));
    assert!(page.contains(&line("file", "+++ b/src/auth/session.rs")));
    if let Ok(path) = std::env::var("AGENTRUN_TEST_HTML") {
        std::fs::write(path, page).unwrap();
    }
}

#[test]
fn fr_l1_a_stopped_agent_leaves_a_report_that_says_what_there_is() {
    let mut world = world(RunStatus::Failed);
    world.view.executions[0].result = None;
    world.view.executions[0].end = Some(ProcessEnd::TimedOut { layer: TimeoutLayer::Idle });
    let text = markdown(&world.input());
    assert!(text.contains("(none: codex was stopped by the idle timeout; what it wrote until then is in attempt-1)"));
    assert!(text.contains("its process was stopped by a timeout"));
}

#[test]
fn r_u2_junit_has_one_case_per_step() {
    insta::assert_snapshot!("junit_failed", junit(&world(RunStatus::Failed).input()).unwrap());
    let mut world = world(RunStatus::Failed);
    for (state, mark) in [
        (StepState::Succeeded, None),
        (StepState::Failed, Some("<failure")),
        (StepState::Blocked, Some("<error")),
        (StepState::Unknown, Some("<error")),
        (StepState::Skipped, Some("<skipped")),
        (StepState::Canceled, Some("<skipped")),
        (StepState::Pending, Some("<skipped")),
    ] {
        world.view.steps[2].state = state;
        let xml = junit(&world.input()).unwrap();
        assert_eq!(xml.matches("<testcase").count(), 3);
        let marks = ["<failure", "<error", "<skipped"].into_iter().filter(|m| xml.contains(m)).collect::<Vec<_>>();
        assert_eq!(marks, mark.into_iter().collect::<Vec<_>>(), "{state}");
    }
}

#[test]
fn fr_c20_junit_is_read_back_by_a_parser() {
    let xml = junit(&world(RunStatus::Failed).input()).unwrap();
    let read = quick_junit::Report::deserialize_from_str(&xml).unwrap();
    let cases = &read.test_suites[0].test_cases;
    assert_eq!(cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["context", "codex", "qa"]);
    assert_eq!((read.test_suites[0].failures, read.test_suites[0].errors), (1, 0));
}

/// Everything that a run was given and that nobody but its steps needs.
#[test]
fn r_a16_no_prompt_input_environment_or_key_reaches_a_report() {
    let mut world = world(RunStatus::Failed);
    let canary = || "CANARY-7f3a".to_owned();
    let inputs = &mut world.view.inputs;
    let prompt = Prompt { path: "prompts/fix.md".into(), version: "v1".into(), sha256: "0".into(), template: canary() };
    inputs.prompts.insert(key("codex"), prompt);
    inputs.spec.inputs.insert("ticket".into(), canary());
    inputs.spec.steps[0].env.insert("TOKEN".into(), canary());
    inputs.spec.steps[0].body = StepBody::Command { run: CommandLine::Shell(canary()) };
    inputs.policy.env.push(canary());
    world.view.run.key_hash = Some(Sha256Hash::of(b"key"));
    let extras = Extras { via: None, meaning: &world.meaning, branch: None, warnings: &[], keys: Keys::Hashed };
    let entry = StatusEntry { view: &world.view, meaning: &world.meaning, branch: None };
    let rendered = [
        markdown(&world.input()),
        html(&world.input()),
        junit(&world.input()).unwrap(),
        document::pretty(&run_json(&world.view, &extras)),
        document::line(&status_json(&[entry], &[])),
        end_block(&world.view, &world.meaning, &Style::plain()),
        show_tree(&world.view, &world.meaning, &Style::plain()),
    ];
    let key_hash = Sha256Hash::of(b"key").hex();
    for text in rendered {
        assert!(!text.contains("CANARY") && !text.contains(&key_hash[..8]), "{text}");
    }
}

#[test]
fn r_u1_the_end_block_says_what_happened_what_it_cost_and_what_next() {
    let block = |status| {
        let view = view(status);
        end_block(&view, &meaning_of(&view.run), &Style::plain())
    };
    insta::assert_snapshot!(RunStatus::ALL.iter().map(|s| block(*s)).collect::<String>());
    for status in RunStatus::ALL {
        let block = block(*status);
        assert!(block.contains("cost: ") && block.contains("next: agentrun "), "{status}");
    }
}

#[test]
fn r_u4_status_in_eighty_columns() {
    let summaries: Vec<_> = RunStatus::ALL.iter().map(|s| summary(*s)).collect();
    let meanings: Vec<_> = summaries.iter().map(|s| meaning_of(&s.run)).collect();
    let rows: Vec<_> =
        summaries.iter().zip(&meanings).map(|(summary, meaning)| StatusRow { summary, meaning }).collect();
    let table = status_table(&rows, at(400), &Style::plain());
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    insta::assert_snapshot!(table);
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
    let local = status_table(&rows, at(400), &Style { colour: true, zone });
    assert!(local.contains("\u{1b}[32mdone") && local.contains("(12:05:00 local)"), "{local}");
    assert!(status_table(&[], at(0), &Style::plain()).contains("agentrun start"));
}

#[test]
fn fr_k1_a_dead_run_reads_stale_in_the_table() {
    let summary = summary(RunStatus::Running);
    let step = key("codex");
    let input = MeaningInput {
        run: &summary.run,
        holding: Holding::Abandoned,
        now: at(900),
        silent_after: Millis::secs(60),
        step: Some(&step),
        wait: None,
    };
    let meaning = meaning(&input);
    let table = status_table(&[StatusRow { summary: &summary, meaning: &meaning }], at(900), &Style::plain());
    insta::assert_snapshot!(table);
}

#[test]
fn r_m1_the_tree_of_a_run() {
    let view = view(RunStatus::Failed);
    insta::assert_snapshot!(show_tree(&view, &meaning_of(&view.run), &Style::plain()));
}

#[test]
fn fr_f35_a_budget_names_limit_used_and_left() {
    let mut view = view(RunStatus::Running);
    insta::assert_snapshot!(budget_table(&view, &LIMITS));
    view.task_usage = Usage { cost_micros: Some(1_500_000), ..view.task_usage };
    let table = budget_table(&view, &LIMITS);
    assert!(table.lines().any(|l| l.starts_with("task.cost") && l.ends_with("3.50 USD")), "{table}");
}

#[test]
fn r_s7_two_runs_are_compared() {
    let left = view(RunStatus::Succeeded);
    let mut right = view(RunStatus::Failed);
    right.run.id = crate::domain::ids::RunId::recorded("run_182_002");
    right.run.components.mode = "review".into();
    right.artifacts[0].sha256 = Sha256Hash::of(b"other");
    right.artifacts.remove(1);
    right.usage.tool_calls = 9;
    let compared = compare(Side { view: &left, attempt: None }, Side { view: &right, attempt: None });
    insta::assert_snapshot!(diff_text(&compared));
    let same = compare(Side { view: &left, attempt: None }, Side { view: &left, attempt: None });
    assert_eq!((same.components.len(), same.artifacts.len(), same.same_patch), (0, 0, Some(true)));
}

#[test]
fn r_s7_two_attempts_are_compared() {
    let mut view = view(RunStatus::Failed);
    view.run.attempt = 2;
    let mut second = view.executions[1].clone();
    (second.attempt, second.number, second.end) = (2, 2, Some(ProcessEnd::Exited { code: 101 }));
    view.executions.push(second);
    let side = |attempt| Side { view: &view, attempt: Some(attempt) };
    insta::assert_snapshot!(diff_text(&compare(side(1), side(2))));
}

#[test]
fn r_s5_every_difference_is_printed() {
    let difference = |code: &str, old: Option<&str>, new: Option<&str>, verdict: &str| ResumeDifference {
        code: code.into(),
        old: old.map(Into::into),
        new: new.map(Into::into),
        verdict: verdict.into(),
        note: "why it counts".into(),
    };
    let differences = [
        difference("POLICY_CHANGED", Some("2026-09-15.1"), Some("2026-09-16.1"), "REVIEW_REQUIRED"),
        difference("ARTIFACT_MISSING", Some("artifacts/qa/app.tar"), None, "RESUME_BLOCKED"),
    ];
    let run = view(RunStatus::Failed).run.id;
    let step = key("qa");
    let document = ResumeDocument {
        run: &run,
        verdict: "RESUME_BLOCKED",
        next_step: Some(&step),
        policy_ref: Some("origin/main"),
        differences: &differences,
        next: Some("agentrun start 182 --new"),
    };
    insta::assert_snapshot!(resume_text(&document));
    let valid = ResumeDocument { verdict: "VALID", differences: &[], ..document };
    assert!(resume_text(&valid).contains("nothing differs"));
}
