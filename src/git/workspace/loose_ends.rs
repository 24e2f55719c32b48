//! What lies in the git folders of an isolated copy and nowhere else: stashes, branches that HEAD is not on, commits that do
//! not descend from the base, contents that were staged and then changed on disk. Before a copy goes, they come home as
//! commits (R-W3). The git folders are a stranger's, as in `commits`: names are read as plain text, objects are checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use git2::{Index, IndexEntry, Oid, Repository, Signature};

use super::commits::{self, Objects};
use super::raw_object::is_safe_name;
use super::snapshot::find_commit;
use super::{Workspace, copy, durable};
use crate::git::beneath::read_regular;
use crate::git::error::{GitError, Result};
use crate::git::paths;

/// Something that came home. It is not pinned yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooseEnd {
    /// What it was: `stash@{0}`, `branch spare`, `staged changes`.
    pub what: String,
    /// It as a commit in the user's repository.
    pub commit: String,
}

/// What came home, and what could not.
#[derive(Debug, Default)]
pub struct BroughtHome {
    /// In the user's repository now.
    pub ends: Vec<LooseEnd>,
    /// Still in the copy alone, and why.
    pub left: Vec<String>,
}

impl Workspace {
    /// Copies everything that git alone holds in the copy into the user's repository. What leads to `base` or to `tip`, the
    /// run's last snapshot, is held by those; that an object is in the repository holds nothing. In place there is nothing to
    /// do: the repository is the user's.
    pub fn bring_loose_ends(&self, base: &str, tip: &str) -> Result<BroughtHome> {
        let mut home = BroughtHome::default();
        if !self.is_isolated() {
            return Ok(home);
        }
        let store = self.store()?;
        let mut copied = Vec::new();
        let ends = [oid(base), oid(tip)];
        let is_held = |id: Oid| {
            let leads = |end: Oid| end == id || commits::commits_since(&store, id, end).is_some();
            ends.into_iter().flatten().any(leads)
        };
        for git_dir in self.git_dirs()? {
            let objects = git_dir.join("objects");
            let alternates = read_regular(&objects.join("info/alternates")).ok();
            let is_ours = alternates.is_none_or(|found| copy::alternates(&self.repo).is_ok_and(|own| own == found));
            if !is_ours || !commits::is_plain(&objects) {
                home.left.push("the objects of its git folder lead elsewhere".to_owned());
                continue;
            }
            let objects = Objects::open(&objects, &store).map_err(|why| GitError::Tampered { what: why })?;
            for (what, id) in names(&git_dir).into_iter().filter(|(_, id)| !is_held(*id)) {
                match objects.copy(id, &mut copied) {
                    Ok(()) => home.ends.push(LooseEnd { what, commit: id.to_string() }),
                    Err(why) => home.left.push(format!("{what}: {why}")),
                }
            }
            match staged(&git_dir, &objects, &mut copied) {
                Ok(None) => {}
                Ok(Some(index)) => {
                    let commit = commit(&store, index, base, &mut copied)?;
                    home.ends.push(LooseEnd { what: "staged changes".to_owned(), commit });
                }
                Err(why) => home.left.push(format!("staged changes: {why}")),
            }
        }
        durable::settle(&self.repo, &copied)?;
        Ok(home)
    }

    /// The copy's git folder, and those that were set aside when it was rebuilt.
    fn git_dirs(&self) -> Result<Vec<PathBuf>> {
        let mut found = vec![self.dir.join(".git")];
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let names = self.names_beside(parent)?;
        found.extend(names.into_iter().filter(|name| name.to_string_lossy().contains(".git.")).map(|n| parent.join(n)));
        found.retain(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()));
        Ok(found)
    }
}

