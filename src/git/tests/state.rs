//! What is uncommitted, which files count, what a commit has.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::world::{World, write};
use crate::domain::failure::Code;
use crate::git::{Overlay, Repo, UserGit, Workspace};

#[test]
fn r_w1_every_kind_of_uncommitted_work_is_named() {
    let world = World::new();
    let repo = world.repo();
    assert!(repo.state(&[]).unwrap().is_clean());
    world.write("staged.txt", "s\n");
    world.git(&["add", "staged.txt"]);
    world.write("src/a.rs", "changed\n");
    fs::remove_file(world.root.join("src/b.rs")).unwrap();
    world.write("un/tracked.txt", "u\n");
    world.write("target/ignored", "i\n");
    world.write("tasks/182.yml", "t\n");
    world.write("automation-policy.yml", "p\n");
    let state = repo.state(&["tasks/", "automation-policy.yml", ".ai-runs/"]).unwrap();
    assert_eq!(state.staged, ["staged.txt"]);
    assert_eq!(state.unstaged, ["src/a.rs", "src/b.rs"]);
    assert_eq!(state.untracked, ["un/tracked.txt"]);
    assert_eq!(state.paths(), ["src/a.rs", "src/b.rs", "staged.txt", "un/tracked.txt"]);
    assert_eq!(state.in_progress, None);
}

#[test]
fn r_w1_a_merge_in_progress_and_its_conflicts_are_named() {
    let world = World::new();
    world.git(&["checkout", "-q", "-b", "side"]);
    world.write("src/a.rs", "side\n");
    world.commit("side");
    world.git(&["checkout", "-q", "main"]);
    world.write("src/a.rs", "main\n");
    world.commit("main");
    assert!(!world.try_git_in(&world.root, &["merge", "side"]).status.success());
    let state = world.repo().state(&[]).unwrap();
    assert_eq!((state.in_progress, state.conflicted), (Some("merge"), vec!["src/a.rs".to_owned()]));
    world.git(&["merge", "--abort"]);
    assert!(!world.try_git_in(&world.root, &["rebase", "side"]).status.success());
    assert_eq!(world.repo().state(&[]).unwrap().in_progress, Some("rebase"));
}

