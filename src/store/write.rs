//! The one way into the database for writing: an IMMEDIATE transaction that writes facts together with their audit
//! events, and that knows what to do when its commit fails (T1, T3). What is written is decided elsewhere.

use std::collections::BTreeMap;

use rusqlite::{Connection, ErrorCode, Params, Transaction, TransactionBehavior};
use serde_json::Value;

use super::calls::Context;
use super::error::{Result, StoreError};
use super::{Store, TENANT, connection, outbox, rows};
use crate::domain::event::{ChainHead, EVENT_VERSION, Event, EventKind, HOME_CHAIN};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{EventId, RunId, StepKey};
use crate::domain::machine::Word as _;
use crate::failpoints::{self, When};

/// Begins a transaction that holds the write lock from its first statement on: one that reads first and writes later
/// would fail at once when somebody else wrote in between (T3).
pub(super) fn immediate(db: &mut Connection) -> Result<Transaction<'_>> {
    Ok(Transaction::new(db, TransactionBehavior::Immediate)?)
}

/// The ids of a transaction's events. They are chosen before the commit and stay the same when it is applied again, so
/// that an unclear commit can be looked up and can never be written twice.
#[derive(Default)]
pub(super) struct EventIds {
    chosen: Vec<EventId>,
    used: usize,
    /// What they are events of: the names of the points around the commit.
    kinds: Vec<EventKind>,
}

impl EventIds {
    fn next(&mut self, kind: EventKind) -> EventId {
        self.kinds.push(kind);
        if self.used == self.chosen.len() {
            self.chosen.push(EventId::recorded(uuid::Uuid::now_v7().to_string()));
        }
        self.used += 1;
        self.chosen[self.used - 1].clone()
    }

    fn first(&self) -> Option<&EventId> {
        self.chosen.first()
    }

    /// The same transaction is applied once more.
    fn begin_anew(&mut self) {
        self.used = 0;
        self.kinds.clear();
    }

    /// The points around the commit of these events; a failure is one that a test asked for.
    fn reached(&self, when: When) -> rusqlite::Result<()> {
        let unlogged = self.kinds.is_empty().then_some("unlogged");
        let names = self.kinds.iter().map(|kind| kind.word()).chain(unlogged);
        failpoints::reached_any(when, names).map_err(|error| {
            let full = error.kind() == std::io::ErrorKind::StorageFull;
            let code = if full { rusqlite::ffi::SQLITE_FULL } else { rusqlite::ffi::SQLITE_IOERR_FSYNC };
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(error.to_string()))
        })
    }
}

/// An event, before it has a place in its chain.
pub(super) struct Fact<'a> {
    pub kind: EventKind,
    /// The run; without one the event belongs to the home.
    pub run: Option<&'a RunId>,
    pub attempt: Option<u32>,
    pub fence: Option<u64>,
    pub step: Option<&'a StepKey>,
    pub reason: Option<&'a str>,
    pub body: Value,
}

/// An open write transaction.
pub(super) struct Writer<'a> {
    tx: &'a Transaction<'a>,
    ctx: &'a Context,
    ids: &'a mut EventIds,
    heads: BTreeMap<String, ChainHead>,
}

