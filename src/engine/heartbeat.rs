//! The lease's pulse: a thread with a connection of its own says at intervals that the holder lives, and learns whether it
//! still does.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel};
use std::time::Duration;

use super::host::{Message, Who, now};
use crate::domain::lease;
use crate::domain::policy::Leases;
use crate::domain::quantity::{BootMs, Now};
use crate::store::{Beat, Hold, Store, StoreError};

/// How soon a full inbox is tried again.
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// How long the end of a pulse is waited for. A thread that hangs in the kernel ends with the process.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A running pulse; dropping it ends the thread.
pub struct Heartbeat {
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

/// Until when a lease lasts, as far as that is recorded: known to the pulse and to the engine, either of which renews it.
#[derive(Debug, Clone)]
pub struct Lasts(Arc<AtomicU64>);

impl Lasts {
    /// A lease that was just taken.
    pub fn until(end: BootMs) -> Self {
        Self(Arc::new(AtomicU64::new(end.0)))
    }

    /// The end.
    pub fn end(&self) -> BootMs {
        BootMs(self.0.load(Ordering::Acquire))
    }

    /// It was renewed.
    pub fn renewed(&self, end: BootMs) {
        self.0.fetch_max(end.0, Ordering::AcqRel);
    }
}

/// What the thread needs.
pub struct Pulse {
    /// The database.
    pub database: PathBuf,
    /// The lease.
    pub hold: Hold,
    /// How long and how often.
    pub leases: Leases,
    /// Who asked.
    pub who: Who,
    /// Where to tell that the lease is lost or a cancel was requested.
    pub inbox: SyncSender<Message>,
    /// Until when the lease lasts.
    pub lasts: Lasts,
}

/// Until when a lease taken now lasts.
pub fn lease_until(now: &Now, leases: &Leases) -> BootMs {
    BootMs(now.boot.0.saturating_add(leases.ttl.0))
}

impl Heartbeat {
    /// Starts the pulse. The connection is opened with the first beat, so that a short run pays nothing for it.
    pub fn start(pulse: Pulse) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let interval = Duration::from_millis(pulse.leases.heartbeat.0.max(10));
        let (ends, ended) = channel();
        std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            // Dropped with the thread, which is how its end is known.
            let _ends: Sender<()> = ends;
            let mut heart = Heart { store: None, last: now() };
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let jump = heart.clock_jump().map(|by| Message::ClockSet { by });
                if jump.is_some_and(|jump| !tell(&pulse, jump, &stopped)) {
                    return;
                }
                let Some(told) = heart.beat(&pulse) else { continue };
                let is_the_last = !matches!(told, Message::CancelRequested);
                if !tell(&pulse, told, &stopped) || is_the_last {
                    return;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), ended })
    }
}

/// The thread's own: its connection, and when it last looked at the clocks.
struct Heart {
    store: Option<Store>,
    last: Now,
}

impl Heart {
    /// One beat, and what the engine must know of it.
    fn beat(&mut self, pulse: &Pulse) -> Option<Message> {
        let until = lease_until(&now(), &pulse.leases);
        match self.write(pulse, until) {
            Ok(beat) => {
                pulse.lasts.renewed(until);
                beat.cancel_requested.then_some(Message::CancelRequested)
            }
            Err(StoreError::Fenced { .. }) => Some(Message::LeaseLost),
            // A beat that cannot be written is missed, not fatal, until others could take the run before the next one.
            Err(error) => {
                tracing::warn!(%error, "a heartbeat could not be written");
                let next = now().boot.0.saturating_add(pulse.leases.heartbeat.0);
                (next >= pulse.lasts.end().0).then_some(Message::RecordFails(error))
            }
        }
    }

    /// By how much somebody set the wall clock since the last look.
    fn clock_jump(&mut self) -> Option<i64> {
        let present = now();
        let before = std::mem::replace(&mut self.last, present);
        lease::clock_jump(&before, &self.last)
    }

    fn write(&mut self, pulse: &Pulse, until: BootMs) -> Result<Beat, StoreError> {
        let gone = || StoreError::Io("the database is gone".to_owned());
        let store = match &mut self.store {
            Some(store) => store,
            None => self.store.insert(Store::open_existing(&pulse.database)?.ok_or_else(gone)?),
        };
        store.heartbeat(&pulse.hold, until, &pulse.who.context())
    }
}

/// Tells the engine, however full its inbox is, but never waits for it when it is waiting for the end of this thread. False
/// when the thread is to end.
fn tell(pulse: &Pulse, mut message: Message, stopped: &Receiver<()>) -> bool {
    loop {
        match pulse.inbox.try_send(message) {
            Ok(()) => return true,
            Err(TrySendError::Full(back)) => message = back,
            Err(TrySendError::Disconnected(_)) => return false,
        }
        if stopped.recv_timeout(BETWEEN_TRIES) != Err(RecvTimeoutError::Timeout) {
            return false;
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.ended.recv_timeout(ENDS_WITHIN);
    }
}
