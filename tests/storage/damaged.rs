//! A database that is damaged (F13), older than what was once said (F14), newer than the program (F17), or on the wrong kind of
//! file system (F16): it is refused untouched, and where there is a way on, it is named and works.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::world::{Output, World, agent_step, command_step, qa_step};

fn database(world: &World) -> PathBuf {
    world.state("state/agentrun.db")
}

/// Everything of the log in the file, and no process has it open.
fn folded(world: &World) -> Vec<u8> {
    let db = rusqlite::Connection::open(database(world)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
    drop(db);
    fs::read(database(world)).unwrap()
}

/// Two runs that succeeded and one that failed and can go on.
fn three_runs(world: &World) {
    // So long that it does not fit into a page.
    world.write("prompts/do.md", &"Do it.\n".repeat(3000));
    let code = agent_step("code", &format!("effect:{},write:w.txt=w,ok", world.at("code")));
    world.task("good", &format!("steps:\n  - context\n{code}{}", qa_step("qa", "test -e w.txt")));
    world.command_task("other", &format!("echo x >> {}", world.at("other")));
    let first = command_step("first", &format!("echo x >> {}", world.at("first")));
    world.task("bad", &format!("steps:\n{first}{}", command_step("last", &format!("test -e {}", world.at("fixed")))));
    assert_eq!((world.start("good").0, world.start("other").0, world.start("bad").0), (0, 0, 1));
}

/// What a page of the database is, by its first byte, and to what it belongs.
fn pages(world: &World) -> Vec<(String, usize)> {
    let db = rusqlite::Connection::open(database(world)).unwrap();
    let mut statement = db.prepare("SELECT name || ' ' || pagetype, pageno FROM dbstat ORDER BY pageno").unwrap();
    let rows = statement.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).unwrap();
    rows.map(Result::unwrap).map(|(kind, page)| (kind, usize::try_from(page).unwrap())).collect()
}

fn check<'a>(told: &'a Value, name: &str) -> Option<&'a str> {
    let checks = told["checks"].as_array().unwrap();
    checks.iter().find(|c| c["name"] == name).map(|c| c["message"].as_str().unwrap())
}

#[test]
fn f13_every_kind_of_damage_is_refused_and_recovered_into_a_new_file() {
    let world = World::new();
    three_runs(&world);
    let pages = pages(&world);
    let whole = folded(&world);
    let page = |kind: &str| {
        let found = pages.iter().find(|(found, _)| found == kind);
        found.unwrap_or_else(|| panic!("no page of kind `{kind}`: {pages:?}")).1
    };
    // Eight kinds: the file's own header, the schema, and of tables and indexes roots, inner pages, leaves and long texts.
    let kinds = [
        ("header", 1, 0, Loses::Nothing),
        ("schema", 1, 100, Loses::Nothing),
        ("an inner page of the events", page("event internal"), 0, Loses::Nothing),
        ("an index", page("sqlite_autoindex_event_1 leaf"), 0, Loses::Nothing),
        ("a leaf of the events", page("event leaf"), 0, Loses::SomeRun),
        ("a leaf of the runs", page("run leaf"), 0, Loses::SomeRun),
        ("a leaf of the steps", page("step leaf"), 0, Loses::SomeRun),
        ("a long text", page("run_inputs overflow"), 0, Loses::SomeRun),
    ];
    for (kind, page, at, loses) in kinds {
        let mut damaged = whole.clone();
        let begin = (page - 1) * 4096 + at;
        damaged[begin..begin + 8].iter_mut().for_each(|byte| *byte ^= 0xff);
        let lost = recovers(&world, kind, &damaged);
        assert_eq!(lost > 0, loses == Loses::SomeRun, "{kind}: {lost} runs are not whole");
        fs::write(database(&world), &whole).unwrap();
    }
}

/// What damage costs: what stands on other pages as well is found there.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Loses {
    Nothing,
    SomeRun,
}

