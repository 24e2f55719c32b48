//! A text that passed the first reading: its tree, its places, its errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::{Position, YamlError};
use super::node::Node;
use super::{Author, bytes, events};

/// One part of the way to a value: a key or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seg<'a> {
    /// A key of a map.
    Key(&'a str),
    /// An index of a list, from 0.
    Index(usize),
}

impl<'a> From<&'a str> for Seg<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Seg<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// A document and the text of every file that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub(super) root: Node,
    pub(super) texts: BTreeMap<Arc<str>, Arc<str>>,
    /// False once the tree is no longer what one text says.
    pub(super) pristine: bool,
}

impl Document {
    /// Reads a text strictly. `file` is how errors name it.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, YamlError> {
        Self::read_with(file, bytes, Author::Person)
    }

    /// The same, also for files that this program wrote.
    pub fn read_with(file: &str, bytes: &[u8], author: Author) -> Result<Self, YamlError> {
        let mut text = bytes::text(file, bytes)?.to_owned();
        // A block text that ends with the file keeps its last line end in one parser and not in the other.
        if !text.ends_with(['\n', '\r']) {
            text.push('\n');
        }
        let root = events::tree(file, &text, author)?;
        Ok(Self { root, texts: BTreeMap::from([(file.into(), text.into())]), pristine: true })
    }

    /// The map that the document is.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The value at a path.
    pub fn find(&self, path: &[Seg<'_>]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, seg| child(node, *seg))
    }

    /// The text at a path.
    pub fn text(&self, path: &[Seg<'_>]) -> Option<&str> {
        self.find(path)?.text()
    }

    /// Where the value at a path stands; for one that is not there, where its nearest parent does.
    pub fn at(&self, path: &[Seg<'_>]) -> Position {
        let mut node = &self.root;
        for seg in path {
            match child(node, *seg) {
                Some(next) => node = next,
                None => break,
            }
        }
        node.position.clone()
    }

    /// Where the key at a path stands; for an item of a list, where the item does.
    pub fn key_at(&self, path: &[Seg<'_>]) -> Position {
        let entry = match path {
            [parent @ .., Seg::Key(key)] => self.find(parent).and_then(|node| node.entry(key)),
            _ => None,
        };
        entry.map_or_else(|| self.at(path), |e| e.position.clone())
    }

    /// An error at a place of this document, with its excerpt.
    pub fn error(&self, at: Position, message: impl Into<String>) -> YamlError {
        let text = self.texts.get(&at.file).cloned();
        YamlError::new(at, message, text.as_deref())
    }
}

fn child<'n>(node: &'n Node, seg: Seg<'_>) -> Option<&'n Node> {
    match seg {
        Seg::Key(key) => node.entry(key).map(|e| &e.value),
        Seg::Index(index) => node.items().get(index),
    }
}
