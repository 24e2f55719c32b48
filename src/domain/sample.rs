//! A run as the tests of views and decisions see it: everything filled in, nothing random. Not part of the program.

use std::collections::BTreeMap;

use super::action::contract::{Contract, Environment};
use super::action::{ActionRecord, ActionState};
use super::breaker::{Breaker, BreakerState, Cause};
use super::budget::{Estimate, Usage};
use super::event::{ChainHead, EVENT_VERSION, Event, EventKind};
use super::failure::Code;
use super::hash::context::ContextFile;
use super::hash::encoding::Sha256Hash;
use super::hash::fingerprint::Components;
use super::ids::{ActionId, EventId, ReleaseId, RequestId, RunId, StepKey, SupportCode, TaskId};
use super::lease::Holding;
use super::outcome::ProcessEnd;
use super::plan::meaning::{Meaning, MeaningInput, meaning};
use super::policy::{ActionType, Policy};
use super::quantity::{Millis, UtcMs};
use super::record::{
    ArtifactRecord, ArtifactType, AttemptRecord, CheckpointRecord, Dirty, ExecutionRecord, RunInputs, RunRecord,
    RunSummary, RunView, StepRecord,
};
use super::run::{AttemptState, OpenedBy, Phase, RunStatus};
use super::step::StepState;
use super::task::{CommandLine, ContextSpec, KeepChanges, StepBody, StepKind, StepSpec, TaskSpec, When, WorkspaceKind};

/// 2026-09-15T10:00:00Z.
pub(crate) const T0: UtcMs = UtcMs(1_789_466_400_000);

pub(crate) fn at(seconds: u64) -> UtcMs {
    T0.plus(Millis::secs(seconds))
}

pub(crate) fn key(text: &str) -> StepKey {
    StepKey::new(text).unwrap()
}

/// A provider that is left alone for five minutes.
pub(crate) fn breaker() -> Breaker {
    Breaker {
        provider: "openai".into(),
        agent: None,
        state: BreakerState::Open,
        cause: Cause::Limit,
        code: Code::RateLimit,
        message: "slow down".into(),
        run: RunId::recorded("run_182_001"),
        since: at(0),
        until: at(300),
        rounds: 1,
        trial: None,
    }
}

/// The run in a status, with the code and message that usually go with it.
pub(crate) fn run(status: RunStatus) -> RunRecord {
    let task = TaskId::new("182").unwrap();
    let components = components();
    let resting = !matches!(status, RunStatus::Pending | RunStatus::Running);
    let (code, message) = why(status);
    RunRecord {
        id: RunId::of(&task, 1),
        task,
        number: 1,
        instance: 1,
        status,
        phase: Some(Phase::QaPassed),
        attempt: 1,
        fence: 1,
        fingerprint: components.fingerprint(),
        components,
        group: None,
        code,
        message: message.map(ToOwned::to_owned),
        retry_at: (status == RunStatus::Retrying).then(|| at(600)),
        request_id: RequestId::recorded("01990000-0000-7000-8000-000000000000"),
        support_code: SupportCode::from_bits(7),
        key_hash: None,
        cancel_requested: false,
        snapshot: Some("b".repeat(40)),
        created_at: T0,
        started_at: (status != RunStatus::Pending).then(|| at(1)),
        finished_at: resting.then(|| at(300)),
        heartbeat_at: (status != RunStatus::Pending).then(|| at(290)),
        lease: None,
    }
}

fn components() -> Components {
    Components {
        task: "182".into(),
        base_commit: "a".repeat(40),
        prompt_version: Some("v2.4.0".into()),
        context_hash: Sha256Hash::of(b"context"),
        mode: "implement".into(),
        policy_version: "2026-09-15.1".into(),
    }
}

