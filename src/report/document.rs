//! How a JSON document is written: it begins with its schema (contract §6), so that a reader knows from the first bytes what
//! it has. The other fields come sorted by name. What is in them is made elsewhere.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

/// For a file or a person: indented, with a line end.
pub fn pretty(document: &Value) -> String {
    finish(serde_json::to_string_pretty(&SchemaFirst(document)))
}

/// For a stream of documents: one line, with its end.
pub fn line(document: &Value) -> String {
    finish(serde_json::to_string(&SchemaFirst(document)))
}

/// Values have text keys and finite numbers only, so that writing one cannot fail.
fn finish(text: Result<String, serde_json::Error>) -> String {
    text.unwrap_or_default() + "\n"
}

struct SchemaFirst<'a>(&'a Value);

impl Serialize for SchemaFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => schema_first(fields, serializer),
            other => other.serialize(serializer),
        }
    }
}

fn schema_first<S: Serializer>(fields: &Map<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(fields.len()))?;
    if let Some(schema) = fields.get("schema") {
        map.serialize_entry("schema", schema)?;
    }
    for (name, value) in fields.iter().filter(|(name, _)| *name != "schema") {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn r_u2_every_document_begins_with_its_schema() {
        let document = json!({ "actions": [], "schema": "agentrun/run/1", "zebra": { "b": 1, "a": 2 } });
        assert_eq!(line(&document), "{\"schema\":\"agentrun/run/1\",\"actions\":[],\"zebra\":{\"a\":2,\"b\":1}}\n");
        assert!(pretty(&document).starts_with("{\n  \"schema\": \"agentrun/run/1\",\n  \"actions\": []"));
        assert_eq!(serde_json::from_str::<Value>(&pretty(&document)).unwrap(), document);
    }
}
