//! Who holds a run: claims, take-overs, heartbeats, fences, and what others may write.

use super::*;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::ProcessEnd;
use crate::domain::run::{AttemptEvent, AttemptState, RunStatus};
use crate::domain::step::StepState;
use crate::store::{Decision, EventFilter, StoreError};

#[test]
fn r_r6_a_take_over_closes_the_attempt_and_leaves_the_steps_to_the_new_holder() {
    let mut world = World::new();
    let first = world.started(&new_run("182", "a"));
    world.record(&first, &[step("codex", StepEvent::Begin)]).unwrap();
    let second = world.claim(&first.run, RunEvent::TakeOver, 1).unwrap();
    assert_eq!((second.attempt, second.fence), (2, 2));
    let view = world.store.view(&first.run).unwrap();
    let states: Vec<_> = view.attempts.iter().map(|a| (a.number, a.state, a.opened_by)).collect();
    let lost = (1, AttemptState::Lost, OpenedBy::Start);
    assert_eq!(states, [lost, (2, AttemptState::Running, OpenedBy::Takeover)]);
    assert_eq!(view.task_usage.failed_attempts, 1, "a lost attempt is used up");
    let codex = &view.steps[1];
    assert_eq!((codex.state, codex.attempt), (StepState::Running, 1));
    // The new holder settles it (R-W4).
    let cut = ending("codex", StepEvent::Interrupt, ended(ProcessEnd::Vanished, 9));
    world.record(&second, &[cut, step("codex", StepEvent::Begin)]).unwrap();
    let view = world.store.view(&first.run).unwrap();
    let executions: Vec<_> = view.executions.iter().map(|e| (e.number, e.attempt, e.end.clone())).collect();
    assert_eq!(executions, [(1, 1, Some(ProcessEnd::Vanished)), (2, 2, None)]);
    world.check_chains();
}

#[test]
fn r_r7_fr_j13_a_holder_that_was_replaced_changes_nothing_and_leaves_evidence() {
    let mut world = World::new();
    let first = world.started(&new_run("182", "a"));
    world.record(&first, &[step("codex", StepEvent::Begin)]).unwrap();
    let second = world.claim(&first.run, RunEvent::TakeOver, 1).unwrap();
    let before = world.store.view(&first.run).unwrap();
    let late = ExecutionEnd { result: Some("done".into()), ..ended(ProcessEnd::Exited { code: 0 }, 5) };
    let late = [ending("codex", StepEvent::Succeed, late)];
    let fenced = world.record(&first, &late).unwrap_err();
    assert_eq!(fenced, StoreError::Fenced { run: first.run.clone(), fence: 1, held_by: 2 });
    let after = world.store.view(&first.run).unwrap();
    assert_eq!((&after.steps, &after.executions, &after.run), (&before.steps, &before.executions, &before.run));
    let evidence = EventFilter { kind: Some(EventKind::WriteFenced), ..EventFilter::default() };
    let evidence = world.store.events(&evidence).unwrap();
    assert_eq!((evidence.len(), evidence[0].attempt), (1, Some(1)));
    assert!(
        evidence[0].body.contains("\"succeed\"") && evidence[0].body.contains("\"code\":0"),
        "{}",
        evidence[0].body
    );
    assert!(!evidence[0].body.contains("done"), "R-A16: what the agent said is not in the log");
    let beat = world.store.heartbeat(&first, BootMs(9), &ctx(9)).unwrap_err();
    assert_eq!(beat.code(), Code::Fenced);
    world.record(&second, &[step("context", StepEvent::Begin)]).unwrap();
    world.check_chains();
}

#[test]
fn r_r7_whoever_claimed_since_the_caller_looked_wins() {
    let mut world = World::new();
    let first = world.started(&new_run("182", "a"));
    world.claim(&first.run, RunEvent::TakeOver, 1).unwrap();
    let late = world.claim(&first.run, RunEvent::TakeOver, 1).unwrap_err();
    assert_eq!(late, StoreError::Held { run: first.run.clone(), fence: 2 });
    assert_eq!(late.code(), Code::Busy);
}

