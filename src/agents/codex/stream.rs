//! One line of `codex exec --json` as a value. Keeps nothing between lines and decides nothing.
//!
//! Lines are parsed to a JSON value first: `web_search` items carry the key `id` twice, which a typed parser refuses.

use serde_json::Value;

use super::super::wording::one_line;
use crate::domain::task::CommandLine;

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Line {
    /// The conversation's id.
    Thread(String),
    /// The model was asked.
    TurnStarted,
    /// The agent said something.
    Message(String),
    /// A warning: an `error` item, or an `error` line, which is never final.
    Notice(String),
    /// A tool that stdout shows; not all are.
    ToolBegun(Tool),
    /// It came back.
    ToolEnded(Tool),
    /// The turn is over.
    Completed(Totals),
    /// The turn failed.
    Failed(String),
    /// Anything else, of today or of tomorrow.
    Unknown,
}

/// A tool as stdout shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    /// Unique within one execution.
    pub id: String,
    /// The item's type.
    pub name: String,
    /// For people.
    pub summary: String,
    /// The command line, where it runs one.
    pub command: Option<CommandLine>,
    /// Whether it worked, where it says so.
    pub ok: Option<bool>,
}

/// Tokens of the whole conversation, earlier executions included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// All input.
    pub input: u64,
    /// The cached part.
    pub cached: u64,
    /// All output.
    pub output: u64,
}

/// Reads one line.
pub(crate) fn read(line: &[u8]) -> Line {
    let Ok(value) = serde_json::from_slice::<Value>(line) else { return Line::Unknown };
    match text(&value, "type") {
        "thread.started" => Line::Thread(text(&value, "thread_id").to_owned()),
        "turn.started" => Line::TurnStarted,
        "turn.completed" => Line::Completed(totals(&value["usage"])),
        "turn.failed" => Line::Failed(text(&value["error"], "message").to_owned()),
        "error" => Line::Notice(text(&value, "message").to_owned()),
        "item.started" => item(&value["item"], false),
        "item.completed" => item(&value["item"], true),
        _ => Line::Unknown,
    }
}

fn item(item: &Value, done: bool) -> Line {
    match (text(item, "type"), done) {
        ("agent_message", true) => Line::Message(text(item, "text").to_owned()),
        ("error", true) => Line::Notice(text(item, "message").to_owned()),
        ("command_execution" | "file_change" | "mcp_tool_call" | "collab_tool_call" | "web_search", _) => {
            let tool = tool(item);
            if done { Line::ToolEnded(tool) } else { Line::ToolBegun(tool) }
        }
        _ => Line::Unknown,
    }
}

fn tool(item: &Value) -> Tool {
    let name = text(item, "type").to_owned();
    let path = |change: &Value| text(change, "path").to_owned();
    let summary = match name.as_str() {
        "command_execution" => text(item, "command").to_owned(),
        "file_change" => item["changes"].as_array().into_iter().flatten().map(path).collect::<Vec<_>>().join(" "),
        "web_search" => text(item, "query").to_owned(),
        _ => text(item, "tool").to_owned(),
    };
    let ok = match (item["exit_code"].as_i64(), text(item, "status")) {
        (Some(code), _) => Some(code == 0),
        (None, "completed") => Some(true),
        (None, "failed" | "declined") => Some(false),
        _ => None,
    };
    let command = (name == "command_execution").then(|| CommandLine::Shell(summary.clone()));
    Tool { id: text(item, "id").to_owned(), name, summary: one_line(&summary, 200), command, ok }
}

fn totals(usage: &Value) -> Totals {
    let number = |key: &str| usage[key].as_u64().unwrap_or(0);
    Totals { input: number("input_tokens"), cached: number("cached_input_tokens"), output: number("output_tokens") }
}

/// A text field; empty when it is missing or no text.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_key_is_no_obstacle() {
        let line = br#"{"type":"item.completed","item":{"id":"item_1","type":"web_search","id":"ws_1","query":"q"}}"#;
        assert!(matches!(read(line), Line::ToolEnded(tool) if tool.id == "ws_1" && tool.summary == "q"));
    }

    #[test]
    fn error_lines_are_notices_and_only_turn_failed_is_a_failure() {
        let error = br#"{"type":"error","message":"Reconnecting... 1/5"}"#;
        assert_eq!(read(error), Line::Notice("Reconnecting... 1/5".to_owned()));
        let failed = br#"{"type":"turn.failed","error":{"message":"no"}}"#;
        assert_eq!(read(failed), Line::Failed("no".to_owned()));
    }

    #[test]
    fn the_unknown_is_let_through() {
        for line in
            ["", "noise", "[]", "{}", r#"{"type":5}"#, r#"{"type":"item.started"}"#, r#"{"type":"item.updated"}"#]
        {
            assert_eq!(read(line.as_bytes()), Line::Unknown, "{line}");
        }
    }
}
