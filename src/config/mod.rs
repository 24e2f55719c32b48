//! LAYER 1: what people write (policy, contracts, tasks, prompts, environment) becomes values of the domain, or an error that names
//! file, line and column. A file that exists and is broken is never replaced by a default (F90). Nothing here decides
//! anything about a run, and files come through a [`Source`], so that a policy can also be read from a commit.

pub mod cases;
pub mod contract;
pub mod env_vars;
pub mod policy;
pub mod prompt;
pub mod source;
pub mod task;

mod check;
mod error;
mod fields;

pub use cases::{case_files, load_cases};
pub use contract::{load_contract, load_contracts};
pub use error::ConfigError;
pub use policy::{LoadedPolicy, load_policy};
pub use prompt::load_prompt;
pub use source::{DiskSource, Source};
pub use task::{FoundTask, Overrides, TaskContext, find_task, load_task, task_from_prompt};
