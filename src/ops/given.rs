//! What the user's files say: policy, contracts, task and prompts, read once, by the process that the person starts (contract §5).

use std::collections::BTreeMap;

use super::error::OpsError;
use super::place::Place;
use crate::config::{
    self, ConfigError, DiskSource, LoadedPolicy, Overrides, Source, TaskContext, env_vars, load_contracts, load_policy,
    load_prompt,
};
use crate::domain::action::Contract;
use crate::domain::failure::Code;
use crate::domain::ids::StepKey;
use crate::domain::record::{Chosen, RunInputs};
use crate::domain::task::{Prompt, PromptRef, StepBody, TaskSpec};
use crate::domain::template::PromptValues;
use crate::engine::facts::{DirtyRule, Given};
use crate::engine::validate::{Present, PresentPolicy, TaskAndPrompts};
use crate::git::Repo;

/// Which task, from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskChoice {
    /// An id, or a path to a file.
    Named(String),
    /// Made from a prompt: no file is needed.
    Prompt {
        /// What the agent is told.
        text: String,
        /// The check that follows.
        qa: Option<String>,
    },
}

/// What the command line adds to the files.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// `--agent`.
    pub agent: Option<String>,
    /// `--input k=v`.
    pub inputs: BTreeMap<String, String>,
    /// `--base`.
    pub base: Option<String>,
    /// `--policy-ref`.
    pub policy_ref: Option<String>,
}

/// The branch that a pull request is for: what it changes in the policy must not hold for itself.
fn base_branch(place: &Place) -> Result<Option<String>, OpsError> {
    let names = [env_vars::GITHUB_BASE_REF, env_vars::CI_MERGE_REQUEST_TARGET_BRANCH_NAME];
    let Some(base) = names.iter().find_map(|name| place.var(name)) else { return Ok(None) };
    let found = [format!("refs/remotes/origin/{base}"), format!("refs/heads/{base}")];
    if let Some(name) = found.into_iter().find(|name| place.repo.resolve(name).is_ok()) {
        return Ok(Some(name));
    }
    let message = format!(
        "the policy of the base branch `{base}` holds on a pull request, and it is not here: fetch it, or name another \
         with --policy-ref"
    );
    Err(OpsError::failed(Code::ConfigInvalid, message))
}

/// A policy, and where it came from.
pub struct PolicyFound {
    /// The policy.
    pub loaded: LoadedPolicy,
    /// The contracts beside it, by name.
    pub contracts: BTreeMap<String, Contract>,
    /// The revision that it was read from; `None` is the checkout.
    pub rev: Option<String>,
}

/// Reads the policy: from the commit that is named, on a pull request from its base branch, else from the checkout.
pub fn policy(place: &Place, policy_ref: Option<&str>) -> Result<PolicyFound, OpsError> {
    let named = policy_ref.map(ToOwned::to_owned).or_else(|| place.var(env_vars::AGENTRUN_POLICY_REF));
    let rev = match named {
        Some(rev) => Some(rev),
        None => base_branch(place)?,
    };
    let source: Box<dyn Source + '_> = match &rev {
        Some(rev) => Box::new(CommitSource { repo: &place.repo, commit: place.repo.resolve(rev)? }),
        None => Box::new(DiskSource::new(place.repo.root())),
    };
    let loaded = load_policy(source.as_ref())?;
    let contracts = load_contracts(source.as_ref())?;
    Ok(PolicyFound { loaded, contracts, rev })
}

/// Reads task, policy and prompts.
pub fn given(place: &Place, task: &TaskChoice, choices: &Choices, dirty: DirtyRule) -> Result<Given, OpsError> {
    let policy = policy(place, choices.policy_ref.as_deref())?;
    let (spec, prompts) = task_of(place, task, &policy, choices)?;
    let PolicyFound { loaded, contracts, rev } = policy;
    let named = match task {
        TaskChoice::Named(name) => Some(name.clone()),
        TaskChoice::Prompt { .. } => None,
    };
    Ok(Given {
        spec,
        policy: loaded.policy,
        policy_sha256: loaded.sha256,
        contracts,
        prompts,
        chosen: Chosen { task: named, agent: choices.agent.clone(), policy_ref: rev },
        base: choices.base.clone(),
        dirty,
    })
}

fn task_of(
    place: &Place,
    task: &TaskChoice,
    policy: &PolicyFound,
    choices: &Choices,
) -> Result<TaskAndPrompts, OpsError> {
    let source = DiskSource::new(place.repo.root());
    let overrides = Overrides { agent: choices.agent.clone(), inputs: choices.inputs.clone() };
    let contracts: Vec<String> = policy.contracts.keys().cloned().collect();
    let context = TaskContext { policy: &policy.loaded, overrides: &overrides, contracts: Some(&contracts) };
    let spec = match task {
        TaskChoice::Named(name) => {
            let found = config::find_task(&source, name)?;
            config::load_task(&found.path, &found.bytes, &context)?
        }
        TaskChoice::Prompt { text, qa } => config::task_from_prompt(text, qa.as_deref(), &context)?,
    };
    let prompts = prompts(&source, &spec)?;
    Ok((spec, prompts))
}

/// What the files of a run say now, read in the way that its `start` read them. A file that is gone or broken is no
/// obstacle, for the run has a copy of its own; but it is told.
pub fn present(place: &Place, inputs: &RunInputs) -> Present {
    let Chosen { task, agent, policy_ref } = inputs.chosen.clone();
    let policy = policy(place, policy_ref.as_deref());
    let choices = Choices { agent, inputs: inputs.spec.inputs.clone(), ..Choices::default() };
    let task = match (&policy, task) {
        (Ok(found), Some(name)) => Some(task_of(place, &TaskChoice::Named(name), found, &choices)),
        _ => None,
    };
    let policy = policy.map(|PolicyFound { loaded, rev, .. }| PresentPolicy {
        policy: loaded.policy,
        sha256: loaded.sha256,
        rev,
    });
    Present { policy: policy.map_err(|e| e.to_string()), task: task.map(|task| task.map_err(|e| e.to_string())) }
}

fn prompts(source: &dyn Source, spec: &TaskSpec) -> Result<BTreeMap<StepKey, Prompt>, OpsError> {
    let sample = PromptValues::sample(&spec.inputs);
    let mut prompts = BTreeMap::new();
    for step in &spec.steps {
        let StepBody::Agent { prompt, .. } = &step.body else { continue };
        let prompt = match prompt {
            PromptRef::Text(text) => config::prompt::prompt_from_text(text),
            PromptRef::File(path) => {
                let bytes = source.read(path)?;
                let bytes = bytes.ok_or_else(|| ConfigError::unreadable(path, "there is no such prompt file"))?;
                load_prompt(path, &bytes, &sample)?
            }
        };
        prompts.insert(step.key.clone(), prompt);
    }
    Ok(prompts)
}

/// Files as they stand in a commit.
struct CommitSource<'a> {
    repo: &'a Repo,
    commit: String,
}

impl Source for CommitSource<'_> {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ConfigError> {
        self.repo.read_file_at(&self.commit, path).map_err(|e| ConfigError::unreadable(path, e.to_string()))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, ConfigError> {
        self.repo.list_at(&self.commit, folder).map_err(|e| ConfigError::unreadable(folder, e.to_string()))
    }
}
