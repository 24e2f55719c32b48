//! Makes the isolated copy: a `.git` of its own that shares the user's objects, and the files of one commit (R-W2). It
//! takes neither hooks nor remotes nor any configuration that could run code.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use git2::build::CheckoutBuilder;
use git2::{Index, ReferenceType};

use super::skeleton::{self, Head};
use super::{Workspace, sibling};
use crate::git::beneath::{Beneath, is_absent};
use crate::git::context::walk;
use crate::git::error::{GitError, Result};
use crate::git::paths;
use crate::git::repo::{Repo, oid};
use crate::git::settings::quoted;

/// Makes the copy beside its place and renames it.
pub(super) fn make(workspace: &Workspace, commit: &str) -> Result<()> {
    let dir = &workspace.dir;
    if fs::symlink_metadata(dir).is_ok() {
        return Err(GitError::io(dir)(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    workspace.repo.check_complete(commit)?;
    let fresh = sibling(dir, ".new");
    remove_leftover(&fresh)?;
    fs::create_dir(&fresh).map_err(GitError::io(&fresh))?;
    super::remove_file(&workspace.index)?;
    let made = fill(workspace, &fresh, commit);
    if let Err(error) = made {
        // Nobody saw it yet, so nothing of anybody's is lost.
        let _ = remove_leftover(&fresh);
        let _ = super::remove_file(&workspace.index);
        return Err(error);
    }
    fs::rename(&fresh, dir).map_err(GitError::io(dir))
}

fn fill(workspace: &Workspace, fresh: &Path, commit: &str) -> Result<()> {
    const DOING: &str = "checking the files out";
    let repo = &workspace.repo;
    let repository = repo.open_at(fresh)?;
    let tree = repo.tree(commit)?;
    let mut index = Index::open(&workspace.index).map_err(GitError::git(DOING))?;
    repository.set_index(&mut index).map_err(GitError::git(DOING))?;
    let mut checkout = CheckoutBuilder::new();
    // The folder is empty, so "force" overwrites nothing.
    checkout.force().recreate_missing(true);
    // Looking for a conversion makes libgit2 resolve the path of every file twice: most of a large checkout (measured).
    checkout.disable_filters(!repo.settings()?.may_convert(repo.common_dir()) && !has_attributes(repo, &tree)?);
    let object = repository.find_tree(tree.id()).map_err(GitError::git(DOING))?.into_object();
    repository.checkout_tree(&object, Some(&mut checkout)).map_err(GitError::git(DOING))?;
    write_git_dir(workspace, &fresh.join(".git"), commit)
}

/// True where a file of the tree may ask for conversions.
fn has_attributes(repo: &Repo, tree: &git2::Tree<'_>) -> Result<bool> {
    let mut found = false;
    walk(repo.inner()?, tree, &mut |_| true, &mut |_, entry| {
        found |= entry.name_bytes() == b".gitattributes";
        Ok(())
    })?;
    Ok(found)
}

/// Writes the copy's own `.git`, with HEAD on a branch at the commit and an index that fits the private one.
pub(super) fn write_git_dir(workspace: &Workspace, git_dir: &Path, commit: &str) -> Result<()> {
    let repo = &workspace.repo;
    let branch = branch_name(&workspace.dir);
    let commit = oid(commit)?.to_string();
    skeleton::make(git_dir, &Head::At { branch: &branch, commit: &commit }, &config(repo)?)?;
    skeleton::write(git_dir, "objects/info/alternates", &alternates(repo)?)?;
    let shallow = repo.common_dir().join("shallow");
    if shallow.exists() {
        let to = git_dir.join("shallow");
        fs::copy(&shallow, &to).map_err(GitError::io(&to))?;
    }
    skeleton::write(git_dir, "packed-refs", packed_refs(repo, &branch)?.as_bytes())?;
    let index = git_dir.join("index");
    if workspace.index.exists() {
        fs::copy(&workspace.index, &index).map_err(GitError::io(&index))?;
    }
    Ok(())
}

/// What `objects/info/alternates` of a copy must say.
pub(super) fn alternates(repo: &Repo) -> Result<Vec<u8>> {
    let objects = repo.common_dir().join("objects");
    let bytes = paths::bytes(&objects);
    if bytes.contains(&b'\n') || bytes.starts_with(b"\"") {
        let what = "a path that cannot be shared: it has a line break or begins with a quote";
        return Err(GitError::Unsupported { what, way_out: "rename the folder of the repository" });
    }
    Ok([bytes, b"\n"].concat())
}

fn config(repo: &Repo) -> Result<String> {
    let settings = repo.settings()?;
    let mut config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = true\n{}",
        settings.data_lines()
    );
    // An agent's commits must not start a collection in the background that outlives its step.
    config.push_str("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n");
    if let Some((name, email)) = &settings.identity {
        let _ = writeln!(config, "[user]\n\tname = {}\n\temail = {}", quoted(name), quoted(email));
    }
    Ok(config)
}

/// The user's branches, remote branches and tags, so that `git describe` and `git diff main` work in the copy. They are
/// read-only history: nothing that is done to them comes home.
fn packed_refs(repo: &Repo, own_branch: &str) -> Result<String> {
    const DOING: &str = "reading the refs";
    let own = format!("refs/heads/{own_branch}");
    let mut lines = Vec::new();
    for reference in repo.inner()?.references().map_err(GitError::git(DOING))? {
        // One broken ref of the user's is no reason not to work.
        let Ok(reference) = reference else { continue };
        let (Ok(name), Some(ReferenceType::Direct), Some(target)) =
            (reference.name(), reference.kind(), reference.target())
        else {
            continue;
        };
        let is_shown = ["refs/heads/", "refs/remotes/", "refs/tags/"].iter().any(|prefix| name.starts_with(prefix));
        let collides = own.starts_with(&format!("{name}/")) || name.starts_with("refs/heads/agentrun/");
        if is_shown && !collides {
            lines.push(format!("{name} {target}"));
        }
    }
    lines.sort();
    let mut text = String::from("# pack-refs with: sorted\n");
    for line in lines {
        if let Some((name, target)) = line.rsplit_once(' ') {
            let _ = writeln!(text, "{target} {name}");
        }
    }
    Ok(text)
}

/// `agentrun/<name of the folder>`, so that an agent sees an ordinary branch and not a detached HEAD.
fn branch_name(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let branch = format!("agentrun/{name}");
    if git2::Branch::name_is_valid(&branch).unwrap_or(false) { branch } else { "agentrun/work".to_owned() }
}

fn remove_leftover(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let removed = Beneath::open(parent).and_then(|beneath| beneath.remove(paths::bytes(Path::new(name))));
    match removed {
        Err(error) if !is_absent(&error) => Err(GitError::io(path)(error)),
        _ => Ok(()),
    }
}
