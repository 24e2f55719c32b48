//! Commits that fail on purpose: what a disk does, for the tests and the simulation (T1). Not part of the program.

use std::cell::RefCell;
use std::collections::VecDeque;

use rusqlite::Transaction;

/// What a commit does instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// Fails with this code of SQLite, and nothing is there.
    Lost(i32),
    /// Fails, although everything is there.
    Kept,
}

thread_local! {
    static PLANNED: RefCell<VecDeque<CommitFault>> = const { RefCell::new(VecDeque::new()) };
    /// The ids of the events of lost commits, newest last.
    pub(super) static LOST_EVENTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The next commits of this thread, one after the other, fail like this. What was planned before is off.
pub fn plan(faults: impl IntoIterator<Item = CommitFault>) {
    PLANNED.set(faults.into_iter().collect());
}

/// How many planned faults have not come yet.
pub fn planned() -> usize {
    PLANNED.with_borrow(VecDeque::len)
}

/// Commits, or fails to.
pub(super) fn commit(tx: Transaction<'_>) -> rusqlite::Result<()> {
    let failure = |code| Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None));
    match PLANNED.with_borrow_mut(VecDeque::pop_front) {
        None => tx.commit(),
        Some(CommitFault::Lost(code)) => {
            let newest = "SELECT id FROM event ORDER BY seq DESC LIMIT 1";
            LOST_EVENTS.with_borrow_mut(|ids| ids.extend(tx.query_row(newest, (), |row| row.get::<_, String>(0))));
            tx.rollback().and(failure(code))
        }
        Some(CommitFault::Kept) => tx.commit().and(failure(rusqlite::ffi::SQLITE_IOERR_FSYNC)),
    }
}
