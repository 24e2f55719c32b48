//! What each state of a run means to people.

use super::*;
use crate::domain::machine::Word as _;
use crate::domain::sample::{at, key, run};
use crate::domain::turn::Queue;

fn read(run: &RunRecord, holding: Holding, now: UtcMs) -> Meaning {
    let step = key("qa");
    meaning(&MeaningInput { run, holding, now, silent_after: Millis::secs(60), step: Some(&step), wait: None })
}

/// One line per status: word, whether it goes on, next command, sentence.
fn table(holding: Holding) -> String {
    let line = |status: &RunStatus| {
        let meaning = read(&run(*status), holding, at(300));
        let by_itself = if meaning.goes_on_by_itself { "yes" } else { "no" };
        let next = meaning.next.unwrap_or_default();
        format!("{status} | {} | {by_itself} | {next} | {}\n", meaning.word, meaning.sentence)
    };
    RunStatus::ALL.iter().map(line).collect()
}

#[test]
fn r_u4_every_status_has_a_meaning_and_a_next_command() {
    insta::assert_snapshot!(table(Holding::Free));
    for status in RunStatus::ALL {
        assert!(read(&run(*status), Holding::Free, at(300)).next.is_some(), "{status}");
    }
}

#[test]
fn r_u4_failures_are_told_apart_by_what_helps() {
    let failed = |code: Code| read(&RunRecord { code: Some(code), ..run(RunStatus::Failed) }, Holding::Free, at(300));
    assert_eq!(failed(Code::QaFailed).word, MeaningWord::NeedsAPerson, "R-R2: says that a person must look");
    assert_eq!(failed(Code::ModelTimeout).word, MeaningWord::CanBeRetried);
    assert_eq!(failed(Code::AuthFailed).word, MeaningWord::FailedForGood);
    assert_eq!(failed(Code::AuthFailed).next.as_deref(), Some("agentrun resume run_182_001"));
    assert_eq!(failed(Code::PolicyDenied).next.as_deref(), Some("agentrun start 182 --new"));
}

#[test]
fn fr_k1_a_dead_holder_shows_at_once_and_nothing_is_changed() {
    let running = run(RunStatus::Running);
    let before = running.clone();
    let meaning = read(&running, Holding::Abandoned, at(291));
    assert_eq!(meaning.word, MeaningWord::CanBeRetried);
    assert_eq!(meaning.reading, Some(Reading::RetryableStuck));
    assert!(!meaning.goes_on_by_itself);
    assert_eq!(meaning.next.as_deref(), Some("agentrun resume run_182_001"));
    assert_eq!(running, before);
}

#[test]
fn fr_k4_a_slow_heartbeat_of_a_living_holder_is_stale_and_still_in_progress() {
    let running = run(RunStatus::Running);
    let readings = [
        (Holding::Held, at(349), MeaningWord::InProgress, None),
        (Holding::Held, at(351), MeaningWord::InProgress, Some(Reading::Stale)),
        (Holding::Stuck, at(300), MeaningWord::CanBeRetried, Some(Reading::Stuck)),
        (Holding::Foreign, at(349), MeaningWord::InProgress, None),
        (Holding::Foreign, at(351), MeaningWord::CanBeRetried, Some(Reading::Stale)),
        (Holding::Abandoned, at(300), MeaningWord::CanBeRetried, Some(Reading::RetryableStuck)),
    ];
    for (holding, now, word, reading) in readings {
        let meaning = read(&running, holding, now);
        assert_eq!((meaning.word, meaning.reading), (word, reading), "{holding:?} {now:?}");
        assert_eq!(meaning.goes_on_by_itself, word == MeaningWord::InProgress);
    }
}

#[test]
fn fr_k2_a_terminal_state_reads_the_same_whatever_its_lease_says() {
    for status in [RunStatus::Succeeded, RunStatus::Canceled] {
        for holding in [Holding::Free, Holding::Held, Holding::Stuck, Holding::Abandoned, Holding::Foreign] {
            let far_later = at(10_000_000);
            let meaning = read(&run(status), holding, far_later);
            assert_eq!((meaning.reading, meaning.goes_on_by_itself), (None, false));
            assert_eq!(meaning.since, at(300));
        }
    }
}

#[test]
fn fr_k8_a_parked_run_says_for_what_since_when_and_how_to_go_on() {
    let parked = [RunStatus::WaitingApproval, RunStatus::ReviewRequired, RunStatus::OutcomeUnknown, RunStatus::Blocked];
    for status in parked {
        let meaning = read(&run(status), Holding::Free, at(1000));
        assert_eq!(meaning.since, at(300), "{status}");
        assert!(meaning.sentence.contains(run(status).message.as_deref().unwrap()), "{status}");
        assert!(meaning.next.is_some(), "{status}");
    }
}

