//! The room with real repositories, made by the real `git`.

mod glance;
mod patch;
mod refs;
mod safety;
mod state;
mod unsupported;
mod workspace;
mod world;
