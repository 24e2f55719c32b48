//! Faults rule 1, R-A1, R-A15, R-A18: nothing is sent but by the one transaction that looks at everything once more.

use super::effects::*;
use super::*;
use crate::domain::action::answer::Reading;
use crate::domain::action::contract::{Automatic, Channel, Contract, Query};
use crate::domain::action::record::ReadingRecord;
use crate::domain::action::state::DeploymentState;
use crate::domain::action::{ActionEvent, ActionMove, ActionState};
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::machine::Word as _;
use crate::domain::policy::{SendLimit, Verdict};
use crate::store::{
    ActionClaim, ActionFilter, Answered, ApprovalFilter, Assignment, NotSent, Proposal, Resolution, StoreError, salvage,
};
use rusqlite::ffi::SQLITE_IOERR_FSYNC;

fn code_not_sent(sent: Sent) -> Code {
    sent.unwrap().unwrap_err().code()
}

#[test]
fn r_a1_a_send_is_written_down_before_it_happens_with_everything_that_lets_it_go() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let run = CommandLine::Shell("status".into());
    let query = Query { channel: Channel::Command { run }, settle: Millis(500), find: None, absent: Vec::new() };
    let contract = Contract { query: Some(query), ..keyed() };
    let wish = Proposal { contract, ..proposal(&hold, "a") };
    let action = effects.propose(&wish).unwrap().record().id.clone();
    let fence = effects.claim(&action);
    let sent = effects.send(&action, None).unwrap().unwrap();
    let now = UtcMs(effects.world.clock);
    assert_eq!((sent.state, sent.tries, sent.fence), (ActionState::Started, 1, fence));
    assert_eq!((sent.started_at, sent.sent_at, sent.query_from), (Some(now), Some(now), Some(now.plus(Millis(500)))));
    let kinds: Vec<_> = effects.world.store.chain(hold.run.as_str()).unwrap().iter().map(|e| e.kind).collect();
    let expected = [EventKind::ActionWanted, EventKind::ActionClaimed, EventKind::PolicyDecided, EventKind::ActionSent];
    assert!(kinds.ends_with(&expected), "{kinds:?}");
    let (event, body) = effects.told(EventKind::ActionSent).pop().unwrap();
    assert_eq!((&body["try"], &body["from"], &body["to"]), (&1.into(), &"READY".into(), &"STARTED".into()));
    assert_eq!((event.attempt, event.step), (Some(1), Some(key("report"))));
    assert_eq!(code_of(effects.send(&action, None)), Code::InvalidState, "R-A18: no second send");
    let answered = effects.answer(&action, &done()).unwrap();
    assert_eq!((answered.state, answered.reference.as_deref()), (ActionState::Succeeded, Some("m-1")));
    assert_eq!(code_of(effects.send(&action, None)), Code::InvalidState);
}

#[test]
fn r_a18_only_what_is_ready_or_unknown_under_a_key_is_sent() {
    let mut effects = Effects::new(Verdict::Allow);
    effects.world.store.db.pragma_update(None, "synchronous", "OFF").unwrap();
    let hold = effects.hold.clone();
    let unkeyed = |name: &str| Proposal { contract: Contract::careful("mail"), ..proposal(&hold, name) };
    let irreversible = |name: &str| Proposal { irreversible: true, ..proposal(&hold, name) };
    for state in ActionState::ALL {
        let name = state.word();
        let wishes = [proposal(&hold, name), unkeyed(&format!("{name}-u")), irreversible(&format!("{name}-i"))];
        for (kind, wish) in ["keyed", "unkeyed", "irreversible"].iter().zip(wishes) {
            let action = effects.propose(&wish).unwrap().record().id.clone();
            effects.claim(&action);
            let raw = effects.world.raw();
            raw.execute("UPDATE action SET state = ?1 WHERE id = ?2", (name, action.as_str())).unwrap();
            let may = *state == ActionState::Ready || (*state == ActionState::OutcomeUnknown && *kind == "keyed");
            match effects.send(&action, None) {
                Ok(Ok(sent)) => assert!(may && sent.state == ActionState::Started, "{kind} {state} was sent"),
                Ok(Err(not_sent)) => panic!("{not_sent}"),
                Err(refused) => assert!(!may && refused.code() == Code::InvalidState, "{kind} {state}: {refused}"),
            }
        }
    }
    effects.world.check_chains();
}

