//! What somebody wants done outside, in its normal form, and the key under which it is the same for ever: made from what it
//! is about, never from who asks, when, or in which words (R-A2, R-A5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contract::Environment;
use crate::domain::hash::encoding::{Encoder, Sha256Hash};
use crate::domain::policy::ActionType;
use crate::domain::policy::decide::Asked;

/// The version of the normal form. A record keeps the version under which its hash was made: a later one never turns an
/// equal request into a conflict (R-A5).
pub const NORMAL_VERSION: u32 = 1;

/// The longest key that is sent as it reads; a longer one is sent as its hash. Providers cut at 255.
const LONGEST_KEY: usize = 200;

/// One side effect, as it is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRequest {
    /// The type.
    #[serde(rename = "type")]
    pub kind: ActionType,
    /// What it reaches: an environment, a channel, a repository, an address.
    pub target: String,
    /// On whose account.
    pub account: Option<String>,
    /// Whether it is a real one.
    pub environment: Environment,
    /// The contract under which it is sent.
    pub contract: Option<String>,
    /// Tells two equal ones apart that are both meant (R-A4).
    pub instance: Option<String>,
    /// True when it cannot be undone: never tried again by itself (R-A13).
    pub irreversible: bool,
    /// What identifies the intent, by the names that the type's template wants ([`ActionType::identity`]).
    pub subject: BTreeMap<String, String>,
    /// The arguments: an object.
    pub input: Value,
}

/// What a request lacks to have a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an action of type {kind} is identified by `{field}`, which the request does not have")]
pub struct NoIdentity {
    /// The type.
    pub kind: ActionType,
    /// What is missing.
    pub field: &'static str,
}

impl ActionType {
    /// What identifies an action of this type beside tenant, target, account and environment.
    pub fn identity(self) -> &'static [&'static str] {
        match self {
            Self::Deploy | Self::Rollback => &["release"],
            Self::Notification | Self::Webhook => &["event"],
            Self::Export => &["document"],
            Self::PullRequest => &["head", "base"],
            Self::Migration => &["version"],
            Self::FeatureFlag => &["flag", "value"],
            Self::Generic => &["document"],
        }
    }

    /// The key's template, for people.
    pub fn key_template(self) -> String {
        let fields: Vec<String> = self.identity().iter().map(|field| format!("{{{field}}}")).collect();
        format!("{self}:{{tenant}}:{{environment}}:{{account}}:{{target}}:{}", fields.join(":"))
    }
}

impl ActionRequest {
    /// The idempotency key: the same over runs, attempts and conversations.
    pub fn key(&self, tenant: &str) -> Result<String, NoIdentity> {
        let account = self.account.as_deref().unwrap_or("-");
        let mut parts = vec![self.kind.to_string(), tenant.to_owned(), self.environment.to_string()];
        parts.extend([account.to_owned(), self.target.clone()]);
        for &field in self.kind.identity() {
            let value = self.subject.get(field).ok_or(NoIdentity { kind: self.kind, field })?;
            parts.push(value.clone());
        }
        let mut key = parts.iter().map(|part| escaped(part)).collect::<Vec<_>>().join(":");
        if let Some(instance) = &self.instance {
            key = format!("{key}#{}", escaped(instance));
        }
        if key.len() <= LONGEST_KEY {
            return Ok(key);
        }
        Ok(format!("{}:{}", self.kind, Sha256Hash::of(key.as_bytes()).hex()))
    }

    /// The normal form: sorted names, no blanks, numbers written in one way. Free text stays as it is.
    pub fn normal_form(&self) -> String {
        let subject: Vec<_> =
            self.subject.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
        let subject: serde_json::Map<String, Value> = subject.into_iter().collect();
        serde_json::json!({
            "type": self.kind, "target": self.target, "account": self.account, "environment": self.environment,
            "instance": self.instance, "irreversible": self.irreversible, "subject": subject, "input": normal(&self.input),
        })
        .to_string()
    }

