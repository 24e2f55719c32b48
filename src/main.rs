//! The program: calls the command line and returns its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(agentrun::cli::run(std::env::args_os(), std::env::vars_os().collect()))
}
