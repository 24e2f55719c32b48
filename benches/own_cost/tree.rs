//! A repository of 50,000 files: what the context hash and the question whether the checkout is clean take, beside the
//! `git status` that answers only the second.

use std::time::Duration;

use crate::Outcome;
use crate::measure::{ROUNDS, cost, median, ms, ratio};
use crate::memory::peak;
use crate::table::Row;
use crate::world::World;

const FOLDERS: u32 = 500;
const FILES: u32 = 100;

/// Measures.
pub fn measure() -> Outcome<Vec<Row>> {
    let world = World::new()?;
    for folder in 0..FOLDERS {
        let path = format!("part-{}/sub-{folder}", folder % 20);
        std::fs::create_dir_all(world.root().join(&path))?;
        for file in 0..FILES {
            world.write(&format!("{path}/file-{file}.txt"), &format!("file {file} of folder {folder}\n"))?;
        }
    }
    let task = "task: tree\ncontext:\n  files: [\"**\"]\nsteps:\n  - { key: check, kind: command, run: [/bin/true] }\n";
    world.write("tasks/tree.yml", task)?;
    world.commit()?;
    // Git looks into files that are as young as its index; after this look it knows them.
    std::thread::sleep(Duration::from_millis(1_100));
    world.command("git", &["status"]).output()?;

    let (mut walls, mut floors, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let floor = cost(&mut world.command("git", &["status", "--porcelain"]))?.wall;
        let wall = cost(&mut world.agentrun(&["fingerprint", "tree"]))?.wall;
        if round > 0 {
            floors.push(floor);
            walls.push(wall);
            peaks.push(peak(&mut world.agentrun(&["fingerprint", "tree"]))?);
        }
    }
    let mib = f64::from(median(peaks)) / 1024.0;
    let what = format!("`fingerprint` with {} files", FOLDERS * FILES);
    Ok(vec![
        Row {
            what: format!("{what}: wall"),
            measured: ms(median(walls.iter().copied())),
            floor: format!("{} (git status)", ms(median(floors.iter().copied()))),
            reached: ratio(&walls, &floors),
            target: 1.5,
            unit: "×",
        },
        Row {
            what: format!("{what}: memory"),
            measured: format!("{mib:.1} MiB"),
            floor: String::new(),
            reached: mib,
            target: 40.0,
            unit: "MiB",
        },
    ])
}
