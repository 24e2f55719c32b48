//! The one verb to go on after anything: validates, explains, continues after the last good checkpoint (R-S5).
//!
//! `refuse` is what stands in the way, `adjust` what the run goes on with.

mod adjust;
mod refuse;

use super::allowance;
use super::carry::{Acting, Answer, at_rest, be_ready, carry_out, refuse_small_limits};
use super::error::OpsError;
use super::follow;
use super::given;
use super::place::Place;
use super::queue::{self, Queued};
use super::rolled_back::refuse_behind;
use crate::domain::breaker::{self, Said};
use crate::domain::budget::{LimitKind, Scope};
use crate::domain::change::Change;
use crate::domain::failure::{Code, Exit, Failure};
use crate::domain::ids::{RunId, StepKey};
use crate::domain::lease::Holding;
use crate::domain::manifest::Manifest;
use crate::domain::plan::resume::{Difference, DifferenceCode, ResumeVerdict, verdict};
use crate::domain::plan::start::Follow;
use crate::domain::plan::verdict::exit as exit_of;
use crate::domain::record::{RunInputs, RunRecord, RunView};
use crate::domain::run::{OpenedBy, RunEvent, RunStatus};
use crate::engine::host::now;
use crate::engine::recover::LeftWork;
use crate::engine::run as engine_run;
use crate::engine::validate::{self, Present};
use crate::failpoints::{self, When};
use crate::process::Supervisor;
use crate::report::run_json::Via;
use crate::store::{Decision, RunFilter, Store};

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
    /// A provider that is left alone is tried before its time is over.
    pub now: bool,
    /// It is not waited for others.
    pub no_wait: bool,
    /// Why; recorded.
    pub reason: Option<String>,
}

impl ResumeOptions {
    /// What is accepted by saying what becomes of the working copy.
    fn implied(&self) -> &'static [DifferenceCode] {
        if self.keep || self.rebuild {
            &[DifferenceCode::WorktreeChanged, DifferenceCode::LockfileChanged]
        } else {
            &[]
        }
    }
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
    /// What the files say now.
    pub present: Present,
}

impl Outlook {
    /// The revision that the policy is read from; `None` is the checkout.
    pub fn policy_rev(&self) -> Option<&str> {
        self.present.policy.as_ref().ok()?.rev.as_deref()
    }
}

/// `--dry-run`: the verdict and its reasons. Changes nothing.
pub fn outlook(place: &Place, acting: &Acting<'_>, run: &RunId, options: &ResumeOptions) -> Result<Outlook, OpsError> {
    let home = place.home()?;
    let store = Store::open(&home.database())?;
    let view = store.view(run)?;
    let supervisor = Supervisor::start()?;
    let host = place.host(&home, &supervisor, (&acting.who, acting.own_program));
    refuse_behind(&home, &store, run)?;
    let present = given::present(place, &view.inputs);
    refuse::reused_policy_version(&store, &view, &present, options)?;
    let differences = validate::differences(&host, &view, &present)?;
    let accepted = [&options.accept[..], options.implied()].concat();
    let next_step = Manifest::of(&view).next_step;
    let outlook = Outlook { verdict: verdict(&differences, &accepted), differences, next_step, present, view };
    refuse::nothing_to_accept(run, &outlook, options)?;
    Ok(outlook)
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
    refuse_small_limits()?;
    let home = place.home()?;
    let mut store = Store::open(&home.database())?;
    refuse_behind(&home, &store, run)?;
    let looked_at = store.view(run)?.run;
    if let Some(answer) = nothing_to_do(place, &mut acting, &looked_at, options)? {
        return Ok(answer);
    }
    let _ = failpoints::reached(When::After, "look");
    // Everything that can be refused is refused before the run is claimed: a claim opens an attempt.
    let mut decided = decide(place, &acting, &store, (run, options), tell)?;
    // Whoever claimed it in between works on it now: seen as such by looking again, never taken away (FR-D13).
    if decided.outlook.view.run.is_other_than(&looked_at) {
        return self::resume(place, acting, run, options, tell);
    }
    be_ready(&home)?;
    let mut record = decided.outlook.view.run.clone();
    if record.status == RunStatus::DeadLetter {
        record = requeue(&mut store, &acting, &record, options)?;
    }
    let follow = if options.no_wait { Follow::No } else { Follow::ToTheEnd };
    let turns = match queue::take(place, &mut store, &mut acting, (&record, &decided.inputs), follow)? {
        Queued::Taken(turns) => turns,
        Queued::Busy(failure) => return Err(OpsError::about(run, failure.code, failure.message)),
        Queued::Changed => return self::resume(place, acting, run, options, tell),
    };
    if turns.waited {
        // Whoever came first may have changed what this run goes on with.
        decided = decide(place, &acting, &store, (run, options), &mut |_| {})?;
    }
    let Decided { outlook, changes, attempts, .. } = decided;
    // By the fence that was looked at: whoever claimed it since then keeps it (FR-D13).
    let mut claimed = engine_run::claim(&acting.who, store, &record, (OpenedBy::Resume, attempts))?;
    claimed.left_work = match (options.keep, options.rebuild) {
        (true, _) => LeftWork::Keep,
        (false, true) => LeftWork::Rebuild,
        (false, false) => LeftWork::ByCase,
    };
    claimed.insists = options.now || is_about_provider(&outlook.view.run);
    if !changes.is_empty() {
        claimed.store.record(&claimed.hold, &changes, &acting.who.context())?;
    }
    carry_out(place, &home, acting, claimed, Via::Resumed)
}

