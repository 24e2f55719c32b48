//! Wakes up when something changes in a folder: agents write records beside their output. It does not say what changed,
//! and it does not look below the folder.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use super::streams::waitable;

/// The watched folders of one child.
#[derive(Debug, Default)]
pub(super) struct Watch {
    events: Option<AsyncFd<OwnedFd>>,
}

impl Watch {
    /// Watches one more folder. Best effort: without it the reader of those records is only woken less often, so a limit
    /// of the system or a missing folder is no failure of the child.
    pub(super) fn add(&mut self, folder: &Path) {
        if self.events.is_none() {
            let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
            self.events = events.ok().and_then(|events| waitable(events).ok());
        }
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO;
        let added =
            self.events.as_ref().map(|events| inotify::add_watch(events.get_ref(), folder, what | WatchFlags::ONLYDIR));
        if let Some(Err(error)) = added {
            tracing::debug!(folder = %folder.display(), %error, "folder is not watched");
        }
    }

    /// Comes back when something changed, however often it did since the last time. Never, without a folder.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(events) = &self.events else { return std::future::pending().await };
            let Ok(mut ready) = events.readable().await else {
                self.events = None;
                continue;
            };
            let mut room = [MaybeUninit::<u8>::uninit(); 4096];
            let mut seen = false;
            while let Ok((read, _)) = rustix::io::read(events.get_ref(), &mut room) {
                if read.is_empty() {
                    break;
                }
                seen = true;
            }
            ready.clear_ready();
            if seen {
                return;
            }
        }
    }
}
