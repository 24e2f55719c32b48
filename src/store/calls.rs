//! What callers of the store hand in and get back, where the domain has no word for it yet. Plain values only.

use serde_json::Value;

use crate::domain::breaker::Breaker;
use crate::domain::event::{ChainHead, EventKind};
use crate::domain::failure::Failure;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::hash::fingerprint::Components;
use crate::domain::ids::{RequestId, RunId, SupportCode, TaskId};
use crate::domain::policy::BreakerRules;
use crate::domain::quantity::{BootMs, Millis, Now, UtcMs};
use crate::domain::record::{Identity, RunInputs};
use crate::domain::run::{OpenedBy, Phase, RunEvent, RunStatus};
use crate::domain::turn::Queue;

/// Who writes and when; given with every write and kept with its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The present.
    pub now: Now,
    /// The system user, or `agentrun` for what it does by itself.
    pub actor: String,
    /// The command that led to it.
    pub request_id: RequestId,
}

/// The process that wants to hold a run, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub process: Identity,
    /// Until this reading of the boot clock of `process.boot_id`.
    pub lease_until: BootMs,
    /// The hash of the secret that programs of its attempt show; `None` lets none of them ask for anything.
    pub token: Option<Sha256Hash>,
}

/// A caller's idempotency key, hashed: the key itself is never stored (R-A16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartKey {
    /// SHA-256 of the key.
    pub hash: Sha256Hash,
    /// SHA-256 of the normalized request.
    pub request: Sha256Hash,
    /// From then on the key is expired.
    pub expires_at: UtcMs,
}

/// A run that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// What makes it this run.
    pub components: Components,
    /// Everything it is given; also names its task, its steps and its concurrency group.
    pub inputs: RunInputs,
    /// The phase it is born in: [`Phase::QaPending`] where the pipeline has a check.
    pub phase: Option<Phase>,
    /// The highest run number that folders and refs of the repository show (R-M2).
    pub number_floor: u32,
    /// True for `--new`: the next instance, whatever became of the ones before.
    pub fresh: bool,
    /// For people.
    pub support_code: SupportCode,
    /// The caller's idempotency key.
    pub key: Option<StartKey>,
    /// Who will work on it at once; `None` leaves it PENDING.
    pub claim: Option<Holder>,
}

/// What became of a wish for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// It is new and the caller holds it.
    New(Hold),
    /// It is new and PENDING: no claim was asked for, or it has to take its turn first ([`super::Store::queue_up`]).
    Queued {
        /// The new run.
        run: RunId,
        /// The run of its group that comes before it.
        behind: Option<RunId>,
    },
    /// The same fingerprint, or the same idempotency key, already has this run.
    Existing(RunId),
}

/// The right to write to a run. Named with every write; worth nothing once somebody else has a higher fence (R-R7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The run.
    pub run: RunId,
    /// The attempt that the holder carries out.
    pub attempt: u32,
    /// The number of the right.
    pub fence: u64,
}

/// How somebody wants to go on with a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// [`RunEvent::Start`], [`RunEvent::Resume`] or [`RunEvent::TakeOver`].
    pub event: RunEvent,
    /// For the attempt's record.
    pub opened_by: OpenedBy,
    /// The process.
    pub holder: Identity,
    /// Until this reading of the boot clock of `holder.boot_id`.
    pub lease_until: BootMs,
    /// The fence that the caller saw when it decided: whoever claimed since then wins.
    pub expected_fence: u64,
    /// How many attempts of the task may fail; `None` asks nothing: no limit, or one that does not hold for this claim.
    pub attempts: Option<u64>,
    /// The hash of the secret that programs of this attempt show; `None` lets none of them ask for anything.
    pub token: Option<Sha256Hash>,
}

/// A decision about a run that nobody holds: a requeue, a burial, a cancel, a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The event.
    pub event: RunEvent,
    /// The fence that the caller saw when it decided.
    pub expected_fence: u64,
    /// Why the run stands there from now on.
    pub failure: Option<crate::domain::failure::Failure>,
    /// When it may be tried again.
    pub retry_at: Option<UtcMs>,
    /// The person's or program's reason.
    pub reason: String,
}

/// Something that happened and changes no state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What.
    pub kind: EventKind,
    /// Why, in words.
    pub reason: String,
    /// The rest. A `code` or `key_hash` in it can be searched for.
    pub body: Value,
}

/// What the holder learns from a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The end of the run's audit chain: what a manifest names.
    pub chain: ChainHead,
    /// Where the run stands now.
    pub status: RunStatus,
    /// True once somebody asked for a cancel.
    pub cancel_requested: bool,
}

/// What the holder learns from a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// True once somebody asked for a cancel.
    pub cancel_requested: bool,
}

/// What somebody queues up for, and with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The queue.
    pub queue: &'a Queue,
    /// The run that wants to go on.
    pub run: &'a RunId,
    /// The agent that is to be called (queues of providers).
    pub agent: Option<&'a str>,
    /// The process that waits.
    pub holder: &'a Identity,
    /// How many turns may be taken at a time; `None` is no limit.
    pub limit: Option<u64>,
    /// True when a person wants it tried before the provider's time is over.
    pub insists: bool,
    /// How long a trial counts at most.
    pub trial: Millis,
    /// Turns whose processes were found to be gone.
    pub gone: &'a [u64],
    /// True when a turn that another process has for this run does not count: that process has lost the run.
    pub takes_over: bool,
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub turn: u64,
    /// Where it stands.
    pub next: Turned,
}

/// Where somebody in a queue stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// Its turn is taken.
    Taken,
    /// Its turn has come and can be taken (a look that writes nothing).
    Due,
    /// Others come first.
    Queue {
        /// How many, those whose turn it is included.
        ahead: u64,
    },
    /// The provider is left alone for the present.
    Shut(Box<Breaker>),
    /// Its place is gone.
    Lost,
}

/// A call of a provider that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedCall<'a> {
    /// The provider.
    pub provider: &'a str,
    /// The agent.
    pub agent: &'a str,
    /// The run.
    pub run: &'a RunId,
    /// Its turn.
    pub turn: u64,
    /// How it failed, if it did.
    pub failure: Option<&'a Failure>,
    /// The run's policy about it.
    pub rules: BreakerRules,
}

/// Which runs to list; always newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunFilter {
    /// Open ones and the newest few: what `status` shows.
    Overview {
        /// How many of the newest.
        newest: u32,
    },
    /// Those that go on or wait for something: not SUCCEEDED, FAILED, DEAD_LETTER or CANCELED.
    Open,
    /// The newest few.
    Newest(u32),
    /// Dead letters.
    Dead,
    /// All.
    All,
    /// Those of one task, whatever its spelling.
    Task(TaskId),
}

/// Which events to list. Several conditions must all hold; without one, all events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Of one run.
    pub run: Option<RunId>,
    /// Of one command.
    pub request: Option<RequestId>,
    /// That name this idempotency key, and those of the run it led to.
    pub key_hash: Option<Sha256Hash>,
    /// Of one kind.
    pub kind: Option<EventKind>,
    /// That name this code.
    pub code: Option<crate::domain::failure::Code>,
    /// The newest so many; `None` is all of them.
    pub limit: Option<u32>,
}
