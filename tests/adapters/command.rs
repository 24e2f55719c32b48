//! The command adapter: F65, and what each way to end means (contract §13).

use std::sync::atomic::Ordering;

use agentrun::domain::action::{Answer, Reading};
use agentrun::domain::failure::Code;
use agentrun::domain::policy::ActionType;
use agentrun::domain::quantity::Millis;
use serde_json::json;

use super::provider::Provider;
use super::{Desk, KEY, doubt, reference, refusal, words};

const SHOP: &str = r#"version: "1"
dedupe: key
send: { run: [ "{program}", act, "{folder}" ] }
query: { run: [ "{program}", status, "{folder}" ], settle: 1s }
"#;

fn desk() -> (Provider, Desk) {
    let provider = Provider::new();
    let desk = Desk::new(SHOP, &provider);
    (provider, desk)
}

/// What a shell line comes to.
fn shell(line: &str, more: &str) -> Answer {
    let quoted = serde_json::to_string(line).unwrap();
    Desk::new(&format!("version: a\nsend: {{ run: {quoted} }}\n{more}"), &Provider::new()).send()
}

#[test]
fn r_a17_a_command_gets_the_request_and_gives_the_reference() {
    let (provider, mut desk) = desk();
    assert_eq!(desk.ask(), Reading::NotFound);
    assert_eq!(reference(&desk.send()), "fx_1");
    assert_eq!(desk.ask(), Reading::Succeeded { reference: Some("fx_1".to_owned()) });
    let effect = &provider.ledger()[0];
    assert_eq!((&effect["key"], &effect["fence"]), (&json!(KEY), &json!("7")));
    assert_eq!(effect["operation"], "0198c0de-0000-7000-8000-000000000001");
    let request = &provider.requests()[0];
    assert_eq!(
        (&request["type"], &request["target"], &request["key"]),
        (&json!("generic"), &json!("shop"), &json!(KEY))
    );
    assert_eq!(request["input"]["amount"], 500);
    desk.request.kind = ActionType::Deploy;
    desk.request.target = "production".to_owned();
    desk.request.subject.insert("release".to_owned(), "v1".to_owned());
    desk.reference = Some("fx_1".to_owned());
    let line = "echo \"{\\\"reference\\\":\\\"$AGENTRUN_RELEASE/$AGENTRUN_ENVIRONMENT/$AGENTRUN_REFERENCE\\\"}\"";
    desk.contract.send = Some(agentrun::domain::action::contract::Channel::Command {
        run: agentrun::domain::task::CommandLine::Shell(line.to_owned()),
    });
    assert_eq!(reference(&desk.send()), "v1/production/fx_1");
}

#[test]
fn r_a17_what_each_end_of_a_command_means() {
    for line in ["exit 0", "echo plain words", "echo '{\"state\":\"succeeded\"}'", "echo '{\"a\":1}'; echo after"] {
        assert!(matches!(shell(line, ""), Answer::Done { .. }), "{line}");
    }
    let accepted = shell("echo '{\"state\":\"in_progress\",\"reference\":\"r1\"}'", "");
    assert_eq!(accepted, Answer::Accepted { reference: Some("r1".to_owned()), look_again: None });
    let refused = "echo '{\"effect\":\"none\",\"message\":\"no such thing\"}'; exit ";
    for (code, wanted) in [("1", true), ("63", true), ("64", false), ("126", false), ("0", false)] {
        let answer = shell(&format!("{refused}{code}"), "");
        if wanted {
            assert_eq!(refusal(&answer), (Code::CommandFailed, false), "{code}");
            assert!(words(&answer).contains("no such thing"), "{answer:?}");
        } else {
            assert_eq!(doubt(&answer), Code::OutcomeUnknown, "{code}");
        }
    }
    for line in ["exit 1", "echo '{\"state\":\"in_progress\"}'; exit 3", "echo '{\"state\":\"odd\"}'", "exit 255"] {
        assert_eq!(doubt(&shell(line, "")), Code::OutcomeUnknown, "{line}");
    }
    let later = shell("echo '{\"effect\":\"none\",\"retryable\":true,\"retry_after_s\":5}'; exit 2", "");
    assert_eq!(refusal(&later), (Code::TemporaryProviderError, true));
    let by_contract = "answers: { \"75\": refused_for_now, \"5\": already_done }\n";
    assert_eq!(refusal(&shell("exit 75", by_contract)), (Code::TemporaryProviderError, true));
    assert!(matches!(shell("exit 5", by_contract), Answer::Done { .. }));
}

