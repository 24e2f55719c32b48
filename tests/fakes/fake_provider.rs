//! A provider for the tests, with a ledger of what really happened: an HTTP server, and the same as a command. It reaches no
//! network but loopback. Whoever wants to know whether something happened twice counts the lines of the ledger.
//!
//! ```text
//! fake-provider serve FOLDER [ADDRESS] answers until it is killed, or for a quarter of an hour; its port stands in FOLDER/port once it listens
//! fake-provider act FOLDER            as a `run`: reads AGENTRUN_REQUEST, AGENTRUN_IDEMPOTENCY_KEY …, prints its answer
//! fake-provider status FOLDER         as a `status`: prints what the ledger knows of the key
//! ```
//!
//! FOLDER holds `ledger.jsonl` (one fsynced line per effect: `key`, `operation`, `target`, `sha256` of the arguments, `fence`,
//! `at_ms`, `id`), `requests.jsonl` (one line per request that arrived whole: method, path, headers, body) and `knobs.json`, which is
//! read anew for each request:
//!
//! | knob | what it does |
//! | --- | --- |
//! | `"dedupe": "key"` | the same key gives the first answer again, other arguments 422; `"natural"`: the same `unique` field gives 422; `"none"` (the default): each request is an effect |
//! | `"keep_ms": N` | a key is forgotten N ms after its effect; `"forget": true` at once |
//! | `"drop": "before"` / `"after"` | closes the connection without a reply, before or after the effect |
//! | `"wait_before": FILE` / `"wait_after": FILE` | goes on, before or after the effect, once FILE exists |
//! | `"blind": FILE` | queries do not see anything until FILE exists; `"blind_ms": N`: nothing younger than N ms |
//! | `"busy": true` | answers 409: the same key is being worked on |
//! | `"status": N` | answers N and does nothing; `"status_after": N` answers N after the effect |
//! | `"retry_after": TEXT` | goes along with any answer |
//! | `"redirect": URL` | answers 307 to URL and does nothing |
//! | `"drip_ms": N` | sends the answer one byte every N ms, after the effect |
//! | `"huge": N` | the answer to an effect has N bytes more |
//! | `"garbage": true` | answers with what is no HTTP, after the effect |
//! | `"accept": true` | answers 202 and state `in_progress`; the query says so until FILE of `"finish"` exists |
//! | `"times": N` | all knobs but `dedupe` hold for the first N requests that act alone (counted in FOLDER/count) |
//! | `"exit": N`, `"die": SIGNAL`, `"print": TEXT`, `"hang": true` | of the command: ends so after its effect, prints TEXT instead of its answer |
//! | `"effect": false` | of the command: there is none |
//!
//! HTTP: `POST` (or PUT, PATCH, DELETE) to any path is an effect; its key is the header `Idempotency-Key`, else the field `key` of the
//! JSON body; its `unique` field is the field of that name. The answer is `{"id": "fx_1", "key": …, "status": "succeeded"}`.
//! `GET /effects[?key=K]` lists effects as `{"data": [ … ], "has_more": false}`; `GET /health` answers 200. `fake-metadata` in a path
//! answers like the metadata service of a cloud and is written to the ledger with the key `METADATA`: nobody may ever get there.

#![expect(
    clippy::expect_used,
    clippy::exit,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a stand-in for tests: what goes wrong in it is to be seen at once"
)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Nothing waits longer than this.
const DEADLINE: Duration = Duration::from_mins(2);

