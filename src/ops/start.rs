//! The main job: fingerprint, then reuse, attach, go on, or a new run carried out to its end.

use super::carry::{Acting, Answer, at_rest, be_ready, carry_out, refuse_small_limits};
use super::error::OpsError;
use super::follow;
use super::given::{Choices, TaskChoice, given};
use super::place::Place;
use super::queue;
use super::rolled_back::{refuse_behind, refuse_task};
use crate::artifacts::home::Home;
use crate::domain::budget::Scope;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Exit};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{RunId, SupportCode};
use crate::domain::machine::Word as _;
use crate::domain::plan::phase::first_phase;
use crate::domain::plan::start::{Existing, Follow, Wishes, existing};
use crate::domain::plan::verdict::exit as exit_of;
use crate::domain::record::RunRecord;
use crate::domain::run::{OpenedBy, RunStatus};
use crate::domain::task::{StepKind, StepSpec, TaskSpec, WhenBusy};
pub use crate::engine::facts::DirtyRule;
use crate::engine::facts::{self, Facts};
use crate::engine::host::{Who, now};
use crate::engine::recover::LeftWork;
use crate::engine::token::RunToken;
use crate::engine::{heartbeat, run as engine_run};
use crate::report::run_json::Via;
use crate::store::{Holder, NewRun, Note, StartKey, Started, Store, StoreError};

/// What was asked for.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The task.
    pub task: TaskChoice,
    /// What the command line adds.
    pub choices: Choices,
    /// What to do about a dirty checkout.
    pub dirty: DirtyRule,
    /// A new run on purpose.
    pub fresh: bool,
    /// Whether a running run is followed, a failed one resumed.
    pub wishes: Wishes,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// Only accept the run; somebody else carries it out.
    pub accept_only: bool,
}

/// What a start would do, without doing it.
#[derive(Debug)]
pub struct Plan {
    /// What the run would be given.
    pub facts: Facts,
    /// The run that the fingerprint already has.
    pub existing: Option<(RunRecord, Existing)>,
}

/// The facts of the run that `options` ask for.
pub fn gather(place: &Place, options: &StartOptions) -> Result<Facts, OpsError> {
    refuse_nested(place)?;
    let given = given(place, &options.task, &options.choices, options.dirty)?;
    let facts = facts::gather(&place.repo, given)?;
    refuse_unenforceable(&facts)?;
    Ok(facts)
}

/// `--dry-run`: what would happen.
pub fn plan(place: &Place, options: &StartOptions) -> Result<Plan, OpsError> {
    let facts = gather(place, options)?;
    let store = place.records()?.filter(|_| !options.fresh);
    let found = match &store {
        Some(store) => store.run_by_fingerprint(&facts.components.fingerprint())?.map(|run| (store, run)),
        None => None,
    };
    let existing = match found {
        None => None,
        Some((store, run)) => {
            let holding = queue::holding(store, &run)?;
            let decision = existing(&run, holding, options.wishes);
            Some((run, decision))
        }
    };
    Ok(Plan { facts, existing })
}

/// Starts.
pub fn start(place: &Place, acting: Acting<'_>, options: &StartOptions) -> Result<Answer, OpsError> {
    refuse_small_limits()?;
    let facts = gather(place, options)?;
    let home = place.home()?;
    let mut store = Store::open(&home.database())?;
    refuse_task(&home, &store, &facts.inputs.spec.task)?;
    if options.fresh || store.run_by_fingerprint(&facts.components.fingerprint())?.is_none() {
        refuse_exhausted(&store, &facts)?;
        refuse_missing_agent(place, &facts)?;
        queue::refuse_held_provider(&store, &facts.inputs)?;
        be_ready(&home)?;
    }
    queue::forget_the_dead(&mut store, &acting.who, &facts.inputs)?;
    let token = RunToken::new()?;
    let new = new_run(place, &home, (&facts, &token), options)?;
    let started = match store.start_or_attach(&new, &acting.who.context()) {
        Err(StoreError::GroupBusy { run, .. }) if joins(&facts, options) => {
            note(&mut store, &acting.who, &run, EventKind::RunAttached, "a run of the same group has joined it")?;
            return follow_to_the_end(place, acting, store, &run);
        }
        other => other?,
    };
    match started {
        Started::New(hold) => {
            let left_work = LeftWork::ByCase;
            let claimed = engine_run::Claimed {
                store,
                hold,
                token,
                opened_by: OpenedBy::Start,
                left_work,
                last_sign: None,
                insists: false,
            };
            carry_out(place, &home, acting, claimed, Via::New)
        }
        Started::Queued { run, .. } => queued(place, acting, store, &run, options),
        Started::Existing(run) => existing_run(place, &home, acting, store, &run, options),
    }
}

