//! How the tools of `agentrun mcp` are described to the model that calls them.

use serde_json::{Value, json};

use crate::domain::machine::Word as _;
use crate::domain::policy::ActionType;
use crate::ops::mcp::Tool;

/// The tools, as `tools/list` answers them.
pub fn descriptions() -> Vec<Value> {
    Tool::ALL.iter().map(|tool| description(*tool)).collect()
}

fn description(tool: Tool) -> Value {
    let (text, schema, only_reads) = match tool {
        Tool::RequestAction => (
            "Ask agentrun for a side effect on the world outside: a deployment, a notification, an export, a pull request … \
             agentrun carries it out, once, with its own credentials. Asking again for the same gives the same record \
             (`duplicate: true`) and does nothing more. The `answer` says where it stands: done; in_progress (look again \
             later with action_status); waits_for_person (do not ask again and do not do it in another way: go on with other \
             work, or end); failed (it has not happened); withdrawn (a person said no); unknown (it may have happened: \
             never repeat it, in no way). Do what `advice` says.",
            requested(),
            false,
        ),
        Tool::ActionStatus => (
            "Look at a side effect that this run asked for, by the `id` from request_action. Does not wait and changes \
             nothing. Not before `look_again`.",
            object(json!({ "id": text("The action's id, as request_action answered it.") }), &["id"]),
            true,
        ),
        Tool::RunStatus => (
            "Where the run that you work in stands: its status, attempt, usage, and what comes next. Changes nothing.",
            object(json!({}), &[]),
            true,
        ),
        Tool::Budget => (
            "What is left of the run's limits (tokens, tool calls, time in milliseconds, cost in millionths of a dollar). \
             Plan your work so that it ends within `left`; when a limit is used up, the work is stopped. Changes nothing.",
            object(json!({}), &[]),
            true,
        ),
    };
    json!({
        "name": tool,
        "description": text,
        "inputSchema": schema,
        "annotations": { "readOnlyHint": only_reads, "destructiveHint": !only_reads, "idempotentHint": true },
    })
}

fn requested() -> Value {
    let kinds: Vec<_> = ActionType::ALL.iter().map(|kind| kind.word()).collect();
    let properties = json!({
        "type": { "type": "string", "enum": kinds, "description": "What kind of side effect." },
        "target": text("What it reaches: an environment, a channel, a repository, an address."),
        "subject": {
            "type": "object",
            "additionalProperties": { "type": "string" },
            "description": "What it is about, by which it is the same for ever: {\"release\": \"v1.2\"}.",
        },
        "input": { "type": "object", "description": "The arguments for the other side." },
        "account": text("On whose account; the contract's without."),
        "contract": text("The contract; needed only where several do this type."),
        "instance": text("Tells two equal ones apart that are both meant. Never use it to try something again."),
        "wait": { "type": "boolean", "description": "false: answer as soon as it is recorded." },
    });
    object(properties, &["type", "target"])
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn text(meaning: &str) -> Value {
    json!({ "type": "string", "description": meaning })
}
