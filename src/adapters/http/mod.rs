//! A server carries it out, or says what became of it. One request, one connection: no redirect is followed, no proxy asked,
//! nothing tried twice. What the status proves is the contract's word ([`Contract::meaning`]); what proves that nothing
//! happened without a status is only what came before the first byte of the request (F55, F56).
//!
//! [`Contract::meaning`]: crate::domain::action::Contract::meaning

mod address;
mod exchange;
mod outgoing;
mod retry_after;
mod roots;

use serde_json::Value;

use super::find::{self, Found, plain};
use super::verdict::{self, Codes, Said, refused, unclear};
use super::{Call, Machine};
use crate::domain::action::contract::{Contract, HttpCall, Query};
use crate::domain::action::{Answer, Reading};
use crate::domain::failure::Code;
use crate::process::redact::Redactor;
use exchange::{Broken, Incoming, exchange};
use outgoing::Outgoing;

/// Sends it.
pub(super) fn send(call: &Call<'_>, http: &HttpCall) -> Answer {
    let outgoing = match Outgoing::of(call, http) {
        Ok(outgoing) => outgoing,
        Err((code, message)) => return refused(code, message),
    };
    let answer = match exchange(&outgoing, call) {
        Ok(incoming) => answered(call.contract, &incoming),
        Err(broken) => broke(broken),
    };
    // Texts of the other side may repeat what they were sent.
    redacted(answer, &outgoing.secrets, call.machine)
}

/// Asks about it.
pub(super) fn ask(call: &Call<'_>, http: &HttpCall, query: &Query) -> Reading {
    let outgoing = match Outgoing::of(call, http) {
        Ok(outgoing) => outgoing,
        Err((_, message)) => return unclear(message),
    };
    let reading = match exchange(&outgoing, call) {
        Ok(incoming) => read(call, query, &incoming),
        Err(Broken::Blocked(message) | Broken::Before(_, message) | Broken::After(_, message)) => unclear(message),
    };
    redacted(reading, &outgoing.secrets, call.machine)
}

fn broke(broken: Broken) -> Answer {
    match broken {
        Broken::Blocked(message) => refused(Code::SsrfBlocked, message),
        Broken::Before(code, message) => refused(code, message),
        Broken::After(code, message) => verdict::unknown(code, message),
    }
}

fn answered(contract: &Contract, incoming: &Incoming) -> Answer {
    let status = incoming.status.as_u16();
    let body: Option<Value> = serde_json::from_slice(&incoming.body).ok();
    let at = |pointer: &Option<String>| {
        let pointer = pointer.as_ref()?;
        body.as_ref()?.pointer(pointer).and_then(plain).map(|text| verdict::shown(&text))
    };
    let said = Said {
        status: format!("{} answered {}", incoming.host, incoming.status),
        reference: at(&contract.reference),
        message: if incoming.status.is_success() { None } else { at(&contract.explanation) },
        retry_after: incoming.retry_after,
    };
    let refused = match status {
        401 => Code::AuthFailed,
        402 => Code::PaymentRequired,
        403 => Code::PermissionDenied,
        404 | 410 => Code::ResourceNotFound,
        _ => Code::ValidationError,
    };
    let unknown = match status {
        502 | 503 => Code::TemporaryProviderError,
        408 | 504 => Code::NetworkTimeout,
        _ => Code::OutcomeUnknown,
    };
    verdict::answer(contract.meaning(status), said, Codes { refused, unknown })
}

fn read(call: &Call<'_>, query: &Query, incoming: &Incoming) -> Reading {
    let status = incoming.status.as_u16();
    if query.absent.contains(&status) {
        return Reading::NotFound;
    }
    let puzzled = |message: String| Reading::Unclear { message, retry_after: incoming.retry_after };
    if status != 200 {
        return puzzled(format!("{} answered {}", incoming.host, incoming.status));
    }
    let Ok(answer) = serde_json::from_slice::<Value>(&incoming.body) else {
        return puzzled(format!("{} answered with something that is no JSON", incoming.host));
    };
    let Some(find) = &query.find else { return puzzled("the contract does not say how it is found".to_owned()) };
    let reference = call.contract.reference.as_deref();
    find::read(&Found { answer: &answer, goes_on: incoming.goes_on, reference }, find, &call.wording())
}

/// The same without secrets: every text of it is looked through.
fn redacted<T: serde::Serialize + serde::de::DeserializeOwned>(value: T, own: &[String], machine: &Machine<'_>) -> T {
    let secrets = [own, machine.secrets].concat();
    let Ok(mut tree) = serde_json::to_value(&value) else { return value };
    clean(&mut tree, &secrets);
    serde_json::from_value(tree).unwrap_or(value)
}

fn clean(tree: &mut Value, secrets: &[String]) {
    match tree {
        Value::String(text) => {
            let Ok(mut redactor) = Redactor::new(secrets) else { return text.clear() };
            let mut out = Vec::new();
            redactor.push(text.as_bytes(), &mut out);
            redactor.finish(&mut out);
            *text = String::from_utf8_lossy(&out).into_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, secrets)),
        Value::Object(fields) => fields.values_mut().for_each(|item| clean(item, secrets)),
        _ => {}
    }
}
