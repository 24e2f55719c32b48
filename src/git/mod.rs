//! LAYER 1: git, through libgit2 alone and never through a git process. The user's repository is opened by its explicit
//! git folder with a configuration of our own, so nothing in any configuration, hook or attribute runs code or leads
//! elsewhere (R-W5); what an agent did to its copy's own `.git` is never trusted.
//!
//! - `discover`, `settings`, `repo`: finding the user's repository and opening it safely; plain questions to it.
//! - `state`, `glance`, `context`, `diff`: what is uncommitted, which files count, what changed.
//! - `refs`, `apply`, `first_commit`: what is written on the user's side, and nothing else is: pins, one branch,
//!   `agentrun apply`, and where there is no commit yet and the user asks for one, the first. `reclaim`: stale locks of these.
//! - `patch_dir`, `patch_text`, `ways`: a patch into a folder, and whether a change would be led out of one.
//! - `guard`, `config_text`: whether somebody changed what git would run.
//! - `workspace`: the copy that a run works in: made, snapshotted, put back, removed.
//! - `beneath`, `paths`, `error`: files below one folder, git's paths, what can go wrong.

mod apply;
mod beneath;
mod config_text;
mod context;
mod diff;
mod discover;
mod error;
mod first_commit;
mod glance;
mod guard;
mod patch_dir;
mod patch_text;
mod paths;
mod reclaim;
mod refs;
mod repo;
mod settings;
mod state;
mod ways;
mod workspace;

#[cfg(test)]
mod tests;

pub use context::{Overlay, TreeNotes};
pub use diff::{ChangeKind, FileChange};
pub use error::GitError;
pub use guard::{Change, GuardPrint, changes, tampering};
pub use patch_dir::apply_patch_to_dir;
pub use repo::{Head, Repo};
pub use settings::UserGit;
pub use state::WorktreeState;
pub use workspace::{Snapshot, Workspace};
