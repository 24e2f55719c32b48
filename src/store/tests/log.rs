//! R-M6, R-M7: every change leaves an event, and the events hang together.

use super::*;
use crate::domain::change::Reached;
use crate::domain::event::{EventKind, HOME_CHAIN};
use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::Millis;
use crate::domain::record::{ArtifactRecord, ArtifactType, CheckpointRecord};
use crate::domain::run::{AttemptEvent, PhaseEvent};
use crate::domain::step::StepState as S;
use crate::store::{EventFilter, Note};

/// One change of every kind, in an order that a run could have, and the event that each must leave.
fn every_change() -> Vec<(Change, EventKind)> {
    let failure = Some(Failure::new(Code::QaFailed, "step `qa` failed"));
    let artifact = ArtifactRecord {
        kind: ArtifactType::Patch,
        path: "artifacts/codex.patch".into(),
        sha256: Sha256Hash::of(b"patch"),
        size: 5,
        step: Some(key("codex")),
        attempt: 1,
    };
    let checkpoint = Reached {
        name: "CODE_GENERATED".into(),
        commit: Some("c".repeat(40)),
        policy_version: "built-in".into(),
        artifacts: [(artifact.path.clone(), artifact.sha256)].into(),
    };
    let mut inputs = inputs(spec("182"));
    inputs.spec.steps.remove(4);
    inputs.spec.steps.push(step_spec("extra", StepBody::Report));
    let (session, model) = ("s1".into(), Some("m1".into()));
    let end = ExecutionEnd { result: Some("Done.".into()), ..ended(ProcessEnd::Exited { code: 0 }, 4) };
    let moved = StepMove::new(&key("codex"), StepEvent::Succeed);
    let succeeded = StepMove { ended: Some(end), checkpoint: Some(checkpoint), ..moved };
    vec![
        (step("codex", StepEvent::Begin), EventKind::StepMoved),
        (Change::Child { step: key("codex"), child: process() }, EventKind::ChildStarted),
        (Change::Session { step: key("codex"), session, model }, EventKind::SessionOpened),
        (Change::Usage { step: key("codex"), items: Vec::new(), active: Millis(3) }, EventKind::UsageRecorded),
        (Change::Step(succeeded), EventKind::StepMoved),
        (Change::Artifact(artifact), EventKind::ArtifactRecorded),
        (Change::Snapshot { commit: "d".repeat(40), step: Some(key("codex")) }, EventKind::SnapshotTaken),
        (Change::Inputs(Box::new(inputs)), EventKind::InputsReplaced),
        (Change::Phase(PhaseEvent::FailQa), EventKind::PhaseMoved),
        (
            Change::Note {
                kind: EventKind::WarningRaised,
                step: None,
                reason: "odd".into(),
                body: serde_json::json!({ "code": "ENV_LIMIT" }),
            },
            EventKind::WarningRaised,
        ),
        (Change::CloseLedger, EventKind::LedgerClosed),
        (Change::Attempt { event: AttemptEvent::Fail, failure: failure.clone() }, EventKind::AttemptEnded),
        (Change::Run { event: RunEvent::Fail, failure, retry_at: None }, EventKind::RunMoved),
    ]
}

#[test]
fn r_m7_every_change_leaves_an_event_with_who_when_and_why() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let mut seen = world.store.chain_head(hold.run.as_str()).unwrap().count;
    for (change, kind) in every_change() {
        let recorded = world.record(&hold, std::slice::from_ref(&change)).unwrap();
        let chain = world.store.chain(hold.run.as_str()).unwrap();
        let event = &chain[usize::try_from(seen).unwrap()];
        assert_eq!(event.kind, kind, "{change:?}");
        assert_eq!((event.actor.as_str(), event.request_id.as_str()), ("alice", "request-1"));
        assert_eq!((event.at, event.attempt, event.run.as_ref()), (UtcMs(world.clock), Some(1), Some(&hold.run)));
        assert_eq!(recorded.chain, world.store.chain_head(hold.run.as_str()).unwrap());
        seen = recorded.chain.count;
    }
    world.check_chains();
    let view = world.store.view(&hold.run).unwrap();
    assert_eq!(view.chain.count, seen);
    assert_eq!(view.run.message.as_deref(), Some("step `qa` failed"));
    let last = world.store.chain(hold.run.as_str()).unwrap().pop().unwrap();
    assert_eq!(last.reason.as_deref(), Some("step `qa` failed"));
}

