//! What makes a run this run, gathered before it exists: the commit, the relevant files, the rules, the lock files and
//! what the checkout looks like (R-W1, R-F2).

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::error::EngineError;
use crate::domain::action::Contract;
use crate::domain::failure::Code;
use crate::domain::hash::context::{ContextFile, context_hash};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::hash::fingerprint::Components;
use crate::domain::ids::StepKey;
use crate::domain::policy::Policy;
use crate::domain::record::{Chosen, Dirty, RunInputs};
use crate::domain::task::{Prompt, TaskSpec, WorkspaceKind};
use crate::git::{Overlay, Repo, WorktreeState};

/// agentrun's own files: uncommitted changes there do not make a checkout dirty, for the run takes a copy of them.
pub const OWN_PATHS: &[&str] = &["automation-policy.yml", "policies/", "tasks/", "prompts/", ".ai-runs/"];

/// Dependency lock files that are recorded where they exist.
const LOCK_FILES: [&str; 12] = [
    "Cargo.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lock",
    "poetry.lock",
    "uv.lock",
    "Pipfile.lock",
    "go.sum",
    "Gemfile.lock",
    "composer.lock",
];

/// What a dirty checkout means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirtyRule {
    /// It is refused.
    Refuse,
    /// Its changes are part of the run.
    Include,
    /// Its changes are left out, and the report says so.
    Ignore,
}

/// What was read from files: the caller's part of the facts.
#[derive(Debug, Clone)]
pub struct Given {
    /// The task.
    pub spec: TaskSpec,
    /// The policy.
    pub policy: Policy,
    /// Its content's hash.
    pub policy_sha256: Sha256Hash,
    /// The contracts by name, from where the policy was read.
    pub contracts: BTreeMap<String, Contract>,
    /// The prompts by step.
    pub prompts: BTreeMap<StepKey, Prompt>,
    /// What the command line chose.
    pub chosen: Chosen,
    /// The revision to start from; `None` is the checked-out one.
    pub base: Option<String>,
    /// What to do about uncommitted changes.
    pub dirty: DirtyRule,
}

/// The facts of a run to be.
#[derive(Debug, Clone)]
pub struct Facts {
    /// What it is given.
    pub inputs: RunInputs,
    /// What makes its fingerprint.
    pub components: Components,
}

impl Facts {
    /// The files that count: the relevant ones, and included uncommitted changes.
    pub fn counted(&self) -> Cow<'_, [ContextFile]> {
        counted(&self.inputs.files, &self.inputs.dirty)
    }
}

/// Gathers everything. A dirty checkout is refused here, with the list of its paths.
pub fn gather(repo: &Repo, given: Given) -> Result<Facts, EngineError> {
    let head = repo.head()?;
    let base_commit = match &given.base {
        Some(rev) => repo.resolve(rev)?,
        None => head.commit.clone(),
    };
    let (state, read) = look(repo, &base_commit, &given)?;
    let dirty = match &state {
        Some(state) => judge(repo, state, given.dirty)?,
        None => Dirty::Clean,
    };
    let Read { files, rules, notes } = match (&dirty, &state) {
        (Dirty::Included { .. }, Some(state)) => Read::of(repo, &base_commit, &given.spec, Overlay::Dirty(state))?,
        _ => read?,
    };
    let context_hash = context_hash(&given.spec.meaning(), &counted(&files, &dirty), &rules);
    let components = Components {
        task: given.spec.task.to_string(),
        base_commit: base_commit.clone(),
        prompt_version: prompt_version(&given.prompts),
        context_hash,
        mode: given.spec.mode.clone(),
        policy_version: given.policy.version.clone(),
    };
    let inputs = RunInputs {
        lockfiles: lockfiles(repo, &base_commit)?,
        spec: given.spec,
        policy: given.policy,
        policy_sha256: given.policy_sha256,
        prompts: given.prompts,
        files,
        rules,
        dirty,
        notes,
        raised: crate::domain::budget::Budget::default(),
        chosen: given.chosen,
        contracts: given.contracts,
    };
    Ok(Facts { inputs, components })
}

/// The files and rules that count for a task, as they stand in a commit.
pub fn context_at(repo: &Repo, commit: &str, spec: &TaskSpec) -> Result<[Vec<ContextFile>; 2], EngineError> {
    let of = |globs: &[String]| repo.context_files(commit, globs, Overlay::Commit);
    Ok([of(&spec.context.files)?, of(&spec.context.rules)?])
}

/// What a commit says about a task.
struct Read {
    files: Vec<ContextFile>,
    rules: Vec<ContextFile>,
    notes: Vec<String>,
}

