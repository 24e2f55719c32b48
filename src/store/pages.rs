//! Rows of a damaged database that no tree leads to any more: every page is looked at, and what is a leaf of a table is read
//! by the published format of SQLite's files (sqlite.org/fileformat2.html). To which table a row belongs is told by the kinds
//! of its columns. Only rows that a tree did not yield are taken from here.

use std::path::Path;

use rusqlite::types::Value;

use super::error::Result;
use super::salvage::{Column, Table};

/// The first byte of a leaf of a table.
const LEAF: u8 = 0x0d;
/// The header of the file, before the first page's own.
const FILE_HEADER: usize = 100;
/// No row of ours is larger.
const MAX_ROW: usize = 64 << 20;

/// The table, and the row's number and values.
pub(super) type Found<'t> = (&'t Table, (i64, Vec<Value>));

/// Every row on a leaf that fits exactly one of `tables`. The file must be in nobody's hands: it is read past SQLite (T2).
pub(super) fn rows<'t>(path: &Path, tables: &[&'t Table]) -> Result<Vec<Found<'t>>> {
    let (file, size) = image(path)?;
    let pages = Pages { file: &file, size };
    let mut found = Vec::new();
    for (number, page) in (1_u32..).zip(file.chunks_exact(size)) {
        let at = if number == 1 { FILE_HEADER } else { 0 };
        if page.get(at) != Some(&LEAF) {
            continue;
        }
        for row in pages.leaf(page, at) {
            let mut fitting = tables.iter().filter(|table| fits(&row.1, &table.columns));
            if let (Some(table), None) = (fitting.next(), fitting.next()) {
                found.push((*table, numbered(row, &table.columns)));
            }
        }
    }
    Ok(found)
}

/// The file with what its write-ahead log has committed since, and the size of a page. A frame that does not belong to the
/// log's present round ends it; its check sums were looked at by SQLite when it opened the file.
fn image(path: &Path) -> Result<(Vec<u8>, usize)> {
    let mut file = std::fs::read(path)?;
    let size = page_size(&file);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = std::fs::read(log).unwrap_or_default();
    let Some((header, frames)) = log.split_at_checked(32) else { return Ok((file, size)) };
    let mut pending: Vec<(usize, &[u8])> = Vec::new();
    for frame in frames.chunks_exact(24 + size) {
        let word = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        if frame[8..16] != header[16..24] || word(0) == 0 {
            break;
        }
        pending.push((usize::try_from(word(0) - 1).unwrap_or_default() * size, &frame[24..]));
        // A frame that says how large the database is ends a transaction.
        if word(4) != 0 {
            for (at, page) in pending.drain(..) {
                file.resize(file.len().max(at + size), 0);
                file[at..at + size].copy_from_slice(page);
            }
        }
    }
    Ok((file, size))
}

/// As the file says, if what it says can be; else the usual one.
fn page_size(file: &[u8]) -> usize {
    let told = file.get(16..18).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    if told.is_power_of_two() && told >= 512 { told } else { 4096 }
}

/// A column that is the row's number is stored as nothing.
fn numbered((number, mut values): (i64, Vec<Value>), columns: &[Column]) -> (i64, Vec<Value>) {
    for (value, _) in values.iter_mut().zip(columns).filter(|(_, column)| column.is_row) {
        *value = Value::Integer(number);
    }
    (number, values)
}

/// Whether a row can be one of these columns. All tables are STRICT, so the kinds are what was declared.
fn fits(values: &[Value], columns: &[Column]) -> bool {
    let (held, later) = columns.split_at(values.len().min(columns.len()));
    held.len() == values.len()
        && later.iter().all(|column| !column.not_null)
        && values.iter().zip(columns).all(|(value, column)| match value {
            Value::Null => column.is_row || !column.not_null,
            Value::Integer(_) => column.kind == "INTEGER" && !column.is_row,
            Value::Text(_) => column.kind == "TEXT",
            Value::Blob(_) => column.kind == "BLOB",
            Value::Real(_) => false,
        })
}

struct Pages<'a> {
    file: &'a [u8],
    size: usize,
}

impl Pages<'_> {
    /// The rows of a leaf that make sense.
    fn leaf(&self, page: &[u8], at: usize) -> Vec<(i64, Vec<Value>)> {
        let cells = page.get(at + 3..at + 5).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        let pointers = page.get(at + 8..at + 8 + 2 * cells).unwrap_or_default();
        let starts = pointers.chunks_exact(2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        starts.filter_map(|start| self.cell(page.get(start..)?)).collect()
    }

    fn cell(&self, cell: &[u8]) -> Option<(i64, Vec<Value>)> {
        let (length, rest) = varint(cell)?;
        let (number, rest) = varint(rest)?;
        let length = usize::try_from(length).ok().filter(|n| *n <= MAX_ROW)?;
        Some((number, record(&self.payload(rest, length)?)?))
    }

    /// What does not fit into the leaf goes on in a chain of pages.
    fn payload(&self, local: &[u8], length: usize) -> Option<Vec<u8>> {
        let (most, least) = (self.size - 35, (self.size - 12) * 32 / 255 - 23);
        if length <= most {
            return local.get(..length).map(<[u8]>::to_vec);
        }
        let kept = least + (length - least) % (self.size - 4);
        let kept = if kept <= most { kept } else { least };
        let mut bytes = local.get(..kept)?.to_vec();
        let mut next = u32::from_be_bytes(local.get(kept..kept + 4)?.try_into().ok()?);
        while bytes.len() < length {
            let begin = usize::try_from(next).ok()?.checked_sub(1)?.checked_mul(self.size)?;
            let page = self.file.get(begin..begin + self.size)?;
            next = u32::from_be_bytes(page[..4].try_into().ok()?);
            let wanted = (length - bytes.len()).min(self.size - 4);
            bytes.extend_from_slice(&page[4..4 + wanted]);
        }
        Some(bytes)
    }
}

/// The values of a record.
fn record(bytes: &[u8]) -> Option<Vec<Value>> {
    let (header, mut types) = varint(bytes)?;
    let header = usize::try_from(header).ok()?;
    types = types.get(..header.checked_sub(bytes.len() - types.len())?)?;
    let mut body = bytes.get(header..)?;
    let mut values = Vec::new();
    while !types.is_empty() {
        let (kind, rest) = varint(types)?;
        types = rest;
        let size = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let (value, rest) = body.split_at_checked(size)?;
        body = rest;
        values.push(match kind {
            0 => Value::Null,
            8 | 9 => Value::Integer(kind - 8),
            1..=6 => Value::Integer(integer(value)),
            7 => Value::Real(f64::from_be_bytes(value.try_into().ok()?)),
            _ if kind % 2 == 0 => Value::Blob(value.to_vec()),
            _ => Value::Text(String::from_utf8(value.to_vec()).ok()?),
        });
    }
    Some(values)
}

/// Big endian, with a sign.
fn integer(bytes: &[u8]) -> i64 {
    let first = bytes.first().map_or(0, |byte| i64::from(byte.cast_signed()));
    bytes.iter().skip(1).fold(first, |sum, byte| sum << 8 | i64::from(*byte))
}

/// Seven bits a byte, the ninth whole; and what follows it.
fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().take(9).enumerate() {
        if i == 8 {
            return Some(((value << 8 | u64::from(*byte)).cast_signed(), &bytes[9..]));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value.cast_signed(), &bytes[i + 1..]));
        }
    }
    None
}
