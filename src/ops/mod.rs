//! LAYER 4: one function per command. Each gathers what it needs, calls the engine or the store, and answers a value.
//! Nothing here knows how the answer is shown, and nothing decides what the domain can decide.

pub mod actions;
pub mod allowance;
pub mod apply;
pub mod approval;
pub mod artifact;
pub mod audit;
pub mod calling;
pub mod cancel;
pub mod carry;
pub mod compare;
pub mod detach;
pub mod doctor;
pub mod error;
pub mod find;
pub mod fingerprint;
pub mod follow;
pub mod gc;
pub mod given;
pub mod init;
pub mod inside;
pub mod logs;
pub mod mcp;
pub mod on_end;
pub mod place;
pub mod policy;
pub mod queue;
pub mod reconcile;
pub mod recover;
pub mod replay;
pub mod request;
pub mod resume;
pub mod rolled_back;
pub mod show;
pub mod start;
pub mod status;
