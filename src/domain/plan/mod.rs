//! "What now?" as plain functions over the record: what a start does, which step comes next, whether going on is safe,
//! what follows a failure, what a state means. Each answers with its reasons, none of them acts.

pub mod action_flow;
pub mod after_failure;
pub mod meaning;
pub mod pipeline;
pub mod reconcile;
pub mod resume;
pub mod start;
pub mod verdict;
