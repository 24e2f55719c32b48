//! R-A9, R-S8, F47 to F51: an approval counts once, for a time, for exactly one thing, and of two decisions one counts.

use std::sync::Barrier;

use super::effects::*;
use super::*;
use crate::domain::action::state::{ApprovalState, DeploymentState};
use crate::domain::action::{ActionEvent, ActionState};
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::ids::ApprovalId;
use crate::domain::policy::Verdict;
use crate::store::{About, ApprovalFilter, Deciding, NotSent, Ruling, StoreError};

fn state(effects: &Effects, name: &str) -> ApprovalState {
    effects.world.store.approval(&ApprovalId::recorded(name)).unwrap().unwrap().state
}

/// A notification that waits for a person, under approval `apr_1` of `x`.
fn waiting() -> (Effects, crate::domain::ids::ActionId) {
    let mut effects = Effects::new(Verdict::Approve);
    let action = effects.wanted("a");
    effects.claim(&action);
    effects.ask(About::Action(&action), "apr_1", &subject("x")).unwrap();
    (effects, action)
}

#[test]
fn r_a9_without_an_agreement_nothing_is_sent_and_with_it_exactly_that() {
    let mut effects = Effects::new(Verdict::Approve);
    let action = effects.wanted("a");
    effects.claim(&action);
    let digest = Some(subject("x").digest());
    let not_sent = effects.send(&action, digest).unwrap().unwrap_err();
    assert!(matches!(&not_sent, NotSent::NeedsApproval { rule: Some(rule), terms, standing: None, .. }
        if rule == "approve-all" && terms.approvers == ["bob"]));
    let asked = effects.ask(About::Action(&action), "apr_1", &subject("x")).unwrap();
    assert_eq!((asked.state, asked.expires_at), (ApprovalState::Open, Some(UtcMs(effects.world.clock + 1000))));
    let waits = effects.action(&action);
    assert_eq!((waits.state, waits.approval, waits.digest), (ActionState::WaitingApproval, Some(asked.id), digest));
    assert_eq!(code_of(effects.send(&action, digest)), Code::InvalidState);
    let approved = effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    assert_eq!((approved.state, approved.decided_by.as_deref()), (ApprovalState::Approved, Some("bob")));
    let other = effects.send(&action, Some(subject("y").digest())).unwrap().unwrap_err();
    assert!(matches!(other, NotSent::NeedsApproval { standing: Some(standing), .. } if *standing == approved));
    assert!(matches!(effects.send(&action, None).unwrap(), Err(NotSent::NeedsApproval { .. })));
    let sent = effects.send(&action, digest).unwrap().unwrap();
    assert_eq!((sent.state, state(&effects, "apr_1")), (ActionState::Started, ApprovalState::Used));
    let used = effects.world.store.approval(&approved.id).unwrap().unwrap();
    assert_eq!(used.decided_by.as_deref(), Some("bob"), "who agreed stays known");
    let told: Vec<_> =
        effects.told(EventKind::ApprovalDecided).into_iter().map(|(_, body)| body["to"].clone()).collect();
    assert_eq!(told, ["APPROVED", "USED"]);
    let view = effects.world.store.view(&effects.hold.run).unwrap();
    assert_eq!(view.approvals, [used]);
    effects.world.check_chains();
}

#[test]
fn r_a9_the_same_question_is_asked_once_and_another_voids_it() {
    let (mut effects, action) = waiting();
    let same = effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    assert_eq!(same.id.as_str(), "apr_1");
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    let same = effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    assert_eq!((same.id.as_str(), effects.action(&action).state), ("apr_1", ActionState::Ready));
    let other = effects.ask(About::Action(&action), "apr_2", &subject("y")).unwrap();
    assert_eq!((state(&effects, "apr_1"), other.state), (ApprovalState::Void, ApprovalState::Open));
    assert_eq!(effects.action(&action).state, ActionState::WaitingApproval, "it was ready by the other one");
    let (_, body) = effects.told(EventKind::ApprovalDecided).pop().unwrap();
    assert_eq!((&body["event"], &body["differs"]), (&"void".into(), &serde_json::json!(["request", "title"])));
    let open = ApprovalFilter { states: vec![ApprovalState::Open], ..ApprovalFilter::default() };
    assert_eq!(effects.world.store.approvals(&open).unwrap(), [other]);
}

