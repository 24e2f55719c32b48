//! LAYER 1: the durable record. The only place that speaks SQL. Methods are whole transactions named by what they mean:
//! a change and the audit event that tells of it are written together or not at all.
//!
//! | file | what |
//! | --- | --- |
//! | `calls` | values that go in and come out |
//! | `error` | what can go wrong, by what the caller can do |
//! | `connection`, `migrate`, `schema/` | opening, versions, tables |
//! | `write` | the one write transaction, the audit chain, commits that fail |
//! | `start`, `names` | a run is accepted: fingerprint, key, versions, group |
//! | `claim` | who holds a run: claim, take-over, heartbeat |
//! | `record`, `changes`, `step`, `usage` | what the holder writes |
//! | `unheld`, `give_up` | what others write |
//! | `turns`, `breakers` | whose turn it is; which provider is left alone |
//! | `action_calls`, `action_rows` | values and rows of side effects |
//! | `wanting`, `actions`, `sending`, `settling` | a side effect: wanted, claimed, sent, settled |
//! | `approvals`, `deciding` | a person's agreement: asked for, counted; decided |
//! | `deployments` | releases, and where they are |
//! | `outbox` | messages: events that somebody outside is to hear of |
//! | `salvage`, `pages` | a new database out of a damaged one |
//! | `rows`, `read`, `list`, `action_list`, `audit` | reading |
//! | `fault` | commits that fail on purpose; for tests alone |
//!
//! It knows no process, no git and no file but its own. It decides nothing that `domain` can decide: the states from
//! which an event is allowed are those of the transition tables.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of `Fields` does not outlive its row as a value"
)]

mod action_calls;
mod action_list;
mod action_rows;
mod actions;
mod approvals;
mod audit;
mod breakers;
mod calls;
mod changes;
mod claim;
mod connection;
mod deciding;
mod deployments;
mod error;
#[cfg(any(test, feature = "test-fakes"))]
pub mod fault;
mod give_up;
mod list;
mod migrate;
mod names;
mod outbox;
mod pages;
mod read;
mod record;
mod rows;
mod salvage;
mod sending;
mod settling;
mod start;
mod step;
mod turns;
mod unheld;
mod usage;
mod wanting;
mod write;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub use action_calls::{
    About, ActionClaim, ActionFilter, ActionStep, Answered, ApprovalFilter, Asking, Assignment, By, Consumed, Deciding,
    DeploymentMove, NotSent, Proposal, Proposed, Resolution, Ruling, Sending,
};
pub use calls::{
    Asked, Beat, Claim, Context, Decision, EndedCall, EventFilter, Hold, Holder, NewRun, Note, Place, Recorded,
    RunFilter, StartKey, Started, Turned,
};
pub use error::{Result, StoreError};
pub use salvage::{Salvaged, replace, salvage};

/// Whose records these are. There is one tenant so far; every key begins with it, so that more can come.
const TENANT: &str = "local";

/// An open database. One connection: a thread that writes beside another one opens its own.
pub struct Store {
    db: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the database for reading and writing; creates it, and brings it to this program's version.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self::of(connection::open(path)?, path))
    }

    /// As [`Store::open`], but `None` where nothing was ever recorded; creates nothing.
    pub fn open_existing(path: &Path) -> Result<Option<Self>> {
        Ok(connection::open_existing(path)?.map(|db| Self::of(db, path)))
    }

    /// Opens the database for looking only: creates, migrates and writes nothing. `None` where nothing was ever recorded.
    pub fn open_read_only(path: &Path) -> Result<Option<Self>> {
        Ok(connection::open_read_only(path)?.map(|db| Self::of(db, path)))
    }

    fn of(db: Connection, path: &Path) -> Self {
        Self { db, path: path.to_owned() }
    }

    /// A number that changes when another connection has committed: to follow another process's run, this is asked
    /// often, and only when it moved is anything read.
    pub fn data_version(&self) -> Result<i64> {
        Ok(self.db.pragma_query_value(None, "data_version", |row| row.get(0))?)
    }

    /// Checks every page, every index and every reference; takes as long as the file is large. The audit chains are
    /// checked apart, with [`crate::domain::event::check_chain`].
    pub fn integrity(&self) -> Result<()> {
        connection::check_pages(&self.db, "integrity_check")?;
        let orphan = "SELECT \"table\", parent FROM pragma_foreign_key_check LIMIT 1";
        let orphan = rows::first(&self.db, orphan, (), |row| Ok((row.take::<String>()?, row.take::<String>()?)))?;
        match orphan {
            None => Ok(()),
            Some((table, parent)) => {
                Err(StoreError::Corrupt(format!("a row of {table} refers to a missing row of {parent}")))
            }
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}
