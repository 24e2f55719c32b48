//! T1, F05, F06: an error from COMMIT says nothing about whether the transaction is there.

use rusqlite::ffi::{SQLITE_FULL, SQLITE_IOERR_FSYNC};

use super::*;
use crate::domain::failure::Code;
use crate::domain::step::StepState;
use crate::store::{RunFilter, StoreError};

const LOST: CommitFault = CommitFault::Lost(SQLITE_IOERR_FSYNC);

fn with_faults(world: &mut World, faults: &[CommitFault]) -> super::super::Result<super::super::Recorded> {
    let hold = world.started(&new_run("182", "a"));
    fault::plan(faults.to_vec());
    let answer = world.record(&hold, &[step("context", StepEvent::Begin), step("context", StepEvent::Succeed)]);
    assert_eq!(fault::planned(), 0, "as many commits as faults");
    answer
}

/// The step ran `runs` times, and its two moves stand in the log exactly once.
fn assert_recorded(world: &World, runs: usize) {
    let view = world.store.view(&RunId::recorded("run_182_001")).unwrap();
    let expected = if runs == 0 { StepState::Pending } else { StepState::Succeeded };
    assert_eq!((view.steps[0].state, view.executions.len()), (expected, runs));
    assert_eq!(view.chain.count, 2 + 2 * runs as u64);
    world.check_chains();
}

#[test]
fn f06_a_commit_that_failed_but_is_there_counts_once() {
    let mut world = World::new();
    let recorded = with_faults(&mut world, &[CommitFault::Kept]).unwrap();
    assert_eq!(recorded.chain.count, 4);
    assert_recorded(&world, 1);
}

#[test]
fn f06_a_commit_that_is_not_there_is_applied_again() {
    let mut world = World::new();
    with_faults(&mut world, &[LOST]).unwrap();
    assert_recorded(&world, 1);
    // With the id that was chosen before the first commit: should that one turn up after all, it is not there twice.
    let lost = LOST_EVENTS.with_borrow(|ids| ids.last().cloned());
    let newest = world.store.chain("run_182_001").unwrap().pop().unwrap();
    assert_eq!(lost.as_deref(), Some(newest.id.as_str()));
}

#[test]
fn f06_also_the_second_commit_may_fail_and_be_there() {
    let mut world = World::new();
    with_faults(&mut world, &[LOST, CommitFault::Kept]).unwrap();
    assert_recorded(&world, 1);
}

#[test]
fn f05_twice_lost_is_said_to_be_unknown_with_the_event_to_look_for() {
    let mut world = World::new();
    let unknown = with_faults(&mut world, &[LOST, LOST]).unwrap_err();
    assert_eq!(unknown.code(), Code::StoreCommitUnknown);
    let StoreError::CommitUnknown { event, .. } = unknown else { panic!() };
    assert_eq!(event.len(), 36, "the id chosen beforehand: {event}");
    assert_recorded(&world, 0);
}

#[test]
fn f07_a_full_disk_is_called_so() {
    let mut world = World::new();
    let full = CommitFault::Lost(SQLITE_FULL);
    assert_eq!(with_faults(&mut world, &[full, full]).unwrap_err(), StoreError::Full);
    assert_recorded(&world, 0);
}

#[test]
fn f05_the_same_for_the_start_of_a_run() {
    for faults in [vec![CommitFault::Kept], vec![LOST], vec![LOST, CommitFault::Kept]] {
        let mut world = World::new();
        fault::plan(faults);
        let hold = world.started(&new_run("182", "a"));
        assert_eq!(hold, Hold { run: RunId::recorded("run_182_001"), attempt: 1, fence: 1 });
        assert_eq!(world.store.runs(&RunFilter::All).unwrap().len(), 1);
        assert_eq!(world.store.chain_head("run_182_001").unwrap().count, 2);
    }
}

#[test]
fn f06_a_heartbeat_whose_commit_failed_is_written_again() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    fault::plan([LOST]);
    world.store.heartbeat(&hold, BootMs(70_000), &ctx(5)).unwrap();
    assert_eq!(world.store.find_run(&hold.run).unwrap().unwrap().lease.unwrap().until, BootMs(70_000));
}

#[test]
fn f06_the_connection_whose_commit_failed_is_not_used_again() {
    let mut world = World::new();
    // A temporary table lives as long as its connection.
    world.store.db.execute_batch("CREATE TEMP TABLE mark (x)").unwrap();
    with_faults(&mut world, &[CommitFault::Kept]).unwrap();
    assert!(world.store.db.execute_batch("SELECT * FROM mark").is_err());
}
