//! A request as it goes out, made of a contract and an action. Whatever cannot be said is refused here, before anything is
//! opened.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Uri};

use super::super::Call;
use crate::domain::action::contract::{Encoding, HttpCall};
use crate::domain::action::wording::{self, percent_encoded};
use crate::domain::failure::Code;
use crate::domain::template::TemplateError;

/// Why it cannot be said.
type Unsayable = (Code, String);

/// A request, ready to be sent.
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// Scheme, host, port, path and query.
    pub(super) uri: Uri,
    /// The host without brackets and port.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Whether the host may be inside.
    pub(super) inside: bool,
    /// Secrets that it carries.
    pub(super) secrets: Vec<String>,
}

impl Outgoing {
    pub(super) fn of(call: &Call<'_>, http: &HttpCall) -> Result<Self, Unsayable> {
        let values = call.wording();
        let url = wording::url(&http.url, &values).map_err(|e| misworded("address", &e))?;
        let uri: Uri = url.parse().map_err(|_| (Code::ValidationError, "the address is none".to_owned()))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err((Code::ValidationError, "the address is neither https:// nor http://".to_owned())),
        };
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let method = Method::from_bytes(http.method.as_bytes())
            .map_err(|_| (Code::ValidationError, format!("`{}` is no method", http.method)))?;
        let body = match &http.body {
            None => Vec::new(),
            Some(body) => {
                let body = wording::body(body, &values).map_err(|e| misworded("body", &e))?;
                match http.encoding {
                    Encoding::Json => body.to_string().into_bytes(),
                    Encoding::Form => form(&body)?.into_bytes(),
                }
            }
        };
        let mut secrets = Vec::new();
        let headers = headers(call, http, &mut secrets)?;
        Ok(Self { method, uri, host, port, tls, headers, body, inside: http.inside, secrets })
    }
}

fn headers(call: &Call<'_>, http: &HttpCall, secrets: &mut Vec<String>) -> Result<HeaderMap, Unsayable> {
    let values = call.wording();
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("agentrun/", env!("CARGO_PKG_VERSION"))));
    if http.body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(http.encoding.media_type()));
    }
    let mut set = |name: &str, value: &str| {
        let wrong = |()| (Code::ValidationError, format!("the header `{name}` cannot be written"));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(()))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong(()))?;
        value.set_sensitive(true);
        headers.insert(header, value);
        Ok(())
    };
    for (name, template) in &http.headers {
        let value = wording::header(template, &values).map_err(|e| misworded(&format!("header `{name}`"), &e))?;
        set(name, &value)?;
    }
    if let Some(name) = &call.contract.key_header {
        set(name, call.key)?;
    }
    set("x-request-id", call.operation.as_str())?;
    for (name, secret) in &http.secret_headers {
        let missing = || {
            (
                Code::AuthFailed,
                format!("the variable {} is not set; contract `{}` names it", secret.env, call.contract.name),
            )
        };
        let value = call.machine.variable(&secret.env).and_then(|value| value.to_str()).ok_or_else(missing)?;
        // The value as it is sent: a line end of the file that it came from is no part of it.
        let value = value.trim();
        secrets.push(value.to_owned());
        set(name, &format!("{}{value}", secret.prefix))?;
    }
    Ok(headers)
}

impl Encoding {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
        }
    }
}

fn form(body: &serde_json::Value) -> Result<String, Unsayable> {
    let wrong = |name: &str| (Code::ValidationError, format!("`{name}` of the form is neither a text nor a number"));
    let fields = body.as_object().into_iter().flatten().map(|(name, value)| {
        let text = super::plain(value).ok_or_else(|| wrong(name))?;
        Ok(format!("{}={}", percent_encoded(name), percent_encoded(&text)))
    });
    Ok(fields.collect::<Result<Vec<_>, Unsayable>>()?.join("&"))
}

/// The error names the place and what is wrong with the template, never a value.
fn misworded(what: &str, error: &TemplateError) -> Unsayable {
    (Code::ValidationError, format!("the request does not fit the contract's {what}: {error}"))
}
