//! R-A8: what a contract file says, what holds where it is silent, and what is refused, with its place.

use super::*;
use crate::config::source::DiskSource;
use crate::domain::action::contract::Encoding;
use crate::domain::quantity::Millis;
use crate::domain::task::CommandLine;

const WHOLE: &str = r#"version: "2"
environment: test
account: acme
dedupe: key
key: { header: Idempotency-Key, lifetime: 24h }
automatic: draft
irreversible: true
look_first: true
send:
  http:
    method: PUT
    url: https://api.example.com/v1/things/{{ input.name }}
    headers: { Accept: application/json }
    secret_headers: { Authorization: { prefix: "Bearer ", env: THING_TOKEN } }
    body: { amount: 500, price: 1.50, note: "n {{ key }}", deep: [ true, "{{ input.more }}", "7" ] }
answers: { "409": same_key_in_progress, "422": key_conflict }
reference: /id
message: /error/message
query:
  http: { url: "https://api.example.com/v1/things?ref={{ reference | default(key) }}" }
  settle: 3s
  absent: [ 404, 410 ]
  find:
    list: /data
    more: /has_more
    equals: { /key: "{{ key }}" }
    contains: { /note: "{{ operation }}" }
    state: { at: /state, words: { ok: succeeded, busy: in_progress, bad: refused } }
"#;

fn load(text: &str) -> Result<Contract, ConfigError> {
    load_contract("policies/contracts/things.yml", text.as_bytes())
}

#[test]
fn r_a8_every_key_of_a_contract_is_read() {
    let contract = load(WHOLE).unwrap();
    assert_eq!((contract.name.as_str(), contract.version.as_str()), ("things", "2"));
    assert_eq!(contract.sha256, Sha256Hash::of(WHOLE.as_bytes()).hex());
    assert_eq!((contract.environment, contract.account.as_deref()), (Environment::Test, Some("acme")));
    assert_eq!((contract.dedupe, contract.automatic), (Dedupe::Key, Automatic::Draft));
    assert_eq!(
        (contract.key_header.as_deref(), contract.key_lifetime),
        (Some("Idempotency-Key"), Some(Millis::secs(86_400)))
    );
    assert!(contract.irreversible && contract.look_first && !contract.atomic);
    assert_eq!(contract.answers, [(409, Meaning::SameKeyInProgress), (422, Meaning::KeyConflict)].into());
    assert_eq!((contract.reference.as_deref(), contract.explanation.as_deref()), (Some("/id"), Some("/error/message")));
    let Some(Channel::Http(http)) = contract.send else { panic!("{:?}", contract.send) };
    assert_eq!((http.method.as_str(), http.encoding, http.inside), ("PUT", Encoding::Json, false));
    let body = serde_json::json!({
        // A number that would not be written as it was read stays a text.
        "amount": 500, "price": "1.50", "note": "n {{ key }}", "deep": [true, "{{ input.more }}", "7"],
    });
    assert_eq!(http.body, Some(body));
    assert_eq!(http.secret_headers["Authorization"].env, "THING_TOKEN");
    let query = contract.query.unwrap();
    assert_eq!((query.settle, query.absent), (Millis::secs(3), vec![404, 410]));
    let find = query.find.unwrap();
    assert_eq!((find.list.as_str(), find.more.as_deref()), ("/data", Some("/has_more")));
    assert_eq!(find.state.unwrap().1["busy"], Meaning::InProgress);
}

#[test]
fn r_a8_what_a_contract_does_not_say_is_the_most_careful_thing() {
    let contract = load("version: a\nsend: { run: ./notify.sh }\n").unwrap();
    let careful = Contract {
        version: "a".to_owned(),
        send: Some(Channel::Command { run: CommandLine::Shell("./notify.sh".to_owned()) }),
        sha256: contract.sha256.clone(),
        ..Contract::careful("things")
    };
    assert_eq!(contract, careful);
    assert!(!contract.may_resend_unknown());
}

