//! How something is said: a command, or an HTTP request whose host and secrets nobody but the author of the file chooses.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::check::{env_name, join, refused, refused_key};
use super::super::error::ConfigError;
use super::super::fields::{TextOrList, unknown_word};
use super::raw::{RawChannel, RawHttp, RawSecret};
use crate::domain::action::contract::{Channel, Encoding, HttpCall, SecretValue};
use crate::domain::action::wording::{self, Saying};
use crate::domain::task::CommandLine;
use crate::domain::template::TemplateError;
use crate::yaml::{Document, Node, NodeKind, Seg, Style, nearest};

/// Headers that are the connection's own, or that agentrun sets.
const OURS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "expect",
    "upgrade",
    "te",
    "trailer",
    "x-request-id",
];

/// Headers whose value is a secret by its nature.
const SECRET: &[&str] = &["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];

/// A place of the file at which a channel stands.
pub(super) struct Place<'d> {
    pub(super) doc: &'d Document,
    pub(super) at: Vec<Seg<'d>>,
    pub(super) saying: Saying,
}

impl Place<'_> {
    /// Either of the two ways.
    pub(super) fn channel(&self, raw: RawChannel) -> Result<Channel, ConfigError> {
        match (raw.http, raw.run) {
            (Some(http), None) => {
                let place = Place { doc: self.doc, at: join(&self.at, "http"), saying: self.saying };
                place.http(http).map(|http| Channel::Http(Box::new(http)))
            }
            (None, Some(run)) => self.command(run).map(|run| Channel::Command { run }),
            (None, None) => Err(refused(self.doc, &self.at, "say how: `http: { url: … }` or `run: …`")),
            (Some(_), Some(_)) => Err(self.at_key("run", "either `http` or `run`, not both")),
        }
    }

    fn at_key(&self, key: &str, message: impl Into<String>) -> ConfigError {
        refused_key(self.doc, &join(&self.at, key), message)
    }

    fn command(&self, run: TextOrList) -> Result<CommandLine, ConfigError> {
        let empty = || refused(self.doc, &join(&self.at, "run"), "the command is empty");
        match run {
            TextOrList::Text(line) if line.trim().is_empty() => Err(empty()),
            TextOrList::Text(line) => Ok(CommandLine::Shell(line)),
            TextOrList::List(list) if list.first().is_none_or(std::string::String::is_empty) => Err(empty()),
            TextOrList::List(list) => Ok(CommandLine::List(list)),
        }
    }

    fn http(&self, raw: RawHttp) -> Result<HttpCall, ConfigError> {
        let method = self.method(&raw)?;
        self.url(&raw)?;
        self.headers(&raw)?;
        let (body, encoding) = match (&raw.body, raw.form) {
            (Some(_), Some(_)) => return Err(self.at_key("form", "either `body` or `form`, not both")),
            (None, None) => (None, Encoding::Json),
            (Some(_), None) => (Some(self.body()?), Encoding::Json),
            (None, Some(form)) => (Some(self.form(form)?), Encoding::Form),
        };
        if body.is_some() && method == "GET" {
            return Err(self.at_key(if encoding == Encoding::Form { "form" } else { "body" }, "a GET has no body"));
        }
        let secret = |raw: RawSecret| SecretValue { prefix: raw.prefix, env: raw.env };
        let secret_headers = raw.secret_headers.into_iter().map(|(name, raw)| (name, secret(raw))).collect();
        Ok(HttpCall { method, url: raw.url, headers: raw.headers, secret_headers, body, encoding, inside: raw.inside })
    }

    /// Asking changes nothing, so it is a GET; or a POST, where an interface is made so.
    fn method(&self, raw: &RawHttp) -> Result<String, ConfigError> {
        let (known, default): (&[&str], _) = match self.saying {
            Saying::Send => (&["GET", "POST", "PUT", "PATCH", "DELETE"], "POST"),
            Saying::Ask => (&["GET", "POST"], "GET"),
        };
        let method = raw.method.clone().unwrap_or_else(|| default.to_owned());
        if known.contains(&method.as_str()) {
            return Ok(method);
        }
        Err(refused(self.doc, &join(&self.at, "method"), unknown_word(&method, known.iter().copied())))
    }

    /// Scheme and host stand in the file as they are: no request and no agent can choose where it goes (F96).
    fn url(&self, raw: &RawHttp) -> Result<(), ConfigError> {
        let at = join(&self.at, "url");
        let refuse = |message: &str| Err(refused(self.doc, &at, message));
        let (plain, rest) = match (raw.url.strip_prefix("https://"), raw.url.strip_prefix("http://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return refuse("an address begins with https:// (or http://, inside)"),
        };
        let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        if host.contains(['{', '}', '%']) {
            return refuse("the host stands here as it is: a value may only come after it");
        }
        if host.contains('@') {
            return refuse("a login in an address is a secret in a file; name a variable in `secret_headers`");
        }
        let literal = raw.url.split("{{").next().unwrap_or_default();
        if host.is_empty() || host.parse::<http::uri::Authority>().is_err() || raw.url.contains('#') {
            return refuse("this is no address");
        }
        if literal.chars().any(|c| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
            return refuse("an address is visible ASCII; write other letters percent-encoded");
        }
        if plain && !raw.inside {
            return refuse(
                "http:// shows everything to whoever listens; use https://, or say `inside: true` of a host of yours",
            );
        }
        said(self.doc, &at, &raw.url, self.saying).map(drop)
    }

    fn headers(&self, raw: &RawHttp) -> Result<(), ConfigError> {
        let mut seen: Vec<String> = Vec::new();
        let own = raw.headers.keys().map(|name| ("headers", name));
        for (section, name) in own.chain(raw.secret_headers.keys().map(|name| ("secret_headers", name))) {
            let at = join(&join(&self.at, section), name.as_str());
            let lower = name.to_ascii_lowercase();
            let message = if let Err(message) = own_header(name) {
                message
            } else if section == "headers" && SECRET.contains(&lower.as_str()) {
                format!("`{name}` holds a secret: name its variable in `secret_headers`")
            } else if seen.contains(&lower) {
                format!("the header `{name}` stands here twice")
            } else {
                seen.push(lower);
                continue;
            };
            return Err(refused_key(self.doc, &at, message));
        }
        for (name, template) in &raw.headers {
            said(self.doc, &join(&join(&self.at, "headers"), name.as_str()), template, self.saying)?;
        }
        for (name, secret) in &raw.secret_headers {
            let at = join(&join(&join(&self.at, "secret_headers"), name.as_str()), "env");
            env_name(&secret.env).map_err(|message| refused(self.doc, &at, message))?;
        }
        Ok(())
    }

    fn body(&self) -> Result<Value, ConfigError> {
        let at = join(&self.at, "body");
        let Some(node) = self.doc.find(&at) else { return Ok(Value::Null) };
        self.json(node)
    }

    /// As JSON; plain numbers are numbers here, for the other side reads them.
    fn json(&self, node: &Node) -> Result<Value, ConfigError> {
        match &node.kind {
            NodeKind::Scalar(text, Style::Plain) => match text.as_str() {
                "true" => Ok(true.into()),
                "false" => Ok(false.into()),
                _ => match serde_json::from_str::<serde_json::Number>(text) {
                    Ok(number) if number.to_string() == *text => Ok(Value::Number(number)),
                    _ => self.text(node, text),
                },
            },
            NodeKind::Scalar(text, Style::Quoted) => self.text(node, text),
            NodeKind::List(items) => items.iter().map(|item| self.json(item)).collect(),
            NodeKind::Map(entries) => {
                entries.iter().map(|entry| Ok((entry.key.clone(), self.json(&entry.value)?))).collect()
            }
        }
    }

    fn text(&self, node: &Node, text: &str) -> Result<Value, ConfigError> {
        match wording::check(text, self.saying) {
            Ok(_) => Ok(text.into()),
            Err(error) => Err(misworded(self.doc, node, &error)),
        }
    }

    fn form(&self, form: BTreeMap<String, String>) -> Result<Value, ConfigError> {
        for (name, template) in &form {
            said(self.doc, &join(&join(&self.at, "form"), name.as_str()), template, self.saying)?;
        }
        Ok(form.into_iter().map(|(name, template)| (name, Value::String(template))).collect())
    }
}

