//! The database as a file: created, refused, migrated, damaged, read-only.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::super::migrate::{MIGRATIONS, Migration, check_readable, migrate};
use super::super::{connection, write};
use super::*;
use crate::domain::budget::Estimate;
use crate::domain::failure::Code;
use crate::store::{EventFilter, RunFilter, StoreError};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The file alone, with everything of the log in it.
fn folded(world: &World) -> Vec<u8> {
    world.raw().query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
    std::fs::read(world.path()).unwrap()
}

#[test]
fn f98_only_the_owner_can_read_the_files() {
    let mut world = World::new();
    world.started(&new_run("182", "a"));
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(Path::new(&format!("{}{suffix}", world.path().display()))), 0o600, "{suffix}");
    }
    std::fs::set_permissions(world.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    Store::open(&world.path()).unwrap();
    assert_eq!(mode(&world.path()), 0o600);
}

#[test]
fn i1_every_commit_is_synchronous() {
    let world = World::new();
    let pragma = |name: &str| world.store.db.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("synchronous"), pragma("foreign_keys")), (2, 1));
    let journal: String = world.store.db.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(journal, "wal");
}

#[test]
fn looking_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentrun.db");
    assert!(Store::open_read_only(&path).unwrap().is_none());
    assert!(Store::open_existing(&path).unwrap().is_none());
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    assert!(Store::open_read_only(&path).unwrap().is_none());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn looking_writes_nothing() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let mut looking = Store::open_read_only(&world.path()).unwrap().unwrap();
    assert_eq!(looking.runs(&RunFilter::All).unwrap().len(), 1);
    let refused = looking.record(&hold, &[step("qa", StepEvent::Begin)], &ctx(1)).unwrap_err();
    assert_eq!(refused, StoreError::ReadOnly);
}

#[test]
fn looking_sees_what_others_commit_and_when() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    let looking = Store::open_read_only(&world.path()).unwrap().unwrap();
    let before = looking.data_version().unwrap();
    assert_eq!(looking.data_version().unwrap(), before);
    world.record(&hold, &[step("qa", StepEvent::Begin)]).unwrap();
    assert_ne!(looking.data_version().unwrap(), before);
}

#[test]
fn f17_a_newer_database_is_refused_without_one_byte_changed() {
    let mut world = World::new();
    world.started(&new_run("182", "a"));
    world.raw().pragma_update(None, "user_version", 999).unwrap();
    // As a process that was killed leaves it: with a log that a writer would fold into the file.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentrun.db");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", world.path().display());
        std::fs::copy(from, format!("{}{suffix}", path.display())).unwrap();
    }
    let contents = || ["", "-wal"].map(|suffix| std::fs::read(format!("{}{suffix}", path.display())).unwrap());
    let before = contents();
    assert!(!before[1].is_empty());
    let too_new = StoreError::TooNew { found: 999, known: NEWEST };
    assert_eq!(Store::open(&path).unwrap_err(), too_new);
    assert_eq!(Store::open_existing(&path).unwrap_err(), too_new);
    assert_eq!(Store::open_read_only(&path).unwrap_err(), too_new);
    assert_eq!(too_new.to_string(), format!("the database has version 999, this agentrun knows version {NEWEST}"));
    assert!(contents() == before);
}

/// The version of this program.
const NEWEST: u32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// One of the future.
const NEXT: Migration = Migration {
    version: NEWEST + 1,
    min_reader: 1,
    min_writer: NEWEST + 1,
    sql: "ALTER TABLE run ADD COLUMN colour TEXT;",
};

fn and_then(next: Migration) -> Vec<Migration> {
    MIGRATIONS.iter().copied().chain([next]).collect()
}

/// A database of an older version: what the program 0.1.0 wrote (checked in: a run that succeeded, one that failed, one that
/// is parked), migrated so far.
fn older(version: u32, path: &Path) {
    let first = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/tests/databases/v1.db");
    std::fs::copy(first, path).unwrap();
    let known = MIGRATIONS.iter().filter(|m| m.version <= version).copied().collect::<Vec<_>>();
    migrate(&mut connection::open_writing(path).unwrap(), path, &known).unwrap();
}

