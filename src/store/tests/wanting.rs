//! R-A2 to R-A6, R-A16: what is wanted is recorded once, whoever wants it, and nothing of it stands in the log.

use std::path::Path;
use std::sync::Barrier;

use super::effects::*;
use super::*;
use crate::domain::action::record::WantedAnswer;
use crate::domain::action::{ActionEvent, ActionState};
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::machine::Word as _;
use crate::domain::policy::{Verdict, decide};
use crate::store::{ActionClaim, ActionFilter, By, EventFilter, Proposal, Proposed, Sending, StoreError};

#[test]
fn r_a3_the_same_wish_is_led_to_the_same_action() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let first = effects.propose(&proposal(&hold, "a")).unwrap();
    assert!(matches!(&first, Proposed::New(record) if record.state == ActionState::Ready && record.tries == 0));
    let again = Proposal { id: id("another"), ..proposal(&hold, "a") };
    assert_eq!(effects.propose(&again).unwrap(), Proposed::Known(Box::new(first.record().clone())));
    let wanted = effects.world.store.wanted(&first.record().id).unwrap();
    let answers: Vec<_> = wanted.iter().map(|w| w.answer).collect();
    assert_eq!(answers, [WantedAnswer::New, WantedAnswer::Known]);
    assert_eq!((&wanted[0].by.run, wanted[0].by.call.as_deref()), (&hold.run, Some("call-1")));
    let told: Vec<_> =
        effects.told(EventKind::ActionWanted).into_iter().map(|(_, body)| body["answer"].clone()).collect();
    assert_eq!(told, ["new", "known"], "R-M7: a duplicate is never silent");
    let view = effects.world.store.view(&hold.run).unwrap();
    assert_eq!(view.actions, [first.record().clone()]);
    effects.world.check_chains();
    effects.world.store.integrity().unwrap();
}

#[test]
fn r_a3_two_runs_that_want_the_same_have_one_action() {
    let mut effects = Effects::new(Verdict::Allow);
    let first = effects.wanted("a");
    let other = effects.world.started(&under(Verdict::Allow, "other"));
    assert!(matches!(effects.propose(&proposal(&other, "a")).unwrap(), Proposed::Known(record) if record.id == first));
    let filter = ActionFilter { run: Some(other.run.clone()), ..ActionFilter::default() };
    assert_eq!(effects.world.store.actions(&filter).unwrap().len(), 1);
    assert_eq!(effects.action(&first).run, effects.hold.run, "the first that wanted it");
}

#[test]
fn r_a3_f53_a_key_with_another_request_is_refused_before_anything_is_sent() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let first = effects.wanted("a");
    let before = effects.action(&first);
    let wanted = Sha256Hash::of(b"other");
    let other = Proposal { id: id("another"), request_hash: wanted, ..proposal(&hold, "a") };
    let refused = effects.propose(&other).unwrap_err();
    assert_eq!(refused.code(), Code::IdempotencyKeyReused);
    assert_eq!(refused, StoreError::ActionKeyReused { action: first.clone(), recorded: before.request_hash, wanted });
    let (event, body) = effects.told(EventKind::ActionRefused).pop().unwrap();
    assert_eq!(body["code"], "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(
        (&body["request_hash"], &body["recorded_request_hash"]),
        (&wanted.hex().into(), &before.request_hash.hex().into())
    );
    assert!(event.reason.unwrap().contains("used for another request"));
    assert_eq!(effects.action(&first), before, "nothing moved");
    let answers: Vec<_> = effects.world.store.wanted(&first).unwrap().into_iter().map(|w| w.answer).collect();
    assert_eq!(answers, [WantedAnswer::New, WantedAnswer::Conflict]);
    assert!(effects.world.store.action(&id("another")).unwrap().is_none());
}

#[test]
fn r_a5_another_normal_form_is_no_conflict() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let first = effects.wanted("a");
    let later = Proposal { normal_version: 2, request_hash: Sha256Hash::of(b"x"), ..proposal(&hold, "a") };
    assert!(matches!(effects.propose(&later).unwrap(), Proposed::Known(record) if record.id == first));
    let (_, body) = effects.told(EventKind::ActionWanted).pop().unwrap();
    assert_eq!(body["compared"], false, "and it is noted");
}

#[test]
fn r_a3_an_expired_key_is_reported_and_never_taken_for_a_new_one() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let wish = || Proposal { expires_at: Some(UtcMs(1_000_020)), ..proposal(&hold, "a") };
    let first = effects.propose(&wish()).unwrap().record().id.clone();
    effects.claim(&first);
    effects.world.clock = 1_000_100;
    assert!(matches!(effects.propose(&wish()).unwrap(), Proposed::Known(_)), "what is not settled lives on");
    effects.send(&first, None).unwrap().unwrap();
    effects.answer(&first, &done()).unwrap();
    let refused = effects.propose(&wish()).unwrap_err();
    assert_eq!((refused.code(), effects.action(&first).state), (Code::IdempotencyKeyExpired, ActionState::Succeeded));
    assert_eq!(effects.told(EventKind::ActionRefused).len(), 1);
}

