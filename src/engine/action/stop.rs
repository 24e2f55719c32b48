//! The wish that something ends: seen by calls under way, and waking whoever waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::domain::quantity::Millis;

/// Set once, by anybody, and never taken back.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    flag: AtomicBool,
    waits: Mutex<()>,
    woken: Condvar,
}

impl Stop {
    /// Asks for the end.
    pub fn set(&self) {
        self.inner.flag.store(true, Ordering::Release);
        // Nobody can be between its look at the flag and its wait: that takes the lock.
        drop(self.inner.waits.lock());
        self.inner.woken.notify_all();
    }

    /// For a call that looks from time to time.
    pub fn flag(&self) -> &AtomicBool {
        &self.inner.flag
    }

    /// Waits so long; true as soon as the end is asked for.
    pub fn wait(&self, length: Millis) -> bool {
        let until = Instant::now().checked_add(Duration::from_millis(length.0));
        let Ok(mut held) = self.inner.waits.lock() else { return true };
        loop {
            if self.inner.flag.load(Ordering::Acquire) {
                return true;
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            let Ok((again, _)) = self.inner.woken.wait_timeout(held, left.min(Duration::from_hours(1))) else {
                return true;
            };
            held = again;
        }
    }
}
