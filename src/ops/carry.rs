//! Carrying a run out on behalf of a command, and the answer that the command gives: what start, resume and cancel share.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::error::OpsError;
use super::place::Place;
use crate::artifacts::ArtifactError;
use crate::artifacts::home::Home;
use crate::domain::failure::{Code, Exit};
use crate::domain::ids::RunId;
use crate::domain::plan::verdict::exit as exit_of;
use crate::domain::record::RunView;
use crate::domain::run::RunStatus;
use crate::engine::host::{Inbox, Who};
use crate::engine::observer::Observer;
use crate::engine::{rest, run as engine_run};
use crate::process::Supervisor;
use crate::process::signals::StopKind;
use crate::report::run_json::Via;
use crate::store::Store;

/// What came of it.
#[derive(Debug)]
pub struct Answer {
    /// The run as it stands.
    pub view: RunView,
    /// How the answer came about.
    pub via: Via,
    /// What the command ends with.
    pub exit: Exit,
    /// A remark for people: why nothing ran.
    pub remark: Option<String>,
}

/// What commands that act need beside the place.
pub struct Acting<'a> {
    /// Who and by which command.
    pub who: Who,
    /// Messages to the engine.
    pub inbox: &'a Inbox,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
    /// agentrun's own program.
    pub own_program: &'a Path,
}

impl Acting<'_> {
    /// For one of several tries.
    pub fn again(&mut self) -> Acting<'_> {
        Acting {
            who: self.who.clone(),
            inbox: self.inbox,
            observer: &mut *self.observer,
            own_program: self.own_program,
        }
    }
}

/// What this process must be allowed before it takes a run: a run of a few agents has some thirty files open.
const OPEN_FILES: u64 = 64;

/// Too few open files are said first of all: later each file that cannot be opened would have a reason of its own (F12).
pub fn refuse_small_limits() -> Result<(), OpsError> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < OPEN_FILES => {
            let message = format!("this process may have {limit} files open, and a run needs {OPEN_FILES} (ulimit -n)");
            Err(OpsError::failed(Code::EnvLimit, message))
        }
        _ => Ok(()),
    }
}

/// What a run could lack is refused before it is claimed, for a claim opens an attempt: threads (F12), and room for the last
/// record (F07).
pub fn be_ready(home: &Home) -> Result<(), OpsError> {
    // The thread stays, so a later supervisor needs nothing that could be refused.
    Supervisor::start()?;
    home.create_reserve().map_err(|error| match error {
        ArtifactError::NoSpace(_) => {
            let message = format!("there is no room in {} for the last record of a run", home.state_dir().display());
            OpsError::failed(Code::StoreFull, message)
        }
        other => other.into(),
    })
}

/// Carries out a claimed run and answers with it.
pub fn carry_out(
    place: &Place,
    home: &Home,
    acting: Acting<'_>,
    claimed: engine_run::Claimed,
    via: Via,
) -> Result<Answer, OpsError> {
    let run = claimed.hold.run.clone();
    let supervisor = Supervisor::start()?;
    let host = place.host(home, &supervisor, (&acting.who, acting.own_program));
    let rested = engine_run::carry_out(&host, acting.inbox, claimed, acting.observer)?;
    let view = rested.store.view(&run)?;
    let exit = match rested.stopped_by {
        Some(StopKind::Interrupt) => Exit::Interrupted,
        Some(StopKind::Terminate) => Exit::Terminated,
        Some(StopKind::Hangup) => Exit::Hangup,
        None => exit_of(&view.run),
    };
    Ok(Answer { exit, view, via, remark: None })
}

/// A run at rest as it is answered with. Where its holder died before its last words, they are written now.
pub fn at_rest(
    place: &Place,
    home: &Home,
    acting: &Acting<'_>,
    store: Store,
    run: &RunId,
) -> Result<RunView, OpsError> {
    let view = store.view(run)?;
    if matches!(view.run.status, RunStatus::Running | RunStatus::Pending) || rest::is_told(&view) {
        return Ok(view);
    }
    let supervisor = Supervisor::start()?;
    let host = place.host(home, &supervisor, (&acting.who, acting.own_program));
    Ok(rest::catch_up(&host, store, &view)?.view(run)?)
}