#[test]
fn r_u8_f18_an_older_database_is_looked_at_as_it_is_and_migrated_by_the_first_write() {
    for version in 1..NEWEST {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentrun.db");
        older(version, &path);
        let looking = Store::open_read_only(&path).unwrap().unwrap();
        let states = |store: &Store| {
            let runs = store.runs(&RunFilter::All).unwrap();
            runs.iter().map(|s| format!("{} {}", s.run.id, s.run.status)).collect::<Vec<_>>()
        };
        assert_eq!(states(&looking), ["run_limited_001 RETRYING", "run_bad_001 FAILED", "run_good_001 SUCCEEDED"]);
        let (turns, breakers) = (looking.turns().unwrap(), looking.breakers().unwrap());
        assert!(turns.is_empty() && breakers.is_empty(), "nothing is migrated by looking");
        let seen = looking.view(&RunId::recorded("run_bad_001")).unwrap();
        assert_eq!((seen.executions[0].estimated, seen.usage.estimated), (0, Estimate::default()));
        let good = looking.view(&RunId::recorded("run_good_001")).unwrap();
        let reached: Vec<_> = good.checkpoints.iter().map(|c| (c.name.as_str(), c.commit.is_some())).collect();
        let expected = [("CONTEXT_PREPARED", false), ("CODE_GENERATED", true), ("QA_PASSED", false), ("report", false)];
        assert_eq!(reached, expected, "{version}");
        let asked = EventFilter { request: Some(good.run.request_id.clone()), ..EventFilter::default() };
        let of_request = looking.events(&asked).unwrap();
        assert_eq!(of_request.len(), looking.chain("run_good_001").unwrap().len());
        let before = states(&looking);
        drop(looking);

        let store = Store::open(&path).unwrap();
        assert_eq!(states(&store), before);
        for run in ["run_good_001", "run_bad_001", "run_limited_001"] {
            let policy = store.view(&RunId::recorded(run)).unwrap().inputs.policy;
            let unsaid = Policy::default();
            let later = (policy.warn_permille, policy.breaker);
            assert_eq!(
                later,
                (unsaid.warn_permille, unsaid.breaker),
                "what was not written is what holds without a word"
            );
            let chain = store.chain(run).unwrap();
            crate::domain::event::check_chain(run, &chain, Some(&store.chain_head(run).unwrap())).unwrap();
        }
        store.integrity().unwrap();
        assert_eq!(store.view(&good.run.id).unwrap().checkpoints, good.checkpoints);
        assert_eq!(store.events(&asked).unwrap(), of_request);
        let copy = dir.path().join(format!("agentrun.db.v{version}.bak"));
        assert_eq!(Store::open_read_only(&copy).unwrap().unwrap().runs(&RunFilter::All).unwrap().len(), 3);
    }
}

/// What the program wrote just before it knew side effects (checked in): a run that succeeded, one that failed, one that waits.
#[test]
fn r_u8_f18_a_database_without_side_effects_is_looked_at_and_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentrun.db");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/tests/databases/v3.db"), &path).unwrap();
    let good = RunId::recorded("run_good_001");
    let look = |store: &Store| {
        let view = store.view(&good).unwrap();
        assert!(view.actions.is_empty() && view.approvals.is_empty());
        assert!(store.releases().unwrap().is_empty() && store.deployments(None).unwrap().is_empty());
        assert!(store.undelivered(10).unwrap().is_empty(), "what was told before is not told now");
        assert_eq!(view.usage.estimated.input, 100);
        view
    };
    let before = std::fs::read(&path).unwrap();
    let looking = Store::open_read_only(&path).unwrap().unwrap();
    let seen = look(&looking);
    drop(looking);
    assert!(std::fs::read(&path).unwrap() == before, "looking migrates nothing");
    let mut store = Store::open(&path).unwrap();
    assert_eq!(look(&store), seen);
    store.integrity().unwrap();
    let waiting = RunId::recorded("run_limited_001");
    store.claim(&waiting, &claim(RunEvent::Resume, 1), &ctx(3_000_000)).unwrap();
    let copy = dir.path().join("agentrun.db.v3.bak");
    assert_eq!(Store::open_read_only(&copy).unwrap().unwrap().runs(&RunFilter::All).unwrap().len(), 3);
}

#[test]
fn r_u8_f18_an_upgrade_keeps_a_copy_and_is_done_once() {
    let mut world = World::new();
    world.started(&new_run("182", "a"));
    let path = world.path();
    let both = and_then(NEXT);
    let mut db = connection::open_writing(&path).unwrap();
    migrate(&mut db, &path, MIGRATIONS).unwrap();
    migrate(&mut db, &path, &both).unwrap();
    migrate(&mut db, &path, &both).unwrap();
    let versions: i64 = db.query_row("SELECT count(*) FROM schema_version", (), |row| row.get(0)).unwrap();
    assert_eq!(versions, i64::from(NEWEST) + 1);
    let copy = world.dir.path().join(format!("agentrun.db.v{NEWEST}.bak"));
    assert_eq!(mode(&copy), 0o600);
    let copy = Store::open_read_only(&copy).unwrap().unwrap();
    assert_eq!(copy.runs(&RunFilter::All).unwrap().len(), 1);
    drop(db);
    // This program is old now: it may read what the next version says it may, and no more.
    assert!(check_readable(&world.raw(), MIGRATIONS).unwrap().is_some());
    assert!(Store::open_read_only(&path).unwrap().is_some());
    assert_eq!(Store::open(&path).unwrap_err(), StoreError::TooNew { found: NEWEST + 1, known: NEWEST });
}

#[test]
fn f18_an_upgrade_that_fails_leaves_the_old_version() {
    let mut world = World::new();
    world.started(&new_run("182", "a"));
    let path = world.path();
    let broken = Migration { sql: "ALTER TABLE run ADD COLUMN colour TEXT; ALTER TABLE nothing ADD x;", ..NEXT };
    let mut db = connection::open_writing(&path).unwrap();
    assert!(migrate(&mut db, &path, &and_then(broken)).is_err());
    drop(db);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.runs(&RunFilter::All).unwrap().len(), 1);
    assert!(store.db.prepare("SELECT colour FROM run").is_err());
}

