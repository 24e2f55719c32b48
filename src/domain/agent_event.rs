//! What agents do, in one vocabulary: each agent's own stream is turned into these.

use serde::{Deserialize, Serialize};

use super::budget::Certainty;
use super::failure::Failure;
use super::task::CommandLine;

/// One thing that an agent did or said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// Its conversation has an id, with which it can be continued.
    Session {
        /// The agent's own id of the conversation.
        id: String,
        /// The model, where the agent says it.
        model: Option<String>,
    },
    /// It said something.
    Message {
        /// The text.
        text: String,
    },
    /// It began to use a tool.
    ToolCall {
        /// Unique within the execution of the step.
        id: String,
        /// The tool's name.
        name: String,
        /// A short rendering of what it does, for people.
        summary: String,
        /// The whole command line, where the tool runs one: what rules are asked about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<CommandLine>,
    },
    /// A tool came back.
    ToolResult {
        /// The id of the call.
        id: String,
        /// Whether the tool says it worked; `None` when it does not say.
        ok: Option<bool>,
    },
    /// One model response was paid for.
    Usage(Metered),
    /// Something that is worth telling and decides nothing.
    Warning {
        /// The text.
        text: String,
    },
    /// The agent reported a failure that ended its work.
    Error(Failure),
    /// The agent says that it is done.
    Result {
        /// Its last word.
        text: String,
    },
}

/// Tokens and cost of one model response. `input` includes `cached`; `output` includes reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Metered {
    /// Names the response; a repeated one replaces, never adds. Unique within the run: an agent whose conversation is
    /// continued later must name the same response alike.
    pub response: String,
    /// All input tokens.
    pub input: u64,
    /// The part of `input` that came from a cache.
    pub cached: u64,
    /// All output tokens.
    pub output: u64,
    /// Cost in millionths of a dollar, where the agent says it.
    pub cost_micros: Option<u64>,
    /// Estimated where the agent said something unbelievable (F46), or never says any.
    #[serde(default)]
    pub certainty: Certainty,
}
