//! The table of cases that docs/concepts.md shows, and the laws.

use proptest::prelude::*;

use super::*;
use crate::domain::budget::Price;
use crate::domain::plan::resume::ResumeVerdict::{ReviewRequired, Valid};
use crate::domain::policy::{AgentHome, AgentRules, ApprovalTerms, Keep, Right, Rule, Sandbox, SendLimit, Verdict};
use crate::domain::task::Protocol;

/// A policy that has something in every section. The run's task has `codex`, which worked, and `replay`, which did not.
fn given() -> Policy {
    let mut policy = Policy { version: "1".into(), env: vec!["CARGO_HOME".into()], ..Policy::default() };
    policy.budgets.task.tokens = Some(500_000);
    policy.agents.insert("other".into(), AgentRules::known(Protocol::Codex));
    let may = vec![Right::View, Right::Approve];
    policy.people = Some([("alice".to_owned(), Person { groups: vec!["release".into()], may })].into());
    policy.rules = vec![
        rule(Verdict::Deny, "git.push", &[("force", "true")]),
        Rule {
            approval: Some(terms(&["release", "alice"])),
            ..rule(Verdict::Approve, "deploy", &[("environment", "\"production\"")])
        },
        rule(Verdict::Allow, "deploy", &[("environment", "\"staging\"")]),
    ];
    policy
}

fn conduct() -> Conduct {
    Conduct { agents: [("codex".to_owned(), Work::Done), ("replay".to_owned(), Work::Ahead)].into() }
}

fn rule(verdict: Verdict, action: &str, when: &[(&str, &str)]) -> Rule {
    let when = when.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Rule { id: format!("{verdict}-{action}"), verdict, action: action.to_owned(), when, approval: None }
}

fn terms(approvers: &[&str]) -> ApprovalTerms {
    let approvers = approvers.iter().map(|name| (*name).to_owned()).collect();
    ApprovalTerms { expires: Some(Millis::mins(30)), approvers }
}

fn agent<'p>(policy: &'p mut Policy, name: &str) -> &'p mut AgentRules {
    policy.agents.get_mut(name).unwrap()
}

type Case = (&'static str, fn(&mut Policy), ResumeVerdict);

const CASES: &[Case] = &[
    ("nothing but `version:`", |_| {}, Valid),
    ("a limit in `budgets` is lowered", |p| p.budgets.task.tokens = Some(1), Valid),
    ("a limit in `budgets` is raised or removed", |p| p.budgets.task.tokens = None, Valid),
    ("a clock in `timeouts`, `leases` or `actions`", |p| p.timeouts.step = Millis::mins(1), Valid),
    ("`retry`, `concurrency`, `send_budget`, `retention`, `logs`", settings, Valid),
    ("a name less in `env`", |p| p.env.clear(), Valid),
    ("a name more in `env`", |p| p.env.push("AWS_SECRET_KEY".into()), ReviewRequired),
    ("an agent that the task does not have", |p| agent(p, "other").sandbox = Sandbox::DangerFullAccess, Valid),
    ("an agent of the task is removed", |p| drop(p.agents.remove("replay")), ReviewRequired),
    (
        "a tighter `sandbox` of an agent that has not worked yet",
        |p| agent(p, "replay").sandbox = Sandbox::ReadOnly,
        Valid,
    ),
    (
        "a tighter `sandbox` of an agent that has worked",
        |p| agent(p, "codex").sandbox = Sandbox::ReadOnly,
        ReviewRequired,
    ),
    ("a looser `sandbox` of an agent", |p| agent(p, "replay").sandbox = Sandbox::DangerFullAccess, ReviewRequired),
    ("a name less in an agent's `env`", |p| agent(p, "codex").env.clear(), Valid),
    ("a name more in an agent's `env`", |p| agent(p, "codex").env.push("TOKEN".into()), ReviewRequired),
    ("an agent's `args`", |p| agent(p, "codex").args.push("--yolo".into()), ReviewRequired),
    ("an agent's `bin`, `run` or `protocol`", |p| agent(p, "codex").bin = Some("./codex".into()), ReviewRequired),
    ("an agent's `home` from user to private", |p| agent(p, "codex").home = AgentHome::Private, Valid),
    ("an agent's `price`", |p| agent(p, "codex").price = Some(Price { input: 1, cached: 1, output: 1 }), Valid),
    ("a `deny` rule more", |p| p.rules.push(rule(Verdict::Deny, "migration", &[])), Valid),
    ("a `deny` rule less", |p| drop(p.rules.remove(0)), ReviewRequired),
    ("a `deny` rule with a condition less", |p| p.rules[0].when.clear(), Valid),
    (
        "a `deny` rule with a condition more",
        |p| drop(p.rules[0].when.insert("branch".into(), "\"main\"".into())),
        ReviewRequired,
    ),
    ("an `approve` rule becomes `deny`", |p| p.rules[1].verdict = Verdict::Deny, Valid),
    ("an `approve` rule becomes `allow`", |p| p.rules[1].verdict = Verdict::Allow, ReviewRequired),
    ("an `approve` rule less", |p| drop(p.rules.remove(1)), ReviewRequired),
    ("an `approve` rule with fewer approvers", |p| p.rules[1].approval = Some(terms(&["release"])), Valid),
    (
        "an `approve` rule with more approvers",
        |p| p.rules[1].approval = Some(terms(&["release", "alice", "bob"])),
        ReviewRequired,
    ),
    ("an `allow` rule less", |p| drop(p.rules.remove(2)), Valid),
    ("an `allow` rule more", |p| p.rules.push(rule(Verdict::Allow, "export", &[])), ReviewRequired),
    ("an `allow` rule with a condition less", |p| p.rules[2].when.clear(), ReviewRequired),
    ("the same rules under other names or in another order", |p| p.rules.reverse(), Valid),
    ("a right or a group less in `people`", |p| alice(p).may.truncate(1), Valid),
    ("a person, a right or a group more in `people`", |p| alice(p).groups.push("all".into()), ReviewRequired),
    ("`people` is removed", |p| p.people = None, ReviewRequired),
];

fn alice(policy: &mut Policy) -> &mut Person {
    policy.people.as_mut().unwrap().get_mut("alice").unwrap()
}

fn settings(policy: &mut Policy) {
    policy.retry.base = Millis::secs(99);
    policy.concurrency.runs = Some(1);
    policy.send_budget.insert("default".into(), SendLimit { max: 1, per: Millis::secs(1) });
    policy.retention.insert("inbound".into(), Keep::Release);
    policy.logs_max = 1;
}

fn worst(differences: &[Difference]) -> ResumeVerdict {
    crate::domain::plan::resume::verdict(differences, &[])
}

#[test]
fn r_s6_each_change_of_a_policy_has_its_verdict() {
    for (what, change, verdict) in CASES {
        let mut new = Policy { version: "2".into(), ..given() };
        change(&mut new);
        let found = differences(&given(), &new, &conduct());
        assert_eq!(worst(&found), *verdict, "{what}: {found:#?}");
        assert_eq!(found[0].old.as_deref(), Some("version: 1"), "{what}");
        let is_listed = found.len() > 1 || what.contains("version") || what.contains("same rules");
        assert!(is_listed, "{what}: {found:#?}");
        assert!(found.iter().all(|d| d.code == DifferenceCode::PolicyChanged && d.old != d.new), "{what}");
    }
}

#[test]
fn r_s6_the_table_of_cases_stands_in_the_docs() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/concepts.md")).unwrap();
    for (what, _, verdict) in CASES {
        let row = format!("| {what} | {verdict} |");
        assert!(page.contains(&row), "docs/concepts.md lacks: {row}");
    }
}

