//! Nothing that somebody left in a working copy is lost (R-W3, FR-H2): every kind of work against everything that could
//! destroy it. Where each goes stands in docs/concepts.md; git collects its garbage before it is looked for.

use std::fs;
use std::path::PathBuf;

use crate::world::{World, step, wait_until};

/// A kind of work, by the file that it lies in and the contents that must be found again.
struct Left {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    script: &'static str,
}

const LEFT: &[Left] = &[
    Left {
        name: "staged",
        file: "staged.txt",
        text: "work staged",
        script: "echo work staged > staged.txt; git add staged.txt",
    },
    Left {
        name: "staged, then removed from the disk",
        file: "only-staged.txt",
        text: "work only staged",
        script: "echo work only staged > only-staged.txt; git add only-staged.txt; rm only-staged.txt",
    },
    Left { name: "unstaged", file: "src/lib.txt", text: "work unstaged", script: "echo work unstaged > src/lib.txt" },
    Left {
        name: "untracked",
        file: "new/untracked.txt",
        text: "work untracked",
        script: "mkdir -p new; echo work untracked > new/untracked.txt",
    },
    Left {
        name: "ignored",
        file: "cache/ignored.txt",
        text: "work ignored",
        script: "mkdir -p cache; echo work ignored > cache/ignored.txt",
    },
    Left {
        name: "stash",
        file: "stashed.txt",
        text: "work stashed",
        script: "echo work stashed > stashed.txt; git add stashed.txt; git stash -q -- stashed.txt",
    },
    Left {
        name: "an older stash",
        file: "older.txt",
        text: "work stashed before",
        script: "echo work stashed before > older.txt; git add older.txt; git stash -q -- older.txt; \
                 echo x > newer.txt; git add newer.txt; git stash -q -- newer.txt",
    },
    Left {
        name: "unpushed commit",
        file: "committed.txt",
        text: "work committed",
        script: "echo work committed > committed.txt; git add committed.txt; git commit -qm own committed.txt",
    },
    Left {
        name: "unpushed commit on another branch",
        file: "spare.txt",
        text: "work on a branch",
        script: "git checkout -q -b spare; echo work on a branch > spare.txt; git add spare.txt; \
                 git commit -qm spare spare.txt; git checkout -q -",
    },
    Left {
        name: "commits beside the base, on no branch",
        file: "aside.txt",
        text: "work aside",
        script: "git checkout -q HEAD^; echo work aside > aside.txt; git add aside.txt; git commit -qm aside; \
                 git rm -q aside.txt; git commit -qm gone",
    },
];

/// Where something is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Copy,
    Branch,
    Patch,
    Pin,
    /// With the copy, when nobody needs it any more: files that git ignores.
    Gone,
}

/// What could destroy work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    FailedStart,
    FailedStartThenGc,
    Success,
    SuccessThenGc,
    Cancel,
    Resume,
    ResumeRebuild,
    SendBack,
}

const ACTS: &[Act] = &[
    Act::FailedStart,
    Act::FailedStartThenGc,
    Act::Success,
    Act::SuccessThenGc,
    Act::Cancel,
    Act::Resume,
    Act::ResumeRebuild,
    Act::SendBack,
];

impl Act {
    /// Where `left` must be afterwards.
    fn place(self, left: &Left) -> Place {
        let in_git_alone = left.name.contains("stash") || left.name.contains("branch") || left.name.contains("removed");
        match self {
            Self::FailedStart | Self::FailedStartThenGc => Place::Copy,
            _ if left.name == "ignored" => Place::Gone,
            _ if in_git_alone => Place::Pin,
            Self::Resume | Self::ResumeRebuild => Place::Patch,
            Self::Success | Self::SuccessThenGc | Self::Cancel | Self::SendBack => Place::Branch,
        }
    }

    /// Whether the agent's first execution fails.
    fn fails(self) -> bool {
        matches!(self, Self::FailedStart | Self::FailedStartThenGc | Self::Cancel | Self::Resume | Self::ResumeRebuild)
    }
}

