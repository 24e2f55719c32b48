//! The working copy and the developer's checkout (R-W1, R-W2, R-W5, field reports H): what is refused, what is kept, and
//! what a repository cannot make agentrun do.

use std::fs;
use std::path::Path;

use crate::world::{Output, World, agent_step, command_step, wait_until};

fn simple(world: &World) {
    world.agent_task("t", "append:src/lib.txt=by the agent\\n,ok");
}

#[test]
fn r_w1_fr_h5_fr_h23_a_dirty_checkout_is_refused_with_the_list() {
    let world = World::new();
    simple(&world);
    world.write("src/lib.txt", "changed\n");
    world.write("untracked.txt", "new\n");
    world.write("staged.txt", "staged\n");
    world.git(&["add", "staged.txt"]);
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (19, &"WORKTREE_DIRTY".into()), "{error:#}");
    let text = error.to_string();
    for path in ["src/lib.txt", "untracked.txt", "staged.txt"] {
        assert!(text.contains(path), "{path}: {error:#}");
    }
    assert!(error["hint"].as_str().unwrap().contains("--include-dirty"), "{error:#}");
    assert!(!world.state("run_t_001").exists(), "nothing was begun");
}

#[test]
fn r_w1_included_changes_are_part_of_the_run_and_of_its_fingerprint() {
    let world = World::new();
    simple(&world);
    world.write("src/lib.txt", "changed\n");
    world.write("untracked.txt", "new\n");
    let (exit, first) = world.json(&["start", "t", "--include-dirty"]);
    assert_eq!(exit, 0, "{first:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:src/lib.txt"]), "changed\nby the agent");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:untracked.txt"]), "new");
    let patch = fs::read_to_string(world.state("run_t_001/artifacts/changes.patch")).unwrap();
    assert!(patch.contains("+by the agent") && !patch.contains("+changed"), "the agent's own changes: {patch}");
    world.write("untracked.txt", "newer\n");
    let (_, second) = world.json(&["start", "t", "--include-dirty"]);
    assert_ne!(first["context_hash"], second["context_hash"], "R-F2");
    assert_eq!(second["run"], "run_t_002");
    assert_eq!(world.read("src/lib.txt"), "changed\n", "the checkout is as it was");
}

#[test]
fn r_w1_fr_h20_ignored_changes_are_left_out_and_said() {
    let world = World::new();
    simple(&world);
    world.write("src/lib.txt", "changed\n");
    let (exit, run) = world.json(&["start", "t", "--ignore-dirty"]);
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:src/lib.txt"]), "one\nby the agent");
    assert_eq!(
        world.git(&["diff", "--name-only", run["base_commit"].as_str().unwrap(), "agentrun/run_t_001"]),
        "src/lib.txt"
    );
    let report = fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
    assert!(report.contains("src/lib.txt") && report.to_lowercase().contains("uncommitted"), "{report}");
    assert_eq!(world.read("src/lib.txt"), "changed\n");
}

#[test]
fn r_w1_a_merge_in_progress_is_refused() {
    let world = World::new();
    simple(&world);
    world.git(&["checkout", "-q", "-b", "other"]);
    world.write("src/lib.txt", "theirs\n");
    world.git(&["commit", "-qam", "theirs"]);
    world.git(&["checkout", "-q", "main"]);
    world.write("src/lib.txt", "ours\n");
    world.git(&["commit", "-qam", "ours"]);
    let merged = world.command("git").args(["merge", "-q", "other"]).output().unwrap();
    assert!(!merged.status.success());
    let (exit, error) = world.start("t");
    assert_eq!((exit, &error["code"]), (19, &"WORKTREE_DIRTY".into()), "{error:#}");
    assert!(error.to_string().contains("merge"), "{error:#}");
}

#[test]
fn contract_5_policy_tasks_and_prompts_do_not_make_a_checkout_dirty() {
    let world = World::new();
    simple(&world);
    world.git(&["add", "automation-policy.yml", "tasks", "prompts"]);
    world.git(&["commit", "-qm", "own files"]);
    world.write("prompts/do.md", "Do it otherwise.\n");
    world.write("tasks/more.yml", "task: more\nsteps: [ report ]\n");
    assert_eq!(world.start("t").0, 0);
}

