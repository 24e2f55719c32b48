//! LAYER 1: the only place that names a YAML crate. Strict reading, errors that show the place, rendering.
//!
//! Reading goes twice over a text. The first pass ([`Document::read`]) sees every event and refuses what a person would
//! not see at a glance: duplicate keys, anchors, aliases, merge keys, tags, a second document, keys that are no text,
//! values that are missing. It remembers where everything stands. The second pass ([`Document::deserialize`]) is serde.
//! Both parsers must have understood the same, or the text is refused. Nothing here knows what a task or a policy is.

mod bytes;
mod document;
mod error;
mod events;
mod merge;
mod nearest;
mod node;
#[cfg(test)]
mod tests;
mod typed;

pub use document::{Document, Seg};
pub use error::{Position, RenderError, YamlError};
pub use nearest::nearest;
pub use node::{Entry, Node, NodeKind, Style};

/// The longest text that is read, in bytes. Far above any real task, policy or manifest of a person.
pub const MAX_BYTES: usize = 256 * 1024;

/// The deepest nesting. The deepest documented file has six levels.
pub const MAX_DEPTH: usize = 32;

/// Who wrote a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// A person: keys are visible ASCII texts, and one who writes `budget:` with nothing behind it meant something.
    Person,
    /// This program: a key may be any text (a path) and a value may be null.
    Program,
}

/// Writes a value as YAML.
pub fn render<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, RenderError> {
    serde_yaml::to_string(value).map_err(|e| RenderError(e.to_string()))
}
