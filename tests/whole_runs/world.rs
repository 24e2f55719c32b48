//! A world of its own for each test: a home, a repository made with the real git, an environment that inherits nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No test waits longer than this for anything.
pub const DEADLINE: Duration = Duration::from_mins(1);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A home, a repository, and a place for the test's own files beside them.
pub struct World {
    root: tempfile::TempDir,
    policies: AtomicU32,
    /// More variables for agentrun.
    pub vars: Vec<(String, String)>,
}

/// What one call of agentrun came to.
#[derive(Debug)]
pub struct Output {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

/// An agentrun that works in the background; ended with the test.
pub struct Running {
    child: Option<Child>,
    out: PathBuf,
    err: PathBuf,
}

impl World {
    /// With a repository of one commit and a policy that knows the scripted agent as `fake`.
    pub fn new() -> Self {
        let world = Self::empty();
        world.write("src/lib.txt", "one\n");
        world.write("AGENTS.md", "Be kind.\n");
        world.git(&["add", "src", "AGENTS.md"]);
        world.git(&["commit", "-q", "-m", "first"]);
        world.policy(&[]);
        world
    }

    /// With a repository without a commit.
    pub fn empty() -> Self {
        // Not below the temporary folder, where Codex has no sandbox.
        let root = tempfile::Builder::new().prefix("world").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let world = Self { root, policies: AtomicU32::new(0), vars: Vec::new() };
        fs::create_dir_all(world.repo()).unwrap();
        fs::create_dir_all(world.home()).unwrap();
        let settings = "[user]\n name = Tester\n email = tester@example.invalid\n[init]\n defaultBranch = main\n\
                        [gc]\n auto = 0\n[protocol \"file\"]\n allow = always\n";
        fs::write(world.home().join(".gitconfig"), settings).unwrap();
        world.git(&["init", "-q"]);
        world.write("prompts/do.md", "Do it.\n");
        world
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    /// A file of the test's own, outside of the repository.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The same as text, for scripts.
    pub fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn state(&self, name: &str) -> PathBuf {
        self.repo().join(".ai-runs").join(name)
    }

    /// Writes a file of the repository.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.repo().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.repo().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Makes a gate: scripts that wait for it go on.
    pub fn open(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    pub fn lines(&self, name: &str) -> usize {
        fs::read_to_string(self.path(name)).map_or(0, |text| text.lines().count())
    }

    /// Starts agentrun and waits until something below it makes this file of the test's own.
    pub fn spawn_until(&self, args: &[&str], name: &str) -> Running {
        let mut running = self.spawn(args);
        running.reaches(&self.path(name));
        running
    }

    /// A command in the world: nothing of the test's own environment, in the repository.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.repo()).stdin(Stdio::null());
        command.env("HOME", self.home()).env("PATH", std::env::var_os("PATH").unwrap());
        command.env("LANG", "C.UTF-8").env("GIT_CONFIG_NOSYSTEM", "1").env("TZ", "UTC");
        command.envs(self.vars.iter().map(|(k, v)| (k, v)));
        command
    }

    pub fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.repo(), args)
    }

    pub fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        let out = self.command("git").current_dir(dir).args(args).output().unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }

    /// A policy with these sections in place of the usual ones.
    pub fn policy(&self, sections: &[(&str, &str)]) {
        let fake = env!("CARGO_BIN_EXE_fake-agent");
        let agents = format!(
            "{{ fake: {{ run: [ \"{fake}\" ], protocol: agentrun, env: [ FAKE_AGENT_DEADLINE ] }}, \
             plain: {{ run: [ \"{fake}\" ], protocol: text }} }}"
        );
        let number = self.policies.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = format!("version: t{number}\n");
        let usual = [
            ("agents", agents.as_str()),
            ("budgets", "{ task: { attempts: 3, time: 30m } }"),
            ("retry", "{ base: 10ms, max: 20ms, jitter: 0, total: 10s }"),
            ("timeouts", "{ grace: 500ms, exit: 1s }"),
            // As short as the waits between attempts: a test that is not about holds does not notice them.
            ("breaker", "{ open: 10ms, max: 20ms }"),
        ];
        for (name, value) in usual.iter().filter(|(name, _)| !sections.iter().any(|(n, _)| n == name)) {
            text.push_str(&format!("{name}: {value}\n"));
        }
        for (name, value) in sections {
            text.push_str(&format!("{name}: {value}\n"));
        }
        self.write("automation-policy.yml", &text);
    }

    /// A task from its lines after `task:`.
    pub fn task(&self, id: &str, lines: &str) {
        self.write(&format!("tasks/{id}.yml"), &format!("task: \"{id}\"\n{lines}"));
    }

    /// A task of one agent step with this script, and nothing else.
    pub fn agent_task(&self, id: &str, script: &str) {
        self.task(id, &format!("steps:\n{}", agent_step("code", script)));
    }

    /// A task of one command.
    pub fn command_task(&self, id: &str, line: &str) {
        self.task(id, &format!("steps:\n{}", command_step("work", line)));
    }

    pub fn agentrun(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_agentrun"));
        command.args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        Output::of(self.agentrun(args))
    }

    /// `--json`, and the one document that came of it.
    pub fn json(&self, args: &[&str]) -> (i32, Value) {
        let output = self.run(&[args, &["--json"]].concat());
        (output.exit, output.json())
    }

    pub fn start(&self, task: &str) -> (i32, Value) {
        self.json(&["start", task])
    }

    pub fn show(&self, run: &str) -> Value {
        let (exit, shown) = self.json(&["show", run]);
        assert_eq!(exit, 0, "{shown:#}");
        shown
    }

    /// The words of the events of a run, oldest first.
    pub fn events(&self, run: &str) -> Vec<Value> {
        let (exit, log) = self.json(&["audit", "log", "--run", run]);
        assert_eq!(exit, 0, "{log:#}");
        log["events"].as_array().unwrap().clone()
    }

    /// Whether the log of a run has an event of this kind with this in its reason.
    pub fn has_event(&self, run: &str, kind: &str, reason: &str) -> bool {
        let fits = |e: &Value| e["kind"] == kind && e["reason"].as_str().unwrap_or_default().contains(reason);
        self.events(run).iter().any(fits)
    }

    pub fn spawn(&self, args: &[&str]) -> Running {
        self.spawn_command(self.agentrun(args))
    }

    pub fn spawn_command(&self, mut command: Command) -> Running {
        let mut number = 0;
        let (out, err) = loop {
            let (out, err) = (self.path(&format!("spawned-{number}.out")), self.path(&format!("spawned-{number}.err")));
            if !out.exists() {
                break (out, err);
            }
            number += 1;
        };
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        Running { child: Some(command.spawn().unwrap()), out, err }
    }

    /// Processes that have this world's home in their environment: everything that agentrun started, and agentrun itself.
    pub fn living(&self) -> Vec<i32> {
        let needle = format!("HOME={}", self.home().display()).into_bytes();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<i32>().ok());
        let carries = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|var| var == needle)
        };
        pids.filter(carries).collect()
    }

    /// What must hold after every run: no process is left, the audit chain is whole, no file of the run was changed.
    pub fn assert_sound(&self, run: &str) {
        wait_until("every process is gone", || self.living().is_empty());
        let (exit, log) = self.json(&["audit", "verify"]);
        assert_eq!(exit, 0, "{log:#}");
        let (exit, files) = self.json(&["artifact", "verify", run]);
        assert_eq!(exit, 0, "{files:#}");
    }
}

