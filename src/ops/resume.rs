//! The one verb to go on after anything: validates, explains, continues after the last good checkpoint (R-S5).

use super::allowance;
use super::carry::{Acting, Answer, at_rest, carry_out};
use super::error::OpsError;
use super::follow;
use super::given::{Choices, TaskChoice, given, policy};
use super::place::Place;
use crate::artifacts::manifest_file;
use crate::domain::budget::{Budget, LimitKind, Scope};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Exit};
use crate::domain::ids::{RunId, StepKey, TaskId};
use crate::domain::lease::Holding;
use crate::domain::machine::Word as _;
use crate::domain::plan::resume::{Difference, DifferenceCode, ResumeVerdict, verdict};
use crate::domain::plan::verdict::exit as exit_of;
use crate::domain::record::{RunInputs, RunRecord, RunView};
use crate::domain::run::{OpenedBy, RunEvent, RunStatus};
use crate::domain::task::WorkspaceKind;
use crate::engine::facts::{DirtyRule, Given};
use crate::engine::host::{Host, now};
use crate::engine::recover::LeftWork;
use crate::engine::run as engine_run;
use crate::engine::validate;
use crate::process::Supervisor;
use crate::report::run_json::Via;
use crate::store::{Decision, Store};

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct ResumeOptions {
    /// Differences that a person accepts.
    pub accept: Vec<DifferenceCode>,
    /// Limits that a person sets: up to the policy's.
    pub budget: Vec<(Scope, LimitKind, u64)>,
    /// One more round for the failed check.
    pub send_back: bool,
    /// The working copy as it stands is meant.
    pub keep: bool,
    /// The working copy is put back to the last snapshot.
    pub rebuild: bool,
    /// Why; recorded.
    pub reason: Option<String>,
}

/// What going on would meet.
#[derive(Debug)]
pub struct Outlook {
    /// The run.
    pub view: RunView,
    /// The verdict.
    pub verdict: ResumeVerdict,
    /// Every difference.
    pub differences: Vec<Difference>,
    /// The step that comes next.
    pub next_step: Option<StepKey>,
}

/// `--dry-run`: the verdict and its reasons. Changes nothing.
pub fn outlook(place: &Place, acting: &Acting<'_>, run: &RunId, options: &ResumeOptions) -> Result<Outlook, OpsError> {
    let home = place.home()?;
    let store = Store::open(&home.database())?;
    let view = store.view(run)?;
    let supervisor = Supervisor::start()?;
    let host = Host {
        repo: &place.repo,
        home: &home,
        supervisor: &supervisor,
        vars: &place.vars,
        own_program: acting.own_program,
        who: acting.who.clone(),
    };
    let given = present_files(place, &view);
    refuse_rolled_back(&home, &view)?;
    let differences = validate::differences(&host, &view, given.as_ref())?;
    let mut accepted = options.accept.clone();
    if options.keep || options.rebuild {
        accepted.push(DifferenceCode::WorktreeChanged);
        accepted.push(DifferenceCode::LockfileChanged);
    }
    let next_step = crate::domain::manifest::Manifest::of(&view).next_step;
    Ok(Outlook { verdict: verdict(&differences, &accepted), differences, next_step, view })
}

/// A manifest that shows more than the database knows: the database was put back (F14).
fn refuse_rolled_back(home: &crate::artifacts::home::Home, view: &RunView) -> Result<(), OpsError> {
    let Some(manifest) = manifest_file::read(&home.run_dir(&view.run.id)?)? else { return Ok(()) };
    if manifest.generation > view.chain.count {
        let message = format!(
            "the manifest of run {} shows event {}, the database ends at {}: an older database was put in place",
            view.run.id, manifest.generation, view.chain.count
        );
        return Err(OpsError::about(&view.run.id, Code::StateRolledBack, message));
    }
    Ok(())
}

/// What the task's files say now. A file that is gone or broken is no obstacle: the run has a copy of its own.
fn present_files(place: &Place, view: &RunView) -> Option<Given> {
    let inputs = view.inputs.spec.inputs.clone();
    let choices = Choices { inputs, ..Choices::default() };
    given(place, &TaskChoice::Named(view.run.task.to_string()), &choices, DirtyRule::Ignore).ok()
}

