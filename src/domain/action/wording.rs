//! A request in the words of a contract: addresses, headers and bodies are templates over a few named values, checked when the
//! file is read and rendered the same at every send. A value can fill a place; it can never make one: it is percent-encoded in
//! an address, refused with a line break in a header, and one JSON value in a body.

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde::Serialize;
use serde_json::Value as Json;

use super::request::ActionRequest;
use crate::domain::template::{self, TemplateError};

/// What a template of a contract can name. `input` and `subject` have whatever fields the request has.
pub const NAMES: &[&str] =
    &["type", "target", "account", "environment", "instance", "subject", "input", "key", "operation", "reference"];

/// Names below which everything is known only once there is a request.
const OPEN: &[&str] = &["subject", "input"];

/// The values of one request.
#[derive(Debug, Clone, Serialize)]
pub struct Wording<'a> {
    /// The request.
    #[serde(flatten)]
    pub request: &'a ActionRequest,
    /// The idempotency key.
    pub key: &'a str,
    /// The operation id.
    pub operation: &'a str,
    /// The other side's name of it, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<&'a str>,
}

/// Which of the names a template may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saying {
    /// To send: nobody has a reference yet.
    Send,
    /// To ask.
    Ask,
}

/// Checks a template: it can be read and names only what there is. Gives the names that it uses, with dots.
pub fn check(template: &str, saying: Saying) -> Result<Vec<String>, TemplateError> {
    let environment = environment();
    let parsed = environment.template_from_str(template).map_err(|e| template::broken(&e))?;
    let used = parsed.undeclared_variables(true);
    let open =
        |name: &String| OPEN.iter().any(|open| name.strip_prefix(open).is_some_and(|rest| rest.starts_with('.')));
    let known: Vec<String> = NAMES
        .iter()
        .filter(|name| saying == Saying::Ask || **name != "reference")
        .map(|name| (*name).to_owned())
        .chain(used.iter().filter(|name| open(name)).cloned())
        .collect();
    let mut names: Vec<String> = used.iter().cloned().collect();
    template::refuse_unknown(template, &known, used)?;
    names.sort();
    // A filter that there is not shows itself only when it is used; what values do to it is not asked here.
    match parsed.render(Serde(sample(&names))) {
        Err(e)
            if matches!(e.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction) =>
        {
            Err(template::broken(&e))
        }
        _ => Ok(names),
    }
}

/// A value for each name, with dots.
fn sample(names: &[String]) -> Json {
    let mut root = Json::Object(serde_json::Map::new());
    for name in names {
        let mut at = &mut root;
        for part in name.split('.') {
            if !at.is_object() {
                *at = Json::Object(serde_json::Map::new());
            }
            at = &mut at[part];
        }
        if at.is_null() {
            *at = "x".into();
        }
    }
    root
}

/// A text as it is: of a form, or to compare with.
pub fn text(template: &str, values: &Wording<'_>) -> Result<String, TemplateError> {
    environment().render_str(template, Serde(values)).map_err(|e| template::broken(&e))
}

/// An address: each value is percent-encoded whole, so that it stays in its place. `{{ target | path }}` keeps the slashes of
/// a value that is a path.
pub fn url(template: &str, values: &Wording<'_>) -> Result<String, TemplateError> {
    let mut environment = environment();
    environment.set_formatter(|out, _, value| {
        let text = value.to_string();
        let text = if value.is_safe() { text } else { percent_encoded(&text) };
        out.write_str(&text).map_err(Into::into)
    });
    let url = environment.render_str(template, Serde(values)).map_err(|e| template::broken(&e))?;
    let path = url.split(['?', '#']).next().unwrap_or_default();
    match path.split('/').find(|segment| matches!(*segment, "." | "..")) {
        Some(segment) => Err(plain_error(format!("a value makes `{segment}` a part of the address"))),
        None => Ok(url),
    }
}

/// A header's value: visible ASCII, blanks and nothing else.
pub fn header(template: &str, values: &Wording<'_>) -> Result<String, TemplateError> {
    let value = text(template, values)?;
    if value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        Ok(value)
    } else {
        Err(plain_error("a header's value must be visible ASCII in one line".to_owned()))
    }
}

/// A body: texts are templates. One that is nothing but `{{ … }}` becomes the value itself: a number stays a number.
pub fn body(body: &Json, values: &Wording<'_>) -> Result<Json, TemplateError> {
    match body {
        Json::String(template) => match sole_expression(template) {
            Some(expression) => value(expression, values),
            None => text(template, values).map(Json::String),
        },
        Json::Array(items) => items.iter().map(|item| self::body(item, values)).collect(),
        Json::Object(fields) => {
            fields.iter().map(|(name, item)| Ok((name.clone(), self::body(item, values)?))).collect()
        }
        _ => Ok(body.clone()),
    }
}

