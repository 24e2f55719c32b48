//! Nothing that a repository or an agent prepares runs code, leads elsewhere or makes us wait (R-W5, F81 to F83).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::world::{World, write};
use crate::domain::failure::Code;
use crate::git::{Overlay, Repo, UserGit, Workspace, tampering};

/// What an attacker sets: configuration lines (`@` stands for the program that leaves a trace) and attributes.
struct Trap {
    name: &'static str,
    config: &'static str,
    attributes: &'static str,
    /// A git command that springs it, to prove that it is one.
    proof: &'static [&'static str],
}

const fn trap(
    name: &'static str,
    config: &'static str,
    attributes: &'static str,
    proof: &'static [&'static str],
) -> Trap {
    Trap { name, config, attributes, proof }
}

const TRAPS: [Trap; 22] = [
    trap("fsmonitor", "[core]\n\tfsmonitor = @\n", "", &["status"]),
    trap("hooksPath", "[core]\n\thooksPath = HOOKS\n", "", &["commit", "--allow-empty", "-m", "x"]),
    trap("hooks", "", "", &["commit", "--allow-empty", "-m", "x"]),
    trap("filter clean", "[filter \"x\"]\n\tclean = @\n", "* filter=x\n", &["add", "--renormalize", "."]),
    trap("filter smudge", "[filter \"x\"]\n\tsmudge = @\n", "* filter=x\n", &["checkout", "HEAD", "--", "src/b.rs"]),
    trap("filter process", "[filter \"x\"]\n\tprocess = @\n", "* filter=x\n", &["add", "--renormalize", "."]),
    trap("diff external", "[diff]\n\texternal = @\n", "", &["diff", "HEAD"]),
    trap("diff command", "[diff \"x\"]\n\tcommand = @\n", "* diff=x\n", &["diff", "HEAD"]),
    trap("diff textconv", "[diff \"x\"]\n\ttextconv = @\n", "* diff=x\n", &["diff", "HEAD"]),
    trap("merge driver", "[merge \"x\"]\n\tname = x\n\tdriver = @\n", "* merge=x\n", &[]),
    trap("ssh", "[core]\n\tsshCommand = @\n[remote \"origin\"]\n\turl = ssh://x/y\n", "", &["fetch", "origin"]),
    trap("git proxy", "[core]\n\tgitProxy = @\n[remote \"origin\"]\n\turl = git://x/y\n", "", &["fetch", "origin"]),
    trap("alternate refs", "[core]\n\talternateRefsCommand = @\n", "", &[]),
    trap("gpg", "[gpg]\n\tprogram = @\n[commit]\n\tgpgSign = true\n", "", &["commit", "--allow-empty", "-m", "x"]),
    trap("editor", "[core]\n\teditor = @\n", "", &["commit", "--allow-empty"]),
    trap("alias", "[alias]\n\tzz = !@\n", "", &["zz"]),
    trap("include", "[include]\n\tpath = INCLUDED\n", "", &["status"]),
    trap("conditional include", "[includeIf \"gitdir:/\"]\n\tpath = INCLUDED\n", "", &["status"]),
    trap(
        "attributes file",
        "[core]\n\tattributesFile = ATTRIBUTES\n[filter \"x\"]\n\tclean = @\n",
        "",
        &["add", "--renormalize", "."],
    ),
    trap("credential helper", "[credential]\n\thelper = @\n", "", &[]),
    trap("upload pack", "[uploadpack]\n\tpackObjectsHook = @\n", "", &[]),
    trap("pager", "[core]\n\tpager = @\n[pager]\n\tstatus = @\n", "", &[]),
];

/// The program, the trace it leaves, and everything around it.
struct Bait {
    program: PathBuf,
    trace: PathBuf,
}

impl Bait {
    fn new(world: &World) -> Self {
        let bait = Self { program: world.beside("bait.sh"), trace: world.beside("TRACE") };
        write(&bait.program, &format!("#!/bin/sh\necho \"$0 $*\" >> {}\n", bait.trace.display()));
        fs::set_permissions(&bait.program, fs::Permissions::from_mode(0o755)).unwrap();
        hooks(&bait, &world.beside("hooks"));
        write(&world.beside("included"), &format!("[core]\n\tfsmonitor = {}\n", bait.program.display()));
        write(&world.beside("attributes"), "* filter=x\n");
        bait
    }

