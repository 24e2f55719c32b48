//! What must stay fast, measured. The measurements are run by hand: `cargo test --release speed -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::*;
use crate::domain::outcome::ProcessEnd;
use crate::domain::run::RunStatus;
use crate::store::RunFilter;

/// Copies the one run of the database, with its steps and an execution each, until there are `count`.
fn fill(world: &World, count: u32) {
    let raw = world.raw();
    let numbers = format!("WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {count})");
    let columns = |table: &str, changed: &[(&str, &str)]| {
        let mut names = raw.prepare(&format!("SELECT name FROM pragma_table_info('{table}')")).unwrap();
        let names = names.query_map((), |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
        let value = |name: String| {
            let found = changed.iter().find(|(column, _)| *column == name);
            found.map_or(name, |(_, value)| (*value).to_owned())
        };
        names.map(value).collect::<Vec<_>>().join(", ")
    };
    let run = columns(
        "run",
        &[
            ("seq", "i"),
            ("id", "'run_' || i"),
            ("number", "i"),
            ("fingerprint", "randomblob(32)"),
            ("status", "CASE WHEN i % 9 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END"),
            ("created_at", "created_at + i"),
            ("heartbeat_at", "created_at + i"),
        ],
    );
    let (step, execution) =
        (columns("step", &[("run", "i")]), columns("execution", &[("seq", "i * 10 + seq"), ("run", "i")]));
    raw.execute_batch(&format!(
        "PRAGMA synchronous = OFF; BEGIN; \
         {numbers} INSERT INTO run SELECT {run} FROM n, run WHERE seq = 1; \
         {numbers} INSERT INTO step SELECT {step} FROM n, step WHERE run = 1; \
         {numbers} INSERT INTO execution SELECT {execution} FROM n, execution WHERE run = 1; \
         COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"
    ))
    .unwrap();
}

fn filled(count: u32) -> World {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    for name in ["context", "codex", "lint", "qa", "report"] {
        world.record(&hold, &[step(name, StepEvent::Begin), step(name, StepEvent::Succeed)]).unwrap();
    }
    world.record(&hold, &[run_event(RunEvent::Succeed)]).unwrap();
    fill(&world, count);
    world
}

#[test]
fn lists_look_at_no_more_runs_than_they_show() {
    let mut world = filled(300);
    let open = world.started(&new_run("other", "open")).run;
    let list = world.store.runs(&RunFilter::Overview { newest: 20 }).unwrap();
    assert_eq!((list.len(), &list[0].run.id), (20, &open));
    let raw = world.raw();
    let plan = |sql: &str| {
        let mut rows = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        rows.query_map((), |row| row.get::<_, String>(3)).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    for filter in [RunFilter::Overview { newest: 20 }, RunFilter::Open, RunFilter::Newest(20), RunFilter::Dead] {
        let sql = crate::store::list::statement(&filter).0.replace("?1", "'local'").replace("?2", "20");
        let plan = plan(&sql);
        // All runs of the tenant are walked only in the order of their age, where the limit ends the walk.
        let walks = |line: &&String| line.starts_with("SCAN r") || line.ends_with("(tenant=?)");
        let bad = plan.iter().filter(walks).find(|line| !line.contains("run_by_age"));
        assert_eq!(bad, None, "{filter:?}: {plan:#?}");
        assert!(plan.iter().any(|line| line.contains("COVERING INDEX")), "{filter:?}: {plan:#?}");
    }
}

fn shortest<T>(times: usize, mut act: impl FnMut() -> T) -> Duration {
    let one = |act: &mut dyn FnMut() -> T| {
        let begun = Instant::now();
        std::hint::black_box(act());
        begun.elapsed()
    };
    (0..times).map(|_| one(&mut act)).min().unwrap()
}

#[test]
#[ignore = "a measurement; takes some seconds"]
fn speed_of_lists_with_a_hundred_thousand_runs() {
    let world = filled(100_000);
    let path = world.path();
    println!("size: {} MiB", std::fs::metadata(&path).unwrap().len() >> 20);
    let first =
        shortest(5, || Store::open_read_only(&path).unwrap().unwrap().runs(&RunFilter::Overview { newest: 20 }));
    println!("open read-only and list, no statement prepared: {first:?}");
    println!("open for writing: {:?}", shortest(5, || Store::open(&path).unwrap()));
    let looking = Store::open_read_only(&path).unwrap().unwrap();
    for filter in [RunFilter::Overview { newest: 20 }, RunFilter::Open, RunFilter::Newest(20), RunFilter::Dead] {
        let took = shortest(20, || looking.runs(&filter).unwrap());
        println!("{filter:?}: {took:?}");
        assert!(took < Duration::from_millis(1), "{filter:?}: {took:?}");
    }
    println!("All: {:?}", shortest(2, || looking.runs(&RunFilter::All).unwrap()));
    println!("stale candidates: {:?}", shortest(20, || looking.stale_candidates().unwrap()));
    println!("view: {:?}", shortest(20, || looking.view(&RunId::recorded("run_182_001")).unwrap()));
    println!("prefix: {:?}", shortest(20, || looking.find_by_prefix("run_777").unwrap()));
    println!("data_version: {:?}", shortest(20, || looking.data_version().unwrap()));
    println!(
        "task usage of 500,000 executions: {:?}",
        shortest(2, || looking.task_usage(&TaskId::new("182").unwrap()))
    );
    let mut store = Store::open(&path).unwrap();
    let mut n = 0;
    let mut start = || {
        n += 1;
        store.start_or_attach(&new_run("182", &format!("speed {n}")), &ctx(1)).unwrap()
    };
    println!("start: {:?}", shortest(10, &mut start));
    assert!(first < Duration::from_millis(3), "{first:?}");
}

/// The middle of many, so that a busy moment of the machine does not count.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement; takes some seconds"]
fn speed_of_an_engine_step_beside_the_raw_floor() {
    let mut world = World::new();
    let mut wide = new_run("182", "a");
    let body = || StepBody::Command { run: CommandLine::Shell("true".into()) };
    wide.inputs.spec.steps = (0..400).map(|n| step_spec(&format!("s{n}"), body())).collect();
    let hold = world.started(&wide);
    let raw = rusqlite::Connection::open(world.dir.path().join("raw.db")).unwrap();
    raw.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE a (x); CREATE TABLE b (x)")
        .unwrap();
    world.record(&hold, &[step("s0", StepEvent::Begin)]).unwrap();
    let (mut floor, mut ends, mut children) = (Vec::new(), Vec::new(), Vec::new());
    // Interleaved, so that both see the same disk.
    for n in 0..399 {
        for _ in 0..2 {
            let begun = Instant::now();
            raw.execute_batch("BEGIN IMMEDIATE").unwrap();
            raw.prepare_cached("INSERT INTO a VALUES (?1)").unwrap().execute([n]).unwrap();
            raw.prepare_cached("INSERT INTO b VALUES (?1)").unwrap().execute([n]).unwrap();
            raw.execute_batch("COMMIT").unwrap();
            floor.push(begun.elapsed());
        }
        let (this, next) = (format!("s{n}"), format!("s{}", n + 1));
        let begun = Instant::now();
        world.record(&hold, &[Change::Child { step: key(&this), child: process() }]).unwrap();
        children.push(begun.elapsed());
        let end = ended(ProcessEnd::Exited { code: 0 }, 3);
        let changes = [ending(&this, StepEvent::Succeed, end), step(&next, StepEvent::Begin)];
        let begun = Instant::now();
        world.record(&hold, &changes).unwrap();
        ends.push(begun.elapsed());
    }
    let (floor, ends, children) = (median(floor), median(ends), median(children));
    let ratio = (ends + children).as_secs_f64() / (floor * 2).as_secs_f64();
    println!("raw commit {floor:?}; end and next begin {ends:?}; child {children:?}; ratio {ratio:.2}");
    world.store.db.pragma_update(None, "synchronous", "OFF").unwrap();
    let begun = Instant::now();
    let name = key("s399");
    for _ in 0..1000 {
        world.record(&hold, &[Change::Child { step: name.clone(), child: process() }]).unwrap();
    }
    println!("child without the disk: {:?}", begun.elapsed() / 1000);
    assert_eq!(world.store.find_run(&hold.run).unwrap().unwrap().status, RunStatus::Running);
}

#[test]
fn a_prepared_statement_is_compiled_once() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let sql = "SELECT n FROM event WHERE tenant = ?1 AND chain = ?2 ORDER BY n DESC LIMIT 1";
    for _ in 0..3 {
        // As the store does it: out of the cache and back, which clears the bound values.
        let mut statement = world.store.db.prepare_cached(sql).unwrap();
        let n: i64 = statement.query_row(("local", hold.run.as_str()), |row| row.get(0)).unwrap();
        assert_eq!((n, statement.get_status(rusqlite::StatementStatus::RePrepare)), (2, 0));
    }
}
