//! OpenAI Codex CLI, run as `codex exec --json`.
//!
//! Standard output says what the agent says and how the turn ended; it is neither complete about tools nor live about
//! tokens. The session file is both, and alone knows the class of an error. So: words and the end of the turn from
//! standard output, spending, tools and causes from the session files. Only when no session file appears is standard
//! output the source of everything.
//!
//! | room | what |
//! | --- | --- |
//! | `binary`, `home`, `command` | what is started, where its home is, with which flags |
//! | `stream` | one line of standard output |
//! | `record`, `log` | one line of a session file; a whole file as events with lasting names |
//! | `model_call` | whether a model is being asked where the records end |
//! | `files` | follows the files of a conversation, its sub-agents' too |
//! | `errors` | Codex's error classes |
//! | `inspect` | what an execution left whose end nobody saw |

use std::path::PathBuf;

use super::endings::{Said, verdict};
use super::figures::Figures;
use super::wording::clip;
use super::{AgentEnd, Reader, ReaderRequest, SessionFate};
use crate::domain::agent_event::{AgentEvent, Metered};
use crate::domain::budget::{Certainty, Estimate};
use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::ProcessEnd;

mod binary;
mod command;
mod errors;
mod files;
mod home;
mod inspect;
mod log;
mod model_call;
mod record;
mod stream;

pub(crate) use binary::program;
pub(crate) use command::{command, probe};
pub(crate) use inspect::inspect;

use files::Files;
use log::{Records, Turn};
use stream::{Line, Tool, Totals};

/// Bytes kept of one message, and of the last word.
const MESSAGE: usize = 64 << 10;
const RESULT: usize = 256 << 10;

/// Where tool calls are told from. Chosen once, at the first tool of standard output, so that none is counted twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolSource {
    Undecided,
    Files,
    Stdout,
}

/// Reads one execution of Codex. Made before Codex starts: what the session files hold by then is old.
#[derive(Debug)]
pub struct CodexReader {
    wanted: Option<String>,
    thread: Option<String>,
    files: Files,
    tools_from: ToolSource,
    begun: bool,
    message: Option<String>,
    result: Option<String>,
    /// Codex's sentence of a failed turn.
    sentence: Option<String>,
    /// A failure that agentrun found, not Codex.
    found: Option<Failure>,
    told_error: bool,
    totals: Option<Totals>,
    session: SessionFate,
    prompt_bytes: u64,
}

impl CodexReader {
    /// A reader for an execution that has not started yet.
    pub fn new(request: &ReaderRequest<'_>) -> Self {
        // Without a home no command can be built either; then there is nothing to read.
        let home = home::codex_home(request.rules.home, request.env, request.private_home);
        let mut files = Files::new(&home.unwrap_or_default(), None);
        files.story.tells_tools = true;
        if request.session.is_some() {
            files.forget_the_past();
        }
        Self {
            wanted: request.session.map(str::to_owned),
            thread: None,
            files,
            tools_from: ToolSource::Undecided,
            begun: false,
            message: None,
            result: None,
            sentence: None,
            found: None,
            told_error: false,
            totals: None,
            session: SessionFate::Kept,
            prompt_bytes: request.prompt_bytes,
        }
    }

    /// What the files say now. A file that cannot be read for a moment is read the next time.
    fn poll(&mut self) -> Vec<AgentEvent> {
        let _ = self.files.poll();
        let mut events = std::mem::take(&mut self.files.story.events);
        if let Turn::Failed(failure) = &self.files.story.turn {
            events.extend(self.tell_error(failure.clone()));
        }
        events
    }

    fn tell_error(&mut self, failure: Failure) -> Option<AgentEvent> {
        let first = !std::mem::replace(&mut self.told_error, true);
        first.then_some(AgentEvent::Error(failure))
    }

    fn thread_started(&mut self, id: String) -> Vec<AgentEvent> {
        self.files.follow(&id);
        self.thread = Some(id.clone());
        match &self.wanted {
            Some(wanted) if *wanted != id => {
                let text = format!("codex began the conversation {id} instead of continuing {wanted}");
                let failure = Failure::new(Code::AgentStartFailed, text);
                self.found = Some(failure.clone());
                self.session = SessionFate::Lost;
                self.tell_error(failure).into_iter().collect()
            }
            _ => vec![AgentEvent::Session { id, model: None }],
        }
    }

    fn tool(&mut self, tool: Tool, ended: bool) -> Vec<AgentEvent> {
        let mut events = self.poll();
        if self.tools_from == ToolSource::Undecided {
            self.tools_from = if self.files.found() { ToolSource::Files } else { ToolSource::Stdout };
            self.files.story.tells_tools = self.tools_from == ToolSource::Files;
        }
        if self.tools_from == ToolSource::Stdout {
            let tools = &mut self.files.story.tools;
            let Tool { id, name, summary, command, ok } = tool;
            if !ended || !tools.is_open(&id) {
                tools.begin(&id);
                events.push(AgentEvent::ToolCall { id: id.clone(), name, summary, command });
            }
            if ended {
                tools.end(&id, ok);
                events.push(AgentEvent::ToolResult { id, ok });
            }
        }
        events
    }

