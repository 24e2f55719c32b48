//! Kinds of repositories that are refused, each with a way out that works.

use super::world::World;
use crate::domain::failure::Code;
use crate::git::{Repo, Workspace};

#[test]
fn no_repository_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    assert_eq!(Repo::discover(temp.path()).unwrap_err().code(), Code::NotARepository);
}

#[test]
fn a_bare_repository_is_refused_but_not_its_linked_worktree() {
    let world = World::new();
    world.git_in(&world.base(), &["clone", "-q", "--bare", "repo", "project/.bare"]);
    let bare = world.beside("project/.bare");
    let error = Repo::discover(&bare).unwrap_err();
    assert_eq!((error.code(), error.way_out().is_some()), (Code::RepositoryUnsupported, true));
    world.git_in(&bare, &["worktree", "add", "-q", "../main", "main"]);
    let repo = Repo::discover(&world.beside("project/main")).unwrap();
    assert!(repo.state(&[]).unwrap().is_clean());
    assert_eq!(repo.main_root(), world.beside("project"));
}

#[test]
fn a_repository_without_a_commit_is_refused() {
    let world = World::empty();
    let error = world.repo().head().unwrap_err();
    assert_eq!(error.code(), Code::RepositoryUnsupported);
    assert!(error.way_out().is_some_and(|way| way.starts_with("make a first commit")));
}

#[test]
fn sha_256_and_reftable_are_refused() {
    for format in ["--object-format=sha256", "--ref-format=reftable"] {
        let world = World::new();
        world.git_in(&world.base(), &["init", "-q", format, "other"]);
        let error = Repo::discover(&world.beside("other")).unwrap_err();
        assert_eq!((error.code(), error.way_out().is_some()), (Code::RepositoryUnsupported, true), "{format}");
    }
}

#[test]
fn a_partial_clone_is_refused_and_the_way_out_leads_out() {
    let world = World::new();
    world.git(&["config", "uploadpack.allowFilter", "true"]);
    world.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let url = format!("file://{}", world.root.display());
    world.git_in(&world.base(), &["clone", "-q", "--filter=blob:none", "--no-checkout", &url, "partial"]);
    let partial = world.beside("partial");
    let repo = Repo::discover(&partial).unwrap();
    let error = Workspace::create(&repo, &world.beside("work/p"), &world.head()).unwrap_err();
    assert_eq!(error.to_string(), "the repository uses a partial clone, where objects are missing");
    assert_eq!(Workspace::in_place(&repo, &world.beside("work/i")).unwrap_err().code(), Code::RepositoryUnsupported);
    assert!(!world.beside("work/p.new").exists());
    world.git_in(&partial, &["config", "extensions.partialClone", "origin"]);
    assert_eq!(
        Repo::discover(&partial).unwrap_err().code(),
        Code::RepositoryUnsupported,
        "as older versions of git wrote it"
    );
    shell(&world, &partial, error.way_out().unwrap());
    let repo = Repo::discover(&partial).unwrap();
    Workspace::create(&repo, &world.beside("work/p"), &world.head()).unwrap();
}

#[test]
fn a_split_index_is_refused_and_the_way_out_leads_out() {
    let world = World::new();
    world.git(&["config", "core.splitIndex", "true"]);
    world.git(&["update-index", "--split-index"]);
    let error = world.repo().state(&[]).unwrap_err();
    assert_eq!(error.to_string(), "the repository uses a split index");
    let in_place = Workspace::in_place(&world.repo(), &world.beside("work/i")).unwrap_err();
    assert_eq!(in_place.to_string(), "the repository uses a split index");
    world.workspace();
    way_out(&world, error.way_out());
    assert!(world.repo().state(&[]).unwrap().is_clean());
}

#[test]
fn a_sparse_index_is_refused_and_the_way_out_leads_out() {
    let world = World::new();
    world.write("other/x", "x\n");
    world.write("other/deep/y", "y\n");
    world.commit("other");
    world.git(&["sparse-checkout", "set", "--cone", "--sparse-index", "src"]);
    let error = world.repo().state(&[]).unwrap_err();
    assert_eq!(error.to_string(), "the repository uses a sparse index");
    way_out(&world, error.way_out());
    assert!(world.repo().state(&[]).unwrap().is_clean());
}

fn way_out(world: &World, way: Option<&str>) {
    shell(world, &world.root, way.unwrap());
}

/// Runs a way out as a user would paste it.
fn shell(world: &World, dir: &std::path::Path, commands: &str) {
    let template = world.command(dir);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", commands]).current_dir(dir).env_clear();
    for (key, value) in template.get_envs() {
        shell.env(key, value.unwrap());
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
}
