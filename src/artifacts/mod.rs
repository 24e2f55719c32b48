//! LAYER 1: the files of agentrun's own: the state folder, the folder of each run, what is kept of a working copy. Every
//! file that is not the database is written here; the database is opened by the store alone, never by anything here (T2).
//!
//! | file | idea |
//! | --- | --- |
//! | [`home`] | the state folder: whose it is, who may look |
//! | [`file_system`] | whether the records may lie there |
//! | [`run_dir`] | where everything of one run lies |
//! | [`atomic`] | a file is there whole or not at all |
//! | [`beneath`] | opening what an agent could have swapped |
//! | [`collect`] | keeping what a step made |
//! | [`digest`] | is it still what was recorded |
//! | [`manifest_file`] | `manifest.yml` on disk |
//! | [`transcript`] | reading logs without obeying them |

pub mod atomic;
pub mod beneath;
pub mod collect;
pub mod digest;
mod error;
pub mod file_system;
pub mod home;
pub mod manifest_file;
pub mod run_dir;
pub mod transcript;

pub use error::ArtifactError;
