//! Takes over the commits that an agent made itself in its copy. The copy's `.git` is a stranger's: its configuration is
//! never read, its HEAD and refs are read as plain text, and its objects are checked before they are copied (F83).

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use git2::{ObjectType, Odb, OdbLookupFlags, Oid, Repository};

use super::{Workspace, copy, raw_object};
use crate::git::beneath::read_regular;
use crate::git::error::Result;
use crate::git::paths;

/// More than any agent makes in a step.
const MAX_COMMITS: usize = 10_000;

/// Where the agent left HEAD.
#[derive(Debug, Default)]
pub(super) struct AgentHead {
    /// The commit, where it descends from the base and is not the base; its objects are in the user's repository.
    pub(super) commit: Option<Oid>,
    /// How many commits lie between.
    pub(super) count: usize,
    /// The objects that were copied.
    pub(super) copied: Vec<Oid>,
    /// Why commits that are there were not taken.
    pub(super) warnings: Vec<String>,
}

/// Reads where HEAD is and copies what is new. A copy whose `.git` cannot be believed gives a warning, never an error:
/// its files are still worth keeping.
pub(super) fn take_over(workspace: &Workspace, store: &Repository, base: Oid) -> Result<AgentHead> {
    let mut copied = Vec::new();
    let found =
        if workspace.is_isolated() { from_copy(workspace, store, base, &mut copied)? } else { from_checkout(store) };
    let head = match found {
        Ok(head) => head,
        Err(why) => return Ok(AgentHead { warnings: vec![why], ..AgentHead::default() }),
    };
    if head == base {
        return Ok(AgentHead::default());
    }
    if let Some(count) = commits_since(store, base, head) {
        return Ok(AgentHead { commit: Some(head), count, copied, warnings: Vec::new() });
    }
    let why = format!("HEAD of the working copy, {head}, does not descend from {base}; only its files were taken");
    Ok(AgentHead { warnings: vec![why], copied, ..AgentHead::default() })
}

/// How many commits lead from `base` to `head`; nothing where none do. libgit2's own walks fail at the border of a shallow
/// clone, where parents are missing; this one takes such for the end.
pub(super) fn commits_since(store: &Repository, base: Oid, head: Oid) -> Option<usize> {
    let base_time = store.find_commit(base).ok()?.time().seconds();
    let mut seen = HashSet::from([head]);
    let mut open = BinaryHeap::from([(i64::MAX, head)]);
    let (mut count, mut is_found) = (0, false);
    // Youngest first: when the base was met, what is older than it is its own past.
    while let Some((time, id)) = open.pop() {
        if is_found && time <= base_time {
            break;
        }
        if id == base {
            is_found = true;
            continue;
        }
        let Ok(commit) = store.find_commit(id) else { continue };
        count += 1;
        if count > MAX_COMMITS {
            return None;
        }
        for parent in commit.parent_ids().filter(|parent| seen.insert(*parent)) {
            let time = if parent == base {
                base_time
            } else {
                store.find_commit(parent).map_or(i64::MIN, |c| c.time().seconds())
            };
            open.push((time, parent));
        }
    }
    is_found.then_some(count)
}

/// HEAD of the checkout itself; the user's repository has its objects already.
fn from_checkout(store: &Repository) -> std::result::Result<Oid, String> {
    let head = store.head().and_then(|head| head.peel_to_commit());
    head.map(|commit| commit.id()).map_err(|error| format!("HEAD cannot be read: {}", error.message()))
}

fn from_copy(
    workspace: &Workspace,
    store: &Repository,
    base: Oid,
    copied: &mut Vec<Oid>,
) -> Result<std::result::Result<Oid, String>> {
    let git_dir = workspace.dir.join(".git");
    if !fs::symlink_metadata(&git_dir).is_ok_and(|found| found.is_dir()) {
        return Ok(Err("the working copy's `.git` was replaced or removed; only its files were taken".to_owned()));
    }
    let objects = git_dir.join("objects");
    let expected = copy::alternates(&workspace.repo)?;
    if read_regular(&objects.join("info/alternates")).ok().as_ref() != Some(&expected) || !is_plain(&objects) {
        return Ok(Err("the working copy's objects lead elsewhere; only its files were taken".to_owned()));
    }
    let Some(head) = read_head(&git_dir) else {
        return Ok(Err("HEAD of the working copy cannot be read; only its files were taken".to_owned()));
    };
    if head == base {
        return Ok(Ok(head));
    }
    Ok(match copy_objects(&objects, store, head, copied) {
        Ok(()) => Ok(head),
        Err(why) => Err(format!("the agent's commits could not be taken over ({why}); only its files were")),
    })
}

/// True when a folder has nothing but files and folders: a link or a pipe among the objects would lead or wait elsewhere.
pub(super) fn is_plain(folder: &Path) -> bool {
    let is_plain_entry = |entry: std::io::Result<fs::DirEntry>| {
        let Ok(entry) = entry else { return false };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => is_plain(&entry.path()),
            Ok(kind) => kind.is_file(),
            Err(_) => false,
        }
    };
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir())
        && fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_plain_entry))
}