/// Refused, recovered, explained; answers how many of the three runs are not whole.
fn recovers(world: &World, kind: &str, damaged: &[u8]) -> usize {
    let mut lost = 0;
    for aside in fs::read_dir(world.state("state")).unwrap().map(|e| e.unwrap().path()) {
        fs::remove_file(aside).unwrap();
    }
    fs::write(database(world), damaged).unwrap();
    for args in [&["start", "bad", "--resume"][..], &["resume", "run_bad_001"], &["start", "new-task-that-is-none"]] {
        let (exit, told) = world.json(args);
        assert!(exit == 13 || exit == 16, "{kind}: {args:?}: {told:#}");
    }
    world.command_task("fresh", &format!("touch {}", world.at("ran")));
    let (exit, told) = world.start("fresh");
    assert_eq!((exit, &told["code"]), (13, &"STATE_CORRUPT".into()), "{kind}: {told:#}");
    assert!(told["hint"].as_str().unwrap().contains("doctor --recover"), "{kind}");
    assert!(!world.path("ran").exists(), "{kind}: nothing ran on a damaged database");
    assert!(fs::read(database(world)).unwrap() == damaged, "{kind}: untouched");
    let (_, doctor) = world.json(&["doctor"]);
    assert_eq!(doctor["fit"], false, "{kind}: {doctor:#}");

    let (exit, told) = world.json(&["doctor", "--recover"]);
    assert_eq!(exit, 0, "{kind}: {told:#}");
    let kept = world.state("state/agentrun.db.damaged-1");
    assert!(fs::read(kept).unwrap() == damaged, "{kind}: the damaged file is kept as it was");
    assert!(check(&told, "recover.database").unwrap().contains("agentrun.db.damaged-1"), "{kind}: {told:#}");
    // What the audit log says and what was told fit together: a run is whole, or was told of.
    let (_, audit) = world.json(&["audit", "verify"]);
    for (task, run) in [("good", "run_good_001"), ("other", "run_other_001"), ("bad", "run_bad_001")] {
        let told_of = check(&told, &format!("recover.run.{run}")).or(check(&told, &format!("recover.folder.{run}")));
        lost += usize::from(told_of.is_some());
        let (known, shown) = world.json(&["show", run]);
        let (exit, answer) = world.start(task);
        match (known, told_of) {
            (0, None) => {
                assert_eq!(answer["run"], run, "{kind}: a run that is whole is found again: {answer:#}");
                assert_eq!(exit, i32::from(task == "bad"), "{kind}: {answer:#}");
                assert!(shown["audit"]["count"].as_u64() > Some(3), "{kind}: {shown:#}");
                assert!(!audit["broken"].to_string().contains(run), "{kind}: {audit:#}");
            }
            // A run that was told of as not whole is not gone on with.
            (_, Some(_)) => assert!(task != "bad" || answer["run"] != run || exit != 0, "{kind}: {answer:#}"),
            (_, None) => panic!("{kind}: {run} is lost, and nobody said so: {told:#}"),
        }
    }
    let (exit, run) = world.json(&["start", "fresh", "--new"]);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{kind}: {run:#}");
    fs::remove_file(world.path("ran")).unwrap();
    let (exit, again) = world.json(&["doctor", "--recover"]);
    assert_eq!(
        (exit, check(&again, "recover")),
        (0, Some("the records are whole; nothing was changed")),
        "{kind}: {again:#}"
    );
    for run in ["run_fresh_001", "run_fresh_002"] {
        let _ = fs::remove_dir_all(world.state(run));
    }
    for task in ["good", "other", "bad"] {
        let _ = fs::remove_file(world.state(&format!("run_{task}_001/not-in-the-database.md")));
        let _ = fs::remove_dir_all(world.state(&format!("run_{task}_002")));
        let folder = world.state(&format!("run_{task}_001"));
        let first = folder.join("manifest.yml.before-1");
        if first.exists() {
            fs::rename(first, folder.join("manifest.yml")).unwrap();
        }
    }
    lost
}

#[test]
fn f13_only_the_damaged_part_is_lost() {
    let world = World::new();
    three_runs(&world);
    let leaf = pages(&world).iter().find(|(kind, _)| kind == "sqlite_autoindex_event_1 leaf").unwrap().1;
    let mut damaged = folded(&world);
    damaged[(leaf - 1) * 4096..][..8].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(database(&world), &damaged).unwrap();
    let (exit, told) = world.json(&["doctor", "--recover"]);
    assert_eq!(exit, 0, "{told:#}");
    assert_eq!(check(&told, "recover.run.run_bad_001"), None, "an index holds nothing of its own: {told:#}");
    world.open("fixed");
    let (exit, run) = world.json(&["resume", "run_bad_001"]);
    assert_eq!((exit, world.lines("first")), (0, 1), "{run:#}");
    world.assert_sound("run_bad_001");
}

#[test]
fn f13_a_database_in_use_is_not_recovered() {
    let world = World::new();
    world.command_task(
        "t",
        &format!("touch {}; while ! test -e {}; do sleep 0.02; done", world.at("in"), world.at("go")),
    );
    let running = world.spawn_until(&["start", "t"], "in");
    let (exit, told) = world.json(&["doctor", "--recover"]);
    assert_eq!((exit, &told["code"]), (7, &"BUSY".into()), "{told:#}");
    assert!(told["message"].as_str().unwrap().contains(&running.pid().to_string()), "{told:#}");
    world.open("go");
    assert_eq!(running.end().exit, 0);
}

/// Puts yesterday's database back and says what then is refused, and how it goes on.
fn is_rolled_back(world: &World, task: &str, run: &str) {
    for args in [&["start", task][..], &["start", task, "--new"], &["resume", run]] {
        let (exit, told) = world.json(args);
        let is_unknown = args[0] == "resume" && exit == 16;
        assert!(is_unknown || (exit, &told["code"]) == (13, &"STATE_ROLLED_BACK".into()), "{args:?}: {told:#}");
        assert!(is_unknown || told["hint"].as_str().unwrap().contains("doctor --recover"), "{told:#}");
    }
    let (_, doctor) = world.json(&["doctor"]);
    assert!(check(&doctor, "records").unwrap().contains(run), "{doctor:#}");
    let (exit, told) = world.json(&["doctor", "--recover"]);
    assert_eq!(exit, 0, "{told:#}");
    assert!(told.to_string().contains(run), "{told:#}");
    let (exit, next) = world.json(&["start", task, "--new"]);
    assert_eq!(exit, 0, "{next:#}");
    assert_ne!(next["run"], run, "R-M2: a number is never given out twice");
    assert_eq!(world.json(&["audit", "verify"]).0, 0);
    assert_eq!(world.run(&["doctor"]).exit, 0);
}

#[test]
fn f14_a_database_that_does_not_know_a_run_gives_its_number_to_nobody() {
    let world = World::new();
    world.command_task("other", "true");
    assert_eq!(world.start("other").0, 0);
    let yesterday = folded(&world);
    world.command_task("t", &format!("echo x >> {}", world.at("e")));
    assert_eq!(world.start("t").0, 0);
    folded(&world);
    fs::write(database(&world), yesterday).unwrap();
    assert_eq!(world.start("other").0, 0, "what it does know is as it was");
    is_rolled_back(&world, "t", "run_t_001");
}

#[test]
fn f14_a_log_that_was_deleted_takes_the_run_with_it_and_that_is_seen() {
    let world = World::new();
    world.command_task("other", "true");
    assert_eq!(world.start("other").0, 0);
    folded(&world);
    let line = format!("touch {}; while ! test -e {}; do sleep 0.02; done", world.at("in"), world.at("go"));
    world.command_task("t", &line);
    world.spawn_until(&["start", "t"], "in").kill();
    lose_the_log(&world);
    world.open("go");
    is_rolled_back(&world, "t", "run_t_001");
}

/// After a kill everything newer than the last quiet moment is in the log alone.
fn lose_the_log(world: &World) {
    for pid in world.living() {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL);
    }
    crate::world::wait_until("every process is gone", || world.living().is_empty());
    assert!(fs::metadata(world.state("state/agentrun.db-wal")).unwrap().len() > 0);
    fs::remove_file(world.state("state/agentrun.db-wal")).unwrap();
    let _ = fs::remove_file(world.state("state/agentrun.db-shm"));
}

