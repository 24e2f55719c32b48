//! The scripted provider for a test: a folder with knobs and ledger, a server on a free port of loopback that dies with the test.
//! What it can be made to do stands at the top of `tests/fakes/fake_provider.rs`. From whole-run tests:
//! `#[path = "../provider/mod.rs"] mod provider;`.
#![allow(dead_code, missing_docs, reason = "shared by several test programs; each uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No test waits longer than this for anything.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The program, for the `run` of a step: `[program, "act", folder]`.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fake-provider");

/// A provider with its own ledger. Without [`Provider::serve`] it is the command twin's alone.
pub struct Provider {
    folder: tempfile::TempDir,
    server: Option<Child>,
    /// Its own among the addresses of loopback: nobody else gets the port of one that was killed.
    host: String,
    port: u16,
}

impl Provider {
    /// For commands: no server.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("provider").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { folder, server: None, host: own_address(), port: 0 }
    }

    /// With a server that listens already.
    pub fn serving() -> Self {
        let mut provider = Self::new();
        provider.serve();
        provider
    }

    /// With a server at this address.
    pub fn serving_at(host: &str) -> Self {
        let mut provider = Self::new();
        host.clone_into(&mut provider.host);
        provider.serve();
        provider
    }

    /// Starts the server; after [`Provider::kill`] on the same port, with the same ledger.
    pub fn serve(&mut self) {
        let _ = fs::remove_file(self.path("port"));
        let mut command = Command::new(PROGRAM);
        let address = format!("{}:{}", self.host, self.port);
        command.arg("serve").arg(self.folder()).arg(address).stdin(Stdio::null());
        self.server = Some(command.spawn().unwrap());
        self.wait("the server listens", |provider| provider.path("port").exists());
        self.port = fs::read_to_string(self.path("port")).unwrap().parse().unwrap();
    }

    /// Ends the server at once.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// A path in the folder, as text for a knob.
    pub fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// An address of the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}:{}{path}", self.host, self.port)
    }

    /// Sets all knobs anew.
    pub fn knobs(&self, knobs: Value) {
        let _ = fs::remove_file(self.path("count"));
        fs::write(self.path("knobs.new"), knobs.to_string()).unwrap();
        fs::rename(self.path("knobs.new"), self.path("knobs.json")).unwrap();
    }

    /// What waits for this file goes on.
    pub fn open(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// Everything that really happened.
    pub fn ledger(&self) -> Vec<Value> {
        self.lines("ledger.jsonl")
    }

    /// How often something happened under a key.
    pub fn effects_of(&self, key: &str) -> usize {
        self.ledger().iter().filter(|effect| effect["key"] == key).count()
    }

    /// Everything that arrived, whether something happened or not.
    pub fn requests(&self) -> Vec<Value> {
        self.lines("requests.jsonl")
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until a request has arrived.
    pub fn wait_for_request(&self) {
        self.wait("a request arrives", |provider| !provider.requests().is_empty());
    }

    /// Waits until something holds.
    pub fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < DEADLINE, "in vain: {what}");
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address of loopback that no other provider of any test has.
fn own_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{}", 1 + (process >> 8) % 250, process % 250, 2 + n % 250)
}