/// What is known before a run is claimed.
struct Decided {
    outlook: Outlook,
    inputs: RunInputs,
    /// What is recorded when the run is claimed: accepted differences, other inputs.
    changes: Vec<Change>,
    attempts: Option<u64>,
}

/// Looks at the run and at what is there now, and refuses what must not go on.
fn decide(
    place: &Place,
    acting: &Acting<'_>,
    store: &Store,
    (run, options): (&RunId, &ResumeOptions),
    tell: &mut dyn FnMut(&Outlook),
) -> Result<Decided, OpsError> {
    let outlook = outlook(place, acting, run, options)?;
    tell(&outlook);
    refuse::by_verdict(run, &outlook)?;
    refuse::undecided(&outlook, options)?;
    let (inputs, changes) = adjust::adjustments(&place.repo, &outlook, options)?;
    store.refuse_reused_versions(&inputs)?;
    let attempts = allowance::next_attempt(store, &outlook.view, &inputs)?;
    Ok(Decided { outlook, inputs, changes, attempts })
}

/// Goes on with a run as `start` does when it finds one that was cut: the verdict must be VALID.
pub fn go_on(place: &Place, acting: Acting<'_>, run: &RunId, (via, follow): (Via, Follow)) -> Result<Answer, OpsError> {
    let options = ResumeOptions { no_wait: follow == Follow::No, ..ResumeOptions::default() };
    let mut answer = resume(place, acting, run, &options, &mut |_| {})?;
    answer.via = via;
    Ok(answer)
}

/// Whether the run failed by what its provider said: going on with it is how a person says that this was seen to.
fn is_about_provider(run: &RunRecord) -> bool {
    let failed = matches!(run.status, RunStatus::Failed | RunStatus::DeadLetter);
    let failure = run.code.map(|code| Failure::new(code, ""));
    failed && failure.is_some_and(|failure| breaker::said(Some(&failure)) != Said::Nothing)
}

/// A run that is done, or that somebody works on, is not resumed.
fn nothing_to_do(
    place: &Place,
    acting: &mut Acting<'_>,
    record: &RunRecord,
    options: &ResumeOptions,
) -> Result<Option<Answer>, OpsError> {
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
        RunStatus::Retrying if !options.now && !engine_run::is_due(record, now().utc) => {
            let at = record.retry_at.map(crate::report::amount::utc).unwrap_or_default();
            let message = format!("run {run} may be tried again at {at}; before that with --now");
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

/// Several runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Many {
    /// Those whose holder is gone (`--stale`).
    Stale,
    /// Those of them whose process is surely gone: nobody has to be asked about them.
    Abandoned,
    /// Parked ones whose time has come and that nobody waits for (`--due`, FR-G5).
    Due,
}

/// Which runs these are, the oldest first.
pub fn many(place: &Place, which: Many) -> Result<Vec<RunId>, OpsError> {
    let Some(store) = place.records()? else { return Ok(Vec::new()) };
    let present = now().utc;
    let is_meant = |run: &RunRecord| match (which, follow::holding(run)) {
        (Many::Stale, holding) => matches!(holding, Holding::Abandoned | Holding::Stuck | Holding::Foreign),
        (Many::Abandoned, holding) => holding == Holding::Abandoned,
        (Many::Due, Holding::Held | Holding::Stuck) => false,
        (Many::Due, _) => run.status == RunStatus::Retrying && engine_run::is_due(run, present),
    };
    let candidates = match which {
        Many::Stale | Many::Abandoned => store.stale_candidates()?,
        Many::Due => store.runs(&RunFilter::Open)?.into_iter().rev().map(|s| s.run).collect(),
    };
    Ok(candidates.into_iter().filter(is_meant).map(|run| run.id).collect())
}