#[test]
fn f51_an_approval_is_used_once_however_often_it_is_tried() {
    let (mut effects, action) = waiting();
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    let digest = Some(subject("x").digest());
    let mut sent = 0;
    for _ in 0..20 {
        effects.world.store = Store::open(&effects.world.path()).unwrap();
        effects.claim(&action);
        sent += usize::from(matches!(effects.send(&action, digest), Ok(Ok(_))));
    }
    assert_eq!((sent, effects.action(&action).tries), (1, 1));
    // Nor for something else of the same content.
    let other = effects.wanted("b");
    effects.claim(&other);
    effects.world.raw().execute("UPDATE action SET approval = 'apr_1' WHERE id = ?1", [other.as_str()]).unwrap();
    assert!(matches!(effects.send(&other, digest).unwrap(), Err(NotSent::NeedsApproval { .. })));
}

#[test]
fn r_a9_a_lost_answer_asks_nobody_again_until_the_time_is_over() {
    let (mut effects, action) = waiting();
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    let digest = Some(subject("x").digest());
    effects.send(&action, digest).unwrap().unwrap();
    effects.answer(&action, &unknown()).unwrap();
    let same = effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    assert_eq!((same.id.as_str(), same.state), ("apr_1", ApprovalState::Used));
    effects.send(&action, digest).unwrap().unwrap();
    effects.answer(&action, &refused()).unwrap();
    effects.moved(&action, ActionEvent::Retry).unwrap();
    effects.send(&action, digest).unwrap().unwrap();
    assert_eq!(effects.action(&action).tries, 3);
}

#[test]
fn r_a9_what_was_withdrawn_after_it_was_sent_is_asked_about_anew() {
    let (mut effects, action) = waiting();
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    effects.send(&action, Some(subject("x").digest())).unwrap().unwrap();
    effects.answer(&action, &refused()).unwrap();
    effects.moved(&action, ActionEvent::Withdraw).unwrap();
    effects.wanted("a");
    let asked = effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    assert_eq!((asked.id.as_str(), asked.state), ("apr_2", ApprovalState::Open));
}

#[test]
fn f47_an_approval_that_expires_leaves_an_unknown_outcome_unknown_and_a_new_send_needs_a_new_one() {
    let (mut effects, action) = waiting();
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    let digest = Some(subject("x").digest());
    effects.send(&action, digest).unwrap().unwrap();
    effects.answer(&action, &unknown()).unwrap();
    effects.world.clock += 5000;
    let ctx = effects.world.ctx();
    assert!(effects.world.store.expire_approvals(&ctx).unwrap().is_empty(), "it was used");
    assert!(matches!(effects.send(&action, digest).unwrap(), Err(NotSent::NeedsApproval { .. })));
    assert_eq!(effects.action(&action).state, ActionState::OutcomeUnknown);
    let asked = effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    assert_eq!((asked.id.as_str(), effects.action(&action).state), ("apr_2", ActionState::OutcomeUnknown));
    // Expired, refused, agreed to: it stays unknown, and reading stays allowed.
    effects.world.clock += 5000;
    let ctx = effects.world.ctx();
    assert_eq!(effects.world.store.expire_approvals(&ctx).unwrap().len(), 1);
    assert_eq!(effects.action(&action).state, ActionState::OutcomeUnknown);
    for (name, ruling) in [("apr_3", Ruling::Reject), ("apr_4", Ruling::Approve)] {
        effects.ask(About::Action(&action), name, &subject("x")).unwrap();
        effects.decide(name, ruling, "bob").unwrap();
        assert_eq!(effects.action(&action).state, ActionState::OutcomeUnknown, "{ruling}");
    }
    let again = effects.send(&action, digest).unwrap().unwrap();
    assert_eq!((again.tries, state(&effects, "apr_4")), (2, ApprovalState::Used));
}

