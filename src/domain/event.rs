//! The audit log's vocabulary (R-M7): a closed, versioned set of events named `noun.past`, and the hash chain over them.

use serde::{Deserialize, Serialize};

use super::hash::encoding::{Encoder, Sha256Hash};
use super::ids::{EventId, RequestId, RunId, StepKey};
use super::quantity::UtcMs;
use crate::words;

words! {
    /// What happened.
    pub enum EventKind {
        /// A run was accepted.
        RunCreated = "run.created",
        /// A start found this run and returned its result.
        RunReused = "run.reused",
        /// A start found this run under way and follows it.
        RunAttached = "run.attached",
        /// A start was turned down because of this run.
        StartRefused = "start.refused",
        /// A process holds the run and works.
        RunStarted = "run.started",
        /// It goes on.
        RunResumed = "run.resumed",
        /// Another process took it over.
        RunTakenOver = "run.taken_over",
        /// The run's status moved.
        RunMoved = "run.moved",
        /// The run's phase moved.
        PhaseMoved = "phase.moved",
        /// Somebody asked for the run to be canceled.
        CancelRequested = "cancel.requested",
        /// An attempt ended.
        AttemptEnded = "attempt.ended",
        /// A step's state moved: with how its execution ended, and the checkpoint that it reached.
        StepMoved = "step.moved",
        /// An execution of a step ended. In logs of version 0.1.0; later, a part of the step's move.
        ExecutionEnded = "execution.ended",
        /// A child process was started.
        ChildStarted = "child.started",
        /// The agent's conversation has an id.
        SessionOpened = "session.opened",
        /// An agent told its version.
        AgentIdentified = "agent.identified",
        /// An agent that had finished unseen was taken as it was.
        AgentAdopted = "agent.adopted",
        /// Tokens, cost and tool calls were counted.
        UsageRecorded = "usage.recorded",
        /// A file was kept.
        ArtifactRecorded = "artifact.recorded",
        /// A checkpoint was recorded. In logs of version 0.1.0; later, a part of the step's move.
        CheckpointRecorded = "checkpoint.recorded",
        /// The workspace's contents were kept as a commit.
        SnapshotTaken = "snapshot.taken",
        /// A print of what the repository's git folder can run was taken, to be compared with later.
        GuardTaken = "guard.taken",
        /// The workspace is ready.
        WorkspacePrepared = "workspace.prepared",
        /// The workspace was made equal to a snapshot again.
        WorkspaceRestored = "workspace.restored",
        /// The workspace was removed, its contents being safe.
        WorkspaceRemoved = "workspace.removed",
        /// What a failed or cut attempt left was kept as a patch.
        WorkSaved = "work.saved",
        /// Processes that an earlier attempt had left were ended.
        LeftoversEnded = "leftovers.ended",
        /// A person accepted a difference.
        DifferenceAccepted = "difference.accepted",
        /// The run goes on under a policy that has changed.
        PolicyReplaced = "policy.replaced",
        /// The run goes on with other inputs.
        InputsReplaced = "inputs.replaced",
        /// The task's ledger began anew after a verified success.
        LedgerClosed = "ledger.closed",
        /// A limit was raised.
        BudgetRaised = "budget.raised",
        /// A write of a holder that had lost its lease was turned down.
        WriteFenced = "write.fenced",
        /// An idempotency key was bound to a run.
        KeyBound = "key.bound",
        /// An idempotency key came again with another request.
        KeyConflicted = "key.conflicted",
        /// A rule of the policy kept a command from being started.
        PolicyDenied = "policy.denied",
        /// Something is worth a look and changes nothing.
        WarningRaised = "warning.raised",
        /// A run that had to wait for others, or for a provider, goes on.
        TurnTaken = "turn.taken",
        /// A provider is left alone for a time: it refused, or failed too often.
        ProviderHeld = "provider.held",
        /// One call tries whether a provider answers again.
        ProviderTried = "provider.tried",
        /// The call that tried ended without saying anything about the provider.
        ProviderLeft = "provider.left",
        /// A provider answers again.
        ProviderFreed = "provider.freed",
        /// A person had the records recovered: what was lost, or accepted as it is.
        RecordsRecovered = "records.recovered",
        /// A finished run's files were deleted.
        RunSwept = "run.swept",
        /// Somebody wanted a side effect: it is new, or it is there already.
        ActionWanted = "action.wanted",
        /// Somebody has the right to send or settle a side effect.
        ActionClaimed = "action.claimed",
        /// A side effect is sent: from here on it may have happened.
        ActionSent = "action.sent",
        /// A side effect's state moved.
        ActionMoved = "action.moved",
        /// A side effect was not recorded or not sent: denied, a key used for something else, expired, or a limit.
        ActionRefused = "action.refused",
        /// The other side was asked, or told by itself, what became of a side effect.
        ActionRead = "action.read",
        /// An answer came to somebody who no longer had the right to it. Kept as evidence.
        ActionLate = "action.late",
        /// A person has to look at a side effect, until a time.
        ActionAssigned = "action.assigned",
        /// The policy decided about a side effect that is about to be sent.
        PolicyDecided = "policy.decided",
        /// A person's agreement is wanted.
        ApprovalAsked = "approval.asked",
        /// A wanted agreement was given, refused, taken back or used, or its time or its reason is over.
        ApprovalDecided = "approval.decided",
        /// A decision about an agreement was turned down: too late, or about something else.
        ApprovalRefused = "approval.refused",
        /// A name was given to a commit and its artifacts.
        ReleaseMade = "release.made",
        /// A release's name came again with other content.
        ReleaseConflicted = "release.conflicted",
        /// The deployment of a release to an environment moved.
        DeploymentMoved = "deployment.moved",
        /// A message was delivered.
        MessageDelivered = "message.delivered",
        /// A consumer has processed a message, or met one again that it had processed.
        MessageConsumed = "message.consumed",
    }
}