#[test]
fn r_w2_in_place_works_in_the_checkout_for_ci() {
    let world = World::new();
    world.task(
        "t",
        &format!("workspace: in-place\nsteps:\n{}", agent_step("code", "append:src/lib.txt=by the agent\\n,ok")),
    );
    world.git(&["add", "."]);
    world.git(&["commit", "-qm", "own files"]);
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.read("src/lib.txt"), "one\nby the agent\n");
    assert_eq!(world.git(&["branch", "--list", "agentrun/*"]), "", "no branch: the work is here");
    let patch = fs::read_to_string(world.state("run_t_001/artifacts/changes.patch")).unwrap();
    assert!(patch.contains("+by the agent"), "{patch}");
}

#[test]
fn r_w2_apply_brings_the_changes_into_a_clean_checkout_only() {
    let world = World::new();
    simple(&world);
    assert_eq!(world.start("t").0, 0);
    let out = world.run(&["apply", "run_t_001", "--branch"]);
    assert_eq!((out.exit, out.stdout.trim()), (0, "agentrun/run_t_001"));
    world.write("other.txt", "mine\n");
    let (exit, error) = world.json(&["apply", "run_t_001"]);
    assert_eq!((exit, &error["code"]), (19, &"WORKTREE_DIRTY".into()), "FR-H16: {error:#}");
    assert_eq!(world.read("src/lib.txt"), "one\n");
    fs::remove_file(world.repo().join("other.txt")).unwrap();
    let (exit, applied) = world.json(&["apply", "run_t_001"]);
    assert_eq!(exit, 0, "{applied:#}");
    assert_eq!(world.read("src/lib.txt"), "one\nby the agent\n");
}

#[test]
fn r_w1_shallow_clones_linked_worktrees_and_sparse_checkouts_work() {
    let world = World::new();
    simple(&world);
    world.git(&["add", "."]);
    world.git(&["commit", "-qm", "own files"]);
    let source = format!("file://{}", world.repo().display());
    let shallow = world.path("shallow");
    world.git(&["clone", "-q", "--depth", "1", &source, shallow.to_str().unwrap()]);
    let linked = world.path("linked");
    world.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "-b", "side"]);
    let sparse = world.path("sparse");
    world.git(&["clone", "-q", "--no-checkout", &source, sparse.to_str().unwrap()]);
    world.git_in(&sparse, &["sparse-checkout", "set", "--no-cone", "src", "automation-policy.yml", "tasks", "prompts"]);
    world.git_in(&sparse, &["checkout", "-q", "main"]);
    assert!(!sparse.join("AGENTS.md").exists());
    for (dir, run) in [(&shallow, "run_t_001"), (&linked, "run_t_001"), (&sparse, "run_t_001")] {
        let mut call = world.agentrun(&["start", "t", "--json"]);
        call.current_dir(dir);
        let out = Output::of(call);
        assert_eq!(out.exit, 0, "{}: {}", dir.display(), out.stdout);
        assert_eq!(out.json()["run"], run);
        assert_eq!(world.git_in(dir, &["show", &format!("agentrun/{run}:src/lib.txt")]), "one\nby the agent");
        assert!(
            world.git_in(dir, &["ls-tree", "--name-only", &format!("agentrun/{run}")]).contains("AGENTS.md"),
            "nothing is deleted"
        );
        assert_eq!(world.git_in(dir, &["status", "--porcelain", "--untracked-files=no"]), "");
    }
    // Contract §2: in a linked worktree the state is the main worktree's.
    assert!(!linked.join(".ai-runs").exists() && world.state("run_t_001").exists());
}

