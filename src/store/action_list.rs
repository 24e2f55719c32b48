//! Reads actions: one, some, and what is known of one.

use rusqlite::Connection;
use rusqlite::types::Value;

use super::action_calls::ActionFilter;
use super::claim::in_list;
use super::error::{Result, StoreError};
use super::{Store, TENANT, action_rows, rows};
use crate::domain::action::record::{ActionRecord, ReadingRecord, WantedRecord};
use crate::domain::ids::ActionId;
use crate::domain::machine::Word as _;

impl Store {
    /// An action by its id.
    pub fn action(&self, id: &ActionId) -> Result<Option<ActionRecord>> {
        self.one_action("a.id = ?2", id.as_str())
    }

    /// An action by its key.
    pub fn action_by_key(&self, key: &str) -> Result<Option<ActionRecord>> {
        self.one_action("a.key = ?2", key)
    }

    fn one_action(&self, condition: &str, value: &str) -> Result<Option<ActionRecord>> {
        let sql = format!("SELECT {} FROM action a WHERE a.tenant = ?1 AND {condition}", action_rows::ACTION);
        rows::first(&self.db, &sql, (TENANT, value), action_rows::action)
    }

    /// The actions that a filter names, oldest first; with a limit the newest of them.
    pub fn actions(&self, filter: &ActionFilter) -> Result<Vec<ActionRecord>> {
        list(&self.db, filter)
    }

    /// Who wanted an action, oldest first.
    pub fn wanted(&self, id: &ActionId) -> Result<Vec<WantedRecord>> {
        self.of_action(id, (action_rows::WANTED, "action_wanted"), action_rows::wanted)
    }

    /// What was seen of an action, oldest first.
    pub fn readings(&self, id: &ActionId) -> Result<Vec<ReadingRecord>> {
        self.of_action(id, (action_rows::READING, "action_reading"), action_rows::reading)
    }

    fn of_action<T>(
        &self,
        id: &ActionId,
        (columns, table): (&str, &str),
        read: impl FnMut(&mut rows::Fields<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let sql = "SELECT seq FROM action WHERE tenant = ?1 AND id = ?2";
        let seq = rows::first(&self.db, sql, (TENANT, id.as_str()), |row| row.take::<i64>())?;
        let seq = seq.ok_or_else(|| StoreError::no_action(id))?;
        rows::all(&self.db, &format!("SELECT {columns} FROM {table} WHERE action = ?1 ORDER BY seq"), [seq], read)
    }
}

/// The list of a filter.
pub(super) fn list(db: &Connection, filter: &ActionFilter) -> Result<Vec<ActionRecord>> {
    let mut conditions = vec!["a.tenant = ?".to_owned()];
    let mut values = vec![Value::from(TENANT.to_owned())];
    let mut with = |condition: &str, value: Value| {
        conditions.push(condition.to_owned());
        values.push(value);
    };
    if let Some(run) = &filter.run {
        let answers = "answer IN ('new', 'known', 'renewed')";
        let wanted = format!("a.seq IN (SELECT action FROM action_wanted WHERE run = ? AND {answers})");
        with(&wanted, Value::from(run.to_string()));
    }
    if let Some(kind) = filter.kind {
        with("a.kind = ?", Value::from(kind.word().to_owned()));
    }
    if let Some(target) = &filter.target {
        with("a.target = ?", Value::from(target.clone()));
    }
    if let Some(at) = filter.due_at {
        with("(a.retry_at IS NULL OR a.retry_at <= ?)", Value::from(at.0));
    }
    if filter.review {
        conditions.push("a.review IS NOT NULL".to_owned());
    }
    if !filter.states.is_empty() {
        conditions.push(format!("a.state IN ({})", in_list(&filter.states)));
    }
    let limit = filter.limit.map_or(-1, i64::from);
    let sql = format!(
        "SELECT {} FROM action a WHERE {} ORDER BY a.seq DESC LIMIT {limit}",
        action_rows::ACTION,
        conditions.join(" AND ")
    );
    let mut found = rows::all(db, &sql, rusqlite::params_from_iter(values), action_rows::action)?;
    found.reverse();
    Ok(found)
}
