//! The outbox (R-E3). A message is an audit event that `domain::message` says somebody outside is to hear of: it is queued by the
//! same statement list that writes the event, so it is there exactly if what it tells of is. Delivery is at least once and in
//! order within a chain; whoever consumes notes what was processed. It delivers nothing itself.

use serde_json::json;

use super::action_calls::Consumed;
use super::actions;
use super::calls::Context;
use super::error::{Result, StoreError};
use super::write::{Fact, Writer};
use super::{Store, TENANT, rows};
use crate::domain::event::{Event, EventKind, HOME_CHAIN};
use crate::domain::ids::{EventId, RunId};
use crate::domain::machine::Word as _;
use crate::domain::message::{MessageRecord, is_message};
use crate::domain::quantity::UtcMs;

const MESSAGE: &str = "event, chain, ordinal, kind, body, at, tries, delivered_at";

fn message(row: &mut rows::Fields<'_>) -> Result<MessageRecord> {
    Ok(MessageRecord {
        event: EventId::recorded(row.take::<String>()?),
        chain: row.take()?,
        ordinal: row.count()?,
        kind: row.word()?,
        body: row.take()?,
        at: UtcMs(row.take()?),
        tries: row.take()?,
        delivered_at: row.opt_time()?,
    })
}

/// Queues an event, if it is a message. `to` is the state that it led to.
pub(super) fn queue(w: &Writer<'_>, event: &Event, to: Option<&str>) -> Result<()> {
    if !is_message(event.kind, to) {
        return Ok(());
    }
    w.run(
        "INSERT INTO outbox (tenant, event, chain, ordinal, kind, body, at, tries) \
         SELECT ?1, ?2, ?3, coalesce(max(ordinal), 0) + 1, ?4, ?5, ?6, 0 FROM outbox WHERE tenant = ?1 AND chain = ?3",
        (TENANT, event.id.as_str(), &event.chain, event.kind.word(), &event.body, event.at.0),
    )?;
    Ok(())
}

impl Store {
    /// The oldest messages that are not delivered yet, those of one chain in their order. Whoever fails to deliver one leaves
    /// the rest of its chain for later.
    pub fn undelivered(&self, limit: u32) -> Result<Vec<MessageRecord>> {
        let sql = format!(
            "SELECT {MESSAGE} FROM outbox WHERE tenant = ?1 AND delivered_at IS NULL ORDER BY seq LIMIT {limit}"
        );
        rows::all(&self.db, &sql, [TENANT], message)
    }

    /// Notes that a message was delivered. Again for one that is: nothing happens.
    pub fn mark_delivered(&mut self, event: &EventId, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| {
            let found = find(w, event)?.ok_or_else(|| no_message(event))?;
            let sql = "UPDATE outbox SET delivered_at = ?2 WHERE event = ?1 AND delivered_at IS NULL";
            if w.run(sql, (event.as_str(), w.now()))? == 0 {
                return Ok(());
            }
            let body = json!({ "event": event, "ordinal": found.ordinal, "failed": found.tries });
            tell(w, &found.chain, EventKind::MessageDelivered, body)
        })
    }

    /// Counts a delivery that failed. Leaves no event: it is tried again.
    pub fn note_delivery_failure(&mut self, event: &EventId, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| {
            let touched = w.run("UPDATE outbox SET tries = tries + 1 WHERE event = ?1", [event.as_str()])?;
            if touched == 1 { Ok(()) } else { Err(no_message(event)) }
        })
    }

    /// Notes that a consumer processes a message, and says whether it has before: then it is to be skipped.
    pub fn consume(&mut self, consumer: &str, event: &EventId, ctx: &Context) -> Result<Consumed> {
        self.write(ctx, |w| {
            let chain = find(w, event)?.map_or_else(|| HOME_CHAIN.to_owned(), |message| message.chain);
            let inserted = w.run(
                "INSERT INTO consumed (tenant, consumer, event, at) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (tenant, consumer, event) DO NOTHING",
                (TENANT, consumer, event.as_str(), w.now()),
            )?;
            let answer = if inserted == 1 { Consumed::First } else { Consumed::Again };
            let body = json!({ "event": event, "consumer": consumer, "again": answer == Consumed::Again });
            tell(w, &chain, EventKind::MessageConsumed, body)?;
            Ok(answer)
        })
    }
}

fn find(w: &Writer<'_>, event: &EventId) -> Result<Option<MessageRecord>> {
    rows::first(w.db(), &format!("SELECT {MESSAGE} FROM outbox WHERE event = ?1"), [event.as_str()], message)
}

fn no_message(event: &EventId) -> StoreError {
    StoreError::NotFound { what: format!("message {event}") }
}

fn tell(w: &mut Writer<'_>, chain: &str, kind: EventKind, body: serde_json::Value) -> Result<()> {
    if chain == HOME_CHAIN {
        return w.append(&Fact { kind, run: None, attempt: None, fence: None, step: None, reason: None, body });
    }
    actions::tell_in(w, (&RunId::recorded(chain), None), (kind, None), body)
}
