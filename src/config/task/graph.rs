//! How the steps of a task hang together: unique keys, known needs, no circle, and send-backs that lead back.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::super::check::{join, refused};
use super::super::error::ConfigError;
use crate::domain::ids::StepKey;
use crate::domain::task::{StepBody, StepKind, StepSpec};
use crate::yaml::{Document, Seg, nearest};

/// Fills in the default `needs` and checks the whole. `places` says of each step which one of the file made it: a deployment
/// that is looked at makes two.
pub(super) fn resolve(
    doc: &Document,
    mut steps: Vec<StepSpec>,
    places: &[usize],
) -> Result<Vec<StepSpec>, ConfigError> {
    unique_keys(doc, &steps, places)?;
    let order: Vec<StepKey> = steps.iter().map(|s| s.key.clone()).collect();
    for (i, step) in steps.iter_mut().enumerate() {
        if step.explicit_needs {
            known_needs(doc, places[i], step, &order)?;
            // Whoever needs a deployment needs it to be good.
            let looked_at = |at: usize| at > 0 && places[at] == places[at - 1] && step.needs.contains(&order[at - 1]);
            // In the order of the file and once each: another spelling of the same needs is the same task.
            let is_needed = |(at, key): &(usize, &StepKey)| step.needs.contains(key) || looked_at(*at);
            step.needs = order.iter().enumerate().filter(is_needed).map(|(_, key)| key.clone()).collect();
        } else {
            step.needs = i.checked_sub(1).map(|before| order[before].clone()).into_iter().collect();
        }
    }
    no_circle(doc, &steps, places)?;
    for (i, step) in steps.iter().enumerate() {
        send_back(doc, places[i], step, &steps)?;
        final_work(doc, places[i], step, &steps)?;
    }
    Ok(steps)
}

fn unique_keys(doc: &Document, steps: &[StepSpec], places: &[usize]) -> Result<(), ConfigError> {
    let mut first: HashMap<&StepKey, usize> = HashMap::new();
    for (i, step) in steps.iter().enumerate() {
        if let Some(earlier) = first.insert(&step.key, places[i]) {
            let line = doc.at(&["steps".into(), earlier.into()]).line;
            let made = i > 0 && places[i] == places[i - 1];
            let at: [Seg<'_>; 3] = ["steps".into(), places[i].into(), if made { "verify" } else { "key" }.into()];
            let message =
                format!("step key `{}` is used twice, first in line {line}; give one another `key`", step.key);
            return Err(refused(doc, &at, message));
        }
    }
    Ok(())
}

fn known_needs(doc: &Document, index: usize, step: &StepSpec, keys: &[StepKey]) -> Result<(), ConfigError> {
    for (i, need) in step.needs.iter().enumerate() {
        if !keys.contains(need) {
            let at: [Seg<'_>; 4] = ["steps".into(), index.into(), "needs".into(), i.into()];
            let message = format!("step `{}` needs unknown step `{need}`", step.key);
            let near = nearest(need.as_str(), keys.iter().map(StepKey::as_str));
            return Err(doc.error(doc.at(&at), message).with_nearest(near).into());
        }
    }
    Ok(())
}

/// The steps that must have ended before a step: its needs, their needs and so on.
pub(super) fn before(steps: &[StepSpec], key: &StepKey) -> BTreeSet<StepKey> {
    reached_from(steps, key).into_keys().cloned().collect()
}

/// Everything that a step needs at any distance, each with the step by which it was reached first. The step itself is
/// among them when its needs lead in a circle.
fn reached_from<'s>(steps: &'s [StepSpec], key: &'s StepKey) -> HashMap<&'s StepKey, &'s StepKey> {
    let by_key: HashMap<&StepKey, &StepSpec> = steps.iter().map(|s| (&s.key, s)).collect();
    let mut reached = HashMap::new();
    let mut open = VecDeque::from([key]);
    while let Some(at) = open.pop_front() {
        for need in by_key.get(at).into_iter().flat_map(|step| &step.needs) {
            if let Entry::Vacant(entry) = reached.entry(need) {
                entry.insert(at);
                open.push_back(need);
            }
        }
    }
    reached
}

fn no_circle(doc: &Document, steps: &[StepSpec], places: &[usize]) -> Result<(), ConfigError> {
    // Needs that all stand earlier in the file, as they nearly always do, lead in no circle.
    let mut earlier = HashSet::new();
    if steps.iter().all(|step| step.needs.iter().all(|need| earlier.contains(need)) && earlier.insert(&step.key)) {
        return Ok(());
    }
    for (i, step) in steps.iter().enumerate() {
        let reached = reached_from(steps, &step.key);
        if reached.contains_key(&step.key) {
            let way = circle(&reached, &step.key).join(" → ");
            let at: [Seg<'_>; 3] = ["steps".into(), places[i].into(), "needs".into()];
            return Err(refused(doc, &at, format!("steps need each other in a circle: {way}")));
        }
    }
    Ok(())
}

/// The shortest circle through a step, for the message.
fn circle<'s>(reached: &HashMap<&'s StepKey, &'s StepKey>, key: &'s StepKey) -> Vec<&'s str> {
    let mut way = vec![key.as_str()];
    let mut at = key;
    while let Some(earlier) = reached.get(at) {
        way.push(earlier.as_str());
        at = earlier;
        if at == key {
            break;
        }
    }
    way.reverse();
    way
}

/// A check sends back to an agent step that it comes after: anything else would repeat work that did not fail, or never
/// reach the check again.
fn send_back(doc: &Document, index: usize, step: &StepSpec, steps: &[StepSpec]) -> Result<(), ConfigError> {
    let StepBody::Qa { on_fail: Some(back), .. } = &step.body else { return Ok(()) };
    let (key, target) = (&step.key, &back.send_back_to);
    let at = join(&["steps".into(), index.into(), "on_fail".into()], "send_back_to");
    let Some(found) = steps.iter().find(|s| s.key == *target) else {
        let agents = steps.iter().filter(|s| s.kind() == StepKind::Agent).map(|s| s.key.as_str());
        let error = doc.error(doc.at(&at), format!("step `{key}` sends back to unknown step `{target}`"));
        return Err(error.with_nearest(nearest(target.as_str(), agents)).into());
    };
    if found.kind() != StepKind::Agent {
        let kind = found.kind();
        return Err(refused(
            doc,
            &at,
            format!("step `{key}` sends back to `{target}`, a {kind} step; only an agent step can be sent back to"),
        ));
    }
    if !before(steps, key).contains(target) {
        return Err(refused(doc, &at, format!("step `{key}` sends back to `{target}`, which it does not come after")));
    }
    Ok(())
}

/// What is released, approved or deployed is not done again when an agent is sent back: the work must be final before.
fn final_work(doc: &Document, index: usize, step: &StepSpec, steps: &[StepSpec]) -> Result<(), ConfigError> {
    if !matches!(step.kind(), StepKind::Release | StepKind::Deploy | StepKind::Verify | StepKind::Approval) {
        return Ok(());
    }
    let before = before(steps, &step.key);
    for check in steps {
        let StepBody::Qa { on_fail: Some(back), .. } = &check.body else { continue };
        if before.contains(&back.send_back_to) && !before.contains(&check.key) {
            let (key, agent, check) = (&step.key, &back.send_back_to, &check.key);
            let message = format!(
                "step `{key}` comes after `{agent}`, which `{check}` may send back to work again; let it come after `{check}`"
            );
            return Err(refused(doc, &["steps".into(), index.into()], message));
        }
    }
    Ok(())
}