/// A header that a contract may set.
pub(super) fn own_header(name: &str) -> Result<(), String> {
    if http::HeaderName::try_from(name).is_err() {
        return Err(format!("`{name}` is no name of a header"));
    }
    if OURS.contains(&name.to_ascii_lowercase().as_str()) {
        Err(format!("`{name}` is set by agentrun itself"))
    } else {
        Ok(())
    }
}

/// A template at a place: it can be read and names only what there is.
pub(super) fn said(doc: &Document, at: &[Seg<'_>], template: &str, saying: Saying) -> Result<Vec<String>, ConfigError> {
    wording::check(template, saying).map_err(|error| match doc.find(at) {
        Some(node) => misworded(doc, node, &error),
        None => refused(doc, at, error.to_string()),
    })
}

fn misworded(doc: &Document, node: &Node, error: &TemplateError) -> ConfigError {
    let near = match error {
        TemplateError::UnknownVariable { name, .. } => {
            let first = name.split('.').next().unwrap_or_default();
            nearest(first, wording::NAMES.iter().copied())
        }
        _ => None,
    };
    doc.error(node.position.clone(), error.to_string()).with_nearest(near).into()
}

/// A JSON pointer, or nothing.
pub(super) fn pointer(doc: &Document, at: &[Seg<'_>], found: Option<String>) -> Result<Option<String>, ConfigError> {
    match found {
        Some(text) if !text.is_empty() && !text.starts_with('/') => {
            Err(refused(doc, at, format!("`{text}` is no JSON pointer such as /data/id")))
        }
        found => Ok(found),
    }
}

/// Whether a request carries the idempotency key in its address, headers or body.
pub(super) fn names_key(http: &HttpCall) -> bool {
    fn texts<'v>(value: &'v Value, out: &mut Vec<&'v str>) {
        match value {
            Value::String(text) => out.push(text),
            Value::Array(items) => items.iter().for_each(|item| texts(item, out)),
            Value::Object(fields) => fields.values().for_each(|item| texts(item, out)),
            _ => {}
        }
    }
    let mut said: Vec<&str> = vec![&http.url];
    said.extend(http.headers.values().map(String::as_str));
    if let Some(body) = &http.body {
        texts(body, &mut said);
    }
    said.iter().any(|text| wording::check(text, Saying::Ask).is_ok_and(|names| names.iter().any(|name| name == "key")))
}
