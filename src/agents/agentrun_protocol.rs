//! The agentrun agent protocol (contract §12): JSON lines on standard output, for any program that is not one of the
//! known agents. Unknown types and broken lines are let through; numbers are believed only within reason (F46).

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;

use super::endings::{Said, verdict};
use super::figures::{Figures, Tokens, complaint, whole_text};
use super::tail::Tail;
use super::tools::Tools;
use super::wording::{clip, one_line};
use super::{
    AgentCommand, AgentEnd, AgentError, AgentRequest, InspectRequest, Inspection, Progress, Reader, ReaderRequest,
    SessionFate, program,
};
use crate::domain::agent_event::{AgentEvent, Metered};
use crate::domain::budget::{Certainty, Estimate};
use crate::domain::failure::{Code, Failure};
use crate::domain::machine::Word as _;
use crate::domain::outcome::ProcessEnd;
use crate::domain::quantity::Millis;
use crate::domain::task::{CommandLine, Protocol};
use crate::process::spec::{PoliteSignal, Stdin};

/// A dollar figure above this is no measurement.
const MOST_DOLLARS: f64 = 100_000.0;
/// A longer wait is no measurement: 31 days, the longest quota window.
const LONGEST_WAIT_S: f64 = 31.0 * 86_400.0;
/// Bytes kept of one message, and of the last word.
const MESSAGE: usize = 64 << 10;
const RESULT: usize = 256 << 10;

/// What a program may say of itself. Codes about agentrun's own records or decisions are not its to give.
const SAYABLE: &[Code] = &[
    Code::NetworkTimeout,
    Code::TemporaryProviderError,
    Code::RateLimit,
    Code::ToolTimeout,
    Code::ModelTimeout,
    Code::ValidationError,
    Code::PermissionDenied,
    Code::AuthFailed,
    Code::ResourceNotFound,
    Code::QuotaExceeded,
    Code::PaymentRequired,
    Code::ContextTooLarge,
    Code::AgentFailed,
    Code::NoResult,
    Code::BudgetExceeded,
    Code::PolicyDenied,
];

/// The policy's command line, with the prompt on standard input and named in the environment.
pub(crate) fn command(request: &AgentRequest<'_>) -> Result<AgentCommand, AgentError> {
    let mut words = request.rules.run.iter();
    let name = words.next().ok_or_else(|| AgentError::NothingToRun(request.agent.name.clone()))?;
    Ok(AgentCommand {
        program: program::find(name, request.env, request.repository)?,
        args: words.chain(&request.agent.args).map(OsString::from).collect(),
        env: environment(request),
        folders: Vec::new(),
        stdin: Stdin::File(request.prompt_file.to_owned()),
        polite: PoliteSignal::Terminate,
    })
}

/// What the protocol promises to a program.
pub(crate) fn environment(request: &AgentRequest<'_>) -> Vec<(OsString, OsString)> {
    let mut env = vec![("AGENTRUN_PROMPT_FILE".into(), request.prompt_file.into())];
    env.extend(request.session.map(|session| ("AGENTRUN_SESSION".into(), session.into())));
    env
}

/// Reads what was kept of the output: the protocol has no other records.
pub(crate) fn inspect(request: &InspectRequest<'_>) -> Result<Inspection, AgentError> {
    let mut reader = ProtocolReader::new(&request.reader);
    let mut events = Vec::new();
    if let Some(transcript) = request.transcript.filter(|path| path.exists()) {
        let poll = Tail::new(transcript.to_owned()).poll(|_, line| events.extend(reader.stdout_line(line)));
        poll.map_err(|source| AgentError::Unreadable { path: transcript.to_owned(), source })?;
    }
    let has_session = request.reader.session.is_some() || reader.has_session;
    let progress = match (&reader.result, &reader.failure) {
        (None, None) if has_session => Progress::Continuable,
        (None, None) => Progress::Lost,
        _ => Progress::Finished(reader.finish(&ProcessEnd::Exited { code: 0 }, "")),
    };
    let untold = match progress {
        Progress::Finished(_) => None,
        _ => reader.untold(&ProcessEnd::Vanished),
    };
    Ok(Inspection { events, progress, untold, last_record_at: None })
}

/// Reads one execution.
#[derive(Debug)]
pub struct ProtocolReader {
    execution: u32,
    /// `None` for a recording, which calls no model.
    prompt_bytes: Option<u64>,
    said_bytes: u64,
    begun: bool,
    has_session: bool,
    tools: Tools,
    calls: u64,
    usage: HashMap<String, Metered>,
    figures: Figures,
    result: Option<String>,
    failure: Option<Failure>,
    invalid: u64,
}

