//! Every interleaving of two workers on one run, explored: one of them is stopped past its lease, one dies, an agent is
//! sent back once, a signal and a cancel come whenever they like. Which moves exist is asked of the program's own tables
//! and decisions; what is added here is only who moves when. Without a database: `tests/simulation` has that.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests; the lints know test functions only")]

mod laws;
mod moves;
mod search;
mod state;
mod task;

use moves::{Planted, World};
use search::explore;
use state::{Left, State};

/// As often as fate strikes here: one worker is stopped, one dies.
const FATE: Left = Left { pauses: 1, crashes: 1, signals: 0, cancels: 0 };

/// Explores everything; a law that breaks, or a state from which no worker can bring the run to rest, fails the test.
fn all_is_well(left: Left, at_least: usize) {
    let found = explore(&World::new(Planted::Nothing), State::first(left)).unwrap_or_else(|broken| panic!("{broken}"));
    let (states, transitions, at_rest) = (found.states.len(), found.transitions, found.at_rest);
    println!("{states} states, {transitions} transitions, {at_rest} states at rest, longest way {}", found.depth);
    let stuck = found.cannot_rest();
    assert!(stuck.is_empty(), "R-R6: {} states lead nowhere; the first:\n{}", stuck.len(), found.way_to(stuck[0]));
    assert!(states >= at_least, "only {states} states: the model has shrunk");
    let reached = |what: fn(&State) -> bool| found.states.iter().any(what);
    assert!(reached(|s| s.steps[task::AGENT].runs > 2), "an agent that failed works again, and is sent back");
    assert!(reached(|s| s.fence == 4), "a run is taken over in its last attempt");
}

#[test]
fn i4_i6_i7_i9_r_r6_r_r7_hold_in_every_state_with_a_cancel() {
    all_is_well(Left { cancels: 1, ..FATE }, 100_000);
}

#[test]
fn i4_i6_i7_i9_r_r6_r_r7_hold_in_every_state_with_a_signal() {
    all_is_well(Left { signals: 1, ..FATE }, 100_000);
}

#[test]
#[ignore = "half a minute of processor time and 480 MiB: for the night"]
fn i4_i6_i7_i9_r_r6_r_r7_hold_in_every_state_with_both() {
    all_is_well(Left { signals: 1, cancels: 1, ..FATE }, 1_000_000);
}

/// A model that finds nothing when something is wrong shows nothing: each of these must be found.
#[test]
fn planted_faults_are_found() {
    for (planted, law) in [
        (Planted::NoFence, "R-R7"),
        (Planted::LiveLeaseTaken, "R-R6"),
        (Planted::FailureUncounted, "R-R4"),
        (Planted::UsageForgotten, "R-R4"),
        (Planted::RetryWithoutEnd, "R-R3"),
        (Planted::DoneIsRepeated, "I7"),
        (Planted::FinalIsReopened, "I6"),
    ] {
        let broken = explore(&World::new(planted), State::first(FATE)).map(|found| found.states.len());
        let broken = broken.err().unwrap_or_else(|| panic!("{planted:?} was not found"));
        assert!(broken.starts_with(law), "{planted:?} was taken for something else: {broken}");
    }
}

/// Found by this model: the holder of the last attempt dies, `resume` refuses because attempts are used up, and the run
/// stays RUNNING for ever.
#[test]
fn r_r3_a_crash_in_the_last_attempt_must_not_be_refused() {
    let found = explore(&World::new(Planted::LastCrashRefused), State::first(FATE)).unwrap();
    assert!(!found.cannot_rest().is_empty());
}