#[test]
fn r_u4_a_parked_run_names_the_step_that_it_is_parked_on() {
    let mut steps = crate::domain::sample::view(RunStatus::Failed).steps;
    (steps[0].state, steps[1].state) = (StepState::WaitingApproval, StepState::Unknown);
    let at = |status| stands_at(status, &steps).cloned();
    assert_eq!(at(RunStatus::WaitingApproval), Some(steps[0].key.clone()));
    assert_eq!(at(RunStatus::OutcomeUnknown), Some(steps[1].key.clone()));
    assert_eq!(at(RunStatus::Failed), Some(key("qa")));
    assert_eq!(stands_at(RunStatus::WaitingApproval, &[]), None);
    let nameless = MeaningInput {
        run: &run(RunStatus::WaitingApproval),
        holding: Holding::Free,
        now: crate::domain::sample::at(300),
        silent_after: Millis::secs(60),
        step: None,
        wait: None,
    };
    assert_eq!(meaning(&nameless).next.as_deref(), Some("agentrun approval list"));
}

#[test]
fn a_wait_says_how_long_and_whether_somebody_waits() {
    let waiting = run(RunStatus::Retrying);
    let held = read(&waiting, Holding::Held, at(300));
    assert_eq!((held.word, held.goes_on_by_itself), (MeaningWord::Waiting, true));
    assert!(held.sentence.starts_with("tries again in 5m ("), "{}", held.sentence);
    let parked = read(&waiting, Holding::Free, at(300));
    assert_eq!((parked.word, parked.goes_on_by_itself), (MeaningWord::Waiting, false));
    assert_eq!(read(&waiting, Holding::Free, at(600)).word, MeaningWord::CanBeRetried);
}

#[test]
fn r_r8_r_u4_a_run_that_waits_says_for_what_until_when_why_and_that_it_goes_on() {
    let at_work = |wait: &Wait, status| {
        let run = run(status);
        let input = MeaningInput {
            run: &run,
            holding: Holding::Held,
            now: at(298),
            silent_after: Millis::secs(60),
            step: None,
            wait: Some(wait),
        };
        meaning(&input)
    };
    let wait = |queue, breaker| {
        let holder = crate::domain::record::Identity {
            pid: 1,
            start_ticks: 1,
            boot_id: crate::domain::quantity::BootId("boot".into()),
        };
        let turn = crate::domain::turn::Turn {
            seq: 3,
            queue,
            run: run(RunStatus::Running).id,
            agent: Some("codex".into()),
            state: crate::domain::turn::TurnState::Waiting,
            insists: false,
            holder,
            since: at(200),
            seen_at: at(290),
        };
        Wait { turn, ahead: 2, breaker }
    };
    let held = wait(Queue::Provider("openai".into()), Some(crate::domain::sample::breaker()));
    let meaning = at_work(&held, RunStatus::Running);
    assert_eq!((meaning.word, meaning.goes_on_by_itself), (MeaningWord::InProgress, true));
    let says = "waits for openai until 10:05:00 UTC (2s), because RATE_LIMIT: slow down; safe to close, it goes on";
    assert_eq!(meaning.sentence, says);
    let queued = at_work(&wait(Queue::Provider("openai".into()), None), RunStatus::Running);
    assert_eq!(queued.sentence, "waits for its turn at openai; 2 before it; safe to close, it goes on");
    let accepted = at_work(&wait(Queue::Runs, None), RunStatus::Pending);
    assert_eq!((accepted.word, accepted.goes_on_by_itself), (MeaningWord::Waiting, true));
    assert_eq!(accepted.sentence, "waits for room for a run on this machine; 2 before it");
}

#[test]
fn a_limit_is_named_in_the_command_that_raises_it() {
    let next = |message: &str| {
        let run = RunRecord { message: Some(message.into()), ..run(RunStatus::BudgetExceeded) };
        read(&run, Holding::Free, at(300)).next.unwrap()
    };
    let tokens = next("task.tokens is limited to 1000, used 1550, 550 over");
    assert_eq!(tokens, "agentrun resume run_182_001 --budget task.tokens=VALUE");
    assert!(next("task.total_tokens is limited to 5").contains("task.total_tokens="));
    assert!(next("something").ends_with("--budget LIMIT=VALUE"));
}
