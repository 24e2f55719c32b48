//! What the other side said: to a request, and to a question about one.

use serde::{Deserialize, Serialize};

use crate::domain::failure::Code;
use crate::domain::quantity::Millis;

/// What came of sending. An answer that proves nothing is a value, not an error (R-A7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It has happened, now or by an earlier send of the same.
    Done {
        /// The other side's name of it.
        reference: Option<String>,
        /// In words, for people; never the request's contents.
        message: Option<String>,
    },
    /// It was accepted and is not done.
    Accepted {
        /// The other side's name of it.
        reference: Option<String>,
        /// When it is worth asking.
        look_again: Option<Millis>,
    },
    /// It is certain that nothing happened.
    Refused {
        /// Why.
        code: Code,
        /// In words.
        message: String,
        /// Whether the same may be sent again (the engine's retry layer decides when). It is what the catalogue says of the code.
        retryable: bool,
        /// How long the other side wants to be left alone.
        retry_after: Option<Millis>,
    },
    /// It may have happened.
    Unknown {
        /// Why nobody knows: NETWORK_TIMEOUT, TEMPORARY_PROVIDER_ERROR, TOOL_TIMEOUT …
        code: Code,
        /// In words.
        message: String,
        /// True when the same key may be sent again after a wait: the other side said that the first is still under way.
        in_progress: bool,
        /// How long the other side wants to be left alone.
        retry_after: Option<Millis>,
    },
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reading", rename_all = "snake_case")]
pub enum Reading {
    /// It is there.
    Succeeded {
        /// The other side's name of it.
        reference: Option<String>,
    },
    /// It was tried and failed, for good.
    Failed {
        /// In words.
        message: String,
    },
    /// It is under way.
    InProgress {
        /// The other side's name of it.
        reference: Option<String>,
    },
    /// It is not there. Evidence only after the settle time, and only if a second reading agrees.
    NotFound,
    /// Several fit: a person must look.
    Several {
        /// How many.
        matches: u64,
    },
    /// The question was not answered.
    Unclear {
        /// Why.
        message: String,
        /// How long the other side wants to be left alone.
        retry_after: Option<Millis>,
    },
}
