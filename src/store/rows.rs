//! From rows to records: columns are read in the order in which the statement names them, and a value that this program
//! cannot have written is named as damage.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row};

use super::error::{Result, StoreError};
use crate::domain::budget::{Estimate, Usage};
use crate::domain::event::Event;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::hash::fingerprint::Components;
use crate::domain::ids::{EventId, RequestId, RunId, StepKey, SupportCode, TaskId};
use crate::domain::machine::Word;
use crate::domain::quantity::{BootId, BootMs, Millis, UtcMs};
use crate::domain::record::{
    ArtifactRecord, AttemptRecord, CheckpointRecord, ExecutionRecord, Identity, Lease, RunRecord, StepRecord,
};

/// The largest counter that is kept. Sums of it stay far below what SQLite can add up, whatever an agent claims (F46).
const COUNTER_MAX: u64 = 1 << 50;

/// A number as the database keeps it.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A counter as the database keeps it.
pub(super) fn counter(n: u64) -> i64 {
    int(n.min(COUNTER_MAX))
}

/// All rows of a statement.
pub(super) fn all<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&mut Fields<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(read(&mut Fields { row, next: 0 })?);
    }
    Ok(out)
}

/// The first row of a statement.
pub(super) fn first<T>(
    db: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&mut Fields<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(|row| read(&mut Fields { row, next: 0 })).transpose()
}

/// The columns of one row, one after the other.
pub(super) struct Fields<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl Fields<'_> {
    /// The next column.
    pub(super) fn take<T: FromSql>(&mut self) -> Result<T> {
        let value = self.row.get(self.next)?;
        self.next += 1;
        Ok(value)
    }

    /// The next column, a count.
    pub(super) fn count(&mut self) -> Result<u64> {
        let n: i64 = self.take()?;
        u64::try_from(n).map_err(|_| self.damage(&n.to_string()))
    }

    /// The next column, a word of the domain.
    pub(super) fn word<W: Word>(&mut self) -> Result<W> {
        let text: String = self.take()?;
        W::from_word(&text).ok_or_else(|| self.damage(&text))
    }

    /// The next column, a word of the domain or nothing.
    pub(super) fn opt_word<W: Word>(&mut self) -> Result<Option<W>> {
        let text: Option<String> = self.take()?;
        text.map(|text| W::from_word(&text).ok_or_else(|| self.damage(&text))).transpose()
    }

    /// The next column, 32 bytes.
    pub(super) fn hash(&mut self) -> Result<Sha256Hash> {
        self.take().map(Sha256Hash)
    }

    /// The next column, a point in time or none.
    pub(super) fn opt_time(&mut self) -> Result<Option<UtcMs>> {
        Ok(self.take::<Option<i64>>()?.map(UtcMs))
    }

    /// The next column, JSON.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let text: String = self.take()?;
        serde_json::from_str(&text).map_err(|error| self.damage(&error.to_string()))
    }

    /// The next three columns: a process, if it is known.
    pub(super) fn identity(&mut self) -> Result<Option<Identity>> {
        let pid: Option<i32> = self.take()?;
        let ticks: Option<i64> = self.take()?;
        let boot: Option<String> = self.take()?;
        let (Some(pid), Some(ticks), Some(boot)) = (pid, ticks, boot) else { return Ok(None) };
        let start_ticks = u64::try_from(ticks).map_err(|_| self.damage(&ticks.to_string()))?;
        Ok(Some(Identity { pid, start_ticks, boot_id: BootId(boot) }))
    }

    /// The column just read holds something impossible.
    fn damage(&self, value: &str) -> StoreError {
        let column = self.next.checked_sub(1).and_then(|i| self.row.as_ref().column_name(i).ok()).unwrap_or("a column");
        StoreError::Corrupt(format!("{column} has the impossible value `{value}`"))
    }
}

/// What [`run`] reads; the statement calls the run `r` and its task `t`.
pub(super) const RUN: &str = "r.id, t.id, r.number, r.instance, r.status, r.phase, r.attempt, r.fence, r.fingerprint, \
    r.task_text, r.base_commit, r.prompt_version, r.context_hash, r.mode, r.policy_version, r.concurrency_group, r.code, \
    r.message, r.retry_at, r.request_id, r.support_code, r.key_hash, r.cancel_requested, r.snapshot, r.created_at, \
    r.started_at, r.finished_at, r.heartbeat_at, r.lease_pid, r.lease_start_ticks, r.lease_boot_id, r.lease_until";

pub(super) fn run(row: &mut Fields<'_>) -> Result<RunRecord> {
    Ok(RunRecord {
        id: RunId::recorded(row.take::<String>()?),
        task: TaskId::recorded(row.take::<String>()?),
        number: row.take()?,
        instance: row.take()?,
        status: row.word()?,
        phase: row.opt_word()?,
        attempt: row.take()?,
        fence: row.count()?,
        fingerprint: row.hash()?,
        components: components(row)?,
        group: row.take()?,
        code: row.opt_word()?,
        message: row.take()?,
        retry_at: row.opt_time()?,
        request_id: RequestId::recorded(row.take::<String>()?),
        support_code: SupportCode::recorded(row.take::<String>()?),
        key_hash: row.take::<Option<[u8; 32]>>()?.map(Sha256Hash),
        cancel_requested: row.take()?,
        snapshot: row.take()?,
        created_at: UtcMs(row.take()?),
        started_at: row.opt_time()?,
        finished_at: row.opt_time()?,
        heartbeat_at: row.opt_time()?,
        lease: lease(row)?,
    })
}

fn components(row: &mut Fields<'_>) -> Result<Components> {
    Ok(Components {
        task: row.take()?,
        base_commit: row.take()?,
        prompt_version: row.take()?,
        context_hash: row.hash()?,
        mode: row.take()?,
        policy_version: row.take()?,
    })
}

