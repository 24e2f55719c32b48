//! How much memory agentrun holds while a run works: the highest resident size, as the kernel tells it.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Outcome;
use crate::measure::{ROUNDS, median};
use crate::table::Row;
use crate::world::{POLICY, World, quoted};

/// The scripted agent of the tests; it is built with the feature `test-fakes`.
const FAKE_AGENT: Option<&str> = option_env!("CARGO_BIN_EXE_fake-agent");

/// Measures a quiet run, and one whose agent prints 1 GiB.
pub fn measure() -> Outcome<Vec<Row>> {
    let quiet = "  - { key: wait, kind: command, run: [sleep, \"0.5\"] }\n";
    let mut rows = vec![row("a run works", quiet, POLICY)?];
    match FAKE_AGENT {
        Some(agent) => {
            let run = format!("[{}, \"flood:1073741824,ok\"]", quoted(agent.as_ref()));
            let policy = format!("version: \"1\"\nagents:\n  fake: {{ protocol: agentrun, run: {run} }}\n");
            let flood = "  - { key: agent, kind: agent, prompt: tasks/prompt.md, agent: fake }\n";
            rows.push(row("the agent prints 1 GiB", flood, &policy)?);
        }
        None => eprintln!("  without --features test-fakes there is no agent that prints 1 GiB"),
    }
    Ok(rows)
}

fn row(what: &str, steps: &str, policy: &str) -> Outcome<Row> {
    let mut peaks = Vec::new();
    for _ in 0..ROUNDS {
        let world = World::new()?;
        world.write("automation-policy.yml", policy)?;
        world.write("tasks/prompt.md", "---\nversion: \"1\"\n---\nWork.\n")?;
        world.write("tasks/work.yml", &format!("task: work\nsteps:\n{steps}"))?;
        world.commit()?;
        peaks.push(peak(&mut world.agentrun(&["start", "work", "--quiet"]))?);
    }
    let kib = median(peaks);
    let mib = f64::from(kib) / 1024.0;
    Ok(Row {
        what: format!("resident memory while {what}"),
        measured: format!("{mib:.1} MiB"),
        floor: String::new(),
        reached: mib,
        target: 12.0,
        unit: "MiB",
    })
}

/// Runs a command and answers the highest resident size that it had, in KiB. The kernel's figure only grows, so that the
/// last look at it is as good as the highest.
pub fn peak(command: &mut Command) -> Outcome<u32> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let file = format!("/proc/{}/status", child.id());
    let mut highest = 0;
    while child.try_wait()?.is_none() {
        let status = std::fs::read_to_string(&file).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        highest = highest.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?} ended with {}: {words}", output.status).into());
    }
    Ok(highest)
}