/// Whether the end of the run that holds the group is this one's end, too (R-W6).
fn joins(facts: &Facts, options: &StartOptions) -> bool {
    let group = facts.inputs.spec.concurrency.as_ref();
    group.is_some_and(|group| group.when_busy == WhenBusy::Join) && options.wishes.follow == Follow::ToTheEnd
}

/// A task that has used a limit up gets no further run: its ledger begins anew by success alone (R-R4).
fn refuse_exhausted(store: &Store, facts: &Facts) -> Result<(), OpsError> {
    let used = store.task_usage(&facts.inputs.spec.task)?;
    match facts.inputs.budget().task.exhausted(Scope::Task, &used) {
        None => Ok(()),
        Some(breach) => Err(OpsError::failed(Code::BudgetExceeded, format!("{breach}, over all runs of the task"))),
    }
}

/// F39: a run inside a run could dead-lock on itself and escape its budget.
fn refuse_nested(place: &Place) -> Result<(), OpsError> {
    match place.var(crate::config::env_vars::AGENTRUN_RUN_ID) {
        Some(run) => {
            let message = format!("this command was called from inside run {run}, which may not start or resume runs");
            Err(OpsError::failed(Code::NestedRun, message))
        }
        None => Ok(()),
    }
}

/// Without its agent a run could only fail; refused before there is one.
fn refuse_missing_agent(place: &Place, facts: &Facts) -> Result<(), OpsError> {
    match crate::engine::steps::agent::not_installed(&place.vars, &facts.inputs) {
        None => Ok(()),
        Some((step, program)) => {
            let message =
                format!("the agent of step `{step}` is not installed: there is no program `{program}` on the PATH");
            Err(OpsError::failed(Code::CommandNotFound, message))
        }
    }
}

/// A limit that an agent gives no figures for is refused, not ignored.
fn refuse_unenforceable(facts: &Facts) -> Result<(), OpsError> {
    match crate::engine::steps::agent::unenforceable(&facts.inputs, &facts.inputs.budget()).first() {
        None => Ok(()),
        Some((step, what)) => {
            let message =
                format!("a {what} limit is set, but the agent of step `{step}` reports no {what} and has no price");
            Err(OpsError::failed(Code::BudgetUnenforceable, message))
        }
    }
}

fn new_run(
    place: &Place,
    home: &Home,
    (facts, token): (&Facts, &RunToken),
    options: &StartOptions,
) -> Result<NewRun, OpsError> {
    let present = now();
    let key = options.idempotency_key.as_ref().map(|key| StartKey {
        hash: Sha256Hash::of(key.as_bytes()),
        request: facts.components.fingerprint(),
        expires_at: present.utc.plus(facts.inputs.policy.retention_start),
    });
    let lease_until = heartbeat::lease_until(&present, &facts.inputs.policy.leases);
    let process = engine_run::this_process()?;
    let claim = (!options.accept_only).then_some(Holder { process, lease_until, token: Some(token.hash()) });
    Ok(NewRun {
        components: facts.components.clone(),
        inputs: facts.inputs.clone(),
        phase: first_phase(&facts.inputs.spec),
        number_floor: number_floor(place, home, &facts.inputs.spec)?,
        fresh: options.fresh,
        support_code: support_code(),
        key,
        claim,
    })
}