#[test]
fn r_s3_what_was_recorded_is_read_back() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let (changes, _): (Vec<_>, Vec<_>) = every_change().into_iter().unzip();
    world.record(&hold, &changes).unwrap();
    let view = world.store.view(&hold.run).unwrap();
    let Change::Artifact(artifact) = &changes[5] else { panic!() };
    let Change::Step(StepMove { checkpoint: Some(reached), .. }) = &changes[4] else { panic!() };
    let Reached { name, commit, policy_version, artifacts } = reached.clone();
    let (step, at) = (key("codex"), UtcMs(world.clock));
    let checkpoint = CheckpointRecord { name, step, attempt: 1, commit, policy_version, artifacts, at };
    assert_eq!((&view.artifacts[..], &view.checkpoints[..]), (&[artifact.clone()][..], &[checkpoint][..]));
    let execution = &view.executions[0];
    assert_eq!((execution.child.clone(), execution.session.as_deref()), (Some(process()), Some("s1")));
    assert_eq!((execution.model.as_deref(), execution.result.as_deref()), (Some("m1"), Some("Done.")));
    assert_eq!((execution.end.clone(), execution.active), (Some(ProcessEnd::Exited { code: 0 }), Millis(4)));
    assert_eq!(view.run.snapshot, Some("d".repeat(40)));
    let keys: Vec<_> = view.steps.iter().map(|s| (s.key.as_str(), s.state)).collect();
    let pending = |name| (name, S::Pending);
    let expected = [
        pending("context"),
        ("codex", S::Succeeded),
        pending("lint"),
        pending("qa"),
        pending("extra"),
        ("report", S::Skipped),
    ];
    let mut sorted = keys.clone();
    sorted.sort_by_key(|(name, _)| expected.iter().position(|(n, _)| n == name));
    assert_eq!(sorted, expected, "new inputs: a new step is there, one that is gone is skipped");
    let again = ArtifactRecord { size: 9, attempt: 2, ..artifact.clone() };
    let hold = world.claim(&hold.run, RunEvent::Resume, 1).unwrap();
    world.record(&hold, &[Change::Artifact(again.clone())]).unwrap();
    assert_eq!(world.store.view(&hold.run).unwrap().artifacts, [again], "the same path replaces");
}

#[test]
fn r_m6_events_are_found_by_run_request_kind_and_code() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let mut other = ctx(5);
    other.request_id = RequestId::recorded("delivery-9");
    let reused = Note { kind: EventKind::RunReused, reason: "succeeded before".into(), body: serde_json::json!({}) };
    world.store.note(Some(&hold.run), &reused, &other).unwrap();
    let start = Note {
        kind: EventKind::StartRefused,
        reason: "no such task".into(),
        body: serde_json::json!({ "code": "CONFIG_INVALID" }),
    };
    world.store.note(None, &start, &other).unwrap();
    let find = |filter: EventFilter| -> Vec<EventKind> {
        world.store.events(&filter).unwrap().into_iter().map(|e| e.kind).collect()
    };
    let all = [EventKind::RunCreated, EventKind::RunStarted, EventKind::RunReused, EventKind::StartRefused];
    assert_eq!(find(EventFilter::default()), all);
    assert_eq!(find(EventFilter { run: Some(hold.run.clone()), ..EventFilter::default() }), all[..3]);
    assert_eq!(find(EventFilter { request: Some(other.request_id), ..EventFilter::default() }), all[2..]);
    assert_eq!(find(EventFilter { code: Some(Code::ConfigInvalid), ..EventFilter::default() }), all[3..]);
    assert_eq!(find(EventFilter { kind: Some(all[0]), ..EventFilter::default() }), all[..1]);
    assert_eq!(find(EventFilter { limit: Some(2), ..EventFilter::default() }), all[2..], "the newest, in order");
    assert_eq!(world.store.chains().unwrap(), [hold.run.as_str(), HOME_CHAIN]);
    world.check_chains();
}

#[test]
fn f97_an_edited_log_does_not_verify() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("qa", StepEvent::Begin)]).unwrap();
    let head = world.store.chain_head(hold.run.as_str()).unwrap();
    let verify = |world: &World| {
        let chain = world.store.chain(hold.run.as_str()).unwrap();
        crate::domain::event::check_chain(hold.run.as_str(), &chain, Some(&head))
    };
    verify(&world).unwrap();
    let edits = [
        ("UPDATE event SET reason = 'x' WHERE n = 2", "UPDATE event SET reason = NULL WHERE n = 2"),
        ("UPDATE event SET actor = 'bob' WHERE n = 1", "UPDATE event SET actor = 'alice' WHERE n = 1"),
    ];
    for (edit, back) in edits {
        world.raw().execute(edit, ()).unwrap();
        assert!(verify(&world).is_err(), "{edit}");
        world.raw().execute(back, ()).unwrap();
        verify(&world).unwrap();
    }
    world.raw().execute("DELETE FROM event WHERE n = 3", ()).unwrap();
    assert!(verify(&world).is_err(), "a cut tail shows against the anchor");
}
