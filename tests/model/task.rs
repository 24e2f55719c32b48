//! The task of the model: an agent, a check that may send it back once, and a report.

use std::collections::BTreeMap;

use agentrun::domain::budget::Budget;
use agentrun::domain::ids::{StepKey, TaskId};
use agentrun::domain::record::StepRecord;
use agentrun::domain::task::{
    AgentSpec, CommandLine, ContextSpec, KeepChanges, PromptRef, Protocol, SendBack, StepBody, StepSpec, TaskSpec,
    When, WorkspaceKind,
};

use crate::state::Step;

pub(crate) const STEPS: usize = 3;
pub(crate) const AGENT: usize = 0;
pub(crate) const QA: usize = 1;
pub(crate) const ROUNDS: u32 = 1;
const KEYS: [&str; STEPS] = ["agent", "qa", "report"];

pub(crate) fn key(at: usize) -> StepKey {
    StepKey::recorded(KEYS[at])
}

pub(crate) fn at(key: &StepKey) -> usize {
    KEYS.iter().position(|k| *k == key.as_str()).unwrap()
}

pub(crate) fn spec() -> TaskSpec {
    let agent = AgentSpec {
        name: "agent".into(),
        protocol: Protocol::Text,
        model: None,
        args: Vec::new(),
        events: None,
        patch: None,
    };
    let on_fail = Some(SendBack { send_back_to: key(AGENT), rounds: ROUNDS });
    let bodies = [
        StepBody::Agent { agent, prompt: PromptRef::Text("work".into()) },
        StepBody::Qa { run: CommandLine::Shell("check".into()), on_fail },
        StepBody::Report,
    ];
    let step = |(i, body)| StepSpec {
        key: key(i),
        needs: i.checked_sub(1).map(key).into_iter().collect(),
        explicit_needs: false,
        timeout: None,
        when: When::NeedsSucceeded,
        artifacts: Vec::new(),
        env: BTreeMap::new(),
        body,
    };
    TaskSpec {
        task: TaskId::recorded("182"),
        title: None,
        mode: "implement".into(),
        inputs: BTreeMap::new(),
        workspace: WorkspaceKind::Isolated,
        keep_changes: KeepChanges::Save,
        concurrency: None,
        context: ContextSpec::default(),
        budget: Budget::default(),
        steps: bodies.into_iter().enumerate().map(step).collect(),
    }
}

/// The steps as the pipeline reads them.
pub(crate) fn records(spec: &TaskSpec, steps: &[Step; STEPS]) -> Vec<StepRecord> {
    let record = |(spec, step): (&StepSpec, &Step)| StepRecord {
        key: spec.key.clone(),
        kind: spec.kind(),
        state: step.state,
        attempt: step.attempt.into(),
        runs: step.runs.into(),
        rounds: step.rounds.into(),
        sent_back: step.sent_back,
        code: None,
        message: None,
        started_at: None,
        finished_at: None,
    };
    spec.steps.iter().zip(steps).map(record).collect()
}