/// Every name of a git folder that leads to a commit: its refs, a HEAD without a branch, and the stashes, of which all but
/// the newest stand in a log alone. The same commit is told once.
fn names(git_dir: &Path) -> Vec<(String, Oid)> {
    let mut found: BTreeMap<Oid, String> = BTreeMap::new();
    let stashes = read_text(&git_dir.join("logs/refs/stash"));
    let newest_first = stashes.lines().rev().filter_map(|line| oid(line.split(' ').nth(1)?));
    for (n, id) in newest_first.enumerate() {
        found.entry(id).or_insert_with(|| format!("stash@{{{n}}}"));
    }
    let packed = read_text(&git_dir.join("packed-refs"));
    let packed = packed.lines().filter_map(|line| line.split_once(' ').map(|(id, name)| (name.to_owned(), oid(id))));
    let head = ("HEAD".to_owned(), oid(&read_text(&git_dir.join("HEAD"))));
    let mut refs = Vec::new();
    loose_refs(&git_dir.join("refs"), "refs", &mut refs);
    for (name, id) in refs.into_iter().chain(packed).chain([head]) {
        let Some(id) = id else { continue };
        let what = match name.strip_prefix("refs/heads/") {
            Some(branch) => format!("branch {branch}"),
            None => name,
        };
        found.entry(id).or_insert(what);
    }
    found.into_iter().map(|(id, what)| (what, id)).collect()
}

fn loose_refs(folder: &Path, prefix: &str, into: &mut Vec<(String, Option<Oid>)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = format!("{prefix}/{}", paths::text(paths::bytes(Path::new(&entry.file_name()))));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => loose_refs(&entry.path(), &name, into),
            Ok(kind) if kind.is_file() => into.push((name, oid(&read_text(&entry.path())))),
            _ => {}
        }
    }
}

fn read_text(path: &Path) -> String {
    read_regular(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn oid(text: &str) -> Option<Oid> {
    Oid::from_str(text.trim()).ok().filter(|id| !id.is_zero())
}

/// The index of a git folder, where it has contents that are nowhere else: staged, and then changed or removed on disk.
/// Those that are on disk as well are in the snapshot.
fn staged(
    git_dir: &Path,
    objects: &Objects<'_>,
    copied: &mut Vec<Oid>,
) -> std::result::Result<Option<Vec<IndexEntry>>, String> {
    let path = git_dir.join("index");
    if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let index = Index::open(&path).map_err(|error| error.message().to_owned())?;
    let is_file = |entry: &IndexEntry| matches!(entry.mode, 0o100_644 | 0o100_755 | 0o120_000);
    let entries: Vec<IndexEntry> = index.iter().filter(is_file).collect();
    let only_here: Vec<Oid> = entries.iter().map(|entry| entry.id).filter(|id| !objects.has(*id)).collect();
    if only_here.is_empty() {
        return Ok(None);
    }
    if let Some(bad) = entries.iter().find(|entry| !entry.path.split(|byte| *byte == b'/').all(is_safe_name)) {
        return Err(format!("a file is named `{}`", paths::text(&bad.path)));
    }
    for id in only_here {
        objects.copy_blob(id, copied)?;
    }
    Ok(Some(entries))
}

fn commit(store: &Repository, entries: Vec<IndexEntry>, base: &str, copied: &mut Vec<Oid>) -> Result<String> {
    const DOING: &str = "keeping what was staged";
    let base = find_commit(store, base)?;
    let mut index = Index::new().map_err(GitError::git(DOING))?;
    for entry in entries {
        // Without the stages of a conflict: git takes one of them.
        let entry = IndexEntry { flags: 0, flags_extended: 0, ..entry };
        index.add(&entry).map_err(GitError::git(DOING))?;
    }
    let tree = index.write_tree_to(store).map_err(GitError::git(DOING))?;
    durable::new_trees(store, tree, Some(base.tree_id()), copied)?;
    let tree = store.find_tree(tree).map_err(GitError::git(DOING))?;
    let who = Signature::now("agentrun", "agentrun@localhost").map_err(GitError::git(DOING))?;
    let id =
        store.commit(None, &who, &who, "agentrun: staged changes", &tree, &[&base]).map_err(GitError::git(DOING))?;
    copied.push(id);
    Ok(id.to_string())
}
