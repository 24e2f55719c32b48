//! The lease's pulse: a thread with a connection of its own says at intervals that the holder lives, and learns whether it
//! still does.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::host::{Message, Who, now};
use crate::domain::policy::Leases;
use crate::domain::quantity::{BootMs, Now};
use crate::store::{Hold, Store, StoreError};

/// A running pulse; dropping it ends the thread.
pub struct Heartbeat {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
        let thread = std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            let mut store = None;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                if beat(&pulse, &mut store).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// One beat; an error ends the pulse.
fn beat(pulse: &Pulse, store: &mut Option<Store>) -> Result<(), ()> {
    if store.is_none() {
        *store = Store::open(&pulse.database).ok();
    }
    // A beat that cannot be written is missed, not fatal: the lease runs out by itself if that lasts.
    let Some(store) = store.as_mut() else { return Ok(()) };
    match store.heartbeat(&pulse.hold, lease_until(&now(), &pulse.leases), &pulse.who.context()) {
        Ok(beat) if beat.cancel_requested => pulse.inbox.send(Message::CancelRequested).map_err(drop),
        Ok(_) => Ok(()),
        Err(StoreError::Fenced { .. }) => {
            let _ = pulse.inbox.send(Message::LeaseLost);
            Err(())
        }
        Err(error) => {
            tracing::warn!(%error, "a heartbeat could not be written");
            Ok(())
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