/// The version of the events' bodies; a reader that meets a newer one shows it and does not interpret it.
pub const EVENT_VERSION: u32 = 1;

/// The name of the chain for everything that belongs to no run.
pub const HOME_CHAIN: &str = "home";

/// One event as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Chosen before the commit.
    pub id: EventId,
    /// The run, or [`HOME_CHAIN`].
    pub chain: String,
    /// Position in its chain, from 1.
    pub n: u64,
    /// When.
    pub at: UtcMs,
    /// What.
    pub kind: EventKind,
    /// The version of `body`.
    pub version: u32,
    /// Who: the system user, or `agentrun` for what it does by itself.
    pub actor: String,
    /// The command that led to it.
    pub request_id: RequestId,
    /// The run.
    pub run: Option<RunId>,
    /// The attempt.
    pub attempt: Option<u32>,
    /// The step.
    pub step: Option<StepKey>,
    /// Why, in words.
    pub reason: Option<String>,
    /// The rest, as canonical JSON.
    pub body: String,
    /// The hash of the event before it in its chain; 64 zeros for the first.
    pub prev: Sha256Hash,
    /// The hash of this event.
    pub hash: Sha256Hash,
}

impl Event {
    /// The hash that this event must have: over everything in it but the hash itself.
    pub fn chained_hash(&self) -> Sha256Hash {
        let mut encoder = Encoder::new("agentrun-event/1");
        encoder.field("prev", Some(&self.prev.hex()));
        encoder.field("id", Some(self.id.as_str()));
        encoder.field("chain", Some(&self.chain));
        encoder.field("n", Some(&self.n.to_string()));
        encoder.field("at", Some(&self.at.0.to_string()));
        encoder.field("kind", Some(super::machine::Word::word(self.kind)));
        encoder.field("version", Some(&self.version.to_string()));
        encoder.field("actor", Some(&self.actor));
        encoder.field("request_id", Some(self.request_id.as_str()));
        encoder.field("run", self.run.as_ref().map(RunId::as_str));
        encoder.field("attempt", self.attempt.map(|a| a.to_string()).as_deref());
        encoder.field("step", self.step.as_ref().map(StepKey::as_str));
        encoder.field("reason", self.reason.as_deref());
        encoder.field("body", Some(&self.body));
        encoder.finish()
    }
}

