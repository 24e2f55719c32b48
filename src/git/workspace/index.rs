//! Compares the private index with the disk, as `git add --all` would, but without ever reading the copy's own `.git` for
//! anything that matters. It changes no working file.

use std::collections::HashSet;
use std::fs;

use git2::{Delta, Index, IndexEntry, Oid, Repository, Tree};
use rustix::fs::FileType;

use super::{Kind, Workspace};
use crate::git::beneath::Beneath;
use crate::git::error::{GitError, Result};
use crate::git::paths;
use crate::git::state::{is_masked, options, path_of};

/// Above this a file is no source: reading it would take minutes, and a sparse one has no contents to keep.
const MAX_FILE_BYTES: u64 = 256 << 20;

const GITLINK: u32 = 0o160_000;

/// The index after new and changed files were taken in, and what is missing.
pub(super) struct Survey {
    /// Has the disk's contents; deleted files are still in it.
    pub(super) index: Index,
    /// Tracked files that are not on disk, and what they held.
    pub(super) deleted: Vec<(Vec<u8>, Oid)>,
    /// Contents that came or changed: a deleted file whose contents are here was moved.
    pub(super) came: HashSet<Oid>,
    /// Entries of the index that should be on disk.
    tracked: usize,
    /// Folders that are repositories of their own.
    pub(super) nested: Vec<Vec<u8>>,
    /// What could not be taken in.
    pub(super) warnings: Vec<String>,
}

impl Survey {
    /// Some of the deleted files, where they are so many that it looks like a tree half removed, not like work (FR-H28):
    /// the number gone and the number tracked. `counts` says which deletions matter.
    pub(super) fn mass_deletion(&self, counts: impl Fn(&[u8]) -> bool) -> Option<(usize, usize)> {
        let is_gone = |(path, id): &&(Vec<u8>, Oid)| !self.came.contains(id) && counts(path);
        let gone = self.deleted.iter().filter(is_gone).count();
        is_mass(gone, self.tracked).then_some((gone, self.tracked))
    }

    /// Takes the deletions into the index.
    pub(super) fn delete(&mut self) -> Result<()> {
        for (path, _) in &self.deleted {
            self.index.remove_path(paths::path(path)).map_err(GitError::git("removing a file from the index"))?;
        }
        Ok(())
    }
}

/// More than half gone, and not just a few files; or every one.
fn is_mass(gone: usize, tracked: usize) -> bool {
    const FEW: usize = 5;
    (gone >= FEW && gone * 2 > tracked) || (gone >= 2 && gone == tracked)
}

/// Opens the private index and makes it the repository's. An empty or damaged one begins from `seed`: else a file that is
/// tracked and ignored at once would look as if it had been removed.
pub(super) fn load(workspace: &Workspace, repository: &Repository, seed: Option<&Tree<'_>>) -> Result<Index> {
    const DOING: &str = "reading the run's index";
    let mut index = match Index::open(&workspace.index) {
        Ok(index) => index,
        Err(error) if workspace.kind == Kind::Isolated && error.class() == git2::ErrorClass::Index => {
            super::remove_file(&workspace.index)?;
            Index::open(&workspace.index).map_err(GitError::git(DOING))?
        }
        Err(error) => return Err(GitError::from_git(DOING, &error)),
    };
    repository.set_index(&mut index).map_err(GitError::git(DOING))?;
    if let Some(tree) = seed.filter(|_| index.is_empty()) {
        index.read_tree(tree).map_err(GitError::git(DOING))?;
    }
    Ok(index)
}

/// Brings the private index up to the disk.
pub(super) fn survey(workspace: &Workspace, repository: &Repository, seed: &Tree<'_>) -> Result<Survey> {
    let index = load(workspace, repository, Some(seed))?;
    let beneath = Beneath::open(&workspace.dir).map_err(|_| GitError::WorkspaceLost { path: workspace.dir.clone() })?;
    let tracked = index.iter().filter(|entry| entry.mode != GITLINK && !is_masked(entry)).count();
    let mut survey =
        Survey { index, deleted: Vec::new(), came: HashSet::new(), tracked, nested: Vec::new(), warnings: Vec::new() };
    let mut come = Vec::new();
    {
        let mut options = options();
        // Remembers what was found unchanged, so that the next comparison reads no file.
        options.update_index(true);
        let diff = repository.diff_index_to_workdir(Some(&survey.index), Some(&mut options));
        for delta in diff.map_err(GitError::git("comparing the working copy"))?.deltas() {
            let Some(path) = path_of(&delta) else { continue };
            let entry = survey.index.get_path(paths::path(path), 0);
            if entry.as_ref().is_some_and(|entry| entry.mode == GITLINK) {
                continue;
            }
            match (delta.status(), entry) {
                (Delta::Deleted, Some(entry)) if is_masked(&entry) => {}
                (Delta::Deleted, Some(entry)) => survey.deleted.push((path.to_vec(), entry.id)),
                (Delta::Unreadable, _) => survey.warnings.push(format!("`{}` cannot be read", paths::text(path))),
                (Delta::Ignored | Delta::Unmodified, _) => {}
                _ => come.push(path.to_vec()),
            }
        }
    }
    come.extend(added_by_the_agent(workspace, &survey.index));
    for path in expand_nested(&beneath, come, &mut survey)? {
        take_in(&beneath, &mut survey, &path)?;
    }
    note_submodules(&beneath, &mut survey);
    Ok(survey)
}

