//! Applying a patch to the files of a folder, all or nothing. libgit2 only computes the result; it neither reads nor writes
//! the folder, because there it follows symbolic links (measured: it writes through them and reads what they lead to).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use git2::{Delta, Diff, Index, IndexEntry, IndexTime, Oid, Repository};
use rustix::fs::FileType;

use super::beneath::{Beneath, Content};
use super::error::{GitError, Result};
use super::settings::Settings;
use super::ways::Ways;
use super::workspace::{is_safe_name, skeleton};
use super::{patch_text, paths};

const FILE: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;
const LINK: u32 = 0o120_000;

const DOING: &str = "applying a patch";

/// Applies a patch to the files of a folder, all or nothing, and answers the paths in it, sorted. Lines must be where the
/// patch says: nothing is searched for. The folder's own git, if it has any, is neither read nor changed, and nothing
/// outside the folder is touched.
pub fn apply_patch_to_dir(dir: &Path, patch: &[u8]) -> Result<Vec<String>> {
    let beneath = Beneath::open(dir).map_err(GitError::io(dir))?;
    let mut diffs = Vec::new();
    let mut ways = Ways::default();
    for section in patch_text::sections(patch) {
        let diff = Diff::from_buffer(&section).map_err(|error| failed(error.message(), Vec::new()))?;
        ways.add(&diff);
        diffs.push(diff);
    }
    let unsafe_paths = unsafe_paths(&ways);
    if !unsafe_paths.is_empty() {
        return Err(failed("paths lead out of the folder or into a `.git`", unsafe_paths));
    }
    let blocked = ways.blocked(&beneath)?;
    if !blocked.is_empty() {
        return Err(failed("paths lead through something that is no folder", blocked));
    }
    let scratch = tempfile::tempdir().map_err(GitError::io(std::env::temp_dir()))?;
    let mut outcome = Outcome::new(&scratch.path().join("git"), &beneath)?;
    for diff in &diffs {
        outcome.apply(diff)?;
    }
    outcome.write(&ways)?;
    Ok(ways.written.union(&ways.removed).map(|path| paths::text(path)).collect())
}

/// What the files that a patch touches are to become.
struct Outcome<'d> {
    /// Holds contents while the patch is computed.
    scratch: Repository,
    folder: &'d Beneath,
    /// Mode and contents, nothing for a file that is not there.
    files: BTreeMap<Vec<u8>, Option<(u32, Oid)>>,
}

impl<'d> Outcome<'d> {
    fn new(git_dir: &Path, folder: &'d Beneath) -> Result<Self> {
        skeleton::make(git_dir, &skeleton::Head::Branch("patch"), "[core]\n\tbare = true\n")?;
        let scratch = Repository::open_bare(git_dir).map_err(GitError::git(DOING))?;
        Settings::none().replace_in(&scratch)?;
        Ok(Self { scratch, folder, files: BTreeMap::new() })
    }

    /// Computes one section on top of the ones before.
    fn apply(&mut self, diff: &Diff<'_>) -> Result<()> {
        let mut before = Index::new().map_err(GitError::git(DOING))?;
        let mut touched = BTreeSet::new();
        for delta in diff.deltas() {
            let sides = [delta.old_file().path_bytes(), delta.new_file().path_bytes()];
            for path in sides.into_iter().flatten() {
                let Some((mode, id)) = self.load(path)? else { continue };
                if delta.status() == Delta::Added {
                    return Err(failed("it makes a file that is there already", vec![paths::text(path)]));
                }
                let added = before.add(&entry(path, mode, id));
                added.map_err(|error| failed(error.message(), vec![paths::text(path)]))?;
            }
            touched.extend(sides.into_iter().flatten().map(<[u8]>::to_vec));
        }
        let tree = before.write_tree_to(&self.scratch).and_then(|id| self.scratch.find_tree(id));
        let tree = tree.map_err(GitError::git(DOING))?;
        let after = self.scratch.apply_to_tree(&tree, diff, None);
        let after =
            after.map_err(|error| failed(error.message(), touched.iter().map(|path| paths::text(path)).collect()))?;
        for path in touched {
            let found = after.get_path(paths::path(&path), 0).map(|entry| (entry.mode, entry.id));
            self.files.insert(path, found);
        }
        Ok(())
    }

    /// Writes the outcome to the folder.
    fn write(&self, ways: &Ways) -> Result<()> {
        let at = |path: &[u8]| GitError::io(self.folder.path().join(paths::path(path)));
        for path in ways.removed.iter().filter(|path| !ways.written.contains(*path)) {
            self.folder.remove(path).map_err(at(path))?;
        }
        for path in &ways.written {
            // A file that the patch makes and removes again is not there.
            let Some((mode, id)) = self.files.get(path).copied().flatten() else {
                self.folder.remove(path).map_err(at(path))?;
                continue;
            };
            let blob = self.scratch.find_blob(id).map_err(GitError::git(DOING))?;
            let content = match mode {
                LINK => Content::Link(blob.content()),
                mode => Content::File { bytes: blob.content(), executable: mode == EXECUTABLE },
            };
            self.folder.write(path, content).map_err(at(path))?;
        }
        Ok(())
    }

    /// The file as it is now: after the sections before, or on disk.
    fn load(&mut self, path: &[u8]) -> Result<Option<(u32, Oid)>> {
        if let Some(known) = self.files.get(path) {
            return Ok(*known);
        }
        let at = || GitError::io(self.folder.path().join(paths::path(path)));
        let mode = match self.folder.find(path).map_err(at())? {
            Some(found) if found.kind == FileType::Symlink => LINK,
            Some(found) if found.kind == FileType::RegularFile && found.executable => EXECUTABLE,
            Some(found) if found.kind == FileType::RegularFile => FILE,
            _ => return Ok(None),
        };
        let bytes = self.folder.read(path).map_err(at())?;
        Ok(Some((mode, self.scratch.blob(&bytes).map_err(GitError::git(DOING))?)))
    }
}

/// An entry without any of what a file system knows.
fn entry(path: &[u8], mode: u32, id: Oid) -> IndexEntry {
    let never = IndexTime::new(0, 0);
    IndexEntry {
        ctime: never,
        mtime: never,
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.to_vec(),
    }
}

fn unsafe_paths(ways: &Ways) -> Vec<String> {
    let is_unsafe = |part: &[u8]| part.is_empty() || !is_safe_name(part);
    let all = ways.written.iter().chain(&ways.removed);
    all.filter(|path| path.split(|byte| *byte == b'/').any(is_unsafe)).map(|path| paths::text(path)).collect()
}

fn failed(reason: &str, paths: Vec<String>) -> GitError {
    GitError::PatchFailed { reason: reason.to_owned(), paths }
}