#[test]
fn r_w1_modes_types_and_links_count() {
    let world = World::new();
    fs::set_permissions(world.root.join("src/a.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(world.root.join("src/b.rs")).unwrap();
    symlink("a.rs", world.root.join("src/b.rs")).unwrap();
    assert_eq!(world.repo().state(&[]).unwrap().unstaged, ["src/a.rs", "src/b.rs"]);
}

#[test]
fn r_w1_clean_means_what_git_status_says() {
    let world = World::new();
    write(&world.beside("home/.config/git/ignore"), "*.swp\n");
    write(&world.beside("home/.gitconfig"), "[core]\n\tautocrlf = input\n");
    world.write("x.swp", "x\n");
    world.write("windows.txt", "a\r\nb\r\n");
    world.git(&["-c", "core.autocrlf=input", "add", "windows.txt"]);
    world.git(&["commit", "-q", "-m", "crlf"]);
    // Written again, so that nobody believes the index without reading.
    world.write("windows.txt", "a\r\nb\r\n");
    let user = UserGit { home: Some(world.beside("home")), ..UserGit::default() };
    let repo = Repo::discover_for(&world.root, &user).unwrap();
    assert_eq!(repo.state(&[]).unwrap().paths(), Vec::<String>::new());
    assert_eq!(world.repo().state(&[]).unwrap().paths(), ["windows.txt", "x.swp"], "without the user's own settings");
    write(&world.beside("home/excludes"), "*.bak\n");
    write(&world.beside("home/.gitconfig"), "[core]\n\tautocrlf = input\n\texcludesFile = ~/excludes\n");
    world.write("y.bak", "x\n");
    let repo = Repo::discover_for(&world.root, &user).unwrap();
    assert_eq!(repo.state(&[]).unwrap().paths(), ["x.swp"]);
    world.write(".git/info/exclude", "*.swp\n");
    assert!(repo.state(&[]).unwrap().is_clean());
}

#[test]
fn user_git_reads_the_environment_through_its_parameter() {
    let user = UserGit::from_env(|name| (name == "HOME").then(|| "/home/ann".into()));
    assert_eq!(user.home.as_deref(), Some(Path::new("/home/ann")));
    assert_eq!(user.system.as_deref(), Some(Path::new("/etc/gitconfig")));
    let user = UserGit::from_env(|name| (name == "GIT_CONFIG_NOSYSTEM").then(|| "1".into()));
    assert_eq!(user, UserGit::default());
}

#[test]
fn r_w1_a_sparse_checkout_is_clean_and_its_copy_is_full() {
    for cone in ["--cone", "--no-cone"] {
        let world = World::new();
        world.write("other/x.txt", "x\n");
        world.commit("other");
        world.git(&["sparse-checkout", "set", cone, "src"]);
        assert!(!world.root.join("other").exists());
        let repo = world.repo();
        assert!(repo.state(&[]).unwrap().is_clean(), "{cone}");
        assert!(world.workspace().dir().join("other/x.txt").exists());
        world.write("other/x.txt", "there all the same\n");
        assert_eq!(repo.state(&[]).unwrap().unstaged, ["other/x.txt"], "{cone}");
        fs::remove_dir_all(world.root.join("other")).unwrap();

        let in_place = Workspace::in_place(&repo, &world.beside("work/i")).unwrap();
        world.write("src/a.rs", "agent\n");
        let snapshot = in_place.snapshot(&world.head(), "s").unwrap();
        assert!(world.files(&snapshot.commit).contains(&"other/x.txt".to_owned()), "{cone}");
        assert_eq!(snapshot.warnings, Vec::<String>::new());
        in_place.restore(&world.head()).unwrap();
        assert!(!world.root.join("other").exists() && world.git(&["status", "--porcelain"]).is_empty(), "{cone}");
    }
}

#[test]
fn f85_fr_i8_looking_takes_no_lock_and_writes_no_index() {
    let world = World::new();
    world.write("src/a.rs", "changed\n");
    let git_dir = world.root.join(".git");
    fs::write(git_dir.join("index.lock"), "held by a live git").unwrap();
    let index = fs::read(git_dir.join("index")).unwrap();
    let touched = || fs::metadata(&git_dir).unwrap().modified().unwrap();
    let before = touched();
    let repo = world.repo();
    let state = repo.state(&[]).unwrap();
    assert_eq!(state.unstaged, ["src/a.rs"]);
    repo.context_files(&world.head(), &["**".into()], Overlay::Dirty(&state)).unwrap();
    let copy = world.workspace();
    write(&copy.dir().join("x.txt"), "x\n");
    world.snapshot(&copy);
    copy.restore(&world.head()).unwrap();
    let in_place = Workspace::in_place(&repo, &world.beside("work/i")).unwrap();
    in_place.snapshot(&world.head(), "s").unwrap();
    // A lock that comes and goes changes the folder's time, so this sees even one that is gone again.
    assert_eq!(touched(), before);
    assert_eq!(fs::read(git_dir.join("index")).unwrap(), index);
    assert!(git_dir.join("index.lock").exists(), "F84: a live lock is never deleted");
}

#[test]
fn f84_apply_waits_for_nobody_and_deletes_no_lock() {
    let world = World::new();
    let base = world.head();
    let copy = world.workspace();
    write(&copy.dir().join("x.txt"), "x\n");
    let tip = world.snapshot(&copy).commit;
    fs::write(world.root.join(".git/index.lock"), "").unwrap();
    let error = world.repo().apply_to_checkout(&base, &tip).unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    assert!(!world.root.join("x.txt").exists());
    assert!(world.root.join(".git/index.lock").exists());
}

#[test]
fn r_f2_context_files_are_those_of_the_commit() {
    let world = World::new();
    symlink("a.rs", world.root.join("src/link")).unwrap();
    world.write("src/deep/c.rs", "c\n");
    fs::set_permissions(world.root.join("src/deep/c.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    world.commit("more");
    let repo = world.repo();
    let files = |globs: &[&str]| {
        let globs: Vec<_> = globs.iter().map(|&glob| glob.to_owned()).collect();
        repo.context_files(&world.head(), &globs, Overlay::Commit).unwrap()
    };
    let names = |globs: &[&str]| files(globs).into_iter().map(|file| file.path).collect::<Vec<_>>();
    assert_eq!(names(&["src/*.rs"]), ["src/a.rs", "src/b.rs"]);
    assert_eq!(names(&["src/**"]), ["src/a.rs", "src/b.rs", "src/deep/c.rs", "src/link"]);
    assert_eq!(names(&["src/deep/c.rs", "*.md"]), ["README.md", "src/deep/c.rs"]);
    assert_eq!(names(&["{README,none}.md", "**/c.rs"]), ["README.md", "src/deep/c.rs"]);
    assert_eq!(names(&[]), Vec::<String>::new());
    let all = files(&["**"]);
    let expected = world.git(&["ls-tree", "-r", "HEAD"]);
    let ours: Vec<_> = all.iter().map(|file| format!("{} blob {}\t{}", file.mode, file.blob, file.path)).collect();
    assert_eq!(ours.join("\n"), expected);
    assert!(repo.context_files(&world.head(), &["[".into()], Overlay::Commit).is_err());
}

#[test]
fn r_f2_uncommitted_files_count_as_they_are_on_disk() {
    let world = World::new();
    let clean = world.repo().context_files(&world.head(), &["**".into()], Overlay::Commit).unwrap();
    world.write("src/a.rs", "changed\n");
    world.write("src/new.rs", "new\n");
    world.write("outside.txt", "o\n");
    fs::remove_file(world.root.join("src/b.rs")).unwrap();
    let repo = world.repo();
    let state = repo.state(&[]).unwrap();
    let files = repo.context_files(&world.head(), &["src/**".into()], Overlay::Dirty(&state)).unwrap();
    let line = |file: &crate::domain::hash::context::ContextFile| format!("{} {} {}", file.mode, file.blob, file.path);
    let hash = |path| world.git(&["hash-object", "--no-filters", path]);
    let expected = [
        format!("100644 {} src/a.rs", hash("src/a.rs")),
        "000000 deleted src/b.rs".to_owned(),
        format!("100644 {} src/new.rs", hash("src/new.rs")),
    ];
    assert_eq!(files.iter().map(line).collect::<Vec<_>>(), expected);
    let dirty: Vec<_> = repo.dirty_files(&state).unwrap().into_iter().map(|file| file.path).collect();
    assert_eq!(dirty, ["outside.txt", "src/a.rs", "src/b.rs", "src/new.rs"]);
    assert_eq!(
        repo.context_files(&world.head(), &["**".into()], Overlay::Commit).unwrap(),
        clean,
        "the commit did not change"
    );
}

#[test]
fn a_name_that_is_no_text_is_written_visibly() {
    let world = World::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(world.root.join(name), "x\n").unwrap();
    let repo = world.repo();
    let state = repo.state(&[]).unwrap();
    assert_eq!(state.untracked, ["caf\\xe9.txt"]);
    let copy = world.workspace();
    copy.overlay_dirty(&repo, &state).unwrap();
    assert!(copy.dir().join(name).exists());
    assert_eq!(repo.dirty_files(&state).unwrap()[0].path, "caf\\xe9.txt");
}

#[test]
fn r_w1_submodules_and_lfs_pointers_are_said() {
    let world = World::new();
    world.git_in(&world.base(), &["init", "-q", "sub"]);
    let sub = world.beside("sub");
    write(&sub.join("s.txt"), "s\n");
    world.git_in(&sub, &["add", "-A"]);
    world.git_in(&sub, &["commit", "-q", "-m", "sub"]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 1\n";
    world.write("big.bin", pointer);
    world.write("told.txt", pointer);
    let before = world.commit("pointer");
    assert_eq!(world.repo().notes(&before).unwrap().lfs_pointers, Vec::<String>::new(), "no attribute, no look");
    world.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.to_str().unwrap(), "libs/sub"]);
    world.write(".gitattributes", "*.bin filter=lfs\n");
    let head = world.commit("submodule");
    let notes = world.repo().notes(&head).unwrap();
    assert_eq!(notes.submodules, ["libs/sub"]);
    assert_eq!(notes.lfs_pointers, ["big.bin", "told.txt"]);
    let copy = world.workspace();
    let snapshot = world.snapshot(&copy);
    assert_eq!((snapshot.commit, snapshot.warnings.len()), (head, 0), "an empty submodule is no change");
    write(&copy.dir().join("libs/sub/edited"), "e\n");
    assert!(world.snapshot(&copy).warnings[0].contains("libs/sub"));
}