/// True when the disk has lost most of what the private index knows: to be seen before anything is done with it.
pub(super) fn is_mostly_gone(workspace: &Workspace) -> Result<bool> {
    let repository = workspace.store()?;
    let index = load(workspace, &repository, None)?;
    let beneath = Beneath::open(&workspace.dir).map_err(GitError::io(&workspace.dir))?;
    let (mut tracked, mut gone) = (0, 0);
    for entry in index.iter().filter(|entry| entry.mode != GITLINK && !is_masked(entry)) {
        tracked += 1;
        gone += usize::from(beneath.find(&entry.path).map_err(GitError::io(&workspace.dir))?.is_none());
    }
    if !is_mass(gone, tracked) {
        return Ok(false);
    }
    // It looks so, but the files may only have been moved: a full comparison tells.
    let seed = repository.find_tree(empty_tree(&repository)?).map_err(GitError::git("reading the empty tree"))?;
    Ok(survey(workspace, &repository, &seed)?.mass_deletion(|_| true).is_some())
}

fn empty_tree(repository: &Repository) -> Result<Oid> {
    let made = repository.treebuilder(None).and_then(|builder| builder.write());
    made.map_err(GitError::git("writing the empty tree"))
}

/// Paths that the agent added to the index of its copy although they are ignored: `git add --force` means them.
fn added_by_the_agent(workspace: &Workspace, index: &Index) -> Vec<Vec<u8>> {
    let theirs = workspace.dir.join(".git/index");
    let is_file = |path| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if workspace.kind == Kind::InPlace || !is_file(&theirs) {
        return Vec::new();
    }
    // Only names are taken from it. One that cannot be read has none.
    let Ok(theirs) = Index::open(&theirs) else { return Vec::new() };
    let is_new = |entry: &IndexEntry| entry.mode != GITLINK && index.get_path(paths::path(&entry.path), 0).is_none();
    theirs.iter().filter(is_new).map(|entry| entry.path).collect()
}

/// Puts the files of a repository inside the working copy in place of its folder: they are the agent's work as well.
fn expand_nested(beneath: &Beneath, come: Vec<Vec<u8>>, survey: &mut Survey) -> Result<Vec<Vec<u8>>> {
    let mut files = Vec::with_capacity(come.len());
    for path in come {
        let Some(folder) = path.strip_suffix(b"/") else {
            files.push(path);
            continue;
        };
        let name = paths::text(folder);
        survey.warnings.push(format!("`{name}` is a repository of its own; its files were taken without it"));
        survey.nested.push(folder.to_vec());
        beneath.files_below(folder, &mut files).map_err(GitError::io(beneath.path()))?;
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Takes one file into the index and its contents into the objects.
fn take_in(beneath: &Beneath, survey: &mut Survey, path: &[u8]) -> Result<()> {
    let name = || paths::text(path);
    let found = beneath.find(path).map_err(GitError::io(beneath.path().join(paths::path(path))))?;
    let Some(found) = found.filter(|found| matches!(found.kind, FileType::RegularFile | FileType::Symlink)) else {
        return Ok(());
    };
    if found.size > MAX_FILE_BYTES {
        survey.warnings.push(format!("`{}` is larger than {} MiB and was left out", name(), MAX_FILE_BYTES >> 20));
        return Ok(());
    }
    if let Err(error) = survey.index.add_path(paths::path(path)) {
        if error.class() == git2::ErrorClass::Os && error.code() != git2::ErrorCode::NotFound {
            return Err(GitError::from_git(&format!("keeping `{}`", name()), &error));
        }
        survey.warnings.push(format!("`{}` could not be kept: {}", name(), error.message()));
        return Ok(());
    }
    survey.came.extend(survey.index.get_path(paths::path(path), 0).map(|entry| entry.id));
    Ok(())
}

/// Says which submodules have files: what is done in those is not part of a snapshot.
fn note_submodules(beneath: &Beneath, survey: &mut Survey) {
    for entry in survey.index.iter().filter(|entry| entry.mode == GITLINK) {
        let mut files = Vec::new();
        if beneath.files_below(&entry.path, &mut files).is_ok() && !files.is_empty() {
            let path = paths::text(&entry.path);
            survey.warnings.push(format!("`{path}` is a submodule; changes in it are not part of the snapshot"));
        }
    }
}
