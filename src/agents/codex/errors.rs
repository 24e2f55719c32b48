//! What Codex's own error classes mean here. Only its structured `codex_error_info` and the fixed beginnings of its own
//! sentences count; nothing that a model or a tool wrote is ever looked at (FR-C10).

use serde_json::Value;

use super::super::wording::one_line;
use crate::domain::failure::{Code, Failure};
use crate::domain::quantity::Millis;

/// The failure for a class of Codex. `reset` is how long until the used-up quota is full again, if a record said it.
pub(crate) fn classify(info: &Value, message: &str, reset: Option<Millis>) -> Failure {
    let (class, status) = match info {
        Value::String(class) => (class.as_str(), None),
        Value::Object(map) => {
            let entry = map.iter().next();
            let status = entry.and_then(|(_, detail)| detail.get("http_status_code")).and_then(Value::as_u64);
            (entry.map_or("", |(class, _)| class.as_str()), status)
        }
        _ => ("", None),
    };
    let code = match status {
        Some(status) => by_status(status),
        None => by_class(class, message, reset),
    };
    let retry_after = match code {
        Code::RateLimit => reset.filter(|_| class == "usage_limit_exceeded").or_else(|| told_delay(message)),
        _ => None,
    };
    Failure { code, message: format!("codex reported: {}", one_line(message, 500)), retry_after }
}

/// Without a session file only Codex's sentence is left; its fixed beginnings carry the status.
pub(crate) fn classify_sentence(message: &str) -> Failure {
    let heads = ["exceeded retry limit, last status: ", "unexpected status "];
    let status = heads.iter().find_map(|head| message.strip_prefix(head)?.get(..3)?.parse::<u64>().ok());
    let info = match status {
        Some(status) => serde_json::json!({ "http_connection_failed": { "http_status_code": status } }),
        None if message.starts_with("stream disconnected before completion") => Value::from("other"),
        None => Value::Null,
    };
    classify(&info, message, None)
}

fn by_status(status: u64) -> Code {
    match status {
        401 => Code::AuthFailed,
        402 => Code::PaymentRequired,
        403 => Code::PermissionDenied,
        404 => Code::ResourceNotFound,
        408 | 504 => Code::NetworkTimeout,
        429 => Code::RateLimit,
        500..=599 => Code::TemporaryProviderError,
        400..=499 => Code::ValidationError,
        _ => Code::AgentFailed,
    }
}

fn by_class(class: &str, message: &str, reset: Option<Millis>) -> Code {
    match class {
        "usage_limit_exceeded" if reset.is_some() => Code::RateLimit,
        "usage_limit_exceeded" => Code::QuotaExceeded,
        "rate_limit_exceeded" => Code::RateLimit,
        "context_window_exceeded" => Code::ContextTooLarge,
        "session_budget_exceeded" => Code::BudgetExceeded,
        "model_not_found" => Code::ResourceNotFound,
        "unauthorized" => Code::AuthFailed,
        "bad_request" | "invalid_prompt" => Code::ValidationError,
        "http_connection_failed" => Code::NetworkTimeout,
        "internal_server_error"
        | "server_overloaded"
        | "response_stream_connection_failed"
        | "response_stream_disconnected"
        | "response_too_many_failed_attempts" => Code::TemporaryProviderError,
        "other" => other(message),
        _ => Code::AgentFailed,
    }
}

/// `other` is mostly a broken stream, which passes. What would come again at every try begins otherwise.
fn other(message: &str) -> Code {
    if message.starts_with("Missing environment variable") {
        Code::AuthFailed
    } else if message.starts_with("Incomplete response returned") {
        Code::AgentFailed
    } else if serde_json::from_str::<Value>(message).is_ok_and(|body| body["error"].is_object()) {
        // Status 400: Codex hands the provider's body on, as it came.
        Code::ValidationError
    } else {
        Code::TemporaryProviderError
    }
}