impl Writer<'_> {
    /// For reading inside the transaction.
    pub(super) fn db(&self) -> &Connection {
        self.tx
    }

    /// The present, in milliseconds.
    pub(super) fn now(&self) -> i64 {
        self.ctx.now.utc.0
    }

    /// Who and when.
    pub(super) fn ctx(&self) -> &Context {
        self.ctx
    }

    /// Carries out one statement and says how many rows it touched.
    pub(super) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.tx.prepare_cached(sql)?.execute(params)?)
    }

    /// Inserts one row and says its `seq`.
    pub(super) fn insert(&self, sql: &str, params: impl Params) -> Result<i64> {
        Ok(self.tx.prepare_cached(sql)?.insert(params)?)
    }

    /// Where a chain ends, with the events of this transaction; notes that the command has to do with it.
    pub(super) fn head(&mut self, chain: &str) -> Result<ChainHead> {
        if let Some(head) = self.heads.get(chain) {
            return Ok(head.clone());
        }
        let head = chain_head(self.tx, chain)?;
        self.run(
            "INSERT OR IGNORE INTO request_chain (tenant, request_id, chain) VALUES (?1, ?2, ?3)",
            (TENANT, self.ctx.request_id.as_str(), chain),
        )?;
        self.heads.insert(chain.to_owned(), head.clone());
        Ok(head)
    }

    /// Appends an event to the chain of its run, or of the home.
    pub(super) fn append(&mut self, fact: &Fact<'_>) -> Result<()> {
        let chain = fact.run.map_or(HOME_CHAIN, RunId::as_str).to_owned();
        let head = self.head(&chain)?;
        let mut event = Event {
            id: self.ids.next(fact.kind),
            chain,
            n: head.count + 1,
            at: self.ctx.now.utc,
            kind: fact.kind,
            version: EVENT_VERSION,
            actor: self.ctx.actor.clone(),
            request_id: self.ctx.request_id.clone(),
            run: fact.run.cloned(),
            attempt: fact.attempt,
            step: fact.step.cloned(),
            reason: fact.reason.map(ToOwned::to_owned),
            body: fact.body.to_string(),
            prev: head.head,
            hash: Sha256Hash([0; 32]),
        };
        event.hash = event.chained_hash();
        self.insert_event(&event, fact)?;
        outbox::queue(self, &event, fact.body.get("to").and_then(Value::as_str))?;
        self.heads.insert(event.chain, ChainHead { count: event.n, head: event.hash });
        Ok(())
    }

    fn insert_event(&self, event: &Event, fact: &Fact<'_>) -> Result<()> {
        let text = |name: &str| fact.body.get(name).and_then(Value::as_str);
        let params = rusqlite::params![
            TENANT,
            event.id.as_str(),
            event.chain,
            rows::int(event.n),
            event.at.0,
            event.kind.word(),
            event.version,
            event.actor,
            event.request_id.as_str(),
            event.run.as_ref().map(RunId::as_str),
            event.attempt,
            event.step.as_ref().map(StepKey::as_str),
            event.reason,
            event.body,
            event.prev.0,
            event.hash.0,
            text("code"),
            text("key_hash").and_then(Sha256Hash::parse).map(|hash| hash.0),
            fact.fence.map(rows::int),
        ];
        self.run(
            "INSERT INTO event (tenant, id, chain, n, at, kind, version, actor, request_id, run, attempt, step, reason, \
             body, prev, hash, code, key_hash, fence) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            params,
        )?;
        Ok(())
    }
}

/// Where a chain ends.
pub(super) fn chain_head(db: &Connection, chain: &str) -> Result<ChainHead> {
    let sql = "SELECT n, hash FROM event WHERE tenant = ?1 AND chain = ?2 ORDER BY n DESC LIMIT 1";
    let found = rows::first(db, sql, (TENANT, chain), |row| Ok(ChainHead { count: row.count()?, head: row.hash()? }))?;
    Ok(found.unwrap_or(ChainHead { count: 0, head: Sha256Hash([0; 32]) }))
}

/// How one application of a transaction went.
enum Applied<T> {
    Committed(T),
    /// COMMIT failed: the transaction may be there or not.
    Unclear(T, rusqlite::Error),
}

impl Store {
    /// Drops the connection, whose last write failed, and opens another: going on with the old one could undo what is
    /// already on disk (T1).
    pub fn reopen(&mut self) -> Result<()> {
        self.db = connection::open_writing(&self.path)?;
        Ok(())
    }