#[test]
fn f55_a_command_that_does_not_start_has_done_nothing() {
    let provider = Provider::new();
    for run in ["[ no-such-program-here ]", "[ ./missing.sh ]", "[ /etc/passwd ]"] {
        let desk = Desk::new(&format!("version: a\nsend: {{ run: {run} }}\n"), &provider);
        assert_eq!(refusal(&desk.send()), (Code::CommandNotFound, false), "{run}");
        assert!(matches!(desk.ask(), Reading::Unclear { .. }));
    }
}

#[test]
fn f65_a_command_that_is_killed_midway_is_unknown_unless_it_is_atomic() {
    for signal in [9, 15] {
        let (provider, mut desk) = desk();
        provider.knobs(json!({ "die": signal }));
        assert_eq!(doubt(&desk.send()), Code::WorkerCrash);
        assert_eq!(provider.effects_of(KEY), 1);
        assert_eq!(desk.ask(), Reading::Succeeded { reference: Some("fx_1".to_owned()) });
        desk.contract.atomic = true;
        assert_eq!(refusal(&desk.send()), (Code::WorkerCrash, true));
    }
}

#[test]
fn r_a7_a_command_that_is_too_slow_or_stopped_is_unknown() {
    let (provider, mut desk) = desk();
    provider.knobs(json!({ "hang": true }));
    desk.limit = Millis(300);
    assert_eq!(doubt(&desk.send()), Code::ToolTimeout);
    desk.limit = Millis::secs(20);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            provider.wait("it has begun twice", |provider| provider.ledger().len() == 2);
            desk.stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(doubt(&desk.send()), Code::Interrupted);
    });
    assert_eq!(refusal(&desk.send()).0, Code::WorkerCrash, "and then nothing is begun any more");
    assert_eq!(provider.ledger().len(), 2);
}

#[test]
fn r_a7_what_a_status_command_prints_is_read_and_everything_else_is_no_answer() {
    let (provider, desk) = desk();
    for (printed, wanted) in [
        (json!({ "state": "succeeded", "reference": 7 }), Reading::Succeeded { reference: Some("7".to_owned()) }),
        (json!({ "state": "in_progress" }), Reading::InProgress { reference: None }),
        (json!({ "state": "failed", "message": "no" }), Reading::Failed { message: "no".to_owned() }),
        (json!({ "state": "not_found", "matches": 0 }), Reading::NotFound),
        (json!({ "state": "succeeded", "matches": 2 }), Reading::Several { matches: 2 }),
    ] {
        provider.knobs(json!({ "print_status": printed.to_string() }));
        assert_eq!(desk.ask(), wanted);
    }
    for printed in ["nothing", "{\"state\":\"maybe\"}", "{}", "{\"state\":\"succeeded\",\"matches\":\"two\"}"] {
        provider.knobs(json!({ "print_status": printed }));
        assert!(matches!(desk.ask(), Reading::Unclear { .. }), "{printed}");
    }
    let failing = Desk::new(
        "version: a\nquery: { run: \"echo '{\\\"state\\\":\\\"not_found\\\"}'; exit 1\", settle: 1s }\n",
        &provider,
    );
    assert!(matches!(failing.ask(), Reading::Unclear { .. }), "a status command that fails has not answered");
}

#[test]
fn r_a16_a_secret_reaches_neither_answer_nor_file() {
    let provider = Provider::new();
    let desk =
        Desk::new("version: a\nsend: { run: \"echo '{\\\"reference\\\":\\\"canary-command\\\"}'\" }\n", &provider);
    assert_eq!(reference(&desk.send()), "[redacted]");
    let log = std::fs::read_to_string(desk.path("0-out.log")).unwrap();
    assert!(!log.contains("canary"), "{log}");
}
