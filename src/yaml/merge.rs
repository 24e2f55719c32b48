//! Several files as one document: maps merge by key, the lists that are named append, everything else is replaced by
//! the later file. Every value keeps the place where it was written.

use std::collections::HashMap;

use super::document::Document;
use super::node::{Entry, Node, NodeKind};

impl Document {
    /// `over` laid over this document. The top-level lists named in `append` are continued instead of replaced.
    #[must_use]
    pub fn overlaid(self, over: Self, append: &[&str]) -> Self {
        let mut texts = self.texts;
        texts.extend(over.texts);
        Self { root: merge(self.root, over.root, append), texts, pristine: false }
    }

    /// This document without some top-level keys.
    #[must_use]
    pub fn without(mut self, keys: &[&str]) -> Self {
        self.pristine = false;
        if let NodeKind::Map(entries) = &mut self.root.kind {
            entries.retain(|e| !keys.contains(&e.key.as_str()));
        }
        self
    }
}

fn merge(base: Node, over: Node, append: &[&str]) -> Node {
    match (base.kind, over.kind) {
        (NodeKind::Map(base), NodeKind::Map(entries)) => {
            Node { position: over.position, kind: NodeKind::Map(merge_entries(base, entries, append)) }
        }
        (_, kind) => Node { position: over.position, kind },
    }
}

fn merge_entries(mut base: Vec<Entry>, over: Vec<Entry>, append: &[&str]) -> Vec<Entry> {
    let mut places: HashMap<String, usize> = base.iter().enumerate().map(|(i, e)| (e.key.clone(), i)).collect();
    for mut entry in over {
        let Some(place) = places.get(&entry.key).copied() else {
            places.insert(entry.key.clone(), base.len());
            base.push(entry);
            continue;
        };
        let old = base[place].value.clone();
        let continued = append.contains(&entry.key.as_str());
        entry.value = if continued { appended(old, entry.value) } else { merge(old, entry.value, &[]) };
        base[place] = entry;
    }
    base
}

fn appended(base: Node, over: Node) -> Node {
    match (base.kind, over.kind) {
        (NodeKind::List(mut items), NodeKind::List(more)) => {
            items.extend(more);
            Node { position: over.position, kind: NodeKind::List(items) }
        }
        (_, kind) => Node { position: over.position, kind },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, text: &str) -> Document {
        Document::read(file, text.as_bytes()).unwrap()
    }

    #[test]
    fn maps_merge_named_lists_append_the_rest_is_replaced() {
        let base = read("base.yml", "a: {x: '1', y: '2'}\nrules: [p]\nenv: [A]\n");
        let over = read("own.yml", "a: {y: '3'}\nrules: [q]\nenv: [B]\n");
        let merged = base.overlaid(over, &["rules"]);
        let json = r#"{"a":{"x":"1","y":"3"},"env":["B"],"rules":["p","q"]}"#;
        assert_eq!(merged.root().canonical().to_string(), json);
        assert_eq!(merged.at(&["a".into(), "x".into()]).to_string(), "base.yml:1:8");
        assert_eq!(merged.at(&["a".into(), "y".into()]).to_string(), "own.yml:1:8");
        assert_eq!(merged.at(&["rules".into(), 0.into()]).to_string(), "base.yml:2:9");
    }
}