#[test]
fn r_s6_what_an_agent_did_decides_about_a_tighter_sandbox() {
    let mut new = given();
    agent(&mut new, "codex").sandbox = Sandbox::ReadOnly;
    let found = differences(&given(), &new, &conduct());
    assert!(found[0].note.contains("forbid what the run did"), "{found:?}");
    let ahead = Conduct { agents: [("codex".to_owned(), Work::Ahead)].into() };
    assert_eq!(worst(&differences(&given(), &new, &ahead)), Valid);
    assert_eq!(worst(&differences(&given(), &new, &Conduct::default())), Valid);
}

/// Changes that only tighten, and changes that only loosen, as the table has them; the ones that forbid what was done and
/// the ones that are mere settings are neither.
const TIGHTER: &[fn(&mut Policy)] = &[
    |p| p.env.clear(),
    |p| agent(p, "replay").sandbox = Sandbox::ReadOnly,
    |p| agent(p, "codex").env.clear(),
    |p| agent(p, "codex").home = AgentHome::Private,
    |p| p.rules.push(rule(Verdict::Deny, "deploy", &[])),
    |p| p.rules.push(rule(Verdict::Approve, "migration", &[])),
    |p| p.rules.retain(|r| r.verdict != Verdict::Allow),
    |p| p.rules.iter_mut().filter(|r| r.verdict == Verdict::Deny).for_each(|r| r.when.clear()),
    |p| p.rules.iter_mut().for_each(|r| r.verdict = Verdict::Deny),
    |p| alice(p).may.truncate(1),
    |p| alice(p).groups.clear(),
];

const LOOSER: &[fn(&mut Policy)] = &[
    |p| p.env.push("NEW".into()),
    |p| agent(p, "codex").env.push("NEW".into()),
    |p| agent(p, "replay").sandbox = Sandbox::DangerFullAccess,
    |p| p.rules.push(rule(Verdict::Allow, "export", &[])),
    |p| p.rules.retain(|r| r.verdict == Verdict::Allow),
    |p| alice(p).may.push(Right::Resolve),
    |p| p.people = None,
];

fn changed(of: &[fn(&mut Policy)], picked: &[usize]) -> Policy {
    let mut policy = given();
    for n in picked {
        of[n % of.len()](&mut policy);
    }
    policy
}

proptest! {
    #[test]
    fn r_s6_law_a_policy_does_not_differ_from_itself(picked in prop::collection::vec(0usize..64, 0..12)) {
        let mut policy = changed(TIGHTER, &picked);
        prop_assert_eq!(differences(&policy, &policy.clone(), &conduct()), []);
        policy.rules.reverse();
        prop_assert_eq!(worst(&differences(&policy, &changed(TIGHTER, &picked), &conduct())), Valid);
    }

    #[test]
    fn r_s6_law_what_only_tightens_goes_on_and_undoing_it_does_not(picked in prop::collection::vec(0usize..64, 1..12)) {
        let new = changed(TIGHTER, &picked);
        prop_assert_eq!(worst(&differences(&given(), &new, &conduct())), Valid);
        prop_assert_eq!(worst(&differences(&new, &given(), &conduct())), ReviewRequired);
    }

    #[test]
    fn r_s6_law_no_tightening_makes_up_for_a_loosening(
        tighter in prop::collection::vec(0usize..64, 0..6),
        looser in 0usize..64,
    ) {
        let mut new = changed(TIGHTER, &tighter);
        let before = new.clone();
        // Nothing is left of the people to give a right to, or the rules to take away.
        LOOSER[looser % LOOSER.len()](&mut new);
        prop_assume!(new != before);
        prop_assert_eq!(worst(&differences(&before, &new, &conduct())), ReviewRequired);
    }
}