/// A world with an agent that is a shell.
fn shell_world() -> World {
    let world = World::new();
    world.write(".gitignore", "cache/\n");
    world.git(&["add", ".gitignore"]);
    world.git(&["commit", "-qm", "ignore"]);
    world.policy(&[("agents", "{ shell: { run: [ sh, -c ], protocol: text } }")]);
    world
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn shell_agent(script: &str) -> String {
    format!(
        "  - key: code\n    kind: agent\n    agent: {{ name: shell, args: [ {} ] }}\n    prompt: prompts/do.md\n",
        quoted(script)
    )
}

/// The agent leaves its work in its first execution, and says in the others what of it is still ignored.
fn prepare(world: &World, act: Act, left: &Left) {
    let first = format!("{}; echo done; exit {}", left.script, i32::from(act.fails()));
    let script = format!(
        "if test -e {0}; then cp cache/ignored.txt {1} 2> /dev/null; echo again; exit 0; fi; touch {0}; {first}",
        world.at("was-here"),
        world.at("survived")
    );
    let mut steps = shell_agent(&script);
    if act == Act::SendBack {
        let check = format!("test -e {0} || {{ touch {0}; exit 1; }}", world.at("checked"));
        steps += &format!(
            "  - key: qa\n    kind: qa\n    run: {}\n    on_fail: {{ send_back_to: code, rounds: 1 }}\n",
            quoted(&check)
        );
    }
    world.task("t", &format!("steps:\n{steps}"));
}

fn perform(world: &World, act: Act) {
    let (exit, run) = world.start("t");
    assert_eq!(exit == 0, !act.fails(), "{act:?}: {run:#}");
    let more: &[&[&str]] = match act {
        Act::FailedStart | Act::Success | Act::SendBack => &[],
        Act::FailedStartThenGc | Act::SuccessThenGc => &[&["gc", "--older-than", "0s"]],
        Act::Cancel => &[&["cancel", "t"]],
        Act::Resume => &[&["resume", "t"]],
        Act::ResumeRebuild => &[&["resume", "t", "--rebuild"]],
    };
    for args in more {
        let out = world.run(args);
        assert_eq!(out.exit, 0, "{act:?}: {}", out.stderr);
    }
}

/// Every place where the contents are.
fn places(world: &World, left: &Left) -> Vec<Place> {
    world.git(&["reflog", "expire", "--expire=now", "--all"]);
    world.git(&["gc", "-q", "--prune=now"]);
    fs::write(world.path("wanted"), format!("{}\n", left.text)).unwrap();
    let blob = world.git(&["hash-object", &world.at("wanted")]);
    let has = |refs: &str| world.git(&["rev-list", "--objects", refs]).contains(&blob);
    let mut found = Vec::new();
    let copy = world.state("work/run_t_001");
    let on_disk = fs::read_to_string(copy.join(left.file)).is_ok_and(|text| text.contains(left.text));
    let in_git =
        copy.exists() && world.git_in(&copy, &["cat-file", "--batch-check", "--batch-all-objects"]).contains(&blob);
    if on_disk || in_git {
        found.push(Place::Copy);
    }
    if !world.git(&["branch", "--list", "agentrun/*"]).is_empty() && has("agentrun/run_t_001") {
        found.push(Place::Branch);
    }
    let patches = fs::read_dir(world.state("run_t_001/artifacts")).into_iter().flatten();
    let has_text = |path: PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("+{}", left.text)));
    if patches.flatten().any(|entry| has_text(entry.path())) {
        found.push(Place::Patch);
    }
    if has("--glob=refs/agentrun/*") {
        found.push(Place::Pin);
    }
    if found.is_empty() { vec![Place::Gone] } else { found }
}

fn matrix(acts: &[Act]) {
    for act in acts {
        for left in LEFT {
            let world = shell_world();
            prepare(&world, *act, left);
            perform(&world, *act);
            let found = places(&world, left);
            assert!(found.contains(&act.place(left)), "{act:?} × {}: {found:?}, not {:?}", left.name, act.place(left));
            let is_rebuilt = matches!(act, Act::Resume | Act::ResumeRebuild | Act::SendBack);
            if left.name == "ignored" && is_rebuilt {
                assert!(world.path("survived").exists(), "{act:?}: ignored files are there for the next execution");
            }
            if act.place(left) == Place::Pin && *act != Act::SuccessThenGc {
                let report = fs::read_to_string(world.state("run_t_001/report.md")).unwrap();
                assert!(report.contains("refs/agentrun/run_t_001/kept-"), "{act:?} × {}: {report}", left.name);
            }
        }
    }
}

#[test]
fn r_w3_fr_h2_fr_h7_nothing_is_lost_by_a_failed_start_a_success_or_gc() {
    matrix(&ACTS[..4]);
}

#[test]
fn r_w3_fr_h2_fr_h1_nothing_is_lost_by_a_cancel_a_resume_or_a_send_back() {
    matrix(&ACTS[4..]);
}

#[test]
fn r_w3_a_saved_patch_holds_binary_files_and_applies() {
    let world = shell_world();
    let left = Left {
        name: "binary",
        file: "a.bin",
        text: "",
        script: "printf '\\000\\001\\377' > a.bin; echo more >> src/lib.txt; rm AGENTS.md",
    };
    prepare(&world, Act::Resume, &left);
    perform(&world, Act::Resume);
    let run = world.show("run_t_001");
    let saved = run["artifacts"].as_array().unwrap().iter().find(|a| a["type"] == "SAVED_WORK").unwrap();
    let patch = world.state("run_t_001").join(saved["path"].as_str().unwrap());
    world.git(&["apply", "--binary", patch.to_str().unwrap()]);
    assert_eq!(fs::read(world.repo().join("a.bin")).unwrap(), [0, 1, 255]);
    assert_eq!(world.read("src/lib.txt"), "one\nmore\n");
    assert!(!world.repo().join("AGENTS.md").exists());
}

