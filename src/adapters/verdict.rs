//! What a status or exit code means by the contract, as an answer.

use crate::domain::action::contract::Meaning;
use crate::domain::action::{Answer, Reading};
use crate::domain::failure::Code;
use crate::domain::quantity::Millis;

/// The longest text of the other side that is passed on, in characters.
const LONGEST: usize = 300;

/// What the other side said beside its status.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The status, for people: `answered 409`.
    pub(super) status: String,
    /// Its name of the effect.
    pub(super) reference: Option<String>,
    /// In words.
    pub(super) message: Option<String>,
    /// How long it wants to be left alone.
    pub(super) retry_after: Option<Millis>,
}

/// Codes for what the meaning alone does not say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Codes {
    /// Of a refusal.
    pub(super) refused: Code,
    /// Of an unknown outcome.
    pub(super) unknown: Code,
}

/// The answer that a meaning stands for.
pub(super) fn answer(meaning: Meaning, said: Said, codes: Codes) -> Answer {
    let words = said.words();
    let refuse = |code: Code| Answer::Refused {
        code,
        message: words.clone(),
        retryable: code.entry().retryable,
        retry_after: said.retry_after,
    };
    let unknown = |in_progress: bool| Answer::Unknown {
        code: codes.unknown,
        message: words.clone(),
        in_progress,
        retry_after: said.retry_after,
    };
    match meaning {
        Meaning::Succeeded => Answer::Done { reference: said.reference, message: said.message.as_deref().map(shown) },
        Meaning::AlreadyDone => Answer::Done {
            reference: said.reference,
            message: Some(format!("it had been done before under the same key: {words}")),
        },
        Meaning::InProgress => Answer::Accepted { reference: said.reference, look_again: said.retry_after },
        Meaning::SameKeyInProgress => unknown(true),
        Meaning::KeyConflict => refuse(Code::IdempotencyKeyReused),
        Meaning::Refused => refuse(codes.refused),
        Meaning::RefusedForNow => refuse(Code::TemporaryProviderError),
        Meaning::RateLimit => refuse(Code::RateLimit),
        Meaning::Unknown => unknown(false),
    }
}

impl Said {
    fn words(&self) -> String {
        match &self.message {
            Some(message) => format!("{}: {}", self.status, shown(message)),
            None => self.status.clone(),
        }
    }
}

/// Nothing happened. Whether the same may be sent again is said by the code, as everywhere.
pub(super) fn refused(code: Code, message: impl Into<String>) -> Answer {
    Answer::Refused { code, message: message.into(), retryable: code.entry().retryable, retry_after: None }
}

/// It may have happened.
pub(super) fn unknown(code: Code, message: impl Into<String>) -> Answer {
    Answer::Unknown { code, message: message.into(), in_progress: false, retry_after: None }
}

/// The question was not answered.
pub(super) fn unclear(message: impl Into<String>) -> Reading {
    Reading::Unclear { message: message.into(), retry_after: None }
}

/// A text of the other side: short, in one line, without what nobody sees.
pub(super) fn shown(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let short: String = text.chars().take(LONGEST).map(visible).collect();
    if text.chars().nth(LONGEST).is_some() { format!("{short}…") } else { short }
}
