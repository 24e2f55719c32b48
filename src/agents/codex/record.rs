//! One line of a session file as a value. The format is Codex's own and changes: unknown kinds are let through, missing
//! fields are empty. Keeps nothing between lines.

use serde_json::Value;

use super::super::wording::one_line;
use super::stream::text;
use crate::domain::task::CommandLine;

/// A line with its time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// Milliseconds since the epoch.
    pub at: Option<i64>,
    /// What it says.
    pub fact: Fact,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    /// The first line: whose file this is.
    Meta {
        /// The thread.
        thread: String,
        /// The family: a sub-agent has its parent's.
        session: String,
        /// Where it works.
        folder: String,
        /// Whether `codex exec` began it, not a person at a terminal and not another agent.
        by_exec: bool,
    },
    /// A turn began.
    TurnStarted,
    /// A model reply was paid for; written before its tools run.
    Usage(Reply),
    /// The model called a tool.
    Call {
        /// Pairs it with its output.
        call: String,
        /// The tool.
        name: String,
        /// For people.
        summary: String,
        /// The command line, where it runs one.
        command: Option<CommandLine>,
        /// Calls of the model's own service are over when they are written down.
        over: bool,
    },
    /// The tool's answer to the model.
    Output {
        /// The call.
        call: String,
        /// The text, or what is left of it.
        text: String,
    },
    /// A command, patch or MCP call came to its end.
    Done {
        /// The call, or an id of its own inside a script.
        call: String,
        /// Whether it worked.
        ok: bool,
    },
    /// When the quota that is used up most is full again: seconds since the epoch.
    Reset(Option<i64>),
    /// The turn is over.
    Complete {
        /// The last word.
        message: Option<String>,
        /// Codex's sentence and class.
        error: Option<(String, Value)>,
    },
    /// The turn was cut by a signal.
    Aborted,
    /// Anything else.
    Unknown,
}

/// A paid model reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// The thread that paid.
    pub thread: String,
    /// The provider's id of the reply.
    pub response: String,
    /// Its figures, as they came: `input_tokens` and the like.
    pub usage: Value,
}

/// Reads one line; `None` when it is no record, such as a torn one.
pub(crate) fn read(line: &[u8]) -> Option<Record> {
    let value = serde_json::from_slice::<Value>(line).ok()?;
    let payload = value.get("payload")?;
    let at = text(&value, "timestamp").parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond);
    let fact = match text(&value, "type") {
        "session_meta" => meta(payload),
        "token_usage_record" => usage(payload),
        "response_item" => item(payload),
        "event_msg" => event(payload),
        _ => Fact::Unknown,
    };
    Some(Record { at, fact })
}

fn meta(payload: &Value) -> Fact {
    let thread = text(payload, "id").to_owned();
    let session = match text(payload, "session_id") {
        "" => thread.clone(),
        session => session.to_owned(),
    };
    let by_exec = text(payload, "source") == "exec";
    Fact::Meta { thread, session, folder: text(payload, "cwd").to_owned(), by_exec }
}

fn usage(payload: &Value) -> Fact {
    Fact::Usage(Reply {
        thread: text(payload, "thread_id").to_owned(),
        response: text(payload, "response_id").to_owned(),
        usage: payload["usage"].clone(),
    })
}

fn item(payload: &Value) -> Fact {
    let call = match text(payload, "call_id") {
        "" => text(payload, "id"),
        call => call,
    };
    let call = call.to_owned();
    match text(payload, "type") {
        "function_call" | "custom_tool_call" => {
            let name = match text(payload, "namespace") {
                "" => text(payload, "name").to_owned(),
                space => format!("{space}.{}", text(payload, "name")),
            };
            let command = command(&name, payload);
            Fact::Call { call, name, summary: summary(payload), command, over: false }
        }
        "local_shell_call" => {
            let summary = words(&payload["action"]["command"]);
            let command = command_line(&payload["action"]["command"]);
            Fact::Call { call, name: "local_shell".to_owned(), summary, command, over: false }
        }
        "web_search_call" => {
            let summary = one_line(text(&payload["action"], "query"), 200);
            Fact::Call { call, name: "web_search".to_owned(), summary, command: None, over: true }
        }
        "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
            Fact::Output { call, text: output(&payload["output"]) }
        }
        _ => Fact::Unknown,
    }
}

