//! What people write, as it reads now, against the run's own copies: the task, its prompts, the policy.

use std::collections::BTreeMap;

use super::difference;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::StepKey;
use crate::domain::plan::resume::{Difference, DifferenceCode as D, ResumeVerdict as V};
use crate::domain::policy::Policy;
use crate::domain::policy::compat::{self, Conduct, Work};
use crate::domain::record::RunView;
use crate::domain::task::{Prompt, StepBody, TaskSpec, WorkspaceKind};

/// What the files of a run say now. Where one cannot be read: why.
#[derive(Debug, Clone)]
pub struct Present {
    /// The policy.
    pub policy: Result<PresentPolicy, String>,
    /// The task and its prompts; `None` where there never was a file, or where the policy that it needs cannot be read.
    pub task: Option<Result<TaskAndPrompts, String>>,
}

/// A task and its prompts by step.
pub type TaskAndPrompts = (TaskSpec, BTreeMap<StepKey, Prompt>);

/// The policy as it reads now.
#[derive(Debug, Clone)]
pub struct PresentPolicy {
    /// The policy.
    pub policy: Policy,
    /// Its content's hash.
    pub sha256: Sha256Hash,
    /// The revision that it was read from; `None` is the checkout.
    pub rev: Option<String>,
}

impl Present {
    /// The task and its prompts, where they can be read.
    pub fn readable_task(&self) -> Option<&TaskAndPrompts> {
        self.task.as_ref().and_then(|task| task.as_ref().ok())
    }

    /// Whether an agent of a run in place could have written the policy: then it holds only where a person says so.
    pub fn may_be_the_agents(&self, workspace: WorkspaceKind) -> bool {
        workspace == WorkspaceKind::InPlace && self.policy.as_ref().is_ok_and(|p| p.rev.is_none())
    }
}

/// The run has a copy of its own, so a changed task is not in the way.
pub(super) fn task(view: &RunView, present: &Present, found: &mut Vec<Difference>) {
    let hash = |text: &str| Some(Sha256Hash::of(text.as_bytes()).to_string());
    let old = view.inputs.spec.meaning();
    match &present.task {
        None => {}
        Some(Ok((spec, _))) => {
            let new = spec.meaning();
            if old != new {
                let note = "the run goes on with the task as recorded; --accept TASK_SPEC_CHANGED takes the new one";
                found.push(difference(D::TaskSpecChanged, (hash(&old), hash(&new)), V::Valid, note));
            }
        }
        Some(Err(why)) => {
            let note = format!("the run goes on with the task as recorded; its file cannot be read now: {why}");
            found.push(difference(D::TaskSpecChanged, (hash(&old), None), V::Valid, &note));
        }
    }
}

/// So is a changed prompt. Told apart by its content: its version may still be the old one.
pub(super) fn prompts(view: &RunView, present: &Present, found: &mut Vec<Difference>) {
    let Some((_, prompts)) = present.readable_task() else { return };
    let shown = |prompt: &Prompt| format!("{} sha256:{}", prompt.version, prompt.sha256);
    for (step, new) in prompts {
        let old = view.inputs.prompts.get(step);
        if old.is_none_or(|old| old.sha256 != new.sha256) {
            let note = format!(
                "step `{step}` goes on with the prompt as recorded; --accept TASK_SPEC_CHANGED takes the new one"
            );
            found.push(difference(D::PromptVersionChanged, (old.map(shown), Some(shown(new))), V::Valid, &note));
        }
    }
}

pub(super) fn policy(view: &RunView, present: &Present, found: &mut Vec<Difference>) {
    let old = &view.inputs.policy;
    match &present.policy {
        Err(why) => {
            let note = format!("the run goes on with the policy as recorded; it cannot be read now: {why}");
            found.push(difference(D::PolicyChanged, (Some(old.version.clone()), None), V::Valid, &note));
        }
        Ok(new) => {
            let is_kept = present.may_be_the_agents(view.inputs.spec.workspace);
            for mut difference in compat::differences(old, &new.policy, &conduct(view)) {
                if is_kept {
                    difference.note.push_str(
                        "; in place the recorded policy goes on, for an agent may have written this one: \
                         --accept POLICY_CHANGED takes it",
                    );
                }
                found.push(difference);
            }
        }
    }
}

/// What the run did that a policy speaks about.
fn conduct(view: &RunView) -> Conduct {
    let mut conduct = Conduct::default();
    for step in &view.inputs.spec.steps {
        let StepBody::Agent { agent, .. } = &step.body else { continue };
        let worked = view.executions.iter().any(|e| e.step == step.key);
        let work = conduct.agents.entry(agent.name.clone()).or_insert(Work::Ahead);
        if worked {
            *work = Work::Done;
        }
    }
    conduct
}
