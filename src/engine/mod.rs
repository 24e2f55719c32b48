//! LAYER 3: the shell that acts. It gathers facts, asks the domain what to do, does exactly that, and commits what came of
//! it before anything else happens.
//!
//! One engine thread per run owns the writing connection. Everything it must react to (output, exits, signals, a lost
//! lease) reaches it as a message through one inbox; so there is one place where a run can change, and no lock.
//!
//! - [`host`]: what a run needs of the machine it runs on
//! - [`held`]: the record of a run that this process holds, and the one way to write it
//! - [`facts`]: what makes a run this run, gathered before it exists
//! - [`run`]: attempts until the run rests; [`attempt`]: one of them, step by step; [`rest`]: how one comes to rest
//! - [`action`]: effects on the outside, from the wish to the proof
//! - [`steps`]: how each kind of step is carried out; [`clocks`] and [`meter`]: what stops one
//! - [`workspace`]: the working copy before, between and after steps
//! - [`last_word`]: what is still done when the record itself fails
//! - [`guard`]: the user's git folder over the run's life
//! - [`orphans`] and [`recover`]: what an earlier holder left; [`validate`]: whether going on is safe
//! - [`heartbeat`]: the lease; [`token`]: the secret of an attempt; [`kept`]: artifacts; [`closing`]: reports and the manifest

pub mod action;
pub mod attempt;
pub mod clocks;
pub mod closing;
pub mod error;
pub mod facts;
pub mod guard;
pub mod heartbeat;
pub mod held;
pub mod host;
pub mod keep;
pub mod kept;
pub mod last_word;
pub mod meter;
pub mod observer;
pub mod orphans;
pub mod recover;
pub mod rest;
pub mod run;
pub mod steps;
pub mod token;
pub mod turn;
pub mod validate;
pub mod workspace;
