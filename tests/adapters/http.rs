//! The HTTP adapter: F54 – F61 and F96 as far as one call goes.

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use agentrun::domain::action::{Answer, Reading};
use agentrun::domain::failure::Code;
use agentrun::domain::quantity::Millis;
use serde_json::json;

use super::provider::Provider;
use super::{Desk, KEY, doubt, reference, refusal, words};

pub const SHOP: &str = r#"version: "1"
environment: test
account: acme
dedupe: key
key: { header: Idempotency-Key, lifetime: 24h }
send:
  http:
    url: "{url}/things/{{ target }}?note={{ input.note }}"
    inside: true
    secret_headers: { Authorization: { prefix: "Bearer ", env: SHOP_TOKEN } }
    body: { amount: "{{ input.amount }}", note: "{{ input.note }}", unique: "{{ subject.document }}" }
answers: { "409": same_key_in_progress, "422": key_conflict }
reference: /id
message: /error/message
query:
  http: { url: "{url}/effects?key={{ key }}", inside: true }
  settle: 3s
  find:
    list: /data
    more: /has_more
    equals: { /key: "{{ key }}", /unique: "{{ subject.document }}" }
    state: { at: /status, words: { succeeded: succeeded, in_progress: in_progress } }
"#;

fn desk() -> (Provider, Desk) {
    let provider = Provider::serving();
    let desk = Desk::new(SHOP, &provider);
    (provider, desk)
}

#[test]
fn r_a17_a_request_arrives_as_the_contract_says_and_its_answer_is_read() {
    let (provider, desk) = desk();
    let answer = desk.send();
    assert_eq!(reference(&answer), "fx_1");
    let request = &provider.requests()[0];
    assert_eq!(request["path"], "/things/shop?note=a%20%22b%22%20%26%20c");
    let body: serde_json::Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({ "amount": 500, "note": "a \"b\" & c", "unique": "order-7" }));
    let headers = &request["headers"];
    assert_eq!(headers["idempotency-key"], KEY);
    assert_eq!(headers["x-request-id"], "0198c0de-0000-7000-8000-000000000001");
    assert_eq!(headers["authorization"], "Bearer canary-token-1");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(desk.ask(), Reading::Succeeded { reference: Some("fx_1".to_owned()) });
    provider.knobs(json!({ "dedupe": "key" }));
    assert_eq!(reference(&desk.send()), "fx_1", "the same key is the same effect");
    assert_eq!(provider.effects_of(KEY), 1);
}

#[test]
fn r_a8_a_form_is_written_as_forms_are() {
    let provider = Provider::serving();
    let form = "version: a\nsend:\n  http:\n    url: \"{url}/x\"\n    inside: true\n    form: { \"m[k]\": \"{{ input.note }}\", n: \"{{ input.amount }}\" }\n";
    let answer = Desk::new(form, &provider).send();
    assert!(matches!(answer, Answer::Done { reference: None, .. }), "{answer:?}");
    let request = &provider.requests()[0];
    assert_eq!(request["body"], "m%5Bk%5D=a%20%22b%22%20%26%20c&n=500");
    assert_eq!(request["headers"]["content-type"], "application/x-www-form-urlencoded");
}

#[test]
fn f54_a_reply_that_is_dropped_after_the_effect_is_unknown_and_asking_finds_it() {
    let (provider, desk) = desk();
    provider.knobs(json!({ "drop": "after" }));
    assert_eq!(doubt(&desk.send()), Code::TemporaryProviderError);
    assert_eq!(provider.effects_of(KEY), 1);
    assert_eq!(desk.ask(), Reading::Succeeded { reference: Some("fx_1".to_owned()) });
}

#[test]
fn f55_without_a_connection_nothing_has_happened() {
    let (mut provider, mut desk) = desk();
    provider.kill();
    let refused = desk.send();
    assert_eq!(refusal(&refused), (Code::TemporaryProviderError, true), "{refused:?}");
    assert!(words(&refused).contains("cannot connect to 127."), "{refused:?}");
    desk.http().url = "http://no-such-host.invalid/".to_owned();
    let unfound = desk.send();
    assert_eq!(refusal(&unfound), (Code::TemporaryProviderError, true), "{unfound:?}");
    // A server that ends the connection while TLS is being agreed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    desk.http().url = format!("https://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let insecure = desk.send();
    server.join().unwrap();
    assert_eq!(refusal(&insecure), (Code::TemporaryProviderError, true), "{insecure:?}");
    assert!(words(&insecure).contains("no secure connection"), "{insecure:?}");
    assert!(provider.requests().is_empty() && provider.ledger().is_empty());
}

