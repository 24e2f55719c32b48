//! What moves an action, with what is known of it by then; and what an answer of the other side comes to.

use super::answer::{Answer, Reading};
use super::state::ActionEvent;
use crate::domain::failure::Code;
use crate::domain::quantity::UtcMs;

/// A move of an action along its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionMove {
    /// By what.
    pub event: ActionEvent,
    /// What is known with it.
    pub facts: ActionFacts,
}

impl ActionMove {
    /// A move of which nothing else is known.
    pub fn new(event: ActionEvent) -> Self {
        Self { event, facts: ActionFacts::default() }
    }
}

/// What is known with a move. Why it stands there, when to go on and who must look belong to the state: what is not said is
/// cleared. What the other side said stays until something else is said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActionFacts {
    /// Why, if it did not go well.
    pub code: Option<Code>,
    /// The same in words.
    pub message: Option<String>,
    /// When it may be tried again, or is worth asking about.
    pub retry_at: Option<UtcMs>,
    /// Why a person must look.
    pub review: Option<String>,
    /// Who.
    pub owner: Option<String>,
    /// Until when.
    pub due: Option<UtcMs>,
    /// The other side's name of it. Stays.
    pub reference: Option<String>,
    /// What the other side said. Stays.
    pub summary: Option<String>,
    /// From when an empty answer to a query is evidence. Stays.
    pub query_from: Option<UtcMs>,
    /// The last fact that is confirmed, in words. Stays.
    pub last_fact: Option<String>,
}

impl ActionFacts {
    /// These, and where they say nothing the other ones.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            code: self.code.or(other.code),
            message: self.message.or(other.message),
            retry_at: self.retry_at.or(other.retry_at),
            review: self.review.or(other.review),
            owner: self.owner.or(other.owner),
            due: self.due.or(other.due),
            reference: self.reference.or(other.reference),
            summary: self.summary.or(other.summary),
            query_from: self.query_from.or(other.query_from),
            last_fact: self.last_fact.or(other.last_fact),
        }
    }
}

impl Answer {
    /// What it does to an action that was sent. An answer that proves nothing never comes to a failure (R-A7).
    pub fn event(&self) -> ActionEvent {
        match self {
            Self::Done { .. } => ActionEvent::Succeed,
            Self::Accepted { .. } => ActionEvent::Accept,
            Self::Refused { .. } => ActionEvent::Fail,
            Self::Unknown { .. } => ActionEvent::LoseOutcome,
        }
    }

    /// What is known with it, at the time of the answer.
    pub fn facts(&self, now: UtcMs) -> ActionFacts {
        let none = ActionFacts::default();
        match self.clone() {
            Self::Done { reference, message } => {
                let last_fact = Some("the other side said that it is done".to_owned());
                ActionFacts { reference, summary: message, last_fact, ..none }
            }
            Self::Accepted { reference, look_again } => {
                let retry_at = look_again.map(|wait| now.plus(wait));
                let last_fact = Some("the other side accepted it".to_owned());
                ActionFacts { retry_at, reference, last_fact, ..none }
            }
            Self::Refused { code, message, retry_after, .. } => {
                let retry_at = retry_after.map(|wait| now.plus(wait));
                let last_fact = Some("it is certain that nothing happened".to_owned());
                ActionFacts { code: Some(code), message: Some(message), retry_at, last_fact, ..none }
            }
            Self::Unknown { code, message, retry_after, .. } => {
                let retry_at = retry_after.map(|wait| now.plus(wait));
                ActionFacts { code: Some(code), message: Some(message), retry_at, ..none }
            }
        }
    }

    /// The same as something that was seen: how the answer of a sender who had lost the right to it is kept.
    pub fn as_reading(&self) -> Reading {
        match self.clone() {
            Self::Done { reference, .. } => Reading::Succeeded { reference },
            Self::Accepted { reference, .. } => Reading::InProgress { reference },
            Self::Refused { message, .. } => Reading::Failed { message },
            Self::Unknown { message, retry_after, .. } => Reading::Unclear { message, retry_after },
        }
    }
}
