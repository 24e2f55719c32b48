//! Carrying a run out on behalf of a command, and the answer that the command gives: what start, resume and cancel share.

use std::path::Path;

use super::error::OpsError;
use super::place::Place;
use crate::artifacts::home::Home;
use crate::domain::failure::Exit;
use crate::domain::ids::RunId;
use crate::domain::plan::verdict::exit as exit_of;
use crate::domain::record::RunView;
use crate::domain::run::RunStatus;
use crate::engine::host::{Host, Inbox, Who};
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
    let host = Host {
        repo: &place.repo,
        home,
        supervisor: &supervisor,
        vars: &place.vars,
        own_program: acting.own_program,
        who: acting.who,
    };
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
    let host = Host {
        repo: &place.repo,
        home,
        supervisor: &supervisor,
        vars: &place.vars,
        own_program: acting.own_program,
        who: acting.who.clone(),
    };
    Ok(rest::catch_up(&host, store, &view)?.view(run)?)
}
