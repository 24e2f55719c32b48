//! Plays a recorded run: no account, no network. The recording is in the agentrun agent protocol, so the reader is that
//! protocol's; here are only the command and what a recording means. The program that plays is agentrun itself.

use std::ffi::OsString;

use super::{AgentCommand, AgentError, AgentRequest, agentrun_protocol};
use crate::domain::quantity::Millis;
use crate::process::spec::{PoliteSignal, Stdin};

/// The hidden verb of agentrun that plays a recording.
pub const VERB: &str = "replay-agent";

/// One step of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Pauses, for demos and tests: `{"type":"wait","ms":500}`. It is not passed on.
    Wait(Millis),
    /// Written to standard output as it stands.
    Line(String),
}

/// Why a recording cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Code `CONFIG_INVALID`.
    #[error("line {line} of the recording waits without a whole number of `ms` up to {LONGEST_WAIT_MS}")]
    Wait {
        /// Counted from 1.
        line: usize,
    },
    /// Code `CONFIG_INVALID`.
    #[error("the recording has no line")]
    Empty,
}

/// A longer pause is a mistake.
const LONGEST_WAIT_MS: u64 = 3_600_000;

/// Reads a recording. Only lines of type `wait` mean something here; everything else, broken lines too, is the agent's.
pub fn script(text: &str) -> Result<Vec<Step>, ReplayError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let steps = lines.map(|(i, line)| step(i + 1, line)).collect::<Result<Vec<_>, _>>()?;
    if steps.is_empty() { Err(ReplayError::Empty) } else { Ok(steps) }
}

fn step(line: usize, text: &str) -> Result<Step, ReplayError> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if value["type"] == "wait" => {
            let ms = value["ms"].as_u64().filter(|ms| *ms <= LONGEST_WAIT_MS);
            ms.map(|ms| Step::Wait(Millis(ms))).ok_or(ReplayError::Wait { line })
        }
        _ => Ok(Step::Line(text.to_owned())),
    }
}

/// `agentrun replay-agent --events PATH [--patch PATH]`; paths are relative to the repository.
pub(crate) fn command(request: &AgentRequest<'_>) -> Result<AgentCommand, AgentError> {
    let events = request.agent.events.as_ref().ok_or(AgentError::NoRecording)?;
    let mut args: Vec<OsString> = vec![VERB.into(), "--events".into(), request.repository.join(events).into()];
    if let Some(patch) = &request.agent.patch {
        args.extend(["--patch".into(), request.repository.join(patch).into()]);
    }
    args.extend(request.agent.args.iter().map(OsString::from));
    Ok(AgentCommand {
        program: request.own_program.to_owned(),
        args,
        env: agentrun_protocol::environment(request),
        folders: Vec::new(),
        stdin: Stdin::File(request.prompt_file.to_owned()),
        polite: PoliteSignal::Terminate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_are_understood_the_rest_is_passed_on() {
        let text = "{\"type\":\"wait\",\"ms\":5}\n\nnoise\n{\"type\":\"message\", \"text\":\"wait\"}\r\n";
        let line = |text: &str| Step::Line(text.to_owned());
        let steps = [Step::Wait(Millis(5)), line("noise"), line("{\"type\":\"message\", \"text\":\"wait\"}")];
        assert_eq!(script(text).unwrap(), steps);
    }

    #[test]
    fn a_wait_without_a_sane_length_is_refused_with_its_line() {
        for ms in ["", ",\"ms\":-1", ",\"ms\":\"5\"", ",\"ms\":99999999"] {
            let text = format!("noise\n{{\"type\":\"wait\"{ms}}}\n");
            assert_eq!(script(&text), Err(ReplayError::Wait { line: 2 }), "{ms}");
        }
        assert_eq!(script(" \n"), Err(ReplayError::Empty));
    }
}