#[test]
fn r_m9_a_heartbeat_moves_the_lease_and_tells_of_a_cancel() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let events = world.store.chain_head(hold.run.as_str()).unwrap();
    let beat = world.store.heartbeat(&hold, BootMs(90_000), &ctx(2_000_000)).unwrap();
    assert!(!beat.cancel_requested);
    let run = world.store.find_run(&hold.run).unwrap().unwrap();
    assert_eq!((run.heartbeat_at, run.lease.unwrap().until), (Some(UtcMs(2_000_000)), BootMs(90_000)));
    assert_eq!(world.store.chain_head(hold.run.as_str()).unwrap(), events, "a heartbeat is no event");

    let ctx = world.ctx();
    let asked = world.store.request_cancel(&hold.run, "wrong task", &ctx).unwrap();
    assert!(asked.cancel_requested && asked.status == RunStatus::Running);
    assert!(world.store.heartbeat(&hold, BootMs(90_000), &ctx).unwrap().cancel_requested);
    let told = world.record(&hold, &[run_event(RunEvent::Cancel)]).unwrap();
    assert_eq!((told.cancel_requested, told.status), (true, RunStatus::Canceled));
    assert_eq!(world.store.request_cancel(&hold.run, "again", &ctx).unwrap_err().code(), Code::InvalidState);
}

#[test]
fn who_waits_for_a_retry_holds_on_and_everything_else_gives_the_lease_back() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let failure = Failure::new(Code::QaFailed, "step `qa` failed");
    let changes = [
        Change::Attempt { event: AttemptEvent::Fail, failure: Some(failure.clone()) },
        Change::Run { event: RunEvent::Retry, failure: Some(failure), retry_at: Some(UtcMs(77)) },
    ];
    world.record(&hold, &changes).unwrap();
    let run = world.store.find_run(&hold.run).unwrap().unwrap();
    assert_eq!((run.retry_at, run.code), (Some(UtcMs(77)), Some(Code::QaFailed)));
    assert!(run.lease.is_some(), "its holder waits");
    let ctx = world.ctx();
    assert!(world.store.heartbeat(&hold, crate::domain::quantity::BootMs(1), &ctx).is_ok());
    assert!(run.finished_at.is_some());
    let next = world.claim(&hold.run, RunEvent::Resume, 1).unwrap();
    let run = world.store.find_run(&hold.run).unwrap().unwrap();
    assert_eq!((run.code, run.retry_at, run.finished_at, run.attempt), (None, None, None, next.attempt));
    let late = world.record(&hold, &[run_event(RunEvent::Fail)]).unwrap_err();
    assert_eq!(late.code(), Code::Fenced);
}

#[test]
fn r_r3_a_person_requeues_a_dead_letter_and_the_reason_is_kept() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[run_event(RunEvent::BuryDead)]).unwrap();
    let decision = Decision {
        event: RunEvent::Requeue,
        expected_fence: 1,
        failure: None,
        retry_at: None,
        reason: "the key was renewed".into(),
    };
    let ctx = world.ctx();
    let run = world.store.decide(&hold.run, &decision, &ctx).unwrap();
    assert_eq!(run.status, RunStatus::Retrying);
    let last = world.store.chain(hold.run.as_str()).unwrap().pop().unwrap();
    assert_eq!((last.reason.as_deref(), last.actor.as_str()), (Some("the key was renewed"), "alice"));
    world.claim(&hold.run, RunEvent::Resume, 1).unwrap();
    let late = world.store.decide(&hold.run, &Decision { event: RunEvent::Cancel, ..decision }, &ctx).unwrap_err();
    assert_eq!(late.code(), Code::Busy);
    let cancel = world.store.cancel_at_rest(&hold.run, 2, &ctx).unwrap_err();
    assert_eq!(cancel.code(), Code::InvalidState, "a held run is canceled by its holder");
}

#[test]
fn a_run_at_rest_is_canceled_with_its_open_steps() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("context", StepEvent::Begin), step("context", StepEvent::Succeed)]).unwrap();
    world.record(&hold, &[run_event(RunEvent::Interrupt)]).unwrap();
    let ctx = world.ctx();
    let run = world.store.cancel_at_rest(&hold.run, 1, &ctx).unwrap();
    assert_eq!((run.status, run.code), (RunStatus::Canceled, Some(Code::Canceled)));
    let states: Vec<_> = world.store.view(&hold.run).unwrap().steps.iter().map(|s| s.state).collect();
    assert_eq!(states[0], StepState::Succeeded);
    assert!(states[1..].iter().all(|s| *s == StepState::Canceled));
    world.check_chains();
}

#[test]
fn what_does_not_exist_is_said_to_not_exist() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let nobody = RunId::recorded("run_9_001");
    assert_eq!(world.store.find_run(&nobody).unwrap(), None);
    assert_eq!(world.store.view(&nobody).unwrap_err().to_string(), "run run_9_001 does not exist");
    assert_eq!(world.claim(&nobody, RunEvent::Start, 0).unwrap_err().code(), Code::NotFound);
    let missing = world.record(&hold, &[step("deploy", StepEvent::Begin)]).unwrap_err();
    assert_eq!(missing.to_string(), "step run_182_001_deploy does not exist");
    let child = Change::Child { step: key("qa"), child: process() };
    let refused = world.record(&hold, &[child]).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidState, "{refused}");
}