#[test]
fn f14_r_s4_a_log_that_was_deleted_under_a_later_attempt_is_seen_by_its_manifest() {
    let world = World::new();
    let line = format!(
        "test -e {0} || {{ touch {0}; exit 1; }}; touch {1}; while ! test -e {2}; do sleep 0.02; done",
        world.at("once"),
        world.at("in"),
        world.at("go")
    );
    world.command_task("t", &line);
    assert_eq!(world.start("t").0, 1);
    folded(&world);
    world.spawn_until(&["resume", "run_t_001"], "in").kill();
    lose_the_log(&world);
    world.open("go");
    is_rolled_back(&world, "t", "run_t_001");
}

#[test]
fn f14_r_s4_a_run_that_got_further_than_its_database_knows_does_not_go_on() {
    let world = World::new();
    let first = command_step("first", &format!("echo x >> {}", world.at("first")));
    world.task("t", &format!("steps:\n{first}{}", command_step("last", &format!("test -e {}", world.at("fixed")))));
    assert_eq!(world.start("t").0, 1);
    let yesterday = folded(&world);
    assert_eq!(world.json(&["resume", "run_t_001"]).0, 1);
    folded(&world);
    fs::write(database(&world), &yesterday).unwrap();
    world.open("fixed");
    is_rolled_back(&world, "t", "run_t_001");
    let run = world.show("run_t_001");
    assert_eq!((&run["status"], &run["code"]), (&"CANCELED".into(), &"STATE_ROLLED_BACK".into()), "{run:#}");
}

