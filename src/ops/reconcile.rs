//! Asks the other side what became of effects that nobody knows about (R-A7, R-U7): a look, never a send.

use super::actions;
use super::carry::Acting;
use super::error::OpsError;
use super::place::Place;
use crate::domain::action::{ActionRecord, ActionRequest, ActionState};
use crate::domain::failure::{Code, Failure};
use crate::domain::lease::Holding;
use crate::domain::quantity::Millis;
use crate::domain::record::RunView;
use crate::engine::action::carry::May;
use crate::engine::action::claim::held_by;
use crate::engine::action::errand::{self, For, Order};
use crate::engine::action::subject::{Looked, policy_of};
use crate::engine::action::want::{Intended, read_request};
use crate::engine::action::{Outside, OwnCommands, work_dir};
use crate::engine::error::EngineError;
use crate::engine::host::{Host, Inbox, Message};
use crate::engine::steps::command;
use crate::process::Supervisor;
use crate::store::{ActionFilter, Store};

/// What became of one action.
#[derive(Debug)]
pub struct Reconciled {
    /// Where it stood before.
    pub before: ActionState,
    /// The record.
    pub action: ActionRecord,
    /// Why it could not be asked about, where something stood in the way.
    pub hindered: Option<Failure>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Every action that was in question.
    pub actions: Vec<Reconciled>,
    /// Approvals whose time was over.
    pub expired: usize,
    /// Succeeded without a name at the other side: nothing to find them by, should anybody ask.
    pub nameless: Vec<ActionRecord>,
}

/// Asks about one, or about all that are in question.
pub fn reconcile(place: &Place, acting: Acting<'_>, only: Option<&str>) -> Result<Found, OpsError> {
    actions::refuse_inside(place)?;
    let home = place.home()?;
    let mut store = Store::open(&home.database())?;
    let supervisor = Supervisor::start()?;
    let host = place.host(&home, &supervisor, (&acting.who, acting.own_program));
    let expired = store.expire_approvals(&acting.who.context())?.len();
    let mut found = Found { expired, nameless: nameless(&store)?, ..Found::default() };
    let open = match only {
        Some(id) => vec![actions::one(&store, id)?],
        None => in_question(&store)?,
    };
    for action in open {
        let before = action.state;
        let asked = ask(&host, acting.inbox, &store, action.clone());
        let stopped = asked.as_ref().is_err_and(|error| error.code() == Code::Interrupted);
        let action = actions::one(&store, action.id.as_str())?;
        let hindered = asked.err().map(|error| error.failure());
        found.actions.push(Reconciled { before, action, hindered });
        if stopped {
            break;
        }
    }
    Ok(found)
}

/// What may have happened, or is accepted and not done; and what was sent by somebody who is gone.
fn in_question(store: &Store) -> Result<Vec<ActionRecord>, OpsError> {
    let states = vec![ActionState::OutcomeUnknown, ActionState::InProgress, ActionState::Started];
    let found = store.actions(&ActionFilter { states, ..ActionFilter::default() })?;
    Ok(found.into_iter().filter(|action| held_by(action) != Holding::Held).collect())
}

fn nameless(store: &Store) -> Result<Vec<ActionRecord>, OpsError> {
    let states = vec![ActionState::Succeeded];
    let done = store.actions(&ActionFilter { states, ..ActionFilter::default() })?;
    Ok(done.into_iter().filter(|action| action.approval.is_some() && action.reference.is_none()).collect())
}

/// Asks about one. A signal ends it as soon as that can be done.
fn ask(host: &Host<'_>, inbox: &Inbox, store: &Store, action: ActionRecord) -> Result<(), EngineError> {
    let view = store.view(&action.run)?;
    let outside = Outside::of(host);
    let request = read_request(&outside, &action)?;
    let looked = looked(host, (&view, &action), request)?;
    let asked = looked.request.asked();
    let policy = view.inputs.policy.clone();
    let limit = action_limit(&view, &action);
    let order = Order {
        whom: For::Wish(action.id.clone()),
        hold: None,
        policy,
        intended: Intended { action, looked, asked },
        limit,
        may: May::Ask,
    };
    std::thread::scope(|scope| {
        let under_way = errand::start(scope, outside, order, inbox.sender.clone())?;
        let mut stopped = None;
        loop {
            match inbox.receiver.recv() {
                Ok(Message::Carried(_, carried)) => {
                    (*carried)?;
                    return stopped.map_or(Ok(()), Err);
                }
                Ok(Message::Signal(signal)) => {
                    under_way.stop();
                    let what = format!("{} received: what was found out by then is on record", signal.kind.name());
                    stopped = Some(EngineError::failed(Code::Interrupted, what));
                }
                Ok(_) => {}
                Err(_) => return Err(EngineError::failed(Code::Internal, "the inbox was closed")),
            }
        }
    })
}

/// The clock of the step that wanted it, or the policy's.
fn action_limit(view: &RunView, action: &ActionRecord) -> Millis {
    let step = action.step.as_ref().and_then(|key| view.inputs.spec.step(key));
    step.and_then(|step| step.timeout).unwrap_or(view.inputs.policy.timeouts.step)
}

/// What asking needs: the commands of the step and where they stand. Nothing here is ever approved or sent.
fn looked(
    host: &Host<'_>,
    (view, action): (&RunView, &ActionRecord),
    request: ActionRequest,
) -> Result<Looked, EngineError> {
    let step = action.step.as_ref().and_then(|key| view.inputs.spec.step(key));
    let own = step.map(OwnCommands::of).unwrap_or_default();
    let mut vars = command::vars(host, &view.inputs);
    vars.extend(own.env.iter().map(|(name, value)| (name.into(), value.into())));
    Ok(Looked {
        request,
        contract: action.contract.clone(),
        own,
        dir: work_dir(host.home, host.repo.root(), (&view.run.id, &view.inputs))?,
        root: host.repo.root().to_path_buf(),
        vars,
        commit: String::new(),
        release: None,
        kept: host.home.root().to_path_buf(),
        environment_state: Vec::new(),
        policy: policy_of(&view.inputs),
        title: String::new(),
    })
}
