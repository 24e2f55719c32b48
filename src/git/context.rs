//! The files that count into the context hash, as they stand in a commit or, where that is meant, on disk (R-F2). It
//! hashes bytes and decides nothing about what counts.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository, Tree};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::FileType;

use super::beneath::Beneath;
use super::error::{GitError, Result};
use super::paths;
use super::repo::Repo;
use super::state::WorktreeState;
use crate::domain::hash::context::ContextFile;

/// Which version of a file counts.
#[derive(Debug, Clone, Copy)]
pub enum Overlay<'a> {
    /// The commit's.
    Commit,
    /// The one on disk for every uncommitted path, the commit's for the rest.
    Dirty(&'a WorktreeState),
}

/// What somebody who works with a commit's files should know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeNotes {
    /// Folders that are commits of another repository; they are said and not descended into.
    pub submodules: Vec<String>,
    /// Files that only point to their contents in an LFS store.
    pub lfs_pointers: Vec<String>,
}

impl Repo {
    /// The files that match one of the globs, sorted by path. `*` does not cross a `/`, `**` does.
    pub fn context_files(&self, commit: &str, globs: &[String], overlay: Overlay<'_>) -> Result<Vec<ContextFile>> {
        let wanted = Wanted::new(globs)?;
        let on_disk = match overlay {
            Overlay::Dirty(state) => self.on_disk(state, &|path| wanted.is_match(path))?,
            Overlay::Commit => BTreeMap::new(),
        };
        // A tree's own order is the order of its paths.
        let mut files = Vec::new();
        if !globs.is_empty() {
            let mut visit = |path: &[u8], entry: &git2::TreeEntry<'_>| {
                if wanted.is_match(path) && !on_disk.contains_key(path) {
                    let mode = u32::try_from(entry.filemode()).unwrap_or(0);
                    files.push(context_file(path, mode, entry.id().to_string()));
                }
                Ok(())
            };
            walk(self.inner()?, &self.tree(commit)?, &mut |folder| wanted.may_be_below(folder), &mut visit)?;
        }
        if !on_disk.is_empty() {
            files.extend(on_disk.into_values());
            files.sort();
        }
        Ok(files)
    }

    /// Every uncommitted file as it is on disk, sorted by path.
    pub fn dirty_files(&self, state: &WorktreeState) -> Result<Vec<ContextFile>> {
        Ok(self.on_disk(state, &|_| true)?.into_values().collect())
    }

    /// Submodules and LFS pointers of a commit. Looks into files only where an attribute says that LFS is in use.
    pub fn notes(&self, commit: &str) -> Result<TreeNotes> {
        /// A pointer is three short lines.
        const POINTER_MAX_BYTES: usize = 1024;
        let mut notes = TreeNotes::default();
        let mut attributes = Vec::new();
        let repository = self.inner()?;
        let tree = self.tree(commit)?;
        walk(repository, &tree, &mut |_| true, &mut |path, entry| {
            if entry.kind() == Some(ObjectType::Commit) {
                notes.submodules.push(paths::text(path));
            } else if entry.name_bytes() == b".gitattributes" {
                attributes.push(entry.id());
            }
            Ok(())
        })?;
        let uses_lfs = |id: &Oid| {
            let blob = repository.find_blob(*id);
            blob.is_ok_and(|blob| blob.content().windows(10).any(|window| window == b"filter=lfs"))
        };
        if !attributes.iter().any(uses_lfs) {
            return Ok(notes);
        }
        let odb = repository.odb().map_err(GitError::git("opening the objects"))?;
        walk(repository, &tree, &mut |_| true, &mut |path, entry| {
            let is_small = |(size, kind)| kind == ObjectType::Blob && size <= POINTER_MAX_BYTES;
            if odb.read_header(entry.id()).is_ok_and(is_small) {
                let blob = odb.read(entry.id()).map_err(GitError::git("reading a file"))?;
                if blob.data().starts_with(b"version https://git-lfs.github.com/spec/") {
                    notes.lfs_pointers.push(paths::text(path));
                }
            }
            Ok(())
        })?;
        Ok(notes)
    }

    /// The uncommitted files that `is_wanted`, as they are on disk.
    fn on_disk(
        &self,
        state: &WorktreeState,
        is_wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<BTreeMap<Vec<u8>, ContextFile>> {
        let beneath = Beneath::open(self.root()).map_err(GitError::io(self.root()))?;
        let mut files = BTreeMap::new();
        for path in expand(&beneath, state)? {
            if is_wanted(&path) {
                files.insert(path.clone(), file_on_disk(&beneath, &path)?);
            }
        }
        Ok(files)
    }
}

