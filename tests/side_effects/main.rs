//! Side effects, counted on the ledger of the other side and never on the program's own words: the six failure tests that
//! decide, and the control.
#![cfg(feature = "test-fakes")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests; the lint knows test functions only")]

mod bank;
mod deciding;
mod deploy;
mod kills;
mod objects;
mod orders;
#[path = "../provider/mod.rs"]
mod provider;
mod rivals;
mod settle;
mod shop;
#[allow(dead_code, reason = "shared with the whole runs; a part is used here")]
#[path = "../whole_runs/world.rs"]
mod world;
