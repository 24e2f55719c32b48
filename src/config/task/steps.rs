//! One step after the other: from what is written to a [`StepSpec`].

use std::collections::BTreeMap;

use super::super::check::{env_name, inner_glob, inner_path, join, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::{TextOr, TextOrList};
use super::raw::{RawArtifact, RawSendBack, RawStep};
use super::{TaskContext, agent, delivery, graph, keys, limits, templates};
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::task::{
    ArtifactSpec, CommandLine, PromptRef, SendBack, StepBody, StepKind, StepSpec, When, input_variable,
};
use crate::domain::template::{ConditionValues, TemplateError, check_condition};
use crate::yaml::{Document, Seg, nearest};

/// How often a failed check sends its agent back, where the task does not say.
pub(super) const DEFAULT_ROUNDS: u32 = 2;

/// More steps than any task of a person; checking how they hang together is quadratic.
const MAX_STEPS: usize = 200;

/// More rounds than this are a typing error.
const MAX_ROUNDS: u64 = 100;

/// All steps of a task.
pub(super) fn steps(
    doc: &Document,
    raw: Vec<TextOr<RawStep>>,
    inputs: &BTreeMap<String, String>,
    context: &TaskContext<'_>,
) -> Result<Vec<StepSpec>, ConfigError> {
    if raw.is_empty() {
        return Err(refused(doc, &["steps".into()], "a task needs at least one step"));
    }
    if raw.len() > MAX_STEPS {
        return Err(refused(
            doc,
            &["steps".into()],
            format!("a task has at most {MAX_STEPS} steps, not {}", raw.len()),
        ));
    }
    let (mut steps, mut places) = (Vec::new(), Vec::new());
    for (i, step) in raw.into_iter().enumerate() {
        let step = match step {
            TextOr::Text(kind) => RawStep { kind, ..RawStep::default() },
            TextOr::Keys(step) => step,
        };
        let made = one(doc, i, step, context)?;
        places.extend(made.iter().map(|_| i));
        steps.extend(made);
    }
    let steps = graph::resolve(doc, steps, &places)?;
    let steps = templates::resolve(doc, steps, &places)?;
    for (i, step) in places.iter().zip(&steps) {
        check_when(doc, *i, (step, &steps), inputs)?;
        templates::check(doc, *i, (step, &steps), inputs)?;
    }
    Ok(steps)
}

/// A step whose `needs` are still as written; a deployment that is to be looked at is two.
fn one(
    doc: &Document,
    index: usize,
    mut raw: RawStep,
    context: &TaskContext<'_>,
) -> Result<Vec<StepSpec>, ConfigError> {
    let at: [Seg<'_>; 2] = ["steps".into(), index.into()];
    let kind = keys::kind(&raw.kind).map_err(|message| refused(doc, &at, message))?;
    let written = raw.key.as_deref().unwrap_or(kind.word());
    let key = StepKey::new(written).map_err(|e| refused(doc, &join(&at, "key"), e.to_string()))?;
    let needs = raw.needs.iter().flatten().map(|need| StepKey::recorded(need.as_str())).collect();
    let timeout = raw.timeout.map(|f| f.0);
    if let Some(timeout) = timeout {
        limits::step_timeout(doc, &join(&at, "timeout"), &key, timeout, context.policy)?;
    }
    let explicit_needs = raw.needs.is_some();
    let artifacts = artifacts(doc, &at, &raw.artifacts)?;
    for name in raw.env.keys() {
        env_name(name).map_err(|message| refused_key(doc, &join(&join(&at, "env"), name.as_str()), message))?;
    }
    let (env, when) = (raw.env.clone(), when(raw.when.as_deref()));
    let verify = raw.verify.take();
    let body = body(doc, &at, kind, raw, context)?;
    let step = StepSpec { key, needs, explicit_needs, timeout, when, artifacts, env, body };
    let verify = verify.map(|verify| delivery::verification(doc, &join(&at, "verify"), &step, verify)).transpose()?;
    Ok(std::iter::once(step).chain(verify).collect())
}

fn body(
    doc: &Document,
    at: &[Seg<'_>],
    kind: StepKind,
    raw: RawStep,
    context: &TaskContext<'_>,
) -> Result<StepBody, ConfigError> {
    let missing = |key: &str| refused(doc, at, format!("a step of kind {kind} needs `{key}`"));
    Ok(match kind {
        StepKind::Context => StepBody::Context,
        StepKind::Report => StepBody::Report,
        StepKind::Agent => {
            let prompt = raw.prompt.ok_or_else(|| missing("prompt"))?;
            let prompt = inner_path(&prompt).map_err(|message| refused(doc, &join(at, "prompt"), message))?;
            StepBody::Agent { agent: agent::of_step(doc, at, raw.agent, context)?, prompt: PromptRef::File(prompt) }
        }
        StepKind::Qa => {
            let run = command(doc, &join(at, "run"), raw.run.ok_or_else(|| missing("run"))?)?;
            StepBody::Qa { run, on_fail: raw.on_fail.map(|b| send_back(doc, at, b)).transpose()? }
        }
        StepKind::Command => {
            StepBody::Command { run: command(doc, &join(at, "run"), raw.run.ok_or_else(|| missing("run"))?)? }
        }
        StepKind::Release | StepKind::Deploy | StepKind::Verify | StepKind::Action | StepKind::Approval => {
            delivery::body(doc, at, (kind, raw), context)?
        }
    })
}

/// Commands get inputs by environment alone: a value spliced into a shell line is a command of whoever wrote it (F95).
pub(super) fn command(doc: &Document, at: &[Seg<'_>], raw: TextOrList) -> Result<CommandLine, ConfigError> {
    let name = match at.last() {
        Some(Seg::Key(key)) => key,
        _ => "the command",
    };
    match raw {
        TextOrList::Text(line) => {
            check_text(&line).map_err(|message| refused(doc, at, message))?;
            if line.trim().is_empty() {
                return Err(refused(doc, at, format!("`{name}` is empty")));
            }
            Ok(CommandLine::Shell(line))
        }
        TextOrList::List(list) => {
            if list.first().is_none_or(|program| program.trim().is_empty()) {
                return Err(refused(doc, at, format!("`{name}` must name a program")));
            }
            for (i, text) in list.iter().enumerate() {
                check_text(text).map_err(|message| refused(doc, &join(at, i), message))?;
            }
            Ok(CommandLine::List(list))
        }
    }
}

/// `{{.Names}}` is no variable of ours: so begin the formats of docker and other Go programs.
fn check_text(text: &str) -> Result<(), String> {
    let mut rest = text;
    while let Some(begin) = rest.find("{{") {
        rest = &rest[begin + 2..];
        if rest.trim_start().starts_with('.') {
            continue;
        }
        let name = rest.split("}}").next().unwrap_or_default().trim();
        let input = name.strip_prefix("inputs.").unwrap_or("ticket");
        let variable = input_variable(input);
        return Err(format!(
            "`{{{{ {name} }}}}` is not replaced in commands; use the environment, such as \"${variable}\""
        ));
    }
    Ok(())
}

fn send_back(doc: &Document, at: &[Seg<'_>], raw: RawSendBack) -> Result<SendBack, ConfigError> {
    let rounds = raw.rounds.map_or(u64::from(DEFAULT_ROUNDS), |f| f.0.0);
    let rounds = u32::try_from(rounds).ok().filter(|_| rounds <= MAX_ROUNDS).ok_or_else(|| {
        refused(doc, &join(&join(at, "on_fail"), "rounds"), format!("at most {MAX_ROUNDS} rounds, not {rounds}"))
    })?;
    Ok(SendBack { send_back_to: StepKey::recorded(raw.send_back_to), rounds })
}

fn artifacts(doc: &Document, at: &[Seg<'_>], raw: &[TextOr<RawArtifact>]) -> Result<Vec<ArtifactSpec>, ConfigError> {
    let at = join(at, "artifacts");
    let one = |(i, artifact): (usize, &TextOr<RawArtifact>)| {
        let (text, optional) = match artifact {
            TextOr::Text(glob) => (glob, false),
            TextOr::Keys(artifact) => (&artifact.glob, artifact.optional),
        };
        let glob = inner_glob(text).map_err(|message| refused(doc, &join(&at, i), message))?;
        Ok(ArtifactSpec { glob, optional })
    };
    raw.iter().enumerate().map(one).collect()
}

fn when(text: Option<&str>) -> When {
    match text.map(str::trim) {
        None => When::NeedsSucceeded,
        Some("always") => When::Always,
        Some("on_failure") => When::OnFailure,
        Some(expression) => When::Expression(expression.to_owned()),
    }
}

/// An expression may look at inputs, the run and the steps that come before. A step that comes later has no state yet
/// that means anything.
fn check_when(
    doc: &Document,
    index: usize,
    (step, steps): (&StepSpec, &[StepSpec]),
    inputs: &BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    let When::Expression(expression) = &step.when else { return Ok(()) };
    let before = graph::before(steps, &step.key);
    let sample = ConditionValues::sample(inputs, before.iter().map(StepKey::as_str));
    check_condition(expression, &sample).map_err(|error| {
        let at = doc.at(&["steps".into(), index.into(), "when".into()]);
        let near = match &error {
            TemplateError::UnknownVariable { name, near, .. } => nearest(name, near.iter().map(String::as_str)),
            _ => None,
        };
        let words = if near.is_some() {
            ""
        } else {
            " (write always, on_failure, or an expression over inputs, run and steps.<key>.state of steps before)"
        };
        doc.error(at, format!("`when` {expression}: {error}{words}")).with_nearest(near).into()
    })
}