pub(super) fn lease(row: &mut Fields<'_>) -> Result<Option<Lease>> {
    let holder = row.identity()?;
    let until: Option<i64> = row.take()?;
    let Some((holder, until)) = holder.zip(until) else { return Ok(None) };
    let until = u64::try_from(until).map_err(|_| row.damage(&until.to_string()))?;
    Ok(Some(Lease { holder, until: BootMs(until) }))
}

/// What [`attempt`] reads.
pub(super) const ATTEMPT: &str = "number, state, code, opened_by, started_at, finished_at";

pub(super) fn attempt(row: &mut Fields<'_>) -> Result<AttemptRecord> {
    Ok(AttemptRecord {
        number: row.take()?,
        state: row.word()?,
        code: row.opt_word()?,
        opened_by: row.word()?,
        started_at: UtcMs(row.take()?),
        finished_at: row.opt_time()?,
    })
}

/// What [`step`] reads.
pub(super) const STEP: &str =
    "key, kind, state, attempt, runs, rounds, sent_back, code, message, started_at, finished_at";

pub(super) fn step(row: &mut Fields<'_>) -> Result<StepRecord> {
    Ok(StepRecord {
        key: StepKey::recorded(row.take::<String>()?),
        kind: row.word()?,
        state: row.word()?,
        attempt: row.take()?,
        runs: row.take()?,
        rounds: row.take()?,
        sent_back: row.take()?,
        code: row.opt_word()?,
        message: row.take()?,
        started_at: row.opt_time()?,
        finished_at: row.opt_time()?,
    })
}

/// What [`execution`] reads.
pub(super) const EXECUTION: &str = "step, number, attempt, child_pid, child_start_ticks, child_boot_id, session, model, \
    process_end, result, active_ms, max(guess_input - guess_cached, 0) + guess_output, started_at, finished_at";

pub(super) fn execution(row: &mut Fields<'_>) -> Result<ExecutionRecord> {
    Ok(ExecutionRecord {
        step: StepKey::recorded(row.take::<String>()?),
        number: row.take()?,
        attempt: row.take()?,
        child: row.identity()?,
        session: row.take()?,
        model: row.take()?,
        end: row
            .take::<Option<String>>()?
            .map(|text| serde_json::from_str(&text).map_err(|_| row.damage(&text)))
            .transpose()?,
        result: row.take()?,
        active: Millis(row.count()?),
        estimated: row.count()?,
        started_at: UtcMs(row.take()?),
        finished_at: row.opt_time()?,
    })
}

/// What [`artifact`] reads.
pub(super) const ARTIFACT: &str = "kind, path, sha256, size, step, attempt";

pub(super) fn artifact(row: &mut Fields<'_>) -> Result<ArtifactRecord> {
    Ok(ArtifactRecord {
        kind: row.word()?,
        path: row.take()?,
        sha256: row.hash()?,
        size: row.count()?,
        step: row.take::<Option<String>>()?.map(StepKey::recorded),
        attempt: row.take()?,
    })
}

/// What [`checkpoint`] reads.
pub(super) const CHECKPOINT: &str = "checkpoint, step, attempt, snapshot, policy_version, artifacts, finished_at";

pub(super) fn checkpoint(row: &mut Fields<'_>) -> Result<CheckpointRecord> {
    Ok(CheckpointRecord {
        name: row.take()?,
        step: StepKey::recorded(row.take::<String>()?),
        attempt: row.take()?,
        commit: row.take()?,
        policy_version: row.take()?,
        artifacts: row.json()?,
        at: UtcMs(row.take()?),
    })
}

/// What [`usage`] reads: the sums over executions `e`, without the failed attempts.
pub(super) const USAGE: &str = "coalesce(sum(e.input), 0), coalesce(sum(e.cached), 0), coalesce(sum(e.output), 0), \
    sum(e.cost_micros), coalesce(sum(e.tool_calls), 0), coalesce(sum(e.active_ms), 0), coalesce(sum(e.guess_input), 0), \
    coalesce(sum(e.guess_cached), 0), coalesce(sum(e.guess_output), 0), sum(e.guess_cost_micros)";

pub(super) fn usage(row: &mut Fields<'_>) -> Result<Usage> {
    Ok(Usage {
        input: row.count()?,
        cached: row.count()?,
        output: row.count()?,
        cost_micros: cost(row)?,
        tool_calls: row.count()?,
        active: Millis(row.count()?),
        failed_attempts: 0,
        estimated: Estimate {
            input: row.count()?,
            cached: row.count()?,
            output: row.count()?,
            cost_micros: cost(row)?,
        },
    })
}

fn cost(row: &mut Fields<'_>) -> Result<Option<u64>> {
    Ok(row.take::<Option<i64>>()?.map(|n| u64::try_from(n).unwrap_or(0)))
}

/// What [`event`] reads.
pub(super) const EVENT: &str =
    "id, chain, n, at, kind, version, actor, request_id, run, attempt, step, reason, body, prev, hash";

pub(super) fn event(row: &mut Fields<'_>) -> Result<Event> {
    Ok(Event {
        id: EventId::recorded(row.take::<String>()?),
        chain: row.take()?,
        n: row.count()?,
        at: UtcMs(row.take()?),
        kind: row.word()?,
        version: row.take()?,
        actor: row.take()?,
        request_id: RequestId::recorded(row.take::<String>()?),
        run: row.take::<Option<String>>()?.map(RunId::recorded),
        attempt: row.take()?,
        step: row.take::<Option<String>>()?.map(StepKey::recorded),
        reason: row.take()?,
        body: row.take()?,
        prev: row.hash()?,
        hash: row.hash()?,
    })
}
