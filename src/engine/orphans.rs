//! What outlived a killed agentrun (F31): its processes are ended before anything else, and what was done after it was gone is
//! reported, never adopted in silence.

use std::time::UNIX_EPOCH;

use super::error::EngineError;
use super::held::Held;
use super::host::Host;
use super::workspace::Copy;
use crate::artifacts::run_dir::{self, StepFile};
use crate::domain::event::EventKind;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::record::{Identity, RunView};
use crate::domain::task::WorkspaceKind;
use crate::git::KEPT;

/// Whether processes of an earlier attempt were still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlived {
    /// None was.
    Nobody,
    /// They were ended just now.
    Somebody,
}

/// Whether something was done in the working copy while no agentrun looked after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateWork {
    /// Nothing that can be told.
    None,
    /// It was, and is reported.
    Reported,
}

/// What an agent wrote in its last moment, and agentrun did not get to hear of, is not late: going on in its conversation is
/// worth more than a file too many.
const SLACK: Millis = Millis::secs(2);

/// Ends every process that earlier attempts of the run have left. Strangers that got one of their pids are left alone.
pub fn end_leftovers(host: &Host<'_>, held: &mut Held, view: &RunView) -> Result<Outlived, EngineError> {
    let open = view.executions.iter().filter(|e| e.finished_at.is_none());
    let known: Vec<Identity> = open.filter_map(|e| e.child.clone()).collect();
    let marker = super::steps::marker(host, &held.hold);
    let grace = held.inputs.policy.timeouts.grace;
    let found = crate::process::leftovers::end_leftovers(&marker, &known, grace);
    if found.strangers > 0 {
        held.note(
            EventKind::WarningRaised,
            None,
            "stale_pid=true: a recorded process id belongs to somebody else now",
        )?;
    }
    let outlived = if found.ended > 0 || !found.survivors.is_empty() { Outlived::Somebody } else { Outlived::Nobody };
    if outlived == Outlived::Somebody {
        let reason = format!("{} processes of an earlier attempt ended, {} left", found.ended, found.survivors.len());
        held.note(EventKind::LeftoversEnded, None, &reason)?;
    }
    held.commit()?;
    Ok(outlived)
}

/// Looks for commits and files that are younger than the last sign of life of the holder before. A commit is pinned and taken
/// out of the copy; files stay where they are and are named, for a cut step may have written them as well.
pub fn report_late_work(
    host: &Host<'_>,
    held: &mut Held,
    copy: &Copy,
    (view, outlived): (&RunView, Outlived),
) -> Result<LateWork, EngineError> {
    const NAMED: usize = 10;
    let Some(sign) = last_sign(host, view)?.filter(|_| view.was_taken_over()) else { return Ok(LateWork::None) };
    // Where nobody was left, the holder itself may have lived for one more heartbeat.
    let since = match outlived {
        Outlived::Somebody => sign.plus(SLACK),
        Outlived::Nobody => sign.plus(view.inputs.policy.leases.heartbeat).plus(SLACK),
    };
    let run = view.run.id.as_str();
    let known = view.run.snapshot.as_deref().unwrap_or(&copy.start);
    let mut late = LateWork::None;
    if let Some(commit) = copy.workspace.commit_since(&copy.start, known, since.0)? {
        let pin = format!("{KEPT}{}", &commit[..12]);
        host.repo.pin(run, &pin, &commit)?;
        let becomes = match view.inputs.spec.workspace {
            WorkspaceKind::Isolated => {
                copy.workspace.forget_commits(known)?;
                "it is no part of the run"
            }
            WorkspaceKind::InPlace => "the checkout stands on it",
        };
        let text = format!(
            "orphan_write: commit {commit} was made in the working copy when its agentrun was gone; it is kept as \
             refs/agentrun/{run}/{pin}, and {becomes}"
        );
        held.note(EventKind::WarningRaised, None, &text)?;
        late = LateWork::Reported;
    }
    let paths = copy.workspace.changed_since(known, since.0)?;
    if !paths.is_empty() {
        let more = paths.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = paths[..paths.len().min(NAMED)].join(", ");
        let text = format!("orphan_write: written in the working copy when its agentrun was gone: {named}{more}");
        held.note(EventKind::WarningRaised, None, &text)?;
        late = LateWork::Reported;
    }
    held.commit()?;
    Ok(late)
}

/// The last moment at which the holder before is known to have lived: its heartbeat, what it recorded, what it wrote down of
/// the output of its children.
fn last_sign(host: &Host<'_>, view: &RunView) -> Result<Option<UtcMs>, EngineError> {
    let dir = host.home.run_dir(&view.run.id)?;
    let recorded = view.executions.iter().flat_map(|e| [Some(e.started_at), e.finished_at]);
    let mut signs: Vec<UtcMs> = recorded.chain([view.run.heartbeat_at]).flatten().collect();
    for execution in view.executions.iter().filter(|e| e.finished_at.is_none()) {
        let nth = view.nth(execution);
        let files = run_dir::Execution { attempt: execution.attempt, step: &execution.step, nth };
        for file in [StepFile::Events, StepFile::Stdout, StepFile::Stderr] {
            let modified = fs_err::metadata(dir.step_file(files, file)).and_then(|found| found.modified()).ok();
            let since_epoch = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            signs.extend(since_epoch.and_then(|time| i64::try_from(time.as_millis()).ok()).map(UtcMs));
        }
    }
    Ok(signs.into_iter().max())
}
