//! Side effects for the tests: a run under a policy, and what it wants, claims and sends.

use super::*;
use crate::domain::action::answer::Answer;
use crate::domain::action::approval::{ApprovalRecord, Subject};
use crate::domain::action::contract::{Contract, Dedupe, Environment};
use crate::domain::action::record::{ActionRecord, WantedBy};
use crate::domain::action::{ActionFacts, ActionMove};
use crate::domain::event::{Event, EventKind};
use crate::domain::ids::{ActionId, ApprovalId, ReleaseId};
use crate::domain::policy::{ActionType, ApprovalTerms, Rule, Verdict, decide};
use crate::store::{
    About, ActionClaim, ActionStep, Answered, Asking, By, Deciding, NotSent, Proposal, Proposed, Ruling, Sending,
    StoreError,
};

/// Longer than any test.
pub(super) const LONG: BootMs = BootMs(1 << 50);

/// A world with a run that is held, and the hold.
pub(super) struct Effects {
    pub world: World,
    pub hold: Hold,
}

/// A rule over notifications, deployments and everything else.
pub(super) fn rule(verdict: Verdict) -> Rule {
    let approval = (verdict == Verdict::Approve)
        .then(|| ApprovalTerms { expires: Some(Millis::mins(30)), approvers: vec!["bob".into()] });
    Rule { id: format!("{verdict}-all"), verdict, action: "*".into(), when: BTreeMap::new(), approval }
}

/// A run under one rule, held for long.
pub(super) fn under(verdict: Verdict, task: &str) -> NewRun {
    let mut new = new_run(task, task);
    new.inputs.policy.rules = vec![rule(verdict)];
    new.claim = Some(Holder { process: process(), lease_until: LONG, token: Some(token("secret")) });
    new
}

pub(super) fn token(secret: &str) -> Sha256Hash {
    Sha256Hash::of(secret.as_bytes())
}

pub(super) fn id(text: &str) -> ActionId {
    ActionId::recorded(text)
}

/// A contract of an endpoint that knows keys.
pub(super) fn keyed() -> Contract {
    Contract { dedupe: Dedupe::Key, key_lifetime: Some(Millis::mins(60)), ..Contract::careful("chat") }
}

/// A notification that the run's holder wants.
pub(super) fn proposal<'a>(hold: &'a Hold, name: &str) -> Proposal<'a> {
    Proposal {
        by: By::Holder(hold),
        id: id(&format!("op-{name}")),
        key: format!("notification:local:live:-:room-of-{name}:{name}"),
        request_hash: Sha256Hash::of(name.as_bytes()),
        normal_version: 1,
        kind: ActionType::Notification,
        target: format!("room-of-{name}"),
        account: None,
        environment: Environment::Live,
        request_file: format!("requests/{name}.json"),
        contract: keyed(),
        irreversible: false,
        release: None,
        corrects: None,
        deadline: UtcMs(9_000_000),
        expires_at: None,
        wanted: WantedBy {
            run: hold.run.clone(),
            attempt: hold.attempt,
            step: Some(key("report")),
            call: Some("call-1".into()),
            conversation: None,
            request_id: RequestId::recorded("request-1"),
        },
    }
}

/// A deployment of a release to an environment.
pub(super) fn deploy<'a>(hold: &'a Hold, name: &str, release: &str) -> Proposal<'a> {
    Proposal {
        kind: ActionType::Deploy,
        target: "production".into(),
        release: Some(ReleaseId::recorded(release)),
        ..proposal(hold, name)
    }
}

pub(super) fn subject(what: &str) -> Subject {
    Subject {
        title: what.into(),
        kind: "notification".into(),
        target: None,
        account: None,
        environment: None,
        request: Some(Sha256Hash::of(what.as_bytes())),
        command: None,
        programs: BTreeMap::new(),
        commit: None,
        release: None,
        artifacts: BTreeMap::new(),
        contract: None,
        environment_state: BTreeMap::new(),
        policy: "built-in".into(),
    }
}

pub(super) fn done() -> Answer {
    Answer::Done { reference: Some("m-1".into()), message: None }
}

pub(super) fn unknown() -> Answer {
    let code = crate::domain::failure::Code::NetworkTimeout;
    Answer::Unknown { code, message: "no answer".into(), in_progress: false, retry_after: None }
}

pub(super) fn refused() -> Answer {
    let code = crate::domain::failure::Code::ValidationError;
    Answer::Refused { code, message: "no such room".into(), retryable: false, retry_after: None }
}

pub(super) type Sent = super::super::Result<std::result::Result<ActionRecord, NotSent>>;