#[test]
fn r_a9_what_is_over_by_its_time_is_not_decided_any_more() {
    let (mut effects, action) = waiting();
    effects.world.clock += 1000;
    let late = effects.decide("apr_1", Ruling::Approve, "bob").unwrap_err();
    assert_eq!((late.code(), late.code().entry().exit.code()), (Code::ApprovalExpired, 3));
    assert_eq!(
        (state(&effects, "apr_1"), effects.action(&action).state),
        (ApprovalState::Expired, ActionState::WaitingApproval)
    );
    assert_eq!(effects.told(EventKind::ApprovalRefused).len(), 1);
    effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    effects.decide("apr_2", Ruling::Approve, "bob").unwrap();
    effects.world.clock += 1000;
    let digest = Some(subject("x").digest());
    assert!(matches!(effects.send(&action, digest).unwrap(), Err(NotSent::NeedsApproval { .. })));
    let ctx = effects.world.ctx();
    effects.world.store.expire_approvals(&ctx).unwrap();
    assert_eq!(effects.action(&action).state, ActionState::WaitingApproval, "it was ready by that alone");
}

#[test]
fn r_a9_a_revoked_approval_counts_no_more_and_a_rejected_action_is_withdrawn() {
    let (mut effects, action) = waiting();
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    effects.decide("apr_1", Ruling::Revoke, "bob").unwrap();
    assert_eq!(
        (state(&effects, "apr_1"), effects.action(&action).state),
        (ApprovalState::Revoked, ActionState::WaitingApproval)
    );
    effects.ask(About::Action(&action), "apr_2", &subject("x")).unwrap();
    effects.decide("apr_2", Ruling::Reject, "carol").unwrap();
    let found = effects.action(&action);
    assert_eq!((found.state, found.message.as_deref()), (ActionState::Canceled, Some("carol said no")));
}

#[test]
fn r_a9_an_approval_that_was_used_and_is_revoked_lets_nothing_be_sent_again() {
    let (mut effects, action) = waiting();
    effects.decide("apr_1", Ruling::Approve, "bob").unwrap();
    let digest = Some(subject("x").digest());
    effects.send(&action, digest).unwrap().unwrap();
    effects.answer(&action, &unknown()).unwrap();
    effects.decide("apr_1", Ruling::Revoke, "bob").unwrap();
    assert!(matches!(effects.send(&action, digest).unwrap(), Err(NotSent::NeedsApproval { .. })));
    assert_eq!(effects.action(&action).state, ActionState::OutcomeUnknown);
}

#[test]
fn f49_the_digest_that_was_shown_must_be_the_one_that_is_approved() {
    let (mut effects, action) = waiting();
    let (ctx, approval) = (effects.world.ctx(), ApprovalId::recorded("apr_1"));
    let shown =
        |digest| Deciding { id: &approval, ruling: Ruling::Approve, by: "bob", digest: Some(digest), reason: None };
    let (given, recorded) = (subject("y").digest(), subject("x").digest());
    let refused = effects.world.store.decide_approval(&shown(given), &ctx).unwrap_err();
    assert_eq!((refused.code(), refused.code().entry().exit.code()), (Code::ApprovalMismatch, 8));
    assert!(refused.to_string().contains(&given.hex()) && refused.to_string().contains(&recorded.hex()));
    assert_eq!(effects.action(&action).state, ActionState::WaitingApproval);
    effects.world.store.decide_approval(&shown(recorded), &ctx).unwrap();
    assert_eq!(effects.action(&action).state, ActionState::Ready);
}

#[test]
fn f50_an_approval_after_the_cancel_is_refused_and_noted() {
    for ends in [RunEvent::Cancel, RunEvent::Fail, RunEvent::Succeed] {
        let (mut effects, action) = waiting();
        let hold = effects.hold.clone();
        if ends == RunEvent::Cancel {
            let ctx = effects.world.ctx();
            effects.world.store.request_cancel(&hold.run, "wrong", &ctx).unwrap();
        } else {
            effects.world.record(&hold, &[run_event(ends)]).unwrap();
        }
        let refused = effects.decide("apr_1", Ruling::Approve, "bob").unwrap_err();
        let exit = if ends == RunEvent::Cancel { 9 } else { 8 };
        assert_eq!(refused.code().entry().exit.code(), exit, "{ends}: {refused}");
        assert_eq!(effects.action(&action).state, ActionState::WaitingApproval);
        let (_, body) = effects.told(EventKind::ApprovalRefused).pop().unwrap();
        assert_eq!((&body["by"], &body["ruling"]), (&"bob".into(), &"approve".into()));
    }
    let (mut effects, _) = waiting();
    let hold = effects.hold.clone();
    effects.world.record(&hold, &[run_event(RunEvent::Cancel)]).unwrap();
    assert_eq!(state(&effects, "apr_1"), ApprovalState::Void, "canceled: nothing is left to decide");
    assert_eq!(code_of(effects.decide("apr_1", Ruling::Approve, "bob")), Code::InvalidState);
    effects.world.check_chains();
}

