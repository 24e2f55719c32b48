//! The second pass: serde structs from the text, and serde's errors in the words of a person. Checks also that the
//! parser behind serde saw the same document as the first pass did.

use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::document::Document;
use super::error::{Position, YamlError};
use super::nearest::nearest;
use super::node::{Node, NodeKind};

impl Document {
    /// The document as a value. Unknown keys are errors where `T` says so.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, YamlError> {
        match self.texts.iter().next() {
            Some((file, text)) if self.pristine => self.typed(file, text),
            _ => serde_yaml::from_value(value(&self.root)).map_err(|e| self.explained(&e, &self.root.position.file)),
        }
    }

    fn typed<T: DeserializeOwned>(&self, file: &str, text: &str) -> Result<T, YamlError> {
        let seen: Value = serde_yaml::from_str(text).map_err(|e| self.explained(&e, file))?;
        if let Some(node) = disagreement(&self.root, &seen) {
            let message = "this can be read in two ways; write it more plainly, with quotes";
            return Err(self.error(node.position.clone(), message));
        }
        serde_yaml::from_str(text).map_err(|e| self.explained(&e, file))
    }

    fn explained(&self, error: &serde_yaml::Error, file: &str) -> YamlError {
        let position = match error.location() {
            Some(at) => Position { file: file.into(), line: at.line(), column: at.column() },
            None => Position::start(file),
        };
        let full = error.to_string();
        // serde_yaml appends the place to its text; it stands before ours.
        let message = full.rfind(" at line ").map_or(full.as_str(), |end| &full[..end]);
        let (message, near) = reworded(message);
        self.error(position, message).with_nearest(near.as_deref())
    }
}

/// A message of serde in the words of the documentation, and the nearest valid key.
fn reworded(message: &str) -> (String, Option<String>) {
    if let Some((place, name, expected)) = split_unknown(message) {
        let near = nearest(name, expected.iter().copied()).map(ToOwned::to_owned);
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        let known = if near.is_some() { String::new() } else { format!("; known are {}", expected.join(", ")) };
        return (format!("unknown key `{name}`{place}{known}"), near);
    }
    let message = message
        .replace("missing field", "missing key")
        .replace("a sequence", "a list")
        .replace("a boolean", "true or false");
    (message.replace("invalid type: ", "found ").replace("sequence", "list"), None)
}

/// Takes serde's message about an unknown field apart: place, name, expected names.
fn split_unknown(message: &str) -> Option<(&str, &str, Vec<&str>)> {
    let (place, rest) = message.split_once("unknown field `")?;
    let (name, expected) = rest.split_once('`')?;
    let expected = expected.split('`').skip(1).step_by(2).collect();
    Some((place.trim_end().trim_end_matches(':'), name, expected))
}

/// The first node that the other parser understood otherwise. Two parsers that disagree about a policy are how a rule
/// is smuggled in.
fn disagreement<'n>(node: &'n Node, seen: &Value) -> Option<&'n Node> {
    match (&node.kind, seen) {
        (NodeKind::Scalar(text, _), Value::String(other)) => (text != other).then_some(node),
        (NodeKind::Scalar(..), Value::Null | Value::Bool(_) | Value::Number(_)) => None,
        (NodeKind::List(items), Value::Sequence(others)) if items.len() == others.len() => {
            items.iter().zip(others).find_map(|(item, other)| disagreement(item, other))
        }
        (NodeKind::Map(entries), Value::Mapping(others)) if entries.len() == others.len() => entries
            .iter()
            .find_map(|entry| others.get(entry.key.as_str()).map_or(Some(node), |v| disagreement(&entry.value, v))),
        _ => Some(node),
    }
}

/// A merged tree as serde reads it. Scalars stay texts: every field of ours reads its value from text.
fn value(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Scalar(text, _) => Value::String(text.clone()),
        NodeKind::List(items) => Value::Sequence(items.iter().map(value).collect()),
        NodeKind::Map(entries) => {
            Value::Mapping(entries.iter().map(|e| (Value::String(e.key.clone()), value(&e.value))).collect())
        }
    }
}