impl Effects {
    pub(super) fn new(verdict: Verdict) -> Self {
        let mut world = World::new();
        let hold = world.started(&under(verdict, "182"));
        Self { world, hold }
    }

    pub(super) fn propose(&mut self, proposal: &Proposal<'_>) -> super::super::Result<Proposed> {
        let ctx = self.world.ctx();
        self.world.store.propose(proposal, &ctx)
    }

    /// A notification, recorded.
    pub(super) fn wanted(&mut self, name: &str) -> ActionId {
        let hold = self.hold.clone();
        self.propose(&proposal(&hold, name)).unwrap().record().id.clone()
    }

    pub(super) fn claim(&mut self, id: &ActionId) -> u64 {
        let (ctx, hold, process) = (self.world.ctx(), self.hold.clone(), process());
        let expected_fence = self.action(id).fence;
        let claim = ActionClaim { expected_fence, process: &process, lease_until: LONG, hold: Some(&hold) };
        self.world.store.claim_action(id, &claim, &ctx).unwrap().fence
    }

    /// Sends under the newest fence.
    pub(super) fn send(&mut self, id: &ActionId, digest: Option<Sha256Hash>) -> Sent {
        let hold = self.hold.clone();
        let fence = self.action(id).fence;
        self.send_as((Some(&hold), fence), id, digest)
    }

    pub(super) fn send_as(
        &mut self,
        (hold, fence): (Option<&Hold>, u64),
        action: &ActionId,
        digest: Option<Sha256Hash>,
    ) -> Sent {
        let ctx = self.world.ctx();
        let asked = decide::Asked { action: "notification".into(), values: BTreeMap::new() };
        let sending = Sending {
            action,
            fence,
            hold,
            asked: &asked,
            digest,
            margin: Millis::secs(1),
            deadline: ctx.now.utc.plus(Millis::mins(15)),
        };
        self.world.store.begin_send(&sending, &ctx)
    }

    /// Wanted, claimed and sent.
    pub(super) fn sent(&mut self, name: &str) -> ActionId {
        let id = self.wanted(name);
        self.claim(&id);
        self.send(&id, None).unwrap().unwrap();
        id
    }

    pub(super) fn answer(&mut self, id: &ActionId, answer: &Answer) -> super::super::Result<ActionRecord> {
        let (ctx, found) = (self.world.ctx(), self.action(id));
        let facts = ActionFacts::default();
        let answered = Answered { action: id, fence: found.fence, tries: found.tries, answer, facts: &facts };
        self.world.store.record_answer(&answered, &ctx)
    }

    pub(super) fn moved(
        &mut self,
        id: &ActionId,
        event: crate::domain::action::ActionEvent,
    ) -> super::super::Result<ActionRecord> {
        let (ctx, fence) = (self.world.ctx(), self.action(id).fence);
        let moved = ActionMove::new(event);
        let step = ActionStep { action: id, fence: Some(fence), moved: &moved, reason: None };
        self.world.store.move_action(&step, &ctx)
    }

    pub(super) fn action(&self, id: &ActionId) -> ActionRecord {
        self.world.store.action(id).unwrap().unwrap()
    }

    pub(super) fn ask(
        &mut self,
        about: About<'_>,
        name: &str,
        subject: &Subject,
    ) -> super::super::Result<ApprovalRecord> {
        let (ctx, hold) = (self.world.ctx(), self.hold.clone());
        let terms = ApprovalTerms { expires: Some(Millis(1000)), approvers: vec!["bob".into()] };
        let id = ApprovalId::recorded(name);
        let asking = Asking { about, hold: Some(&hold), id: &id, subject, terms: &terms, rule: Some("all") };
        self.world.store.ask_approval(&asking, &ctx)
    }

    pub(super) fn decide(&mut self, name: &str, ruling: Ruling, by: &str) -> super::super::Result<ApprovalRecord> {
        let ctx = self.world.ctx();
        let id = ApprovalId::recorded(name);
        let deciding = Deciding { id: &id, ruling, by, digest: None, reason: None };
        self.world.store.decide_approval(&deciding, &ctx)
    }

    /// The run's events of one kind, with their bodies.
    pub(super) fn told(&self, kind: EventKind) -> Vec<(Event, serde_json::Value)> {
        let events = self.world.store.chain(self.hold.run.as_str()).unwrap();
        let of_kind = events.into_iter().filter(|event| event.kind == kind);
        of_kind.map(|event| (event.clone(), serde_json::from_str(&event.body).unwrap())).collect()
    }
}

pub(super) fn code_of<T: std::fmt::Debug>(answer: super::super::Result<T>) -> crate::domain::failure::Code {
    answer.map_err(|error: StoreError| error.code()).unwrap_err()
}