/// The value of an expression.
fn value(expression: &str, values: &Wording<'_>) -> Result<Json, TemplateError> {
    let environment = environment();
    let compiled = environment.compile_expression(expression).map_err(|e| template::broken(&e))?;
    let value = compiled.eval(Serde(values)).map_err(|e| template::broken(&e))?;
    if value.is_undefined() {
        return Err(plain_error(format!("undefined value: `{expression}`")));
    }
    serde_json::to_value(&value).map_err(|e| plain_error(e.to_string()))
}

/// `input.amount` of `{{ input.amount }}`.
fn sole_expression(template: &str) -> Option<&str> {
    let inner = template.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then(|| inner.trim_matches(['-', ' ']))
}

fn plain_error(message: String) -> TemplateError {
    TemplateError::Broken { line: 1, message }
}

/// As for prompts, with `path` and without `safe`, by which a value could get out of its place.
fn environment() -> Environment<'static> {
    let mut environment = template::environment();
    environment.remove_filter("safe");
    environment.add_filter("path", |value: String| {
        Value::from_safe_string(value.split('/').map(percent_encoded).collect::<Vec<_>>().join("/"))
    });
    environment
}

/// Every byte but letters, digits and `-._~`.
pub fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::action::contract::Environment;
    use crate::domain::policy::ActionType;

    fn request(input: Json) -> ActionRequest {
        ActionRequest {
            kind: ActionType::Generic,
            target: "acme/shop".to_owned(),
            account: None,
            environment: Environment::Test,
            contract: None,
            instance: None,
            irreversible: false,
            subject: BTreeMap::from([("document".to_owned(), "order-7".to_owned())]),
            input,
        }
    }

    fn with<T>(input: Json, act: impl FnOnce(&Wording<'_>) -> T) -> T {
        act(&Wording { request: &request(input), key: "k:1", operation: "op", reference: None })
    }

    #[test]
    fn a_value_stays_in_its_place_of_an_address() {
        let input = serde_json::json!({ "q": "a b&c=d#/..", "n": 7 });
        let url = |template: &str| with(input.clone(), |values| url(template, values));
        assert_eq!(
            url("https://h/x?q={{ input.q }}&n={{ input.n }}").unwrap(),
            "https://h/x?q=a%20b%26c%3Dd%23%2F..&n=7"
        );
        assert_eq!(url("https://h/{{ target }}/{{ target | path }}").unwrap(), "https://h/acme%2Fshop/acme/shop");
        assert!(url("https://h/{{ input.q | safe }}").is_err());
        assert!(url("https://h/{{ input.gone }}").is_err());
        assert!(url("https://h/{{ reference }}").is_err());
        let up = serde_json::json!({ "up": "..", "far": "a/../b" });
        for template in ["https://h/{{ input.up }}/x", "https://h/{{ input.far | path }}"] {
            assert!(with(up.clone(), |values| super::url(template, values)).is_err(), "{template}");
        }
    }

    #[test]
    fn a_value_cannot_make_a_header() {
        let input = serde_json::json!({ "good": "x y", "bad": "x\r\nHost: y" });
        with(input, |values| {
            assert_eq!(header("v={{ input.good }}", values).unwrap(), "v=x y");
            assert!(header("v={{ input.bad }}", values).is_err());
        });
    }

    #[test]
    fn a_body_keeps_what_a_value_is() {
        let input = serde_json::json!({ "amount": 500, "text": "\",\"admin\":true", "list": [1, { "a": null }] });
        let template = serde_json::json!({
            "amount": "{{ input.amount }}", "note": "n: {{ input.text }}", "all": ["{{ input.list }}"], "live": false,
        });
        let rendered = with(input, |values| body(&template, values)).unwrap();
        let wanted = serde_json::json!({
            "amount": 500, "note": "n: \",\"admin\":true", "all": [[1, { "a": null }]], "live": false,
        });
        assert_eq!(rendered, wanted);
        assert!(with(Json::Null, |values| body(&serde_json::json!({ "a": "{{ input.gone }}" }), values)).is_err());
    }

    #[test]
    fn unknown_names_are_refused_when_the_file_is_read() {
        assert_eq!(check("{{ key }} {{ input.a.b }}", Saying::Send).unwrap(), ["input.a.b", "key"]);
        assert!(check("{{ reference }}", Saying::Ask).is_ok());
        for bad in ["{{ reference }}", "{{ inptu.a }}", "{{ env.TOKEN }}", "{{ key", "{{ 1 | nofilter }}"] {
            assert!(check(bad, Saying::Send).is_err(), "{bad}");
        }
    }
}