/// The highest run number that folders and refs show: a database that was lost must not give a number out twice.
fn number_floor(place: &Place, home: &Home, spec: &TaskSpec) -> Result<u32, OpsError> {
    let prefix = format!("run_{}_", spec.task);
    let names = home.run_names()?.into_iter().chain(place.repo.run_names()?);
    let numbers = names.filter_map(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
    Ok(numbers.max().unwrap_or(0))
}

fn support_code() -> SupportCode {
    // The low half of a version 7 UUID is random but for two bits.
    SupportCode::from_bits(uuid::Uuid::now_v7().as_u64_pair().1)
}

/// A run that is accepted and takes its turn: in its group, and for room on this machine.
fn queued(
    place: &Place,
    acting: Acting<'_>,
    store: Store,
    run: &RunId,
    options: &StartOptions,
) -> Result<Answer, OpsError> {
    let accepted = |store: Store, exit| -> Result<Answer, OpsError> {
        let remark = Some("accepted; nobody works on it yet".to_owned());
        Ok(Answer { view: store.view(run)?, via: Via::New, exit, remark })
    };
    if options.accept_only {
        return accepted(store, Exit::Ok);
    }
    match super::resume::go_on(place, acting, run, (Via::New, options.wishes.follow)) {
        Err(error) if error.code().entry().exit == Exit::Busy && options.wishes.follow == Follow::No => {
            accepted(store, Exit::Busy)
        }
        other => other,
    }
}

/// Follows a run to its end, and goes on with it where its holder dies meanwhile. Of several followers one does.
fn follow_to_the_end(place: &Place, mut acting: Acting<'_>, mut store: Store, run: &RunId) -> Result<Answer, OpsError> {
    loop {
        let record = follow::until_rest(&store, run, acting.inbox, acting.observer)?;
        if !matches!(record.status, RunStatus::Running | RunStatus::Pending) {
            let view = at_rest(place, &place.home()?, &acting, store, run)?;
            return Ok(Answer { exit: exit_of(&view.run), view, via: Via::Attached, remark: None });
        }
        drop(store);
        match super::resume::go_on(place, acting.again(), run, (Via::Attached, Follow::ToTheEnd)) {
            Err(error) if error.code() == Code::Busy => store = place.store()?,
            done => return done,
        }
    }
}

/// The fingerprint has a run: contract §14.
fn existing_run(
    place: &Place,
    home: &Home,
    acting: Acting<'_>,
    mut store: Store,
    run: &RunId,
    options: &StartOptions,
) -> Result<Answer, OpsError> {
    let record = store.find_run(run)?.ok_or_else(|| missing(run))?;
    refuse_behind(home, &store, run)?;
    let decision = existing(&record, queue::holding(&store, &record)?, options.wishes);
    let told = |store: Store, via, exit, remark: &str| -> Result<Answer, OpsError> {
        let view = at_rest(place, home, &acting, store, run)?;
        Ok(Answer { view, via, exit, remark: Some(remark.to_owned()) })
    };
    match decision {
        Existing::Reuse => {
            note(
                &mut store,
                &acting.who,
                run,
                EventKind::RunReused,
                "an equal run has succeeded; nothing was executed",
            )?;
            told(store, Via::Reused, Exit::Ok, "an equal run has succeeded before; this is its result")
        }
        Existing::Attach => {
            note(&mut store, &acting.who, run, EventKind::RunAttached, "an equal run is under way and was followed")?;
            follow_to_the_end(place, acting, store, run)
        }
        Existing::TellBusy => {
            note(&mut store, &acting.who, run, EventKind::StartRefused, "an equal run is in progress")?;
            told(store, Via::Attached, Exit::Busy, "an equal run is in progress")
        }
        Existing::TakeOver => {
            drop((store, home));
            super::resume::go_on(place, acting, run, (Via::Resumed, options.wishes.follow))
        }
        Existing::Tell(exit) => {
            let status = record.status.word();
            note(&mut store, &acting.who, run, EventKind::StartRefused, &format!("an equal run is {status}"))?;
            told(store, Via::Attached, exit, &format!("an equal run is {status}; nothing was executed"))
        }
    }
}

fn note(store: &mut Store, who: &Who, run: &RunId, kind: EventKind, reason: &str) -> Result<(), OpsError> {
    let note = Note { kind, reason: reason.to_owned(), body: serde_json::json!({}) };
    Ok(store.note(Some(run), &note, &who.context())?)
}

fn missing(run: &RunId) -> OpsError {
    OpsError::about(run, Code::NotFound, format!("run {run} is not in the database"))
}

/// The steps that would be carried out: for `--dry-run`.
pub fn steps(spec: &TaskSpec) -> Vec<(String, StepKind, String)> {
    let shown = |s: &StepSpec| (s.key.to_string(), s.kind(), crate::engine::steps::command::shown(s));
    spec.steps.iter().map(shown).collect()
}