#[test]
fn f48_of_two_decisions_at_once_one_counts_and_the_other_is_told_who_won() {
    let (mut effects, action) = waiting();
    effects.world.store.db.pragma_update(None, "synchronous", "OFF").unwrap();
    let path = effects.world.path();
    let mut winners = std::collections::BTreeSet::new();
    for n in 0..100 {
        let name = format!("apr_r{n}");
        effects.ask(About::Action(&action), &name, &subject(&name)).unwrap();
        let gate = Barrier::new(3);
        let at = effects.world.clock;
        let one = |ruling: Ruling, by: &'static str| {
            let mut store = Store::open(&path).unwrap();
            let id = ApprovalId::recorded(&*name);
            gate.wait();
            store.decide_approval(&Deciding { id: &id, ruling, by, digest: None, reason: None }, &ctx(at))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let one = &one;
            let rulings = [(Ruling::Approve, "ann"), (Ruling::Reject, "rob"), (Ruling::Approve, "amy")];
            let threads: Vec<_> =
                rulings.map(|(ruling, by)| scope.spawn(move || one(ruling, by))).into_iter().collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let won: Vec<_> = answers.iter().flatten().collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        let winner = won[0].decided_by.clone().unwrap();
        for lost in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert!(
                matches!(lost, StoreError::ApprovalDecided { by, state, .. }
                if *by == winner && *state == won[0].state),
                "{lost}"
            );
            assert_eq!(lost.code().entry().exit.code(), 8);
        }
        let expected = if winner == "rob" { ActionState::Canceled } else { ActionState::Ready };
        assert_eq!(effects.action(&action).state, expected);
        winners.insert(winner);
        if expected == ActionState::Canceled {
            effects.wanted("a");
        }
    }
    assert!(winners.len() > 1, "a race that always ends the same way is none: {winners:?}");
    effects.world.check_chains();
}

#[test]
fn a_step_that_waits_for_a_person_begins_with_the_use_of_the_approval() {
    let mut effects = Effects::new(Verdict::Approve);
    let (hold, gate) = (effects.hold.clone(), key("report"));
    let about = About::Step(&hold.run, &gate);
    let asked = effects.ask(about, "apr_g", &subject("ship it")).unwrap();
    assert_eq!((asked.action, asked.step.as_ref()), (None, Some(&gate)));
    let with = |what: &str| {
        let approval = ApprovalId::recorded("apr_g");
        vec![Change::UseApproval { approval, digest: subject(what).digest() }, step("report", StepEvent::Begin)]
    };
    assert_eq!(code_of(effects.world.record(&hold, &with("ship it"))), Code::InvalidState, "nobody agreed yet");
    effects.decide("apr_g", Ruling::Approve, "bob").unwrap();
    assert_eq!(code_of(effects.world.record(&hold, &with("another"))), Code::ApprovalMismatch);
    effects.world.record(&hold, &with("ship it")).unwrap();
    assert_eq!(effects.world.store.approval_of(about).unwrap().unwrap().state, ApprovalState::Used);
    assert_eq!(code_of(effects.world.record(&hold, &with("ship it"))), Code::InvalidState, "once");
}

#[test]
fn an_agreement_to_a_deployment_moves_the_deployment_too() {
    let mut effects = Effects::new(Verdict::Approve);
    let hold = effects.hold.clone();
    let action = effects.propose(&deploy(&hold, "one", "r1")).unwrap().record().id.clone();
    effects.ask(About::Action(&action), "apr_d", &subject("x")).unwrap();
    effects.decide("apr_d", Ruling::Approve, "bob").unwrap();
    assert_eq!(effects.world.store.deployments(None).unwrap()[0].state, DeploymentState::Approved);
    effects.claim(&action);
    effects.send(&action, Some(subject("x").digest())).unwrap().unwrap();
    assert_eq!(effects.world.store.deployments(None).unwrap()[0].state, DeploymentState::Deploying);
}