#[test]
fn r_w1_what_is_not_supported_is_said_with_the_way_out() {
    let world = World::new();
    simple(&world);
    // Not within the folder of these tests, which is a repository.
    let outside = tempfile::tempdir().unwrap();
    let plain = outside.path().to_owned();
    let bare = world.path("bare");
    world.git(&["init", "-q", "--bare", bare.to_str().unwrap()]);
    let empty = world.path("empty");
    world.git(&["init", "-q", empty.to_str().unwrap()]);
    copy_task(&world, &empty);
    let sha256 = world.path("sha256");
    world.git(&["init", "-q", "--object-format=sha256", sha256.to_str().unwrap()]);
    let reftable = world.path("reftable");
    world.git(&["init", "-q", "--ref-format=reftable", reftable.to_str().unwrap()]);
    for dir in [&plain, &bare, &empty, &sha256, &reftable] {
        let mut call = world.agentrun(&["start", "t", "--json"]);
        call.current_dir(dir);
        let out = Output::of(call);
        let error = out.json();
        assert_eq!((out.exit, error["exit"].as_i64()), (11, Some(11)), "{}: {error:#}", dir.display());
        assert!(!error["hint"].as_str().unwrap_or_default().is_empty(), "{}: {error:#}", dir.display());
        assert!(!dir.join(".ai-runs/state").exists());
    }
    let split = world.path("split");
    world.git(&["clone", "-q", world.repo().to_str().unwrap(), split.to_str().unwrap()]);
    world.git_in(&split, &["update-index", "--split-index"]);
    copy_task(&world, &split);
    let mut call = world.agentrun(&["start", "t", "--json"]);
    call.current_dir(&split);
    let out = Output::of(call);
    assert_eq!(out.exit, 11, "{}", out.stdout);
}

fn copy_task(world: &World, to: &Path) {
    for name in ["tasks/t.yml", "prompts/do.md", "automation-policy.yml"] {
        fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
        fs::copy(world.repo().join(name), to.join(name)).unwrap();
    }
}

#[test]
fn fr_h2_fr_h7_fr_h22_gc_deletes_no_work() {
    let world = World::new();
    // Failed with uncommitted work; succeeded with uncommitted work; succeeded with a commit of its own.
    world.agent_task("failed", "session:s,dirty:half.txt,error:AUTH_FAILED");
    world.agent_task("dirty", "dirty:done.txt,ok");
    world.agent_task("commit", "dirty:done.txt,commit-no-push,ok");
    world.start("failed");
    assert_eq!((world.start("dirty").0, world.start("commit").0), (0, 0));
    let (exit, swept) = world.json(&["gc", "--older-than", "0s"]);
    assert_eq!(exit, 0, "{swept:#}");
    assert_eq!(world.git(&["show", "agentrun/run_failed_001:half.txt"]), "changed by the fake agent");
    assert_eq!(world.git(&["show", "agentrun/run_dirty_001:done.txt"]), "changed by the fake agent");
    assert_eq!(world.git(&["show", "agentrun/run_commit_001:done.txt"]), "changed by the fake agent");
    assert!(world.state("work/run_failed_001/half.txt").exists(), "a run that can go on keeps its copy");
    assert!(!world.state("run_dirty_001").exists(), "{swept:#}");
    // Numbers are never given out twice (R-M2).
    let (_, next) = world.json(&["start", "dirty", "--new"]);
    assert_eq!(next["run"], "run_dirty_002");
}

#[test]
fn fr_h2_cancel_keeps_every_kind_of_work() {
    let world = World::new();
    world.agent_task(
        "t",
        &format!("session:s,dirty:done.txt,commit-no-push,dirty:more.txt,touch:{},silent", world.at("in")),
    );
    let running = world.spawn_until(&["start", "t"], "in");
    assert_eq!(world.run(&["cancel", "t"]).exit, 0);
    assert_eq!(running.end().exit, 9);
    let files = world.git(&["ls-tree", "--name-only", "agentrun/run_t_001"]);
    assert!(files.contains("done.txt") && files.contains("more.txt"), "{files}");
    assert!(world.state("run_t_001/artifacts/changes.patch").is_file());
}