    /// What the rules of the policy see of it: its arguments by name (texts, numbers, true and false), and what it reaches. What
    /// identifies it and where it goes is never hidden by an argument of the same name.
    pub fn asked(&self) -> Asked {
        let is_plain = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        let input = self.input.as_object().into_iter().flatten().filter(|(_, value)| is_plain(value));
        let mut values: BTreeMap<String, Value> = input.map(|(name, value)| (name.clone(), value.clone())).collect();
        values.extend(self.subject.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
        let is_deployment = matches!(self.kind, ActionType::Deploy | ActionType::Rollback);
        let environment = if is_deployment { self.target.clone() } else { self.environment.to_string() };
        values.insert("environment".to_owned(), Value::from(environment));
        values.insert("target".to_owned(), Value::from(self.target.as_str()));
        values.insert("live".to_owned(), Value::from(self.environment == Environment::Live));
        values.insert("irreversible".to_owned(), Value::from(self.irreversible));
        if let Some(account) = &self.account {
            values.insert("account".to_owned(), Value::from(account.as_str()));
        }
        Asked { action: self.kind.to_string(), values }
    }

    /// What is compared when a key comes again (R-A3).
    pub fn hash(&self) -> Sha256Hash {
        let mut encoder = Encoder::new("agentrun-action/1");
        encoder.field("request", Some(&self.normal_form()));
        encoder.finish()
    }
}

/// Numbers in one form: `1.0`, `1e0` and `1` are one.
fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15);
            whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()).map_or_else(|| value.clone(), Value::from)
        }
        Value::Array(items) => items.iter().map(normal).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        _ => value.clone(),
    }
}

/// A part of a key cannot end it early, or look like two.
fn escaped(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.trim().bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b'@') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input: Value) -> ActionRequest {
        ActionRequest {
            kind: ActionType::Generic,
            target: "shop".to_owned(),
            account: Some("main".to_owned()),
            environment: Environment::Test,
            contract: None,
            instance: None,
            irreversible: false,
            subject: BTreeMap::from([("document".to_owned(), "order-7".to_owned())]),
            input,
        }
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn r_a2_the_key_is_made_of_what_it_is_about_and_of_no_free_text() {
        let one = request(parsed(r#"{ "text": "please" }"#));
        let other = request(parsed(r#"{ "text": "now, at once" }"#));
        assert_eq!(one.key("local").unwrap(), "generic:local:test:main:shop:order-7");
        assert_eq!(one.key("local"), other.key("local"));
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn r_a4_two_equal_ones_that_are_meant_have_two_keys() {
        let one = request(parsed("{}"));
        let other = ActionRequest { instance: Some("2".to_owned()), ..one.clone() };
        assert_eq!(other.key("local").unwrap(), "generic:local:test:main:shop:order-7#2");
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn r_a5_order_blanks_and_number_formats_make_no_difference() {
        let one = request(parsed(r#"{"a":1,"b":{"x":[1.0,2],"y":"t"}}"#));
        let other = request(parsed(r#"{ "b" : {"y":"t", "x":[1, 2e0]}, "a": 1.00 }"#));
        assert_eq!(one.hash(), other.hash());
        for different in [r#"{"a":1}"#, r#"{"a":1,"b":{"x":[2,1],"y":"t"}}"#, r#"{"a":"1","b":{"x":[1,2],"y":"t"}}"#] {
            assert_ne!(one.hash(), request(parsed(different)).hash(), "{different}");
        }
    }

    #[test]
    fn r_p2_no_argument_hides_where_it_goes() {
        let asked = request(parsed(r#"{"amount":12,"target":"elsewhere","live":false,"nested":{"a":1}}"#)).asked();
        assert_eq!(asked.values["amount"], 12);
        assert_eq!(asked.values["target"], "shop");
        assert!(!asked.values.contains_key("nested"));
        let deploy = ActionRequest { kind: ActionType::Deploy, target: "production".into(), ..request(parsed("{}")) };
        assert_eq!(deploy.asked().values["environment"], "production");
    }

    #[test]
    fn parts_of_a_key_cannot_run_into_each_other() {
        let mut one = request(parsed("{}"));
        one.target = "a:b".to_owned();
        one.account = Some("c".to_owned());
        let mut other = request(parsed("{}"));
        other.target = "b".to_owned();
        other.account = Some("c:a".to_owned());
        assert_ne!(one.key("local"), other.key("local"));
        one.target = "x".repeat(300);
        assert!(one.key("local").unwrap().len() < 100);
    }

    #[test]
    fn what_says_nothing_of_what_it_is_about_has_no_key() {
        let mut one = request(parsed("{}"));
        one.subject.clear();
        assert_eq!(one.key("local").unwrap_err().field, "document");
    }
}
