//! Commands that only look: how long a process takes that answers from the record, and one that answers from nothing.

use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;

use crate::Outcome;
use crate::measure::{ROUNDS, cost, median, ms};
use crate::table::Row;
use crate::world::World;

/// Calls in one round, of which the fastest counts: a call of some milliseconds is mostly made slower by what else the
/// machine does, and nothing makes it faster than it is.
const CALLS: usize = 21;

/// `status` with many finished runs.
pub fn status() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (runs, target) in [(1_000, 4.0), (100_000, 5.0)] {
        let world = World::new()?;
        world.write(
            "tasks/small.yml",
            "task: small\nsteps:\n  - context\n  - { key: check, kind: command, run: [/bin/true] }\n  - report\n",
        )?;
        world.commit()?;
        cost(&mut world.agentrun(&["start", "small", "--quiet"]))?;
        multiply(&world, runs)?;
        let what = format!("`status` with {runs} finished runs");
        rows.push(row(what, target, &|| world.agentrun(&["status"]))?);
    }
    Ok(rows)
}

/// `--version`.
pub fn version() -> Outcome<Vec<Row>> {
    let world = World::new()?;
    Ok(vec![row("`--version`".to_owned(), 3.0, &|| world.agentrun(&["--version"]))?])
}

fn row(what: String, target: f64, command: &dyn Fn() -> Command) -> Outcome<Row> {
    let (mut called, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut fastest, mut floor) = (Duration::MAX, Duration::MAX);
        for _ in 0..CALLS {
            floor = floor.min(cost(&mut Command::new("/bin/true"))?.wall);
            fastest = fastest.min(cost(&mut command())?.wall);
        }
        called.push(fastest);
        floors.push(floor);
    }
    let measured = median(called);
    Ok(Row {
        what,
        measured: ms(measured),
        floor: format!("{} (/bin/true)", ms(median(floors))),
        reached: measured.as_secs_f64() * 1000.0,
        target,
        unit: "ms",
    })
}

/// Copies the one finished run of the database until there are `runs`, with everything that listings look at. The audit
/// log is not multiplied: no listing reads it.
fn multiply(world: &World, runs: u32) -> Outcome<()> {
    let db = Connection::open(world.database())?;
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN")?;
    let numbers = format!("WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < {runs})");
    for (table, changed) in [
        (
            "run",
            &[
                ("seq", "n"),
                ("id", "printf('run_small_%03d', n)"),
                ("number", "n"),
                ("instance", "n"),
                ("created_at", "created_at + n"),
            ][..],
        ),
        ("run_inputs", &[("run", "n")]),
        ("attempt", &[("run", "n")]),
        ("step", &[("run", "n")]),
        ("execution", &[("seq", "NULL"), ("run", "n")]),
        ("artifact", &[("run", "n")]),
    ] {
        let columns = columns(&db, table)?;
        let value = |column: &String| {
            changed.iter().find(|(name, _)| name == column).map_or_else(|| column.clone(), |(_, sql)| (*sql).to_owned())
        };
        let values: Vec<String> = columns.iter().map(value).collect();
        let key = if table == "run" { "seq" } else { "run" };
        let (columns, values) = (columns.join(", "), values.join(", "));
        db.execute_batch(&format!(
            "{numbers} INSERT INTO {table} ({columns}) SELECT {values} FROM n CROSS JOIN {table} WHERE {key} = 1"
        ))?;
    }
    db.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

fn columns(db: &Connection, table: &str) -> Outcome<Vec<String>> {
    let mut statement = db.prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
    let names = statement.query_map((), |row| row.get::<_, String>(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}
