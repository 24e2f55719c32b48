//! What an agent may leave where its artifacts are expected (F08, F15, F86, F87).

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, inotify, mknodat};

use super::*;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::RunId;

struct World {
    dir: tempfile::TempDir,
    work: PathBuf,
    home: Home,
    run: RunDir,
    step: StepKey,
    recorded: Vec<ArtifactRecord>,
}

impl World {
    fn new() -> Self {
        Self::with_home("home")
    }

    fn with_home(home: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let home = Home::open_or_create(&dir.path().join(home)).unwrap();
        let run = home.create_run_dir(&RunId::recorded("run_1_001")).unwrap();
        Self { dir, work, home, run, step: StepKey::new("qa").unwrap(), recorded: Vec::new() }
    }

    fn work(&self) -> PathBuf {
        self.work.clone()
    }

    fn file(&self, path: &str, content: &[u8]) -> PathBuf {
        let file = self.work().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
        file
    }

    fn try_collect(&self, globs: &[&str]) -> Result<Collected, ArtifactError> {
        let wanted: Vec<_> = globs
            .iter()
            .map(|g| ArtifactSpec { glob: g.trim_end_matches('?').to_owned(), optional: g.ends_with('?') })
            .collect();
        collect(&self.collection(&wanted))
    }

    fn collection<'a>(&'a self, wanted: &'a [ArtifactSpec]) -> Collection<'a> {
        Collection {
            workspace: &self.work,
            home: &self.home,
            run_dir: &self.run,
            step: &self.step,
            attempt: 1,
            wanted,
            recorded: &self.recorded,
        }
    }

    fn collect(&self, globs: &[&str]) -> Collected {
        self.try_collect(globs).unwrap()
    }