impl Read {
    fn of(repo: &Repo, commit: &str, spec: &TaskSpec, overlay: Overlay<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            files: repo.context_files(commit, &spec.context.files, overlay)?,
            rules: repo.context_files(commit, &spec.context.rules, overlay)?,
            notes: notes(repo, commit)?,
        })
    }
}

/// Looks at the checkout, where it concerns the run, and reads the commit meanwhile: with many files each takes long, and
/// neither needs the other. What is wrong with the checkout is told before what is wrong with the commit.
fn look(
    repo: &Repo,
    commit: &str,
    given: &Given,
) -> Result<(Option<WorktreeState>, Result<Read, EngineError>), EngineError> {
    let Given { spec, base, .. } = given;
    // With a base of its own, an isolated run has nothing to do with what lies in the checkout.
    let concerns_checkout = base.is_none() || spec.workspace == WorkspaceKind::InPlace;
    let checkout = repo.reopen()?;
    let look = move || concerns_checkout.then(|| checkout.state(own_paths(spec.workspace))).transpose();
    std::thread::scope(|threads| {
        let looking = std::thread::Builder::new().name("checkout".to_owned()).spawn_scoped(threads, look);
        let looking =
            looking.map_err(|e| EngineError::failed(Code::EnvLimit, format!("cannot start a thread: {e}")))?;
        let read = Read::of(repo, commit, spec, Overlay::Commit);
        let state = looking.join();
        let state = state.map_err(|_| EngineError::failed(Code::Internal, "the look at the checkout broke off"))??;
        Ok((state, read))
    })
}

/// In place an agent works in the checkout itself, so there agentrun's own files count like any other.
pub(super) fn own_paths(workspace: WorkspaceKind) -> &'static [&'static str] {
    match workspace {
        WorkspaceKind::Isolated => OWN_PATHS,
        WorkspaceKind::InPlace => &[".ai-runs/"],
    }
}

/// Included uncommitted changes are part of the files that count (R-W1).
fn counted<'f>(files: &'f [ContextFile], dirty: &Dirty) -> Cow<'f, [ContextFile]> {
    let Dirty::Included { files: changed } = dirty else { return Cow::Borrowed(files) };
    let mut counted = [files, changed].concat();
    counted.sort();
    counted.dedup();
    Cow::Owned(counted)
}

fn judge(repo: &Repo, state: &WorktreeState, rule: DirtyRule) -> Result<Dirty, EngineError> {
    if let Some(operation) = state.in_progress {
        return Err(EngineError::failed(Code::WorktreeDirty, format!("a {operation} is in progress in the checkout")));
    }
    let paths = state.paths();
    match rule {
        _ if paths.is_empty() => Ok(Dirty::Clean),
        DirtyRule::Ignore => Ok(Dirty::Ignored { paths }),
        DirtyRule::Include => Ok(Dirty::Included { files: repo.dirty_files(state)? }),
        DirtyRule::Refuse => Err(EngineError::failed(Code::WorktreeDirty, refusal(&paths))),
    }
}

fn refusal(paths: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = format!("the checkout has {} uncommitted files:", paths.len());
    for path in paths.iter().take(SHOWN) {
        text.push_str("\n  ");
        text.push_str(path);
    }
    if paths.len() > SHOWN {
        text.push_str(&format!("\n  … and {} more", paths.len() - SHOWN));
    }
    text
}

/// What a reader of the report should know about the repository.
fn notes(repo: &Repo, commit: &str) -> Result<Vec<String>, EngineError> {
    let found = repo.notes(commit)?;
    let mut notes = Vec::new();
    if !found.submodules.is_empty() {
        notes.push(format!("submodules are left empty in the working copy: {}", found.submodules.join(", ")));
    }
    if !found.lfs_pointers.is_empty() {
        notes.push(format!("{} files are Git LFS pointers, not their contents", found.lfs_pointers.len()));
    }
    Ok(notes)
}

/// The dependency lock files of a commit, by name.
pub(super) fn lockfiles(repo: &Repo, commit: &str) -> Result<BTreeMap<String, Sha256Hash>, EngineError> {
    let mut found = BTreeMap::new();
    for name in LOCK_FILES {
        if let Some(bytes) = repo.read_file_at(commit, name)? {
            found.insert(name.to_owned(), Sha256Hash::of(&bytes));
        }
    }
    Ok(found)
}

/// The version of the run's prompt, `key=version,…` of several, nothing without one.
fn prompt_version(prompts: &BTreeMap<StepKey, Prompt>) -> Option<String> {
    match prompts.len() {
        0 => None,
        1 => prompts.values().next().map(|p| p.version.clone()),
        _ => Some(prompts.iter().map(|(key, p)| format!("{key}={}", p.version)).collect::<Vec<_>>().join(",")),
    }
}
