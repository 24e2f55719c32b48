//! Whoever stops agentrun itself: SIGINT, SIGTERM, SIGHUP, turned into values. And what the process must be before it
//! works: closed to its children, not killed by a full disk. What a stop means for a run is decided elsewhere.

use std::io;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, umask};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::ProcessError;

/// A second Ctrl-C within this time means "at once".
const AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// The umask that agentrun was started with, once it was changed.
static USUAL_UMASK: OnceLock<Mode> = OnceLock::new();

/// Somebody wants agentrun to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal {
    /// How.
    pub kind: StopKind,
    /// Whether it is the second SIGINT within two seconds.
    pub press: Press,
}

/// The signals that stop agentrun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    /// SIGINT: Ctrl-C, a cancelled CI job.
    Interrupt,
    /// SIGTERM: a service manager, a CI runner.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
}

/// How often Ctrl-C was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    /// Once, or not lately.
    First,
    /// The second time within two seconds: everything is to be killed at once.
    Again,
}

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// Stop, unless agentrun was started with SIGHUP ignored (`nohup`).
    Stops,
    /// Nothing: the run was detached from its terminal on purpose.
    IsIgnored,
}

/// Listens until it is dropped. The signals stay caught afterwards: a default action that comes back in the middle of
/// cleaning up would end agentrun without a record.
#[derive(Debug)]
pub struct StopSignals {
    _quit: oneshot::Sender<()>,
}

impl StopKind {
    /// The signal's name, as people know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }

    /// The signal's number.
    pub fn number(self) -> i32 {
        match self {
            Self::Interrupt => Signal::INT.as_raw(),
            Self::Terminate => Signal::TERM.as_raw(),
            Self::Hangup => Signal::HUP.as_raw(),
        }
    }
}

impl StopSignals {
    /// Calls `on_stop` for each stop signal from now on, on a thread of its own, so that nothing that blocks elsewhere can
    /// keep a person waiting.
    pub fn listen(hangup: Hangup, on_stop: impl FnMut(StopSignal) + Send + 'static) -> Result<Self, ProcessError> {
        let hangup = if was_ignored(Signal::HUP) { Hangup::IsIgnored } else { hangup };
        let runtime = Builder::new_current_thread().enable_io().build().map_err(ProcessError::Signals)?;
        let inside = runtime.enter();
        let caught = |kind| signal(kind).map_err(ProcessError::Signals);
        let interrupts = caught(SignalKind::interrupt())?;
        let terminations = caught(SignalKind::terminate())?;
        // A handler that does nothing instead of "ignore": children start with the default action then.
        let hangups = caught(SignalKind::hangup())?;
        drop(inside);
        let (quit, quitting) = oneshot::channel();
        let listener = Listener { interrupts, terminations, hangups, hangup, last: None };
        thread::Builder::new()
            .name("stop-signals".to_owned())
            .spawn(move || runtime.block_on(listener.run(quitting, on_stop)))
            .map_err(ProcessError::Signals)?;
        Ok(Self { _quit: quit })
    }
}

struct Listener {
    interrupts: tokio::signal::unix::Signal,
    terminations: tokio::signal::unix::Signal,
    hangups: tokio::signal::unix::Signal,
    hangup: Hangup,
    /// The last SIGINT.
    last: Option<Instant>,
}

impl Listener {
    async fn run(mut self, mut quitting: oneshot::Receiver<()>, mut on_stop: impl FnMut(StopSignal)) {
        loop {
            let kind = tokio::select! {
                _ = &mut quitting => return,
                _ = self.interrupts.recv() => StopKind::Interrupt,
                _ = self.terminations.recv() => StopKind::Terminate,
                _ = self.hangups.recv() => StopKind::Hangup,
            };
            if kind == StopKind::Hangup && self.hangup == Hangup::IsIgnored {
                continue;
            }
            on_stop(StopSignal { kind, press: self.press(kind, Instant::now()) });
        }
    }

    fn press(&mut self, kind: StopKind, now: Instant) -> Press {
        if kind != StopKind::Interrupt {
            return Press::First;
        }
        match self.last.replace(now) {
            Some(last) if now.duration_since(last) <= AGAIN_WITHIN => Press::Again,
            _ => Press::First,
        }
    }
}

/// Prepares this process; to be called once, at its very start.
///
/// Nobody else of the same user can read its memory and environment (T10); files are made for the owner alone; a file that
/// grows past the allowed size is an error instead of a death (T4). SIGPIPE is ignored by the Rust runtime already (T13).
/// Children get none of this: the thread that starts them keeps the usual umask, provided that this was called before the
/// first [`super::Supervisor::start`]; a handler does not survive the start of a program; a new program is readable again.
pub fn harden_self() -> Result<(), ProcessError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| ProcessError::Harden(error.into()))?;
    let _ = USUAL_UMASK.set(umask(Mode::RWXG | Mode::RWXO));
    survive_large_files().map_err(ProcessError::Signals)
}

/// SIGXFSZ gets a handler that does nothing. "Ignore" would do for this process, but children would inherit it.
fn survive_large_files() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The handler stays when the runtime is gone.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(|_| ())
}

/// Gives the calling thread a umask of its own, the one that agentrun was started with: children inherit it from the
/// thread that starts them, and what a build makes must be readable by those for whom it is made.
pub(super) fn give_children_the_usual_umask() -> io::Result<()> {
    #[expect(unsafe_code, reason = "the kernel's call for a thread with its own umask")]
    // SAFETY: the danger of this call is with file descriptors that other threads do not see; they stay shared here.
    unsafe {
        unshare_unsafe(UnshareFlags::FS)?;
    }
    if let Some(usual) = USUAL_UMASK.get() {
        umask(*usual);
    }
    Ok(())
}

/// Whether this process was started with a signal ignored, as `nohup` does.
fn was_ignored(signal: Signal) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")?.trim().get(..16));
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}
