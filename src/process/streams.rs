//! The two pipes of a child: read as soon as there is something, whichever it is. What becomes of the bytes is the
//! business of `capture`.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::capture::{Capture, Captured};
use super::event::{Activity, ChildEvent};
use super::identity::boot_ms;
use super::lines::Line;
use super::roster::Roster;
use super::tend::Sink;

/// One pipe.
struct Stream {
    /// `None` after its end.
    pipe: Option<AsyncFd<OwnedFd>>,
    capture: Capture,
}

/// Both pipes and where what they bring is told.
pub(super) struct Streams {
    stdout: Stream,
    stderr: Stream,
    activity: Activity,
    roster: Rc<Roster>,
    /// Whoever listens.
    pub(super) sink: Sink,
}

/// Something to read from that can be waited for. Fails when the system has no room for one more.
pub(super) fn waitable(end: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&end, true)?;
    #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
    // SAFETY: an `OwnedFd` names the same open descriptor as long as it lives, and the result owns it.
    let waitable = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) };
    Ok(waitable?)
}

impl Streams {
    /// Both pipes, each with its capture.
    pub(super) fn new(
        stdout: (AsyncFd<OwnedFd>, Capture),
        stderr: (AsyncFd<OwnedFd>, Capture),
        activity: Activity,
        roster: Rc<Roster>,
        sink: Sink,
    ) -> Self {
        let stream = |(pipe, capture): (AsyncFd<OwnedFd>, Capture)| Stream { pipe: Some(pipe), capture };
        Self { stdout: stream(stdout), stderr: stream(stderr), activity, roster, sink }
    }

    /// True while a pipe is open.
    pub(super) fn are_open(&self) -> bool {
        self.stdout.pipe.is_some() || self.stderr.pipe.is_some()
    }

    /// Takes the next bytes of either pipe. Never comes back when both are closed. May be given up at any time: bytes are
    /// only taken in the moment in which they are passed on.
    pub(super) async fn turn(&mut self) {
        let Self { stdout, stderr, activity, roster, sink } = self;
        tokio::select! {
            () = stdout.turn(roster, activity, |line| sink(event_of(line))) => {}
            () = stderr.turn(roster, activity, |_| ()) => {}
        }
        // A child that writes faster than it is read would never let anything else of this thread come up, its own end least.
        tokio::task::yield_now().await;
    }

    /// Both are over, or given up.
    pub(super) fn finish(self) -> (Captured, Captured, Sink) {
        let mut sink = self.sink;
        let stdout = self.stdout.capture.finish(&mut |line| sink(event_of(line)));
        (stdout, self.stderr.capture.finish(&mut |_| ()), sink)
    }
}

impl Stream {
    async fn turn(&mut self, roster: &Roster, activity: &Activity, mut hand_over: impl FnMut(Line)) {
        loop {
            let Some(pipe) = &self.pipe else { return std::future::pending().await };
            let Ok(mut ready) = pipe.readable().await else {
                self.pipe = None;
                return;
            };
            // Nobody else borrows the buffer: there is no await between here and the end of its use.
            let mut buffer = roster.buffer.borrow_mut();
            match rustix::io::read(pipe.get_ref(), &mut **buffer) {
                Ok(count) if count > 0 => {
                    activity.note(boot_ms());
                    self.capture.push(&buffer[..count], &mut hand_over);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(rustix::io::Errno::INTR) => continue,
                _ => self.pipe = None,
            }
            return;
        }
    }
}

fn event_of(line: Line) -> ChildEvent {
    match line {
        Line::Whole(bytes) => ChildEvent::Line(bytes),
        Line::TooLong(bytes) => ChildEvent::LineTooLong { bytes },
    }
}