    /// Sets a trap in a git folder.
    fn set(&self, trap: &Trap, world: &World, git_dir: &Path) {
        let config = trap.config.replace('@', self.program.to_str().unwrap());
        let config = config.replace("HOOKS", world.beside("hooks").to_str().unwrap());
        let config = config.replace("INCLUDED", world.beside("included").to_str().unwrap());
        let config = config.replace("ATTRIBUTES", world.beside("attributes").to_str().unwrap());
        let file = git_dir.join("config");
        fs::write(&file, fs::read_to_string(&file).unwrap() + &config).unwrap();
        if !trap.attributes.is_empty() {
            write(&git_dir.join("info/attributes"), trap.attributes);
        }
        if trap.name == "hooks" {
            hooks(self, &git_dir.join("hooks"));
        }
    }

    fn sprung(&self) -> Option<String> {
        fs::read_to_string(&self.trace).ok()
    }
}

fn hooks(bait: &Bait, folder: &Path) {
    for name in [
        "pre-commit",
        "post-commit",
        "post-checkout",
        "post-merge",
        "post-index-change",
        "reference-transaction",
        "prepare-commit-msg",
        "commit-msg",
        "pre-auto-gc",
        "fsmonitor-watchman",
    ] {
        fs::create_dir_all(folder).unwrap();
        let _ = fs::remove_file(folder.join(name));
        symlink(&bait.program, folder.join(name)).unwrap();
    }
}

/// Every call of the room that touches the repository.
fn every_call(world: &World) {
    let repo = Repo::discover(&world.root).unwrap();
    let head = repo.head().unwrap().commit;
    repo.resolve("HEAD").unwrap();
    let state = repo.state(&[]).unwrap();
    repo.notes(&head).unwrap();
    repo.context_files(&head, &["**".into()], Overlay::Dirty(&state)).unwrap();
    repo.dirty_files(&state).unwrap();
    repo.guard().unwrap();
    let copy = Workspace::create(&repo, &world.beside("work/c"), &head).unwrap();
    copy.overlay_dirty(&repo, &state).unwrap();
    write(&copy.dir().join("agent.txt"), "a\n");
    let snapshot = copy.snapshot(&head, "s").unwrap();
    copy.newest_change_ms(&head).unwrap();
    copy.is_half_deleted(&head).unwrap();
    repo.pin("r", "s", &snapshot.commit).unwrap();
    repo.set_branch("r", &snapshot.commit, repo.branch("r").unwrap().as_deref()).unwrap();
    let patch = repo.patch(&head, &snapshot.commit).unwrap();
    repo.changes(&head, &snapshot.commit).unwrap();
    copy.restore(&head).unwrap();
    copy.apply_patch(&patch).unwrap();
    let copy = Workspace::open(&repo, copy.dir()).unwrap();
    copy.guard().unwrap();
    copy.remove(&world.beside("work")).unwrap();
    let in_place = Workspace::in_place(&repo, &world.beside("work/i")).unwrap();
    in_place.snapshot(&head, "s").unwrap();
    in_place.restore(&head).unwrap();
    in_place.remove(&world.base()).unwrap();
    repo.apply_to_checkout(&head, &snapshot.commit).unwrap();
    repo.unpin("r").unwrap();
}