    fn completed(&mut self, totals: Totals) -> Vec<AgentEvent> {
        let mut events = self.poll();
        self.totals = Some(totals);
        self.result.clone_from(&self.message);
        if !self.files.story.any_usage && totals != Totals::default() {
            // The total of the whole conversation, under one name: a later one replaces it and never adds up.
            let response = format!("{}/total", self.thread.as_deref().unwrap_or("codex"));
            let Totals { input, cached, output } = totals;
            events.push(AgentEvent::Usage(Metered {
                response,
                input,
                cached,
                output,
                cost_micros: None,
                certainty: Certainty::Told,
            }));
        }
        events.extend(self.result.clone().map(|text| AgentEvent::Result { text }));
        events
    }

    fn failed(&mut self, sentence: String) -> Vec<AgentEvent> {
        let mut events = self.poll();
        if !self.files.found() {
            events.extend(self.tell_error(errors::classify_sentence(&sentence)));
        }
        self.sentence = Some(sentence);
        events
    }

    /// Codex's own verdict over the turn: the session file's, which has the class, else the sentence.
    fn failure(&mut self, end: &ProcessEnd, stderr: &str) -> Option<Failure> {
        if let Some(failure) = self.found.take().or_else(|| self.start_refused(end, stderr)) {
            return Some(failure);
        }
        match (&self.files.story.turn, &self.sentence) {
            (Turn::Failed(failure), _) => Some(failure.clone()),
            (_, Some(sentence)) => Some(errors::classify_sentence(sentence)),
            (Turn::Aborted, None) if self.result.is_none() && matches!(end, ProcessEnd::Exited { .. }) => {
                Some(Failure::new(Code::Interrupted, "codex was interrupted by a signal that agentrun did not send"))
            }
            _ => None,
        }
    }

    /// What Codex says on standard error when it refuses to continue a conversation. Only before any work began, so that
    /// no word of a model or tool can be meant.
    fn start_refused(&mut self, end: &ProcessEnd, stderr: &str) -> Option<Failure> {
        let wanted = self.wanted.as_deref().filter(|_| !self.begun && !end.is_clean())?;
        if stderr.contains("already has an active writer") {
            self.session = SessionFate::Held;
            let text = format!("the codex conversation {wanted} is still held by another process");
            return Some(Failure::new(Code::Busy, text));
        }
        if stderr.contains("thread/resume failed") {
            self.session = SessionFate::Lost;
            let text = format!("codex cannot go on with the conversation {wanted} any more");
            return Some(Failure::new(Code::AgentStartFailed, text));
        }
        None
    }

    fn warnings(&self) -> Vec<String> {
        let Some(totals) = self.totals else { return Vec::new() };
        let story = &self.files.story;
        let total = totals.input.saturating_add(totals.output);
        if total == 0 && !story.any_usage {
            vec!["AGENT_USAGE_INVALID: codex reported no token usage".to_owned()]
        } else if story.any_usage && total > story.main_total {
            let shown = story.main_total;
            vec![format!("AGENT_USAGE_INVALID: codex counts {total} tokens, its session file shows {shown}")]
        } else {
            Vec::new()
        }
    }
}

impl Reader for CodexReader {
    fn stdout_line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        match stream::read(line) {
            Line::Thread(id) => self.thread_started(id),
            Line::TurnStarted => {
                self.begun = true;
                self.poll()
            }
            Line::Message(text) => {
                self.message = Some(clip(&text, RESULT)).filter(|text| !text.trim().is_empty());
                vec![AgentEvent::Message { text: clip(&text, MESSAGE) }]
            }
            Line::Notice(text) => vec![AgentEvent::Warning { text: clip(&text, MESSAGE) }],
            Line::ToolBegun(tool) => self.tool(tool, false),
            Line::ToolEnded(tool) => self.tool(tool, true),
            Line::Completed(totals) => self.completed(totals),
            Line::Failed(sentence) => self.failed(sentence),
            Line::Unknown => Vec::new(),
        }
    }

    fn side_files(&mut self) -> Vec<AgentEvent> {
        self.poll()
    }

    fn watch(&self) -> Option<PathBuf> {
        self.files.folder()
    }

    fn side_bytes(&self) -> u64 {
        self.files.bytes()
    }

    fn untold(&self, end: &ProcessEnd) -> Option<Estimate> {
        let told = self.files.story.any_usage || self.totals.is_some_and(|totals| totals != Totals::default());
        match (end.was_cut(), told) {
            (true, _) if self.files.found() => {
                let was_killed = matches!(end, ProcessEnd::Signalled { .. } | ProcessEnd::Vanished);
                self.files.cut_calls(if was_killed { Records::MayLag } else { Records::Whole })
            }
            // Nothing that it wrote is known, or its model tells no figures: it has sent its prompt at least.
            (_, false) if self.begun && (end.was_cut() || self.result.is_some()) => {
                Some(Figures::default().cut_call(self.prompt_bytes.max(self.files.bytes())))
            }
            _ => None,
        }
    }

    fn finish(&mut self, end: &ProcessEnd, stderr: &str) -> AgentEnd {
        // Reads on for the verdict; events were the caller's to fetch before.
        let _ = self.files.poll();
        let failure = self.failure(end, stderr);
        let from_file = match &self.files.story.turn {
            Turn::Done(message) => message.clone(),
            _ => None,
        };
        let said = Said {
            who: "codex",
            result: self.result.take().or(from_file),
            failure,
            begun: self.begun,
            tools: &self.files.story.tools,
            warnings: self.warnings(),
            session: self.session,
        };
        verdict(said, end, stderr)
    }
}