#[test]
fn fr_h2_fr_h25_fr_h13_nothing_is_taken_from_a_live_run() {
    let world = shell_world();
    // All at once, but for the one whose HEAD leaves the others on no branch.
    let left_behind = || LEFT.iter().filter(|left| !left.script.contains("HEAD^"));
    let all = left_behind().map(|left| left.script).collect::<Vec<_>>().join("; ");
    let script =
        format!("{all}; touch {}; while ! test -e {}; do sleep 0.01; done; echo done", world.at("in"), world.at("go"));
    world.task("t", &format!("steps:\n{}", shell_agent(&script)));
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    for (args, exit) in [
        (&["gc", "--older-than", "0s"][..], 0),
        (&["start", "t", "--no-wait"], 7),
        (&["resume", "t"], 7),
        (&["resume", "t", "--rebuild"], 7),
    ] {
        let out = world.run(args);
        assert_eq!(out.exit, exit, "{args:?}: {}", out.stderr);
        for left in left_behind() {
            assert!(places(&world, left).contains(&Place::Copy), "{args:?} × {}", left.name);
        }
    }
    assert_eq!(world.run(&["cancel", "t"]).exit, 0);
    assert_eq!(running.end().exit, 9);
    for left in left_behind() {
        let found = places(&world, left);
        assert!(found.contains(&Act::Cancel.place(left)), "cancel × {}: {found:?}", left.name);
    }
    world.assert_sound("run_t_001");
}

#[test]
fn r_w5_fr_h17_a_copy_whose_git_folder_cannot_be_believed_stays_and_is_named() {
    let world = shell_world();
    let script = "git stash -q; echo work > w.txt; echo /nowhere > .git/objects/info/alternates; echo done";
    world.task("t", &format!("steps:\n{}", shell_agent(script)));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "work");
    assert!(world.has_event("run_t_001", "warning.raised", "the working copy stays at"));
    assert_eq!(world.run(&["gc", "--older-than", "0s"]).exit, 0);
    assert!(world.state("work/run_t_001/w.txt").exists());
}

#[test]
fn fr_h2_a_process_that_an_agent_leaves_behind_is_ended_by_a_send_back_and_its_work_stays() {
    let world = shell_world();
    let script = format!(
        "test -e {0} && {{ echo again; exit 0; }}; (setsid sleep 100 > /dev/null 2>&1 &); echo work > w.txt; touch {0}; echo done",
        world.at("was-here")
    );
    let check = format!("test -e {0} || {{ touch {0}; exit 1; }}", world.at("checked"));
    let qa = format!(
        "  - key: qa\n    kind: qa\n    run: {}\n    on_fail: {{ send_back_to: code, rounds: 1 }}\n",
        quoted(&check)
    );
    world.task("t", &format!("steps:\n{}{qa}", shell_agent(&script)));
    let (exit, run) = world.start("t");
    assert_eq!((exit, step(&run, "code")["runs"].as_u64()), (0, Some(2)), "{run:#}");
    assert_eq!(world.git(&["show", "agentrun/run_t_001:w.txt"]), "work");
    wait_until("nobody is left", || world.living().is_empty());
}

#[test]
fn r_w2_fr_h1_in_place_the_users_own_work_is_never_touched_and_the_agents_is_saved() {
    for act in [Act::FailedStart, Act::FailedStartThenGc, Act::Cancel, Act::Resume, Act::ResumeRebuild] {
        let world = shell_world();
        let left = Left {
            name: "unstaged",
            file: "src/lib.txt",
            text: "work unstaged",
            script: "echo work unstaged > src/lib.txt; echo work new > new.txt",
        };
        prepare(&world, act, &left);
        let task = world.read("tasks/t.yml");
        world.write("tasks/t.yml", &task.replacen("steps:", "workspace: in-place\nsteps:", 1));
        world.git(&["add", "."]);
        world.git(&["commit", "-qm", "own files"]);
        world.write("stashed.txt", "mine\n");
        world.git(&["add", "stashed.txt"]);
        world.git(&["stash", "-q"]);
        world.git(&["branch", "mine"]);
        world.write("cache/ignored.txt", "mine\n");
        perform(&world, act);
        assert_eq!(world.git(&["show", "stash@{0}:stashed.txt"]), "mine", "{act:?}");
        assert_eq!(world.read("cache/ignored.txt"), "mine\n", "{act:?}");
        assert!(world.git(&["branch", "--list", "mine"]).contains("mine"), "{act:?}");
        let is_rebuilt = matches!(act, Act::Resume | Act::ResumeRebuild);
        assert_eq!(world.read("src/lib.txt"), if is_rebuilt { "one\n" } else { "work unstaged\n" }, "{act:?}");
        assert_eq!(world.repo().join("new.txt").exists(), !is_rebuilt, "{act:?}");
        if is_rebuilt {
            assert!(places(&world, &left).contains(&Place::Patch), "{act:?}");
        }
    }
}
