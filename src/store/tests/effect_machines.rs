//! R-M4, R-A18: every pair of state and event of an action, an approval and a deployment, against the database.

use super::super::{actions, approvals, deployments};
use super::effects::*;
use crate::domain::action::state::{
    ACTION, APPROVAL, ApprovalEvent, ApprovalState, DEPLOYMENT, DeploymentEvent, DeploymentState,
};
use crate::domain::action::{ActionEvent, ActionMove, ActionState};
use crate::domain::failure::Code;
use crate::domain::ids::ReleaseId;
use crate::domain::machine::Word as _;
use crate::domain::policy::Verdict;
use crate::store::{About, StoreError};

fn quick(verdict: Verdict) -> Effects {
    let effects = Effects::new(verdict);
    effects.world.store.db.pragma_update(None, "synchronous", "OFF").unwrap();
    effects
}

fn assert_refused<T: std::fmt::Debug>(answer: super::super::Result<T>, state: &str, event: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), Code::InvalidState);
    let StoreError::Refused(refused) = error else { panic!("{error}") };
    assert_eq!((refused.state.as_str(), refused.event.as_str()), (state, event));
}

#[test]
fn r_m4_r_a18_every_pair_of_the_action_machine() {
    let mut effects = quick(Verdict::Allow);
    let action = effects.wanted("a");
    for state in ActionState::ALL {
        for event in ActionEvent::ALL {
            let raw = effects.world.raw();
            raw.execute("UPDATE action SET state = ?1", [state.word()]).unwrap();
            let ctx = effects.world.ctx();
            let answer = effects.world.store.write(&ctx, |w| {
                let mut found = actions::find(w, &action)?;
                actions::shift(w, &mut found, &ActionMove::new(*event), None)?;
                Ok(found.record.state)
            });
            if let Ok(to) = ACTION.next(*state, *event) {
                assert_eq!((answer.unwrap(), effects.action(&action).state), (to, to), "{state} {event}");
            } else {
                assert_refused(answer, state.word(), event.word());
                assert_eq!(effects.action(&action).state, *state, "{state} stays after {event}");
            }
        }
    }
    effects.world.check_chains();
}

#[test]
fn r_m4_r_a18_a_move_from_outside_knows_only_the_ways_that_are_its_own() {
    let mut effects = quick(Verdict::Allow);
    let action = effects.wanted("a");
    let own = [ActionEvent::Start, ActionEvent::Resend, ActionEvent::Ask, ActionEvent::Approve];
    for state in ActionState::ALL {
        for event in ActionEvent::ALL {
            effects.world.raw().execute("UPDATE action SET state = ?1", [state.word()]).unwrap();
            let may = ACTION.next(*state, *event).is_ok() && !own.contains(event);
            assert_eq!(effects.moved(&action, *event).is_ok(), may, "{state} {event}");
        }
    }
}

#[test]
fn r_m4_every_pair_of_the_approval_machine() {
    let mut effects = quick(Verdict::Approve);
    let action = effects.wanted("a");
    let id = effects.ask(About::Action(&action), "apr_1", &subject("x")).unwrap().id;
    for state in ApprovalState::ALL {
        for event in ApprovalEvent::ALL {
            effects.world.raw().execute("UPDATE approval SET state = ?1", [state.word()]).unwrap();
            let ctx = effects.world.ctx();
            let answer = effects.world.store.write(&ctx, |w| {
                let mut found = approvals::find(w, &id)?;
                let decider = approvals::Decider { by: Some("bob"), reason: None };
                approvals::shift(w, &mut found, (*event, decider), serde_json::json!({}))
            });
            let now = effects.world.store.approval(&id).unwrap().unwrap().state;
            if let Ok(to) = APPROVAL.next(*state, *event) {
                assert_eq!((answer, now), (Ok(()), to), "{state} {event}");
            } else {
                assert_refused(answer, state.word(), event.word());
                assert_eq!(now, *state);
            }
        }
    }
    effects.world.check_chains();
}

#[test]
fn r_m4_r_a19_every_pair_of_the_deployment_machine() {
    let mut effects = quick(Verdict::Allow);
    let hold = effects.hold.clone();
    let action = effects.propose(&deploy(&hold, "a", "r1")).unwrap().record().id.clone();
    let release = ReleaseId::recorded("r1");
    for state in DeploymentState::ALL {
        for event in DeploymentEvent::ALL {
            effects.world.raw().execute("UPDATE deployment SET state = ?1", [state.word()]).unwrap();
            let ctx = effects.world.ctx();
            let answer = effects.world.store.write(&ctx, |w| {
                let found = actions::find(w, &action)?;
                let deployment = deployments::find(w, "production", &release)?.unwrap();
                deployments::shift(w, (&found, &hold.run), (deployment, *event), None)
            });
            let now = effects.world.store.deployments(None).unwrap()[0].state;
            if let Ok(to) = DEPLOYMENT.next(*state, *event) {
                assert_eq!((answer.unwrap().state, now), (to, to), "{state} {event}");
            } else {
                assert_refused(answer, state.word(), event.word());
                assert_eq!(now, *state);
            }
        }
    }
    effects.world.check_chains();
}