    /// The same for the last record on a full disk: what lies in the write-ahead log is folded into the database where that
    /// can be done, for a log that begins anew needs no room.
    pub fn reopen_with_room(&mut self) -> Result<()> {
        self.reopen()?;
        let folded = self.db.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()));
        if let Err(error) = folded {
            tracing::warn!(%error, "the write-ahead log could not be folded in");
        }
        Ok(())
    }

    /// Whether an event is there, by the id that was chosen before its commit.
    pub fn has_event(&self, id: &str) -> Result<bool> {
        Ok(rows::first(&self.db, "SELECT 1 FROM event WHERE id = ?1", [id], |_| Ok(()))?.is_some())
    }

    /// Runs `body` in one write transaction. An error of `body` leaves nothing behind; to refuse something and keep an
    /// event of the refusal, `body` answers the refusal as a value (see [`Store::write_or_refuse`]).
    pub(super) fn write<T>(&mut self, ctx: &Context, mut body: impl FnMut(&mut Writer<'_>) -> Result<T>) -> Result<T> {
        let mut ids = EventIds::default();
        let (value, failure) = match self.apply(ctx, &mut ids, &mut body)? {
            Applied::Committed(value) => return Ok(value),
            Applied::Unclear(value, failure) => (value, failure),
        };
        if self.is_there_after_all(&ids, &failure)? {
            return Ok(value);
        }
        // Not there: applied once more, with the same ids, so that it cannot be there twice.
        ids.begin_anew();
        let (value, failure) = match self.apply(ctx, &mut ids, &mut body)? {
            Applied::Committed(value) => return Ok(value),
            Applied::Unclear(value, failure) => (value, failure),
        };
        if self.is_there_after_all(&ids, &failure)? {
            return Ok(value);
        }
        // A full disk, or a write that fails otherwise, comes before the last byte of the commit: no riddle.
        let is_clear = failure.sqlite_error().is_some_and(|cause| {
            cause.code == ErrorCode::DiskFull || cause.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE
        });
        let cause = StoreError::from(failure);
        if is_clear { Err(cause) } else { Err(unknown(&ids, &cause.to_string())) }
    }

    /// As [`Store::write`], for a `body` that may refuse: the refusal is the answer, what `body` wrote stays.
    pub(super) fn write_or_refuse<T>(
        &mut self,
        ctx: &Context,
        body: impl FnMut(&mut Writer<'_>) -> Result<Result<T>>,
    ) -> Result<T> {
        self.write(ctx, body)?
    }

    fn apply<T>(
        &mut self,
        ctx: &Context,
        ids: &mut EventIds,
        body: &mut impl FnMut(&mut Writer<'_>) -> Result<T>,
    ) -> Result<Applied<T>> {
        let tx = immediate(&mut self.db)?;
        let value = body(&mut Writer { tx: &tx, ctx, ids, heads: BTreeMap::new() })?;
        // If we die before the commit: nothing of it is there. If we die after it: all of it, and the next holder finds it.
        if let Err(failure) = ids.reached(When::Before) {
            tx.rollback()?;
            return Ok(Applied::Unclear(value, failure));
        }
        #[cfg(any(test, feature = "test-fakes"))]
        let committed = super::fault::commit(tx);
        #[cfg(not(any(test, feature = "test-fakes")))]
        let committed = tx.commit();
        let committed = committed.and_then(|()| ids.reached(When::After));
        Ok(match committed {
            Ok(()) => Applied::Committed(value),
            Err(failure) => Applied::Unclear(value, failure),
        })
    }

    /// Drops the connection whose commit failed, because going on with it could undo what is already on disk (T1), opens
    /// another and looks for the transaction's first event.
    fn is_there_after_all(&mut self, ids: &EventIds, failure: &rusqlite::Error) -> Result<bool> {
        let looked = self.reopen().and_then(|()| ids.first().map_or(Ok(false), |id| self.has_event(id.as_str())));
        looked.map_err(|_| unknown(ids, &failure.to_string()))
    }
}

fn unknown(ids: &EventIds, cause: &str) -> StoreError {
    let event = ids.first().map_or_else(|| "none".to_owned(), ToString::to_string);
    StoreError::CommitUnknown { event, cause: cause.to_owned() }
}