#[test]
fn f14_a_database_that_went_another_way_since_is_seen_although_it_is_longer() {
    let world = World::new();
    world.command_task("t", &format!("test -e {}", world.at("fixed")));
    assert_eq!(world.start("t").0, 1);
    let yesterday = folded(&world);
    let manifest = world.state("run_t_001/manifest.yml");
    assert_eq!(world.json(&["resume", "run_t_001"]).0, 1);
    let shown = fs::read(&manifest).unwrap();
    folded(&world);
    fs::write(database(&world), &yesterday).unwrap();
    fs::remove_file(&manifest).unwrap();
    for _ in 0..2 {
        world.json(&["resume", "run_t_001"]);
    }
    fs::write(&manifest, shown).unwrap();
    let (exit, told) = world.json(&["resume", "run_t_001"]);
    assert_eq!((exit, &told["code"]), (13, &"STATE_ROLLED_BACK".into()), "{told:#}");
    assert!(told["message"].as_str().unwrap().contains("another one than its manifest shows"), "{told:#}");
}

#[test]
fn f16_a_state_folder_on_a_network_is_refused_before_anything_is_written() {
    for (number, name) in [(0x6969, "NFS"), (0x6573_5546, "FUSE"), (0xff53_4d42_u64, "CIFS"), (0x0102_1997, "9p")] {
        let mut world = World::new();
        world.command_task("t", &format!("touch {}", world.at("ran")));
        world.vars.push(("AGENTRUN_TEST_FILE_SYSTEM".to_owned(), number.to_string()));
        for args in [&["start", "t"][..], &["init"]] {
            let (exit, told) = world.json(args);
            assert_eq!((exit, &told["code"]), (11, &"ENV_FS_UNSUPPORTED".into()), "{args:?} {told:#}");
            assert!(told["message"].as_str().unwrap().contains(name), "{told:#}");
            assert!(told["hint"].as_str().unwrap().contains("AGENTRUN_HOME"), "{told:#}");
        }
        assert!(!world.state("").exists() && !world.path("ran").exists());
        let (exit, doctor) = world.json(&["doctor"]);
        assert!(exit == 11 && check(&doctor, "state.disk").unwrap().contains(name), "{doctor:#}");
    }
    let world = World::new();
    let (_, doctor) = world.json(&["doctor"]);
    assert!(check(&doctor, "state.disk").unwrap().contains(" lies on "), "{doctor:#}");
}

#[test]
fn f17_a_newer_database_is_refused_by_every_command_and_not_changed() {
    let world = World::new();
    world.command_task("t", "true");
    assert_eq!(world.start("t").0, 0);
    rusqlite::Connection::open(database(&world)).unwrap().pragma_update(None, "user_version", 999).unwrap();
    let before = folded(&world);
    for args in
        [&["start", "t"][..], &["resume", "run_t_001"], &["status"], &["cancel", "run_t_001"], &["doctor", "--recover"]]
    {
        let Output { exit, stderr, .. } = world.run(args);
        assert_eq!(exit, 14, "{args:?} {stderr}");
        assert!(stderr.contains("999") && stderr.contains("STATE_TOO_NEW"), "{args:?} {stderr}");
    }
    assert!(fs::read(database(&world)).unwrap() == before);
}
