//! 200 short commands, one after the other, as one whole `agentrun start`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Outcome;
use crate::measure::{Cost, ROUNDS, cost, cpu, ms, ratio, wall};
use crate::table::Row;
use crate::world::{World, this_program};

const STEPS: u32 = 200;

/// Measures both kinds of workspace.
pub fn measure() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for workspace in ["isolated", "in-place"] {
        rows.extend(in_workspace(workspace)?);
    }
    Ok(rows)
}

fn in_workspace(workspace: &str) -> Outcome<Vec<Row>> {
    let world = World::new()?;
    world.write("tasks/many.yml", &task(workspace))?;
    world.commit()?;
    let (mut runs, mut floors) = (Vec::new(), Vec::new());
    // The first round fills the caches and does not count.
    for round in 0..=ROUNDS {
        let folder = world.beside(&format!("floor-{round}"));
        let folder = folder.to_string_lossy();
        let floor = cost(&mut world.command(this_program()?, &["floor", "steps", &folder, &STEPS.to_string()]))?;
        let run = cost(&mut world.agentrun(&["start", "many", "--new", "--quiet"]))?;
        if round > 0 {
            floors.push(floor);
            runs.push(run);
        }
    }
    let by = |costs: &[Cost], of: fn(&Cost) -> Duration| costs.iter().map(of).collect::<Vec<_>>();
    let row = |what: &str, of: fn(&Cost) -> Duration, shown: fn(&[Cost]) -> Duration, target: f64| Row {
        what: format!("{STEPS} command steps, {workspace}: {what}"),
        measured: ms(shown(&runs)),
        floor: ms(shown(&floors)),
        reached: ratio(&by(&runs, of), &by(&floors, of)),
        target,
        unit: "×",
    };
    Ok(vec![row("wall", |c| c.wall, wall, 1.1), row("CPU", |c| c.cpu, cpu, 1.3)])
}

fn task(workspace: &str) -> String {
    let mut text = format!("task: many\nworkspace: {workspace}\nsteps:\n");
    for step in 0..STEPS {
        let _ = writeln!(text, "  - {{ key: s{step}, kind: command, run: [/bin/true] }}");
    }
    text
}
