//! LAYER 0: pure values and decisions. No clock, no disk, no database, no process: everything a decision needs is an
//! argument, everything it finds is its answer.
//!
//! # Words
//!
//! - **task**: what is to be done. **run**: one execution of a task for one fingerprint. **attempt**: one try of a run.
//!   **step**: a stage of a run. **execution**: one time that a step was carried out.
//! - **agent**: the coding agent that is started as a child; never agentrun itself.
//! - **workspace**: the working copy that a run works in. **snapshot**: its contents as a commit. **checkpoint**: what is
//!   recorded with a succeeded step. **manifest**: the file from which a person or program sees where a run can go on.
//! - **artifact**: a file that a run made and that is kept with its hash.
//! - **lease**: the right of one process to work on a run, for a time. **fence**: the number of that right; it grows.
//! - **breaker**: what keeps calls from a provider that fails or refuses. **turn**: a place in a queue, waiting or taken.
//! - **policy**, **contract**, **approval**, **operation**: rules, what a provider guarantees, a person's agreement, one
//!   intended side effect.

pub mod action;
pub mod agent_event;
pub mod artifact;
pub mod breaker;
pub mod budget;
pub mod change;
pub mod delivery;
pub mod event;
pub mod failure;
pub mod hash;
pub mod ids;
pub mod lease;
pub mod machine;
pub mod manifest;
pub mod message;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod quantity;
pub mod record;
pub mod run;
#[cfg(test)]
pub(crate) mod sample;
pub mod step;
pub mod task;
pub mod template;
pub mod text;
pub mod turn;
