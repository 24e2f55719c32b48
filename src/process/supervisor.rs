//! The handle to the one thread that starts, waits for, reads and stops every child of this process.
//!
//! There is one such thread per process, however many [`Supervisor`]s: waiting is a matter of the whole process, and two
//! threads that wait would take each other's statuses. It is started with the first supervisor and lives on, because the
//! kernel ties children to the thread that forked them (T9); without children it sleeps and costs nothing.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc as wait};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, waitpid};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::LocalSet;

use super::capture::Capture;
use super::event::{Activity, ChildEvent, ChildId, Ending, Haste, StartProblem};
use super::identity::boot_id;
use super::ladder::Ladder;
use super::launch::launch;
use super::lines::LineSplitter;
use super::roster::{Claim, Key, Roster};
use super::signals::give_children_the_usual_umask;
use super::spec::{Capture as CaptureSpec, CommandSpec, Lines};
use super::streams::{Streams, waitable};
use super::tend::{Entry, Order, STAYS, Sink, Tended};
use super::watch::Watch;
use super::{MARKER, ProcessError};
use crate::failpoints::{self, When};

/// How long dropping a supervisor waits for its children to be gone.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// The way to the thread, once there is one.
static THREAD: Mutex<Option<UnboundedSender<Request>>> = Mutex::new(None);

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(0);

/// Starts children and stops them. What happens to them comes back as [`ChildEvent`]s.
///
/// Dropping it kills the children that are left, with their trees, and waits until they are gone; their sinks hear nothing
/// more. So a sink that blocks must have been released before (its receiver dropped), or the drop waits in vain for ten
/// seconds.
#[derive(Debug)]
pub struct Supervisor {
    handle: u64,
    requests: UnboundedSender<Request>,
}

enum Request {
    Spawn { key: Key, spec: Box<CommandSpec>, activity: Activity, sink: Sink },
    Stop(Key, Haste),
    Watch(Key, PathBuf),
    Close { handle: u64, gone: wait::Sender<()> },
}

impl Supervisor {
    /// Makes this process the reaper of its orphaned descendants and starts the thread, unless an earlier call did.
    pub fn start() -> Result<Self, ProcessError> {
        let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = match thread.as_ref().filter(|requests| !requests.is_closed()) {
            Some(requests) => requests.clone(),
            None => thread.insert(start_thread()?).clone(),
        };
        Ok(Self { handle, requests })
    }

    /// Starts a child. Returns at once; whether it started is told to `sink`, which is called on the supervisor's thread
    /// and may block it (the pipe then fills and the child waits, and so do all others).
    pub fn spawn(&self, id: ChildId, spec: CommandSpec, sink: Box<dyn FnMut(ChildEvent) + Send>) -> Activity {
        let activity = Activity::default();
        let key = (self.handle, id);
        let request = Request::Spawn { key, spec: Box::new(spec), activity: activity.clone(), sink };
        if let Err(refused) = self.requests.send(request)
            && let Request::Spawn { mut sink, .. } = refused.0
        {
            let message = "the thread that supervises child processes has ended".to_owned();
            sink(ChildEvent::Ended(Ending::not_started(StartProblem::Other, message)));
        }
        activity
    }

    /// Stops a child. Nothing happens when it has ended, or is on its way with no less haste. Its end is told as usual.
    pub fn stop(&self, id: ChildId, haste: Haste) {
        self.request(Request::Stop((self.handle, id), haste));
    }

    /// Tells [`ChildEvent::FilesChanged`] whenever something changes in `folder`, and once at the beginning.
    pub fn watch(&self, id: ChildId, folder: PathBuf) {
        self.request(Request::Watch((self.handle, id), folder));
    }

    /// Kills every child with its tree; none of them is told about any more. The answer says when they are gone. A sink that
    /// blocks must go on being emptied meanwhile, or nothing happens.
    pub fn end_all(&self) -> Leaving {
        let (gone, all_gone) = wait::channel();
        self.request(Request::Close { handle: self.handle, gone });
        Leaving(all_gone)
    }

    /// Without a thread there is no child to which this could matter.
    fn request(&self, request: Request) {
        let _ = self.requests.send(request);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end_all().within(DROP_LIMIT);
    }
}

/// Children that were told to go.
#[derive(Debug)]
pub struct Leaving(wait::Receiver<()>);

impl Leaving {
    /// Waits at most so long; true when the last of them is gone.
    pub fn within(&self, limit: Duration) -> bool {
        // Nothing is ever sent: the wait ends when the last child's task has dropped its end.
        self.0.recv_timeout(limit) == Err(wait::RecvTimeoutError::Disconnected)
    }
}

