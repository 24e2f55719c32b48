//! What the rules say of one effect, and which of them says it (R-P2): deny beats approve beats allow, and what no rule names
//! needs a person.
//!
//! It fails closed: an attribute that is not told, or that cannot be compared, counts as fitting for a rule that denies or
//! asks, and as not fitting for one that allows. Without a policy file everything is denied (F90).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, Held, Reach};
use super::{ApprovalTerms, BUILT_IN, Policy, Rule, Verdict};

/// An effect that somebody wants, as rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The type: `deploy`, `git.push` …
    pub action: String,
    /// Its attributes by name: environment, target, account, branch, amount, force … One that is not known is left out.
    pub values: BTreeMap<String, Value>,
}

/// What the policy says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Goes, goes with a person's agreement, or does not go.
    pub verdict: Verdict,
    /// The rule that decided; `None` when no rule names it.
    pub rule: Option<String>,
    /// By whom and for how long, where a person must agree.
    pub terms: ApprovalTerms,
    /// The reason, in words.
    pub why: String,
}

/// One condition of a rule, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConditionReading {
    /// The attribute.
    pub attribute: String,
    /// What the rule wants, as JSON.
    pub wanted: String,
    /// What was told of it.
    pub found: Option<Value>,
    /// Whether it holds.
    pub held: Held,
}

/// One rule that names the action, and whether it fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleReading {
    /// The rule.
    pub rule: String,
    /// What it says.
    pub verdict: Verdict,
    /// Whether it counts.
    pub fits: bool,
    /// Its conditions.
    pub conditions: Vec<ConditionReading>,
}

/// A command that the policy stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped<'a> {
    /// The effect in it.
    pub asked: &'a Asked,
    /// The rule.
    pub rule: String,
    /// What the rule says: deny, or approve, which nobody can do for a command.
    pub verdict: Verdict,
    /// The reason, in words.
    pub why: String,
}

/// Decides. Of several rules with the same verdict the first in the file is named.
pub fn decide(policy: &Policy, asked: &Asked) -> Decision {
    if policy.version == BUILT_IN && policy.rules.is_empty() {
        let why = format!("there is no policy file, and without one nothing is allowed: {}", asked.action);
        return Decision { verdict: Verdict::Deny, rule: None, terms: ApprovalTerms::default(), why };
    }
    let names = |rule: &&Rule| rule.action == "*" || rule.action == asked.action;
    match decider(policy.rules.iter().filter(names), asked) {
        Some((rule, reading)) => Decision {
            verdict: rule.verdict,
            rule: Some(rule.id.clone()),
            terms: rule.approval.clone().unwrap_or_default(),
            why: words(rule, &reading),
        },
        None => Decision {
            verdict: Verdict::Approve,
            rule: None,
            terms: ApprovalTerms::default(),
            why: format!("no rule names {}: a person must agree", asked.action),
        },
    }
}

/// Every rule that names the action, in the order of the file: which fit, which do not, and for which condition.
pub fn readings(policy: &Policy, asked: &Asked) -> Vec<RuleReading> {
    let names = |rule: &&Rule| rule.action == "*" || rule.action == asked.action;
    policy.rules.iter().filter(names).map(|rule| read(rule, asked)).collect()
}

/// What stops a command with these effects in it, if anything does. Only a rule that names such an effect counts, never `*`:
/// a command that no rule names needs nobody's agreement. A rule that asks for agreement stops it as well, for nobody can
/// agree to a command; that is what action steps are for.
pub fn stops<'a>(policy: &Policy, effects: &'a [Asked]) -> Option<Stopped<'a>> {
    let stopped = effects.iter().filter_map(|asked| {
        let named = policy.rules.iter().filter(|rule| rule.action == asked.action);
        let (rule, reading) = decider(named, asked).filter(|(rule, _)| rule.verdict != Verdict::Allow)?;
        Some(Stopped { asked, rule: rule.id.clone(), verdict: rule.verdict, why: words(rule, &reading) })
    });
    stopped.min_by_key(|stopped| stopped.verdict != Verdict::Deny)
}

fn decider<'r>(rules: impl Iterator<Item = &'r Rule>, asked: &Asked) -> Option<(&'r Rule, RuleReading)> {
    let fitting: Vec<_> = rules.map(|rule| (rule, read(rule, asked))).filter(|(_, reading)| reading.fits).collect();
    let order = [Verdict::Deny, Verdict::Approve, Verdict::Allow];
    order.into_iter().find_map(|verdict| fitting.iter().find(|(rule, _)| rule.verdict == verdict).cloned())
}

fn read(rule: &Rule, asked: &Asked) -> RuleReading {
    let reach = if rule.verdict == Verdict::Allow { Reach::AllFit } else { Reach::OneFits };
    let one = |(name, wanted): (&String, &String)| {
        let found = asked.values.get(name);
        let held = Condition::read(wanted).map_or(Held::Unreadable, |condition| condition.ask(found, reach));
        ConditionReading { attribute: name.clone(), wanted: wanted.clone(), found: found.cloned(), held }
    };
    let conditions: Vec<_> = rule.when.iter().map(one).collect();
    let fits = conditions.iter().all(|c| match rule.verdict {
        Verdict::Allow => c.held == Held::Yes,
        Verdict::Deny | Verdict::Approve => c.held.may_hold(),
    });
    RuleReading { rule: rule.id.clone(), verdict: rule.verdict, fits, conditions }
}