/// The commit that HEAD leads to, through refs as plain files.
fn read_head(git_dir: &Path) -> Option<Oid> {
    /// As git follows them.
    const MAX_SYMBOLIC: usize = 5;
    let mut name = "HEAD".to_owned();
    for _ in 0..MAX_SYMBOLIC {
        let text = match read_regular(&git_dir.join(&name)) {
            Ok(bytes) => String::from_utf8(bytes).ok()?,
            Err(_) => return packed_ref(git_dir, &name),
        };
        match text.trim().strip_prefix("ref:") {
            None => return Oid::from_str(text.trim()).ok(),
            Some(target) => {
                let target = target.trim();
                let is_safe = target.starts_with("refs/") && git2::Reference::is_valid_name(target);
                name = is_safe.then(|| target.to_owned())?;
            }
        }
    }
    None
}

fn packed_ref(git_dir: &Path, name: &str) -> Option<Oid> {
    let text = String::from_utf8(read_regular(&git_dir.join("packed-refs")).ok()?).ok()?;
    let line = text.lines().find_map(|line| line.split_once(' ').filter(|(_, found)| *found == name))?;
    Oid::from_str(line.0).ok()
}

/// Copies a commit and everything below it that the store does not have.
fn copy_objects(objects: &Path, store: &Repository, head: Oid, copied: &mut Vec<Oid>) -> Copied {
    Objects::open(objects, store)?.copy(head, copied)
}

/// The objects of a copy beside those of the user's repository.
pub(super) struct Objects<'s> {
    theirs: Odb<'static>,
    ours: Odb<'s>,
}

impl<'s> Objects<'s> {
    /// Opens a folder of objects that is known to be plain.
    pub(super) fn open(objects: &Path, store: &'s Repository) -> std::result::Result<Self, String> {
        let text = |error: git2::Error| error.message().to_owned();
        let place = objects.to_str().ok_or("its path is no text")?;
        let theirs = Odb::new().map_err(text)?;
        theirs.add_disk_alternate(place).map_err(text)?;
        Ok(Self { theirs, ours: store.odb().map_err(text)? })
    }

    /// Whether the user's repository has it.
    pub(super) fn has(&self, id: Oid) -> bool {
        self.ours.exists_ext(id, OdbLookupFlags::NO_REFRESH)
    }

    /// Copies a commit and everything below it that the user's repository does not have.
    pub(super) fn copy(&self, head: Oid, copied: &mut Vec<Oid>) -> Copied {
        Copier { theirs: &self.theirs, ours: &self.ours, copied }.commits(head)
    }

    /// Copies the contents of one file.
    pub(super) fn copy_blob(&self, id: Oid, copied: &mut Vec<Oid>) -> Copied {
        Copier { theirs: &self.theirs, ours: &self.ours, copied }.blob(id)
    }
}

struct Copier<'o> {
    theirs: &'o Odb<'o>,
    ours: &'o Odb<'o>,
    copied: &'o mut Vec<Oid>,
}

pub(super) type Copied = std::result::Result<(), String>;

impl Copier<'_> {
    /// Parents before children and contents before commits: what the store has, it has completely, also after a crash.
    fn commits(&mut self, head: Oid) -> Copied {
        let mut read: HashMap<Oid, (Oid, Vec<u8>)> = HashMap::new();
        let mut open = vec![head];
        while let Some(id) = open.last().copied() {
            if let Some((tree, bytes)) = read.remove(&id) {
                // Seen for the second time: everything above it on the way was written.
                self.tree(tree)?;
                self.write(id, ObjectType::Commit, &bytes)?;
            } else if !self.has(id) {
                if open.len() > MAX_COMMITS {
                    return Err(format!("there are more than {MAX_COMMITS}"));
                }
                let bytes = self.read(id, ObjectType::Commit)?;
                let (tree, parents) = raw_object::commit(&bytes).ok_or_else(|| format!("{id} is no commit"))?;
                read.insert(id, (tree, bytes));
                open.extend(parents);
                continue;
            }
            open.pop();
        }
        Ok(())
    }

    fn tree(&mut self, id: Oid) -> Copied {
        if self.has(id) {
            return Ok(());
        }
        let bytes = self.read(id, ObjectType::Tree)?;
        for (mode, name, child) in raw_object::tree(&bytes).ok_or_else(|| format!("{id} is no tree"))? {
            if !raw_object::is_safe_name(name) {
                return Err(format!("a file is named `{}`", paths::text(name)));
            }
            match mode {
                b"40000" | b"040000" => self.tree(child)?,
                b"160000" => {}
                b"100644" | b"100755" | b"100664" | b"120000" => self.blob(child)?,
                _ => return Err(format!("`{}` is neither a file nor a folder", paths::text(name))),
            }
        }
        self.write(id, ObjectType::Tree, &bytes)
    }

    fn blob(&mut self, id: Oid) -> Copied {
        if self.has(id) {
            return Ok(());
        }
        let bytes = self.read(id, ObjectType::Blob)?;
        self.write(id, ObjectType::Blob, &bytes)
    }

    fn has(&self, id: Oid) -> bool {
        self.ours.exists_ext(id, OdbLookupFlags::NO_REFRESH)
    }

    fn read(&self, id: Oid, kind: ObjectType) -> std::result::Result<Vec<u8>, String> {
        let object = self.theirs.read(id).map_err(|error| error.message().to_owned())?;
        if object.kind() != kind {
            return Err(format!("{id} is a {}, not a {kind}", object.kind()));
        }
        Ok(object.data().to_vec())
    }

    fn write(&mut self, id: Oid, kind: ObjectType, bytes: &[u8]) -> Copied {
        let written = self.ours.write(kind, bytes).map_err(|error| error.message().to_owned())?;
        self.copied.push(written);
        if written == id { Ok(()) } else { Err(format!("{id} does not have the contents of its name")) }
    }
}
