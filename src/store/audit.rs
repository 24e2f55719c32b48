//! Reads the audit log (R-M6, R-M7). It checks nothing: chains are checked by `domain::event::check_chain`.

use rusqlite::ToSql;

use super::calls::EventFilter;
use super::error::Result;
use super::{Store, TENANT, rows, write};
use crate::domain::event::{ChainHead, Event};
use crate::domain::machine::Word as _;

/// The events that a command left, through the chains in which it left some.
pub(super) const OF_REQUEST: &str =
    "chain IN (SELECT chain FROM request_chain WHERE tenant = 'local' AND request_id = ?) AND request_id = ?";

impl Store {
    /// The events that a filter names, oldest first; with a limit the newest of them.
    pub fn events(&self, filter: &EventFilter) -> Result<Vec<Event>> {
        let mut conditions = vec!["tenant = ?".to_owned()];
        let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(TENANT)];
        let mut with = |condition: &str, of: Vec<Box<dyn ToSql>>| {
            conditions.push(condition.to_owned());
            values.extend(of);
        };
        if let Some(run) = &filter.run {
            with("chain = ?", vec![Box::new(run.to_string())]);
        }
        if let Some(request) = &filter.request {
            let request = request.to_string();
            with(OF_REQUEST, vec![Box::new(request.clone()), Box::new(request)]);
        }
        if let Some(kind) = filter.kind {
            with("kind = ?", vec![Box::new(kind.word())]);
        }
        if let Some(code) = filter.code {
            with("code = ?", vec![Box::new(code.word())]);
        }
        if let Some(key) = filter.key_hash {
            // What names the key itself, and everything that the run did to which it led.
            let run = "SELECT r.id FROM start_key k JOIN run r ON r.seq = k.run WHERE k.key_hash = ?";
            with(&format!("(key_hash = ? OR chain IN ({run}))"), vec![Box::new(key.0), Box::new(key.0)]);
        }
        let limit = filter.limit.map_or(-1, i64::from);
        let sql = format!(
            "SELECT {} FROM event WHERE {} ORDER BY seq DESC LIMIT {limit}",
            rows::EVENT,
            conditions.join(" AND ")
        );
        let mut events = rows::all(&self.db, &sql, rusqlite::params_from_iter(values), rows::event)?;
        events.reverse();
        Ok(events)
    }

    /// A whole chain, in order: a run's, or [`crate::domain::event::HOME_CHAIN`].
    pub fn chain(&self, chain: &str) -> Result<Vec<Event>> {
        let sql = format!("SELECT {} FROM event WHERE tenant = ?1 AND chain = ?2 ORDER BY n", rows::EVENT);
        rows::all(&self.db, &sql, (TENANT, chain), rows::event)
    }

    /// The names of all chains, in the order of their beginning.
    pub fn chains(&self) -> Result<Vec<String>> {
        // Also one whose beginning is lost.
        let sql = "SELECT chain FROM event WHERE tenant = ?1 GROUP BY chain ORDER BY min(seq)";
        rows::all(&self.db, sql, [TENANT], |row| row.take())
    }

    /// Whether a chain has this event at this place: what a manifest once said.
    pub fn chain_has(&self, chain: &str, anchor: &ChainHead) -> Result<bool> {
        let sql = "SELECT hash FROM event WHERE tenant = ?1 AND chain = ?2 AND n = ?3";
        let found = rows::first(&self.db, sql, (TENANT, chain, rows::int(anchor.count)), |row| row.hash())?;
        Ok(anchor.count == 0 || found == Some(anchor.head))
    }

    /// Where a chain ends; a chain that does not exist has no events and a head of zeros.
    pub fn chain_head(&self, chain: &str) -> Result<ChainHead> {
        write::chain_head(&self.db, chain)
    }
}
