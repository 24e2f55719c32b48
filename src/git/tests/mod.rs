//! The room with real repositories, made by the real `git`.

mod patch;
mod refs;
mod safety;
mod state;
mod unsupported;
mod workspace;
mod world;