fn words(rule: &Rule, reading: &RuleReading) -> String {
    let doubts = reading.conditions.iter().filter(|c| c.held != Held::Yes).map(|c| c.attribute.as_str());
    let doubts: Vec<_> = doubts.collect();
    let careful = if doubts.is_empty() {
        String::new()
    } else {
        format!(" (it counts because it cannot be told: {})", doubts.join(", "))
    };
    format!("rule `{}` says {} {}{careful}", rule.id, rule.verdict, rule.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(id: &str, verdict: Verdict, action: &str, when: &Value) -> Rule {
        let when = when.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.to_string())).collect();
        Rule { id: id.to_owned(), verdict, action: action.to_owned(), when, approval: None }
    }

    fn policy(rules: Vec<Rule>) -> Policy {
        Policy { version: "v1".to_owned(), rules, ..Policy::default() }
    }

    fn asked(action: &str, values: &Value) -> Asked {
        let values = values.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        Asked { action: action.to_owned(), values }
    }

    #[test]
    fn r_p2_deny_beats_approve_beats_allow_whatever_their_order() {
        use Verdict::{Allow, Approve, Deny};
        let all = [rule("a", Allow, "deploy", &json!({})), rule("b", Approve, "*", &json!({})), {
            rule("c", Deny, "deploy", &json!({ "environment": "production" }))
        }];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let policy = policy(order.map(|i| all[i].clone()).to_vec());
            let verdict = |values: &Value| decide(&policy, &asked("deploy", values)).verdict;
            assert_eq!(verdict(&json!({ "environment": "production" })), Deny);
            assert_eq!(verdict(&json!({ "environment": "staging" })), Approve);
        }
        let unnamed = decide(&policy(vec![all[0].clone()]), &asked("export", &json!({})));
        assert_eq!((unnamed.verdict, unnamed.rule), (Approve, None));
    }

    #[test]
    fn r_p2_what_is_not_told_counts_against_whoever_asks() {
        use Verdict::{Allow, Approve, Deny};
        for (verdict, expected) in [(Deny, Deny), (Approve, Approve), (Allow, Approve)] {
            let policy = policy(vec![rule("r", verdict, "payment", &json!({ "amount": { "over": "100" } }))]);
            for values in [json!({}), json!({ "amount": "a lot" }), json!({ "amount": null })] {
                let decision = decide(&policy, &asked("payment", &values));
                assert_eq!(decision.verdict, expected, "{verdict} {values}");
                let named = verdict != Allow;
                assert_eq!(decision.rule.is_some(), named);
                assert!(!named || decision.why.contains("cannot be told: amount"), "{}", decision.why);
            }
            let readings = readings(&policy, &asked("payment", &json!({})));
            assert_eq!(readings[0].conditions[0].held, Held::NotTold);
        }
    }

    #[test]
    fn f90_without_a_policy_everything_is_denied_and_a_policy_without_rules_asks() {
        let wanted = asked("notification", &json!({}));
        assert_eq!(decide(&Policy::default(), &wanted).verdict, Verdict::Deny);
        assert_eq!(decide(&policy(Vec::new()), &wanted).verdict, Verdict::Approve);
    }

    #[test]
    fn f90_a_condition_that_was_recorded_broken_fits_where_it_forbids() {
        let mut broken = rule("r", Verdict::Deny, "deploy", &json!({}));
        broken.when.insert("environment".into(), "{".into());
        assert_eq!(decide(&policy(vec![broken]), &asked("deploy", &json!({}))).verdict, Verdict::Deny);
    }

    #[test]
    fn r_p3_only_a_rule_that_names_it_stops_a_command() {
        let push = |force: bool| vec![asked("git.push", &json!({ "force": force }))];
        let no_force = rule("no-force", Verdict::Deny, "git.push", &json!({ "force": true }));
        let all = rule("all", Verdict::Deny, "*", &json!({}));
        let policy =
            policy(vec![all, no_force, rule("ask", Verdict::Approve, "git.push", &json!({ "branch": "main" }))]);
        let rule_of = |effects: &[Asked]| stops(&policy, effects).map(|s| s.rule);
        assert_eq!(rule_of(&push(true)).as_deref(), Some("no-force"));
        assert_eq!(rule_of(&push(false)).as_deref(), Some("ask"), "the branch is not told");
        assert_eq!(rule_of(&[asked("git.push", &json!({ "force": false, "branch": "x" }))]), None);
        assert_eq!(rule_of(&[asked("database.write", &json!({}))]), None);
        assert_eq!(stops(&Policy::default(), &push(true)), None);
        let [first, second] = [push(false), push(true)].concat().try_into().unwrap();
        assert_eq!(rule_of(&[first, second]).as_deref(), Some("no-force"), "deny is named first");
    }
}
