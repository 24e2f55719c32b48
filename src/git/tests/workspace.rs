//! The copy that a run works in: made, snapshotted, put back, removed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::thread;

use super::world::{World, write};
use crate::domain::failure::Code;
use crate::git::{Repo, UserGit, Workspace};

#[test]
fn r_w2_a_copy_has_the_commit_and_leaves_the_checkout_alone() {
    let world = World::new();
    let copy = world.workspace();
    assert_eq!(fs::read_to_string(copy.dir().join("src/a.rs")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(world.git_in(copy.dir(), &["status", "--porcelain"]), "");
    assert_eq!(world.git_in(copy.dir(), &["rev-parse", "HEAD"]), world.head());
    assert_eq!(world.git_in(copy.dir(), &["branch", "--show-current"]), "agentrun/run_1_001");
    write(&copy.dir().join("src/a.rs"), "changed\n");
    let snapshot = world.snapshot(&copy);
    assert_eq!(world.show(&snapshot.commit, "src/a.rs"), "changed");
    assert!(snapshot.changed);
    assert_eq!(snapshot.warnings, Vec::<String>::new());
    assert_eq!(world.git(&["rev-parse", &format!("{}^", snapshot.commit)]), world.head());
    assert_eq!(world.git(&["status", "--porcelain"]), "", "the checkout was not touched");
}

#[test]
fn r_w2_a_snapshot_of_an_unchanged_copy_is_the_base() {
    let world = World::new();
    let copy = world.workspace();
    let snapshot = world.snapshot(&copy);
    assert_eq!((snapshot.commit, snapshot.changed, snapshot.agent_commits), (world.head(), false, 0));
}

#[test]
fn fr_h20_a_copy_of_a_dirty_checkout_has_only_the_commit() {
    let world = World::new();
    world.write("README.md", "dirty\n");
    world.write("new.txt", "new\n");
    let copy = world.workspace();
    assert_eq!(fs::read_to_string(copy.dir().join("README.md")).unwrap(), "hello\n");
    write(&copy.dir().join("src/b.rs"), "agent\n");
    let snapshot = world.snapshot(&copy);
    let repo = world.repo();
    let changed: Vec<_> = repo.changes(&world.head(), &snapshot.commit).unwrap().into_iter().map(|c| c.path).collect();
    assert_eq!(changed, ["src/b.rs"]);
}

#[test]
fn fr_h5_meant_changes_come_into_the_copy_and_links_stay_links() {
    let world = World::new();
    world.write("README.md", "dirty\n");
    world.write("new/x.txt", "new\n");
    fs::remove_file(world.root.join("src/b.rs")).unwrap();
    symlink("/etc/passwd", world.root.join("link")).unwrap();
    fs::set_permissions(world.root.join("src/a.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    let repo = world.repo();
    let state = repo.state(&[]).unwrap();
    let copy = world.workspace();
    copy.overlay_dirty(&repo, &state).unwrap();
    assert_eq!(fs::read_to_string(copy.dir().join("README.md")).unwrap(), "dirty\n");
    assert_eq!(fs::read_to_string(copy.dir().join("new/x.txt")).unwrap(), "new\n");
    assert!(!copy.dir().join("src/b.rs").exists());
    assert_eq!(fs::read_link(copy.dir().join("link")).unwrap().to_str(), Some("/etc/passwd"));
    world.git(&["add", "-A"]);
    assert_eq!(world.snapshot(&copy).tree, world.git(&["write-tree"]));
}

#[test]
fn fr_h22_the_agents_own_commits_are_kept() {
    let world = World::new();
    let copy = world.workspace();
    write(&copy.dir().join("one.txt"), "1\n");
    world.git_in(copy.dir(), &["add", "-A"]);
    world.git_in(copy.dir(), &["commit", "-q", "-m", "agent one"]);
    write(&copy.dir().join("dir/two.txt"), "2\n");
    world.git_in(copy.dir(), &["add", "-A"]);
    world.git_in(copy.dir(), &["commit", "-q", "-m", "agent two"]);
    let head = world.git_in(copy.dir(), &["rev-parse", "HEAD"]);
    let snapshot = world.snapshot(&copy);
    assert_eq!((snapshot.commit.as_str(), snapshot.agent_commits), (head.as_str(), 2));
    assert_eq!(snapshot.warnings, Vec::<String>::new());
    world.git(&["fsck", "--connectivity-only", &head]);
    assert_eq!(world.git(&["log", "--format=%s", &head]), "agent two\nagent one\nfirst");

    write(&copy.dir().join("three.txt"), "3\n");
    let snapshot = world.snapshot(&copy);
    assert_eq!(snapshot.agent_commits, 2, "uncommitted work goes on top");
    assert_eq!(world.git(&["rev-parse", &format!("{}^", snapshot.commit)]), head);
}

#[test]
fn fr_h22_commits_survive_a_repack_in_the_copy() {
    let world = World::new();
    let copy = world.workspace();
    for n in 0..3 {
        write(&copy.dir().join(format!("{n}.txt")), &format!("{n}\n"));
        world.git_in(copy.dir(), &["add", "-A"]);
        world.git_in(copy.dir(), &["commit", "-q", "-m", "agent"]);
    }
    world.git_in(copy.dir(), &["gc", "-q", "--prune=now"]);
    let snapshot = world.snapshot(&copy);
    assert_eq!((snapshot.agent_commits, snapshot.warnings.len()), (3, 0), "{:?}", snapshot.warnings);
    world.git(&["fsck", "--connectivity-only", &snapshot.commit]);
}

#[test]
fn a_commit_that_leads_elsewhere_gives_its_files_and_a_warning() {
    let world = World::new();
    world.write("more.txt", "x\n");
    world.commit("second");
    let copy = world.workspace();
    world.git_in(copy.dir(), &["checkout", "-q", "HEAD^"]);
    write(&copy.dir().join("side.txt"), "s\n");
    world.git_in(copy.dir(), &["add", "-A"]);
    world.git_in(copy.dir(), &["commit", "-q", "-m", "side"]);
    let snapshot = world.snapshot(&copy);
    assert_eq!(snapshot.agent_commits, 0);
    assert!(snapshot.warnings[0].contains("does not descend"), "{:?}", snapshot.warnings);
    assert!(world.files(&snapshot.commit).contains(&"side.txt".to_owned()));
}

#[test]
fn r_w3_restore_makes_the_copy_equal_and_keeps_ignored_files() {
    let world = World::new();
    let copy = world.workspace();
    write(&copy.dir().join("src/a.rs"), "changed\n");
    write(&copy.dir().join("new/deep/x.txt"), "x\n");
    write(&copy.dir().join("target/cache"), "kept\n");
    fs::remove_file(copy.dir().join("README.md")).unwrap();
    fs::remove_file(copy.dir().join("src/b.rs")).unwrap();
    fs::create_dir(copy.dir().join("src/b.rs")).unwrap();
    write(&copy.dir().join("src/b.rs/inner"), "i\n");
    world.git_in(copy.dir(), &["add", "-A"]);
    world.git_in(copy.dir(), &["commit", "-q", "-m", "agent"]);
    copy.restore(&world.head()).unwrap();
    assert_eq!(world.git_in(copy.dir(), &["status", "--porcelain"]), "");
    assert_eq!(world.git_in(copy.dir(), &["rev-parse", "HEAD"]), world.head());
    assert!(!copy.dir().join("new").exists());
    assert!(copy.dir().join("target/cache").exists());
    assert_eq!(world.snapshot(&copy).commit, world.head());
    assert!(world.beside("work/run_1_001.git.1").exists(), "the agent's objects are kept beside");
}

#[test]
fn r_w3_a_change_that_keeps_size_and_time_is_seen() {
    let world = World::new();
    let copy = world.workspace();
    world.snapshot(&copy);
    let file = copy.dir().join("src/b.rs");
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "x\n").unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    assert!(world.snapshot(&copy).changed);
    copy.restore(&world.head()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "b\n");
}

#[test]
fn r_w3_a_gitignore_of_the_agents_hides_nothing_from_a_restore() {
    let world = World::new();
    let copy = world.workspace();
    write(&copy.dir().join(".gitignore"), "*\n");
    write(&copy.dir().join("left.txt"), "x\n");
    copy.restore(&world.head()).unwrap();
    assert!(!copy.dir().join("left.txt").exists());
    assert_eq!(world.git_in(copy.dir(), &["status", "--porcelain"]), "");
}

#[test]
fn fr_h28_a_half_deleted_tree_is_no_mass_deletion() {
    let world = World::new();
    for n in 0..20 {
        world.write(&format!("lib/{n}.txt"), &format!("{n}\n"));
    }
    let base = world.commit("many");
    let copy = world.workspace();
    fs::remove_dir_all(copy.dir().join("lib")).unwrap();
    write(&copy.dir().join("added.txt"), "kept\n");
    assert!(copy.is_half_deleted(&base).unwrap());
    let snapshot = copy.snapshot(&base, "salvage").unwrap();
    let files = world.files(&snapshot.commit);
    assert!(files.contains(&"added.txt".to_owned()) && files.contains(&"lib/7.txt".to_owned()));
    assert!(snapshot.warnings[0].starts_with("20 of 24 tracked files are gone"), "{:?}", snapshot.warnings);
    let lost = Workspace::open(&world.repo(), copy.dir()).unwrap_err();
    assert_eq!(lost.code(), Code::WorkspaceLost);
}

#[test]
fn fr_h28_moved_and_committed_removals_are_meant() {
    let world = World::new();
    for n in 0..20 {
        world.write(&format!("lib/{n}.txt"), &format!("{n}\n"));
    }
    let base = world.commit("many");
    let moved = world.workspace_named("moved");
    fs::rename(moved.dir().join("lib"), moved.dir().join("src/lib")).unwrap();
    assert!(!moved.is_half_deleted(&base).unwrap());
    Workspace::open(&world.repo(), moved.dir()).unwrap();
    let snapshot = moved.snapshot(&base, "moved").unwrap();
    assert!(!world.files(&snapshot.commit).contains(&"lib/7.txt".to_owned()));

    let committed = world.workspace_named("committed");
    world.git_in(committed.dir(), &["rm", "-r", "-q", "lib"]);
    world.git_in(committed.dir(), &["commit", "-q", "-m", "drop lib"]);
    let snapshot = committed.snapshot(&base, "dropped").unwrap();
    assert_eq!(snapshot.agent_commits, 1);
    assert!(!world.files(&snapshot.commit).contains(&"lib/7.txt".to_owned()));
}

#[test]
fn a_small_deletion_is_recorded() {
    let world = World::new();
    let copy = world.workspace();
    fs::remove_file(copy.dir().join("README.md")).unwrap();
    assert!(!copy.is_half_deleted(&world.head()).unwrap());
    assert!(!world.files(&world.snapshot(&copy).commit).contains(&"README.md".to_owned()));
}

#[test]
fn files_that_are_tracked_and_ignored_at_once_stay() {
    let world = World::new();
    world.write("kept.log", "tracked\n");
    world.git(&["add", "-f", "kept.log"]);
    let base = world.commit("log");
    let copy = world.workspace();
    fs::remove_file(world.beside("work/run_1_001.index")).unwrap();
    fs::rename(copy.dir().join(".git/index"), world.beside("index")).unwrap();
    assert_eq!(copy.snapshot(&base, "s").unwrap().commit, base, "also without any index");
    fs::rename(world.beside("index"), copy.dir().join(".git/index")).unwrap();
    write(&copy.dir().join("forced.log"), "by the agent\n");
    world.git_in(copy.dir(), &["add", "-f", "forced.log"]);
    let snapshot = copy.snapshot(&base, "s").unwrap();
    assert!(world.files(&snapshot.commit).contains(&"forced.log".to_owned()));
}

#[test]
fn newest_change_is_the_youngest_differing_file() {
    let world = World::new();
    let copy = world.workspace();
    assert_eq!(copy.newest_change_ms(&world.head()).unwrap(), None);
    for (name, seconds) in [("old.txt", 1_000), ("young.txt", 2_000)] {
        write(&copy.dir().join(name), "x\n");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(seconds * 1000 + 7);
        fs::File::options().write(true).open(copy.dir().join(name)).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(copy.newest_change_ms(&world.head()).unwrap(), Some(2_000_007));
    fs::remove_file(copy.dir().join("README.md")).unwrap();
    assert!(copy.newest_change_ms(&world.head()).unwrap() > Some(2_000_007));
}

#[test]
fn fr_h17_removal_stays_below_its_root() {
    let world = World::new();
    let copy = world.workspace();
    let dir = copy.dir().to_owned();
    let other = world.beside("home");
    assert_eq!(copy.remove(&other).unwrap_err().code(), Code::GitTamper);
    assert!(dir.exists());

    let copy = Workspace::open(&world.repo(), &dir).unwrap();
    let elsewhere = world.beside("elsewhere");
    fs::rename(&dir, &elsewhere).unwrap();
    symlink(&elsewhere, &dir).unwrap();
    assert_eq!(copy.remove(&world.beside("work")).unwrap_err().code(), Code::GitTamper);
    assert!(elsewhere.join("README.md").exists());

    fs::remove_file(&dir).unwrap();
    fs::rename(&elsewhere, &dir).unwrap();
    symlink(world.root.join("src"), dir.join("out")).unwrap();
    let copy = Workspace::open(&world.repo(), &dir).unwrap();
    copy.remove(&world.beside("work")).unwrap();
    assert_eq!(fs::read_dir(world.beside("work")).unwrap().count(), 0);
    assert!(world.root.join("src/a.rs").exists());
}

#[test]
fn fr_h11_leftovers_of_a_crash_are_no_obstacle() {
    let world = World::new();
    write(&world.beside("work/run_1_001.new/half"), "made");
    write(&world.beside("work/run_1_001.index"), "torn");
    let copy = world.workspace();
    assert!(!copy.dir().join("half").exists());
    let again = Workspace::create(&world.repo(), copy.dir(), &world.head());
    assert_eq!(again.unwrap_err().code(), Code::StoreIo, "what is there is never overwritten");
}

#[test]
fn fr_h10_a_copy_that_is_gone_is_lost() {
    let world = World::new();
    let copy = world.workspace();
    fs::remove_dir_all(copy.dir()).unwrap();
    let lost = Workspace::open(&world.repo(), copy.dir()).unwrap_err();
    assert_eq!(lost.code(), Code::WorkspaceLost);
}

#[test]
fn fr_i1_fr_i2_sixteen_copies_at_once() {
    let world = World::new();
    let head = world.head();
    thread::scope(|scope| {
        for n in 0..16 {
            let (world, head) = (&world, &head);
            scope.spawn(move || {
                let repo = world.repo();
                let dir = world.beside(&format!("work/run_{n}"));
                let copy = Workspace::create(&repo, &dir, head).unwrap();
                write(&dir.join("mine.txt"), &format!("{n}\n"));
                let snapshot = copy.snapshot(head, "s").unwrap();
                repo.pin(&format!("run_{n}"), "last", &snapshot.commit).unwrap();
                repo.set_branch(&format!("run_{n}"), &snapshot.commit, None).unwrap();
                assert_eq!(
                    repo.read_file_at(&snapshot.commit, "mine.txt").unwrap(),
                    Some(format!("{n}\n").into_bytes())
                );
            });
        }
    });
    assert_eq!(world.repo().run_names().unwrap().len(), 16);
    world.git(&["fsck"]);
    assert_eq!(world.git(&["branch", "--list"]).lines().count(), 17);
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn r_w2_a_nested_repository_loses_no_files() {
    let world = World::new();
    let copy = world.workspace();
    let nested = copy.dir().join("vendor/lib");
    write(&nested.join("x.c"), "x\n");
    world.git_in(&nested, &["init", "-q"]);
    world.git_in(&nested, &["add", "-A"]);
    world.git_in(&nested, &["commit", "-q", "-m", "nested"]);
    let snapshot = world.snapshot(&copy);
    assert!(world.files(&snapshot.commit).contains(&"vendor/lib/x.c".to_owned()));
    assert!(snapshot.warnings[0].contains("vendor/lib"), "{:?}", snapshot.warnings);
    let again = world.snapshot(&copy);
    assert_eq!(again.tree, snapshot.tree, "stable");
    copy.restore(&world.head()).unwrap();
    assert!(!nested.join("x.c").exists());
}

#[test]
fn r_w2_a_shallow_clone_works() {
    let world = World::new();
    world.write("more.txt", "m\n");
    world.commit("second");
    let url = format!("file://{}", world.root.display());
    world.git_in(&world.base(), &["clone", "-q", "--depth=1", &url, "shallow"]);
    let repo = Repo::discover(&world.beside("shallow")).unwrap();
    let head = repo.head().unwrap().commit;
    let copy = Workspace::create(&repo, &world.beside("work/s"), &head).unwrap();
    assert_eq!(world.git_in(copy.dir(), &["log", "--format=%s"]), "second");
    write(&copy.dir().join("agent.txt"), "a\n");
    world.git_in(copy.dir(), &["add", "-A"]);
    world.git_in(copy.dir(), &["commit", "-q", "-m", "agent"]);
    let snapshot = copy.snapshot(&head, "s").unwrap();
    assert_eq!((snapshot.agent_commits, snapshot.warnings.len()), (1, 0), "{:?}", snapshot.warnings);
}

#[test]
fn r_w2_a_linked_worktree_works_and_shares_its_home() {
    let world = World::new();
    world.git(&["worktree", "add", "-q", "-b", "side", "../linked"]);
    let linked = world.beside("linked");
    write(&linked.join("side.txt"), "s\n");
    world.git_in(&linked, &["add", "-A"]);
    world.git_in(&linked, &["commit", "-q", "-m", "side"]);
    let repo = Repo::discover(&linked.join("src")).unwrap();
    assert_eq!(repo.root(), linked);
    assert_eq!(repo.main_root(), world.root);
    assert_eq!(repo.head().unwrap().branch.as_deref(), Some("side"));
    assert!(repo.state(&[]).unwrap().is_clean());
    let head = repo.head().unwrap().commit;
    let copy = Workspace::create(&repo, &world.beside("work/l"), &head).unwrap();
    assert!(copy.dir().join("side.txt").exists());
    assert_eq!(copy.snapshot(&head, "s").unwrap().commit, head);
}

#[test]
fn r_w2_in_place_only_working_files_are_written() {
    let world = World::new();
    let repo = world.repo();
    let head = world.head();
    let index = fs::read(world.root.join(".git/index")).unwrap();
    let workspace = Workspace::in_place(&repo, &world.beside("work/private")).unwrap();
    world.write("src/a.rs", "agent\n");
    world.write("new.txt", "n\n");
    let snapshot = workspace.snapshot(&head, "s").unwrap();
    assert_eq!(world.show(&snapshot.commit, "new.txt"), "n");
    workspace.restore(&head).unwrap();
    assert!(!world.root.join("new.txt").exists());
    assert_eq!(fs::read(world.root.join(".git/index")).unwrap(), index);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    let root = world.root.clone();
    workspace.remove(&world.base()).unwrap();
    assert!(root.exists() && !world.beside("work/private").exists());
}

#[test]
fn r_w2_an_agent_can_commit_as_the_user_and_describe_tags() {
    let world = World::new();
    world.git(&["tag", "-a", "v1", "-m", "one"]);
    write(&world.beside("home/.gitconfig"), "[user]\n\tname = Ann \\\"Q\\\" Lee\n\temail = ann@example.com\n");
    let user = UserGit { home: Some(world.beside("home")), ..UserGit::default() };
    let repo = Repo::discover_for(&world.root, &user).unwrap();
    let copy = Workspace::create(&repo, &world.beside("work/a"), &world.head()).unwrap();
    assert_eq!(world.git_in(copy.dir(), &["config", "user.name"]), "Ann \"Q\" Lee");
    assert_eq!(world.git_in(copy.dir(), &["describe"]), "v1");
    assert_eq!(world.git_in(copy.dir(), &["rev-parse", "main"]), world.head());
}

#[test]
fn r_w2_line_ends_and_attributes_count_in_the_copy() {
    let world = World::new();
    world.write("plain.txt", "a\nb\n");
    world.commit("plain");
    write(&world.beside("home/.gitconfig"), "[core]\n\tautocrlf = true\n");
    let user = UserGit { home: Some(world.beside("home")), ..UserGit::default() };
    let repo = Repo::discover_for(&world.root, &user).unwrap();
    let copy = Workspace::create(&repo, &world.beside("work/crlf"), &world.head()).unwrap();
    assert_eq!(fs::read_to_string(copy.dir().join("plain.txt")).unwrap(), "a\r\nb\r\n");
    assert_eq!(copy.snapshot(&world.head(), "s").unwrap().commit, world.head());

    world.write(".gitattributes", "*.bat text eol=crlf\n");
    world.write("run.bat", "a\r\n");
    world.commit("attributes");
    let copy = world.workspace();
    assert_eq!(fs::read_to_string(copy.dir().join("run.bat")).unwrap(), "a\r\n");
    assert_eq!(fs::read_to_string(copy.dir().join("plain.txt")).unwrap(), "a\nb\n");
    assert_eq!(world.snapshot(&copy).commit, world.head());
}