impl ProtocolReader {
    /// For one execution.
    pub fn new(request: &ReaderRequest<'_>) -> Self {
        Self {
            execution: request.execution,
            prompt_bytes: (request.protocol != Protocol::Replay).then_some(request.prompt_bytes),
            said_bytes: 0,
            begun: false,
            has_session: false,
            tools: Tools::default(),
            calls: 0,
            usage: HashMap::new(),
            figures: Figures::default(),
            result: None,
            failure: None,
            invalid: 0,
        }
    }

    fn event(&mut self, value: &Value) -> Vec<AgentEvent> {
        let text = |key: &str| value[key].as_str().unwrap_or("");
        let events = match text("type") {
            "session" => {
                self.has_session = true;
                let model = value["model"].as_str().map(str::to_owned);
                vec![AgentEvent::Session { id: clip(text("id"), 256), model }]
            }
            "message" => vec![AgentEvent::Message { text: clip(text("text"), MESSAGE) }],
            "tool_call" => vec![self.tool_call(value)],
            "tool_result" => {
                let (id, ok) = (self.of_this_execution(&clip(text("id"), 256)), value["ok"].as_bool());
                self.tools.end(&id, ok);
                vec![AgentEvent::ToolResult { id, ok }]
            }
            "usage" => self.usage(value),
            "error" => self.error(value),
            "result" => self.result(text("status"), text("text")),
            _ => return Vec::new(),
        };
        self.begun = true;
        events
    }

    /// A name that is unique within the step: what comes again in the next execution is another thing (FR-F32).
    fn of_this_execution(&self, name: &str) -> String {
        format!("{}/{name}", self.execution)
    }

    fn tool_call(&mut self, value: &Value) -> AgentEvent {
        self.calls += 1;
        let id = value["id"].as_str().map_or_else(|| format!("call-{}", self.calls), |id| clip(id, 256));
        let id = self.of_this_execution(&id);
        let input = &value["input"];
        let command = input["command"].as_str().or(input.as_str());
        let summary = match command {
            Some(command) => one_line(command, 200),
            None if input.is_null() => String::new(),
            None => one_line(&format!("{} {input}", value["name"].as_str().unwrap_or("tool")), 200),
        };
        self.tools.begin(&id);
        // A bare text is for people, unless the tool's name says that it is run.
        let is_run = input["command"].is_string() || matches!(value["name"].as_str(), Some("shell" | "bash" | "sh"));
        let command = command.filter(|_| is_run).map(|line| CommandLine::Shell(line.to_owned()));
        AgentEvent::ToolCall { id, name: one_line(value["name"].as_str().unwrap_or("tool"), 100), summary, command }
    }

    fn usage(&mut self, value: &Value) -> Vec<AgentEvent> {
        let given = value["response"].as_str().map_or_else(|| format!("#{}", self.usage.len()), |r| clip(r, 256));
        let response = self.of_this_execution(&given);
        let Tokens { input, cached, output, mut wrong } =
            self.figures.judge(&value["input"], &value["cached"], &value["output"]);
        let (cost_micros, cost_is_wrong) = cost(&value["cost_usd"]);
        wrong.extend(cost_is_wrong.then(|| format!("cost_usd {}", one_line(&value["cost_usd"].to_string(), 40))));
        let certainty = Tokens::certainty(&wrong);
        self.said_bytes = 0;
        let mut now = Metered { response: response.clone(), input, cached, output, cost_micros, certainty };
        if let Some(before) = self.usage.get(&response) {
            now = match (before.certainty, certainty) {
                (Certainty::Told, Certainty::Estimated) => before.clone(),
                (Certainty::Estimated, Certainty::Told) => now,
                _ => {
                    let shrunk = now.input < before.input || now.output < before.output;
                    wrong.extend(shrunk.then(|| "smaller than before".to_owned()));
                    larger(before, &now)
                }
            };
        }
        self.usage.insert(response, now.clone());
        let mut events = vec![AgentEvent::Usage(now)];
        if !wrong.is_empty() {
            self.invalid += 1;
            events.push(AgentEvent::Warning { text: complaint(&given, &wrong) });
        }
        events
    }