#[test]
fn fr_h26_a_checkout_that_changes_under_a_run_is_no_trouble() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},wait-for:{},dirty:w.txt,ok", world.at("in"), world.at("go")));
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    world.write("src/lib.txt", "meanwhile\n");
    world.git(&["commit", "-qam", "meanwhile"]);
    world.write("src/lib.txt", "and dirty\n");
    world.open("go");
    let out = running.end();
    assert_eq!(out.exit, 0, "{}", out.stderr);
    assert_eq!(world.git(&["show", "agentrun/run_t_001:src/lib.txt"]), "one", "the base is pinned");
    assert_eq!(world.read("src/lib.txt"), "and dirty\n");
}

#[test]
fn r_w2_a_garbage_collection_takes_nothing_of_a_run() {
    let world = World::new();
    world.task(
        "t",
        &format!(
            "steps:\n{}{}",
            agent_step("code", "dirty:w.txt,ok"),
            command_step("gate", &format!("test -e {}", world.at("fixed")))
        ),
    );
    world.git(&["checkout", "-q", "-b", "passing"]);
    world.write("extra.txt", "x\n");
    world.git(&["add", "extra.txt"]);
    world.git(&["commit", "-qm", "passing"]);
    assert_eq!(world.start("t").0, 1);
    world.git(&["checkout", "-q", "main"]);
    world.git(&["branch", "-q", "-D", "passing"]);
    world.git(&["reflog", "expire", "--expire=now", "--all"]);
    world.git(&["gc", "-q", "--prune=now"]);
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_t_001"]);
    assert_eq!(exit, 0, "{run:#}");
}

/// Everything in a repository that makes git run a program: each would make the sentinel.
fn arm(world: &World, dir: &Path) -> String {
    let sentinel = world.at("sentinel");
    let script = world.path("trap.sh");
    fs::write(&script, format!("#!/bin/sh\ntouch {sentinel}\ncat\n")).unwrap();
    let mut mode = fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&script, mode).unwrap();
    let trap = script.display().to_string();
    for key in [
        "core.fsmonitor",
        "core.sshCommand",
        "core.editor",
        "core.pager",
        "core.askPass",
        "diff.external",
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.trap.process",
        "diff.trap.textconv",
        "diff.trap.command",
        "merge.trap.driver",
        "credential.helper",
        "gpg.program",
        "core.alternateRefsCommand",
        "uploadpack.packObjectsHook",
    ] {
        world.git_in(dir, &["config", key, &trap]);
    }
    let hooks = dir.join("armed-hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "pre-commit",
        "post-checkout",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "post-merge",
        "fsmonitor-watchman",
    ] {
        fs::copy(&script, hooks.join(hook)).unwrap();
        fs::copy(&script, dir.join(".git/hooks").join(hook)).unwrap();
    }
    sentinel
}

#[test]
fn f82_f83_r_w5_an_armed_repository_runs_nothing_through_agentrun() {
    let world = World::new();
    world.write(".gitattributes", "* filter=trap diff=trap merge=trap\n");
    world.git(&["add", ".gitattributes"]);
    world.git(&["commit", "-qm", "attributes"]);
    simple(&world);
    let nested = world.repo().join("nested");
    world.git(&["init", "-q", nested.to_str().unwrap()]);
    fs::create_dir_all(world.repo().join(".git/info")).unwrap();
    fs::write(world.repo().join(".git/info/exclude"), "armed-hooks\nnested\n").unwrap();
    let sentinel = arm(&world, &world.repo());
    let _ = arm(&world, &nested);
    world.git(&["config", "core.hooksPath", world.repo().join("armed-hooks").to_str().unwrap()]);
    let sentinel = Path::new(&sentinel);
    let _ = fs::remove_file(sentinel);
    for args in [
        &["start", "t", "--ignore-dirty"][..],
        &["status"],
        &["fingerprint", "t", "--ignore-dirty"],
        &["diff", "run_t_001", "run_t_001"],
        &["show", "run_t_001"],
        &["apply", "run_t_001", "--branch"],
        &["doctor"],
        &["start", "t", "--ignore-dirty", "--new"],
        &["gc", "--older-than", "0s"],
    ] {
        let out = world.run(args);
        assert!(!sentinel.exists(), "{args:?} ran a program of the repository: {}", out.stderr);
        assert!([0, 11, 19].contains(&out.exit), "{args:?}: {}", out.stderr);
    }
}