#[test]
fn what_was_withdrawn_and_is_wanted_again_is_ready_again() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let first = effects.wanted("a");
    effects.moved(&first, ActionEvent::Withdraw).unwrap();
    assert_eq!(effects.action(&first).state, ActionState::Canceled);
    let renewed = effects.propose(&Proposal { deadline: UtcMs(7), ..proposal(&hold, "a") }).unwrap();
    assert!(matches!(&renewed, Proposed::Renewed(r) if r.state == ActionState::Ready && r.deadline == UtcMs(7)));
    assert_eq!(renewed.record().finished_at, None);
}

#[test]
fn a_program_inside_a_run_shows_the_secret_of_the_present_attempt() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let by = |secret: &str| By::Inside { run: &hold.run, token: token(secret) };
    let inside = |secret: &str| Proposal { by: by(secret), ..proposal(&hold, "a") };
    assert_eq!(code_of(effects.propose(&inside("guess"))), Code::PermissionDenied);
    let (_, body) = effects.told(EventKind::ActionRefused).pop().unwrap();
    assert_eq!(body["code"], "PERMISSION_DENIED", "not silent");
    assert!(matches!(effects.propose(&inside("secret")).unwrap(), Proposed::New(_)));
    // Taken over: the secret of the attempt before counts no more, and neither does its holder.
    let taken = Claim { token: Some(token("new")), ..claim(RunEvent::TakeOver, hold.fence) };
    let ctx = effects.world.ctx();
    effects.world.store.claim(&hold.run, &taken, &ctx).unwrap();
    assert_eq!(code_of(effects.propose(&inside("secret"))), Code::PermissionDenied);
    assert!(matches!(effects.propose(&inside("new")).unwrap(), Proposed::Known(_)));
    assert_eq!(code_of(effects.propose(&proposal(&hold, "b"))), Code::Fenced);
    let (_, evidence) = effects.told(EventKind::WriteFenced).pop().unwrap();
    assert_eq!(evidence["attempted"][0], "a wish for an action");
    // A claim without a secret lets nobody in, whatever they show.
    let ctx = effects.world.ctx();
    effects.world.store.claim(&hold.run, &claim(RunEvent::TakeOver, hold.fence + 1), &ctx).unwrap();
    assert_eq!(code_of(effects.propose(&inside("new"))), Code::PermissionDenied);
}

#[test]
fn a_run_that_is_not_running_lets_nobody_in() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    effects.world.record(&hold, &[run_event(RunEvent::Succeed)]).unwrap();
    let inside = Proposal { by: By::Inside { run: &hold.run, token: token("secret") }, ..proposal(&hold, "a") };
    assert_eq!(code_of(effects.propose(&inside)), Code::PermissionDenied);
    assert_eq!(code_of(effects.propose(&proposal(&hold, "a"))), Code::InvalidState);
}

#[test]
fn r_a16_no_key_no_target_and_no_request_stand_in_the_log() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let wish = || Proposal { id: id("op-1"), ..proposal(&hold, "hidden-name") };
    let sent = effects.propose(&wish()).unwrap().record().id.clone();
    effects.claim(&sent);
    effects.send(&sent, None).unwrap().unwrap();
    effects.answer(&sent, &done()).unwrap();
    assert!(effects.propose(&Proposal { request_hash: Sha256Hash::of(b"o"), ..wish() }).is_err());
    let raw = effects.world.raw();
    let all: String =
        raw.query_row("SELECT group_concat(coalesce(reason, '') || body) FROM event", (), |row| row.get(0)).unwrap();
    let out: String = raw.query_row("SELECT group_concat(body) FROM outbox", (), |row| row.get(0)).unwrap();
    for secret in ["hidden-name", "room-of", "requests/"] {
        assert!(!all.contains(secret) && !out.contains(secret), "{secret} in {all}");
    }
    // But everything about it is found by its key.
    let key = effects.action(&sent).key;
    let filter = EventFilter { key_hash: Some(Sha256Hash::of(key.as_bytes())), ..EventFilter::default() };
    let kinds: Vec<_> = effects.world.store.events(&filter).unwrap().iter().map(|e| e.kind.word()).collect();
    let expected =
        ["action.wanted", "action.claimed", "policy.decided", "action.sent", "action.moved", "action.refused"];
    assert_eq!(kinds, expected);
}