#[test]
fn r_a8_what_is_wrong_with_a_contract_is_named_with_its_place() {
    let http = |lines: &str| format!("version: a\nsend:\n  http:\n    url: https://h.example/x\n{lines}");
    let url = |url: &str| format!("version: a\nsend:\n  http:\n    url: {url}\n");
    let query = |lines: &str| format!("version: a\nquery:\n  settle: 1s\n{lines}");
    let mut wrong = Vec::new();
    for (text, at, message) in [
        ("send: { run: x }\n".to_owned(), "1:1", "missing key `version`"),
        ("version: a\ndedup: key\n".to_owned(), "2:1", "did you mean `dedupe`?"),
        ("version: a\ndedupe: keys\n".to_owned(), "2:9", "did you mean `key`?"),
        ("version: a\nversion: b\n".to_owned(), "2:1", "duplicate key `version`"),
        ("version: a\nsend: {}\n".to_owned(), "2:7", "say how"),
        ("version: a\nsend: { run: [] }\n".to_owned(), "2:14", "the command is empty"),
        ("version: a\nkey: { header: K }\n".to_owned(), "2:1", "needs `dedupe: key`"),
        ("version: a\nlook_first: true\n".to_owned(), "2:1", "needs a `query`"),
        ("version: a\nreference: id\n".to_owned(), "2:12", "no JSON pointer"),
        ("version: a\nanswers: { \"999\": unknown }\n".to_owned(), "2:12", "not an exit code"),
        (http("dedupe: key\n"), "5:1", "the key is not sent"),
        (http("atomic: true\n"), "5:1", "said of a command"),
        (http("dedupe: key\nkey: { header: Host }\n"), "6:16", "set by agentrun itself"),
        (http("    method: post\n"), "5:13", "did you mean `POST`?"),
        (http("    headers: { Authorization: x }\n"), "5:16", "name its variable in `secret_headers`"),
        (http("    headers: { Content-Length: \"1\" }\n"), "5:16", "set by agentrun itself"),
        (http("    headers: { X-A: \"1\", x-a: \"2\" }\n"), "5:26", "stands here twice"),
        (http("    secret_headers: { X-A: { env: AGENTRUN_X } }\n"), "5:35", "reserved"),
        (http("    secret_headers: { X-A: secret }\n"), "5:28", "found string"),
        (http("    body:\n      a: \"{{ inptu.b }}\"\n"), "6:10", "unknown variable `inptu.b`; did you mean `input`?"),
        (http("    body: { a: \"{{ reference }}\" }\n"), "5:16", "unknown variable `reference`"),
        (http("    body: { a: \"{{ key\" }\n"), "5:16", "syntax error"),
        (http("    body: { a: b }\n    form: { a: b }\n"), "6:5", "not both"),
        (url("http://h.example/x"), "4:10", "use https://"),
        (url("ftp://h.example/x"), "4:10", "begins with https://"),
        (url("https://{{ target }}/x"), "4:10", "the host stands here as it is"),
        (url("https://h.{{ target }}/x"), "4:10", "the host stands here as it is"),
        (url("https://u:p@h.example/x"), "4:10", "a login in an address"),
        (query("  run: x\n  find: { list: /a }\n"), "5:3", "a command says itself"),
        (query("  http: { url: https://h.example/ }\n"), "3:3", "missing key `find`"),
        (query("  http: { url: https://h.example/ }\n  find: { list: /a }\n"), "5:9", "a list needs"),
        (query("  http: { url: https://h.example/, method: DELETE }\n  find: {}\n"), "4:44", "known are GET, POST"),
        (query("  http: { url: https://h.example/ }\n  find: {}\n  absent: [ 500 ]\n"), "6:13", "from 400 to 499"),
        (
            query("  http: { url: https://h.example/ }\n  find: { state: { at: /s, words: { a: unknown } } }\n"),
            "5:40",
            "`succeeded`, `in_progress` or `refused`",
        ),
    ] {
        let error = load(&text).expect_err(&text).to_string();
        let place = format!("policies/contracts/things.yml:{at}: ");
        if !error.starts_with(&place) || !error.contains(message) {
            wrong.push(format!("{text}\n{error}\nwanted {at} {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_contracts_that_come_along_are_read() {
    let contracts = load_contracts(&DiskSource::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let names: Vec<_> = contracts.keys().map(String::as_str).collect();
    assert_eq!(names, ["forge-comment", "forge-pull-request", "forge-release", "payments", "script", "webhook"]);
    assert!(contracts["forge-pull-request"].look_first && !contracts["webhook"].may_resend_unknown());
}

#[test]
fn f90_a_contract_under_a_wrong_name_or_broken_is_no_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = DiskSource::new(folder.path());
    assert!(load_contracts(&source).unwrap().is_empty());
    let contracts = folder.path().join(FOLDER);
    std::fs::create_dir_all(&contracts).unwrap();
    std::fs::write(contracts.join("README.md"), "x").unwrap();
    assert!(load_contracts(&source).unwrap().is_empty());
    std::fs::write(contracts.join("a.yaml"), "version: a\n").unwrap();
    assert!(load_contracts(&source).unwrap_err().to_string().contains("ending .yml"));
    std::fs::remove_file(contracts.join("a.yaml")).unwrap();
    std::fs::write(contracts.join("a b.yml"), "version: a\n").unwrap();
    assert!(load_contracts(&source).unwrap_err().to_string().contains("no name of a contract"));
}
