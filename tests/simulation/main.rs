//! A simulated machine around the real store and the engine's own decisions: workers are killed, stopped and started beside
//! each other, commits fail, clocks jump, the machine sleeps and boots; a seed decides what happens next. Every seed is played
//! twice, and both must be the same to the byte.
//!
//! - `fate` picks what happens; `world` is the machine and the truth about it; `laws` holds the record against both
//! - `worker`, `holder`, `work` are the shell of the program around its decisions; `children` what it starts
//! - `planted` are faults on purpose: each must be found
//!
//! `AGENTRUN_SIM_SCHEDULES` says how many seeds, `AGENTRUN_SIM_FIRST` where to begin, `AGENTRUN_SIM_SEED` plays one and shows it.

#![cfg(feature = "test-fakes")]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests; the lints know test functions only")]

mod chance;
mod children;
mod clock;
mod disk;
mod fate;
mod holder;
mod laws;
mod planted;
mod task;
mod work;
mod worker;
mod world;

use std::time::Instant;

use disk::Disk;
use planted::Planted;
use world::{Counts, World};

/// As many as fit into some forty seconds of one core, without optimisation.
const SCHEDULES: u64 = 2_000;
/// A database is used for so many schedules, then checked whole and thrown away.
const SHARED_BY: u64 = 200;
/// A planted fault must be found within so many.
const WITHIN: u64 = 400;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
}

/// Plays one seed: what happened, how often what, and the law that broke.
fn play(disk: &mut Disk, seed: u64, planted: Planted) -> (String, Counts, Result<(), String>) {
    let mut world = World::new(disk, seed, planted);
    world.play();
    let law = laws::check(&mut world);
    world.close();
    (world.trace, world.counts, law)
}

/// Says how to see a failure again, however it came about.
struct Playing(u64);

impl Drop for Playing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "AGENTRUN_SIM_SEED={seed} cargo test --features test-fakes --test simulation schedule -- --nocapture"
            );
        }
    }
}

#[test]
fn i1_i4_i5_i6_i7_i8_i9_r_r3_r_r4_r_r6_r_r7_r_s3_hold_in_every_schedule() {
    let alone = setting("AGENTRUN_SIM_SEED");
    let first = alone.or(setting("AGENTRUN_SIM_FIRST")).unwrap_or(1);
    let count = if alone.is_some() { 1 } else { setting("AGENTRUN_SIM_SCHEDULES").unwrap_or(SCHEDULES) };
    let began = Instant::now();
    let (mut all, mut seed) = (Counts::default(), first);
    while seed < first + count {
        let (mut one, mut two) = (Disk::new(), Disk::new());
        for seed in seed..(seed + SHARED_BY).min(first + count) {
            let _playing = Playing(seed);
            let (trace, counts, law) = play(&mut one, seed, Planted::Nothing);
            let (again, ..) = play(&mut two, seed, Planted::Nothing);
            if alone.is_some() {
                println!("{trace}");
            }
            let differs = trace.lines().zip(again.lines()).find(|(a, b)| a != b);
            assert!(trace == again, "a seed is one history, but: {differs:?}");
            assert_eq!(law, Ok(()), "seed {seed}");
            all.add(&counts);
        }
        one.check();
        seed += SHARED_BY;
    }
    let took = began.elapsed();
    println!("{count} schedules from seed {first}, each twice, in {took:.1?}: {all}");
}

/// A harness that stays green with a fault in it is broken itself.
#[test]
fn planted_faults_are_found() {
    for (planted, laws) in planted::ALL {
        let mut disk = Disk::new();
        let found = (1..=WITHIN).find_map(|seed| play(&mut disk, seed, *planted).2.err().map(|broken| (seed, broken)));
        let (seed, broken) = found.unwrap_or_else(|| panic!("{planted:?} was not found within {WITHIN} schedules"));
        println!("{planted:?}: schedule {seed}: {broken}");
        assert!(laws.iter().any(|law| broken.starts_with(law)), "{planted:?} was taken for something else: {broken}");
    }
}
