//! From `agentrun resume`, after a SIGKILL in the middle of a step, to the moment in which the step works again.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;
use crate::measure::{ROUNDS, median, ms};
use crate::table::Row;
use crate::world::{World, quoted, this_program};

/// Measures.
pub fn measure() -> Outcome<Vec<Row>> {
    let (mut resumes, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (resume, floor) = once()?;
        resumes.push(resume);
        floors.push(floor);
    }
    Ok(vec![Row {
        what: "`resume` after SIGKILL to the first new step".to_owned(),
        measured: ms(median(resumes.iter().copied())),
        floor: format!("{} (the step alone)", ms(median(floors))),
        reached: median(resumes).as_secs_f64() * 1000.0,
        target: 50.0,
        unit: "ms",
    }])
}

/// One run that is killed in its third step; the step's process is left behind, as it would be.
fn once() -> Outcome<(Duration, Duration)> {
    let world = World::new()?;
    let (program, file) = (this_program()?, world.beside("stamps"));
    world.write(
        "tasks/cut.yml",
        &format!(
            "task: cut\nsteps:\n  - {{ key: one, kind: command, run: [/bin/true] }}\n  \
             - {{ key: two, kind: command, run: [/bin/true] }}\n  \
             - {{ key: three, kind: command, run: [{}, stamp, {}] }}\n",
            quoted(&program),
            quoted(&file)
        ),
    )?;
    world.commit()?;
    let mut start = world.agentrun(&["start", "cut", "--quiet"]);
    let mut start = start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_for_stamps(&file, 1)?;
    kill_process(Pid::from_child(&start), Signal::KILL)?;
    start.wait()?;

    let before = monotonic();
    let mut resume = world.agentrun(&["resume", "run_cut_001", "--quiet"]);
    let resume = resume.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let output = resume.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("resume failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let resumed = wait_for_stamps(&file, 2)?.saturating_sub(before);

    let before = monotonic();
    world.command(&program, &["stamp", &file.to_string_lossy()]).status()?;
    let alone = wait_for_stamps(&file, 3)?.saturating_sub(before);
    Ok((resumed, alone))
}

/// The step: notes when it began. The first one then waits to be ended; later ones end at once.
pub fn stamp(file: &Path) -> Outcome<()> {
    let now = monotonic();
    let first = !file.exists();
    let mut stamps = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
    stamps.write_all(format!("{}\n", now.as_nanos()).as_bytes())?;
    if first {
        std::thread::sleep(Duration::from_mins(1));
    }
    Ok(())
}

/// Waits for the n-th stamp and answers it.
fn wait_for_stamps(file: &Path, count: usize) -> Outcome<Duration> {
    let limit = Instant::now() + Duration::from_secs(30);
    while Instant::now() < limit {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n')
            && let Some(stamp) = text.lines().nth(count - 1)
        {
            return Ok(Duration::from_nanos(stamp.parse()?));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("step {count} never began").into())
}

/// A clock that two processes share.
fn monotonic() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
