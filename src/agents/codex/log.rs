//! One session file as a story: its records become events with names that stay the same whoever reads the file and
//! whenever, so that recording them twice counts once.
//!
//! Usage is named `<thread>/<response>`, a tool call by its call id. Providers keep these unique; where one does not, the
//! second of a kind within a file is `…#2`, which every reader counts alike because it counts from the file's beginning.

use std::collections::{HashMap, HashSet};

use super::super::figures::{Figures, Tokens, complaint};
use super::super::tools::Tools;
use super::errors::classify;
use super::model_call::ModelCall;
use super::record::{Fact, Record, Reply};
use crate::domain::agent_event::{AgentEvent, Metered};
use crate::domain::budget::Estimate;
use crate::domain::failure::Failure;
use crate::domain::quantity::Millis;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The conversation that was started: its turns decide.
    Main,
    /// A sub-agent's: only its spending counts.
    Sub,
}

/// Whether a record belongs to the execution that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// To an earlier one.
    Old,
    /// To this one.
    New,
}

/// Whether Codex could write down what it did last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
    /// It was asked to end.
    Whole,
    /// It was killed.
    MayLag,
}

/// How far the latest turn of this execution got.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Turn {
    /// It has not begun.
    #[default]
    None,
    /// It goes on, or was cut without a record.
    Running,
    /// It is over, with a last word or without one.
    Done(Option<String>),
    /// It failed.
    Failed(Failure),
    /// A signal cut it.
    Aborted,
}

/// What is told of all files of a conversation together.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// What is new since it was taken last.
    pub events: Vec<AgentEvent>,
    /// Tool calls of this execution.
    pub tools: Tools,
    /// The main conversation's latest turn.
    pub turn: Turn,
    /// Tokens (input and output) of the main conversation, all executions.
    pub main_total: u64,
    /// True when any reply was recorded.
    pub any_usage: bool,
    /// The time of the last record.
    pub last_at: Option<i64>,
    /// Whether usage of earlier executions is told as well.
    pub old_usage: bool,
    /// Whether tool calls are told; not when standard output is their source.
    pub tells_tools: bool,
    reset: Option<i64>,
    told: HashSet<String>,
}

/// What must be remembered of one file.
#[derive(Debug)]
pub(crate) struct Log {
    role: Role,
    seen: HashMap<String, u32>,
    open: HashMap<String, Open>,
    figures: Figures,
    model_call: ModelCall,
}

#[derive(Debug)]
struct Open {
    name: String,
    tool: String,
    ok: Option<bool>,
}

impl Log {
    /// A file not yet read.
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            seen: HashMap::new(),
            open: HashMap::new(),
            figures: Figures::default(),
            model_call: ModelCall::default(),
        }
    }

    /// One record, in the order of the file.
    pub(crate) fn take(&mut self, record: Record, age: Age, story: &mut Story) {
        self.model_call.take(&record.fact, age);
        story.last_at = story.last_at.max(record.at);
        match record.fact {
            Fact::Usage(reply) => self.usage(&reply, age, story),
            Fact::Call { call, name, summary, command, over } => {
                let id = self.nth(call.clone());
                let begun = AgentEvent::ToolCall { id, name, summary, command };
                self.call(call, begun, over, age, story);
            }
            Fact::Output { call, text } => self.output(&call, &text, age, story),
            Fact::Done { call, ok } => self.done(&call, ok, age, story),
            Fact::Reset(at) => story.reset = at.or(story.reset),
            fact if self.role == Role::Main && age == Age::New => turn(fact, record.at, story),
            _ => {}
        }
    }

    /// So many bytes were written since the line before: what the next call sends.
    pub(crate) fn grow(&mut self, bytes: u64) {
        self.model_call.bytes = self.model_call.bytes.saturating_add(bytes);
    }

    /// The call that was under way where the records end: its tokens stand nowhere.
    pub(crate) fn cut_call(&self, records: Records) -> Option<Estimate> {
        let under_way = match records {
            Records::Whole => self.model_call.is_under_way(),
            Records::MayLag => self.model_call.may_be_under_way(),
        };
        under_way.then(|| self.figures.cut_call(self.model_call.bytes))
    }

    fn usage(&mut self, reply: &Reply, age: Age, story: &mut Story) {
        story.any_usage = true;
        let [input, cached, output] =
            ["input_tokens", "cached_input_tokens", "output_tokens"].map(|key| &reply.usage[key]);
        let Tokens { input, cached, output, wrong } = self.figures.judge(input, cached, output);
        if self.role == Role::Main {
            story.main_total = story.main_total.saturating_add(input).saturating_add(output);
        }
        let response = self.nth(format!("{}/{}", reply.thread, reply.response));
        if (age == Age::New || story.old_usage) && story.told.insert(response.clone()) {
            let warning = (!wrong.is_empty()).then(|| AgentEvent::Warning { text: complaint(&response, &wrong) });
            let certainty = Tokens::certainty(&wrong);
            let metered = Metered { response, input, cached, output, cost_micros: None, certainty };
            story.events.push(AgentEvent::Usage(metered));
            story.events.extend(warning);
        }
    }

    fn call(&mut self, call: String, begun: AgentEvent, over: bool, age: Age, story: &mut Story) {
        let AgentEvent::ToolCall { id: name, name: tool, .. } = &begun else { return };
        let (name, tool) = (name.clone(), tool.clone());
        // A sub-agent's file can begin with a copy of its parent's.
        if age == Age::Old || !story.tells_tools || !story.told.insert(name.clone()) {
            return;
        }
        story.tools.begin(&name);
        story.events.push(begun);
        if over {
            story.tools.end(&name, Some(true));
            story.events.push(AgentEvent::ToolResult { id: name, ok: Some(true) });
        } else {
            self.open.insert(call, Open { name, tool, ok: None });
        }
    }

    fn output(&mut self, call: &str, text: &str, age: Age, story: &mut Story) {
        let Some(open) = self.open.remove(call).filter(|_| age == Age::New) else { return };
        let ok = open.ok.or_else(|| outcome(&open.tool, text));
        if is_script(&open.tool, text) && ok != Some(false) {
            story.tools.close(&open.name);
        } else {
            story.tools.end(&open.name, ok);
        }
        story.events.push(AgentEvent::ToolResult { id: open.name, ok });
    }

    fn done(&mut self, call: &str, ok: bool, age: Age, story: &mut Story) {
        if let Some(open) = self.open.get_mut(call) {
            open.ok = Some(ok);
        } else if age == Age::New && story.tells_tools && !self.seen.contains_key(call) {
            // A call inside a script of the model: not counted as a call, but the script's success lies in it.
            story.tools.inner(ok);
        }
    }

    /// The name itself for the first of a kind in this file, `…#2` for the second.
    fn nth(&mut self, name: String) -> String {
        let count = self.seen.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name } else { format!("{name}#{count}") }
    }
}