impl Output {
    pub fn of(mut command: Command) -> Self {
        let out = command.output().unwrap();
        Self {
            exit: out.status.code().unwrap_or_else(|| -out.status.signal().unwrap()),
            stdout: String::from_utf8(out.stdout).unwrap(),
            stderr: String::from_utf8(out.stderr).unwrap(),
        }
    }

    /// Standard output is exactly one document (FR-C22).
    pub fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|e| panic!("{e}: exit {}\n{}\n{}", self.exit, self.stdout, self.stderr))
    }
}

impl Running {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills agentrun alone, as a machine that fails does.
    pub fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Kills it, if it is not over. Says whether it was not, and what it had said to people.
    pub fn kill_and_hear(mut self) -> (bool, String) {
        let killed = !self.is_over();
        let err = self.err.clone();
        self.kill();
        (killed, fs::read_to_string(err).unwrap())
    }

    /// Waits for a file of the test's own that something below this agentrun makes.
    pub fn reaches(&mut self, path: &Path) {
        wait_until(&path.display().to_string(), || {
            let there = path.exists();
            let gone = !there && self.is_over() && !path.exists();
            assert!(!gone, "agentrun ended before {}: {}", path.display(), self.said());
            there
        });
    }

    fn said(&self) -> String {
        [&self.out, &self.err].map(|file| fs::read_to_string(file).unwrap()).concat()
    }

    pub fn is_over(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub fn end(mut self) -> Output {
        wait_until("agentrun ends", || self.is_over());
        let status = self.child.take().unwrap().wait().unwrap();
        Output {
            exit: status.code().unwrap_or_else(|| -status.signal().unwrap()),
            stdout: fs::read_to_string(&self.out).unwrap(),
            stderr: fs::read_to_string(&self.err).unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "did not come: {what}");
        std::thread::sleep(LOOK);
    }
}

/// An agent step that plays this script.
pub fn agent_step(key: &str, script: &str) -> String {
    let script = quoted(script);
    format!(
        "  - key: {key}\n    kind: agent\n    agent: {{ name: fake, args: [ {script} ] }}\n    prompt: prompts/do.md\n"
    )
}

pub fn command_step(key: &str, line: &str) -> String {
    format!("  - key: {key}\n    kind: command\n    run: {}\n", quoted(line))
}

pub fn qa_step(key: &str, line: &str) -> String {
    format!("  - key: {key}\n    kind: qa\n    run: {}\n", quoted(line))
}

/// This many steps that do nothing, without a shell.
pub fn idle_steps(count: usize) -> String {
    let step = |n: usize| format!("  - {{ key: s{n}, kind: command, run: [ \"true\" ] }}\n");
    (0..count).map(step).collect::<Vec<_>>().concat()
}

/// As a YAML text; JSON texts are.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// The step of a document with this key.
pub fn step<'a>(run: &'a Value, key: &str) -> &'a Value {
    let found = run["steps"].as_array().unwrap().iter().find(|s| s["key"] == key);
    found.unwrap_or_else(|| panic!("no step {key}: {run:#}"))
}

/// Key and state of every step.
pub fn states(run: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    run["steps"].as_array().unwrap().iter().map(|s| (text(&s["key"]), text(&s["state"]))).collect()
}

/// The tokens of a run that somebody told: without what is estimated.
pub fn told(run: &Value) -> u64 {
    run["usage"]["tokens"].as_u64().unwrap() - run["usage"]["estimated_tokens"].as_u64().unwrap()
}
