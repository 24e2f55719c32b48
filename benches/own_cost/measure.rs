//! Clocks and medians.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// How often everything is measured.
pub const ROUNDS: usize = 5;

/// What one process cost, its children included.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// From its start to its end.
    pub wall: Duration,
    /// User and system time; the kernel tells hundredths of a second.
    pub cpu: Duration,
}

/// Runs a command to its end and says what it cost. A failure is an error, with its words.
pub fn cost(command: &mut Command) -> Outcome<Cost> {
    let before = cpu_of_children()?;
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let wall = begin.elapsed();
    if !output.status.success() {
        let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        return Err(format!("{command:?} ended with {}: {words}", output.status).into());
    }
    Ok(Cost { wall, cpu: cpu_of_children()?.saturating_sub(before) })
}

/// The processor time of all children that have been waited for, and of theirs.
fn cpu_of_children() -> Outcome<Duration> {
    /// What Linux tells programs, whatever it counts in.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    // The 16th and 17th field of the line; the name in parentheses is the second.
    let ticks: Vec<u64> = fields.skip(13).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(TICK * u32::try_from(ticks.iter().sum::<u64>())?)
}

/// The middle one.
pub fn median<T: Ord + Copy>(values: impl IntoIterator<Item = T>) -> T {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort();
    values[values.len() / 2]
}

/// Median of the wall times.
pub fn wall(costs: &[Cost]) -> Duration {
    median(costs.iter().map(|c| c.wall))
}

/// Median of the processor times.
pub fn cpu(costs: &[Cost]) -> Duration {
    median(costs.iter().map(|c| c.cpu))
}

/// The median of the rounds' ratios: each round is compared with its own floor, measured beside it.
pub fn ratio(measured: &[Duration], floor: &[Duration]) -> f64 {
    let parts = measured.iter().zip(floor).map(|(m, f)| m.as_secs_f64() / f.as_secs_f64().max(1e-9));
    let mut ratios: Vec<f64> = parts.collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Milliseconds, for people.
pub fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