/// What a call does, for people: the command where there is one, else the arguments as they are.
fn summary(payload: &Value) -> String {
    let raw = raw(payload);
    let Ok(arguments) = serde_json::from_str::<Value>(raw) else { return one_line(raw, 200) };
    match (&arguments["cmd"], &arguments["command"]) {
        (Value::String(command), _) | (_, Value::String(command)) => one_line(command, 200),
        (_, list @ Value::Array(_)) => words(list),
        _ => one_line(raw, 200),
    }
}

fn raw(payload: &Value) -> &str {
    match text(payload, "arguments") {
        "" => text(payload, "input"),
        arguments => arguments,
    }
}

/// The command line that a call runs, if it runs one.
fn command(tool: &str, payload: &Value) -> Option<CommandLine> {
    let raw = raw(payload);
    match serde_json::from_str::<Value>(raw) {
        Ok(arguments) => command_line(&arguments["cmd"]).or_else(|| command_line(&arguments["command"])),
        // A script of the agent's own tools is JavaScript; a patch is data.
        Err(_) if tool == "exec" => Some(CommandLine::List(vec!["node".into(), "-e".into(), raw.to_owned()])),
        Err(_) => None,
    }
}

fn command_line(value: &Value) -> Option<CommandLine> {
    match value {
        Value::String(line) => Some(CommandLine::Shell(line.clone())),
        Value::Array(list) => {
            let words = list.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
            words.map(CommandLine::List)
        }
        _ => None,
    }
}

fn words(list: &Value) -> String {
    let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    one_line(&words.join(" "), 200)
}

/// The beginning of an output: a text, or a list of texts.
fn output(value: &Value) -> String {
    let first = value.as_array().and_then(|list| list.first()).map(|part| text(part, "text"));
    let whole = value.as_str().or(first).or_else(|| value.get("content").and_then(Value::as_str));
    super::super::wording::clip(whole.unwrap_or(""), 400)
}

fn event(payload: &Value) -> Fact {
    match text(payload, "type") {
        "task_started" => Fact::TurnStarted,
        "task_complete" => {
            let error = payload.get("error").filter(|error| error.is_object());
            Fact::Complete {
                message: payload["last_agent_message"].as_str().map(str::to_owned),
                error: error.map(|error| (text(error, "message").to_owned(), error["codex_error_info"].clone())),
            }
        }
        "turn_aborted" => Fact::Aborted,
        "token_count" => Fact::Reset(reset(&payload["rate_limits"])),
        "item_completed" => done(&payload["item"]),
        _ => Fact::Unknown,
    }
}

fn done(item: &Value) -> Fact {
    let kinds = ["CommandExecution", "FileChange", "McpToolCall"];
    if !kinds.contains(&text(item, "type")) {
        return Fact::Unknown;
    }
    let ok = match item["exit_code"].as_i64() {
        Some(code) => code == 0,
        None => text(item, "status") == "completed",
    };
    Fact::Done { call: text(item, "id").to_owned(), ok }
}

/// The latest end of a window that is used up; a quota is free again when all of them are.
fn reset(limits: &Value) -> Option<i64> {
    let used_up = |window: &&Value| window["used_percent"].as_f64().is_some_and(|percent| percent >= 100.0);
    let windows = [&limits["primary"], &limits["secondary"]];
    windows.iter().copied().filter(used_up).filter_map(|window| window["resets_at"].as_i64()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_foreign_lines_are_no_records() {
        for line in ["", "{\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"event_m", "[1]", "{}", "5"] {
            assert_eq!(read(line.as_bytes()), None, "{line}");
        }
        let odd = br#"{"type":"tomorrow","payload":{"type":"x"},"timestamp":"soon"}"#;
        assert_eq!(read(odd), Some(Record { at: None, fact: Fact::Unknown }));
    }

    #[test]
    fn a_used_up_quota_says_when_it_is_full_again() {
        let limits = serde_json::json!({
            "primary": {"used_percent": 100.0, "resets_at": 50}, "secondary": {"used_percent": 40.0, "resets_at": 99},
        });
        assert_eq!(reset(&limits), Some(50));
        assert_eq!(reset(&Value::Null), None);
    }
}
