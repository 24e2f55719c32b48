//! A program whose standard output is its answer. It tells neither tokens nor tools: its tokens are estimated from the size
//! of its prompt and its answer (R-R4), as it writes; exit code 0 with a text that is not blank is all there is to go by.

use std::path::PathBuf;

use super::endings::{Said, verdict};
use super::figures::{Figures, whole_text};
use super::tail::Tail;
use super::tools::Tools;
use super::wording::clip;
use super::{
    AgentCommand, AgentEnd, AgentError, AgentRequest, InspectRequest, Inspection, Progress, Reader, ReaderRequest,
    SessionFate, agentrun_protocol,
};
use crate::domain::agent_event::{AgentEvent, Metered};
use crate::domain::budget::{Certainty, Estimate};
use crate::domain::outcome::ProcessEnd;

/// Bytes of the answer that are kept: its end.
const KEPT: usize = 256 << 10;

/// As for the agentrun protocol: the policy's command line, the prompt on standard input.
pub(crate) fn command(request: &AgentRequest<'_>) -> Result<AgentCommand, AgentError> {
    agentrun_protocol::command(request)
}

/// How much an answer grows before it is counted anew: each time costs a commit.
const COUNTED_EACH: u64 = 4 << 10;

/// What was kept of its output. Without the exit code nothing tells whether the text is whole.
pub(crate) fn inspect(request: &InspectRequest<'_>) -> Result<Inspection, AgentError> {
    let mut reader = TextReader::new(&request.reader);
    let mut events = Vec::new();
    if let Some(transcript) = request.transcript.filter(|path| path.exists()) {
        let poll = Tail::new(transcript.to_owned()).poll(|_, line| events.extend(reader.stdout_line(line)));
        poll.map_err(|source| AgentError::Unreadable { path: transcript.to_owned(), source })?;
    }
    let untold = reader.untold(&ProcessEnd::Vanished);
    Ok(Inspection { events, progress: Progress::Lost, untold, last_record_at: None })
}

/// Keeps the end of the output.
#[derive(Debug, Default)]
pub struct TextReader {
    response: String,
    prompt_bytes: u64,
    /// Bytes of the answer, and how many of them are counted.
    said: u64,
    counted: Option<u64>,
    kept: Vec<u8>,
    cut: bool,
    begun: bool,
}

impl TextReader {
    /// For one execution.
    pub fn new(request: &ReaderRequest<'_>) -> Self {
        let response = format!("{}/answer", request.execution);
        Self { response, prompt_bytes: request.prompt_bytes, ..Self::default() }
    }

    /// The estimate so far, each time it has grown enough.
    fn count(&mut self) -> Option<AgentEvent> {
        if self.counted.is_some_and(|counted| self.said - counted < COUNTED_EACH) {
            return None;
        }
        self.counted = Some(self.said);
        let Estimate { input, cached, output, cost_micros } = whole_text(self.prompt_bytes, self.said);
        let (response, certainty) = (self.response.clone(), Certainty::Estimated);
        Some(AgentEvent::Usage(Metered { response, input, cached, output, cost_micros, certainty }))
    }

    fn answer(&self) -> String {
        let start = self.kept.len().saturating_sub(KEPT);
        String::from_utf8_lossy(&self.kept[start..]).trim_start_matches('\u{fffd}').to_owned()
    }
}

impl Reader for TextReader {
    fn stdout_line(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        self.begun = true;
        self.said = self.said.saturating_add(line.len() as u64 + 1);
        self.kept.extend_from_slice(&line[line.len().saturating_sub(KEPT)..]);
        self.kept.push(b'\n');
        // Cut seldom and by much, so that a long output is not moved once per line.
        if self.kept.len() > 2 * KEPT {
            self.kept.drain(..self.kept.len() - KEPT);
            self.cut = true;
        }
        let text = clip(String::from_utf8_lossy(line).trim_end(), 64 << 10);
        let message = (!text.is_empty()).then_some(AgentEvent::Message { text });
        message.into_iter().chain(self.count()).collect()
    }

    fn side_files(&mut self) -> Vec<AgentEvent> {
        Vec::new()
    }

    fn watch(&self) -> Option<PathBuf> {
        None
    }

    /// What the answer grew by since it was counted last; of a cut one, also what it would have gone on with.
    fn untold(&self, end: &ProcessEnd) -> Option<Estimate> {
        let prompt = if self.counted.is_some() { 0 } else { self.prompt_bytes };
        let rest = whole_text(prompt, self.said - self.counted.unwrap_or(0));
        match (end.was_cut(), self.begun) {
            (true, _) => Some(rest.plus(&Figures::default().cut_call(0))),
            (false, true) => Some(rest).filter(|rest| *rest != Estimate::default()),
            (false, false) => None,
        }
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
