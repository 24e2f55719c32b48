//! Patches, lists of changes, and bringing a result into the checkout.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::world::{World, write};
use crate::domain::failure::Code;
use crate::git::{ChangeKind, apply_patch_to_dir};

/// A commit with everything that makes a patch hard, on top of HEAD.
pub fn odd_commit(world: &World) -> String {
    let root = &world.root;
    world.write("gone.txt", "gone\n");
    world.write("becomes-link", "file\n");
    symlink("README.md", root.join("becomes-file")).unwrap();
    fs::write(root.join("old.bin"), [0, 1, 2, 255].repeat(300)).unwrap();
    world.write("no-end", "line");
    world.write("empty", "");
    world.commit("before");
    fs::remove_file(root.join("gone.txt")).unwrap();
    fs::remove_file(root.join("becomes-link")).unwrap();
    symlink("src/a.rs", root.join("becomes-link")).unwrap();
    fs::remove_file(root.join("becomes-file")).unwrap();
    world.write("becomes-file", "file\n");
    fs::write(root.join("old.bin"), [0, 1, 3, 255].repeat(310)).unwrap();
    fs::write(root.join("new.bin"), [0, 200, 100].repeat(1000)).unwrap();
    world.write("no-end", "line\nmore");
    world.write("src/a.rs", "one\n2\nthree\n");
    fs::set_permissions(root.join("src/b.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    for name in
        ["with space", "tab\there", "quote\"back\\slash", "new\nline", "ünï/cødé.txt", " lead", "trail ", "-dash"]
    {
        write(&root.join(name), "odd\n");
    }
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "odd\n").unwrap();
    world.write("created-empty", "");
    world.commit("odd")
}

#[test]
fn patches_of_every_kind_go_through_git_apply_and_through_ours() {
    let world = World::new();
    let tip = odd_commit(&world);
    let base = world.git(&["rev-parse", "HEAD^"]);
    let patch = world.repo().patch(&base, &tip).unwrap();
    fs::write(world.beside("p.patch"), &patch).unwrap();

    world.git(&["checkout", "-q", "--detach", &base]);
    world.git(&["apply", "--index", "../p.patch"]);
    assert_eq!(world.git(&["diff", "--cached", &tip]), "");
    world.git(&["reset", "-q", "--hard"]);

    let theirs = world.try_git_in(&world.root, &["diff", "--binary", &base, &tip]).stdout;
    for patch in [patch, theirs] {
        let touched = apply_patch_to_dir(&world.root, &patch).unwrap();
        assert_eq!(touched.len(), 18, "{touched:?}");
        world.git(&["add", "-A"]);
        assert_eq!(world.git(&["diff", "--stat", "--cached", &tip]), "");
        world.git(&["reset", "-q", "--hard"]);
    }
}

#[test]
fn changes_name_kind_and_lines() {
    let world = World::new();
    let tip = odd_commit(&world);
    let base = world.git(&["rev-parse", "HEAD^"]);
    let changes = world.repo().changes(&base, &tip).unwrap();
    let of = |path: &str| {
        let change = changes.iter().find(|change| change.path == path).unwrap();
        (change.kind, change.added, change.removed, change.binary)
    };
    assert_eq!(of("src/a.rs"), (ChangeKind::Modify, 1, 1, false));
    assert_eq!(of("gone.txt"), (ChangeKind::Delete, 0, 1, false));
    assert_eq!(of("with space"), (ChangeKind::Add, 1, 0, false));
    assert_eq!(of("created-empty"), (ChangeKind::Add, 0, 0, false));
    assert_eq!(of("src/b.rs"), (ChangeKind::Modify, 0, 0, false));
    assert_eq!((of("old.bin").0, of("old.bin").3), (ChangeKind::Modify, true));
    assert_eq!((of("new.bin").0, of("new.bin").3), (ChangeKind::Add, true));
    assert_eq!(of("becomes-link").0, ChangeKind::Type);
    let sorted = changes.is_sorted_by(|a, b| a.path <= b.path);
    assert!(sorted && changes.len() == 18, "{changes:?}");
}

#[test]
fn a_patch_that_does_not_fit_changes_nothing() {
    let world = World::new();
    let base = world.head();
    world.write("src/a.rs", "one\n2\nthree\n");
    world.write("z.txt", "z\n");
    let tip = world.commit("tip");
    let patch = world.repo().patch(&base, &tip).unwrap();
    let plain = world.beside("plain");
    write(&plain.join("src/a.rs"), "entirely\ndifferent\n");
    assert_eq!(apply_patch_to_dir(&plain, &patch).unwrap_err().code(), Code::PatchFailed);
    assert!(!plain.join("z.txt").exists());
    assert_eq!(apply_patch_to_dir(&plain, b"no patch").unwrap_err().code(), Code::PatchFailed);
    write(&plain.join("src/a.rs"), "one\ntwo\nthree\nfour\n");
    assert_eq!(apply_patch_to_dir(&plain, &patch).unwrap(), ["src/a.rs", "z.txt"]);
    assert_eq!(fs::read_to_string(plain.join("src/a.rs")).unwrap(), "one\n2\nthree\nfour\n");
    assert!(!plain.join(".git").exists());
}

#[test]
fn r_w5_a_patch_stays_in_its_folder() {
    let world = World::new();
    let copy = world.workspace();
    symlink(world.beside("home"), copy.dir().join("out")).unwrap();
    let both = "diff --git a/l b/l\nnew file mode 120000\nindex 0000000..0000001\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+../../home\n\\ No newline at end of file\ndiff --git a/l/escaped b/l/escaped\nnew file mode 100644\nindex 0000000..d95f3ad\n--- /dev/null\n+++ b/l/escaped\n@@ -0,0 +1 @@\n+content\n";
    assert_eq!(copy.apply_patch(both.as_bytes()).unwrap_err().code(), Code::PatchFailed);
    assert!(!world.beside("home/escaped").exists());
    for path in ["../escaped", "out/escaped", ".git/hooks/post-checkout", "/tmp/agentrun-escaped", "a/../../escaped"] {
        let patch = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100755\nindex 0000000000000000000000000000000000000000..d95f3ad14dee633a758d2e331151e950dd13e4ed\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+content\n"
        );
        let applied = copy.apply_patch(patch.as_bytes());
        assert!(!world.beside("home/escaped").exists() && !world.beside("work/escaped").exists(), "{path}");
        assert!(!world.beside("escaped").exists() && !copy.dir().join(".git/hooks").exists(), "{path}: {applied:?}");
        assert!(!Path::new("/tmp/agentrun-escaped").exists());
        // The absolute one is taken for one below the folder, as git does.
        assert_eq!(applied.is_err(), !path.starts_with("/tmp"), "{path}");
    }
}

