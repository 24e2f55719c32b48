//! agentrun runs AI coding agents the way a bank runs payments: it knows how far a run got, never does the same thing
//! twice, never loses what was done, and never spends past its budget.
//!
//! # The map
//!
//! | layer | folder | what |
//! | --- | --- | --- |
//! | 0 | [`domain`] | pure values and decisions |
//! | 1 | [`git`] | the user's repository and the copy that a run works in, through libgit2 |
//! | 1 | [`store`] | the durable record: whole transactions, each with its audit events |

pub mod agents;
pub mod artifacts;
pub mod config;
pub mod domain;
pub mod git;
pub mod process;
pub mod report;
pub mod yaml;
pub mod store;
