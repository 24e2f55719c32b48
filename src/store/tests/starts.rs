//! A run is accepted once: fingerprints, keys, versions, groups, numbers.

use super::*;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::quantity::Millis;
use crate::domain::run::RunStatus;
use crate::domain::task::{Concurrency, Prompt, WhenBusy};
use crate::store::{EventFilter, RunFilter, StartKey, StoreError};

fn key_of(text: &str, request: &str, expires_at: i64) -> StartKey {
    let (hash, request) = (Sha256Hash::of(text.as_bytes()), Sha256Hash::of(request.as_bytes()));
    StartKey { hash, request, expires_at: UtcMs(expires_at) }
}

fn start(world: &mut World, new: &NewRun) -> super::super::Result<Started> {
    let ctx = world.ctx();
    world.store.start_or_attach(new, &ctx)
}

fn existing(started: super::super::Result<Started>) -> RunId {
    match started.unwrap() {
        Started::Existing(run) => run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn r_m2_ids_and_numbers_follow_the_task_ignoring_case() {
    let mut world = World::new();
    assert_eq!(world.started(&new_run("Login", "a")).run.as_str(), "run_Login_001");
    assert_eq!(world.started(&new_run("login", "b")).run.as_str(), "run_Login_002", "the same task, the same folder");
    let floor = NewRun { number_floor: 7, ..new_run("LOGIN", "c") };
    assert_eq!(world.started(&floor).run.as_str(), "run_Login_008", "folders and refs count too");
    assert_eq!(world.started(&new_run("other", "a")).run.as_str(), "run_other_001");
    let newest = world.store.newest_run_of_task(&TaskId::new("logiN").unwrap()).unwrap().unwrap();
    assert_eq!(newest.number, 8);
}

#[test]
fn r_m9_the_run_is_recorded_as_it_was_wanted() {
    let mut world = World::new();
    let new = NewRun { key: Some(key_of("k", "r", i64::MAX)), ..new_run("182", "a") };
    let hold = world.started(&new);
    let run = world.store.find_run(&hold.run).unwrap().unwrap();
    assert_eq!(run.components, new.components);
    assert_eq!(run.fingerprint, new.components.fingerprint());
    assert_eq!((run.status, run.attempt, run.fence, run.instance), (RunStatus::Running, 1, 1, 1));
    assert_eq!(run.key_hash, Some(Sha256Hash::of(b"k")));
    assert_eq!(run.lease.unwrap().holder, process());
    assert_eq!(run.started_at, Some(run.created_at));
    let view = world.store.view(&hold.run).unwrap();
    assert_eq!(view.inputs, new.inputs);
    assert_eq!(view.steps.len(), 5);
    let database = std::fs::read(world.path()).unwrap();
    assert!(!String::from_utf8_lossy(&database).contains("\"k\""), "the key itself is nowhere");
}

#[test]
fn r_m9_the_promised_indexes_serve_their_queries() {
    let world = World::new();
    let raw = world.raw();
    let plan = |sql: &str| {
        let mut rows = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        rows.query_map((), |row| row.get::<_, String>(3)).unwrap().map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let of_request = format!(
        "SELECT * FROM event WHERE tenant = 'local' AND {}",
        crate::store::audit::OF_REQUEST.replace('?', "'r'")
    );
    let queries = [
        ("SELECT seq FROM run WHERE tenant = 'local' AND task = 1 ORDER BY created_at DESC", "run_by_task"),
        ("SELECT seq FROM run WHERE tenant = 'local' AND status = 'RUNNING' ORDER BY heartbeat_at", "run_by_status"),
        ("SELECT sum(input) FROM execution WHERE task = 1 AND epoch = 1", "execution_by_ledger"),
        ("SELECT count(*) FROM attempt WHERE task = 1 AND epoch = 1 AND state IN ('FAILED', 'LOST')", "attempt_failed"),
        (&of_request, "SEARCH event USING INDEX sqlite_autoindex_event_2"),
        ("SELECT * FROM event WHERE key_hash = x'00'", "event_by_key"),
        ("SELECT * FROM event WHERE code = 'FENCED'", "event_by_code"),
        ("SELECT * FROM run WHERE tenant = 'local' AND support_code = 'X'", "run_by_support_code"),
        (
            "SELECT id FROM run WHERE tenant = 'local' AND concurrency_group = 'g' AND status = 'RUNNING'",
            "run_by_group",
        ),
    ];
    for (sql, index) in queries {
        assert!(plan(sql).contains(index), "{sql}: {}", plan(sql));
    }
}

#[test]
fn r_f3_the_same_fingerprint_is_the_same_run_until_a_new_one_is_asked_for() {
    let mut world = World::new();
    let first = world.started(&new_run("182", "a"));
    assert_eq!(existing(start(&mut world, &new_run("182", "a"))), first.run);
    world.record(&first, &[run_event(RunEvent::Succeed)]).unwrap();
    assert_eq!(existing(start(&mut world, &new_run("182", "a"))), first.run, "also when it has succeeded");
    let fresh = world.started(&NewRun { fresh: true, ..new_run("182", "a") });
    assert_ne!(fresh.run, first.run);
    assert_eq!(existing(start(&mut world, &new_run("182", "a"))), fresh.run, "the newest instance counts");
    let by_fingerprint = world.store.run_by_fingerprint(&new_run("182", "a").components.fingerprint()).unwrap();
    assert_eq!(by_fingerprint.unwrap().instance, 2);
    assert_ne!(world.started(&new_run("182", "b")).run, fresh.run, "any part differs: a new run");
}

#[test]
fn r_f5_a_version_names_one_text() {
    let mut world = World::new();
    let prompt = |version: &str, sha256: &str| {
        let (path, version, template) = ("prompts/fix.md".into(), version.into(), String::new());
        let mut new = new_run("182", &format!("{sha256}{version}"));
        new.inputs.prompts.insert(key("codex"), Prompt { path, version, sha256: sha256.into(), template });
        new
    };
    world.started(&prompt("v1", "aa"));
    world.started(&prompt("v2", "bb"));
    let refused = start(&mut world, &prompt("v1", "bb")).unwrap_err();
    assert_eq!(refused.code(), Code::PromptVersionReused);
    // The fingerprint may be the same: it holds the version, not the text.
    let mut same = prompt("v1", "aa");
    same.inputs.prompts.get_mut(&key("codex")).unwrap().sha256 = "cc".into();
    assert_eq!(start(&mut world, &same).unwrap_err().code(), Code::PromptVersionReused);

    let mut policy = new_run("182", "p");
    policy.inputs.policy_sha256 = Sha256Hash::of(b"another");
    assert_eq!(start(&mut world, &policy).unwrap_err().code(), Code::PolicyVersionReused);
    policy.inputs.policy.version = "2".into();
    world.started(&policy);
    let refusals = EventFilter { kind: Some(EventKind::StartRefused), ..EventFilter::default() };
    assert_eq!(world.store.events(&refusals).unwrap().len(), 3, "no refusal is silent");
    assert_eq!(world.store.runs(&RunFilter::All).unwrap().len(), 3, "and none left a run");
    world.check_chains();
}

#[test]
fn r_f7_an_idempotency_key_names_one_request_for_its_time() {
    let mut world = World::new();
    let keyed = |marker: &str, request: &str| NewRun {
        key: Some(key_of("job-1", request, 1_000_100)),
        ..new_run("182", marker)
    };
    let first = world.started(&keyed("a", "r1"));
    assert_eq!(existing(start(&mut world, &keyed("a", "r1"))), first.run);
    // Same request, though the fingerprint moved on: still the same run.
    assert_eq!(existing(start(&mut world, &keyed("b", "r1"))), first.run);
    let fresh = NewRun { fresh: true, ..keyed("a", "r1") };
    assert_eq!(existing(start(&mut world, &fresh)), first.run, "a repeated request with --new makes no second run");

    let reused = start(&mut world, &keyed("a", "r2")).unwrap_err();
    assert_eq!(reused, StoreError::KeyReused { run: first.run.clone() });
    world.clock = 1_000_100;
    let expired = start(&mut world, &keyed("a", "r1")).unwrap_err();
    assert_eq!(expired.code(), Code::IdempotencyKeyExpired, "never silently treated as new");

    let of_key = EventFilter { key_hash: Some(Sha256Hash::of(b"job-1")), ..EventFilter::default() };
    let kinds: Vec<_> = world.store.events(&of_key).unwrap().into_iter().map(|e| e.kind).collect();
    let all = [
        EventKind::RunCreated,
        EventKind::KeyBound,
        EventKind::RunStarted,
        EventKind::KeyConflicted,
        EventKind::StartRefused,
    ];
    assert_eq!(kinds, all, "R-M6: everything that the key led to");
    let conflicts = EventFilter { code: Some(Code::IdempotencyKeyReused), ..EventFilter::default() };
    assert_eq!(world.store.events(&conflicts).unwrap().len(), 1);
}

#[test]
fn r_f7_a_key_may_come_later_to_a_run_that_is_there() {
    let mut world = World::new();
    let first = world.started(&new_run("182", "a"));
    let keyed = NewRun { key: Some(key_of("job-2", "r1", i64::MAX)), ..new_run("182", "a") };
    assert_eq!(existing(start(&mut world, &keyed)), first.run);
    let other = NewRun { key: Some(key_of("job-2", "r2", i64::MAX)), ..new_run("182", "a") };
    assert_eq!(start(&mut world, &other).unwrap_err().code(), Code::IdempotencyKeyReused);
}

fn grouped(marker: &str, when_busy: WhenBusy) -> NewRun {
    let mut new = new_run("182", marker);
    new.inputs.spec.concurrency = Some(Concurrency { group: "main".into(), when_busy });
    new
}

#[test]
fn r_w6_one_run_of_a_group_at_a_time() {
    let mut world = World::new();
    let Started::Queued { run: first, behind: None } = start(&mut world, &grouped("a", WhenBusy::Queue)).unwrap()
    else {
        panic!("it is accepted first, and then takes its turn")
    };
    let first = world.claim(&first, RunEvent::Start, 0).unwrap();
    for when_busy in [WhenBusy::Refuse, WhenBusy::Join] {
        let busy = start(&mut world, &grouped("b", when_busy)).unwrap_err();
        assert_eq!(busy, StoreError::GroupBusy { group: "main".into(), run: first.run.clone() });
    }
    let Started::Queued { run, behind } = start(&mut world, &grouped("b", WhenBusy::Queue)).unwrap() else { panic!() };
    assert_eq!(behind, Some(first.run.clone()));
    let busy = world.claim(&run, RunEvent::Start, 0).unwrap_err();
    assert_eq!(busy.code(), Code::GroupBusy);
    world.record(&first, &[run_event(RunEvent::Interrupt)]).unwrap();
    world.claim(&run, RunEvent::Start, 0).unwrap();
    let busy = world.claim(&first.run, RunEvent::Resume, 1).unwrap_err();
    assert_eq!(busy, StoreError::GroupBusy { group: "main".into(), run });
    world.started(&new_run("182", "without a group"));
}

#[test]
fn r_r5_a_run_can_be_accepted_without_anybody_working_on_it() {
    let mut world = World::new();
    let new = NewRun { claim: None, ..new_run("182", "a") };
    let Started::Queued { run, behind: None } = start(&mut world, &new).unwrap() else { panic!() };
    let record = world.store.find_run(&run).unwrap().unwrap();
    assert_eq!((record.status, record.attempt, record.fence), (RunStatus::Pending, 0, 0));
    assert_eq!(world.claim(&run, RunEvent::Start, 0).unwrap(), Hold { run, attempt: 1, fence: 1 });
}

#[test]
fn what_a_person_types_leads_to_a_run() {
    let mut world = World::new();
    let one = NewRun { support_code: SupportCode::from_bits(1), ..new_run("182", "a") };
    let (one, code) = (world.started(&one).run, one.support_code);
    let two = world.started(&new_run("182", "b")).run;
    let other = world.started(&new_run("1823", "a")).run;
    let find = |text: &str| world.store.find_by_prefix(text).unwrap();
    let only = std::slice::from_ref(&one);
    assert_eq!(find("run_182_001"), only);
    assert_eq!(find(&code.as_str().to_lowercase()), only);
    assert_eq!(find("182"), [two.clone(), one.clone()], "a task: its runs, newest first");
    assert_eq!(find("run_182"), [other, two, one], "a beginning");
    assert!(find("nothing").is_empty());
    assert!(find("%").is_empty());
}

#[test]
fn lists_show_what_their_names_say() {
    let mut world = World::new();
    let mut runs = Vec::new();
    for event in [RunEvent::Succeed, RunEvent::Fail, RunEvent::BuryDead, RunEvent::Interrupt, RunEvent::Cancel] {
        let hold = world.started(&new_run("182", &format!("{event}")));
        world.record(&hold, &[step("codex", StepEvent::Begin)]).unwrap();
        world.record(&hold, &[step("codex", StepEvent::Fail), run_event(event)]).unwrap();
        runs.push(hold.run);
    }
    let list = |filter: RunFilter| -> Vec<RunId> {
        world.store.runs(&filter).unwrap().into_iter().map(|s| s.run.id).collect()
    };
    let newest_first: Vec<_> = runs.iter().rev().cloned().collect();
    assert_eq!(list(RunFilter::All), newest_first);
    assert_eq!(list(RunFilter::Newest(2)), newest_first[..2]);
    assert_eq!(list(RunFilter::Open), [runs[3].clone()]);
    assert_eq!(list(RunFilter::Dead), [runs[2].clone()]);
    assert_eq!(list(RunFilter::Overview { newest: 1 }), [runs[4].clone(), runs[3].clone()]);
    assert_eq!(list(RunFilter::Task(TaskId::new("182").unwrap())), newest_first);
    assert!(list(RunFilter::Task(TaskId::new("9").unwrap())).is_empty());
    let shown = &world.store.runs(&RunFilter::Newest(1)).unwrap()[0];
    assert_eq!((shown.title.as_deref(), &shown.step), (Some("Fix the login"), &Some(key("codex"))));
    assert_eq!(shown.usage.active, Millis(1), "a step without a process is active from its beginning to its end");
    let ended = world.store.finished_before(UtcMs(i64::MAX)).unwrap();
    assert_eq!(ended.len(), 4, "an interrupted run is not finished");
    let ctx = world.ctx();
    world.store.sweep(&ended[0], &ctx).unwrap();
    assert_eq!(world.store.finished_before(UtcMs(i64::MAX)).unwrap(), ended[1..]);
    assert!(world.store.finished_before(UtcMs(0)).unwrap().is_empty());
}
