//! One file per command. Each turns its arguments into options, calls one function of [`crate::ops`], and says the answer.

pub mod action;
pub mod answer;
pub mod apply;
pub mod approval;
pub mod approve;
pub mod artifact;
pub mod audit;
pub mod cancel;
pub mod completions;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod fingerprint;
pub mod gc;
pub mod init;
pub mod logs;
pub mod man;
pub mod policy;
pub mod reconcile;
pub mod replay_agent;
pub mod request;
pub mod resume;
pub mod show;
pub mod start;
pub mod status;
pub mod task;
