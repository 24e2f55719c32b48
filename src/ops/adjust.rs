//! What a resumed run goes on with: its own inputs, with the limits that hold now and what a person accepted, raised or
//! allowed. Refuses what the policy does not allow; changes no record.

use super::error::OpsError;
use super::given::policy;
use super::place::Place;
use super::resume::{Outlook, ResumeOptions, present_files};
use crate::domain::budget::{Budget, LimitKind, Scope};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::{StepKey, TaskId};
use crate::domain::machine::Word as _;
use crate::domain::plan::resume::{DifferenceCode, ResumeVerdict};
use crate::domain::record::{RunInputs, RunView};
use crate::domain::run::RunStatus;
use crate::domain::task::WorkspaceKind;
use crate::engine::facts::Given;

/// What the run goes on with, and the record of what the person accepted and raised.
pub(super) fn adjustments(
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
    inputs.policy.concurrency = given.policy.concurrency.clone();
    inputs.policy.breaker = given.policy.breaker;
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
