//! Brings a database to the newest version, and refuses one that this program must not touch. The version stands in
//! `user_version`; `schema_version` says of each version how old a reader and a writer may be (faults, rule 9).

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};

use super::error::{Result, StoreError};
use super::write::immediate;

/// Marks the file as agentrun's: `agrn`.
const APPLICATION_ID: i32 = 0x6167_726e;

/// One step of the schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// From 1, without gaps.
    pub version: u32,
    /// The oldest program version of the schema that can still read the result.
    pub min_reader: u32,
    /// The oldest one that can still write it.
    pub min_writer: u32,
    /// What to do.
    pub sql: &'static str,
}

/// All steps, oldest first.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, min_reader: 1, min_writer: 1, sql: include_str!("schema/001.sql") },
    // A program of version 1 would call a provider that is held, and pass everybody who waits.
    Migration { version: 2, min_reader: 1, min_writer: 2, sql: include_str!("schema/002.sql") },
    // A program of version 2 would hold its limits against what was told alone.
    Migration { version: 3, min_reader: 1, min_writer: 3, sql: include_str!("schema/003.sql") },
    // A program of version 3 knows nothing of what was sent, and would go on without it.
    Migration { version: 4, min_reader: 1, min_writer: 4, sql: include_str!("schema/004.sql") },
];

/// Migrates what is older, accepts what is equal, and accepts what is newer only if it says that we may write to it.
pub(super) fn migrate(db: &mut Connection, path: &Path, migrations: &[Migration]) -> Result<()> {
    let newest = newest(migrations);
    let found = version(db)?;
    if found == newest {
        return Ok(());
    }
    if found > newest {
        return admit(db, found, newest, "min_writer");
    }
    if found > 0 {
        back_up(db, path, found)?;
    }
    let tx = immediate(db)?;
    // Another process may have migrated while this one waited for the lock.
    let found = version(&tx)?;
    for step in migrations.iter().filter(|step| step.version > found) {
        tx.execute_batch(step.sql)?;
        let row = (step.version, step.min_reader, step.min_writer);
        tx.execute("INSERT INTO schema_version (version, min_reader, min_writer) VALUES (?1, ?2, ?3)", row)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", newest)?;
    tx.commit()?;
    Ok(())
}

/// Says whether this program can read the database; `None` when nothing was ever written to it.
pub(super) fn check_readable(db: &Connection, migrations: &[Migration]) -> Result<Option<()>> {
    let (found, newest) = (version(db)?, newest(migrations));
    match found {
        0 => Ok(None),
        _ if found > newest => admit(db, found, newest, "min_reader").map(Some),
        _ => Ok(Some(())),
    }
}

/// Lets a connection that only looks read an older database as if it had the columns that later versions added: nothing is
/// migrated by looking. A temporary view goes before a table of its name, and lives in the connection alone.
pub(super) fn show_as_newest(db: &Connection) -> Result<()> {
    const GUESSED: &str = "0 AS guess_input, 0 AS guess_cached, 0 AS guess_output, NULL AS guess_cost_micros";
    const CHECKPOINT: &str = "c.name AS checkpoint, c.snapshot, c.policy_version, c.artifacts";
    match version(db)? {
        1 => db.execute_batch(&format!(
            "CREATE TEMP VIEW execution AS SELECT e.*, {CHECKPOINT}, {GUESSED} FROM main.execution e \
             LEFT JOIN main.checkpoint c ON c.run = e.run AND c.step = e.step AND e.number = \
             (SELECT max(x.number) FROM main.execution x WHERE x.run = c.run AND x.step = c.step AND x.started_at <= c.at); \
             CREATE TEMP VIEW request_chain AS SELECT DISTINCT tenant, request_id, chain FROM main.event"
        ))?,
        2 => db.execute_batch(&format!("CREATE TEMP VIEW execution AS SELECT *, {GUESSED} FROM main.execution"))?,
        _ => {}
    }
    if version(db)? < 4 {
        show_empty(db, include_str!("schema/004.sql"))?;
    }
    Ok(())
}

/// The tables that a migration adds, empty, in the connection alone.
fn show_empty(db: &Connection, migration: &str) -> Result<()> {
    let statements = migration.split(";\n").filter_map(|statement| statement.split_once("CREATE TABLE "));
    for (_, table) in statements {
        db.execute_batch(&format!("CREATE TEMP TABLE {table}"))?;
    }
    Ok(())
}

fn newest(migrations: &[Migration]) -> u32 {
    migrations.last().map_or(0, |step| step.version)
}

/// The version of the database; 0 for an empty one. A file of another program is refused.
fn version(db: &Connection) -> Result<u32> {
    // One statement, so that a migration that commits in between is seen whole or not at all.
    let sql = "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), \
               (SELECT count(*) FROM sqlite_schema)";
    let (application, version, tables) =
        db.query_row(sql, (), |row| Ok((row.get::<_, i32>(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?)))?;
    if application == APPLICATION_ID || (version == 0 && application == 0 && tables == 0) {
        Ok(version)
    } else {
        Err(StoreError::Corrupt("the file is not a database of agentrun".to_owned()))
    }
}

/// Admits a newer database whose newest step says, in `column`, that this program is new enough for it.
fn admit(db: &Connection, found: u32, known: u32, column: &str) -> Result<()> {
    let sql = format!("SELECT {column} FROM schema_version WHERE version = ?1");
    let needed: Option<u32> = db.query_row(&sql, [found], |row| row.get(0)).optional()?;
    match needed {
        Some(needed) if needed <= known => Ok(()),
        _ => Err(StoreError::TooNew { found, known }),
    }
}

/// A copy of the database as it was, beside it: `agentrun.db.v1.bak`. Made under another name first, so that a copy that
/// was cut off is never taken for a whole one.
fn back_up(db: &Connection, path: &Path, version: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::path::PathBuf::from(name)
    };
    let (part, whole) = (beside(&format!(".v{version}.part")), beside(&format!(".v{version}.bak")));
    if part.exists() {
        std::fs::remove_file(&part)?;
    }
    db.execute("VACUUM INTO ?1", [part.to_string_lossy()])?;
    std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o600))?;
    std::fs::File::open(&part)?.sync_all()?;
    std::fs::rename(&part, &whole)?;
    Ok(())
}