fn turn(fact: Fact, at: Option<i64>, story: &mut Story) {
    story.turn = match fact {
        Fact::TurnStarted => Turn::Running,
        Fact::Aborted => Turn::Aborted,
        Fact::Complete { message, error: None } => Turn::Done(message),
        Fact::Complete { error: Some((message, info)), .. } => {
            Turn::Failed(classify(&info, &message, until(story.reset, at)))
        }
        _ => return,
    };
}

fn until(reset_secs: Option<i64>, now_ms: Option<i64>) -> Option<Millis> {
    let wait = reset_secs?.checked_mul(1000)?.checked_sub(now_ms?)?;
    u64::try_from(wait).ok().filter(|ms| *ms > 0).map(Millis)
}

/// A script of the model, whose real work are the calls inside it.
fn is_script(tool: &str, text: &str) -> bool {
    tool == "exec" && text.starts_with("Script ")
}

/// Whether a tool worked, by the head that Codex itself puts before the output. What the tool printed is not looked at.
fn outcome(tool: &str, text: &str) -> Option<bool> {
    let head = text.split("Output:").next().unwrap_or("");
    let code = head.lines().find_map(|line| line.strip_prefix("Process exited with code "));
    if let Some(code) = code {
        return Some(code.trim() == "0");
    }
    let refused =
        ["unsupported call", "failed to parse function arguments", "apply_patch verification failed", "Script failed"];
    if refused.iter().any(|begin| text.starts_with(begin)) || text.starts_with("aborted") {
        return Some(false);
    }
    // Every answer of a shell tool has a head; without one Codex refused the call.
    let headless = !text.starts_with("Chunk ID:") && !text.starts_with("Wall time:") && !text.is_empty();
    (headless && matches!(tool, "exec_command" | "shell" | "shell_command" | "local_shell" | "apply_patch"))
        .then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codexs_own_head_tells_whether_a_command_worked() {
        let ok =
            "Chunk ID: a\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nProcess exited with code 1\n";
        assert_eq!(outcome("exec_command", ok), Some(true));
        assert_eq!(outcome("exec_command", &ok.replacen("code 0", "code 3", 1)), Some(false));
        assert_eq!(outcome("exec_command", "Wall time: 9 seconds\nProcess running with session ID 7\nOutput:\n"), None);
        assert_eq!(outcome("no_such_tool", "unsupported call: no_such_tool"), Some(false));
        assert_eq!(outcome("exec_command", "exec_command failed: denied"), Some(false));
        assert_eq!(outcome("get_goal", "{\"goal\":null}"), None);
        assert_eq!(outcome("exec", "Script failed\nWall time 0.0 seconds\nOutput:\n"), Some(false));
        assert_eq!(outcome("exec", "Script completed\nWall time 0.0 seconds\nOutput:\n"), None);
    }

    #[test]
    fn a_reset_in_the_past_is_no_wait() {
        assert_eq!(until(Some(10), Some(4_000)), Some(Millis(6_000)));
        assert_eq!(until(Some(10), Some(10_000)), None);
        assert_eq!(until(Some(i64::MAX), Some(0)), None);
    }
}
