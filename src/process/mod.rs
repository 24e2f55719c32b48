//! LAYER 1: child processes. One place starts them, one place waits for them, one place stops them.

pub mod spec;
