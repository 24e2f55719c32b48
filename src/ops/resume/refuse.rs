//! What resume refuses before it claims the run: a claim opens an attempt, so afterwards it would be too late.

use super::{Outlook, ResumeOptions};
use crate::domain::failure::Code;
use crate::domain::ids::RunId;
use crate::domain::plan::resume::{DifferenceCode, ResumeVerdict};
use crate::domain::record::{RunView, StepRecord};
use crate::domain::run::RunStatus;
use crate::engine::validate::Present;
use crate::ops::error::OpsError;
use crate::store::Store;

/// A policy that changed and kept the version of another one (R-F5), where it would hold from here on: an agent that works in
/// place cannot block its run by what it writes there.
pub(super) fn reused_policy_version(
    store: &Store,
    view: &RunView,
    present: &Present,
    options: &ResumeOptions,
) -> Result<(), OpsError> {
    let Ok(new) = &present.policy else { return Ok(()) };
    let is_accepted = options.accept.contains(&DifferenceCode::PolicyChanged);
    if present.may_be_the_agents(view.inputs.spec.workspace) && !is_accepted {
        return Ok(());
    }
    let mut inputs = view.inputs.clone();
    (inputs.policy, inputs.policy_sha256) = (new.policy.clone(), new.sha256);
    Ok(store.refuse_reused_versions(&inputs)?)
}

/// A code that is accepted and does not differ: whoever wrote it had another state in mind.
pub(super) fn nothing_to_accept(run: &RunId, outlook: &Outlook, options: &ResumeOptions) -> Result<(), OpsError> {
    let differs = |code| outlook.differences.iter().any(|d| d.code == code);
    let Some(code) = options.accept.iter().copied().find(|code| !differs(*code)) else { return Ok(()) };
    let mut there: Vec<String> = outlook.differences.iter().map(|d| d.code.to_string()).collect();
    there.dedup();
    let there = if there.is_empty() { "nothing differs".to_owned() } else { format!("it has {}", there.join(", ")) };
    let message = format!("run {run} has no difference {code} that could be accepted: {there}");
    Err(OpsError::about(run, Code::InvalidState, message))
}

pub(super) fn by_verdict(run: &RunId, outlook: &Outlook) -> Result<(), OpsError> {
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
            let message = format!("run {run} cannot go on, and nobody can accept that: {what}");
            Err(OpsError::about(run, Code::ResumeBlocked, message))
        }
    }
}

/// A person must say what becomes of a failed attempt's changes (`keep_changes: review`), or what was done about whatever
/// stopped the run: tampering is not made good by going on.
pub(super) fn undecided(outlook: &Outlook, options: &ResumeOptions) -> Result<(), OpsError> {
    let run = &outlook.view.run;
    if run.status == RunStatus::Blocked && options.reason.is_none() {
        let why = run.message.as_deref().unwrap_or("something is in its way");
        let message = format!("run {} was stopped: {why}; say with --reason what was done about it", run.id);
        return Err(OpsError::about(&run.id, run.code.unwrap_or(Code::ReviewRequired), message));
    }
    // What a person has to look at is outside, and no change in the working copy: going on looks again.
    let is_outside = |step: &StepRecord| step.code == Some(Code::ReviewRequired) && step.kind.is_gated();
    let is_decided = options.keep || options.rebuild || outlook.view.steps.iter().any(is_outside);
    if run.status != RunStatus::ReviewRequired || is_decided {
        return Ok(());
    }
    let message = format!(
        "run {} left changes for review: go on in them with --keep, or from the last good state with --rebuild",
        run.id
    );
    Err(OpsError::about(&run.id, Code::ReviewRequired, message))
}
