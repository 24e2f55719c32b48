//! What a resumed run goes on with, and the record of what a person accepted and raised (R-S5, R-S6).

use std::collections::BTreeMap;

use super::{Outlook, ResumeOptions};
use crate::domain::budget::{Budget, LimitKind, Scope};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::plan::resume::{Difference, DifferenceCode};
use crate::domain::record::{RunInputs, RunView};
use crate::domain::run::RunStatus;
use crate::domain::step::StepState;
use crate::domain::task::{Prompt, StepBody, TaskSpec, WorkspaceKind};
use crate::engine::facts;
use crate::engine::validate::PresentPolicy;
use crate::git::Repo;
use crate::ops::error::OpsError;

/// The inputs from here on, and the changes to record. `repo` is asked for the files of a task that is taken over.
pub(super) fn adjustments(
    repo: &Repo,
    outlook: &Outlook,
    options: &ResumeOptions,
) -> Result<(RunInputs, Vec<Change>), OpsError> {
    let mut changes: Vec<Change> = outlook.differences.iter().filter_map(|d| accepted(d, options)).collect();
    if let (RunStatus::Blocked, Some(code)) = (outlook.view.run.status, outlook.view.run.code) {
        let reason = format!("{code}: {}", options.reason.as_deref().unwrap_or_default());
        changes.push(note(EventKind::DifferenceAccepted, reason, serde_json::json!({ "code": code })));
    }
    let mut inputs = outlook.view.inputs.clone();
    let before = (inputs.policy.budgets, inputs.spec.budget);
    let is_accepted = |code| options.accept.contains(&code);
    if let Ok(new) = &outlook.present.policy {
        let workspace = inputs.spec.workspace;
        if !outlook.present.may_be_the_agents(workspace) || is_accepted(DifferenceCode::PolicyChanged) {
            changes.extend(take_over_policy(&mut inputs, new, &outlook.differences));
        }
    }
    if let Some((spec, prompts)) = outlook.present.readable_task() {
        // In place the agent works where the files lie: what it wrote into them must not set its limits.
        if inputs.spec.workspace == WorkspaceKind::Isolated {
            inputs.spec.budget = spec.budget;
            stay_raised(&mut inputs);
        }
        if is_accepted(DifferenceCode::TaskSpecChanged) {
            take_over_task(repo, &mut inputs, spec, &outlook.view)?;
        }
        if is_accepted(DifferenceCode::TaskSpecChanged) || is_accepted(DifferenceCode::PromptVersionChanged) {
            take_over_prompts(&mut inputs, prompts, &outlook.view);
        }
    }
    raise(outlook, &mut inputs, &options.budget)?;
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

/// The event of a difference that a person accepted: who and when stand in every event.
fn accepted(difference: &Difference, options: &ResumeOptions) -> Option<Change> {
    let Difference { code, old, new, verdict, note: why } = difference;
    let by = match () {
        () if options.accept.contains(code) => "--accept",
        () if options.implied().contains(code) && options.keep => "--keep",
        () if options.implied().contains(code) => "--rebuild",
        () => return None,
    };
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let reason = options.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let reason = format!("{code}: {} → {}, accepted with {by}{reason}", shown(old), shown(new));
    let body = serde_json::json!({
        "code": code, "old": old, "new": new, "verdict": verdict, "why": why, "by": by, "reason": options.reason,
    });
    Some(note(EventKind::DifferenceAccepted, reason, body))
}

fn note(kind: EventKind, reason: String, body: serde_json::Value) -> Change {
    Change::Note { kind, step: None, reason, body }
}

/// The run goes on under the policy that holds now, with what differs in the record.
fn take_over_policy(inputs: &mut RunInputs, new: &PresentPolicy, differences: &[Difference]) -> Option<Change> {
    if inputs.policy == new.policy {
        return None;
    }
    let differs: Vec<_> = differences.iter().filter(|d| d.code == DifferenceCode::PolicyChanged).collect();
    let names: Vec<&str> =
        differs.iter().filter_map(|d| d.new.as_ref().or(d.old.as_ref())?.split(": ").next()).collect();
    let from = new.rev.as_ref().map(|rev| format!(" of {rev}")).unwrap_or_default();
    let reason =
        format!("policy {} → {}{from}: {} differ", inputs.policy.version, new.policy.version, names.join(", "));
    let body = serde_json::json!({
        "old": inputs.policy.version, "new": new.policy.version, "sha256": new.sha256, "rev": new.rev,
        "differences": differs,
    });
    inputs.policy = new.policy.clone();
    inputs.policy_sha256 = new.sha256;
    Some(note(EventKind::PolicyReplaced, reason, body))
}

/// A limit that a person had raised for this run stays raised, whatever the files say.
fn stay_raised(inputs: &mut RunInputs) {
    let Budget { attempt, task } = inputs.raised;
    for (limits, raised) in [(&mut inputs.spec.budget.attempt, attempt), (&mut inputs.spec.budget.task, task)] {
        for kind in LimitKind::ALL {
            limits.set(*kind, raised.of(*kind).or(limits.of(*kind)));
        }
    }
}

/// The new task for the steps that are not done yet; the ones that are done stay as they were.
fn take_over_task(repo: &Repo, inputs: &mut RunInputs, spec: &TaskSpec, view: &RunView) -> Result<(), OpsError> {
    let keys = |spec: &TaskSpec| spec.steps.iter().map(|s| s.key.to_string()).collect::<Vec<_>>();
    let (old, new) = (keys(&inputs.spec), keys(spec));
    if old != new {
        let message = format!(
            "task {} has other steps now ({}) than run {} was accepted with ({}): only a new run can take them",
            spec.task,
            new.join(", "),
            view.run.id,
            old.join(", ")
        );
        return Err(OpsError::about(&view.run.id, Code::InvalidState, message));
    }
    let (workspace, mut spec) = (inputs.spec.workspace, spec.clone());
    for step in &mut spec.steps {
        if let Some(old) = inputs.spec.step(&step.key).filter(|_| is_done(view, &step.key)) {
            *step = old.clone();
        }
    }
    // Where the run works was settled when it began.
    spec.workspace = workspace;
    if workspace == WorkspaceKind::InPlace {
        spec.budget = inputs.spec.budget;
    }
    [inputs.files, inputs.rules] = facts::context_at(repo, &view.run.components.base_commit, &spec)?;
    inputs.spec = spec;
    stay_raised(inputs);
    Ok(())
}

/// New prompts for the steps that are not done yet.
fn take_over_prompts(inputs: &mut RunInputs, prompts: &BTreeMap<StepKey, Prompt>, view: &RunView) {
    let open = prompts.iter().filter(|(key, _)| inputs.spec.step(key).is_some() && !is_done(view, key));
    let taken: Vec<_> = open.map(|(key, prompt)| (key.clone(), prompt.clone())).collect();
    inputs.prompts.extend(taken);
}

fn is_done(view: &RunView, key: &StepKey) -> bool {
    view.steps.iter().any(|s| s.key == *key && s.state == StepState::Succeeded)
}

/// Limits given on the command line: up to the policy's, and no further.
fn raise(outlook: &Outlook, inputs: &mut RunInputs, wanted: &[(Scope, LimitKind, u64)]) -> Result<(), OpsError> {
    let policy = inputs.policy.budgets;
    for (scope, kind, value) in wanted {
        let ceiling = match scope {
            Scope::Attempt => policy.attempt.of(*kind),
            Scope::Task => policy.task.of(*kind),
        };
        if ceiling.is_some_and(|ceiling| *value > ceiling) {
            let ceiling = ceiling.unwrap_or_default();
            let task = &outlook.view.run.task;
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
    for step in &mut inputs.spec.steps {
        if let StepBody::Qa { on_fail: Some(back), .. } = &mut step.body {
            back.rounds += 1;
        }
    }
}