#[test]
fn f68_a_policy_that_was_tightened_since_counts_in_the_transaction_of_the_send() {
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.wanted("a");
    effects.claim(&action);
    let mut tightened = under(Verdict::Deny, "182").inputs;
    tightened.policy.rules.push(rule(Verdict::Allow));
    let hold = effects.hold.clone();
    effects.world.record(&hold, &[Change::Inputs(Box::new(tightened))]).unwrap();
    let not_sent = effects.send(&action, None).unwrap().unwrap_err();
    assert_eq!((not_sent.code(), not_sent.code().entry().exit.code()), (Code::PolicyDenied, 5));
    assert!(matches!(&not_sent, NotSent::Denied { rule: Some(rule), .. } if rule == "deny-all"), "{not_sent:?}");
    let found = effects.action(&action);
    assert_eq!((found.state, found.tries), (ActionState::Ready, 0));
    let (_, body) = effects.told(EventKind::ActionRefused).pop().unwrap();
    assert_eq!((&body["code"], &body["rule"]), (&"POLICY_DENIED".into(), &"deny-all".into()));
    assert!(effects.told(EventKind::ActionSent).is_empty());
}

#[test]
fn f90_without_the_policy_of_its_run_nothing_is_sent() {
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.wanted("a");
    let (ctx, process) = (effects.world.ctx(), process());
    let claim = ActionClaim { expected_fence: 0, process: &process, lease_until: LONG, hold: None };
    effects.world.store.claim_action(&action, &claim, &ctx).unwrap();
    effects.world.raw().execute("UPDATE action SET run = 'run_lost_001'", ()).unwrap();
    let sent = effects.send_as((None, 1), &action, None);
    assert_eq!(code_not_sent(sent), Code::PolicyDenied);
}

#[test]
fn r_a15_so_many_to_one_target_and_no_more() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let to = |name: &str, target: &str| Proposal { target: target.into(), ..proposal(&hold, name) };
    let send = |effects: &mut Effects, name: &str, target: &str| {
        let action = effects.propose(&to(name, target)).unwrap().record().id.clone();
        effects.claim(&action);
        effects.send(&action, None).unwrap()
    };
    for name in ["a", "b", "c"] {
        send(&mut effects, name, "room").unwrap();
    }
    let first = effects.action(&id("op-a")).sent_at.unwrap();
    let full = send(&mut effects, "d", "room").unwrap_err();
    let until = first.plus(Millis::mins(5));
    assert_eq!(full, NotSent::Budget { limit: SendLimit::UNSET, sent: 3, until });
    assert_eq!((full.until(), effects.action(&id("op-d")).state), (Some(until), ActionState::Ready));
    let (_, body) = effects.told(EventKind::ActionRefused).pop().unwrap();
    assert_eq!((&body["code"], &body["until"]), (&"BUDGET_EXCEEDED".into(), &until.0.into()));
    send(&mut effects, "e", "another room").unwrap();
    effects.world.clock = until.0;
    effects.send(&id("op-d"), None).unwrap().unwrap();
    // The policy's own limit goes before.
    let mut stricter = under(Verdict::Allow, "182").inputs;
    stricter.policy.send_budget.insert("notification".into(), SendLimit { max: 1, per: Millis::mins(60) });
    effects.world.record(&hold, &[Change::Inputs(Box::new(stricter))]).unwrap();
    assert!(matches!(send(&mut effects, "f", "another room"), Err(NotSent::Budget { sent: 1, .. })));
}

#[test]
fn f59_a_key_that_the_other_side_has_forgotten_is_not_sent_again() {
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.sent("a");
    let first = effects.action(&action).started_at.unwrap();
    effects.answer(&action, &unknown()).unwrap();
    let again = effects.send(&action, None).unwrap().unwrap();
    assert_eq!((again.tries, again.started_at), (2, Some(first)), "the same key, while it is known");
    effects.answer(&action, &unknown()).unwrap();
    effects.world.clock = first.plus(Millis::mins(60)).0;
    let not_sent = effects.send(&action, None).unwrap().unwrap_err();
    assert_eq!((not_sent.code(), not_sent.code().entry().exit.code()), (Code::KeyRetentionPassed, 4));
    let found = effects.action(&action);
    assert_eq!(
        (found.state, found.code),
        (ActionState::OutcomeUnknown, Some(Code::KeyRetentionPassed)),
        "it stays what it is, and says why"
    );
}