#[test]
fn f13_a_key_that_was_sent_and_whose_record_is_lost_is_not_sent_again() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    effects.sent("a");
    effects
        .world
        .raw()
        .execute_batch("DELETE FROM action_wanted; DELETE FROM action_send; DELETE FROM action")
        .unwrap();
    let refused = effects.propose(&proposal(&hold, "a")).unwrap_err();
    assert_eq!((refused.code(), effects.told(EventKind::ActionRefused).len()), (Code::StateCorrupt, 1));
    effects.wanted("b");
}

#[test]
fn r_a14_what_is_corrected_is_sent_no_more_and_ends_with_its_correction() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let wrong = effects.sent("wrong");
    let early = Proposal { corrects: Some(wrong.clone()), ..proposal(&hold, "early") };
    assert_eq!(code_of(effects.propose(&early)), Code::InvalidState, "what became of it is not known yet");
    assert!(effects.world.store.action(&early.id).unwrap().is_none(), "all of it or nothing");
    effects.answer(&wrong, &done()).unwrap();
    let right = Proposal { corrects: Some(wrong.clone()), ..proposal(&hold, "right") };
    let right = effects.propose(&right).unwrap().record().id.clone();
    assert_eq!(effects.action(&wrong).state, ActionState::Compensating);
    assert_eq!(code_of(effects.send(&wrong, None)), Code::InvalidState);
    effects.claim(&right);
    effects.send(&right, None).unwrap().unwrap();
    effects.answer(&right, &done()).unwrap();
    assert_eq!(effects.action(&wrong).state, ActionState::Compensated);
    effects.world.check_chains();
}

/// Wants, claims and sends, whatever others do at the same instant; answers what it did.
fn race(path: &Path, hold: &Hold, n: usize) -> &'static str {
    let mut store = Store::open(path).unwrap();
    let wish = Proposal { id: id(&format!("op-{n}")), ..proposal(hold, "same") };
    let proposed = store.propose(&wish, &ctx(1_000_100)).unwrap();
    let found = proposed.record().clone();
    let process = process();
    let claim = ActionClaim { expected_fence: 0, process: &process, lease_until: LONG, hold: Some(hold) };
    let word = if matches!(proposed, Proposed::New(_)) { "NEW" } else { "KNOWN" };
    let claimed = match store.claim_action(&found.id, &claim, &ctx(1_000_100)) {
        Ok(claimed) => claimed,
        Err(StoreError::ActionHeld { .. }) => return word,
        Err(other) => panic!("{other}"),
    };
    let asked = decide::Asked { action: "notification".into(), values: BTreeMap::new() };
    let (action, fence, hold) = (&found.id, claimed.fence, Some(hold));
    let deadline = ctx(1_000_100).now.utc.plus(Millis::mins(15));
    let sending = Sending { action, fence, hold, asked: &asked, digest: None, margin: Millis(0), deadline };
    store.begin_send(&sending, &ctx(1_000_100)).unwrap().unwrap();
    if word == "NEW" { "NEW SENT" } else { "KNOWN SENT" }
}

fn assert_once(effects: &Effects, said: &[String]) {
    let count = |word: &str| said.iter().filter(|one| one.contains(word)).count();
    assert_eq!((count("NEW"), count("SENT")), (1, 1), "{said:?}");
    let all = effects.world.store.actions(&ActionFilter::default()).unwrap();
    assert_eq!((all.len(), all[0].tries, all[0].fence, all[0].state), (1, 1, 1, ActionState::Started));
    assert_eq!(effects.world.store.wanted(&all[0].id).unwrap().len(), said.len());
    effects.world.check_chains();
    effects.world.store.integrity().unwrap();
}

#[test]
fn r_a6_f52_a_hundred_that_want_the_same_at_once_have_one_action_and_one_send() {
    let effects = Effects::new(Verdict::Allow);
    let (path, hold, gate) = (effects.world.path(), effects.hold.clone(), Barrier::new(100));
    let one = |n: usize| {
        gate.wait();
        race(&path, &hold, n).to_owned()
    };
    let said: Vec<String> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..100).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_once(&effects, &said);
}

/// Does nothing by itself; `f52_processes…` runs it in processes of their own.
#[test]
fn process_of_f52() {
    let Some(path) = std::env::var_os("AGENTRUN_TEST_EFFECTS") else { return };
    let n = std::env::var("AGENTRUN_TEST_NAME").unwrap().parse().unwrap();
    let hold = Hold { run: RunId::recorded("run_182_001"), attempt: 1, fence: 1 };
    println!("{}", race(Path::new(&path), &hold, n));
}

#[test]
fn f52_processes_that_want_the_same_at_once_have_one_action_and_one_send() {
    let effects = Effects::new(Verdict::Allow);
    let start = |n: usize| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::wanting::process_of_f52", "--nocapture"])
            .env("AGENTRUN_TEST_EFFECTS", effects.world.path())
            .env("AGENTRUN_TEST_NAME", n.to_string())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    let said: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    assert_once(&effects, &said);
}
