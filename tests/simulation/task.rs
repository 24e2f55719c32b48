//! The run of the simulation: a command, an agent, a check that may send it back, a report; limits as the seed has them.

use std::collections::BTreeMap;

use agentrun::domain::budget::{Budget, Limits};
use agentrun::domain::hash::encoding::Sha256Hash;
use agentrun::domain::hash::fingerprint::Components;
use agentrun::domain::ids::{StepKey, SupportCode, TaskId};
use agentrun::domain::policy::Policy;
use agentrun::domain::quantity::Millis;
use agentrun::domain::record::{Dirty, RunInputs};
use agentrun::domain::run::Phase;
use agentrun::domain::task::{
    AgentSpec, CommandLine, ContextSpec, KeepChanges, PromptRef, Protocol, SendBack, StepBody, StepSpec, TaskSpec,
    When, WorkspaceKind,
};
use agentrun::store::NewRun;

use crate::chance::Chance;

pub(crate) const AGENT: &str = "code";
pub(crate) const QA: &str = "qa";
/// The attempts of the default policy.
pub(crate) const ATTEMPTS: u64 = 3;

pub(crate) fn new_run(seed: u64, chance: &mut Chance) -> NewRun {
    let spec = spec(seed, chance);
    let components = Components {
        task: spec.task.to_string(),
        base_commit: "a".repeat(40),
        prompt_version: None,
        context_hash: Sha256Hash::of(&seed.to_le_bytes()),
        mode: spec.mode.clone(),
        policy_version: "built-in".into(),
    };
    NewRun {
        components,
        inputs: inputs(spec),
        phase: Some(Phase::QaPending),
        number_floor: 0,
        fresh: false,
        support_code: SupportCode::from_bits(seed),
        key: None,
        claim: None,
    }
}

fn spec(seed: u64, chance: &mut Chance) -> TaskSpec {
    let agent = AgentSpec {
        name: "agent".into(),
        protocol: Protocol::Text,
        model: None,
        args: Vec::new(),
        events: None,
        patch: None,
    };
    let command = || CommandLine::Shell("true".into());
    let rounds = u32::try_from(chance.between(1, 3)).unwrap();
    let on_fail = Some(SendBack { send_back_to: StepKey::recorded(AGENT), rounds });
    let bodies = [
        ("prepare", StepBody::Command { run: command() }),
        (AGENT, StepBody::Agent { agent, prompt: PromptRef::Text("work".into()) }),
        (QA, StepBody::Qa { run: command(), on_fail }),
        ("report", StepBody::Report),
    ];
    let keys = bodies.clone().map(|(key, _)| StepKey::recorded(key));
    let step = |(i, (_, body)): (usize, (&str, StepBody))| StepSpec {
        key: keys[i].clone(),
        needs: i.checked_sub(1).map(|before| keys[before].clone()).into_iter().collect(),
        explicit_needs: false,
        timeout: None,
        when: When::NeedsSucceeded,
        artifacts: Vec::new(),
        env: BTreeMap::new(),
        body,
    };
    // Some seeds come near their limits.
    let tokens = chance.one_in(3).then(|| chance.between(300, 2_500));
    let time = chance.one_in(6).then(|| Millis::secs(chance.between(20, 600)));
    TaskSpec {
        task: TaskId::recorded(format!("s{seed}")),
        title: None,
        mode: "implement".into(),
        inputs: BTreeMap::new(),
        workspace: WorkspaceKind::Isolated,
        keep_changes: KeepChanges::Save,
        concurrency: None,
        context: ContextSpec::default(),
        budget: Budget { attempt: Limits::default(), task: Limits { tokens, time, ..Limits::default() } },
        steps: bodies.into_iter().enumerate().map(step).collect(),
    }
}

fn inputs(spec: TaskSpec) -> RunInputs {
    let mut policy = Policy { agents: BTreeMap::new(), ..Policy::default() };
    policy.budgets.task.attempts = Some(ATTEMPTS);
    RunInputs {
        spec,
        policy,
        policy_sha256: Sha256Hash::of(b"policy"),
        prompts: BTreeMap::new(),
        files: Vec::new(),
        rules: Vec::new(),
        lockfiles: BTreeMap::new(),
        dirty: Dirty::Clean,
        notes: Vec::new(),
        raised: Budget::default(),
        chosen: agentrun::domain::record::Chosen::default(),
        contracts: BTreeMap::new(),
    }
}
