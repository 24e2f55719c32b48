//! Makes the objects of a snapshot survive a power cut: a commit that the database names must not be an empty file
//! afterwards. All are written first and settled once, which costs a fraction of settling each as it is written.

use std::fs::File;
use std::io;

use git2::{ObjectType, Oid, Repository};

use crate::git::error::{GitError, Result};
use crate::git::repo::Repo;

/// Up to here file by file; above, the whole file system is asked once.
const FEW: usize = 64;

/// Waits until these objects are on the disk. One that lies in a pack was put there by git, which settles those itself.
pub(super) fn settle(repo: &Repo, objects: &[Oid]) -> Result<()> {
    let folder = repo.common_dir().join("objects");
    if objects.len() > FEW {
        return sync_all(&folder).map_err(GitError::io(&folder));
    }
    for id in objects {
        let hex = id.to_string();
        let file = folder.join(&hex[..2]).join(&hex[2..]);
        match File::open(&file).and_then(|file| file.sync_data()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GitError::io(&file)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// The folders of a tree that are not the same in another one, the tree itself included.
pub(super) fn new_trees(store: &Repository, tree: Oid, than: Option<Oid>, into: &mut Vec<Oid>) -> Result<()> {
    if than == Some(tree) {
        return Ok(());
    }
    into.push(tree);
    let read = |id| store.find_tree(id).map_err(GitError::git("reading a folder"));
    let other = than.map(read).transpose()?;
    for entry in read(tree)?.iter().filter(|entry| entry.kind() == Some(ObjectType::Tree)) {
        let same_name = other.as_ref().and_then(|other| other.get_name_bytes(entry.name_bytes()));
        let than = same_name.filter(|found| found.kind() == Some(ObjectType::Tree)).map(|found| found.id());
        new_trees(store, entry.id(), than, into)?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn sync_all(folder: &std::path::Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_all(_: &std::path::Path) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}
