//! The points under the feature `failpoints`: reads what the test wants once, counts, and does it.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use super::When;

/// Longer than a signal to a whole process takes to reach all its threads.
const UNTIL_STOPPED: Duration = Duration::from_millis(50);

/// What a test wants of this process.
struct Plan {
    trap: Option<Trap>,
    trace: Option<PathBuf>,
}

struct Trap {
    point: String,
    action: Action,
    nth: u32,
    reached: AtomicU32,
}

#[derive(Clone, Copy)]
enum Action {
    Kill,
    Stop,
    Pause,
    Fail(Errno),
}

/// A point is reached. An error is one that the test asked for.
pub fn reached(when: When, what: &str) -> io::Result<()> {
    reached_any(when, [what])
}

/// A point with several names is reached: a commit of several events.
pub fn reached_any<'a>(when: When, names: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    let plan = PLAN.get_or_init(Plan::from_environment);
    if plan.trap.is_none() && plan.trace.is_none() {
        return Ok(());
    }
    let when = match when {
        When::Before => "before",
        When::After => "after",
    };
    let mut points: Vec<String> = names.into_iter().map(|name| format!("{when}/{name}")).collect();
    points.dedup();
    plan.note(&points);
    plan.trap.as_ref().map_or(Ok(()), |trap| trap.meet(&points))
}

impl Plan {
    fn from_environment() -> Self {
        let trap = std::env::var("AGENTRUN_FAIL").ok();
        let trap = trap.map(|text| Trap::parse(&text).unwrap_or_else(|| panic!("AGENTRUN_FAIL={text} is no plan")));
        Self { trap, trace: std::env::var_os("AGENTRUN_FAIL_TRACE").map(PathBuf::from) }
    }

    fn note(&self, points: &[String]) {
        let Some(path) = &self.trace else { return };
        let line = format!("{}\n", points.join("+"));
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
}

impl Trap {
    /// `<point>:<action>@<n>`; without `@<n>` the first time.
    fn parse(text: &str) -> Option<Self> {
        let (point, rest) = text.split_once(':')?;
        let (action, nth) = rest.split_once('@').unwrap_or((rest, "1"));
        let action = match action {
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "pause" => Action::Pause,
            "err:EIO" => Action::Fail(Errno::IO),
            "err:ENOSPC" => Action::Fail(Errno::NOSPC),
            _ => return None,
        };
        Some(Self { point: point.to_owned(), action, nth: nth.parse().ok()?, reached: AtomicU32::new(0) })
    }

    fn meet(&self, points: &[String]) -> io::Result<()> {
        if self.point != "*" && !points.contains(&self.point) {
            return Ok(());
        }
        if self.reached.fetch_add(1, Ordering::Relaxed) + 1 != self.nth {
            return Ok(());
        }
        match self.action {
            Action::Kill => signal_self(Signal::KILL),
            Action::Stop => {
                let _ = kill_process(getpid(), Signal::STOP);
                // The signal may come to another thread first: this one must not go on into the next commit meanwhile.
                std::thread::sleep(UNTIL_STOPPED);
            }
            Action::Pause => loop {
                std::thread::park();
            },
            Action::Fail(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

/// The signal reaches this thread before the call returns, or soon after it: nothing may happen in between.
fn signal_self(signal: Signal) {
    let _ = kill_process(getpid(), signal);
    loop {
        std::thread::park();
    }
}
