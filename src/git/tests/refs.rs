//! Pins and the branch.

use super::world::{World, write};
use crate::domain::failure::Code;

#[test]
fn f_pins_survive_a_collection() {
    let world = World::new();
    let copy = world.workspace();
    write(&copy.dir().join("x.txt"), "x\n");
    let snapshot = world.snapshot(&copy).commit;
    let repo = world.repo();
    repo.pin("run_1_001", "last", &snapshot).unwrap();
    write(&copy.dir().join("y.txt"), "y\n");
    let unpinned = world.snapshot(&copy).commit;
    world.git(&["gc", "-q", "--prune=now"]);
    let repo = world.repo();
    assert!(repo.commit_exists(&snapshot));
    assert!(!repo.commit_exists(&unpinned), "the collection does collect");
    world.git(&["fsck", "--connectivity-only", &snapshot]);
    assert_eq!(repo.pinned("run_1_001", "last").unwrap(), Some(snapshot));
    assert_eq!(repo.run_names().unwrap(), ["run_1_001"]);
    repo.unpin("run_1_001").unwrap();
    repo.unpin("run_1_001").unwrap();
    assert_eq!(repo.pinned("run_1_001", "last").unwrap(), None);
    assert_eq!(repo.run_names().unwrap(), Vec::<String>::new());
}

#[test]
fn r_m2_a_branch_is_never_overwritten() {
    let world = World::new();
    let first = world.head();
    world.write("x", "x\n");
    let second = world.commit("second");
    let repo = world.repo();
    repo.set_branch("r", &first, None).unwrap();
    repo.set_branch("r", &first, None).unwrap();
    assert_eq!(repo.set_branch("r", &second, None).unwrap_err().code(), Code::InvalidState);
    repo.set_branch("r", &second, Some(&first)).unwrap();
    let error = repo.set_branch("r", &first, Some(&first)).unwrap_err();
    assert_eq!(error.to_string(), format!("ref `refs/heads/agentrun/r` is at {second}, not at {first}"));
    assert_eq!(world.git(&["rev-parse", "agentrun/r"]), second);
    assert_eq!(repo.branch("r").unwrap(), Some(second));
}

#[test]
fn a_name_is_no_commit() {
    let world = World::new();
    let repo = world.repo();
    assert_eq!(repo.resolve("main").unwrap(), world.head());
    assert_eq!(repo.resolve("nowhere").unwrap_err().code(), Code::NotFound);
    assert!(!repo.commit_exists("main"));
    assert!(!repo.commit_exists(&"0".repeat(40)));
    assert_eq!(repo.read_file_at(&world.head(), "README.md").unwrap().unwrap(), b"hello\n");
    assert_eq!(repo.read_file_at(&world.head(), "src").unwrap(), None);
    assert_eq!(repo.read_file_at(&world.head(), "../x").unwrap(), None);
    assert_eq!(repo.list_at(&world.head(), "").unwrap(), [".gitignore", "README.md", "src/"]);
    assert_eq!(repo.list_at(&world.head(), "src/").unwrap(), ["a.rs", "b.rs"]);
    assert_eq!(repo.list_at(&world.head(), "none").unwrap(), Vec::<String>::new());
}

#[test]
fn f84_the_locks_of_a_killed_holder_are_reclaimed_and_nobody_elses() {
    let world = World::new();
    let repo = world.repo();
    let head = repo.head().unwrap().commit;
    repo.pin("run_1_001", "base", &head).unwrap();
    let git = repo.common_dir().to_owned();
    let (ours, index) = (git.join("refs/agentrun/run_1_001/start.lock"), world.root.join("copy.index.lock"));
    let foreign = [git.join("index.lock"), git.join("refs/heads/main.lock")];
    std::fs::create_dir_all(git.join("refs/heads")).unwrap();
    for lock in foreign.iter().chain([&ours, &index]) {
        std::fs::write(lock, "").unwrap();
    }
    assert_eq!(repo.pin("run_1_001", "start", &head).unwrap_err().code(), Code::Busy);
    assert_eq!(repo.reclaim_locks("run_1_001", &world.root.join("copy")).unwrap(), 2);
    repo.pin("run_1_001", "start", &head).unwrap();
    assert!(foreign.iter().all(|lock| lock.exists()), "a lock that may be alive stays");
    assert!(!ours.exists() && !index.exists());
}