/// The uncommitted paths, with the files of untracked repositories in place of their folders.
pub(super) fn expand(beneath: &Beneath, state: &WorktreeState) -> Result<Vec<Vec<u8>>> {
    let mut paths = Vec::with_capacity(state.changed.len());
    for path in &state.changed {
        match path.strip_suffix(b"/") {
            Some(folder) => beneath.files_below(folder, &mut paths).map_err(GitError::io(beneath.path()))?,
            None => paths.push(path.clone()),
        }
    }
    Ok(paths)
}

fn file_on_disk(beneath: &Beneath, path: &[u8]) -> Result<ContextFile> {
    let at = || GitError::io(beneath.path().join(paths::path(path)));
    let mode = match beneath.find(path).map_err(at())? {
        Some(found) if found.kind == FileType::Symlink => 0o120_000,
        Some(found) if found.kind == FileType::RegularFile && found.executable => 0o100_755,
        Some(found) if found.kind == FileType::RegularFile => 0o100_644,
        _ => return Ok(context_file(path, 0, "deleted".to_owned())),
    };
    let bytes = beneath.read(path).map_err(at())?;
    let id = Oid::hash_object(ObjectType::Blob, &bytes).map_err(GitError::git("hashing a file"))?;
    Ok(context_file(path, mode, id.to_string()))
}

fn context_file(path: &[u8], mode: u32, blob: String) -> ContextFile {
    ContextFile { path: paths::text(path), mode: paths::mode_text(mode), blob }
}

/// The globs, and for each the folder that all its matches are below, so that the rest of a tree is not read.
struct Wanted {
    globs: GlobSet,
    folders: Vec<Vec<u8>>,
    /// The folders of globs such as `src/**`: all that is below them matches, which is known faster than by the glob.
    whole: Vec<Vec<u8>>,
}

impl Wanted {
    fn new(globs: &[String]) -> Result<Self> {
        let mut set = GlobSetBuilder::new();
        let refused =
            |error: globset::Error| GitError::Git { doing: "reading a glob".into(), message: error.to_string() };
        for glob in globs {
            set.add(GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build().map_err(refused)?);
        }
        let folders = globs.iter().map(|glob| literal_folder(glob)).collect();
        let is_whole = |glob: &&String| glob.as_bytes().strip_suffix(b"**") == Some(&literal_folder(glob));
        let whole = globs.iter().filter(is_whole).map(|glob| literal_folder(glob)).collect();
        Ok(Self { globs: set.build().map_err(refused)?, folders, whole })
    }

    fn is_match(&self, path: &[u8]) -> bool {
        self.whole.iter().any(|folder| path.starts_with(folder)) || self.globs.is_match(paths::path(path))
    }

    /// True when something below `folder` (with `/` behind) may match.
    fn may_be_below(&self, folder: &[u8]) -> bool {
        self.folders.iter().any(|literal| literal.starts_with(folder) || folder.starts_with(literal))
    }
}

/// The folders at the beginning of a glob that have no special character, with `/` behind.
fn literal_folder(glob: &str) -> Vec<u8> {
    let literal = glob.find(['*', '?', '[', '{', '\\']).map_or(glob, |end| &glob[..end]);
    literal.rfind('/').map_or(Vec::new(), |end| literal.as_bytes()[..=end].to_vec())
}

/// Whether a folder, given with `/` behind, is entered.
type Enter<'v> = dyn FnMut(&[u8]) -> bool + 'v;

/// What is done with each file of a tree.
type Visit<'v> = dyn FnMut(&[u8], &git2::TreeEntry<'_>) -> Result<()> + 'v;

/// Visits every entry of a tree that is no folder, in git's order.
pub(super) fn walk(
    repository: &Repository,
    tree: &Tree<'_>,
    enters: &mut Enter<'_>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    Walk { repository, enters, visit }.below(tree, &mut Vec::new())
}

struct Walk<'w, 'v> {
    repository: &'w Repository,
    enters: &'w mut Enter<'v>,
    visit: &'w mut Visit<'v>,
}

impl Walk<'_, '_> {
    /// `path` is the folder's, and is so again afterwards: one buffer serves the whole walk.
    fn below(&mut self, tree: &Tree<'_>, path: &mut Vec<u8>) -> Result<()> {
        for entry in tree {
            let length = path.len();
            path.extend_from_slice(entry.name_bytes());
            if entry.kind() == Some(ObjectType::Tree) {
                path.push(b'/');
                if (self.enters)(path) {
                    let folder = self.repository.find_tree(entry.id()).map_err(GitError::git("reading a folder"))?;
                    self.below(&folder, path)?;
                }
            } else {
                (self.visit)(path, &entry)?;
            }
            path.truncate(length);
        }
        Ok(())
    }
}
