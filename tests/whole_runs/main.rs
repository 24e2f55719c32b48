//! Whole runs: the real program in a hermetic world. What is looked at is what a user sees: exit codes, what it says, its
//! JSON, the repository, and the processes that are left.
#![cfg(feature = "test-fakes")]
#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows test functions only")]

mod approvals;
mod budgets;
mod clean_base;
mod codex_runs;
mod commands;
mod crash;
mod destruction;
mod field_reports;
mod inside;
mod kill_points;
mod leases;
mod ledger;
mod main_job;
mod many_runs;
mod mcp;
mod outcome;
mod policy;
mod processes;
mod providers;
mod start_again;
mod status;
mod steps;
mod tampering;
mod timeouts;
mod validation;
mod workspace;
mod world;