/// `… Please try again in 1.5s.`, as providers write it for machines: Codex itself obeys it.
fn told_delay(message: &str) -> Option<Millis> {
    let (_, rest) = message.rsplit_once("try again in ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = rest.split_at(digits);
    let unit = rest.split(|c: char| !c.is_ascii_alphabetic()).next()?;
    let factor = match unit {
        "ms" => 1.0,
        "s" => 1000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return None,
    };
    let ms = number.parse::<f64>().ok()? * factor;
    // A week is the longest window of any provider; more is a misread number.
    let sane = (0.0..=7.0 * 86_400_000.0).contains(&ms);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 604,800,000")]
    sane.then(|| Millis(ms.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fr_f31_each_class_has_one_code() {
        let table = [
            (json!({"response_too_many_failed_attempts": {"http_status_code": 429}}), Code::RateLimit),
            (json!({"http_connection_failed": {"http_status_code": 401}}), Code::AuthFailed),
            (json!({"http_connection_failed": {"http_status_code": 403}}), Code::PermissionDenied),
            (json!({"http_connection_failed": {"http_status_code": 503}}), Code::TemporaryProviderError),
            (json!({"http_connection_failed": {"http_status_code": null}}), Code::NetworkTimeout),
            (json!({"http_connection_failed": {"http_status_code": 402}}), Code::PaymentRequired),
            (json!({"http_connection_failed": {"http_status_code": 422}}), Code::ValidationError),
            (json!("model_not_found"), Code::ResourceNotFound),
            (json!("invalid_prompt"), Code::ValidationError),
            (json!("server_overloaded"), Code::TemporaryProviderError),
            (json!("usage_limit_exceeded"), Code::QuotaExceeded),
            (json!("rate_limit_exceeded"), Code::RateLimit),
            (json!("internal_server_error"), Code::TemporaryProviderError),
            (json!("context_window_exceeded"), Code::ContextTooLarge),
            (json!("session_budget_exceeded"), Code::BudgetExceeded),
            (json!("other"), Code::TemporaryProviderError),
            (json!("a_class_of_tomorrow"), Code::AgentFailed),
            (json!(7), Code::AgentFailed),
        ];
        for (info, code) in table {
            assert_eq!(classify(&info, "x", None).code, code, "{info}");
        }
    }

    #[test]
    fn fr_c10_words_in_a_message_do_not_decide() {
        let failure = classify(&json!("a_class_of_tomorrow"), "429 rate limit, try again in 5s", None);
        assert_eq!((failure.code, failure.retry_after), (Code::AgentFailed, None));
        assert_eq!(classify_sentence("the file says: unexpected status 401").code, Code::AgentFailed);
    }

    #[test]
    fn other_passes_unless_it_would_come_again() {
        let code = |message: &str| classify(&json!("other"), message, None).code;
        assert_eq!(code("stream disconnected before completion: x"), Code::TemporaryProviderError);
        assert_eq!(code("Missing environment variable: `KEY`."), Code::AuthFailed);
        assert_eq!(code(r#"{"error": {"message": "Bad."}}"#), Code::ValidationError);
        assert_eq!(code("Incomplete response returned, reason: max_output_tokens"), Code::AgentFailed);
    }

    #[test]
    fn fr_g4_a_quota_with_a_known_end_waits_exactly_so_long() {
        let failure = classify(&json!("usage_limit_exceeded"), "x", Some(Millis::secs(5)));
        assert_eq!((failure.code, failure.retry_after), (Code::RateLimit, Some(Millis::secs(5))));
    }

    #[test]
    fn a_delay_is_read_only_where_it_is_exact() {
        for (text, ms) in
            [("try again in 1.5s.", 1500), ("Please try again in 20ms", 20), ("try again in 2m, or", 120_000)]
        {
            let failure = classify(&json!("rate_limit_exceeded"), text, None);
            assert_eq!(failure.retry_after, Some(Millis(ms)), "{text}");
        }
        for text in
            ["try again in a while", "try again in 5", "try again in 9e9s", "try again in 1.2.3s", "try again at 5s"]
        {
            assert_eq!(classify(&json!("rate_limit_exceeded"), text, None).retry_after, None, "{text}");
        }
    }

    #[test]
    fn without_a_session_file_the_status_in_codexs_sentence_counts() {
        assert_eq!(classify_sentence("exceeded retry limit, last status: 429 Too Many Requests").code, Code::RateLimit);
        assert_eq!(classify_sentence("unexpected status 401 Unauthorized: no").code, Code::AuthFailed);
        assert_eq!(classify_sentence("stream disconnected before completion: x").code, Code::TemporaryProviderError);
        assert_eq!(classify_sentence("ähm").code, Code::AgentFailed);
    }
}