/// Resumes.
pub fn resume(
    place: &Place,
    mut acting: Acting<'_>,
    run: &RunId,
    options: &ResumeOptions,
    tell: &mut dyn FnMut(&Outlook),
) -> Result<Answer, OpsError> {
    if let Some(outer) = place.var(crate::config::env_vars::AGENTRUN_RUN_ID) {
        let message = format!("this command was called from inside run {outer}, which may not start or resume runs");
        return Err(OpsError::failed(Code::NestedRun, message));
    }
    let outlook = outlook(place, &acting, run, options)?;
    let mut record = outlook.view.run.clone();
    if let Some(answer) = nothing_to_do(place, &mut acting, &record)? {
        return Ok(answer);
    }
    tell(&outlook);
    refuse_by_verdict(run, &outlook)?;
    refuse_undecided(&outlook, options)?;
    // Everything that can be refused is refused before the run is claimed: a claim opens an attempt.
    let (inputs, changes) = adjustments(place, &outlook, options)?;
    let home = place.home()?;
    let mut store = Store::open(&home.database())?;
    let attempts = allowance::next_attempt(&store, &outlook.view, &inputs)?;
    if record.status == RunStatus::DeadLetter {
        record = requeue(&mut store, &acting, &record, options)?;
    }
    // By the fence that was looked at: whoever claimed it since then keeps it (FR-D13).
    let mut claimed = engine_run::claim(&acting.who, store, &record, (OpenedBy::Resume, attempts))?;
    claimed.left_work = match (options.keep, options.rebuild) {
        (true, _) => LeftWork::Keep,
        (false, true) => LeftWork::Rebuild,
        (false, false) => LeftWork::ByCase,
    };
    if !changes.is_empty() {
        claimed.store.record(&claimed.hold, &changes, &acting.who.context())?;
    }
    carry_out(place, &home, acting, claimed, Via::Resumed)
}

/// Goes on with a run as `start` does when it finds one that was cut: the verdict must be VALID.
pub fn go_on(place: &Place, acting: Acting<'_>, run: &RunId, via: Via) -> Result<Answer, OpsError> {
    let mut answer = resume(place, acting, run, &ResumeOptions::default(), &mut |_| {})?;
    answer.via = via;
    Ok(answer)
}

/// A run that is done, or that somebody works on, is not resumed.
fn nothing_to_do(place: &Place, acting: &mut Acting<'_>, record: &RunRecord) -> Result<Option<Answer>, OpsError> {
    let run = &record.id;
    match record.status {
        RunStatus::Succeeded | RunStatus::Canceled => {
            let view = at_rest(place, &place.home()?, acting, place.store()?, run)?;
            let remark = format!("run {run} is {} already; nothing was executed", record.status);
            Ok(Some(Answer { exit: exit_of(&view.run), view, via: Via::Reused, remark: Some(remark) }))
        }
        RunStatus::Running => match follow::holding(record) {
            Holding::Held => Err(OpsError::about(run, Code::Busy, held_message(record))),
            Holding::Foreign if !follow::holder_is_gone(&place.store()?, record, acting.inbox, acting.observer)? => {
                Err(OpsError::about(run, Code::Busy, format!("run {run} is being worked on by another machine")))
            }
            Holding::Free | Holding::Stuck | Holding::Abandoned | Holding::Foreign => Ok(None),
        },
        RunStatus::Retrying if !engine_run::is_due(record, now().utc) => {
            let at = record.retry_at.map(crate::report::amount::utc).unwrap_or_default();
            let message = format!("run {run} may be tried again at {at}");
            let code = record.code.filter(|c| c.entry().exit == Exit::RetryLater).unwrap_or(Code::RateLimit);
            Err(OpsError::about(run, code, message))
        }
        _ => Ok(None),
    }
}

fn held_message(record: &RunRecord) -> String {
    let holder = record.lease.as_ref().map(|l| l.holder.pid.to_string()).unwrap_or_default();
    format!("run {} is being worked on by process {holder}", record.id)
}

