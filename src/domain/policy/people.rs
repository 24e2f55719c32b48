//! Which person may decide what (R-A13, R-U7): by the policy's `people`. Without that section whoever owns the state folder
//! may do all; nobody else can open it.

use super::{ApprovalTerms, Policy, Right};
use crate::domain::machine::Word as _;

/// Whether a person (the system user, never a variable) has a right; for approvals also by the groups that the rule names.
/// The error says who has it.
pub fn permit(policy: &Policy, person: &str, right: Right, terms: Option<&ApprovalTerms>) -> Result<(), String> {
    let who = who_may(policy, right, terms);
    if policy.people.is_none() || who.iter().any(|name| name == person) {
        return Ok(());
    }
    let who = if who.is_empty() { "nobody of this policy".to_owned() } else { who.join(", ") };
    Err(format!("{person} may not {} this; who may: {who}", right.word()))
}

/// The names of those who have a right, in order.
pub fn who_may(policy: &Policy, right: Right, terms: Option<&ApprovalTerms>) -> Vec<String> {
    let Some(people) = &policy.people else { return vec!["the owner of the state folder".to_owned()] };
    let approvers = terms.map(|terms| terms.approvers.as_slice()).unwrap_or_default();
    let is_named = |name: &String, groups: &[String]| {
        approvers.is_empty() || approvers.contains(name) || groups.iter().any(|group| approvers.contains(group))
    };
    let may = people.iter().filter(|(name, person)| person.may.contains(&right) && is_named(name, &person.groups));
    may.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::policy::Person;

    fn person(groups: &[&str], may: &[Right]) -> Person {
        Person { groups: groups.iter().map(|g| (*g).to_owned()).collect(), may: may.to_vec() }
    }

    #[test]
    fn r_u7_only_who_has_the_right_and_is_of_the_group_decides() {
        let people = [
            ("alice", person(&["release-team"], &[Right::Approve])),
            ("bob", person(&[], &[Right::Approve])),
            ("carl", person(&["release-team"], &[Right::View])),
        ];
        let people = people.into_iter().map(|(name, person)| (name.to_owned(), person)).collect();
        let policy = Policy { people: Some(people), ..Policy::default() };
        let terms = ApprovalTerms { expires: None, approvers: vec!["release-team".to_owned()] };
        let may = |name, terms| permit(&policy, name, Right::Approve, terms);
        assert!(may("alice", Some(&terms)).is_ok());
        assert_eq!(may("bob", Some(&terms)).unwrap_err(), "bob may not approve this; who may: alice");
        assert!(may("bob", None).is_ok());
        assert!(may("carl", Some(&terms)).is_err());
        assert!(may("mallory", None).is_err());
        assert!(permit(&Policy::default(), "mallory", Right::Approve, Some(&terms)).is_ok());
    }
}
