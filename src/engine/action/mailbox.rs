//! What programs inside a run want: they write the intent alone, and the run's holder carries it out. A thread of its own looks
//! at the record from time to time, and tells the engine what is new.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::thread::Scope;

use super::errand::tell;
use super::stop::Stop;
use super::subject::{Looked, policy_of};
use super::want::{Intended, found, read_request};
use super::{Outside, OwnCommands};
use crate::artifacts::home::Home;
use crate::domain::action::{ActionRecord, ActionState};
use crate::domain::failure::Code;
use crate::domain::ids::{ActionId, ApprovalId, RunId};
use crate::domain::quantity::Millis;
use crate::domain::record::RunInputs;
use crate::engine::error::EngineError;
use crate::engine::host::Message;
use crate::store::{ActionFilter, Store, StoreError};

/// A run that is over sooner never has a second connection opened for it.
const FIRST_LOOK: Millis = Millis(200);

/// How often it is asked whether the record changed. Asking costs microseconds.
const LOOK: Millis = Millis(100);

/// States in which the holder has something to do.
const TO_DO: [ActionState; 4] =
    [ActionState::Ready, ActionState::Started, ActionState::InProgress, ActionState::OutcomeUnknown];

/// An action as it was met: one that a person has agreed to since then is another.
pub type Met = (ActionId, Option<ApprovalId>);

/// Looks after wishes until it is dropped.
pub struct Mailbox(Stop);

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Whether programs of this run may ask for anything: one of its contracts must say so.
pub fn is_open(inputs: &RunInputs) -> bool {
    inputs.contracts.values().any(|contract| !contract.actions.is_empty())
}

/// The longest time until something that programs of this run may ask for is answered; `None` where they may ask for nothing.
pub fn longest_answer(inputs: &RunInputs) -> Option<Millis> {
    let kinds = inputs.contracts.values().flat_map(|contract| &contract.actions);
    kinds.map(|kind| inputs.policy.actions.of(*kind).answer).max()
}

/// Begins to look.
pub fn open<'scope>(
    scope: &'scope Scope<'scope, '_>,
    home: &Home,
    run: &RunId,
    inbox: SyncSender<Message>,
) -> Result<Mailbox, EngineError> {
    let stop = Stop::default();
    let mailbox = Mailbox(stop.clone());
    let (database, run) = (home.database(), run.clone());
    let named = std::thread::Builder::new().name("mailbox".into());
    let started = named.spawn_scoped(scope, move || look(&database, &run, (&inbox, &stop)));
    let failed = |error| EngineError::failed(Code::EnvLimit, format!("no thread for what programs ask for: {error}"));
    started.map(|_| mailbox).map_err(failed)
}

/// A look that fails is not told: the engine looks itself before it ends.
fn look(database: &Path, run: &RunId, (inbox, stop): (&SyncSender<Message>, &Stop)) {
    if stop.wait(FIRST_LOOK) {
        return;
    }
    let Ok(Some(store)) = Store::open_read_only(database) else { return };
    let (mut version, mut told) = (None, BTreeSet::new());
    loop {
        let present = store.data_version().ok();
        if present.is_none() || present != version {
            version = present;
            for met in wishes(&store, run).unwrap_or_default() {
                if told.insert(met.clone()) {
                    tell(inbox, Message::Wished(met.0), stop);
                }
            }
        }
        if stop.wait(LOOK) {
            return;
        }
    }
}

/// What programs of a run want and what nobody but its holder can bring on.
pub fn wishes(store: &Store, run: &RunId) -> Result<Vec<Met>, StoreError> {
    let wished = of_run(store, run, &TO_DO)?.into_iter().filter(|action| action.review.is_none());
    Ok(wished.map(|action| (action.id, action.approval)).collect())
}

/// The actions in some of these states that programs of a run asked for; those of its steps are left out.
pub fn of_run(store: &Store, run: &RunId, states: &[ActionState]) -> Result<Vec<ActionRecord>, StoreError> {
    let filter = ActionFilter { run: Some(run.clone()), states: states.to_vec(), ..ActionFilter::default() };
    let mut wished = Vec::new();
    for action in store.actions(&filter)? {
        if store.wanted(&action.id)?.iter().any(|wanted| wanted.by.run == *run && wanted.by.step.is_none()) {
            wished.push(action);
        }
    }
    Ok(wished)
}

/// The run for which a wish is carried out.
pub struct For<'a> {
    /// What it was given.
    pub inputs: &'a RunInputs,
    /// The commit that it began from.
    pub base_commit: &'a str,
    /// What its commands see of the environment.
    pub vars: &'a BTreeMap<OsString, OsString>,
}

/// An action that a program asked for, with everything that an approval covers. Of the run's own work it covers the base
/// alone, for that work is still going on; a release is named with its content.
pub fn intended(
    outside: &Outside<'_>,
    store: &Store,
    (id, of): (&ActionId, &For<'_>),
) -> Result<Intended, EngineError> {
    let action = found(store, id)?;
    let request = read_request(outside, &action)?;
    let release = action.release.as_ref().map(|release| store.release(release)).transpose()?.flatten();
    let kept = release.as_ref().map(|release| outside.home.run_dir(&release.run)).transpose()?;
    let asked = request.asked();
    let looked = Looked {
        contract: action.contract.clone(),
        own: OwnCommands::default(),
        dir: outside.root.to_path_buf(),
        root: outside.root.to_path_buf(),
        vars: of.vars.clone(),
        commit: of.base_commit.to_owned(),
        kept: kept.map_or_else(|| outside.home.root().to_path_buf(), |dir| dir.path().to_path_buf()),
        release,
        environment_state: Vec::new(),
        policy: policy_of(of.inputs),
        title: format!("{} to {}, asked for from inside a run", request.kind, request.target),
        request,
    };
    Ok(Intended { action, looked, asked })
}