/// What is wrong with a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainFault {
    /// The chain.
    pub chain: String,
    /// The position at which it breaks.
    pub n: u64,
    /// In words.
    pub what: String,
}

/// Where a chain ends: what a manifest anchors outside the database, so that a cut or rewritten chain shows (F97).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// Number of events.
    pub count: u64,
    /// Hash of the last one.
    pub head: Sha256Hash,
}

/// Checks one chain, in order, against the head anchored elsewhere, if there is one. Events after the anchor are fine.
pub fn check_chain(chain: &str, events: &[Event], anchor: Option<&ChainHead>) -> Result<(), ChainFault> {
    let fault = |n: u64, what: &str| ChainFault { chain: chain.to_owned(), n, what: what.to_owned() };
    let mut prev = Sha256Hash([0; 32]);
    for (n, event) in (1..).zip(events) {
        if event.n != n {
            return Err(fault(n, "an event is missing or out of order"));
        }
        if event.prev != prev {
            return Err(fault(n, "an event does not follow the one before it"));
        }
        if event.chained_hash() != event.hash {
            return Err(fault(n, "an event was changed"));
        }
        prev = event.hash;
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let anchored = usize::try_from(anchor.count).ok().and_then(|count| events.get(count.checked_sub(1)?));
    match anchored {
        None if anchor.count == 0 => Ok(()),
        None => Err(fault(events.len() as u64, "events that the manifest names are missing at the end")),
        Some(event) if event.hash != anchor.head => {
            Err(fault(anchor.count, "the chain was rewritten since the manifest"))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(n: u64) -> Vec<Event> {
        let mut prev = Sha256Hash([0; 32]);
        (1..=n)
            .map(|n| {
                let mut event = Event {
                    id: EventId::recorded(format!("e{n}")),
                    chain: "run_1_001".into(),
                    n,
                    at: UtcMs(n.cast_signed()),
                    kind: EventKind::StepMoved,
                    version: EVENT_VERSION,
                    actor: "alice".into(),
                    request_id: RequestId::recorded("r"),
                    run: Some(RunId::recorded("run_1_001")),
                    attempt: Some(1),
                    step: None,
                    reason: None,
                    body: "{}".into(),
                    prev,
                    hash: prev,
                };
                event.hash = event.chained_hash();
                prev = event.hash;
                event
            })
            .collect()
    }

    fn head(events: &[Event]) -> ChainHead {
        ChainHead { count: events.len() as u64, head: events.last().unwrap().hash }
    }

    #[test]
    fn f97_every_kind_of_tampering_shows() {
        let whole = chain(5);
        let anchor = head(&whole);
        assert_eq!(check_chain("c", &whole, Some(&anchor)), Ok(()));

        let mut edited = whole.clone();
        edited[2].actor = "mallory".into();
        let mut deleted = whole.clone();
        deleted.remove(2);
        let mut swapped = whole.clone();
        swapped.swap(1, 2);
        for broken in [edited, deleted, swapped] {
            assert!(check_chain("c", &broken, None).is_err());
        }

        let cut = &whole[..3];
        assert_eq!(check_chain("c", cut, None), Ok(()), "a plain chain cannot see that its tail is gone");
        assert!(check_chain("c", cut, Some(&anchor)).is_err());
        let mut restamped = chain(5);
        restamped[0].actor = "mallory".into();
        let mut prev = Sha256Hash([0; 32]);
        for event in &mut restamped {
            event.prev = prev;
            event.hash = event.chained_hash();
            prev = event.hash;
        }
        assert_eq!(check_chain("c", &restamped, None), Ok(()), "nor that everything was rewritten");
        assert!(check_chain("c", &restamped, Some(&anchor)).is_err());
    }

    #[test]
    fn a_chain_may_have_grown_since_it_was_anchored() {
        let whole = chain(5);
        assert_eq!(check_chain("c", &whole, Some(&head(&whole[..3]))), Ok(()));
    }
}
