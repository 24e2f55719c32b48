//! `agentrun mcp`: a server of the Model Context Protocol over standard input and output, one JSON-RPC message a line. It
//! answers one message after the other and ends with its input.

use std::io::{BufRead as _, Read as _};

use serde_json::{Value, json};

use super::mcp_tools::descriptions;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::{Code, Exit};
use crate::domain::machine::Word as _;
use crate::ops::inside::Inside;
use crate::ops::mcp::{Caller, Tool, call};
use crate::report::document;

/// The versions of the protocol that differ in nothing that is said here, the newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// The longest message. A longer one can be no request: the input of an action is smaller.
const LONGEST: u64 = 1 << 20;

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const METHOD_NOT_FOUND: i32 = -32_601;
const INVALID_PARAMS: i32 = -32_602;

/// What the model is told of the server.
const INSTRUCTIONS: &str = "agentrun carries out side effects (deployments, notifications, exports, …) once and on record. \
    Ask for one with request_action instead of doing it yourself. Asking again for the same gives the same record and does \
    nothing more. Follow the `advice` of each answer: never repeat what is `unknown`; when it waits for a person, go on with \
    other work or end.";

/// Why a request has no result.
struct Refusal(i32, String);

/// Runs it.
pub fn run(session: &mut Session) -> Result<Exit, CliError> {
    let inside = Inside::find(&session.vars)?;
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    while session.say.is_read() {
        line.clear();
        let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        if read as u64 == LONGEST && !line.ends_with(b"\n") {
            input.skip_until(b'\n').map_err(unreadable)?;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let caller = Caller { inside: &inside, who: &session.who, dir: &session.dir, vars: &session.vars };
        if let Some(answer) = answer(&caller, &line) {
            session.say.json_line(&answer);
        }
    }
    Ok(Exit::Ok)
}

fn unreadable(error: std::io::Error) -> CliError {
    CliError::new(Code::Internal, format!("standard input cannot be read: {error}"))
}

/// The answer to one message; none to a notification or to what answers nothing.
fn answer(caller: &Caller<'_>, line: &[u8]) -> Option<Value> {
    let message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => return Some(refused(&Value::Null, &Refusal(PARSE_ERROR, format!("this is no JSON: {error}")))),
    };
    let id = message.get("id").filter(|id| id.is_string() || id.is_number());
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        // The answer to a request that was never made is let pass.
        let is_answer = id.is_some() && (message.get("result").is_some() || message.get("error").is_some());
        let refusal = Refusal(INVALID_REQUEST, "this is no request: one object with a `method` a line".to_owned());
        return (!is_answer).then(|| refused(id.unwrap_or(&Value::Null), &refusal));
    };
    let id = id?;
    let nothing = json!({});
    Some(match result(caller, method, message.get("params").unwrap_or(&nothing)) {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(refusal) => refused(id, &refusal),
    })
}

fn refused(id: &Value, Refusal(code, message): &Refusal) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn result(caller: &Caller<'_>, method: &str, params: &Value) -> Result<Value, Refusal> {
    match method {
        "initialize" => Ok(initialized(params)),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": descriptions() })),
        "tools/call" => called(caller, params),
        other => Err(Refusal(METHOD_NOT_FOUND, format!("there is no method `{other}`"))),
    }
}

fn initialized(params: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str().unwrap_or_default();
    let version = VERSIONS.into_iter().find(|version| *version == wanted).unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "agentrun", "version": env!("CARGO_PKG_VERSION") },
        "instructions": INSTRUCTIONS,
    })
}

/// What a tool could not do is a result that the model reads, not an error of the protocol.
fn called(caller: &Caller<'_>, params: &Value) -> Result<Value, Refusal> {
    let name = params["name"].as_str().unwrap_or_default();
    let unknown = || Refusal(INVALID_PARAMS, format!("there is no tool `{name}`"));
    let tool = Tool::from_word(name).ok_or_else(unknown)?;
    let arguments = params.get("arguments").filter(|arguments| !arguments.is_null());
    let arguments = arguments.cloned().unwrap_or_else(|| json!({}));
    let conversation = params["_meta"]["threadId"].as_str().map(ToOwned::to_owned);
    let (document, is_error) = match call(caller, tool, (arguments, conversation)) {
        Ok(document) => (document, false),
        Err(error) => (CliError::from(error).document(), true),
    };
    let text = document::line(&document).trim_end().to_owned();
    Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": is_error }))
}