/// Effects of one server are made one after the other.
static EFFECTS: Mutex<()> = Mutex::new(());

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(args.get(1).map_or(".", String::as_str));
    match args.first().map(String::as_str) {
        Some("serve") => serve(&folder, args.get(2).map_or("127.0.0.1:0", String::as_str)),
        Some("act") => act(&folder),
        Some("status") => status(&folder),
        _ => fail("fake-provider serve|act|status FOLDER"),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("fake-provider: {message}");
    exit(98)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn wait_for(path: &str) {
    let begin = Instant::now();
    while !Path::new(path).exists() {
        if begin.elapsed() > DEADLINE {
            exit(99);
        }
        thread::sleep(LOOK);
    }
}

/// What is to go wrong.
struct Knobs(Value);

impl Knobs {
    fn read(folder: &Path) -> Self {
        let text = fs::read_to_string(folder.join("knobs.json")).unwrap_or_else(|_| "{}".to_owned());
        Self(serde_json::from_str(&text).unwrap_or_else(|e| fail(&format!("knobs.json: {e}"))))
    }

    /// As `read`, for a request that acts: after `times` of them only `dedupe` is left.
    fn for_an_act(folder: &Path) -> Self {
        let knobs = Self::read(folder);
        let Some(times) = knobs.number("times") else { return knobs };
        let mut count = OpenOptions::new().append(true).create(true).open(folder.join("count")).expect("count");
        count.write_all(b"x").expect("count");
        if count.metadata().expect("count").len() <= times {
            return knobs;
        }
        Self(json!({ "dedupe": knobs.0["dedupe"] }))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0[name].as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0[name].as_u64()
    }

    fn on(&self, name: &str) -> bool {
        self.0[name] == true
    }

    fn wait(&self, name: &str) {
        if let Some(path) = self.text(name) {
            wait_for(path);
        }
    }
}

fn effects(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("ledger.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Appends one line, durably.
fn append(path: &Path, line: &Value) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("the ledger opens");
    file.write_all(format!("{line}\n").as_bytes()).expect("the ledger can be written");
    file.sync_all().expect("the ledger can be synced");
}

/// What somebody wants.
struct Wanted {
    key: String,
    operation: String,
    fence: String,
    target: Value,
    unique: Value,
    sha256: String,
    body: Value,
}

/// What came of it: a status and an object.
fn commit(folder: &Path, wanted: &Wanted, knobs: &Knobs) -> (u16, Value) {
    let _one = EFFECTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Also against other processes: the command twin is one per call.
    let lock = File::create(folder.join("lock")).expect("lock");
    lock.lock().expect("lock");
    let known = effects(folder);
    let kept = |effect: &&Value| {
        let age = now_ms().saturating_sub(effect["at_ms"].as_u64().unwrap_or(0));
        !knobs.on("forget") && knobs.number("keep_ms").is_none_or(|keep| age < keep)
    };
    match knobs.text("dedupe") {
        Some("key") => {
            let same = known.iter().filter(kept).find(|effect| !wanted.key.is_empty() && effect["key"] == wanted.key);
            match same {
                Some(effect) if effect["sha256"] == wanted.sha256 => return (200, answer(effect, knobs)),
                Some(_) => return (422, json!({ "error": { "message": "the key was used with other parameters" } })),
                None => {}
            }
        }
        Some("natural") => {
            let exists = known.iter().any(|effect| !wanted.unique.is_null() && effect["unique"] == wanted.unique);
            if exists {
                return (422, json!({ "error": { "message": "it exists already" } }));
            }
        }
        _ => {}
    }
    let effect = json!({
        "id": format!("fx_{}", known.len() + 1), "key": wanted.key, "operation": wanted.operation, "fence": wanted.fence,
        "target": wanted.target, "unique": wanted.unique, "sha256": wanted.sha256, "at_ms": now_ms(), "body": wanted.body,
    });
    append(&folder.join("ledger.jsonl"), &effect);
    (if knobs.on("accept") { 202 } else { 201 }, answer(&effect, knobs))
}

/// An effect as it is told.
fn answer(effect: &Value, knobs: &Knobs) -> Value {
    let mut told = effect.clone();
    let done = !knobs.on("accept") || knobs.text("finish").is_some_and(|path| Path::new(path).exists());
    told["status"] = if done { "succeeded" } else { "in_progress" }.into();
    told
}

/// What a query sees.
fn seen(folder: &Path, knobs: &Knobs, key: Option<&str>) -> Vec<Value> {
    if knobs.text("blind").is_some_and(|path| !Path::new(path).exists()) {
        return Vec::new();
    }
    let young = |effect: &Value| {
        let age = now_ms().saturating_sub(effect["at_ms"].as_u64().unwrap_or(0));
        knobs.number("blind_ms").is_some_and(|blind| age < blind)
    };
    let all = effects(folder).into_iter().filter(|effect| !young(effect));
    all.filter(|effect| key.is_none_or(|key| effect["key"] == key)).map(|effect| answer(&effect, knobs)).collect()
}

// The command twin.

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn act(folder: &Path) {
    let knobs = Knobs::for_an_act(folder);
    let bytes = fs::read(env("AGENTRUN_REQUEST")).unwrap_or_else(|e| fail(&format!("AGENTRUN_REQUEST: {e}")));
    let request: Value = serde_json::from_slice(&bytes).unwrap_or_else(|e| fail(&format!("the request: {e}")));
    let wanted = Wanted {
        key: env("AGENTRUN_IDEMPOTENCY_KEY"),
        operation: env("AGENTRUN_OPERATION"),
        fence: env("AGENTRUN_FENCE"),
        target: request["target"].clone(),
        unique: request["input"]["unique"].clone(),
        sha256: sha256(request["input"].to_string().as_bytes()),
        body: request["input"].clone(),
    };
    append(&folder.join("requests.jsonl"), &request);
    knobs.wait("wait_before");
    let told = match knobs.0.get("effect") {
        Some(Value::Bool(false)) => json!({}),
        _ => match commit(folder, &wanted, &knobs) {
            (200..=299, told) => json!({ "reference": told["id"], "state": told["status"] }),
            (_, told) => {
                println!("{}", json!({ "effect": "none", "message": told["error"]["message"] }));
                exit(1)
            }
        },
    };
    knobs.wait("wait_after");
    if let Some(signal) = knobs.number("die") {
        let signal = i32::try_from(signal).ok().and_then(rustix::process::Signal::from_named_raw);
        let signal = signal.unwrap_or_else(|| fail("no such signal"));
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    if knobs.on("hang") {
        thread::sleep(DEADLINE);
    }
    match knobs.text("print") {
        Some(text) => println!("{text}"),
        None => println!("{told}"),
    }
    exit(knobs.number("exit").and_then(|code| i32::try_from(code).ok()).unwrap_or(0))
}

fn status(folder: &Path) {
    let knobs = Knobs::read(folder);
    if let Some(text) = knobs.text("print_status") {
        println!("{text}");
        return;
    }
    let seen = seen(folder, &knobs, Some(&env("AGENTRUN_IDEMPOTENCY_KEY")));
    let told = match seen.as_slice() {
        [] => json!({ "state": "not_found" }),
        [one, ..] => json!({ "state": one["status"], "reference": one["id"], "matches": seen.len() }),
    };
    println!("{told}");
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

// The server.

fn serve(folder: &Path, address: &str) {
    let listener = TcpListener::bind(address).unwrap_or_else(|e| fail(&format!("{address}: {e}")));
    let port = listener.local_addr().map_or(0, |address| address.port());
    // Whole or not at all: somebody waits for it.
    fs::write(folder.join("port.new"), port.to_string()).expect("port");
    fs::rename(folder.join("port.new"), folder.join("port")).expect("port");
    // A test that was killed leaves no server behind for ever.
    thread::spawn(|| {
        thread::sleep(Duration::from_mins(15));
        exit(99)
    });
    for stream in listener.incoming().flatten() {
        let folder = folder.to_owned();
        thread::spawn(move || drop(converse(&folder, stream)));
    }
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn read_request(stream: &TcpStream) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(ToOwned::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, path, headers, body }))
}

fn converse(folder: &Path, stream: TcpStream) -> io::Result<()> {
    let Some(request) = read_request(&stream)? else { return Ok(()) };
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let line = json!({ "method": request.method, "path": request.path, "headers": request.headers, "body": body });
    append(&folder.join("requests.jsonl"), &line);
    if request.path.contains("fake-metadata") {
        append(&folder.join("ledger.jsonl"), &json!({ "key": "METADATA", "at_ms": now_ms() }));
        return reply(&stream, 200, &json!({ "secret": "never" }), &Knobs(json!({})));
    }
    if request.method != "GET" {
        return effect(folder, &stream, &request);
    }
    let knobs = Knobs::read(folder);
    if let Some(status) = knobs.number("query_status").and_then(|status| u16::try_from(status).ok()) {
        return reply(&stream, status, &json!({}), &knobs);
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    if path != "/effects" {
        return reply(&stream, 200, &json!({}), &Knobs(json!({})));
    }
    let key = query.split('&').find_map(|part| part.strip_prefix("key=")).map(decoded);
    let found = seen(folder, &knobs, key.as_deref());
    reply(&stream, 200, &json!({ "data": found, "has_more": knobs.on("has_more") }), &Knobs(json!({})))
}

fn effect(folder: &Path, stream: &TcpStream, request: &Request) -> io::Result<()> {
    let knobs = Knobs::for_an_act(folder);
    let number = |name: &str| knobs.number(name).and_then(|status| u16::try_from(status).ok());
    let error = |message: &str| json!({ "error": { "message": message } });
    knobs.wait("wait_before");
    if knobs.text("drop") == Some("before") {
        return Ok(());
    }
    if knobs.text("redirect").is_some() {
        return reply(stream, 307, &error("elsewhere"), &knobs);
    }
    if knobs.on("busy") {
        return reply(stream, 409, &error("the same key is being worked on"), &knobs);
    }
    if let Some(status) = number("status") {
        let message = knobs.text("says").unwrap_or("refused");
        return reply(stream, status, &error(message), &knobs);
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let header = |name: &str| request.headers.get(name).cloned();
    let wanted = Wanted {
        key: header("idempotency-key").or(body["key"].as_str().map(ToOwned::to_owned)).unwrap_or_default(),
        operation: header("x-request-id").unwrap_or_default(),
        fence: String::new(),
        target: request.path.clone().into(),
        unique: body["unique"].clone(),
        sha256: sha256(&request.body),
        body,
    };
    let (status, told) = commit(folder, &wanted, &knobs);
    knobs.wait("wait_after");
    if knobs.text("drop") == Some("after") {
        return Ok(());
    }
    match number("status_after") {
        Some(status) => reply(stream, status, &error("it broke"), &knobs),
        None => reply(stream, status, &told, &knobs),
    }
}

fn reply(mut stream: &TcpStream, status: u16, body: &Value, knobs: &Knobs) -> io::Result<()> {
    if knobs.on("garbage") {
        return stream.write_all(b"I am no server of HTTP.\r\n\r\n");
    }
    let mut body = body.to_string();
    if let Some(more) = knobs.number("huge") {
        body.push_str(&" ".repeat(usize::try_from(more).unwrap_or(0)));
    }
    let mut head =
        format!("HTTP/1.1 {status} So\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    for (knob, header) in [("retry_after", "Retry-After"), ("redirect", "Location"), ("link", "Link")] {
        if let Some(value) = knobs.text(knob) {
            head.push_str(&format!("{header}: {value}\r\n"));
        }
    }
    let bytes = format!("{head}Connection: close\r\n\r\n{body}").into_bytes();
    match knobs.number("drip_ms") {
        None => stream.write_all(&bytes),
        Some(ms) => bytes.iter().try_for_each(|byte| {
            thread::sleep(Duration::from_millis(ms));
            stream.write_all(&[*byte])
        }),
    }
}

/// Percent-decoded.
fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, byte == b'%') {
            (_, true) => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                let hex = String::from_utf8(hex).unwrap_or_default();
                out.push(u8::from_str_radix(&hex, 16).unwrap_or(b'?'));
            }
            (byte, false) => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
