//! What was used: meter rows, the sums kept with each execution, and the ledger of a task (R-R4). Counters never fall
//! (I9): a name that comes again replaces, and only upwards.

use rusqlite::Connection;
use serde_json::json;

use super::claim::fact;
use super::error::Result;
use super::rows::{self, counter, int};
use super::step::{Held, not_running};
use super::write::{Fact, Writer};
use super::{Store, TENANT};
use crate::domain::budget::Usage;
use crate::domain::change::MeterItem;
use crate::domain::event::EventKind;
use crate::domain::ids::{StepKey, TaskId};
use crate::domain::quantity::Millis;

impl Store {
    /// What a task used since its last verified success, all its runs together; nothing for an unknown task.
    pub fn task_usage(&self, task: &TaskId) -> Result<Usage> {
        let sql = "SELECT seq, epoch FROM task WHERE tenant = ?1 AND folded = ?2";
        let found =
            rows::first(&self.db, sql, (TENANT, task.folded()), |row| Ok((row.take::<i64>()?, row.take::<i64>()?)))?;
        found.map_or(Ok(Usage::default()), |(task, epoch)| of_task(&self.db, task, epoch))
    }
}

/// The ledger of a task.
pub(super) fn of_task(db: &Connection, task: i64, epoch: i64) -> Result<Usage> {
    let executions = format!("SELECT {} FROM execution e WHERE e.task = ?1 AND e.epoch = ?2", rows::USAGE);
    let failed = "SELECT count(*) FROM attempt WHERE task = ?1 AND epoch = ?2 AND state IN ('FAILED', 'LOST')";
    sum(db, &executions, failed, (task, epoch))
}

/// What a run used.
pub(super) fn of_run(db: &Connection, run: i64) -> Result<Usage> {
    let executions = format!("SELECT {} FROM execution e WHERE e.run = ?1", rows::USAGE);
    let failed = "SELECT count(*) FROM attempt WHERE run = ?1 AND state IN ('FAILED', 'LOST')";
    sum(db, &executions, failed, [run])
}

/// What one attempt of a run used.
pub(super) fn of_attempt(db: &Connection, run: i64, attempt: u32) -> Result<Usage> {
    let executions = format!("SELECT {} FROM execution e WHERE e.run = ?1 AND e.attempt = ?2", rows::USAGE);
    let failed = "SELECT count(*) FROM attempt WHERE run = ?1 AND number = ?2 AND state IN ('FAILED', 'LOST')";
    sum(db, &executions, failed, (run, attempt))
}

fn sum(db: &Connection, executions: &str, failed: &str, params: impl rusqlite::Params + Copy) -> Result<Usage> {
    let usage = rows::first(db, executions, params, rows::usage)?.unwrap_or_default();
    let failed_attempts = rows::first(db, failed, params, |row| row.count())?.unwrap_or_default();
    Ok(Usage { failed_attempts, ..usage })
}

/// The newest execution of a step used something. An execution that has ended may still be told of more: an agent's
/// last lines are read after its end.
pub(super) fn record(
    w: &mut Writer<'_>,
    held: &Held<'_>,
    key: &StepKey,
    items: &[MeterItem],
    active: Millis,
) -> Result<()> {
    let newest = "SELECT e.seq, e.epoch FROM execution e JOIN step s ON s.run = e.run AND s.key = e.step \
                  WHERE e.run = ?1 AND e.step = ?2 AND e.number = s.runs";
    let newest = rows::first(w.db(), newest, (held.seq, key.as_str()), |row| Ok((row.take()?, row.take()?)))?;
    let Some((execution, epoch)) = newest else { return Err(not_running(w, held, key, "usage")) };
    for item in items {
        count(w, held, (execution, epoch), item)?;
    }
    let sql = "UPDATE execution SET active_ms = max(active_ms, ?2), fence = ?3 WHERE seq = ?1";
    w.run(sql, (execution, counter(active.0), int(held.hold.fence)))?;
    let sums = format!("SELECT {} FROM execution e WHERE e.seq = ?1", rows::USAGE);
    let sums = rows::first(w.db(), &sums, [execution], rows::usage)?;
    let body = json!({ "items": items.len(), "so_far": sums });
    w.append(&Fact { step: Some(key), ..fact(held.hold, EventKind::UsageRecorded, body) })
}

/// Counts one item: the difference to what was known of its name goes to the execution that counted it first.
fn count(w: &Writer<'_>, held: &Held<'_>, (execution, epoch): (i64, i64), item: &MeterItem) -> Result<()> {
    let known =
        "SELECT execution, input, cached, output, cost_micros, tool_calls FROM meter WHERE run = ?1 AND name = ?2";
    let known = rows::first(w.db(), known, (held.seq, &item.name), |row| {
        let execution: i64 = row.take()?;
        let counters = [row.take::<i64>()?, row.take()?, row.take()?];
        Ok((execution, counters, row.take::<Option<i64>>()?, row.take::<i64>()?))
    })?;
    let (first, counters, cost, calls) = known.unwrap_or((execution, [0; 3], None, 0));
    let now = [item.input, item.cached, item.output].map(counter);
    let grown = |now: i64, known: i64| now.saturating_sub(known).max(0);
    // A cost that nobody told stays unknown; the first one told, even of zero, makes it known.
    let cost_now = item.cost_micros.map(counter);
    let cost_grown = cost_now.map(|now| grown(now, cost.unwrap_or(0)));
    w.run(
        "INSERT INTO meter (run, name, execution, epoch, input, cached, output, cost_micros, tool_calls, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (run, name) DO UPDATE SET \
         input = max(input, excluded.input), cached = max(cached, excluded.cached), \
         output = max(output, excluded.output), tool_calls = max(tool_calls, excluded.tool_calls), \
         cost_micros = max(coalesce(cost_micros, excluded.cost_micros), coalesce(excluded.cost_micros, cost_micros)), \
         fence = excluded.fence",
        rusqlite::params![
            held.seq,
            item.name,
            execution,
            epoch,
            now[0],
            now[1],
            now[2],
            cost_now,
            counter(item.tool_calls),
            int(held.hold.fence)
        ],
    )?;
    w.run(
        "UPDATE execution SET input = input + ?2, cached = cached + ?3, output = output + ?4, \
         cost_micros = CASE WHEN ?5 IS NULL THEN cost_micros ELSE coalesce(cost_micros, 0) + ?5 END, \
         tool_calls = tool_calls + ?6 WHERE seq = ?1",
        rusqlite::params![
            first,
            grown(now[0], counters[0]),
            grown(now[1], counters[1]),
            grown(now[2], counters[2]),
            cost_grown,
            grown(counter(item.tool_calls), calls)
        ],
    )?;
    Ok(())
}