#[test]
fn r_w5_apply_does_not_write_through_a_link_in_the_checkout() {
    let world = World::new();
    let base = world.head();
    let copy = world.workspace();
    write(&copy.dir().join("target2/x.txt"), "x\n");
    let tip = world.snapshot(&copy).commit;
    symlink(world.beside("home"), world.root.join("target2")).unwrap();
    let error = world.repo().apply_to_checkout(&base, &tip).unwrap_err();
    assert_eq!(error.to_string(), "the changes do not apply: files in the checkout stand in the way: target2/x.txt");
    assert!(!world.beside("home/x.txt").exists());
}

#[test]
fn apply_brings_a_result_into_a_checkout_that_moved_on() {
    let world = World::new();
    let base = world.head();
    let copy = world.workspace();
    write(&copy.dir().join("src/a.rs"), "one\ntwo\nthree\nfour\n");
    write(&copy.dir().join("new/x.txt"), "x\n");
    fs::remove_file(copy.dir().join("src/b.rs")).unwrap();
    let tip = world.snapshot(&copy).commit;
    world.write("README.md", "moved on\n");
    world.commit("moved on");
    let repo = world.repo();
    assert_eq!(repo.apply_to_checkout(&base, &tip).unwrap(), ["new/x.txt", "src/a.rs", "src/b.rs"]);
    assert_eq!(world.git(&["status", "--porcelain"]), "A  new/x.txt\nM  src/a.rs\nD  src/b.rs");
    assert_eq!(fs::read_to_string(world.root.join("README.md")).unwrap(), "moved on\n");
    world.git(&["commit", "-q", "-m", "applied"]);
    assert_eq!(repo.apply_to_checkout(&base, &tip).unwrap(), Vec::<String>::new(), "applied already");
}

#[test]
fn apply_with_a_conflict_changes_nothing_and_names_the_paths() {
    let world = World::new();
    let base = world.head();
    let copy = world.workspace();
    write(&copy.dir().join("src/a.rs"), "agent\n");
    write(&copy.dir().join("new.txt"), "n\n");
    let tip = world.snapshot(&copy).commit;
    world.write("src/a.rs", "user\n");
    world.commit("user");
    let error = world.repo().apply_to_checkout(&base, &tip).unwrap_err();
    assert_eq!(error.code(), Code::PatchFailed);
    assert_eq!(error.to_string(), "the changes do not apply: both sides changed the same lines: src/a.rs");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.git(&["reset", "-q", "--hard", &base]);

    world.write("new.txt", "the user's own, untracked\n");
    let error = world.repo().apply_to_checkout(&base, &tip).unwrap_err();
    assert_eq!(error.to_string(), "the changes do not apply: files in the checkout stand in the way: new.txt");
    assert_eq!(world.git(&["status", "--porcelain"]), "?? new.txt");
    assert_eq!(fs::read_to_string(world.root.join("new.txt")).unwrap(), "the user's own, untracked\n");
}

#[test]
fn apply_respects_a_sparse_checkout() {
    let world = World::new();
    world.write("other/x.txt", "x\n");
    world.write("other/y.txt", "y\n");
    let base = world.commit("other");
    let copy = world.workspace();
    write(&copy.dir().join("src/a.rs"), "agent\n");
    let tip = world.snapshot(&copy).commit;
    world.git(&["sparse-checkout", "set", "--cone", "src"]);
    world.repo().apply_to_checkout(&base, &tip).unwrap();
    assert!(!world.root.join("other").exists());
    assert_eq!(world.git(&["status", "--porcelain"]), "M  src/a.rs");
}
