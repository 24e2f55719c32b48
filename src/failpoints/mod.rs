//! Named moments of the program at which a test can end it, put it to sleep or make it fail. They exist under the feature
//! `failpoints` alone; without it every function here is empty and no name of a point is in the program.
//!
//! `AGENTRUN_FAIL=<point>:<action>@<n>` acts when a point is reached for the n-th time. A point is `<when>/<what>`:
//!
//! | point | reached |
//! | --- | --- |
//! | `before/<event>`, `after/<event>` | around a commit that records that event (`before/step.moved`) |
//! | `before/unlogged`, `after/unlogged` | around a commit without an event |
//! | `after/heartbeat` | a holder's sign of life is on disk, and nobody knows yet |
//! | `before/file`, `after/file` | around the rename that makes a kept file visible under its name |
//! | `after/spawn` | a child runs, and nothing says so yet |
//! | `before/ref`, `after/ref` | around a change of a ref in the user's repository |
//! | `before/send`, `after/send` | around the call by which an effect is sent |
//! | `after/look` | a `resume` has seen that the run may go on, and decides how |
//! | `before/restore`, `after/restore` | around the rebuilding of a working copy |
//!
//! `*` is every point. Actions: `kill` (SIGKILL to itself), `stop` (SIGSTOP to itself), `pause` (this thread goes no further),
//! `err:EIO`, `err:ENOSPC` (a commit or a file fails; a commit that fails `after` has happened all the same). With
//! `AGENTRUN_FAIL_TRACE=<file>` every point that is reached is written there, one a line: so a harness learns them all.

/// When a point is reached: before or after what it is named after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It has not happened yet.
    Before,
    /// It has happened, and nobody knows yet.
    After,
}

#[cfg(feature = "failpoints")]
mod armed;
#[cfg(feature = "failpoints")]
pub use armed::{reached, reached_any};

/// A point is reached. An error is one that the test asked for.
#[cfg(not(feature = "failpoints"))]
pub fn reached(_when: When, _what: &str) -> std::io::Result<()> {
    Ok(())
}

/// A point with several names is reached: a commit of several events.
#[cfg(not(feature = "failpoints"))]
pub fn reached_any<'a>(_when: When, _names: impl IntoIterator<Item = &'a str>) -> std::io::Result<()> {
    Ok(())
}