    /// No byte of a text is anywhere below the state folder.
    fn has_no(&self, canary: &[u8]) -> bool {
        let mut folders = vec![self.home.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => folders.push(entry.path()),
                    _ => {
                        let bytes = std::fs::read(entry.path()).unwrap();
                        if bytes.windows(canary.len()).any(|w| w == canary) {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }
}

/// Exchanges two names again and again until it goes, also when a test fails.
struct Swapper {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Self {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &one, CWD, &other, rustix::fs::RenameFlags::EXCHANGE).unwrap();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|t| drop(t.join()));
    }
}

fn paths(collected: &Collected) -> Vec<&str> {
    collected.kept.iter().map(|a| a.path.as_str()).collect()
}

fn reasons(collected: &Collected) -> BTreeMap<&str, SkipReason> {
    collected.skipped.iter().map(|s| (s.path.as_str(), s.reason)).collect()
}

#[test]
fn r_s7_what_is_wanted_is_kept_with_its_hash_for_its_owner_alone() {
    let world = World::new();
    world.file("target/app.tar", b"app");
    world.file("out/a.xml", b"<a/>");
    world.file("out/deep/b.xml", b"<b/>");
    world.file("out/c.txt", b"c");
    let collected = world.collect(&["target/app.tar", "out/*.xml", "./out/deep/"]);
    let names = ["artifacts/qa/target/app.tar", "artifacts/qa/out/a.xml", "artifacts/qa/out/deep/b.xml"];
    assert_eq!(paths(&collected), names);
    assert_eq!((&collected.skipped, &collected.missing), (&vec![], &vec![]));
    let kept = &collected.kept[0];
    assert_eq!((kept.sha256, kept.size), (Sha256Hash::of(b"app"), 3));
    let file = world.run.path().join(&kept.path);
    assert_eq!(std::fs::read(&file).unwrap(), b"app");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(crate::artifacts::digest::verify(&world.run, &collected.kept).unwrap(), []);
}

#[test]
fn a_glob_without_a_match_is_missing_unless_it_is_optional() {
    let world = World::new();
    world.file("a.txt", b"a");
    symlink("a.txt", world.work().join("link.log")).unwrap();
    let collected = world.collect(&["*.txt", "no/such", "*.xml", "*.log", "none/**?"]);
    assert_eq!(collected.missing, ["no/such", "*.xml", "*.log"]);
    let failure = collected.failure().unwrap();
    assert_eq!(failure.code, Code::ArtifactMissing);
    assert_eq!(failure.message, "no file matches the artifact no/such (link.log was skipped: symbolic_link)");
    assert_eq!(world.collect(&["a.txt", "*.txt"]).missing, [""; 0], "kept by another glob is kept");
    assert_eq!(world.collect(&[]), Collected::default());
}

#[test]
fn f86_nothing_but_regular_files_of_one_name_is_kept() {
    let world = World::new();
    let secret = world.dir.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("key"), b"CANARY-1234").unwrap();
    let work = world.work();
    world.file("good", b"good");
    symlink(secret.join("key"), work.join("link")).unwrap();
    symlink(&secret, work.join("dirlink")).unwrap();
    symlink("nowhere", work.join("dangling")).unwrap();
    std::fs::write(secret.join("other"), b"CANARY-5678").unwrap();
    std::fs::hard_link(secret.join("other"), work.join("hard")).unwrap();
    mknodat(CWD, work.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
    std::fs::File::create(work.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    std::fs::write(work.join("new\nline"), b"x").unwrap();
    std::fs::write(work.join(std::ffi::OsStr::new(&*bad_name())), b"x").unwrap();
    let mut expected = BTreeMap::from([
        ("link", SkipReason::Symlink),
        ("dirlink", SkipReason::Symlink),
        ("dangling", SkipReason::Symlink),
        ("hard", SkipReason::HardLink),
        ("fifo", SkipReason::Fifo),
        ("socket", SkipReason::Socket),
        ("sparse", SkipReason::TooLarge),
        ("new\nline", SkipReason::OddName),
        ("bad\u{fffd}name", SkipReason::OddName),
    ]);
    if mknodat(CWD, work.join("device"), FileType::CharacterDevice, Mode::RWXU, rustix::fs::makedev(1, 5)).is_ok() {
        expected.insert("device", SkipReason::Device);
    } else {
        eprintln!("SKIPPED the device of f86: needs root");
    }

    let began = Instant::now();
    let collected = world.collect(&["**"]);
    assert!(began.elapsed() < Duration::from_secs(30), "nothing hangs");
    assert_eq!(paths(&collected), ["artifacts/qa/good"]);
    assert_eq!(reasons(&collected), expected);

    // By name instead of by glob nothing is different, and a link on the way is a link.
    let named = world.collect(&["link?", "dirlink/key?", "hard?", "fifo?", "socket?", "sparse?"]);
    assert_eq!((named.kept.len(), named.skipped.len()), (0, 6), "{named:?}");
    assert!(world.has_no(b"CANARY"));
}

fn bad_name() -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(b"bad\xffname".to_vec())
}

#[test]
fn f86_a_file_that_is_swapped_all_the_time_never_leaks() {
    let world = World::new();
    let secret = world.dir.path().join("secret");
    std::fs::write(&secret, b"CANARY-1234").unwrap();
    let target = world.file("out/file", b"harmless");
    let (plain, link) = (world.work().join("plain"), world.work().join("link"));
    std::fs::write(&plain, b"harmless").unwrap();
    symlink(&secret, &link).unwrap();
    let swapper = Swapper::start(link, target);
    let until = Instant::now() + Duration::from_millis(700);
    let (mut kept, mut skipped) = (0, 0);
    while Instant::now() < until || kept == 0 || skipped == 0 {
        let collected = world.collect(&["out/*?"]);
        assert!(collected.kept.iter().all(|a| a.sha256 == Sha256Hash::of(b"harmless")));
        kept += collected.kept.len();
        skipped += collected.skipped.len();
        assert!(Instant::now() < until + Duration::from_secs(20), "{kept} kept, {skipped} skipped");
    }
    drop(swapper);
    assert!(world.has_no(b"CANARY"));
}

#[test]
fn f86_a_folder_that_is_swapped_for_a_link_never_leaks() {
    let world = World::new();
    let secret = world.dir.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("file"), b"CANARY-1234").unwrap();
    world.file("out/file", b"harmless");
    let (out, link) = (world.work().join("out"), world.work().join("link"));
    symlink(&secret, &link).unwrap();
    let swapper = Swapper::start(link, out);
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        let collected = world.collect(&["out/**?", "out/file?"]);
        assert!(collected.kept.iter().all(|a| a.sha256 == Sha256Hash::of(b"harmless")));
    }
    drop(swapper);
    assert!(world.has_no(b"CANARY"));
}

#[test]
fn f86_more_files_than_anybody_meant_are_bounded() {
    let world = World::new();
    for n in 0..60 {
        world.file(&format!("many/{n:06}"), b"");
    }
    let wanted = [ArtifactSpec { glob: "many/*".into(), optional: false }];
    let collected = collect_up_to(&world.collection(&wanted), 50).unwrap();
    assert_eq!(collected.kept.len(), 50);
    assert_eq!(reasons(&collected), BTreeMap::from([("many/*", SkipReason::TooMany)]));
    let collected = collect_up_to(&world.collection(&wanted), 60).unwrap();
    assert_eq!((collected.kept.len(), collected.skipped.len()), (60, 0));
}

