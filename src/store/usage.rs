//! What was used: meter rows, the sums kept with each execution, and the ledger of a task (R-R4). Counters never fall
//! (I9): a name that comes again replaces, and only upwards. Estimates are sums of their own beside them.

use rusqlite::Connection;
use serde_json::json;

use super::claim::fact;
use super::error::Result;
use super::rows::{self, counter, int};
use super::step::{Held, not_running};
use super::write::{Fact, Writer};
use super::{Store, TENANT};
use crate::domain::budget::{Certainty, Usage};
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

/// Attempts of the ledger that have begun and not ended: each may still fail.
pub(super) fn open_attempts(db: &Connection, task: i64, epoch: i64) -> Result<u64> {
    let sql = "SELECT count(*) FROM attempt WHERE task = ?1 AND epoch = ?2 AND state = 'RUNNING'";
    Ok(rows::first(db, sql, (task, epoch), |row| row.count())?.unwrap_or_default())
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

/// A meter row as it stands.
struct Known {
    execution: i64,
    counters: [i64; 3],
    cost: Option<i64>,
    calls: i64,
    certainty: Certainty,
}

/// Counts one item: the difference to what was known of its name goes to the execution that counted it first. A true figure
/// takes the place of an estimate, an estimate that of an earlier one; what was told stands against every estimate.
fn count(w: &Writer<'_>, held: &Held<'_>, (execution, epoch): (i64, i64), item: &MeterItem) -> Result<()> {
    let known = known(w, held, item)?;
    let first = known.as_ref().map_or(execution, |known| known.execution);
    let told = match (known, item.certainty) {
        (Some(Known { certainty: Certainty::Told, .. }), Certainty::Estimated) => return Ok(()),
        (Some(Known { certainty: Certainty::Told, counters, cost, calls, .. }), _) => (counters, cost, calls),
        (Some(guess), _) => {
            give_up(w, held, &guess, &item.name)?;
            ([0; 3], None, 0)
        }
        (None, _) => ([0; 3], None, 0),
    };
    keep(w, held, (first, epoch), item)?;
    match item.certainty {
        Certainty::Told => add(w, first, item, told),
        Certainty::Estimated => guess(w, first, item),
    }
}

fn known(w: &Writer<'_>, held: &Held<'_>, item: &MeterItem) -> Result<Option<Known>> {
    let sql = "SELECT execution, input, cached, output, cost_micros, tool_calls, estimated FROM meter \
               WHERE run = ?1 AND name = ?2";
    rows::first(w.db(), sql, (held.seq, &item.name), |row| {
        Ok(Known {
            execution: row.take()?,
            counters: [row.take()?, row.take()?, row.take()?],
            cost: row.take()?,
            calls: row.take()?,
            certainty: if row.take()? { Certainty::Estimated } else { Certainty::Told },
        })
    })
}

/// Takes an estimate out of the sums: something better is known now.
fn give_up(w: &Writer<'_>, held: &Held<'_>, guess: &Known, name: &str) -> Result<()> {
    w.run("DELETE FROM meter WHERE run = ?1 AND name = ?2", (held.seq, name))?;
    let [input, cached, output] = guess.counters;
    w.run(
        "UPDATE execution SET guess_input = guess_input - ?2, guess_cached = guess_cached - ?3, \
         guess_output = guess_output - ?4, guess_cost_micros = guess_cost_micros - ?5 WHERE seq = ?1",
        (guess.execution, input, cached, output, guess.cost.unwrap_or(0)),
    )?;
    Ok(())
}

fn keep(w: &Writer<'_>, held: &Held<'_>, (execution, epoch): (i64, i64), item: &MeterItem) -> Result<()> {
    w.run(
        "INSERT INTO meter (run, name, execution, epoch, input, cached, output, cost_micros, tool_calls, estimated, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (run, name) DO UPDATE SET \
         input = max(input, excluded.input), cached = max(cached, excluded.cached), \
         output = max(output, excluded.output), tool_calls = max(tool_calls, excluded.tool_calls), \
         cost_micros = max(coalesce(cost_micros, excluded.cost_micros), coalesce(excluded.cost_micros, cost_micros)), \
         fence = excluded.fence",
        rusqlite::params![
            held.seq,
            item.name,
            execution,
            epoch,
            counter(item.input),
            counter(item.cached),
            counter(item.output),
            item.cost_micros.map(counter),
            counter(item.tool_calls),
            item.certainty == Certainty::Estimated,
            int(held.hold.fence)
        ],
    )?;
    Ok(())
}

/// Adds what was told and not known yet.
fn add(w: &Writer<'_>, execution: i64, item: &MeterItem, known: ([i64; 3], Option<i64>, i64)) -> Result<()> {
    let ([input, cached, output], cost, calls) = known;
    let grown = |now: u64, known: i64| counter(now).saturating_sub(known).max(0);
    // A cost that nobody told stays unknown; the first one told, even of zero, makes it known.
    let cost = item.cost_micros.map(|now| grown(now, cost.unwrap_or(0)));
    w.run(
        "UPDATE execution SET input = input + ?2, cached = cached + ?3, output = output + ?4, \
         cost_micros = CASE WHEN ?5 IS NULL THEN cost_micros ELSE coalesce(cost_micros, 0) + ?5 END, \
         tool_calls = tool_calls + ?6 WHERE seq = ?1",
        rusqlite::params![
            execution,
            grown(item.input, input),
            grown(item.cached, cached),
            grown(item.output, output),
            cost,
            grown(item.tool_calls, calls)
        ],
    )?;
    Ok(())
}

/// Adds an estimate.
fn guess(w: &Writer<'_>, execution: i64, item: &MeterItem) -> Result<()> {
    w.run(
        "UPDATE execution SET guess_input = guess_input + ?2, guess_cached = guess_cached + ?3, \
         guess_output = guess_output + ?4, \
         guess_cost_micros = CASE WHEN ?5 IS NULL THEN guess_cost_micros ELSE coalesce(guess_cost_micros, 0) + ?5 END \
         WHERE seq = ?1",
        (execution, counter(item.input), counter(item.cached), counter(item.output), item.cost_micros.map(counter)),
    )?;
    Ok(())
}
