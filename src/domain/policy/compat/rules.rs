//! Rules over actions under a changed policy. Their order and their names do not count, for `deny` beats `approve` beats
//! `allow`, and what no rule names needs approval: so a rule fewer can only loosen where it denied or asked, and one more
//! only where it allows. A run has done no action that a rule could forbid afterwards: those come with the action steps.

use super::{Effect, Found, are_among};
use crate::domain::policy::condition::is_glob;
use crate::domain::policy::{Rule, Verdict};

pub(super) fn compare(found: &mut Found, old: &[Rule], new: &[Rule]) {
    let is_new = |rule: &&Rule| !old.iter().any(|other| says_the_same(rule, other));
    let is_gone = |rule: &&Rule| !new.iter().any(|other| says_the_same(rule, other));
    for rule in old.iter().filter(is_gone) {
        let effect = match rule.verdict {
            Verdict::Allow => Effect::Stricter,
            Verdict::Deny | Verdict::Approve if new.iter().any(|other| is_as_strict(other, rule)) => Effect::Stricter,
            Verdict::Deny | Verdict::Approve => Effect::Looser,
        };
        found.add(&name(rule), (Some(shown(rule)), None), effect);
    }
    for rule in new.iter().filter(is_new) {
        let effect = match rule.verdict {
            Verdict::Deny => Effect::Stricter,
            // Beside a rule that asks for more, it could be the one that is asked.
            Verdict::Approve if old.iter().any(|other| is_beside(rule, other) && !asks_as_much(rule, other)) => {
                Effect::Looser
            }
            Verdict::Approve => Effect::Stricter,
            Verdict::Allow if old.iter().any(|other| allows_as_much(other, rule)) => Effect::Stricter,
            Verdict::Allow => Effect::Looser,
        };
        found.add(&name(rule), (None, Some(shown(rule))), effect);
    }
}

fn name(rule: &Rule) -> String {
    format!("rules.{}", rule.id)
}

fn shown(rule: &Rule) -> String {
    let when = rule.when.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>();
    let when = if when.is_empty() { String::new() } else { format!(" when {}", when.join(", ")) };
    let terms = rule.approval.as_ref().map(|terms| {
        let expires = terms.expires.map_or_else(|| "never".to_owned(), |time| time.to_string());
        format!(" by {:?}, expires {expires}", terms.approvers)
    });
    format!("{} {}{when}{}", rule.verdict, rule.action, terms.unwrap_or_default())
}

fn says_the_same(one: &Rule, other: &Rule) -> bool {
    let part = |rule: &Rule| (rule.verdict, rule.action.clone(), rule.when.clone(), rule.approval.clone());
    part(one) == part(other)
}

/// Whether `rule` asks at least as much as `than` in every case of it: fewer conditions reach further.
fn is_as_strict(rule: &Rule, than: &Rule) -> bool {
    let reaches =
        rule.action == than.action && rule.when.iter().all(|(name, value)| than.when.get(name) == Some(value));
    let asks = match (rule.verdict, than.verdict) {
        (Verdict::Deny, _) => true,
        (Verdict::Approve, Verdict::Approve) => asks_as_much(rule, than),
        _ => false,
    };
    reaches && asks
}

/// Fewer people, and an approval that counts no longer.
fn asks_as_much(rule: &Rule, than: &Rule) -> bool {
    let (mine, theirs) = (rule.approval.clone().unwrap_or_default(), than.approval.clone().unwrap_or_default());
    let people =
        theirs.approvers.is_empty() || (!mine.approvers.is_empty() && are_among(&mine.approvers, &theirs.approvers));
    let time = match (mine.expires, theirs.expires) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(mine), Some(theirs)) => mine <= theirs,
    };
    people && time
}

/// Whether `rule` allowed already what `than` allows: it has no condition that `than` has not.
fn allows_as_much(rule: &Rule, than: &Rule) -> bool {
    rule.verdict == Verdict::Allow
        && rule.action == than.action
        && rule.when.iter().all(|(name, value)| than.when.get(name) == Some(value))
}

/// Whether both ask about one and the same action in some case: no condition tells them apart for certain.
fn is_beside(rule: &Rule, other: &Rule) -> bool {
    // A list, a comparison or a glob may fit what another one fits, too.
    let is_one_value = |value: &str| !value.starts_with(['[', '{']) && !is_glob(value);
    let excludes = |(name, value): (&String, &String)| {
        other.when.get(name).is_some_and(|theirs| theirs != value && is_one_value(theirs) && is_one_value(value))
    };
    other.verdict == Verdict::Approve && rule.action == other.action && !rule.when.iter().any(excludes)
}
