//! Where a set of changes writes, and whether something in a folder would lead those writes elsewhere. It writes nothing.

use std::collections::BTreeSet;

use git2::{Delta, Diff};
use rustix::fs::FileType;

use super::beneath::Beneath;
use super::error::{GitError, Result};
use super::paths;

/// Where a change writes and what it removes. libgit2 follows a symbolic link that stands where a folder should be, and so
/// would write outside (R-W5, measured); git refuses that, and so does this.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Files that are there afterwards.
    pub(super) written: BTreeSet<Vec<u8>>,
    /// Files that go, also those that come again as something else.
    pub(super) removed: BTreeSet<Vec<u8>>,
}

impl Ways {
    /// Of one difference.
    pub(super) fn of(diff: &Diff<'_>) -> Self {
        let mut ways = Self::default();
        ways.add(diff);
        ways
    }

    /// Takes another difference in.
    pub(super) fn add(&mut self, diff: &Diff<'_>) {
        for delta in diff.deltas() {
            let (old, new) = (delta.old_file().path_bytes(), delta.new_file().path_bytes());
            if delta.status() == Delta::Deleted {
                self.removed.extend(old.map(<[u8]>::to_vec));
            } else {
                self.written.extend(new.map(<[u8]>::to_vec));
            }
            if delta.status() == Delta::Renamed {
                self.removed.extend(old.map(<[u8]>::to_vec));
            }
        }
    }

    /// The paths that would be written through something that is no folder and stays.
    pub(super) fn blocked(&self, beneath: &Beneath) -> Result<Vec<String>> {
        let dir = beneath.path();
        let mut blocked = Vec::new();
        for path in &self.written {
            for end in path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end) {
                let above = &path[..end];
                let found = beneath.find(above).map_err(GitError::io(dir.join(paths::path(above))))?;
                let stands =
                    found.is_some_and(|found| found.kind != FileType::Directory) && !self.removed.contains(above);
                if stands || self.written.contains(above) {
                    blocked.push(paths::text(path));
                    break;
                }
            }
        }
        Ok(blocked)
    }
}