#[test]
fn f34_whoever_lost_the_action_or_the_run_sends_nothing_and_it_is_kept() {
    let mut effects = Effects::new(Verdict::Allow);
    let (action, hold) = (effects.wanted("a"), effects.hold.clone());
    let fence = effects.claim(&action);
    effects.claim(&action);
    let sent = effects.send_as((Some(&hold), fence), &action, None);
    assert_eq!(sent, Err(StoreError::ActionFenced { action: action.clone(), fence, held_by: fence + 1 }));
    effects.world.claim(&hold.run, RunEvent::TakeOver, hold.fence).unwrap();
    assert_eq!(code_of(effects.send_as((Some(&hold), fence + 1), &action, None)), Code::Fenced);
    let attempted: Vec<_> =
        effects.told(EventKind::WriteFenced).into_iter().map(|(_, body)| body["attempted"].clone()).collect();
    assert_eq!(attempted, [serde_json::json!("send"), serde_json::json!(["send of an action"])]);
    assert_eq!(effects.action(&action).state, ActionState::Ready);
    effects.world.check_chains();
}

#[test]
fn f42_f43_a_lease_with_too_little_left_sends_nothing() {
    let mut effects = Effects::new(Verdict::Allow);
    let (action, hold, process) = (effects.wanted("a"), effects.hold.clone(), process());
    let claim =
        |expected_fence, lease_until| ActionClaim { expected_fence, process: &process, lease_until, hold: Some(&hold) };
    // The tests' clocks: the boot clock reads what the wall clock reads. A send needs a second.
    let ctx = effects.world.ctx();
    let soon = BootMs(ctx.now.boot.0 + 900);
    effects.world.store.claim_action(&action, &claim(0, soon), &ctx).unwrap();
    assert_eq!(code_not_sent(effects.send(&action, None)), Code::Fenced);
    let ctx = effects.world.ctx();
    effects.world.store.keep_action_lease((&action, 1), LONG, &ctx).unwrap();
    effects.world.raw().execute("UPDATE run SET lease_until = ?1", [effects.world.clock + 500]).unwrap();
    assert_eq!(code_not_sent(effects.send(&action, None)), Code::Fenced, "the run's counts too");
    effects.world.raw().execute("UPDATE run SET lease_until = 1 << 50, lease_boot_id = 'before'", ()).unwrap();
    assert_eq!(code_not_sent(effects.send(&action, None)), Code::Fenced, "another boot's clock says nothing");
    effects.world.raw().execute("UPDATE run SET lease_boot_id = 'boot'", ()).unwrap();
    effects.send(&action, None).unwrap().unwrap();
    effects.world.store.release_action((&action, 1), &ctx).unwrap();
    assert_eq!(effects.action(&action).lease, None);
    let late = effects.world.store.keep_action_lease((&action, 0), LONG, &ctx).unwrap_err();
    assert_eq!(late.code(), Code::Fenced);
}

#[test]
fn a_run_that_is_to_be_canceled_sends_nothing_more() {
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.wanted("a");
    effects.claim(&action);
    let (ctx, run) = (effects.world.ctx(), effects.hold.run.clone());
    effects.world.store.request_cancel(&run, "wrong", &ctx).unwrap();
    assert_eq!(code_not_sent(effects.send(&action, None)), Code::Canceled);
}

