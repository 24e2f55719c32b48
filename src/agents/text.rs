//! A program whose standard output is its answer. It tells neither tokens nor tools; exit code 0 with a text that is not
//! blank is all there is to go by.

use std::path::PathBuf;

use super::endings::{Said, verdict};
use super::tools::Tools;
use super::wording::clip;
use super::{AgentCommand, AgentEnd, AgentError, AgentRequest, Reader, SessionFate, agentrun_protocol};
use crate::domain::agent_event::AgentEvent;
use crate::domain::outcome::ProcessEnd;

/// Bytes of the answer that are kept: its end.
const KEPT: usize = 256 << 10;

/// As for the agentrun protocol: the policy's command line, the prompt on standard input.
pub(crate) fn command(request: &AgentRequest<'_>) -> Result<AgentCommand, AgentError> {
    agentrun_protocol::command(request)
}

/// Keeps the end of the output.
#[derive(Debug, Default)]
pub struct TextReader {
    kept: Vec<u8>,
    cut: bool,
    begun: bool,
}

impl TextReader {
    fn answer(&self) -> String {
        let start = self.kept.len().saturating_sub(KEPT);
        String::from_utf8_lossy(&self.kept[start..]).trim_start_matches('\u{fffd}').to_owned()
    }
}

impl Reader for TextReader {
    fn stdout_line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        self.begun = true;
        self.kept.extend_from_slice(&line[line.len().saturating_sub(KEPT)..]);
        self.kept.push(b'\n');
        // Cut seldom and by much, so that a long output is not moved once per line.
        if self.kept.len() > 2 * KEPT {
            self.kept.drain(..self.kept.len() - KEPT);
            self.cut = true;
        }
        let text = clip(String::from_utf8_lossy(line).trim_end(), 64 << 10);
        if text.is_empty() { Vec::new() } else { vec![AgentEvent::Message { text }] }
    }

    fn side_files(&mut self) -> Vec<AgentEvent> {
        Vec::new()
    }

    fn watch(&self) -> Option<PathBuf> {
        None
    }

    fn finish(&mut self, end: &ProcessEnd, stderr: &str) -> AgentEnd {
        let cut = (self.cut || self.kept.len() > KEPT)
            .then(|| format!("only the last {} KiB of the agent's answer were kept", KEPT >> 10));
        let said = Said {
            who: "the agent",
            result: end.is_clean().then(|| self.answer().trim_end().to_owned()),
            failure: None,
            begun: self.begun,
            tools: &Tools::default(),
            warnings: Vec::from_iter(cut),
            session: SessionFate::Kept,
        };
        verdict(said, end, stderr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::Code;

    fn read(lines: &[&[u8]], code: i32) -> AgentEnd {
        let mut reader = TextReader::default();
        for line in lines {
            reader.stdout_line(line);
        }
        reader.finish(&ProcessEnd::Exited { code }, "")
    }

    #[test]
    fn the_output_is_the_answer_when_the_exit_code_is_0() {
        let end = read(&[b"one", b"", b"two"], 0);
        assert_eq!((end.result.as_deref(), end.failure), (Some("one\n\ntwo"), None));
    }

    #[test]
    fn fr_c17_blank_or_badly_ended_is_no_answer() {
        assert_eq!(read(&[b" ", b""], 0).failure.map(|f| f.code), Some(Code::NoResult));
        assert_eq!(read(&[b"half an answer"], 1).failure.map(|f| f.code), Some(Code::AgentFailed));
        assert_eq!(read(&[], 1).failure.map(|f| f.code), Some(Code::AgentStartFailed));
    }

    #[test]
    fn a_long_answer_keeps_its_end_and_says_so() {
        let line = vec![b'x'; 100 << 10];
        let end = read(&[&line, &line, &line, &line, &line, &line, b"the end"], 0);
        let answer = end.result.unwrap();
        assert!(answer.ends_with("x\nthe end") && answer.len() <= KEPT, "{}", answer.len());
        assert_eq!(end.warnings.len(), 1);
    }
}