fn why(status: RunStatus) -> (Option<Code>, Option<&'static str>) {
    match status {
        RunStatus::Pending | RunStatus::Running | RunStatus::Succeeded => (None, None),
        RunStatus::Retrying => (Some(Code::RateLimit), Some("codex asked to wait 5m")),
        RunStatus::WaitingApproval => (Some(Code::NeedsApproval), Some("step deploy to production")),
        RunStatus::ReviewRequired => {
            (Some(Code::ReviewRequired), Some("the workspace changed since the last snapshot"))
        }
        RunStatus::OutcomeUnknown => (Some(Code::OutcomeUnknown), Some("deploy of release_1 to production")),
        RunStatus::Blocked => (Some(Code::ResumeBlocked), Some("artifact app.tar is missing")),
        RunStatus::Interrupted => (Some(Code::Interrupted), Some("SIGINT")),
        RunStatus::BudgetExceeded => {
            (Some(Code::BudgetExceeded), Some("task.tokens is limited to 1000, used 1550, 550 over"))
        }
        RunStatus::Failed => (Some(Code::QaFailed), Some("step qa ended with exit code 1 after 2 rounds")),
        RunStatus::DeadLetter => (Some(Code::DeadLetter), Some("3 of 3 attempts failed, last MODEL_TIMEOUT")),
        RunStatus::Canceled => (Some(Code::Canceled), Some("alice: wrong branch")),
    }
}

pub(crate) fn meaning_of(run: &RunRecord) -> Meaning {
    let holding = if run.status == RunStatus::Running { Holding::Held } else { Holding::Free };
    meaning(&MeaningInput { run, holding, now: at(300), silent_after: Millis::secs(60), step: None, wait: None })
}

/// A finished run of three steps: context, agent, check.
pub(crate) fn view(status: RunStatus) -> RunView {
    let run = run(status);
    let failed = status == RunStatus::Failed;
    let qa = if failed { StepState::Failed } else { StepState::Succeeded };
    let steps = vec![
        step("context", StepKind::Context, StepState::Succeeded, 1),
        step("codex", StepKind::Agent, StepState::Succeeded, 3),
        StepRecord {
            code: failed.then_some(Code::QaFailed),
            message: failed.then(|| "exit code 1".to_owned()),
            ..step("qa", StepKind::Qa, qa, 250)
        },
    ];
    RunView {
        inputs: inputs(),
        attempts: vec![AttemptRecord {
            number: 1,
            state: if failed { AttemptState::Failed } else { AttemptState::Succeeded },
            code: failed.then_some(Code::QaFailed),
            opened_by: OpenedBy::Start,
            started_at: at(1),
            finished_at: Some(at(300)),
        }],
        executions: vec![execution("codex", 3, Some("Fixed the loop.")), execution("qa", 250, None)],
        artifacts: artifacts(),
        checkpoints: vec![
            checkpoint("CONTEXT_PREPARED", "context", None),
            checkpoint("CODE_GENERATED", "codex", Some("b")),
        ],
        usage: used(),
        attempt_usage: used(),
        task_usage: used().plus(&Usage { input: 8000, output: 655, ..Usage::default() }),
        open_attempts: 0,
        actions: Vec::new(),
        approvals: Vec::new(),
        chain: ChainHead { count: 42, head: Sha256Hash::of(b"head") },
        steps,
        run,
    }
}

fn used() -> Usage {
    Usage {
        input: 97_000,
        cached: 86_420,
        output: 1_765,
        cost_micros: None,
        tool_calls: 7,
        active: Millis(8123),
        failed_attempts: 0,
        estimated: Estimate::default(),
    }
}

fn step(name: &str, kind: StepKind, state: StepState, from: u64) -> StepRecord {
    StepRecord {
        key: key(name),
        kind,
        state,
        attempt: 1,
        runs: 1,
        rounds: 0,
        sent_back: false,
        code: None,
        message: None,
        started_at: Some(at(from)),
        finished_at: Some(at(from).plus(Millis(812))),
    }
}

fn execution(step: &str, from: u64, result: Option<&str>) -> ExecutionRecord {
    ExecutionRecord {
        step: key(step),
        number: 1,
        attempt: 1,
        child: None,
        session: result.map(|_| "s-1".to_owned()),
        model: result.map(|_| "gpt-5-codex".to_owned()),
        end: Some(ProcessEnd::Exited { code: 0 }),
        result: result.map(ToOwned::to_owned),
        active: Millis(812),
        estimated: 0,
        started_at: at(from),
        finished_at: Some(at(from).plus(Millis(812))),
    }
}

fn artifacts() -> Vec<ArtifactRecord> {
    let artifact = |kind, path: &str, step: Option<&str>| ArtifactRecord {
        kind,
        path: path.to_owned(),
        sha256: Sha256Hash::of(path.as_bytes()),
        size: 1234,
        step: step.map(key),
        attempt: 1,
    };
    vec![
        artifact(ArtifactType::Patch, "artifacts/changes.patch", None),
        artifact(ArtifactType::File, "artifacts/qa/report/tests.xml", Some("qa")),
        artifact(ArtifactType::Report, "report.md", None),
    ]
}

