//! agentrun runs AI coding agents the way a bank runs payments: it knows how far a run got, never does the same thing
//! twice, never loses what was done, and never spends past its budget.
//!
//! # The map
//!
//! A pure core decides, a thin shell acts. Data flows one way: intent down, facts up, each fact committed together with the
//! audit event that tells of it. A layer may use only what stands below it here; a test reads the edges.
//!
//! | layer | folder | what | may use |
//! | --- | --- | --- | --- |
//! | 0 | [`domain`] | pure values and decisions | nothing of ours |
//! | 0 | [`failpoints`] | named moments at which a test can end the program; empty in every other build | nothing of ours |
//! | 0 | [`yaml`] | the only place that names YAML crates | nothing of ours |
//! | 1 | [`config`] | policy, task and prompt files as values | domain, yaml |
//! | 1 | [`store`] | the durable record: whole transactions, each with its audit events | failpoints, domain |
//! | 1 | [`git`] | the user's repository and the copy that a run works in, through libgit2 | failpoints, domain |
//! | 1 | [`process`] | child processes: started, read, stopped, cleaned up after | failpoints, domain |
//! | 1 | [`artifacts`] | the files of agentrun's own | failpoints, domain, yaml |
//! | 1 | [`report`] | views to text, pure | domain |
//! | 2 | [`adapters`] | how something is done outside and asked about: one file per channel | process, domain |
//! | 2 | [`agents`] | one file per agent: its command, its stream | domain, `process::spec` |
//! | 3 | [`engine`] | the shell that acts | adapters, agents, process, store, git, artifacts, report, failpoints, domain |
//! | 4 | [`ops`] | one function per command | everything but the command line |
//! | 5 | [`cli`] | arguments in, words out | ops, engine's observer, report, domain |
//!
//! # Files on disk
//!
//! | file | written by | read by |
//! | --- | --- | --- |
//! | `automation-policy.yml`, `policies/`, `tasks/`, `prompts/` | the user, `ops::init` | [`config`] |
//! | `.ai-runs/state/agentrun.db` | [`store`] alone | [`store`] alone |
//! | `.ai-runs/state/reserve` | [`artifacts`] | nobody: it is room for the last record on a full disk |
//! | `.ai-runs/<run>/` | [`engine`] through [`artifacts`], children through [`process`] | [`ops`], [`artifacts`] |
//! | `.ai-runs/work/<run>/` | [`git`], the run's own children | [`git`] |
//! | `refs/agentrun/<run>/`, `refs/heads/agentrun/<run>` | [`git`] | [`git`] |

pub mod adapters;
pub mod agents;
pub mod artifacts;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
pub mod failpoints;
pub mod git;
pub mod ops;
pub mod process;
pub mod report;
pub mod store;
pub mod yaml;
