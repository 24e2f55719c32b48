//! Storage faults (F04–F21): the real program on disks that are full, read-only, failing, damaged, put back, or of the wrong
//! kind. Most of them are made by a shim below the C library (`faulty_disk`), which works wherever the tests can be built; a
//! real small disk is mounted where that is allowed.
#![cfg(feature = "test-fakes")]
#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows test functions only")]

#[path = "../faulty_disk/mod.rs"]
#[allow(dead_code, reason = "shared with the store's own tests, which use all of it")]
mod faulty_disk;
#[path = "../whole_runs/world.rs"]
#[allow(dead_code, reason = "shared with the whole runs, which use all of it")]
mod world;

mod damaged;
mod failing;
mod order;
mod places;
