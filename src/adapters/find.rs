//! Which object of an answer is ours, and where it stands. Finding nothing is told only where the whole list was seen.

use serde_json::Value;

use super::verdict::{shown, unclear};
use crate::domain::action::Reading;
use crate::domain::action::contract::{Find, Meaning};
use crate::domain::action::wording::{self, Wording};

/// The answer to a question.
pub(super) struct Found<'a> {
    /// The answer.
    pub(super) answer: &'a Value,
    /// Whether its headers say that it goes on elsewhere.
    pub(super) goes_on: bool,
    /// Where in an object its reference stands.
    pub(super) reference: Option<&'a str>,
}

/// Reads it.
pub(super) fn read(found: &Found<'_>, find: &Find, values: &Wording<'_>) -> Reading {
    let tests = match Tests::of(find, values) {
        Ok(tests) => tests,
        Err(message) => return unclear(message),
    };
    let objects: Vec<&Value> = match found.answer.pointer(&find.list) {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(object @ Value::Object(_)) if find.list.is_empty() => vec![object],
        _ => return unclear(format!("the answer has no list at `{}`", find.list)),
    };
    let ours: Vec<&Value> = objects.into_iter().filter(|object| tests.fit(object)).collect();
    let goes_on =
        || found.goes_on || find.more.as_ref().and_then(|at| found.answer.pointer(at)) == Some(&Value::Bool(true));
    match ours.as_slice() {
        [] if goes_on() => unclear("it is not among the first objects of a list that goes on"),
        [] => Reading::NotFound,
        [one] => state(one, find, found.reference),
        several => Reading::Several { matches: several.len() as u64 },
    }
}

/// What an object must have to be ours: pointer and text.
struct Tests {
    equals: Vec<(String, String)>,
    contains: Vec<(String, String)>,
}

impl Tests {
    fn of(find: &Find, values: &Wording<'_>) -> Result<Self, String> {
        let rendered = |fields: &std::collections::BTreeMap<String, String>| {
            let render = |(at, template): (&String, &String)| match wording::text(template, values) {
                // Everything contains nothing.
                Ok(text) if text.is_empty() => Err(format!("what `{at}` is compared with is empty")),
                Ok(text) => Ok((at.clone(), text)),
                Err(e) => Err(format!("what `{at}` is compared with: {e}")),
            };
            fields.iter().map(render).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { equals: rendered(&find.equals)?, contains: rendered(&find.contains)? })
    }

    fn fit(&self, object: &Value) -> bool {
        let equal = |(at, text): &(String, String)| object.pointer(at).and_then(plain).as_ref() == Some(text);
        let contain = |(at, text): &(String, String)| match object.pointer(at) {
            Some(Value::Array(items)) => items.iter().any(|item| plain(item).as_ref() == Some(text)),
            Some(value) => plain(value).is_some_and(|found| found.contains(text)),
            None => false,
        };
        self.equals.iter().all(equal) && self.contains.iter().all(contain)
    }
}

fn state(object: &Value, find: &Find, reference: Option<&str>) -> Reading {
    let reference = reference.and_then(|at| object.pointer(at)).and_then(plain).map(|text| shown(&text));
    let Some((at, words)) = &find.state else { return Reading::Succeeded { reference } };
    let word = object.pointer(at).and_then(plain);
    match word.as_ref().and_then(|word| words.get(word)) {
        Some(Meaning::Succeeded | Meaning::AlreadyDone) => Reading::Succeeded { reference },
        Some(Meaning::InProgress | Meaning::SameKeyInProgress) => Reading::InProgress { reference },
        Some(Meaning::Refused) => {
            Reading::Failed { message: format!("its state is {}", shown(&word.unwrap_or_default())) }
        }
        _ => match word {
            Some(word) => unclear(format!("the contract does not say what the state `{}` means", shown(&word))),
            None => unclear(format!("it has no state at `{at}`")),
        },
    }
}

/// A text, number or truth value as text.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}
