//! Builds a new database out of what can still be read of a damaged one (F13): table by table, row by row, past every page
//! that cannot be read. The damaged file is read and nothing else. What a run's record is worth afterwards is decided by
//! whoever asked.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::error::{Result, StoreError};
use super::migrate::MIGRATIONS;
use super::write::immediate;
use super::{connection, pages};

/// What was kept of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    /// The table.
    pub table: String,
    /// Rows in the new database.
    pub kept: u64,
    /// Rows that are known to be missing: rows are never deleted, so their numbers have no gaps. There may be more at the
    /// end.
    pub lost: u64,
    /// Whether something of it could not be read.
    pub damaged: bool,
}

/// Reads the database at `damaged` and writes what can be read to a new one at `new`.
pub fn salvage(damaged: &Path, new: &Path) -> Result<Vec<Salvaged>> {
    remove(new)?;
    let mut target = connection::open(new)?;
    let source = open_tolerant(damaged);
    let tables = tables(&target)?;
    // A parent may be lost while its children are there: those go in the end, all together.
    target.pragma_update(None, "foreign_keys", false)?;
    let tx = immediate(&mut target)?;
    let mut copied = Vec::new();
    for table in &tables {
        tx.execute_batch(&format!("DELETE FROM {}", table.name))?;
        let mut copy = Copy { source: source.as_ref().ok(), target: &tx, table, damaged: source.is_err() };
        copy.reachable();
        copied.push((table, copy.damaged));
    }
    let suspects: Vec<&Table> =
        copied.iter().filter(|(t, damaged)| *damaged && t.is_numbered).map(|(t, _)| *t).collect();
    for (table, (number, values)) in if suspects.is_empty() { Vec::new() } else { pages::rows(damaged, &suspects)? } {
        // A row from before a column was added ends sooner.
        let columns: Vec<&Column> = table.columns.iter().take(values.len()).collect();
        insert(&tx, table, &columns, (number, values));
    }
    derive(&tx)?;
    let highest = copied.iter().map(|(table, _)| highest(&tx, table)).collect::<Result<Vec<_>>>()?;
    tx.commit()?;
    drop_orphans(&mut target)?;
    let mut report = Vec::new();
    for ((table, damaged), highest) in copied.into_iter().zip(highest) {
        let kept = number(&target, "count(*)", &table.name)?;
        report.push(Salvaged { table: table.name.clone(), kept, lost: highest.saturating_sub(kept), damaged });
    }
    target.close().map_err(|(_, error)| error)?;
    std::fs::File::open(new)?.sync_all()?;
    Ok(report)
}

/// Puts a new database in the place of a damaged one, which stays beside it under a name that says so. Answers that name.
pub fn replace(damaged: &Path, new: &Path) -> Result<PathBuf> {
    let aside = (1..).map(|n| with(damaged, &format!(".damaged-{n}"))).find(|path| !path.exists());
    let aside = aside.ok_or_else(|| StoreError::Internal("no name is left for the damaged database".to_owned()))?;
    let log = with(damaged, "-wal");
    // Two names for the same bytes first, so that at no moment there is none. The log goes before the new file comes: an old
    // log beside it would be taken for its own.
    std::fs::hard_link(damaged, &aside)?;
    if log.exists() {
        std::fs::hard_link(&log, with(&aside, "-wal"))?;
        std::fs::remove_file(&log)?;
    }
    remove_if_there(&with(damaged, "-shm"))?;
    std::fs::rename(new, damaged)?;
    let folder = damaged.parent().unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()?;
    Ok(aside)
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove(path: &Path) -> Result<()> {
    ["", "-wal", "-shm"].iter().try_for_each(|suffix| remove_if_there(&with(path, suffix)))
}

fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Reads as much as SQLite can be brought to, and writes nothing.
fn open_tolerant(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    // An entry of the schema that makes no sense is passed over instead of ending everything.
    db.pragma_update(None, "writable_schema", true)?;
    db.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    Ok(db)
}

/// A table of this program's own version.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// Its rows have numbers; else it is ordered by its key (WITHOUT ROWID).
    is_numbered: bool,
}