    fn error(&mut self, value: &Value) -> Vec<AgentEvent> {
        let word = value["code"].as_str().unwrap_or("");
        let message = one_line(value["message"].as_str().unwrap_or("no message"), 500);
        let retry_after = value["retry_after_s"].as_f64().and_then(seconds);
        let known = Code::from_word(word).filter(|code| SAYABLE.contains(code));
        let code = match known {
            // R-R1: a quota whose end is known is a limit that passes.
            Some(Code::QuotaExceeded) if retry_after.is_some() => Code::RateLimit,
            Some(code) => code,
            None => Code::AgentFailed,
        };
        let named =
            if known.is_some() || word.is_empty() { String::new() } else { format!("{}: ", one_line(word, 60)) };
        let failure = Failure { code, message: format!("the agent reported: {named}{message}"), retry_after };
        self.failure.get_or_insert(failure.clone());
        vec![AgentEvent::Error(failure)]
    }

    fn result(&mut self, status: &str, text: &str) -> Vec<AgentEvent> {
        let text = clip(text, RESULT);
        if status == "completed" {
            self.result = Some(text.clone());
            return vec![AgentEvent::Result { text }];
        }
        let message = format!("the agent ended with status `{}`: {}", one_line(status, 60), one_line(&text, 500));
        let failure = Failure::new(Code::AgentFailed, message);
        let first = self.failure.is_none();
        self.failure.get_or_insert(failure.clone());
        if first { vec![AgentEvent::Error(failure)] } else { Vec::new() }
    }
}

impl Reader for ProtocolReader {
    fn stdout_line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        self.said_bytes = self.said_bytes.saturating_add(line.len() as u64);
        parse(line).map(|value| self.event(&value)).unwrap_or_default()
    }

    fn side_files(&mut self) -> Vec<AgentEvent> {
        Vec::new()
    }

    fn watch(&self) -> Option<PathBuf> {
        None
    }

    /// A program that told usage and was cut between two tools was waiting for a model. One that told none at all has still
    /// read its prompt and written what it said.
    fn untold(&self, end: &ProcessEnd) -> Option<Estimate> {
        let prompt = self.prompt_bytes.filter(|_| self.begun || end.was_cut())?;
        let is_over = self.result.is_some() || self.failure.is_some() || !end.was_cut();
        match (self.figures.any(), is_over) {
            (true, true) => None,
            (true, false) if self.tools.in_progress() => None,
            (true, false) => Some(self.figures.cut_call(self.said_bytes)),
            (false, true) => Some(whole_text(prompt, self.said_bytes)),
            (false, false) => Some(self.figures.cut_call(prompt.saturating_add(self.said_bytes))),
        }
    }

    fn finish(&mut self, end: &ProcessEnd, stderr: &str) -> AgentEnd {
        let many = format!("AGENT_USAGE_INVALID: {} usage figures were estimated", self.invalid);
        let said = Said {
            who: "the agent",
            result: self.result.take(),
            failure: self.failure.take(),
            begun: self.begun,
            tools: &self.tools,
            warnings: Vec::from_iter((self.invalid > 0).then_some(many)),
            session: SessionFate::Kept,
        };
        verdict(said, end, stderr)
    }
}

/// A line as JSON. Python writes NaN and Infinity, which JSON does not have: they become null, so that the rest counts.
fn parse(line: &[u8]) -> Option<Value> {
    let value = serde_json::from_slice(line).ok();
    let mended = || {
        let text = std::str::from_utf8(line).ok().filter(|text| text.contains("NaN") || text.contains("Infinity"))?;
        let text = text.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null");
        serde_json::from_str(&text).ok()
    };
    value.or_else(mended).filter(Value::is_object)
}

/// A cost in millionths, and whether what was said is not believable. An unknown cost is never 0.
fn cost(value: &Value) -> (Option<u64>, bool) {
    match value.as_f64() {
        None => (None, !value.is_null()),
        Some(dollars) if (0.0..=MOST_DOLLARS).contains(&dollars) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 1e11")]
            let micros = (dollars * 1e6).round() as u64;
            (Some(micros), false)
        }
        Some(_) => (None, true),
    }
}

/// The larger of each figure: counters only grow.
fn larger(a: &Metered, b: &Metered) -> Metered {
    Metered {
        response: b.response.clone(),
        input: a.input.max(b.input),
        // Of the cached part the smaller one: less cached costs more.
        cached: if b.input >= a.input { b.cached } else { a.cached.min(b.cached) },
        output: a.output.max(b.output),
        cost_micros: a.cost_micros.max(b.cost_micros),
        certainty: b.certainty,
    }
}

fn seconds(given: f64) -> Option<Millis> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 31 days")]
    (0.0..=LONGEST_WAIT_S).contains(&given).then(|| Millis((given * 1000.0).ceil() as u64))
}
