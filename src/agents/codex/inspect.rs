//! Looks into an execution whose end nobody saw, because agentrun itself was killed (R-W4). The session file says
//! whether the turn was over; one that was is adopted, not paid for twice.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use super::super::endings::{Said, verdict};
use super::super::{AgentEnd, AgentError, InspectRequest, Inspection, Progress, SessionFate};
use super::files::Files;
use super::home;
use super::log::{Records, Turn};
use super::stream::{self, Line};
use crate::domain::agent_event::AgentEvent;
use crate::domain::outcome::ProcessEnd;

/// How long after the start Codex may have begun its conversation: the longest sensible wait for a first byte.
const BEGINS_WITHIN_MS: i64 = 120_000;

/// Reads everything that the conversation left.
///
/// Usage is told of all executions, since its names are unique in the run; tools only of this one.
pub(crate) fn inspect(request: &InspectRequest<'_>) -> Result<Inspection, AgentError> {
    let reader = &request.reader;
    let home = home::codex_home(reader.rules.home, reader.env, reader.private_home)?;
    let mut files = Files::new(&home, request.started_at.map(|at| at.0));
    files.story.tells_tools = true;
    files.story.old_usage = true;
    let Some(thread) = thread(request, &files) else { return Ok(lost()) };
    files.follow(&thread);
    files.poll().map_err(|source| AgentError::Unreadable { path: home, source })?;
    // A file without a word in it: Codex was killed between making it and writing, and refuses to go on with it.
    if !files.found() || files.bytes() == 0 {
        return Ok(lost());
    }
    let mut events = vec![AgentEvent::Session { id: thread, model: None }];
    events.append(&mut files.story.events);
    let progress = progress(&files);
    if let Progress::Finished(AgentEnd { result: Some(text), failure: None, .. }) = &progress {
        events.push(AgentEvent::Result { text: text.clone() });
    }
    let untold = if progress == Progress::Continuable { files.cut_calls(Records::MayLag) } else { None };
    Ok(Inspection { events, progress, untold, last_record_at: files.story.last_at })
}

fn lost() -> Inspection {
    // Codex makes its session file before it calls a model: without one nothing was sent.
    Inspection { events: Vec::new(), progress: Progress::Lost, untold: None, last_record_at: None }
}

/// The conversation: as recorded, as the kept output says, or the only one that began there at that time (FR-D1).
fn thread(request: &InspectRequest<'_>, files: &Files) -> Option<String> {
    let recorded = request.reader.session.map(str::to_owned);
    let by_time = || {
        let from = request.started_at?.0;
        files.begun_in(request.workspace, from, from.saturating_add(BEGINS_WITHIN_MS))
    };
    recorded.or_else(|| request.transcript.and_then(thread_in)).or_else(by_time)
}

fn thread_in(transcript: &Path) -> Option<String> {
    let head = BufReader::new(std::fs::File::open(transcript).ok()?.take(1 << 20));
    head.split(b'\n').map_while(Result::ok).find_map(|line| match stream::read(&line) {
        Line::Thread(id) => Some(id),
        _ => None,
    })
}

fn progress(files: &Files) -> Progress {
    let (result, failure) = match &files.story.turn {
        Turn::None | Turn::Running | Turn::Aborted => return Progress::Continuable,
        Turn::Done(message) => (message.clone(), None),
        Turn::Failed(failure) => (None, Some(failure.clone())),
    };
    let said = Said {
        who: "codex",
        result,
        failure,
        begun: true,
        tools: &files.story.tools,
        warnings: vec!["the end of codex was not seen; its session file says how the turn ended".to_owned()],
        session: SessionFate::Kept,
    };
    Progress::Finished(verdict(said, &ProcessEnd::Exited { code: 0 }, ""))
}
