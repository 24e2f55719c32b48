//! The steps that reach the outside, one by one: what is written to [`StepBody`]. What needs the other steps (which release,
//! which names a template may use) is checked in `templates`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::check::{inner_path, join, plain_name, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::{TextOrList, unknown_word};
use super::TaskContext;
use super::raw::{RawStep, RawVerify};
use super::steps::command;
use crate::domain::delivery::{ActionSpec, DeploySpec, EnvironmentState, VerifySpec};
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::policy::{ActionType, ApprovalTerms};
use crate::domain::task::{CommandLine, StepBody, StepKind, StepSpec, When};
use crate::yaml::{Document, Node, NodeKind, Seg, Style, nearest};

/// What identifies an intent where the task does not say: the engine fills these in from task, step and release.
const FILLED_IN: [&str; 2] = ["event", "document"];

/// The body of a step that reaches the outside.
pub(super) fn body(
    doc: &Document,
    at: &[Seg<'_>],
    (kind, raw): (StepKind, RawStep),
    context: &TaskContext<'_>,
) -> Result<StepBody, ConfigError> {
    let needed: &[&str] = match kind {
        StepKind::Release => &["release"],
        StepKind::Deploy => &["environment", "run"],
        StepKind::Action => &["type", "target"],
        StepKind::Approval => &["ask"],
        _ => &[],
    };
    let missing = needed.iter().filter(|key| doc.find(&join(at, **key)).is_none()).map(|key| format!("`{key}`"));
    let missing = missing.collect::<Vec<_>>().join(" and ");
    if !missing.is_empty() {
        return Err(refused(doc, at, format!("a step of kind {kind} needs {missing}")));
    }
    match kind {
        StepKind::Release => {
            let release = text(doc, at, "release", raw.release)?.unwrap_or_default();
            Ok(StepBody::Release { release })
        }
        StepKind::Deploy => deploy(doc, at, raw, context),
        StepKind::Verify => {
            let of = raw.of.map(StepKey::recorded);
            let spec = verify(doc, at, RawVerify { health: raw.health, smoke: raw.smoke })?;
            Ok(StepBody::Verify(VerifySpec { of, ..spec }))
        }
        StepKind::Action => action(doc, at, raw, context),
        _ => approval(doc, at, raw, context),
    }
}

fn deploy(doc: &Document, at: &[Seg<'_>], raw: RawStep, context: &TaskContext<'_>) -> Result<StepBody, ConfigError> {
    let environment = raw.environment.unwrap_or_default();
    plain_name(&environment).map_err(|message| refused(doc, &join(at, "environment"), message))?;
    if raw.rollback && raw.release.is_none() {
        return Err(refused(doc, &join(at, "rollback"), "a rollback needs `release`: the one that comes back"));
    }
    let run = optional_command(doc, at, ("run", raw.run))?.unwrap_or_else(|| CommandLine::Shell(String::new()));
    Ok(StepBody::Deploy(DeploySpec {
        environment,
        run,
        status: optional_command(doc, at, ("status", raw.status))?,
        release: text(doc, at, "release", raw.release)?,
        environment_state: environment_state(doc, &join(at, "environment_state"), raw.environment_state)?,
        contract: contract(doc, at, raw.contract, context)?,
        instance: plain(doc, at, "instance", raw.instance)?,
        irreversible: raw.irreversible,
        rollback: raw.rollback,
    }))
}

/// The step that looks whether a deployment is good. It has the deployment's clock and environment, and it runs when the
/// deployment took place, whatever else happened.
pub(super) fn verification(
    doc: &Document,
    at: &[Seg<'_>],
    deploy: &StepSpec,
    raw: RawVerify,
) -> Result<StepSpec, ConfigError> {
    let key = StepKey::new(&format!("{}_verify", deploy.key)).map_err(|e| refused(doc, at, e.to_string()))?;
    let spec = verify(doc, at, raw)?;
    // Where the condition says no, the deployment is skipped, and that decides.
    let when = match &deploy.when {
        When::Expression(_) => When::NeedsSucceeded,
        same => same.clone(),
    };
    Ok(StepSpec {
        key,
        needs: Vec::new(),
        explicit_needs: false,
        timeout: deploy.timeout,
        when,
        artifacts: Vec::new(),
        env: deploy.env.clone(),
        body: StepBody::Verify(VerifySpec { of: Some(deploy.key.clone()), ..spec }),
    })
}

fn verify(doc: &Document, at: &[Seg<'_>], raw: RawVerify) -> Result<VerifySpec, ConfigError> {
    if raw.health.is_none() && raw.smoke.is_none() {
        return Err(refused(doc, at, "to verify needs `health` or `smoke`"));
    }
    if let Some(address) = &raw.health {
        check_address(address).map_err(|message| refused(doc, &join(at, "health"), message))?;
    }
    Ok(VerifySpec { of: None, health: raw.health, smoke: optional_command(doc, at, ("smoke", raw.smoke))? })
}

fn check_address(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let has_host = rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '['));
    let is_plain = !text.contains(|c: char| c.is_whitespace() || c.is_control()) && !text.contains("{{");
    if has_host && is_plain {
        return Ok(());
    }
    Err(format!("`{}` is no address: write one such as http://127.0.0.1:8080/health", text.escape_debug()))
}

fn environment_state(
    doc: &Document,
    at: &[Seg<'_>],
    raw: Vec<TextOrList>,
) -> Result<Vec<EnvironmentState>, ConfigError> {
    let one = |(i, part)| match part {
        TextOrList::Text(path) => {
            let path = inner_path(&path).map_err(|message| refused(doc, &join(at, i), message))?;
            Ok(EnvironmentState::File(path))
        }
        list @ TextOrList::List(_) => Ok(EnvironmentState::Command(command(doc, &join(at, i), list)?)),
    };
    raw.into_iter().enumerate().map(one).collect()
}

fn action(doc: &Document, at: &[Seg<'_>], raw: RawStep, context: &TaskContext<'_>) -> Result<StepBody, ConfigError> {
    let kind = action_type(&raw.r#type.unwrap_or_default()).map_err(|m| refused(doc, &join(at, "type"), m))?;
    if raw.contract.is_none() && raw.run.is_none() {
        return Err(refused(
            doc,
            at,
            "an action needs `contract`, which says how it is sent, or `run`, which sends it",
        ));
    }
    let input_at = join(at, "input");
    let input = match doc.find(&input_at) {
        None => Value::Object(serde_json::Map::new()),
        Some(node) if matches!(node.kind, NodeKind::Map(_)) => value(node),
        Some(_) => return Err(refused(doc, &input_at, "`input` must have keys, such as `text: …`")),
    };
    let subject = subject(doc, at, (kind, &input), raw.subject)?;
    Ok(StepBody::Action(ActionSpec {
        action: kind,
        target: text(doc, at, "target", raw.target)?.unwrap_or_default(),
        account: plain(doc, at, "account", raw.account)?,
        input,
        subject,
        contract: contract(doc, at, raw.contract, context)?,
        instance: plain(doc, at, "instance", raw.instance)?,
        irreversible: raw.irreversible,
        run: optional_command(doc, at, ("run", raw.run))?,
        status: optional_command(doc, at, ("status", raw.status))?,
    }))
}

fn action_type(word: &str) -> Result<ActionType, String> {
    match ActionType::from_word(word) {
        Some(ActionType::Deploy) => Err("a deployment is a step of its own: `kind: deploy`".to_owned()),
        Some(ActionType::Rollback) => {
            Err("a rollback is a step of its own: `kind: deploy` with `rollback: true`".to_owned())
        }
        Some(kind) => Ok(kind),
        None => {
            let own = |kind: &&ActionType| !matches!(kind, ActionType::Deploy | ActionType::Rollback);
            Err(format!("type {}", unknown_word(word, ActionType::ALL.iter().filter(own).map(|k| k.word()))))
        }
    }
}

/// A value as it is sent. Whole numbers are numbers; one with a point stays the text that it is, for `0.10` must never
/// become a float.
fn value(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Scalar(text, Style::Plain) if text == "true" || text == "false" => Value::Bool(text == "true"),
        NodeKind::Scalar(text, Style::Plain) => match text.parse::<i64>() {
            Ok(number) if number.to_string() == *text => Value::from(number),
            _ => Value::from(text.as_str()),
        },
        NodeKind::Scalar(text, _) => Value::from(text.as_str()),
        NodeKind::List(items) => items.iter().map(value).collect(),
        NodeKind::Map(entries) => entries.iter().map(|e| (e.key.clone(), value(&e.value))).collect(),
    }
}

/// What identifies the intent (R-A2): each part from `input` by its name, else from `subject`.
fn subject(
    doc: &Document,
    at: &[Seg<'_>],
    (kind, input): (ActionType, &Value),
    mut written: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let subject_at = join(at, "subject");
    let names = kind.identity();
    for name in written.keys() {
        let at = join(&subject_at, name.as_str());
        if !names.contains(&name.as_str()) {
            let message =
                format!("`{name}` does not identify an action of type {kind}; what does is {}", names.join(", "));
            let error = doc.error(doc.key_at(&at), message);
            return Err(error.with_nearest(nearest(name, names.iter().copied())).into());
        }
        if input.get(name).is_some() {
            return Err(refused_key(doc, &at, format!("`{name}` stands in `input` already")));
        }
    }
    let mut found = BTreeMap::new();
    for name in names {
        let input_at = || join(&join(at, "input"), *name);
        let part = match input.get(*name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(whole @ (Value::Number(_) | Value::Bool(_))) => Some(whole.to_string()),
            Some(_) => {
                return Err(refused(
                    doc,
                    &input_at(),
                    format!("`{name}` identifies the action: it must be a single value"),
                ));
            }
            None => written.remove(*name),
        };
        match part {
            Some(text) if text.trim().is_empty() => {
                return Err(refused(doc, at, format!("`{name}` identifies the action: it must not be empty")));
            }
            Some(text) => drop(found.insert((*name).to_owned(), text)),
            None if FILLED_IN.contains(name) => {}
            None => {
                let message =
                    format!("an action of type {kind} is identified by `{name}`: put it into `input` or `subject`");
                return Err(refused(doc, at, message));
            }
        }
    }
    Ok(found)
}

fn approval(doc: &Document, at: &[Seg<'_>], raw: RawStep, context: &TaskContext<'_>) -> Result<StepBody, ConfigError> {
    let people = context.policy.policy.people.as_ref();
    let known: Vec<&str> = people
        .into_iter()
        .flatten()
        .flat_map(|(name, person)| std::iter::once(name).chain(&person.groups).map(String::as_str))
        .collect();
    for (i, name) in raw.approvers.iter().enumerate() {
        let at = join(&join(at, "approvers"), i);
        if name.trim().is_empty() {
            return Err(refused(doc, &at, "an approver needs a name"));
        }
        // Without a `people` section there is nobody to compare with.
        if people.is_some() && !known.contains(&name.as_str()) {
            let message = format!("`{name}` is neither a person nor a group of the policy's `people`");
            return Err(doc.error(doc.at(&at), message).with_nearest(nearest(name, known.iter().copied())).into());
        }
    }
    let terms = ApprovalTerms { expires: raw.expires.map(|f| f.0), approvers: raw.approvers };
    Ok(StepBody::Approval { ask: text(doc, at, "ask", raw.ask)?.unwrap_or_default(), terms })
}

fn optional_command(
    doc: &Document,
    at: &[Seg<'_>],
    (key, raw): (&'static str, Option<TextOrList>),
) -> Result<Option<CommandLine>, ConfigError> {
    raw.map(|raw| command(doc, &join(at, key), raw)).transpose()
}

/// A text that says something.
fn text(
    doc: &Document,
    at: &[Seg<'_>],
    key: &'static str,
    text: Option<String>,
) -> Result<Option<String>, ConfigError> {
    match text {
        Some(text) if text.trim().is_empty() || text.contains('\0') => {
            Err(refused(doc, &join(at, key), format!("`{key}` is empty")))
        }
        text => Ok(text),
    }
}

/// A text that is taken as it is: one that looks like a template would never change, though its author thinks it does.
fn plain(
    doc: &Document,
    at: &[Seg<'_>],
    key: &'static str,
    found: Option<String>,
) -> Result<Option<String>, ConfigError> {
    let found = text(doc, at, key, found)?;
    if found.as_ref().is_some_and(|text| text.contains("{{") || text.contains(char::is_control)) {
        return Err(refused(doc, &join(at, key), format!("`{key}` is taken as it is written: no `{{{{ … }}}}` in it")));
    }
    Ok(found)
}

fn contract(
    doc: &Document,
    at: &[Seg<'_>],
    name: Option<String>,
    context: &TaskContext<'_>,
) -> Result<Option<String>, ConfigError> {
    let Some(name) = name else { return Ok(None) };
    let at = join(at, "contract");
    plain_name(&name).map_err(|message| refused(doc, &at, message))?;
    match context.contracts {
        Some(known) if !known.contains(&name) => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let message = if known.is_empty() {
                format!("there is no contract `{name}`: none stands in policies/contracts/")
            } else {
                format!("contract {}", unknown_word(&name, known.into_iter()))
            };
            Err(refused(doc, &at, message))
        }
        _ => Ok(Some(name)),
    }
}