#[test]
fn f55_a_connection_that_does_not_come_about_in_time_is_no_effect() {
    let (_provider, mut desk) = desk();
    // It is accepted by the kernel alone, so TLS never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    desk.http().url = format!("https://127.0.0.1:{}/", listener.local_addr().unwrap().port());
    desk.limit = Millis(200);
    assert_eq!(refusal(&desk.send()), (Code::NetworkTimeout, true));
}

#[test]
fn f56_before_or_after_the_effect_a_timeout_is_unknown() {
    for (knobs, effects) in
        [(json!({ "wait_before": "/no/such/file" }), 0), (json!({ "wait_after": "/no/such/file" }), 1)]
    {
        let (provider, mut desk) = desk();
        desk.limit = Millis(700);
        provider.knobs(knobs);
        assert_eq!(doubt(&desk.send()), Code::NetworkTimeout);
        assert_eq!(provider.ledger().len(), effects);
    }
    let (provider, desk) = desk();
    provider.knobs(json!({ "drop": "before" }));
    assert_eq!(doubt(&desk.send()), Code::TemporaryProviderError);
    assert!(provider.ledger().is_empty());
}

#[test]
fn f57_a_question_sees_nothing_until_the_other_side_shows_it() {
    let (provider, desk) = desk();
    provider.knobs(json!({ "blind": provider.at("seeing") }));
    assert_eq!(reference(&desk.send()), "fx_1");
    assert_eq!(desk.ask(), Reading::NotFound);
    provider.open("seeing");
    assert_eq!(desk.ask(), Reading::Succeeded { reference: Some("fx_1".to_owned()) });
}

#[test]
fn f60_f61_what_a_status_proves() {
    let (provider, desk) = desk();
    for (status, wanted) in [
        (400, (Code::ValidationError, false)),
        (401, (Code::AuthFailed, false)),
        (403, (Code::PermissionDenied, false)),
        (404, (Code::ResourceNotFound, false)),
        (422, (Code::IdempotencyKeyReused, false)),
        (429, (Code::RateLimit, true)),
    ] {
        provider.knobs(json!({ "status": status }));
        assert_eq!(refusal(&desk.send()), wanted, "{status}");
    }
    for (status, wanted) in [
        (301, Code::OutcomeUnknown),
        (408, Code::NetworkTimeout),
        (500, Code::OutcomeUnknown),
        (502, Code::TemporaryProviderError),
        (503, Code::TemporaryProviderError),
        (504, Code::NetworkTimeout),
    ] {
        provider.knobs(json!({ "status": status }));
        assert_eq!(doubt(&desk.send()), wanted, "{status}");
    }
    assert!(provider.ledger().is_empty());
    provider.knobs(json!({ "status_after": 500 }));
    assert_eq!(doubt(&desk.send()), Code::OutcomeUnknown);
    assert_eq!(provider.effects_of(KEY), 1);
    provider.knobs(json!({ "busy": true, "retry_after": "2" }));
    let busy = desk.send();
    assert!(matches!(busy, Answer::Unknown { in_progress: true, retry_after: Some(Millis(2000)), .. }), "{busy:?}");
}

#[test]
fn f61_how_long_it_wants_to_be_left_alone_is_read_as_seconds_and_as_a_date() {
    let (provider, desk) = desk();
    let after = |text: &str| {
        provider.knobs(json!({ "status": 429, "retry_after": text }));
        match desk.send() {
            Answer::Refused { retry_after, .. } => retry_after,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(after("7"), Some(Millis(7000)));
    assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Millis(0)));
    assert!(after("Wed, 21 Oct 2099 07:28:00 GMT").unwrap() > Millis::secs(86_400));
    assert_eq!(after("later"), None);
    provider.knobs(json!({ "query_status": 429, "retry_after": "3" }));
    assert!(matches!(desk.ask(), Reading::Unclear { retry_after: Some(Millis(3000)), .. }));
}

#[test]
fn r_a7_an_answer_that_is_not_read_to_its_end_proves_nothing() {
    let (provider, mut desk) = desk();
    provider.knobs(json!({ "huge": 2 << 20 }));
    let huge = desk.send();
    assert!(words(&huge).contains("longer than"), "{huge:?}");
    doubt(&huge);
    provider.knobs(json!({ "garbage": true }));
    doubt(&desk.send());
    desk.limit = Millis(600);
    provider.knobs(json!({ "drip_ms": 50 }));
    assert_eq!(doubt(&desk.send()), Code::NetworkTimeout);
    assert_eq!(provider.ledger().len(), 3);
}

