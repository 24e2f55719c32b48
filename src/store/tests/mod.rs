//! The store's contract suite, against real files. Names begin with the id of the promise or fault that they show.

mod agreements;
mod claims;
mod commits;
mod concurrency;
mod effect_machines;
mod effects;
mod files;
mod laws;
mod ledger;
mod log;
mod machines;
mod sending;
mod speed;
mod starts;
mod telling;
mod turns;
mod upgrades;
mod wanting;

#[path = "../../../tests/faulty_disk/mod.rs"]
#[expect(dead_code, reason = "shared with the whole program's tests, which use all of it")]
mod faulty_disk;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::fault::{self, CommitFault, LOST_EVENTS};
use super::{Claim, Context, Hold, Holder, NewRun, Started, Store};
use crate::domain::budget::Budget;
use crate::domain::change::{Change, ExecutionEnd, StepMove};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::hash::fingerprint::Components;
use crate::domain::ids::{RequestId, RunId, StepKey, SupportCode, TaskId};
use crate::domain::outcome::ProcessEnd;
use crate::domain::policy::Policy;
use crate::domain::quantity::{BootId, BootMs, Millis, Now, UtcMs};
use crate::domain::record::{Dirty, Identity, RunInputs};
use crate::domain::run::{OpenedBy, Phase, RunEvent};
use crate::domain::step::StepEvent;
use crate::domain::task::{
    AgentSpec, CommandLine, ContextSpec, KeepChanges, PromptRef, Protocol, SendBack, StepBody, StepSpec, TaskSpec,
    When, WorkspaceKind,
};

/// A database in a folder of its own, and a clock that goes on by one with every look.
struct World {
    store: Store,
    clock: i64,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("agentrun.db")).unwrap();
        Self { store, clock: 1_000_000, dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("agentrun.db")
    }

    fn ctx(&mut self) -> Context {
        self.clock += 1;
        ctx(self.clock)
    }

    /// A new run that is held from the beginning.
    fn started(&mut self, new: &NewRun) -> Hold {
        let ctx = self.ctx();
        match self.store.start_or_attach(new, &ctx).unwrap() {
            Started::New(hold) => hold,
            other => panic!("not new: {other:?}"),
        }
    }

    fn record(&mut self, hold: &Hold, changes: &[Change]) -> super::Result<super::Recorded> {
        let ctx = self.ctx();
        self.store.record(hold, changes, &ctx)
    }

    fn claim(&mut self, run: &RunId, event: RunEvent, fence: u64) -> super::Result<Hold> {
        let ctx = self.ctx();
        self.store.claim(run, &claim(event, fence), &ctx)
    }

    /// Every chain of the database holds.
    fn check_chains(&self) {
        for chain in self.store.chains().unwrap() {
            let head = self.store.chain_head(&chain).unwrap();
            crate::domain::event::check_chain(&chain, &self.store.chain(&chain).unwrap(), Some(&head)).unwrap();
        }
    }

    /// Another connection of the test's own, past the store.
    fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

fn ctx(at: i64) -> Context {
    let now = Now { utc: UtcMs(at), boot: BootMs(at.cast_unsigned()), boot_id: BootId("boot".into()) };
    Context { now, actor: "alice".into(), request_id: RequestId::recorded("request-1") }
}

fn process() -> Identity {
    Identity { pid: 4711, start_ticks: 99, boot_id: BootId("boot".into()) }
}

fn claim(event: RunEvent, expected_fence: u64) -> Claim {
    let opened_by = if event == RunEvent::TakeOver { OpenedBy::Takeover } else { OpenedBy::Resume };
    Claim {
        event,
        opened_by,
        holder: process(),
        lease_until: BootMs(60_000),
        expected_fence,
        attempts: None,
        token: None,
    }
}

fn key(text: &str) -> StepKey {
    StepKey::new(text).unwrap()
}

fn step_spec(name: &str, body: StepBody) -> StepSpec {
    StepSpec {
        key: key(name),
        needs: Vec::new(),
        explicit_needs: false,
        timeout: None,
        when: When::NeedsSucceeded,
        artifacts: Vec::new(),
        env: BTreeMap::new(),
        body,
    }
}

/// context, codex, lint, qa (sends back to codex), report.
fn spec(task: &str) -> TaskSpec {
    let agent = AgentSpec {
        name: "codex".into(),
        protocol: Protocol::Codex,
        model: None,
        args: Vec::new(),
        events: None,
        patch: None,
    };
    let run = CommandLine::Shell("cargo test".into());
    let on_fail = Some(SendBack { send_back_to: key("codex"), rounds: 2 });
    TaskSpec {
        task: TaskId::new(task).unwrap(),
        title: Some("Fix the login".into()),
        mode: "implement".into(),
        inputs: BTreeMap::new(),
        workspace: WorkspaceKind::Isolated,
        keep_changes: KeepChanges::Save,
        concurrency: None,
        context: ContextSpec::default(),
        budget: Budget::default(),
        steps: vec![
            step_spec("context", StepBody::Context),
            step_spec("codex", StepBody::Agent { agent, prompt: PromptRef::Text("fix it".into()) }),
            step_spec("lint", StepBody::Command { run: run.clone() }),
            step_spec("qa", StepBody::Qa { run, on_fail }),
            step_spec("report", StepBody::Report),
        ],
    }
}

fn inputs(spec: TaskSpec) -> RunInputs {
    // Runs of one task are opened side by side here; what is reserved for them has tests of its own.
    let mut policy = Policy::default();
    policy.budgets.task.attempts = None;
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
        raised: crate::domain::budget::Budget::default(),
        chosen: crate::domain::record::Chosen::default(),
        contracts: BTreeMap::new(),
    }
}

/// A run of a task that its claimant holds at once. Another `marker` is another fingerprint.
fn new_run(task: &str, marker: &str) -> NewRun {
    let components = Components {
        task: task.into(),
        base_commit: "a".repeat(40),
        prompt_version: Some("v1".into()),
        context_hash: Sha256Hash::of(marker.as_bytes()),
        mode: "implement".into(),
        policy_version: "built-in".into(),
    };
    NewRun {
        components,
        inputs: inputs(spec(task)),
        phase: Some(Phase::QaPending),
        number_floor: 0,
        fresh: false,
        support_code: SupportCode::from_bits(7),
        key: None,
        claim: Some(Holder { process: process(), lease_until: BootMs(60_000), token: None }),
    }
}

fn step(name: &str, event: StepEvent) -> Change {
    Change::Step(StepMove::new(&key(name), event))
}

/// A move that ends an execution.
fn ending(name: &str, event: StepEvent, ended: ExecutionEnd) -> Change {
    Change::Step(StepMove { ended: Some(ended), ..StepMove::new(&key(name), event) })
}

fn ended(end: ProcessEnd, active: u64) -> ExecutionEnd {
    ExecutionEnd { end, result: None, active: Millis(active) }
}

fn run_event(event: RunEvent) -> Change {
    Change::Run { event, failure: None, retry_at: None }
}