fn start_thread() -> Result<UnboundedSender<Request>, ProcessError> {
    boot_id()?;
    set_child_subreaper(Some(getpid())).map_err(|error| ProcessError::Supervisor(error.into()))?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ProcessError::Supervisor)?;
    let (requests, inbox) = mpsc::unbounded_channel();
    let thread = std::thread::Builder::new().name("supervisor".to_owned());
    let (started, answer) = wait::channel();
    thread
        .spawn(move || {
            let _ = started.send(prepare(&runtime));
            let local = LocalSet::new();
            local.block_on(&runtime, run(inbox));
        })
        .map_err(ProcessError::Supervisor)?;
    let ready = answer.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe));
    ready.and_then(|prepared| prepared).map_err(ProcessError::Supervisor)?;
    Ok(requests)
}

/// Installs the handler for SIGCHLD, so that the loop cannot fail at it later.
fn prepare(runtime: &Runtime) -> io::Result<()> {
    let _inside = runtime.enter();
    give_children_the_usual_umask()?;
    signal(SignalKind::child()).map(|_| ())
}

/// The loop of the thread.
async fn run(mut inbox: UnboundedReceiver<Request>) {
    let roster = Rc::new(Roster::new());
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    loop {
        tokio::select! {
            biased;
            _ = ended.recv() => roster.reap(),
            request = inbox.recv() => match request {
                Some(Request::Spawn { key, spec, activity, sink }) => spawn(&roster, key, &spec, activity, sink),
                Some(Request::Stop(key, haste)) => roster.order(key, Order::Stop(haste)),
                Some(Request::Watch(key, folder)) => roster.order(key, Order::Watch(folder)),
                Some(Request::Close { handle, gone }) => {
                    for key in roster.of_handle(handle) {
                        roster.order(key, Order::Abandon(gone.clone()));
                    }
                }
                None => return,
            },
        }
    }
}

/// Starts a child and its task, or tells why not.
fn spawn(roster: &Rc<Roster>, key: Key, spec: &CommandSpec, activity: Activity, mut sink: Sink) {
    if roster.knows(key) {
        let message = format!("child {} of this supervisor has not ended yet", key.1.0);
        return sink(ChildEvent::Ended(Ending::not_started(StartProblem::Other, message)));
    }
    let (leader, out, err) = match start(spec) {
        Ok(started) => started,
        Err((problem, message)) => return sink(ChildEvent::Ended(Ending::not_started(problem, message))),
    };
    // If we die here: the child is found by its marker.
    let _ = failpoints::reached(When::After, "spawn");
    let (orders, inbox) = mpsc::unbounded_channel();
    roster.enter(key, Claim { leader, marker: marker_in(spec), family: HashSet::new(), orders });
    let tended = Tended {
        entry: Entry { key, leader, roster: Rc::clone(roster) },
        ladder: Ladder::new(spec.stop),
        streams: Streams::new(out, err, activity, Rc::clone(roster), sink),
        watch: Watch::default(),
        told_from: Some(Instant::now() + if spec.dies_with_parent { Duration::ZERO } else { STAYS }),
        orders: inbox,
        abandoned: None,
    };
    tokio::task::spawn_local(tended.tend());
}

type Captured = (AsyncFd<OwnedFd>, Capture);

/// Everything that can fail: the captures, the child, its pipes.
fn start(spec: &CommandSpec) -> Result<(Pid, Captured, Captured), (StartProblem, String)> {
    let CaptureSpec { stdout, stderr, max_bytes, lines, secrets } = &spec.capture;
    let unsearchable = |error| (StartProblem::Other, format!("cannot search for secrets: {error}"));
    let splitter = (*lines == Lines::HandOver).then(LineSplitter::default);
    let out = Capture::new(stdout.clone(), *max_bytes, splitter, secrets).map_err(unsearchable)?;
    let err = Capture::new(stderr.clone(), *max_bytes, None, secrets).map_err(unsearchable)?;
    let (pid, stdout, stderr) = launch(spec)?;
    match (waitable(stdout), waitable(stderr)) {
        (Ok(stdout), Ok(stderr)) => Ok((pid, (stdout, out), (stderr, err))),
        (Err(error), _) | (_, Err(error)) => {
            end_unread(pid);
            Err((StartProblem::Unwatched, format!("cannot read from {}: {error}", spec.program.display())))
        }
    }
}

fn marker_in(spec: &CommandSpec) -> Option<Vec<u8>> {
    let entry = spec.env.iter().find(|(name, _)| name == MARKER);
    entry.map(|(_, value)| value.as_encoded_bytes().to_vec())
}

/// Ends a child that cannot be read: SIGKILL, then its status, which comes at once.
fn end_unread(pid: Pid) {
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
}