#[test]
fn r_a7_a_call_that_is_stopped_ends_soon_and_is_unknown() {
    let (provider, desk) = desk();
    provider.knobs(json!({ "wait_after": "/no/such/file" }));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            provider.wait("it has happened", |provider| !provider.ledger().is_empty());
            desk.stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(doubt(&desk.send()), Code::Interrupted);
    });
    assert_eq!(refusal(&desk.send()), (Code::WorkerCrash, true), "and then nothing is begun any more");
    assert_eq!(provider.requests().len(), 1);
}

#[test]
fn f96_no_request_goes_inside_unless_the_contract_means_that_host() {
    let (_, mut desk) = desk();
    // All these names, where they are let through, lead to it.
    let provider = Provider::serving_at("127.0.0.1");
    let port = provider.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0.0.0.0",
        "169.254.169.254",
        "10.0.0.1",
    ] {
        desk.http().inside = false;
        desk.http().url = format!("http://{host}:{port}/fake-metadata");
        let answer = desk.send();
        assert_eq!(refusal(&answer), (Code::SsrfBlocked, false), "{host}: {answer:?}");
    }
    for host in ["169.254.169.254", "0.0.0.0", "[fe80::1]", "[::ffff:169.254.169.254]"] {
        desk.http().inside = true;
        desk.http().url = format!("http://{host}:{port}/fake-metadata");
        assert_eq!(refusal(&desk.send()).0, Code::SsrfBlocked, "{host} is called by nobody");
    }
    assert!(provider.requests().is_empty() && provider.ledger().is_empty(), "{:?}", provider.requests());
}

#[test]
fn f96_a_redirect_is_not_followed() {
    let (provider, desk) = desk();
    provider.knobs(json!({ "redirect": provider.url("/fake-metadata") }));
    assert_eq!(doubt(&desk.send()), Code::OutcomeUnknown);
    assert_eq!(provider.requests().len(), 1);
    assert!(provider.ledger().is_empty());
}

#[test]
fn r_a16_no_secret_reaches_a_message() {
    let (provider, mut desk) = desk();
    provider.knobs(json!({ "status": 400, "says": "bad token canary-token-1 and canary-command" }));
    let answer = desk.send();
    assert!(words(&answer).contains("bad token [redacted] and [redacted]"), "{answer:?}");
    desk.environment.remove(std::ffi::OsStr::new("SHOP_TOKEN"));
    let answer = desk.send();
    assert_eq!(refusal(&answer), (Code::AuthFailed, false));
    assert!(words(&answer).contains("SHOP_TOKEN"), "{answer:?}");
    assert_eq!(provider.requests().len(), 1, "without its secret it is not sent");
}

#[test]
fn r_a8_a_question_is_answered_only_by_the_whole_list_and_by_one_of_ours() {
    let (provider, mut desk) = desk();
    assert_eq!(desk.ask(), Reading::NotFound);
    for knobs in [json!({ "has_more": true }), json!({ "query_status": 404 }), json!({ "query_status": 500 })] {
        provider.knobs(knobs.clone());
        assert!(matches!(desk.ask(), Reading::Unclear { .. }), "{knobs}");
    }
    if let Some(query) = &mut desk.contract.query {
        query.absent = vec![404];
    }
    provider.knobs(json!({ "query_status": 404 }));
    assert_eq!(desk.ask(), Reading::NotFound, "the contract says so");
    provider.knobs(json!({ "accept": true }));
    assert!(matches!(desk.send(), Answer::Accepted { .. }));
    assert_eq!(desk.ask(), Reading::InProgress { reference: Some("fx_1".to_owned()) });
    provider.knobs(json!({}));
    desk.send();
    assert_eq!(desk.ask(), Reading::Several { matches: 2 });
    if let Some(find) = desk.contract.query.as_mut().and_then(|query| query.find.as_mut()) {
        find.equals.insert("/id".to_owned(), "{{ reference }}".to_owned());
    }
    assert!(matches!(desk.ask(), Reading::Unclear { .. }), "there is no reference to compare with");
    desk.reference = Some("fx_2".to_owned());
    assert_eq!(desk.ask(), Reading::Succeeded { reference: Some("fx_2".to_owned()) });
}
