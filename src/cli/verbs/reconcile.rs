//! `agentrun reconcile`: asks the other side what became of effects that nobody knows about.

use clap::Args;

use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::action::ActionState;
use crate::domain::failure::Exit;
use crate::ops::calling::{Hangup, Inbox};
use crate::ops::carry::Acting;
use crate::ops::reconcile::{Found, reconcile};
use crate::report::action_json::{ReconcileDocument, reconcile_json};
use crate::report::action_text::reconciled_line;

/// `reconcile`.
#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// Only this one: its id, or the beginning of it.
    pub action: Option<String>,
}

/// Runs it.
pub fn run(session: &mut Session, args: &ReconcileArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let inbox = Inbox::new();
    let _listener = session.listen(&inbox, Hangup::Stops)?;
    let own_program = session.own_program()?;
    let mut progress = session.progress();
    let acting = Acting { who: session.who.clone(), inbox: &inbox, observer: &mut progress, own_program: &own_program };
    let found = reconcile(&place, acting, args.action.as_deref());
    progress.finish();
    let found = found?;
    tell(session, &found);
    Ok(exit_of(&found))
}

fn tell(session: &mut Session, found: &Found) {
    let asked: Vec<_> = found.actions.iter().map(|r| (r.before, &r.action, r.hindered.as_ref())).collect();
    if session.json {
        session.say.json(&reconcile_json(&ReconcileDocument {
            asked: &asked,
            expired: found.expired,
            nameless: &found.nameless,
        }));
        return;
    }
    if asked.is_empty() {
        session.say.chat("nothing is in question");
    }
    let lines: String =
        asked.iter().map(|(before, action, hindered)| reconciled_line(*before, action, *hindered)).collect();
    session.say.result(&lines);
    for action in &found.nameless {
        session
            .say
            .chat(&format!("{} {} was approved and done, and has no name at the other side", action.kind, action.id));
    }
    if found.expired > 0 {
        session.say.chat(&format!("{} approvals were over by their own time", found.expired));
    }
}

/// As careful as the worst of what is left: 4 while something may have happened, 17 when only a person can tell.
fn exit_of(found: &Found) -> Exit {
    let is_open = |state| matches!(state, ActionState::OutcomeUnknown | ActionState::Started | ActionState::InProgress);
    let open: Vec<_> = found.actions.iter().map(|r| &r.action).filter(|action| is_open(action.state)).collect();
    match open.as_slice() {
        [] => Exit::Ok,
        open if open.iter().all(|action| action.review.is_some()) => Exit::ReviewRequired,
        _ => Exit::OutcomeUnknown,
    }
}