#[test]
fn f81_what_an_agent_configures_in_its_copy_is_neutral_and_said() {
    let world = World::new();
    let sentinel = world.at("sentinel");
    let trap = format!("sh -c 'touch {sentinel}'");
    world.agent_task(
        "t",
        &format!("dirty:w.txt,set-git-config:core.fsmonitor={trap},set-git-config:core.hooksPath=/tmp/nowhere,ok"),
    );
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert!(!Path::new(&sentinel).exists());
    assert!(world.has_event("run_t_001", "warning.raised", "git_config_changed"), "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "changed by the fake agent");
}

#[test]
fn f81_a_changed_git_folder_of_the_user_blocks_the_run() {
    let world = World::new();
    let line = format!("[core]\\n fsmonitor = touch {}\\n", world.at("sentinel"));
    world.agent_task("t", &format!("dirty:w.txt,append:{}={line},ok", world.repo().join(".git/config").display()));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], &run["code"]), (15, &"BLOCKED".into(), &"GIT_TAMPER".into()), "{run:#}");
    assert!(run["message"].as_str().unwrap().contains("fsmonitor"), "{run:#}");
    assert!(!world.path("sentinel").exists());
    assert_eq!(
        world.git(&["-c", "core.fsmonitor=false", "show", "agentrun/run_t_001:w.txt"]),
        "changed by the fake agent"
    );
}

#[test]
fn f84_fr_i8_looking_takes_no_lock_of_git() {
    let world = World::new();
    simple(&world);
    assert_eq!(world.start("t").0, 0);
    // A folder that cannot be written to: a lock could not even be tried.
    let git = world.repo().join(".git");
    let before: Vec<_> = fs::read_dir(&git).unwrap().map(|e| e.unwrap().file_name()).collect();
    fs::write(git.join("index.lock"), "held").unwrap();
    for args in [
        &["status"][..],
        &["show", "t"],
        &["fingerprint", "t"],
        &["start", "t"],
        &["start", "t", "--new"],
        &["diff", "run_t_001", "run_t_002"],
    ] {
        let out = world.run(args);
        assert_eq!(out.exit, 0, "{args:?}: {}", out.stderr);
    }
    assert_eq!(fs::read(git.join("index.lock")).unwrap(), b"held", "a live lock is never deleted");
    fs::remove_file(git.join("index.lock")).unwrap();
    let after: Vec<_> = fs::read_dir(&git).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(before.len(), after.len());
}

#[test]
fn f85_fr_i8_a_commit_is_never_disturbed_by_looking() {
    let world = World::new();
    simple(&world);
    assert_eq!(world.start("t").0, 0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(world.run(&["status"]).exit, 0);
                assert_eq!(world.run(&["fingerprint", "t"]).exit, 0);
                looks += 1;
            }
            looks
        });
        for n in 0..25 {
            world.git(&["commit", "-q", "--allow-empty", "-m", &n.to_string()]);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looking.join().unwrap() > 0);
    });
}

#[test]
fn r_s1_symbolic_links_lead_no_artifact_outside() {
    let world = World::new();
    fs::write(world.path("secret"), "canary-7\n").unwrap();
    let link = format!("ln -s {} out.txt; mkfifo pipe.txt; echo fine > fine.txt", world.at("secret"));
    world.task("t", &format!("steps:\n{}    artifacts: [ \"*.txt\" ]\n", command_step("make", &link)));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    let kept: Vec<_> =
        fs::read_dir(world.state("run_t_001/artifacts/make")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(kept, ["fine.txt"]);
    wait_until("nothing hangs", || world.living().is_empty());
}