/// All of them, in the order in which they were made.
fn tables(db: &Connection) -> Result<Vec<Table>> {
    let sql = "SELECT s.name, NOT l.wr FROM sqlite_schema s JOIN pragma_table_list l ON l.name = s.name \
               WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite%' ORDER BY s.rowid";
    let mut statement = db.prepare(sql)?;
    let names = statement.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>()?;
    let table = |(name, is_numbered): (String, bool)| Ok(Table { columns: columns(db, &name)?, name, is_numbered });
    names.into_iter().map(table).collect()
}

/// A column: its name and what it may hold.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) not_null: bool,
    /// It is the number of the row itself.
    pub(super) is_row: bool,
}

fn columns(db: &Connection, table: &str) -> Result<Vec<Column>> {
    let sql =
        "SELECT name, type, \"notnull\", pk, (SELECT max(pk) FROM pragma_table_info(?1)) FROM pragma_table_info(?1)";
    let mut statement = db.prepare(sql)?;
    let found = statement.query_map([table], |row| {
        let (kind, key, keys): (String, i64, i64) = (row.get(1)?, row.get(3)?, row.get(4)?);
        Ok(Column {
            name: row.get(0)?,
            is_row: key == 1 && keys == 1 && kind == "INTEGER",
            kind,
            not_null: row.get(2)?,
        })
    })?;
    Ok(found.collect::<std::result::Result<_, _>>()?)
}

/// One table on its way.
struct Copy<'a> {
    source: Option<&'a Connection>,
    target: &'a Connection,
    table: &'a Table,
    damaged: bool,
}

impl Copy<'_> {
    /// Every row that the table's own tree leads to.
    fn reachable(&mut self) {
        let Some(source) = self.source else { return };
        // An older database lacks tables and columns that later versions added; that is no damage.
        let known = columns(source, &self.table.name).unwrap_or_default();
        let shared: Vec<&Column> =
            self.table.columns.iter().filter(|column| known.iter().any(|c| c.name == column.name)).collect();
        if shared.is_empty() {
            self.damaged = !is_unknown(source, &self.table.name);
            return;
        }
        if !self.table.is_numbered {
            // From both ends, for want of numbers to go on after.
            self.damaged = self.by_key(source, &shared, "ASC").is_err();
            if self.damaged {
                let _ = self.by_key(source, &shared, "DESC");
            }
            return;
        }
        let mut after = i64::MIN;
        while let Err(reached) = self.from(source, &shared, after) {
            self.damaged = true;
            match self.past(source, reached) {
                Some(next) => after = next,
                None => return,
            }
        }
    }

    /// Copies the rows of a table without numbers until the end or until something cannot be read.
    fn by_key(&self, source: &Connection, shared: &[&Column], order: &str) -> rusqlite::Result<()> {
        let (names, table) = (names(shared), &self.table.name);
        let ordered = names.replace(", ", &format!(" {order}, "));
        let mut statement = source.prepare(&format!("SELECT {names} FROM {table} ORDER BY {ordered} {order}"))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let values = (0..shared.len()).map(|i| row.get::<_, Value>(i)).collect::<rusqlite::Result<Vec<_>>>()?;
            insert(self.target, self.table, shared, (0, values));
        }
        Ok(())
    }

    /// Copies rows until the end, or answers the last one before something that cannot be read.
    fn from(&self, source: &Connection, shared: &[&Column], after: i64) -> std::result::Result<(), i64> {
        let mut reached = after;
        let (names, table) = (names(shared), &self.table.name);
        let sql = format!("SELECT rowid, {names} FROM {table} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid");
        let mut statement = source.prepare(&sql).map_err(|_| reached)?;
        let mut rows = statement.query([after]).map_err(|_| reached)?;
        loop {
            let Some(row) = rows.next().map_err(|_| reached)? else { return Ok(()) };
            let number: i64 = row.get(0).map_err(|_| reached)?;
            let values = (1..=shared.len()).map(|i| row.get::<_, Value>(i)).collect::<rusqlite::Result<Vec<_>>>();
            insert(self.target, self.table, shared, (number, values.map_err(|_| reached)?));
            reached = number;
        }
    }

    /// The number after which rows can be read again: past one row whose text lies on a damaged page, or past all rows of a
    /// damaged page, which are found by taking ever larger steps and then halving the last one.
    fn past(&self, source: &Connection, reached: i64) -> Option<i64> {
        let sql = format!("SELECT rowid FROM {} NOT INDEXED WHERE rowid > ?1 ORDER BY rowid LIMIT 1", self.table.name);
        let next = |after: i64| -> std::result::Result<Option<i64>, ()> {
            let mut statement = source.prepare_cached(&sql).map_err(drop)?;
            let mut rows = statement.query([after]).map_err(drop)?;
            rows.next().map_err(drop)?.map(|row| row.get(0)).transpose().map_err(drop)
        };
        match next(reached) {
            Ok(None) => return None,
            Ok(Some(unreadable)) => return Some(unreadable),
            Err(()) => {}
        }
        let begin = reached.max(0);
        let readable = (0..40).map(|doublings| 1_i64 << doublings).find(|step| next(begin + step).is_ok())?;
        let (mut bad, mut good) = (begin + readable / 2, begin + readable);
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2;
            if next(middle).is_ok() { good = middle } else { bad = middle }
        }
        Some(good)
    }
}

