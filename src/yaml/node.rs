//! What the first pass saw: a tree in which every key and value knows its place. Texts stay as they were written, so an
//! amount such as `0.10` is never a float.

use super::error::Position;

/// How a scalar was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without quotes.
    Plain,
    /// In quotes or as a block.
    Quoted,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where it begins.
    pub position: Position,
    /// What it is.
    pub kind: NodeKind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A text, number or truth value, as it was written.
    Scalar(String, Style),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the file.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub position: Position,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar(text, _) => Some(text),
            _ => None,
        }
    }

    /// The items of a list; none for anything else.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            _ => &[],
        }
    }

    /// The entries of a map; none for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// One entry by its key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|e| e.key == key)
    }

    /// As JSON with sorted keys: plain `true` and `false` are truth values, everything else is its text.
    pub fn canonical(&self) -> serde_json::Value {
        match &self.kind {
            NodeKind::Scalar(text, Style::Plain) if text == "true" => true.into(),
            NodeKind::Scalar(text, Style::Plain) if text == "false" => false.into(),
            NodeKind::Scalar(text, _) => text.clone().into(),
            NodeKind::List(items) => items.iter().map(Self::canonical).collect(),
            NodeKind::Map(entries) => entries.iter().map(|e| (e.key.clone(), e.value.canonical())).collect(),
        }
    }
}
