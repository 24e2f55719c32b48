//! What the tests of child processes share: a folder, a supervisor, and waiting for conditions instead of for time.
#![allow(dead_code, missing_docs, reason = "shared by several test programs; each uses a part")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use agentrun::domain::lease::Liveness;
use agentrun::domain::quantity::Millis;
use agentrun::domain::record::Identity;
use agentrun::process::identity::liveness;
use agentrun::process::spec::{Capture, CommandSpec, Lines, PoliteSignal, Stdin, StopRule};
use agentrun::process::{Activity, ChildEvent, ChildId, Ending, Haste, MARKER, Supervisor};

/// No test waits longer than this for anything.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A folder of its own and a supervisor.
pub struct World {
    /// Kept to be removed at the end.
    pub temporary: Option<tempfile::TempDir>,
    pub folder: PathBuf,
    pub supervisor: Supervisor,
    pub marker: String,
    next: AtomicU64,
}

/// A child that runs.
pub struct Running<'a> {
    pub world: &'a World,
    pub id: ChildId,
    pub events: Receiver<ChildEvent>,
    pub activity: Activity,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    pub lines: Vec<String>,
    pub identity: Option<Identity>,
    ending: Option<Ending>,
}

/// A child that ended.
#[derive(Debug)]
pub struct Ended {
    pub ending: Ending,
    pub lines: Vec<String>,
    pub too_long: Vec<u64>,
    pub files_changed: usize,
    pub identity: Option<Identity>,
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

impl World {
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let marker = format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        Self { temporary: Some(temporary), ..Self::within(folder, marker) }
    }

    /// A world in a folder that is there already.
    pub fn within(folder: PathBuf, marker: String) -> Self {
        Self { temporary: None, folder, supervisor: Supervisor::start().unwrap(), marker, next: AtomicU64::new(0) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn command(&self, program: &str, args: &[&str]) -> CommandSpec {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        CommandSpec {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            env: vec![
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                (MARKER.into(), format!("{}/{number}", self.marker).into()),
            ],
            dir: self.folder.clone(),
            stdin: Stdin::Empty,
            stop: StopRule { polite: PoliteSignal::Terminate, grace: Millis(200) },
            dies_with_parent: false,
            capture: Capture {
                stdout: self.path(&format!("{number}.out")),
                stderr: self.path(&format!("{number}.err")),
                max_bytes: 64 << 20,
                lines: Lines::HandOver,
                secrets: vec![],
            },
        }
    }

    pub fn shell(&self, script: &str) -> CommandSpec {
        self.command("/bin/sh", &["-c", script])
    }

    /// The scripted agent, started as agents are.
    pub fn agent(&self, script: &str) -> CommandSpec {
        let mut spec = self.command(env!("CARGO_BIN_EXE_fake-agent"), &[script]);
        spec.dies_with_parent = true;
        spec.stop.polite = PoliteSignal::Interrupt;
        spec
    }

    pub fn spawn(&self, spec: CommandSpec) -> Running<'_> {
        let id = ChildId(self.next.fetch_add(1, Ordering::Relaxed));
        let (stdout, stderr) = (spec.capture.stdout.clone(), spec.capture.stderr.clone());
        let (sender, events) = channel();
        let activity = self.supervisor.spawn(id, spec, Box::new(move |event| drop(sender.send(event))));
        Running { world: self, id, events, activity, stdout, stderr, lines: vec![], identity: None, ending: None }
    }

    pub fn run(&self, spec: CommandSpec) -> Ended {
        self.spawn(spec).end()
    }
}

impl Running<'_> {
    /// Waits until it says this line.
    pub fn until_line(&mut self, wanted: &str) {
        if self.lines.iter().any(|line| line.contains(wanted)) {
            return;
        }
        let begin = Instant::now();
        while let Some(left) = DEADLINE.checked_sub(begin.elapsed()) {
            match self.events.recv_timeout(left) {
                Ok(ChildEvent::Started(identity)) => self.identity = Some(identity),
                Ok(ChildEvent::Line(bytes)) => {
                    self.lines.push(String::from_utf8_lossy(&bytes).into_owned());
                    if self.lines.last().unwrap().contains(wanted) {
                        return;
                    }
                }
                Ok(ChildEvent::Ended(ending)) => panic!("ended before `{wanted}`: {ending:?}"),
                Ok(_) => {}
                Err(error) => panic!("no `{wanted}`: {error}, only {:?}", self.lines),
            }
        }
    }

    /// Waits until it is told who it is.
    pub fn until_started(&mut self) -> Identity {
        self.until_told().expect("it ended before anybody asked who it was")
    }

    /// Waits until it is told who it is; nothing when it has ended before anybody asked.
    pub fn until_told(&mut self) -> Option<Identity> {
        let begin = Instant::now();
        while self.identity.is_none() && self.ending.is_none() {
            let left = DEADLINE.checked_sub(begin.elapsed()).expect("nobody told that it started");
            match self.events.recv_timeout(left).unwrap() {
                ChildEvent::Started(identity) => self.identity = Some(identity),
                ChildEvent::Line(bytes) => self.lines.push(String::from_utf8_lossy(&bytes).into_owned()),
                ChildEvent::Ended(ending) => self.ending = Some(ending),
                other => panic!("did not start: {other:?}"),
            }
        }
        self.identity.clone()
    }

    pub fn until_files_changed(&self) {
        let begin = Instant::now();
        loop {
            let left = DEADLINE.checked_sub(begin.elapsed()).expect("no file changed in time");
            if self.events.recv_timeout(left).unwrap() == ChildEvent::FilesChanged {
                return;
            }
        }
    }

    pub fn stop(&self, haste: Haste) {
        self.world.supervisor.stop(self.id, haste);
    }

    /// Waits until it ends.
    pub fn end(self) -> Ended {
        let Self { events, mut lines, mut identity, ending, stdout, stderr, .. } = self;
        let (mut too_long, mut files_changed) = (Vec::new(), 0);
        if let Some(ending) = ending {
            return Ended { ending, lines, too_long, files_changed, identity, stdout, stderr };
        }
        let begin = Instant::now();
        loop {
            let left = DEADLINE.checked_sub(begin.elapsed()).expect("it did not end in time");
            match events.recv_timeout(left).expect("it did not end in time") {
                ChildEvent::Started(who) => identity = Some(who),
                ChildEvent::Line(bytes) => lines.push(String::from_utf8_lossy(&bytes).into_owned()),
                ChildEvent::LineTooLong { bytes } => too_long.push(bytes),
                ChildEvent::FilesChanged => files_changed += 1,
                ChildEvent::Ended(ending) => {
                    return Ended { ending, lines, too_long, files_changed, identity, stdout, stderr };
                }
            }
        }
    }
}

/// True when this very process is not there any more.
pub fn is_gone(identity: &Identity) -> bool {
    liveness(identity) == Liveness::Dead
}

/// Waits for a condition.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < DEADLINE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes of anybody that carry this marker.
pub fn marked(marker: &str) -> Vec<i32> {
    let wanted = format!("{MARKER}={marker}");
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let carries = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes()))
    };
    pids.filter(carries).collect()
}