/// Whether the schema, being readable, has no such table.
fn is_unknown(source: &Connection, table: &str) -> bool {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?1";
    source.query_row(sql, [table], |row| row.get::<_, i64>(0)).is_ok_and(|found| found == 0)
}

fn names(columns: &[&Column]) -> String {
    columns.iter().map(|c| format!("\"{}\"", c.name)).collect::<Vec<_>>().join(", ")
}

/// One row into the new database, under its old number. What contradicts its rules or a row that is there stays out, and shows
/// as lost.
fn insert(target: &Connection, table: &Table, columns: &[&Column], (number, values): (i64, Vec<Value>)) {
    let names_number = table.is_numbered && !columns.iter().any(|c| c.is_row);
    let (name, mark) = if names_number { ("rowid, ", "?, ") } else { ("", "") };
    let (names, marks, table) = (names(columns), vec!["?"; columns.len()].join(", "), &table.name);
    let sql = format!("INSERT OR IGNORE INTO {table} ({name}{names}) VALUES ({mark}{marks})");
    let number = names_number.then_some(Value::Integer(number));
    let inserted = target
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.execute(params_from_iter(number.iter().chain(values.iter()))));
    if let Err(error) = inserted {
        tracing::warn!(%error, table, "a row could not be kept");
    }
}

fn number(db: &Connection, what: &str, table: &str) -> Result<u64> {
    let found: Option<i64> = db.query_row(&format!("SELECT {what} FROM {table}"), (), |row| row.get(0))?;
    Ok(found.and_then(|n| u64::try_from(n).ok()).unwrap_or_default())
}

/// The highest number of a row, from which the gaps are known; 0 where rows have none.
fn highest(db: &Connection, table: &Table) -> Result<u64> {
    if table.is_numbered { number(db, "max(rowid)", &table.name) } else { Ok(0) }
}

/// What follows from other things: the new database is of this program's version, whatever the old one told about itself, and
/// which commands left events where is told by the events.
fn derive(db: &Connection) -> Result<()> {
    db.execute_batch("DELETE FROM schema_version")?;
    for step in MIGRATIONS {
        let row = (step.version, step.min_reader, step.min_writer);
        db.execute("INSERT INTO schema_version (version, min_reader, min_writer) VALUES (?1, ?2, ?3)", row)?;
    }
    db.execute_batch("INSERT OR IGNORE INTO request_chain SELECT DISTINCT tenant, request_id, chain FROM event")?;
    Ok(())
}

/// Rows that belong to a row that is lost are lost with it: nothing could be made of them.
fn drop_orphans(db: &mut Connection) -> Result<()> {
    loop {
        let tx = immediate(db)?;
        let orphans = {
            let mut statement =
                tx.prepare("SELECT \"table\", rowid FROM pragma_foreign_key_check WHERE rowid NOT NULL")?;
            let found = statement.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
            found.collect::<rusqlite::Result<Vec<_>>>()?
        };
        for (table, number) in &orphans {
            tx.execute(&format!("DELETE FROM {table} WHERE rowid = ?1"), [number])?;
        }
        tx.commit()?;
        if orphans.is_empty() {
            return Ok(());
        }
    }
}
