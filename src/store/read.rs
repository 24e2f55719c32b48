//! Reads a run: alone, or with everything below it in one consistent snapshot.

use std::collections::BTreeSet;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::{Result, StoreError};
use super::write::chain_head;
use super::{ActionFilter, ApprovalFilter, Store, TENANT, action_list, approvals, rows, usage};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{RunId, TaskId};
use crate::domain::record::{CheckpointRecord, RunRecord, RunView};

impl Store {
    /// A run, without its steps.
    pub fn find_run(&self, run: &RunId) -> Result<Option<RunRecord>> {
        self.one("r.id = ?2", run.as_str())
    }

    /// The newest run of a task, whatever the spelling of its id.
    pub fn newest_run_of_task(&self, task: &TaskId) -> Result<Option<RunRecord>> {
        self.one("t.folded = ?2 AND t.tenant = ?1 ORDER BY r.number DESC LIMIT 1", task.folded())
    }

    /// The numbers of all runs of a task.
    pub fn run_numbers(&self, task: &TaskId) -> Result<BTreeSet<u32>> {
        let sql = "SELECT r.number FROM run r JOIN task t ON t.seq = r.task WHERE t.tenant = ?1 AND t.folded = ?2";
        let numbers = rows::all(&self.db, sql, (TENANT, task.folded()), |row| row.take())?;
        Ok(numbers.into_iter().collect())
    }

    /// The newest instance of a fingerprint.
    pub fn run_by_fingerprint(&self, fingerprint: &Sha256Hash) -> Result<Option<RunRecord>> {
        self.one("r.fingerprint = ?2 ORDER BY r.instance DESC LIMIT 1", fingerprint.0)
    }

    /// The runs that somebody holds, or held when it died.
    pub fn stale_candidates(&self) -> Result<Vec<RunRecord>> {
        let sql = format!(
            "SELECT {} FROM run r JOIN task t ON t.seq = r.task \
             WHERE r.tenant = ?1 AND r.status = 'RUNNING' ORDER BY r.heartbeat_at",
            rows::RUN
        );
        rows::all(&self.db, &sql, [TENANT], rows::run)
    }

    /// A run with everything below it, as it stood at one moment.
    pub fn view(&self, run: &RunId) -> Result<RunView> {
        let snapshot = Transaction::new_unchecked(&self.db, TransactionBehavior::Deferred)?;
        view(&snapshot, run)
    }

    fn one(&self, condition: &str, value: impl rusqlite::ToSql) -> Result<Option<RunRecord>> {
        let sql = format!(
            "SELECT {} FROM run r JOIN task t ON t.seq = r.task WHERE r.tenant = ?1 AND {condition}",
            rows::RUN
        );
        rows::first(&self.db, &sql, rusqlite::params![TENANT, value], rows::run)
    }
}

/// The executions that succeeded, in the order in which they did.
fn checkpoints(db: &Connection, run: i64) -> Result<Vec<CheckpointRecord>> {
    let sql = format!(
        "SELECT {} FROM execution WHERE run = ?1 AND checkpoint IS NOT NULL ORDER BY finished_at, seq",
        rows::CHECKPOINT
    );
    rows::all(db, &sql, [run], rows::checkpoint)
}

fn view(db: &Connection, id: &RunId) -> Result<RunView> {
    let sql = format!(
        "SELECT {}, r.seq, r.task, t.epoch, i.inputs FROM run r JOIN task t ON t.seq = r.task \
         JOIN run_inputs i ON i.run = r.seq WHERE r.tenant = ?1 AND r.id = ?2",
        rows::RUN
    );
    let found = rows::first(db, &sql, (TENANT, id.as_str()), |row| {
        Ok((rows::run(row)?, row.take::<i64>()?, row.take::<i64>()?, row.take::<i64>()?, row.json()?))
    })?;
    let (run, seq, task, epoch, inputs) = found.ok_or_else(|| StoreError::no_run(id))?;
    let all = |columns: &str, table: &str, order: &str| {
        format!("SELECT {columns} FROM {table} WHERE run = ?1 ORDER BY {order}")
    };
    Ok(RunView {
        inputs,
        attempts: rows::all(db, &all(rows::ATTEMPT, "attempt", "number"), [seq], rows::attempt)?,
        steps: rows::all(db, &all(rows::STEP, "step", "position, key"), [seq], rows::step)?,
        executions: rows::all(db, &all(rows::EXECUTION, "execution", "seq"), [seq], rows::execution)?,
        artifacts: rows::all(db, &all(rows::ARTIFACT, "artifact", "path"), [seq], rows::artifact)?,
        checkpoints: checkpoints(db, seq)?,
        usage: usage::of_run(db, seq)?,
        attempt_usage: usage::of_attempt(db, seq, run.attempt)?,
        task_usage: usage::of_task(db, task, epoch)?,
        open_attempts: usage::open_attempts(db, task, epoch)?,
        actions: action_list::list(db, &ActionFilter { run: Some(id.clone()), ..ActionFilter::default() })?,
        approvals: approvals::list(db, &ApprovalFilter { run: Some(id.clone()), ..ApprovalFilter::default() })?,
        chain: chain_head(db, run.id.as_str())?,
        run,
    })
}