#[test]
fn f87_a_glob_that_leads_out_is_a_security_stop() {
    let world = World::new();
    for bad in ["/etc/passwd", "../x", "a/../../x", "a/..", "", "/", "a\\b"] {
        let error = world.try_collect(&[bad]).unwrap_err();
        assert_eq!(error.code(), Code::ArtifactPath, "{bad}");
        assert_eq!(error.code().entry().exit.code(), 15);
    }
    assert_eq!(world.try_collect(&["[a"]).unwrap_err().code(), Code::ConfigInvalid);
}

#[test]
fn git_folders_are_not_the_users_files() {
    let world = World::new();
    world.file(".git/config", b"secret");
    world.file("sub/.GIT/config", b"secret");
    world.file(".gitignore", b"x");
    let collected = world.collect(&["**", ".git/config?"]);
    assert_eq!(paths(&collected), ["artifacts/qa/.gitignore"]);
    assert_eq!(reasons(&collected), BTreeMap::from([(".git", SkipReason::Git)]));
}

#[test]
fn f15_the_state_folder_is_known_by_what_it_is_and_its_files_are_never_opened() {
    // As with `workspace: in-place`, and with a name that says nothing.
    let world = World::with_home("work/looks-harmless");
    world.file("a.txt", b"a");
    let database = rusqlite::Connection::open(world.home.database()).unwrap();
    database.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1);").unwrap();
    std::fs::hard_link(world.home.database(), world.work().join("innocent.db")).unwrap();

    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let files = std::fs::read_dir(world.home.state_dir()).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    assert!(files.len() >= 3, "{files:?}");
    for file in &files {
        inotify::add_watch(&watch, file, inotify::WatchFlags::OPEN).unwrap();
    }
    let globs = ["**", "looks-harmless/state/agentrun.db?", "looks-harmless/state/*?", "innocent.db?"];
    let collected = world.collect(&globs);
    assert_eq!(paths(&collected), ["artifacts/qa/a.txt"]);
    let expected = [("looks-harmless", SkipReason::State), ("innocent.db", SkipReason::HardLink)];
    assert_eq!(reasons(&collected), BTreeMap::from(expected));
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    assert!(events.next().is_err(), "T2: a database file was opened");

    drop(rusqlite::Connection::open(world.home.database()).unwrap());
    database.execute("INSERT INTO t VALUES (2)", []).unwrap();
    let rows: i64 = database.query_row("SELECT count(*) FROM t", [], |r| r.get(0)).unwrap();
    assert_eq!(rows, 2);
}

#[test]
fn a_working_copy_inside_the_state_folder_is_no_state() {
    let mut world = World::new();
    world.work = world.home.work_dir(&RunId::recorded("run_1_001")).unwrap();
    world.file("out/a.txt", b"a");
    assert_eq!(paths(&world.collect(&["**"])), ["artifacts/qa/out/a.txt"]);
}

#[test]
fn f21_recorded_files_stay_and_litter_of_a_crash_is_replaced() {
    let mut world = World::new();
    world.file("out", b"first");
    let first = world.collect(&["out"]);
    world.file("out", b"second");
    let again = world.collect(&["out"]);
    assert_eq!(paths(&again), ["artifacts/qa/out"], "the first was never recorded: the process died before");

    world.recorded = again.kept;
    world.file("out", b"third");
    let third = world.collect(&["out"]);
    assert_eq!(paths(&third), ["artifacts/qa.2/out"]);
    assert_eq!(crate::artifacts::digest::verify(&world.run, &world.recorded).unwrap(), []);
    assert_ne!(first.kept[0].sha256, third.kept[0].sha256);
}

#[test]
fn f08_a_full_disk_fails_the_step_and_leaves_no_half_file() {
    let world = World::new();
    let small = world.run.path().join("artifacts");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"])
        .arg(&small)
        .status()
        .is_ok_and(|s| s.success());
    if !mounted {
        eprintln!("SKIPPED f08_a_full_disk_fails_the_step_and_leaves_no_half_file: needs root and mount");
        return;
    }
    world.file("small", &[1; 1000]);
    world.file("zz-large", &vec![2; 200_000]);
    let error = world.try_collect(&["small", "zz-large"]).unwrap_err();
    let kept = small.join("qa/small").metadata().unwrap().size();
    let left = std::fs::read_dir(small.join("qa")).unwrap().count();
    let unmounted = std::process::Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success());
    assert_eq!(error.code(), Code::ArtifactNoSpace);
    assert_eq!(error.failure().code.entry().exit.code(), 12);
    assert!(error.to_string().contains("zz-large"), "{error}");
    assert_eq!((kept, left), (1000, 1), "the temporary file is gone");
}