fn checkpoint(name: &str, step: &str, commit: Option<&str>) -> CheckpointRecord {
    CheckpointRecord {
        name: name.to_owned(),
        step: key(step),
        attempt: 1,
        commit: commit.map(|c| c.repeat(40)),
        policy_version: "2026-09-15.1".into(),
        artifacts: BTreeMap::new(),
        at: at(200),
    }
}

fn inputs() -> RunInputs {
    let qa = StepSpec {
        key: key("qa"),
        needs: Vec::new(),
        explicit_needs: false,
        timeout: None,
        when: When::NeedsSucceeded,
        artifacts: Vec::new(),
        env: BTreeMap::new(),
        body: StepBody::Qa { run: CommandLine::Shell("cargo test".into()), on_fail: None },
    };
    RunInputs {
        spec: TaskSpec {
            task: TaskId::new("182").unwrap(),
            title: Some("Fix the login redirect loop".into()),
            mode: "implement".into(),
            inputs: BTreeMap::new(),
            workspace: WorkspaceKind::Isolated,
            keep_changes: KeepChanges::Save,
            concurrency: None,
            context: ContextSpec::default(),
            budget: super::budget::Budget::default(),
            steps: vec![qa],
        },
        policy: Policy::default(),
        policy_sha256: Sha256Hash::of(b"policy"),
        prompts: BTreeMap::new(),
        files: vec![ContextFile { path: "src/auth.rs".into(), mode: "100644".into(), blob: "c".repeat(40) }],
        rules: Vec::new(),
        lockfiles: BTreeMap::new(),
        dirty: Dirty::Clean,
        notes: Vec::new(),
        raised: crate::domain::budget::Budget::default(),
        chosen: crate::domain::record::Chosen::default(),
        contracts: BTreeMap::new(),
    }
}

pub(crate) fn summary(status: RunStatus) -> RunSummary {
    let view = view(status);
    RunSummary { run: view.run, title: view.inputs.spec.title, step: Some(key("qa")), usage: view.usage }
}

pub(crate) fn event(kind: EventKind, reason: &str) -> Event {
    let mut event = Event {
        id: EventId::recorded("01990000-0000-7000-8000-000000000001"),
        chain: "run_182_001".into(),
        n: 1,
        at: at(10),
        kind,
        version: EVENT_VERSION,
        actor: "alice".into(),
        request_id: RequestId::recorded("r-1"),
        run: Some(RunId::recorded("run_182_001")),
        attempt: Some(1),
        step: None,
        reason: Some(reason.to_owned()),
        body: "{}".into(),
        prev: Sha256Hash([0; 32]),
        hash: Sha256Hash([0; 32]),
    };
    event.hash = event.chained_hash();
    event
}

/// A deployment under a contract that guarantees nothing.
pub(crate) fn action(state: ActionState) -> ActionRecord {
    ActionRecord {
        id: ActionId::recorded("01a22ef5-575a-766c-a799-91eaaaed36dd"),
        kind: ActionType::Deploy,
        target: "production".to_owned(),
        account: None,
        environment: Environment::Live,
        key: "deploy:local:live:-:production:release_1".to_owned(),
        request_hash: Sha256Hash::of(b"request"),
        normal_version: 1,
        request_file: "run_182_001/actions/01a22ef5-575a-766c-a799-91eaaaed36dd.json".to_owned(),
        state,
        code: None,
        message: None,
        run: RunId::recorded("run_182_001"),
        step: Some(key("deploy")),
        contract: Contract::careful("built-in"),
        irreversible: false,
        approval: None,
        digest: None,
        tries: 1,
        reference: None,
        summary: None,
        release: Some(ReleaseId::recorded("release_1")),
        corrects: None,
        request_id: RequestId::recorded("01a22ef5-575a-766c-a799-91eaaaed36de"),
        created_at: at(0),
        started_at: Some(at(1)),
        sent_at: Some(at(1)),
        finished_at: None,
        retry_at: None,
        deadline: at(900),
        expires_at: None,
        query_from: Some(at(4)),
        owner: None,
        due: None,
        review: None,
        last_fact: "sent".to_owned(),
        fence: 1,
        lease: None,
    }
}