#[test]
fn f82_no_key_hook_or_driver_in_the_users_git_runs() {
    let world = World::new();
    let bait = Bait::new(&world);
    let git_dir = world.root.join(".git");
    let clean = fs::read_to_string(git_dir.join("config")).unwrap();
    for trap in &TRAPS {
        bait.set(trap, &world, &git_dir);
        world.write("src/a.rs", &format!("changed by {}\n", trap.name));
        every_call(&world);
        assert_eq!(bait.sprung(), None, "{}", trap.name);
        if !trap.proof.is_empty() {
            world.write("src/a.rs", &format!("changed again by {}\n", trap.name));
            let _ = fs::remove_file(world.root.join("src/b.rs"));
            world.try_git_in(&world.root, trap.proof);
            assert!(bait.sprung().is_some(), "{} is no trap at all", trap.name);
        }
        fs::write(git_dir.join("config"), &clean).unwrap();
        let _ = fs::remove_dir_all(git_dir.join("hooks"));
        let _ = fs::remove_file(git_dir.join("info/attributes"));
        world.git(&["reset", "-q", "--hard"]);
        let _ = fs::remove_file(&bait.trace);
    }
}

#[test]
fn f81_f82_what_an_agent_sets_in_its_copy_is_neutral() {
    let world = World::new();
    let bait = Bait::new(&world);
    let (repo, head, copy) = (world.repo(), world.head(), world.workspace());
    let before = copy.guard().unwrap();
    let theirs = repo.guard().unwrap();
    for trap in &TRAPS {
        bait.set(trap, &world, &copy.dir().join(".git"));
        assert!(!tampering(&before, &copy.guard().unwrap()).is_empty(), "{}", trap.name);
        write(&copy.dir().join("agent.txt"), trap.name);
        let snapshot = copy.snapshot(&head, "s").unwrap();
        copy.restore(&snapshot.commit).unwrap();
        copy.restore(&head).unwrap();
        assert_eq!(bait.sprung(), None, "{}", trap.name);
        assert_eq!(tampering(&theirs, &repo.guard().unwrap()), Vec::<String>::new());
        assert_eq!(copy.guard().unwrap(), before, "{}: the copy begins anew", trap.name);
    }
}

#[test]
fn f81_changes_are_named_and_those_that_run_code_flagged() {
    let world = World::new();
    let bait = Bait::new(&world);
    let repo = world.repo();
    let before = repo.guard().unwrap();
    assert_eq!(tampering(&before, &repo.guard().unwrap()), Vec::<String>::new());
    let git_dir = world.root.join(".git");
    let clean = fs::read_to_string(git_dir.join("config")).unwrap();
    let said = |trap: &Trap| {
        bait.set(trap, &world, &git_dir);
        let said = tampering(&before, &repo.guard().unwrap());
        fs::write(git_dir.join("config"), &clean).unwrap();
        let _ = fs::remove_dir_all(git_dir.join("hooks"));
        let _ = fs::remove_file(git_dir.join("info/attributes"));
        said
    };
    assert_eq!(said(&TRAPS[0]), ["config: core.fsmonitor was added (runs code)"]);
    assert_eq!(
        said(&TRAPS[3]),
        ["config: filter.x.clean was added (runs code)", "info/attributes was added (runs code)"]
    );
    assert!(said(&TRAPS[2]).contains(&"hooks/pre-commit was added (runs code)".to_owned()));
    for trap in &TRAPS {
        assert!(said(trap).iter().any(|line| line.ends_with("(runs code)")), "{}", trap.name);
    }

    world.git(&["config", "branch.main.remote", "origin"]);
    assert_eq!(tampering(&before, &repo.guard().unwrap()), ["config: branch.main.remote was added"]);
    let copy = world.workspace();
    world.snapshot(&copy);
    repo.pin("r", "s", &world.head()).unwrap();
    let print = serde_json::to_string(&before).unwrap();
    let read: crate::git::GuardPrint = serde_json::from_str(&print).unwrap();
    assert_eq!(tampering(&read, &repo.guard().unwrap()).len(), 1, "our own writes are no tampering");
    world.git(&["config", "http.extraHeader", "Authorization: token s3cr3t"]);
    assert!(!serde_json::to_string(&repo.guard().unwrap()).unwrap().contains("s3cr3t"));
}