#[test]
fn r_a10_a_release_reaches_an_environment_once() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let state = |effects: &Effects| effects.world.store.deployments(Some("production")).unwrap()[0].state;
    let first = effects.propose(&deploy(&hold, "one", "r1")).unwrap().record().id.clone();
    let second = effects.propose(&deploy(&hold, "two", "r1")).unwrap().record().id.clone();
    assert_eq!(state(&effects), DeploymentState::Ready);
    effects.claim(&first);
    effects.claim(&second);
    effects.send(&first, None).unwrap().unwrap();
    assert_eq!(state(&effects), DeploymentState::Deploying);
    assert_eq!(code_not_sent(effects.send(&second, None)), Code::Busy, "the other one is at it");
    effects.answer(&first, &refused()).unwrap();
    assert_eq!(state(&effects), DeploymentState::Failed, "it is certain that it was not executed");
    effects.moved(&first, ActionEvent::Retry).unwrap();
    effects.send(&first, None).unwrap().unwrap();
    effects.answer(&first, &done()).unwrap();
    assert_eq!(state(&effects), DeploymentState::Deploying, "executed is not verified");
    let verify = crate::store::DeploymentMove {
        environment: "production",
        release: &crate::domain::ids::ReleaseId::recorded("r1"),
        event: crate::domain::action::state::DeploymentEvent::Verify,
        verified: Some(true),
        hold: Some(&hold),
        reason: None,
    };
    let ctx = effects.world.ctx();
    let deployed = effects.world.store.move_deployment(&verify, &ctx).unwrap();
    assert_eq!((deployed.state, deployed.verified, &deployed.action), (DeploymentState::Deployed, Some(true), &first));
    let again = effects.send(&second, None).unwrap().unwrap_err();
    assert_eq!((again.code(), again.code().entry().exit.code()), (Code::AlreadyDeployed, 0));
    let moves: Vec<_> = effects
        .told(EventKind::DeploymentMoved)
        .into_iter()
        .map(|(_, body)| body["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(moves, ["approve", "deploy", "fail", "deploy_again", "verify"]);
    effects.world.check_chains();
}

#[test]
fn f63_what_was_there_before_it_was_sent_is_adopted_with_its_deployment() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let action = effects.propose(&deploy(&hold, "one", "r1")).unwrap().record().id.clone();
    let fence = effects.claim(&action);
    let reading = Reading::Succeeded { reference: Some("d-1".into()) };
    let reading = ReadingRecord { at: UtcMs(5), reading, source: "query".into(), tries: 0 };
    let ctx = effects.world.ctx();
    let adopt = ActionMove::new(ActionEvent::Adopt);
    let adopted = effects.world.store.record_reading((&action, Some(fence)), &reading, Some(&adopt), &ctx).unwrap();
    assert_eq!((adopted.state, adopted.tries), (ActionState::Succeeded, 0));
    let deployment = &effects.world.store.deployments(None).unwrap()[0];
    assert_eq!((deployment.state, &deployment.action), (DeploymentState::Deploying, &action), "not verified yet");
}

#[test]
fn r_a8_a_draft_is_sent_by_a_person_who_says_so() {
    let mut effects = Effects::new(Verdict::Allow);
    let hold = effects.hold.clone();
    let contract = Contract { automatic: Automatic::Draft, ..keyed() };
    let draft = Proposal { contract, ..proposal(&hold, "a") };
    let action = effects.propose(&draft).unwrap().record().id.clone();
    effects.claim(&action);
    assert_eq!(code_not_sent(effects.send(&action, None)), Code::ReviewRequired);
    let (ctx, sent) = (effects.world.ctx(), Resolution::Succeeded { reference: None });
    let settled = effects.world.store.resolve_action(&action, &sent, "sent by hand", &ctx).unwrap();
    assert_eq!(settled.state, ActionState::Succeeded);
}

#[test]
fn r_a7_an_answer_of_a_sender_who_was_replaced_is_evidence_and_no_more() {
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.sent("a");
    let ctx = effects.world.ctx();
    let lost = effects.world.store.lose_unheld(&action, 1, &ctx).unwrap();
    assert_eq!((lost.state, lost.fence, lost.lease), (ActionState::OutcomeUnknown, 2, None));
    assert_eq!(effects.world.store.lose_unheld(&action, 1, &ctx).unwrap_err().code(), Code::Busy);
    let facts = crate::domain::action::ActionFacts::default();
    let late = Answered { action: &action, fence: 1, tries: 1, answer: &done(), facts: &facts };
    assert_eq!(effects.world.store.record_answer(&late, &ctx).unwrap_err().code(), Code::Fenced);
    assert_eq!(effects.action(&action).state, ActionState::OutcomeUnknown);
    let readings = effects.world.store.readings(&action).unwrap();
    let seen = Reading::Succeeded { reference: Some("m-1".into()) };
    assert_eq!((readings.len(), &readings[0].reading, readings[0].source.as_str()), (1, &seen, "late"));
    let (_, body) = effects.told(EventKind::ActionLate).pop().unwrap();
    assert_eq!((&body["reading"], &body["of_try"]), (&"succeeded".into(), &1.into()));
    // What was seen is what the next one goes by.
    let fence = effects.claim(&action);
    let mut by = ActionMove::new(ActionEvent::ProveSuccess);
    by.facts.reference = Some("m-1".into());
    let reading = ReadingRecord { at: UtcMs(5), reading: seen, source: "query".into(), tries: 1 };
    let settled = effects.world.store.record_reading((&action, Some(fence)), &reading, Some(&by), &ctx).unwrap();
    assert_eq!((settled.state, settled.reference.as_deref()), (ActionState::Succeeded, Some("m-1")));
    assert_eq!(effects.world.store.readings(&action).unwrap().len(), 2);
    let stale = effects.world.store.record_reading((&action, Some(1)), &reading, None, &ctx).unwrap_err();
    assert_eq!(stale.code(), Code::Fenced);
}

