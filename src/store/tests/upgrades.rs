//! F18: an upgrade that is killed at every single thing it does to a file leaves the old version or the new one, never
//! something in between, and a copy of the old one beside it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use super::super::connection;
use super::super::migrate::{MIGRATIONS, Migration, migrate};
use super::faulty_disk::{Rule, on_disk};
use super::*;
use crate::store::{RunFilter, StoreError};

/// The version after the newest, of several statements.
fn with_next() -> Vec<Migration> {
    let newest = MIGRATIONS.last().unwrap().version;
    let sql = "CREATE TABLE colour (run INTEGER NOT NULL REFERENCES run (seq), name TEXT NOT NULL) STRICT;
               ALTER TABLE run ADD COLUMN colour TEXT;
               UPDATE run SET colour = 'blue';
               INSERT INTO colour SELECT seq, colour FROM run;
               CREATE INDEX run_by_colour ON run (colour);";
    let next = Migration { version: newest + 1, min_reader: 1, min_writer: newest + 1, sql };
    MIGRATIONS.iter().copied().chain([next]).collect()
}

/// Does nothing by itself; `f18_…` runs it in processes of their own.
#[test]
fn process_of_f18() {
    let Some(path) = std::env::var_os("AGENTRUN_TEST_UPGRADE") else { return };
    let mut db = connection::open_writing(Path::new(&path)).unwrap();
    migrate(&mut db, Path::new(&path), &with_next()).unwrap();
}

/// Upgrades in a process of its own, which dies at its n-th work on the database's files.
fn upgrade(path: &Path, dies_at: Option<u32>) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "store::tests::upgrades::process_of_f18"]).env("AGENTRUN_TEST_UPGRADE", path);
    let rules: Vec<_> = dies_at.map(|nth| Rule::nth("any", "agentrun.db", nth, "kill")).into_iter().collect();
    on_disk(&mut command, &rules);
    command.stdout(std::process::Stdio::null()).status().unwrap()
}

/// Old and whole, or new and whole.
fn assert_one_version(path: &Path, at: u32) {
    let newest = MIGRATIONS.last().unwrap().version;
    let is_new = match Store::open(path) {
        Ok(store) => {
            store.integrity().unwrap();
            assert_eq!(store.runs(&RunFilter::All).unwrap().len(), 1, "{at}");
            assert!(store.db.prepare("SELECT colour FROM run").is_err(), "{at}: a mixed schema");
            assert!(store.db.prepare("SELECT * FROM colour").is_err(), "{at}: a mixed schema");
            false
        }
        Err(StoreError::TooNew { found, known }) => {
            assert_eq!((found, known), (newest + 1, newest), "{at}: what an old program says of the new file");
            true
        }
        Err(other) => panic!("{at}: {other}"),
    };
    let copy = path.with_extension(format!("db.v{newest}.bak"));
    assert!(copy.exists() || !is_new, "{at}: no upgrade without a copy");
    if copy.exists() {
        let copy = Store::open_read_only(&copy).unwrap().unwrap();
        copy.integrity().unwrap();
        assert_eq!(copy.runs(&RunFilter::All).unwrap().len(), 1, "{at}: the copy is whole");
    }
}

#[test]
fn f18_an_upgrade_killed_at_everything_it_does_leaves_the_old_version_or_the_new_one() {
    let mut world = World::new();
    world.started(&new_run("182", "a"));
    world.raw().query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
    let old = std::fs::read(world.path()).unwrap();
    let mut killed = 0;
    for nth in (1..).step_by(3) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentrun.db");
        std::fs::write(&path, &old).unwrap();
        let status = upgrade(&path, Some(nth));
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(9), "{nth}: {status}");
        killed += 1;
        assert_one_version(&path, nth);
        assert!(upgrade(&path, None).success(), "{nth}: it is done again");
        let db = connection::open_writing(&path).unwrap();
        let blue: i64 = db.query_row("SELECT count(*) FROM colour WHERE name = 'blue'", (), |row| row.get(0)).unwrap();
        assert_eq!(blue, 1, "{nth}: once");
    }
    assert!(killed > 10, "{killed} moments");
}
