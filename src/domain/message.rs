//! Messages: events that somebody outside is to hear of (R-E3). A message is an event and has its id; which events are messages
//! is decided here alone, so that none is forgotten where it is written.

use super::event::EventKind;
use super::ids::EventId;
use super::machine::Word as _;
use super::quantity::UtcMs;
use super::run::RunStatus;

/// States of a run in which it goes on by itself, or in a moment: nobody is told of them.
const UNDER_WAY: &[RunStatus] = &[RunStatus::Pending, RunStatus::Running, RunStatus::Retrying, RunStatus::Interrupted];

/// A message, as it waits for its delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRecord {
    /// The event, and the message's own id: the same with every delivery.
    pub event: EventId,
    /// The chain of the event: a run, or the home.
    pub chain: String,
    /// Its place among the messages of that chain, from 1.
    pub ordinal: u64,
    /// What happened.
    pub kind: EventKind,
    /// The event's body.
    pub body: String,
    /// When it happened.
    pub at: UtcMs,
    /// How often its delivery failed.
    pub tries: u32,
    /// When it was delivered.
    pub delivered_at: Option<UtcMs>,
}

/// Whether an event is a message; `to` is the state that it led to, if it led to one. Told are runs that have come to rest or
/// wait for a person, and everything about side effects that changes their state.
pub fn is_message(kind: EventKind, to: Option<&str>) -> bool {
    match kind {
        EventKind::RunMoved => to.is_some_and(|to| !UNDER_WAY.iter().any(|status| status.word() == to)),
        EventKind::ActionMoved
        | EventKind::ApprovalAsked
        | EventKind::ApprovalDecided
        | EventKind::ReleaseMade
        | EventKind::DeploymentMoved => true,
        _ => false,
    }
}