#[test]
fn r_a7_an_answer_after_the_outcome_was_lost_is_kept_too() {
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.sent("a");
    effects.answer(&action, &unknown()).unwrap();
    assert_eq!(effects.action(&action).code, Some(Code::NetworkTimeout));
    assert_eq!(code_of(effects.answer(&action, &done())), Code::InvalidState);
    assert_eq!(effects.world.store.readings(&action).unwrap()[0].source, "late");
}

#[test]
fn a_person_says_what_became_of_it_with_a_reason() {
    let mut effects = Effects::new(Verdict::Allow);
    let resolve = |effects: &mut Effects, action: &_, resolution: &Resolution| {
        let ctx = effects.world.ctx();
        effects.world.store.resolve_action(action, resolution, "looked at the room", &ctx)
    };
    let names = ["a", "b", "c"];
    let resolutions = [
        (Resolution::Succeeded { reference: Some("m-9".into()) }, ActionState::Succeeded),
        (Resolution::Failed, ActionState::Failed),
        (Resolution::NotThere, ActionState::Ready),
    ];
    for (name, (resolution, state)) in names.iter().zip(&resolutions) {
        let action = effects.sent(name);
        assert_eq!(code_of(resolve(&mut effects, &action, resolution)), Code::InvalidState, "it was only just sent");
        effects.answer(&action, &unknown()).unwrap();
        let ctx = effects.world.ctx();
        let assignment = Assignment { owner: "bob", due: Some(UtcMs(7)), review: Some("nobody can ask") };
        let assigned = effects.world.store.assign_action(&action, &assignment, &ctx).unwrap();
        assert_eq!((assigned.owner.as_deref(), assigned.due), (Some("bob"), Some(UtcMs(7))));
        let review = ActionFilter { review: true, ..ActionFilter::default() };
        assert_eq!(effects.world.store.actions(&review).unwrap().len(), 1);
        let settled = resolve(&mut effects, &action, resolution).unwrap();
        assert_eq!((settled.state, settled.review, settled.owner, settled.fence), (*state, None, None, 2));
        let (event, body) = effects.told(EventKind::ActionRead).pop().unwrap();
        assert_eq!((event.reason.as_deref(), &body["source"]), (Some("looked at the room"), &"person".into()));
    }
    assert_eq!(effects.told(EventKind::ActionAssigned).len(), 3);
    effects.world.check_chains();
}

#[test]
fn f05_f06_a_send_whose_commit_is_unclear_is_written_once() {
    let lost = CommitFault::Lost(SQLITE_IOERR_FSYNC);
    for faults in [vec![CommitFault::Kept], vec![lost], vec![lost, CommitFault::Kept]] {
        let mut effects = Effects::new(Verdict::Allow);
        let action = effects.wanted("a");
        fault::plan(faults.clone());
        let fence = effects.claim(&action);
        assert_eq!((fence, fault::planned()), (1, 0));
        fault::plan(faults);
        let sent = effects.send(&action, None).unwrap().unwrap();
        assert_eq!((sent.tries, fault::planned(), effects.told(EventKind::ActionSent).len()), (1, 0, 1));
        effects.world.check_chains();
    }
    let mut effects = Effects::new(Verdict::Allow);
    let action = effects.wanted("a");
    effects.claim(&action);
    fault::plan([lost, lost]);
    assert_eq!(code_of(effects.send(&action, None)), Code::StoreCommitUnknown);
    assert_eq!(effects.action(&action).state, ActionState::Ready, "nothing was written, so nothing may be sent");
}

#[test]
fn f13_what_is_known_of_side_effects_is_taken_over_into_a_new_database() {
    let mut effects = Effects::new(Verdict::Approve);
    let action = effects.wanted("a");
    effects.ask(crate::store::About::Action(&action), "apr_1", &subject("x")).unwrap();
    let (old, approval) = (effects.action(&action), effects.world.store.approvals(&ApprovalFilter::default()).unwrap());
    let new = effects.world.dir.path().join("new.db");
    let kept = salvage(&effects.world.path(), &new).unwrap();
    assert!(kept.iter().all(|table| table.lost == 0 && !table.damaged), "{kept:?}");
    // Also when its run is lost: an action is nobody's child.
    effects.world.store = Store::open(&new).unwrap();
    assert_eq!(
        (effects.action(&action), effects.world.store.approvals(&ApprovalFilter::default()).unwrap()),
        (old, approval)
    );
    assert_eq!(effects.world.store.undelivered(10).unwrap().len(), 2);
}
