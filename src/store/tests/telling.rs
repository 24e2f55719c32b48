//! R-A19, R-E3: releases are one name for one content; messages are there exactly if what they tell of is.

use rusqlite::ffi::SQLITE_IOERR_FSYNC;

use super::effects::*;
use super::*;
use crate::domain::action::record::ReleaseRecord;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::{EventId, ReleaseId};
use crate::domain::machine::Word as _;
use crate::domain::policy::Verdict;
use crate::store::{Consumed, StoreError};

fn release(commit: &str) -> ReleaseRecord {
    ReleaseRecord {
        id: ReleaseId::recorded("v1"),
        commit: commit.into(),
        artifacts: BTreeMap::from([("app.tar".to_owned(), Sha256Hash::of(b"app"))]),
        run: RunId::recorded("whoever"),
        created_at: UtcMs(0),
    }
}

#[test]
fn r_a19_one_id_names_one_content() {
    let mut effects = Effects::new(Verdict::Allow);
    let (hold, ctx) = (effects.hold.clone(), effects.world.ctx());
    let made = effects.world.store.make_release(&hold, &release("c1"), &ctx).unwrap();
    assert_eq!((&made.run, made.created_at), (&hold.run, ctx.now.utc));
    let later = effects.world.ctx();
    assert_eq!(effects.world.store.make_release(&hold, &release("c1"), &later).unwrap(), made);
    let mut changed = release("c1");
    changed.artifacts.insert("app.tar".to_owned(), Sha256Hash::of(b"other"));
    for other in [release("c2"), changed] {
        let refused = effects.world.store.make_release(&hold, &other, &later).unwrap_err();
        assert_eq!(refused.code(), Code::IdempotencyConflict);
        assert!(matches!(refused, StoreError::ReleaseConflict { commit, .. } if commit == "c1"));
    }
    assert_eq!((effects.told(EventKind::ReleaseMade).len(), effects.told(EventKind::ReleaseConflicted).len()), (1, 2));
    assert_eq!(effects.world.store.releases().unwrap(), [made]);
    effects.world.claim(&hold.run, RunEvent::TakeOver, hold.fence).unwrap();
    assert_eq!(code_of(effects.world.store.make_release(&hold, &release("c1"), &later)), Code::Fenced);
}

#[test]
fn r_e3_what_moves_is_told_in_order_until_it_is_delivered() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let action = effects.sent("a");
    effects.answer(&action, &done()).unwrap();
    effects.world.record(&hold, &[run_event(RunEvent::Succeed)]).unwrap();
    let told = effects.world.store.undelivered(10).unwrap();
    let kinds: Vec<_> = told.iter().map(|m| (m.kind.word(), m.ordinal, m.chain.as_str())).collect();
    assert_eq!(kinds, [("action.moved", 1, "run_182_001"), ("run.moved", 2, "run_182_001")]);
    let event = effects.told(EventKind::RunMoved).pop().unwrap().0;
    assert_eq!((&told[1].event, &told[1].body), (&event.id, &event.body), "a message is the event that it tells of");
    let ctx = effects.world.ctx();
    effects.world.store.note_delivery_failure(&told[0].event, &ctx).unwrap();
    assert_eq!(effects.world.store.undelivered(1).unwrap()[0].tries, 1);
    effects.world.store.mark_delivered(&told[0].event, &ctx).unwrap();
    effects.world.store.mark_delivered(&told[0].event, &ctx).unwrap();
    assert_eq!(effects.world.store.undelivered(10).unwrap(), [told[1].clone()]);
    assert_eq!(effects.told(EventKind::MessageDelivered).len(), 1, "marked once");
    let none = effects.world.store.mark_delivered(&EventId::recorded("none"), &ctx).unwrap_err();
    assert_eq!(none.code(), Code::NotFound);
    effects.world.check_chains();
}

#[test]
fn r_e3_a_change_that_is_refused_tells_nothing() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let refused = [run_event(RunEvent::Succeed), step("qa", StepEvent::Succeed)];
    assert!(effects.world.record(&hold, &refused).is_err());
    assert!(effects.world.store.undelivered(10).unwrap().is_empty());
}

#[test]
fn r_e3_runs_that_go_on_by_themselves_are_not_told_of() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    effects.world.record(&hold, &[run_event(RunEvent::Retry)]).unwrap();
    assert!(effects.world.store.undelivered(10).unwrap().is_empty());
}

#[test]
fn r_e3_f62_a_consumer_processes_a_message_once_and_is_told_so() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    effects.world.record(&hold, &[run_event(RunEvent::Succeed)]).unwrap();
    let event = effects.world.store.undelivered(1).unwrap()[0].event.clone();
    let mut consume = |consumer: &str| {
        let ctx = effects.world.ctx();
        effects.world.store.consume(consumer, &event, &ctx).unwrap()
    };
    // A commit that failed and is there: the second look must not say that somebody else was first.
    fault::plan([CommitFault::Kept]);
    assert_eq!(consume("page"), Consumed::First);
    assert_eq!(consume("page"), Consumed::Again);
    fault::plan([CommitFault::Lost(SQLITE_IOERR_FSYNC), CommitFault::Kept]);
    assert_eq!((consume("mail"), fault::planned()), (Consumed::First, 0));
    assert_eq!(consume("mail"), Consumed::Again);
    let again: Vec<_> =
        effects.told(EventKind::MessageConsumed).into_iter().map(|(_, body)| body["again"].clone()).collect();
    assert_eq!(again, [false, true, false, true]);
}