fn refuse_by_verdict(run: &RunId, outlook: &Outlook) -> Result<(), OpsError> {
    let named = |wanted: ResumeVerdict| {
        let codes = outlook.differences.iter().filter(|d| d.verdict == wanted);
        codes.map(|d| format!("{}: {}", d.code, d.note)).collect::<Vec<_>>().join("; ")
    };
    match outlook.verdict {
        ResumeVerdict::Valid => Ok(()),
        ResumeVerdict::ReviewRequired => {
            let what = named(ResumeVerdict::ReviewRequired);
            Err(OpsError::about(run, Code::ReviewRequired, format!("run {run} differs from its record: {what}")))
        }
        ResumeVerdict::ResumeBlocked => {
            let what = named(ResumeVerdict::ResumeBlocked);
            Err(OpsError::about(run, Code::ResumeBlocked, format!("run {run} cannot go on: {what}")))
        }
    }
}

/// A person must say what becomes of a failed attempt's changes (`keep_changes: review`), or what was done about whatever
/// stopped the run: tampering is not made good by going on.
fn refuse_undecided(outlook: &Outlook, options: &ResumeOptions) -> Result<(), OpsError> {
    let run = &outlook.view.run;
    if run.status == RunStatus::Blocked && options.reason.is_none() {
        let why = run.message.as_deref().unwrap_or("something is in its way");
        let message = format!("run {} was stopped: {why}; say with --reason what was done about it", run.id);
        return Err(OpsError::about(&run.id, run.code.unwrap_or(Code::ReviewRequired), message));
    }
    if run.status != RunStatus::ReviewRequired || options.keep || options.rebuild {
        return Ok(());
    }
    let message = format!(
        "run {} left changes for review: go on in them with --keep, or from the last good state with --rebuild",
        run.id
    );
    Err(OpsError::about(&run.id, Code::ReviewRequired, message))
}

/// A dead letter goes back by a person, with a reason.
fn requeue(
    store: &mut Store,
    acting: &Acting<'_>,
    record: &RunRecord,
    options: &ResumeOptions,
) -> Result<RunRecord, OpsError> {
    let Some(reason) = options.reason.clone() else {
        let message = format!("run {} is a dead letter: say with --reason what was changed", record.id);
        return Err(OpsError::about(&record.id, Code::DeadLetter, message));
    };
    let decision =
        Decision { event: RunEvent::Requeue, expected_fence: record.fence, failure: None, retry_at: None, reason };
    Ok(store.decide(&record.id, &decision, &acting.who.context())?)
}

/// What the run goes on with, and the record of what the person accepted and raised.
fn adjustments(
    place: &Place,
    outlook: &Outlook,
    options: &ResumeOptions,
) -> Result<(RunInputs, Vec<Change>), OpsError> {
    let mut changes = Vec::new();
    for difference in outlook.differences.iter().filter(|d| d.verdict == ResumeVerdict::ReviewRequired) {
        changes.push(note(
            EventKind::DifferenceAccepted,
            format!("{}: {}", difference.code, options.reason.as_deref().unwrap_or("accepted on the command line")),
            serde_json::json!({ "code": difference.code, "old": difference.old, "new": difference.new }),
        ));
    }
    if let (RunStatus::Blocked, Some(code)) = (outlook.view.run.status, outlook.view.run.code) {
        let reason = format!("{code}: {}", options.reason.as_deref().unwrap_or_default());
        changes.push(note(EventKind::DifferenceAccepted, reason, serde_json::json!({ "code": code })));
    }
    let mut inputs = outlook.view.inputs.clone();
    let before = (inputs.policy.budgets, inputs.spec.budget);
    if let Some(given) = present_files(place, &outlook.view) {
        // In place the agent works where the files lie: what it wrote into them must not set its limits.
        if inputs.spec.workspace == WorkspaceKind::Isolated {
            take_over_limits(&mut inputs, &given);
        }
        if options.accept.contains(&DifferenceCode::TaskSpecChanged) {
            take_over_spec(&mut inputs, &given, &outlook.view);
        }
    }
    raise(place, &mut inputs, &options.budget, &outlook.view.run.task)?;
    if options.send_back {
        one_more_round(&mut inputs);
    }
    if before != (inputs.policy.budgets, inputs.spec.budget) {
        let body = serde_json::json!({ "old": before, "new": (inputs.policy.budgets, inputs.spec.budget) });
        changes.push(note(EventKind::BudgetRaised, "the limits are others from here on".to_owned(), body));
    }
    if inputs != outlook.view.inputs {
        changes.push(Change::Inputs(Box::new(inputs.clone())));
    }
    Ok((inputs, changes))
}

