//! Opens the database file: pragmas, access rights, and the checks that come before anything is touched. Nothing else in
//! the program opens the files of the state folder (T2).

use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::error::{Result, StoreError};
use super::migrate::{self, MIGRATIONS};

/// Statements kept prepared; more than the store has, so that none is ever compiled twice.
const CACHED_STATEMENTS: usize = 256;

/// A database up to this size is checked whole whenever it is opened for writing (about a millisecond); a larger one by
/// `doctor`, because a start must not take longer the more runs there were.
const CHECKED_WHOLE: u64 = 1 << 20;

/// Opens for writing; creates and migrates.
pub(super) fn open(path: &Path) -> Result<Connection> {
    if create_private(path)? == Existed::Yes {
        // A look without write access first: a database of a newer version is refused without one byte changed (F17).
        if let Some(probe) = open_read_only(path)? {
            check_small(&probe)?;
        }
    }
    let mut db = open_writing(path)?;
    migrate::migrate(&mut db, path, MIGRATIONS)?;
    tighten(path)?;
    Ok(db)
}

/// Opens for writing what is already there; `None` when nothing is.
pub(super) fn open_existing(path: &Path) -> Result<Option<Connection>> {
    if open_read_only(path)?.is_none() {
        return Ok(None);
    }
    open(path).map(Some)
}

/// Opens for reading only: creates nothing, migrates nothing, writes nothing, but takes back what a killed writer had half
/// written where only a writer can; `None` when nothing was ever recorded.
pub(super) fn open_read_only(path: &Path) -> Result<Option<Connection>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(file) if file.len() == 0 => return Ok(None),
        Ok(_) => {}
    }
    let db = open_reading(path)?;
    let db = match can_be_read(&db) {
        Ok(true) => db,
        Ok(false) => open_immutable(path)?,
        // A writer was killed in the middle of what only a writer can take back: its beginning of the file, mostly (F03).
        Err(StoreError::ReadOnly) => {
            drop(db);
            open_writing(path)?;
            open_reading(path)?
        }
        Err(error) => return Err(error),
    };
    if migrate::check_readable(&db, MIGRATIONS)?.is_none() {
        return Ok(None);
    }
    migrate::show_as_newest(&db)?;
    Ok(Some(db))
}

fn open_reading(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags)?;
    prepare(&mut db)?;
    Ok(db)
}

/// False when the write-ahead log's index can neither be read nor made: the folder is read-only.
fn can_be_read(db: &Connection) -> Result<bool> {
    match db.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0)) {
        Ok(_) => Ok(true),
        Err(rusqlite::Error::SqliteFailure(cause, _)) if cause.code == rusqlite::ErrorCode::CannotOpen => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads a database in a folder that nobody can write to. Without a log beside it the file is whole and stands still.
fn open_immutable(path: &Path) -> Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(&log).is_ok_and(|file| file.len() > 0) {
        return Err(StoreError::ReadOnly);
    }
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let mut db = Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)?;
    prepare(&mut db)?;
    Ok(db)
}

/// Opens for writing without any check; also the way back after a commit that failed.
pub(super) fn open_writing(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags)?;
    prepare(&mut db)?;
    if db.is_readonly(MAIN_DB)? {
        return Err(StoreError::ReadOnly);
    }
    use_write_ahead_log(&db)?;
    // Every commit is on disk before it is acknowledged (I1).
    db.pragma_update(None, "synchronous", "FULL")?;
    Ok(db)
}

fn prepare(db: &mut Connection) -> Result<()> {
    db.busy_handler(Some(wait_for_lock))?;
    db.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // Without this a prepared statement is compiled anew whenever a bound value could matter for a partial index, which
    // costs more than carrying it out (measured: 18 µs of 21 for finding a run).
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.pragma_update(None, "foreign_keys", true)?;
    // A damaged page is noticed when it is read, and nothing in a foreign file can call functions.
    db.pragma_update(None, "cell_size_check", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(())
}

/// Switching to the write-ahead log needs the file alone and is not covered by the busy handler, so a start beside other
/// first starts asks again.
fn use_write_ahead_log(db: &Connection) -> Result<()> {
    let mut round = 0;
    loop {
        let mode = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode.map_err(StoreError::from) {
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(mode) => return Err(StoreError::Internal(format!("the journal mode stayed {mode}"))),
            Err(StoreError::Busy) if wait_for_lock(round) => round += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Short waits, many of them, about 30 seconds in all. SQLite's own handler waits up to 100 ms at a time, which starves
/// a writer among many; a lock that is held for seconds is waited for (FR-I11).
fn wait_for_lock(round: i32) -> bool {
    let wait = match round {
        0..20 => 1,
        20..200 => 4,
        200..1600 => 20,
        _ => return false,
    };
    std::thread::sleep(Duration::from_millis(wait));
    true
}

#[derive(PartialEq, Eq)]
enum Existed {
    Yes,
    No,
}

/// Makes an empty file that only its owner can read; SQLite gives its side files the same rights (F98).
fn create_private(path: &Path) -> Result<Existed> {
    // Only a file that does not exist is opened here, so no lock of another connection can be lost (T2).
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(Existed::No),
        Err(_) if path.exists() => Ok(Existed::Yes),
        Err(error) => Err(error.into()),
    }
}

/// Takes rights of others away from a database that was copied here with them.
fn tighten(path: &Path) -> Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn check_small(db: &Connection) -> Result<()> {
    let pages = db.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))?;
    let page = db.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))?;
    if u64::try_from(pages.saturating_mul(page)).is_ok_and(|size| size <= CHECKED_WHOLE) {
        check_pages(db, "quick_check")?;
    }
    Ok(())
}

/// Runs one of SQLite's own checks.
pub(super) fn check_pages(db: &Connection, check: &str) -> Result<()> {
    let words = db.pragma_query_value(None, check, |row| row.get::<_, String>(0))?;
    if words == "ok" { Ok(()) } else { Err(StoreError::Corrupt(words)) }
}