#[test]
fn a_file_of_another_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agentrun.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE cookies (x)").unwrap();
    assert_eq!(Store::open(&path).unwrap_err().code(), Code::StateCorrupt);
    std::fs::write(&path, vec![7_u8; 8192]).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_eq!(Store::open(&path).unwrap_err().code(), Code::StateCorrupt);
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn f13_flipped_bytes_are_found_and_the_file_is_left_alone() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.record(&hold, &[step("context", StepEvent::Begin), step("context", StepEvent::Succeed)]).unwrap();
    let whole = folded(&world);
    let pages = whole.len() / 4096;
    assert!(pages > 20);
    // The first bytes of a page tell its type and its number of cells: 8 pages of every kind, from the first to the last.
    for n in 0..8 {
        let page = n * (pages - 1) / 7;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentrun.db");
        let mut damaged = whole.clone();
        let header = page * 4096 + if page == 0 { 100 } else { 0 };
        for byte in &mut damaged[header..header + 8] {
            *byte ^= 0xff;
        }
        std::fs::write(&path, &damaged).unwrap();
        let answer = Store::open(&path).map(drop);
        assert_eq!(answer.unwrap_err().code(), Code::StateCorrupt, "page {page}");
        assert!(std::fs::read(&path).unwrap() == damaged, "page {page}: untouched");
    }
}

#[test]
fn f13_a_value_that_cannot_be_is_damage_too() {
    let mut world = World::new();
    let hold = world.started(&new_run("182", "a"));
    world.raw().execute("UPDATE run SET status = 'PURPLE'", ()).unwrap();
    let damaged = world.store.find_run(&hold.run).unwrap_err();
    assert_eq!(damaged.to_string(), "the database is damaged: status has the impossible value `PURPLE`");
    assert_eq!(world.record(&hold, &[step("qa", StepEvent::Begin)]).unwrap_err().code(), Code::StateCorrupt);
}

#[test]
fn doctor_finds_a_missing_parent() {
    let world = World::new();
    world.store.integrity().unwrap();
    let raw = world.raw();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    raw.execute("INSERT INTO run_inputs VALUES (99, '{}', 0)", ()).unwrap();
    let damaged = world.store.integrity().unwrap_err();
    assert_eq!(damaged.to_string(), "the database is damaged: a row of run_inputs refers to a missing row of run");
}

#[test]
fn f10_a_folder_that_cannot_be_written_to() {
    if rustix::process::geteuid().is_root() {
        return; // Rights do not bind root; the real binary is tried on a read-only mount.
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    assert_eq!(Store::open(&dir.path().join("agentrun.db")).unwrap_err(), StoreError::ReadOnly);
}

#[test]
fn t3_a_write_transaction_holds_the_lock_from_its_first_statement() {
    let world = World::new();
    let mut one = connection::open_writing(&world.path()).unwrap();
    let _held = write::immediate(&mut one).unwrap();
    let mut other = world.raw();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert_eq!(write::immediate(&mut other).map(drop).unwrap_err(), StoreError::Busy);
}

#[test]
fn t3_nothing_else_begins_a_transaction_or_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let words = ["transaction()", "savepoint", ".execute(", ".execute_batch(", "Behavior::"];
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if file.extension().is_none_or(|end| end != "rs")
            || ["write.rs", "migrate.rs", "salvage.rs"].contains(&name.as_str())
        {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for word in words {
            let reads = name == "read.rs" && word == "Behavior::" && text.matches(word).count() == 1;
            assert!(!text.contains(word) || reads, "{name} uses {word}");
        }
    }
}

/// A new file whose first writer was killed in the middle: a journal beside it says how to go back, and only who may write can.
fn killed_at_its_creation(dir: &Path) -> PathBuf {
    let (begun, path) = (dir.join("begun.db"), dir.join("agentrun.db"));
    let db = rusqlite::Connection::open(&begun).unwrap();
    db.execute_batch(
        "CREATE TABLE a (x); PRAGMA cache_size = 2; BEGIN IMMEDIATE; INSERT INTO a VALUES (zeroblob(100000))",
    )
    .unwrap();
    // Copies, as a kill at this moment would leave the files; what the transaction wrote is on disk already.
    let beside = |path: &Path| PathBuf::from(format!("{}-journal", path.display()));
    std::fs::copy(&begun, &path).unwrap();
    assert!(std::fs::copy(beside(&begun), beside(&path)).unwrap() > 0);
    drop(db);
    path
}

#[test]
fn f03_a_kill_while_the_database_is_made_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let path = killed_at_its_creation(dir.path());
    let rows = || rusqlite::Connection::open(&path).unwrap().query_row("SELECT count(*) FROM a", (), |row| row.get(0));
    // It is no database of agentrun, which is found out only where the journal can be played back.
    let refused = Store::open_read_only(&path).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::StateCorrupt, "{refused}");
    assert_eq!(rows(), Ok(0), "what was half done was taken back");
}