fn note(kind: EventKind, reason: String, body: serde_json::Value) -> Change {
    Change::Note { kind, step: None, reason, body }
}

/// A changed limit alone is valid: it holds from here on (R-S5). One that a person had raised for this run stays raised.
fn take_over_limits(inputs: &mut RunInputs, given: &Given) {
    inputs.policy.budgets = given.policy.budgets;
    inputs.policy.timeouts = given.policy.timeouts;
    inputs.policy.retry = given.policy.retry.clone();
    inputs.spec.budget = given.spec.budget;
    let Budget { attempt, task } = inputs.raised;
    for (limits, raised) in [(&mut inputs.spec.budget.attempt, attempt), (&mut inputs.spec.budget.task, task)] {
        for kind in LimitKind::ALL {
            limits.set(*kind, raised.of(*kind).or(limits.of(*kind)));
        }
    }
}

/// The new task for the steps that are not done yet; the ones that are done stay as they were.
fn take_over_spec(inputs: &mut RunInputs, given: &Given, view: &RunView) {
    let same_keys = inputs.spec.steps.iter().map(|s| &s.key).eq(given.spec.steps.iter().map(|s| &s.key));
    if !same_keys {
        return;
    }
    let done = |key: &StepKey| {
        view.steps.iter().any(|s| s.key == *key && s.state == crate::domain::step::StepState::Succeeded)
    };
    let mut spec = given.spec.clone();
    for step in &mut spec.steps {
        if let Some(old) = inputs.spec.step(&step.key).filter(|_| done(&step.key)) {
            *step = old.clone();
        }
    }
    for (key, prompt) in &given.prompts {
        if !done(key) {
            inputs.prompts.insert(key.clone(), prompt.clone());
        }
    }
    inputs.spec = spec;
}

/// Limits given on the command line: up to the policy's, and no further.
fn raise(
    place: &Place,
    inputs: &mut RunInputs,
    wanted: &[(Scope, LimitKind, u64)],
    task: &TaskId,
) -> Result<(), OpsError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let policy = policy(place, None)?.policy.budgets;
    for (scope, kind, value) in wanted {
        let ceiling = match scope {
            Scope::Attempt => policy.attempt.of(*kind),
            Scope::Task => policy.task.of(*kind),
        };
        if ceiling.is_some_and(|ceiling| *value > ceiling) {
            let ceiling = ceiling.unwrap_or_default();
            let message = format!(
                "{scope}.{kind} of task {task} can be raised up to the policy's {ceiling}, not to {value}: change the policy first"
            );
            return Err(OpsError::failed(Code::PolicyDenied, message));
        }
        for budget in [&mut inputs.spec.budget, &mut inputs.raised] {
            let limits = match scope {
                Scope::Attempt => &mut budget.attempt,
                Scope::Task => &mut budget.task,
            };
            limits.set(*kind, Some(*value));
        }
    }
    Ok(())
}

/// `--send-back`: the failed check may send its agent back once more.
fn one_more_round(inputs: &mut RunInputs) {
    use crate::domain::task::StepBody;
    for step in &mut inputs.spec.steps {
        if let StepBody::Qa { on_fail: Some(back), .. } = &mut step.body {
            back.rounds += 1;
        }
    }
}

/// Every run whose holder is gone: for `resume --stale`.
pub fn stale(store: &Store) -> Result<Vec<RunId>, OpsError> {
    let candidates = store.stale_candidates()?;
    let lost =
        |run: &&RunRecord| matches!(follow::holding(run), Holding::Abandoned | Holding::Stuck | Holding::Foreign);
    Ok(candidates.iter().filter(lost).map(|run| run.id.clone()).collect())
}
