//! The changes between two commits, as a patch that `git apply` takes and as a list. Renames are not guessed: a patch
//! that says "deleted here, added there" applies everywhere.

use git2::{Delta, Diff, DiffFormat, DiffOptions, Patch};

use super::error::{GitError, Result};
use super::paths;
use super::repo::Repo;
use super::state::path_of;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Add,
    /// Its contents or its mode changed.
    Modify,
    /// It is gone.
    Delete,
    /// It became something else: a file a link, or the other way round.
    Type,
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the root, with `/`.
    pub path: String,
    /// What happened.
    pub kind: ChangeKind,
    /// Lines that came.
    pub added: usize,
    /// Lines that went.
    pub removed: usize,
    /// True for contents that are no text; such have no lines.
    pub binary: bool,
}

impl Repo {
    /// What leads from one commit to the other, for `git apply`: binary files in full, links, modes, odd names.
    pub fn patch(&self, from: &str, to: &str) -> Result<Vec<u8>> {
        let mut options = DiffOptions::new();
        // Full names of the objects: without them `git apply --3way` cannot find what a patch was made against.
        options.show_binary(true).id_abbrev(40);
        let diff = self.diff(from, to, &mut options)?;
        let mut patch = Vec::new();
        diff.print(DiffFormat::Patch, |_, _, line| {
            if let '+' | '-' | ' ' = line.origin() {
                patch.push(line.origin() as u8);
            }
            patch.extend_from_slice(line.content());
            true
        })
        .map_err(GitError::git("making a patch"))?;
        Ok(patch)
    }

    /// The files that differ between two commits, sorted by path.
    pub fn changes(&self, from: &str, to: &str) -> Result<Vec<FileChange>> {
        let mut options = DiffOptions::new();
        options.include_typechange(true).context_lines(0);
        let diff = self.diff(from, to, &mut options)?;
        let mut changes = Vec::with_capacity(diff.deltas().len());
        for at in 0..diff.deltas().len() {
            let Some(delta) = diff.get_delta(at) else { continue };
            let kind = match delta.status() {
                Delta::Added => ChangeKind::Add,
                Delta::Deleted => ChangeKind::Delete,
                Delta::Typechange => ChangeKind::Type,
                _ => ChangeKind::Modify,
            };
            let patch = Patch::from_diff(&diff, at).map_err(GitError::git("comparing a file"))?;
            let lines = patch.as_ref().map(Patch::line_stats).transpose().map_err(GitError::git("comparing a file"))?;
            let (_, added, removed) = lines.unwrap_or_default();
            // Only after its contents were compared does libgit2 know whether they are text.
            let binary = patch.as_ref().is_none_or(|patch| patch.delta().flags().is_binary());
            let name = paths::text(path_of(&delta).unwrap_or_default());
            changes.push(FileChange { path: name, kind, added, removed, binary });
        }
        Ok(changes)
    }

    fn diff(&self, from: &str, to: &str, options: &mut DiffOptions) -> Result<Diff<'_>> {
        let (from, to) = (self.tree(from)?, self.tree(to)?);
        let diff = self.inner()?.diff_tree_to_tree(Some(&from), Some(&to), Some(options));
        diff.map_err(GitError::git("comparing two commits"))
    }
}