#[test]
fn f83_every_other_place_is_guarded() {
    let world = World::new();
    let repo = world.repo();
    let git_dir = world.root.join(".git");
    let before = repo.guard().unwrap();
    for place in ["config.worktree", "info/attributes", "info/exclude", "objects/info/alternates", "hooks/pre-push"] {
        let file = git_dir.join(place);
        let old = fs::read(&file).ok();
        write(&file, "[core]\n\tfsmonitor = x\n");
        let said = tampering(&before, &repo.guard().unwrap());
        assert!(said.len() == 1 && said[0].starts_with(place), "{place}: {said:?}");
        match old {
            Some(old) => fs::write(&file, old).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
    }
    write(&git_dir.join("modules/lib/HEAD"), "ref: refs/heads/main\n");
    write(&git_dir.join("modules/lib/config"), "[core]\n\tfsmonitor = x\n");
    let said = tampering(&before, &repo.guard().unwrap());
    assert_eq!(said, ["modules/lib/config: core.fsmonitor was added (runs code)"]);
    fs::remove_dir_all(git_dir.join("modules")).unwrap();
    fs::set_permissions(git_dir.join("description"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(tampering(&before, &repo.guard().unwrap()), Vec::<String>::new());

    world.git(&["worktree", "add", "-q", "-b", "side", "../linked"]);
    let linked = Repo::discover(&world.beside("linked")).unwrap();
    let before = linked.guard().unwrap();
    fs::write(world.beside("linked/.git"), "gitdir: /tmp/evil\n").unwrap();
    assert_eq!(tampering(&before, &linked.guard().unwrap()), [".git was changed (runs code)"]);
}

/// Does something to a copy, then takes a snapshot; answers its warnings. The files must be kept whatever was done.
fn after(spoil: impl Fn(&World, &Path)) -> Vec<String> {
    let world = World::new();
    let copy = world.workspace();
    write(&copy.dir().join("agent.txt"), "kept\n");
    world.git_in(copy.dir(), &["add", "-A"]);
    world.git_in(copy.dir(), &["commit", "-q", "-m", "agent"]);
    spoil(&world, copy.dir());
    let snapshot = world.snapshot(&copy);
    assert_eq!(world.show(&snapshot.commit, "agent.txt"), "kept");
    assert_eq!(world.show(&snapshot.commit, "README.md"), "hello");
    world.git(&["fsck", "--connectivity-only", &snapshot.commit]);
    copy.restore(&world.head()).unwrap();
    assert_eq!(world.git_in(copy.dir(), &["rev-parse", "HEAD"]), world.head());
    assert_eq!(world.git_in(copy.dir(), &["status", "--porcelain"]), "");
    snapshot.warnings
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn f83_a_spoiled_git_folder_costs_the_commits_and_not_the_files() {
    let replaced = |world: &World, dir: &Path| {
        fs::remove_dir_all(dir.join(".git")).unwrap();
        fs::write(dir.join(".git"), format!("gitdir: {}\n", world.root.join(".git").display())).unwrap();
    };
    assert!(after(replaced)[0].contains("was replaced or removed"));
    let linked = |world: &World, dir: &Path| {
        fs::remove_dir_all(dir.join(".git")).unwrap();
        symlink(world.root.join(".git"), dir.join(".git")).unwrap();
    };
    assert!(after(linked)[0].contains("was replaced or removed"));
    let removed = |_: &World, dir: &Path| fs::remove_dir_all(dir.join(".git")).unwrap();
    assert!(after(removed)[0].contains("was replaced or removed"));
    let alternates = |world: &World, dir: &Path| {
        let text = format!("{}\n", world.beside("elsewhere").display());
        fs::write(dir.join(".git/objects/info/alternates"), text).unwrap();
    };
    assert!(after(alternates)[0].contains("lead elsewhere"));
    let linked_objects = |world: &World, dir: &Path| {
        fs::rename(dir.join(".git/objects/pack"), world.beside("pack")).unwrap();
        symlink(world.beside("pack"), dir.join(".git/objects/pack")).unwrap();
    };
    assert!(after(linked_objects)[0].contains("lead elsewhere"));
    let broken_head = |_: &World, dir: &Path| fs::write(dir.join(".git/HEAD"), "ref: ../../config\n").unwrap();
    assert!(after(broken_head)[0].contains("cannot be read"));
    let lost_object = |world: &World, dir: &Path| {
        let tree = world.git_in(dir, &["rev-parse", "HEAD^{tree}"]);
        fs::remove_file(dir.join(format!(".git/objects/{}/{}", &tree[..2], &tree[2..]))).unwrap();
    };
    assert!(after(lost_object)[0].contains("could not be taken over"));
}

#[test]
fn f83_pipes_make_nobody_wait() {
    let head = |_: &World, dir: &Path| {
        fs::remove_file(dir.join(".git/HEAD")).unwrap();
        fifo(&dir.join(".git/HEAD"));
    };
    assert!(after(head)[0].contains("cannot be read"));
    let object = |_: &World, dir: &Path| {
        fs::create_dir_all(dir.join(".git/objects/aa")).unwrap();
        fifo(&dir.join(".git/objects/aa/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"));
    };
    assert!(after(object)[0].contains("lead elsewhere"));
    let config = |_: &World, dir: &Path| {
        fs::remove_file(dir.join(".git/config")).unwrap();
        fifo(&dir.join(".git/config"));
        fifo(&dir.join("pipe"));
    };
    assert_eq!(after(config), Vec::<String>::new(), "the copy's configuration is never read");
    let index = |_: &World, dir: &Path| {
        fs::remove_file(dir.join(".git/index")).unwrap();
        fifo(&dir.join(".git/index"));
    };
    assert_eq!(after(index), Vec::<String>::new());
}

#[test]
fn f83_a_commit_with_names_that_lead_elsewhere_is_not_taken_over() {
    let warnings = after(|world, dir| {
        let blob = world.git_in(dir, &["rev-parse", "HEAD:agent.txt"]);
        // The real git refuses to make such a tree, so it is written by hand.
        let raw: Vec<u8> = (0..20).map(|n| u8::from_str_radix(&blob[2 * n..2 * n + 2], 16).unwrap()).collect();
        let tree = [b"100755 .git\0".as_slice(), &raw].concat();
        fs::write(dir.join(".git/raw"), tree).unwrap();
        let tree = world.git_in(dir, &["hash-object", "-t", "tree", "-w", "--literally", ".git/raw"]);
        let commit = world.git_in(dir, &["commit-tree", "-p", "HEAD", "-m", "evil", &tree]);
        world.git_in(dir, &["update-ref", "HEAD", &commit]);
    });
    assert!(warnings[0].contains("a file is named `.git`"), "{warnings:?}");
}

#[test]
fn f83_nested_and_embedded_repositories_run_nothing() {
    let world = World::new();
    let bait = Bait::new(&world);
    let copy = world.workspace();
    for (name, args) in
        [("nested", vec!["init", "-q"]), ("src/nested", vec!["init", "-q"]), ("bare", vec!["init", "-q", "--bare"])]
    {
        let dir = copy.dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        world.git_in(&dir, &args);
        let git_dir = if name == "bare" { dir.clone() } else { dir.join(".git") };
        bait.set(&TRAPS[0], &world, &git_dir);
        hooks(&bait, &git_dir.join("hooks"));
        write(&dir.join("inner.txt"), "i\n");
    }
    let snapshot = world.snapshot(&copy);
    let files = world.files(&snapshot.commit);
    for path in ["nested/inner.txt", "src/nested/inner.txt", "bare/inner.txt"] {
        assert!(files.contains(&path.to_owned()), "{path}");
    }
    copy.restore(&world.head()).unwrap();
    assert!(!copy.dir().join("nested").exists() && !copy.dir().join("bare").exists());
    assert_eq!(bait.sprung(), None);
}

#[test]
fn r_w5_links_lead_nowhere() {
    let world = World::new();
    let outside = world.beside("outside");
    write(&outside.join("a.rs"), "theirs\n");
    write(&outside.join("secret"), "canary\n");
    let copy = world.workspace();
    fs::remove_dir_all(copy.dir().join("src")).unwrap();
    symlink(&outside, copy.dir().join("src")).unwrap();
    symlink(outside.join("secret"), copy.dir().join("link")).unwrap();
    symlink("/", copy.dir().join("root")).unwrap();
    let snapshot = world.snapshot(&copy);
    assert!(!world.git(&["log", "-p", &snapshot.commit]).contains("canary"));
    assert_eq!(
        world.git(&["cat-file", "-p", &format!("{}:link", snapshot.commit)]),
        outside.join("secret").to_str().unwrap()
    );
    copy.restore(&world.head()).unwrap();
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "theirs\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
    assert!(fs::symlink_metadata(copy.dir().join("src")).unwrap().is_dir());

    fs::remove_dir_all(copy.dir().join("src")).unwrap();
    symlink(&outside, copy.dir().join("src")).unwrap();
    world.write("src/a.rs", "dirty\n");
    let repo = world.repo();
    copy.overlay_dirty(&repo, &repo.state(&[]).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "theirs\n");
    assert_eq!(fs::read_to_string(copy.dir().join("src/a.rs")).unwrap(), "dirty\n");
}

#[test]
fn r_w5_an_ignored_link_leads_a_restore_nowhere() {
    let world = World::new();
    world.write(".gitignore", "gen\n");
    world.write("gen/deep/a.txt", "ours\n");
    world.git(&["add", "-f", "gen/deep/a.txt"]);
    world.commit("gen");
    let outside = world.beside("outside");
    write(&outside.join("deep/other"), "theirs\n");
    let copy = world.workspace();
    fs::remove_dir_all(copy.dir().join("gen")).unwrap();
    symlink(&outside, copy.dir().join("gen")).unwrap();
    copy.restore(&world.head()).unwrap();
    assert!(!outside.join("deep/a.txt").exists());
    assert_eq!(fs::read_to_string(copy.dir().join("gen/deep/a.txt")).unwrap(), "ours\n");
}

#[test]
fn t5_core_worktree_leads_nowhere() {
    let world = World::new();
    let outside = world.beside("outside");
    write(&outside.join("README.md"), "theirs\n");
    world.git(&["config", "core.worktree", outside.to_str().unwrap()]);
    let repo = world.repo();
    assert_eq!(repo.root(), world.root);
    assert!(repo.state(&[]).unwrap().is_clean());
}

#[test]
fn f81_the_users_own_files_may_name_filters_and_nothing_runs() {
    let world = World::new();
    let bait = Bait::new(&world);
    let home = format!(
        "[core]\n\tfsmonitor = {0}\n\thooksPath = /x\n[filter \"lfs\"]\n\tclean = {0}\n\tsmudge = {0}\n",
        bait.program.display()
    );
    write(&world.beside("home/.gitconfig"), &home);
    world.write(".gitattributes", "*.bin filter=lfs\n");
    world.write("x.bin", "x\n");
    world.commit("lfs");
    let user = UserGit { home: Some(world.beside("home")), ..UserGit::default() };
    let repo = Repo::discover_for(&world.root, &user).unwrap();
    let copy = Workspace::create(&repo, &world.beside("work/c"), &world.head()).unwrap();
    write(&copy.dir().join("y.bin"), "y\n");
    world.snapshot(&copy);
    assert_eq!(bait.sprung(), None);
    let config = fs::read_to_string(copy.dir().join(".git/config")).unwrap();
    assert!(!config.contains("fsmonitor") && !config.contains("hooksPath") && !config.contains("lfs"), "{config}");
}

#[test]
fn f86_huge_files_are_left_out_and_said() {
    let world = World::new();
    let copy = world.workspace();
    fs::File::create(copy.dir().join("huge")).unwrap().set_len(1 << 40).unwrap();
    let snapshot = world.snapshot(&copy);
    assert_eq!(snapshot.warnings, ["`huge` is larger than 256 MiB and was left out"]);
    assert_eq!(snapshot.commit, world.head());
    copy.restore(&world.head()).unwrap();
    assert!(copy.dir().join("huge").exists(), "what was not saved is not removed");
    fs::remove_file(copy.dir().join("huge")).unwrap();
    assert_eq!(copy.remove(&world.beside("outside")).unwrap_err().code(), Code::StoreIo);
}
