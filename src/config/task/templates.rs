//! The steps that reach the outside, together: which release and which deployment a step is about, and whether its texts
//! name only what there will be. Checked when the file is read, so that no run gets as far as its deployment and then fails
//! over a typing error.

use std::collections::BTreeMap;

use super::super::check::{join, refused};
use super::super::error::ConfigError;
use super::graph;
use crate::domain::ids::{ReleaseId, StepKey};
use crate::domain::task::{StepBody, StepKind, StepSpec};
use crate::domain::template::{DeliveryValues, TemplateError, check as check_template, render};
use crate::yaml::{Document, Node, NodeKind, Position, Seg, nearest};

/// Fills in the deployment that a written verify step looks at, and checks that a deployment has a release.
pub(super) fn resolve(
    doc: &Document,
    mut steps: Vec<StepSpec>,
    places: &[usize],
) -> Result<Vec<StepSpec>, ConfigError> {
    for (i, &place) in places.iter().enumerate() {
        let at: [Seg<'_>; 2] = ["steps".into(), place.into()];
        match &steps[i].body {
            StepBody::Deploy(deploy) if deploy.release.is_none() && !follows_release(&steps, &steps[i].key) => {
                let message = format!(
                    "step `{}` has no release to deploy: put a step of kind release before it, or name one with `release`",
                    steps[i].key
                );
                return Err(refused(doc, &at, message));
            }
            StepBody::Verify(verify) => {
                let of = match &verify.of {
                    Some(of) => Some(deployment(doc, &join(&at, "of"), (&steps[i].key, of), &steps)?),
                    None => steps[i].needs.iter().find(|need| is_unverified(&steps, need)).cloned(),
                };
                if let StepBody::Verify(verify) = &mut steps[i].body {
                    verify.of = of;
                }
            }
            _ => {}
        }
    }
    Ok(steps)
}

fn follows_release(steps: &[StepSpec], key: &StepKey) -> bool {
    let before = graph::before(steps, key);
    steps.iter().any(|step| step.kind() == StepKind::Release && before.contains(&step.key))
}

fn verifier<'s>(steps: &'s [StepSpec], deploy: &StepKey) -> Option<&'s StepKey> {
    let looks = |step: &&StepSpec| matches!(&step.body, StepBody::Verify(verify) if verify.of.as_ref() == Some(deploy));
    steps.iter().find(looks).map(|step| &step.key)
}

fn is_unverified(steps: &[StepSpec], key: &StepKey) -> bool {
    steps.iter().any(|s| s.key == *key && s.kind() == StepKind::Deploy) && verifier(steps, key).is_none()
}

/// The deployment that a verify step names: one that comes before it, and that nothing else verifies.
fn deployment(
    doc: &Document,
    at: &[Seg<'_>],
    (key, of): (&StepKey, &StepKey),
    steps: &[StepSpec],
) -> Result<StepKey, ConfigError> {
    let before = graph::before(steps, key);
    let deploys = || steps.iter().filter(|s| s.kind() == StepKind::Deploy && before.contains(&s.key)).map(|s| &s.key);
    if !deploys().any(|deploy| deploy == of) {
        let message = format!("step `{key}` verifies `{of}`, which is no deploy step before it");
        let near = nearest(of.as_str(), deploys().map(StepKey::as_str));
        return Err(doc.error(doc.at(at), message).with_nearest(near).into());
    }
    match verifier(steps, of) {
        Some(other) if other != key => Err(refused(doc, at, format!("step `{of}` is verified by `{other}` already"))),
        _ => Ok(of.clone()),
    }
}

/// Checks the texts of one step.
pub(super) fn check(
    doc: &Document,
    index: usize,
    (step, steps): (&StepSpec, &[StepSpec]),
    inputs: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    let at: [Seg<'_>; 2] = ["steps".into(), index.into()];
    let knows_release = match step.kind() {
        StepKind::Action | StepKind::Approval => follows_release(steps, &step.key),
        StepKind::Release | StepKind::Deploy => false,
        _ => return Ok(()),
    };
    let values = DeliveryValues::sample(inputs, knows_release.then_some("x"));
    let texts = Texts { doc, step, values };
    for key in ["release", "target", "ask", "input", "subject"] {
        if let Some(node) = doc.find(&join(&at, key)) {
            texts.node(key, node)?;
        }
    }
    match &step.body {
        StepBody::Release { release } => texts.name(&doc.at(&join(&at, "release")), release),
        StepBody::Deploy(deploy) => {
            deploy.release.as_ref().map_or(Ok(()), |release| texts.name(&doc.at(&join(&at, "release")), release))
        }
        _ => Ok(()),
    }
}

/// The texts of one step, and what they may name.
struct Texts<'a> {
    doc: &'a Document,
    step: &'a StepSpec,
    values: DeliveryValues,
}

impl Texts<'_> {
    /// Every text of a value, at any depth.
    fn node(&self, name: &str, node: &Node) -> Result<(), ConfigError> {
        match &node.kind {
            NodeKind::Scalar(text, _) => self.text(name, &node.position, text),
            NodeKind::List(items) => items.iter().try_for_each(|item| self.node(name, item)),
            NodeKind::Map(entries) => {
                entries.iter().try_for_each(|entry| self.node(&format!("{name}.{}", entry.key), &entry.value))
            }
        }
    }

    fn text(&self, name: &str, at: &Position, text: &str) -> Result<(), ConfigError> {
        let Err(error) = check_template(text, &self.values) else { return Ok(()) };
        let mut near = None;
        let mut why = String::new();
        if let TemplateError::UnknownVariable { name, near: known, .. } = &error {
            if name.starts_with("release") && self.values.release.is_none() {
                why = match self.step.kind() {
                    StepKind::Action | StepKind::Approval => {
                        format!(": no step of kind release comes before `{}`", self.step.key)
                    }
                    _ => String::from(": this text names a release itself"),
                };
            } else {
                near = nearest(name, known.iter().map(String::as_str));
            }
        }
        let known = if near.is_none() && why.is_empty() && matches!(error, TemplateError::UnknownVariable { .. }) {
            "; known are inputs.…, run.…, task.… and, after a release step, release.id"
        } else {
            ""
        };
        Err(self.doc.error(at.clone(), format!("`{name}`: {error}{why}{known}")).with_nearest(near).into())
    }

    /// What an input puts into the name of a release is known here; what the run puts in is checked when it is made.
    fn name(&self, at: &Position, template: &str) -> Result<(), ConfigError> {
        let Ok(name) = render(template, &self.values) else { return Ok(()) };
        ReleaseId::new(&name).map(drop).map_err(|e| self.doc.error(at.clone(), e.to_string()).into())
    }
}
