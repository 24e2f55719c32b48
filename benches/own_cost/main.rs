//! What agentrun costs by itself, against what the same work costs without it, measured in the same run: `cargo bench`.
//!
//! Every figure is the median of five; a measurement and its floor take turns, so that a noisy machine disturbs both. What
//! the figures mean stands in `docs/performance.md`. Names as arguments choose measurements: `cargo bench -- steps status`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench talks to whoever called it")]

mod floor;
mod measure;
mod memory;
mod resume;
mod startup;
mod steps;
mod table;
mod tree;
mod world;

use std::error::Error;

/// Whatever went wrong ends the measurement: there is nobody to handle it.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// A measurement by its name.
type Measurement = (&'static str, fn() -> Outcome<Vec<table::Row>>);

const MEASUREMENTS: [Measurement; 6] = [
    ("steps", steps::measure),
    ("resume", resume::measure),
    ("status", startup::status),
    ("version", startup::version),
    ("memory", memory::measure),
    ("tree", tree::measure),
];

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        // The bench calls itself as the process that it measures against, and as the step that tells when it began.
        ["floor", "steps", folder, count] => return floor::steps(folder.as_ref(), count.parse()?),
        ["stamp", file] => return resume::stamp(file.as_ref()),
        _ => {}
    }
    let mut rows = Vec::new();
    for (name, measure) in MEASUREMENTS {
        if words.is_empty() || words.contains(&name) {
            eprintln!("measuring {name} …");
            rows.extend(measure()?);
        }
    }
    table::print(&rows);
    Ok(())
}
