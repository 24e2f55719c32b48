//! Rules over actions: shape, unique ids, known approvers. Deciding by them is the domain's.

use std::collections::{BTreeMap, HashMap};

use super::super::check::{join, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::unknown_word;
use super::raw::{RawApproval, RawRule};
use crate::domain::policy::command::{ATTRIBUTES, SWITCHES};
use crate::domain::policy::condition::{COMPARISONS, Condition};
use crate::domain::policy::{ApprovalTerms, Person, Rule, Verdict};
use crate::yaml::{Document, Entry, Node, Position, Seg, nearest};

pub(super) fn rules(
    doc: &Document,
    raw: Vec<RawRule>,
    people: Option<&BTreeMap<String, Person>>,
) -> Result<Vec<Rule>, ConfigError> {
    let mut first: HashMap<String, String> = HashMap::new();
    let mut rules = Vec::new();
    for (i, rule) in raw.into_iter().enumerate() {
        let at: [Seg<'_>; 2] = ["rules".into(), i.into()];
        let id_at = join(&at, "id");
        if let Some(earlier) = first.insert(rule.id.clone(), doc.at(&id_at).to_string()) {
            return Err(refused(doc, &id_at, format!("rule `{}` exists already ({earlier})", rule.id)));
        }
        rules.push(one(doc, &at, rule, people)?);
    }
    Ok(rules)
}

fn one(
    doc: &Document,
    at: &[Seg<'_>],
    raw: RawRule,
    people: Option<&BTreeMap<String, Person>>,
) -> Result<Rule, ConfigError> {
    if raw.id.trim().is_empty() {
        return Err(refused(doc, &join(at, "id"), "a rule needs an id"));
    }
    let said = [(Verdict::Deny, raw.deny), (Verdict::Approve, raw.approve), (Verdict::Allow, raw.allow)];
    let mut said = said.into_iter().filter_map(|(verdict, action)| action.map(|action| (verdict, action)));
    let (Some((verdict, action)), None) = (said.next(), said.next()) else {
        return Err(refused(doc, at, format!("rule `{}` needs exactly one of deny, approve, allow", raw.id)));
    };
    check_action(&action).map_err(|message| refused(doc, &join(at, verdict.to_string().as_str()), message))?;
    let approval = raw.approval.map(|terms| approval(doc, at, verdict, terms, people)).transpose()?;
    let conditions = doc.find(&join(at, "when")).into_iter().flat_map(Node::entries);
    let mut when = BTreeMap::new();
    for entry in conditions {
        check_condition(doc, &action, entry)?;
        when.insert(entry.key.clone(), entry.value.canonical().to_string());
    }
    Ok(Rule { id: raw.id, verdict, action, when, approval })
}

/// `deploy`, `git.push`, or `*` for all.
fn check_action(action: &str) -> Result<(), String> {
    let part = |p: &str| !p.is_empty() && p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let good = action == "*" || action.split('.').all(part);
    if good { Ok(()) } else { Err(format!("`{action}` is no action: write one such as `deploy` or `git.push`")) }
}

/// A condition that could never be read would be silently false, or silently true: it is refused here, at its place.
fn check_condition(doc: &Document, action: &str, entry: &Entry) -> Result<(), ConfigError> {
    let refuse = |at: &Position, message: String| Err(doc.error(at.clone(), message).into());
    let attributes = ATTRIBUTES.iter().find(|(name, _)| *name == action).map(|(_, attributes)| *attributes);
    if let Some(known) = attributes.filter(|known| !known.contains(&entry.key.as_str())) {
        let message = format!("{action} has no such attribute: {}", unknown_word(&entry.key, known.iter().copied()));
        return refuse(&entry.position, message);
    }
    for bound in entry.value.entries() {
        if !COMPARISONS.contains(&bound.key.as_str()) {
            let message = format!("no such comparison: {}", unknown_word(&bound.key, COMPARISONS.iter().copied()));
            return refuse(&bound.position, message);
        }
    }
    let condition = match Condition::of(&entry.value.canonical()) {
        Ok(condition) => condition,
        Err(message) => return refuse(&entry.value.position, message),
    };
    let is_truth_value = attributes.is_some() && SWITCHES.contains(&entry.key.as_str());
    let is_switch = |condition: &Condition| match condition {
        Condition::OneOf(texts) => texts.iter().all(|text| text == "true" || text == "false"),
        Condition::Between { .. } => false,
    };
    if is_truth_value && !is_switch(&condition) {
        return refuse(&entry.value.position, format!("`{}` of {action} is true or false", entry.key));
    }
    Ok(())
}

fn approval(
    doc: &Document,
    at: &[Seg<'_>],
    verdict: Verdict,
    raw: RawApproval,
    people: Option<&BTreeMap<String, Person>>,
) -> Result<ApprovalTerms, ConfigError> {
    let at = join(at, "approval");
    if verdict != Verdict::Approve {
        return Err(refused_key(doc, &at, format!("`approval` belongs to a rule with approve, not {verdict}")));
    }
    let known: Vec<&str> = people.into_iter().flatten().flat_map(names).collect();
    for (i, name) in raw.approvers.iter().enumerate() {
        // Without a `people` section there is nobody to compare with.
        if people.is_some() && !known.contains(&name.as_str()) {
            let near = nearest(name, known.iter().copied());
            let error = doc.error(
                doc.at(&join(&join(&at, "approvers"), i)),
                format!("`{name}` is neither a person nor a group of `people`"),
            );
            return Err(error.with_nearest(near).into());
        }
    }
    Ok(ApprovalTerms { expires: raw.expires.map(|f| f.0), approvers: raw.approvers })
}

/// A person's name and groups.
fn names<'p>((name, person): (&'p String, &'p Person)) -> impl Iterator<Item = &'p str> {
    std::iter::once(name.as_str()).chain(person.groups.iter().map(String::as_str))
}
