//! The real Codex against the scripted model (`tests/agents/README.md` says how to get it). Each test shows that the
//! command line works and that the reader, fed live, tells what the model's server handed out. With
//! `AGENTRUN_RECORD=1` each case is also written to `tests/agents/codex/`, where `codex_recorded.rs` reads it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests; the lint knows test functions only")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use agentrun::agents::{self, AgentEnd, AgentRequest, InspectRequest, Progress, ReaderRequest, SessionFate};
use agentrun::domain::agent_event::AgentEvent;
use agentrun::domain::failure::Code;
use agentrun::domain::outcome::ProcessEnd;
use agentrun::domain::policy::{AgentHome, AgentRules};
use agentrun::domain::quantity::UtcMs;
use agentrun::domain::task::{AgentSpec, Protocol};
use agentrun::process::spec::Stdin;
use rustix::process::Signal;
use serde_json::Value;

/// A folder of its own, a model server, and what the engine would know.
struct World {
    root: PathBuf,
    scenario: String,
    server: Child,
    port: u16,
    rules: AgentRules,
    env: BTreeMap<OsString, OsString>,
    args: Vec<String>,
    model: &'static str,
    key: &'static str,
    workspace: &'static str,
}

/// What one execution of Codex gave.
struct Seen {
    events: Vec<AgentEvent>,
    end: AgentEnd,
    process: ProcessEnd,
    stdout: String,
    stderr: String,
    args: Vec<OsString>,
}

fn agents_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents")
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} did not come", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl World {
    fn new(name: &str, scenario: &str) -> Self {
        // Not below the temporary folder, where Codex has no sandbox.
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codex-live").join(name);
        let _ = fs::remove_dir_all(&root);
        for folder in ["repo/src", "home", "gates"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("prompt.md"), "Do the scripted thing.\n").unwrap();
        let mut rules = AgentRules::known(Protocol::Codex);
        rules.home = AgentHome::Private;
        rules.bin = Some(agents_folder().join("node_modules/.bin/codex").display().to_string());
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("MODEL_KEY", "secret-key"), ("LANG", "C.UTF-8")];
        let mut env: BTreeMap<OsString, OsString> = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        env.insert("HOME".into(), root.join("home").into());
        let (server, port) = serve(&root, scenario);
        Self {
            root,
            scenario: scenario.to_owned(),
            server,
            port,
            rules,
            env,
            args: Vec::new(),
            model: "mock-model",
            key: "model_providers.mock.env_key=MODEL_KEY",
            workspace: "repo",
        }
    }

    /// The same folder, another scenario.
    fn change(&mut self, scenario: &str) {
        self.stop_server();
        (self.server, self.port) = serve(&self.root, scenario);
        scenario.clone_into(&mut self.scenario);
    }

    fn stop_server(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn agent(&self) -> AgentSpec {
        let url = format!("model_providers.mock.base_url=\"http://127.0.0.1:{}/v1\"", self.port);
        let settings = [
            "model_provider=mock",
            "model_providers.mock.name=mock",
            "model_providers.mock.wire_api=responses",
            self.key,
            "model_providers.mock.request_max_retries=1",
            "model_providers.mock.stream_max_retries=1",
            &url,
        ];
        let mut args: Vec<String> = settings.iter().flat_map(|s| ["-c".to_owned(), (*s).to_owned()]).collect();
        args.extend(self.args.iter().cloned());
        let (name, model) = ("codex".to_owned(), Some(self.model.to_owned()));
        AgentSpec { name, protocol: Protocol::Codex, model, args, events: None, patch: None }
    }

    fn reader_request<'a>(&'a self, session: Option<&'a str>, home: &'a Path) -> ReaderRequest<'a> {
        ReaderRequest {
            protocol: Protocol::Codex,
            session,
            env: &self.env,
            private_home: home,
            rules: &self.rules,
            execution: 1,
            prompt_bytes: 300,
        }
    }

    /// A command of Codex that is not a run.
    fn probe(&self) -> ProcessEnd {
        let (agent, home) = (self.agent(), self.path("codex-home"));
        let workspace = self.path("repo");
        let request = AgentRequest {
            agent: &agent,
            rules: &self.rules,
            workspace: &workspace,
            repository: &workspace,
            prompt_file: &self.path("prompt.md"),
            session: None,
            private_home: &home,
            env: &self.env,
            own_program: Path::new("/none"),
            tools: None,
        };
        let command = agents::probe(&request).unwrap().unwrap();
        command.folders.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        let mut child = Command::new(&command.program);
        child.args(&command.args).env_clear().envs(&self.env).envs(command.env).current_dir(&workspace);
        ProcessEnd::Exited { code: child.stdin(Stdio::null()).status().unwrap().code().unwrap() }
    }

    fn run(&self, session: Option<&str>) -> Seen {
        self.run_until(session, None)
    }

    /// Runs Codex; sends it the signal when the file appears.
    fn run_until(&self, session: Option<&str>, stop: Option<(&str, Signal)>) -> Seen {
        let agent = self.agent();
        let (workspace, repository, prompt) = (self.path(self.workspace), self.path("repo"), self.path("prompt.md"));
        let private_home = self.path("codex-home");
        let request = AgentRequest {
            agent: &agent,
            rules: &self.rules,
            workspace: &workspace,
            repository: &repository,
            prompt_file: &prompt,
            session,
            private_home: &private_home,
            env: &self.env,
            own_program: Path::new("/none"),
            tools: None,
        };
        let command = agents::command(&request).unwrap();
        assert!(command.program.ends_with("bin/codex"), "the native binary: {}", command.program.display());
        let mut reader = agents::reader(&self.reader_request(session, &private_home));
        command.folders.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
        let Stdin::File(prompt) = &command.stdin else { panic!("no prompt") };
        // Two executions at once must not share it.
        let stderr_file = self.path(&format!("stderr-{:?}.txt", std::thread::current().id()));
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(&self.env)
            .envs(command.env.iter().map(|(k, v)| (k, v)))
            .current_dir(&workspace)
            .stdin(fs::File::open(prompt).unwrap())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&stderr_file).unwrap())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| tell.send(line.unwrap())));
        let (mut events, mut text) = (Vec::new(), String::new());
        let mut sent = false;
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            match lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                    events.extend(reader.stdout_line(line.as_bytes()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => events.extend(reader.side_files()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if let Some((_, signal)) = stop.filter(|(name, _)| !sent && self.path(name).exists()) {
                let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
                rustix::process::kill_process(pid, signal).unwrap();
                sent = true;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        events.extend(reader.side_files());
        let process = match status.code() {
            Some(code) => ProcessEnd::Exited { code },
            None => ProcessEnd::Signalled { signal: status.signal().unwrap() },
        };
        let stderr = fs::read_to_string(&stderr_file).unwrap();
        let end = reader.finish(&process, &stderr);
        Seen { events, end, process, stdout: text, stderr, args: command.args }
    }

    fn inspect(&self, session: Option<&str>, started_at: Option<i64>) -> agents::Inspection {
        let (home, workspace) = (self.path("codex-home"), self.path("repo"));
        let reader = self.reader_request(session, &home);
        let started_at = started_at.map(UtcMs);
        agents::inspect(&InspectRequest { reader, workspace: &workspace, started_at, transcript: None }).unwrap()
    }

    /// What the model's server handed out, all calls together: input and output.
    fn handed_out(&self) -> (u64, u64) {
        let log = fs::read_to_string(self.path("requests.jsonl")).unwrap();
        let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let sum = |a: (u64, u64), t: Value| (a.0 + t["in"].as_u64().unwrap_or(0), a.1 + t["out"].as_u64().unwrap_or(0));
        records.map(|r| r["tokens"].clone()).fold((0, 0), sum)
    }

    fn calls(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.path("requests.jsonl")).unwrap();
        let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|r| r["event"] == "request").collect()
    }

    /// Keeps the case as a recording.
    fn record(&self, case: &str, seen: &Seen) {
        if std::env::var_os("AGENTRUN_RECORD").is_none() {
            return;
        }
        let folder = agents_folder().join("codex").join(case);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("sessions")).unwrap();
        let clean = |text: &str| text.replace(&self.root.display().to_string(), "$WORLD");
        fs::write(folder.join("stdout.jsonl"), clean(&seen.stdout)).unwrap();
        fs::write(folder.join("stderr.txt"), clean(&seen.stderr)).unwrap();
        fs::write(folder.join("requests.jsonl"), clean(&fs::read_to_string(self.path("requests.jsonl")).unwrap()))
            .unwrap();
        let args: Vec<String> = seen.args.iter().map(|a| clean(&a.to_string_lossy())).collect();
        let meta = serde_json::json!({ "scenario": self.scenario, "args": args, "end": seen.process });
        fs::write(folder.join("meta.json"), format!("{meta:#}\n")).unwrap();
        for file in session_files(&self.path("codex-home/sessions")) {
            let text = clean(&fs::read_to_string(&file).unwrap());
            let lines: String = text.split_inclusive('\n').map(shortened).collect();
            fs::write(folder.join("sessions").join(file.file_name().unwrap()), lines).unwrap();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop_server();
    }
}

fn serve(root: &Path, scenario: &str) -> (Child, u16) {
    let port_file = root.join("port");
    let _ = fs::remove_file(&port_file);
    let server = Command::new("python3")
        .arg(agents_folder().join("mock_model.py"))
        .arg("--scenario")
        .arg(agents_folder().join("scenarios").join(format!("{scenario}.json")))
        .arg("--port-file")
        .arg(&port_file)
        .arg("--log")
        .arg(root.join("requests.jsonl"))
        .arg("--gates")
        .arg(root.join("gates"))
        .spawn()
        .unwrap();
    wait_for(&port_file);
    (server, fs::read_to_string(&port_file).unwrap().trim().parse().unwrap())
}

fn session_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { session_files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// Session files hold the agent's whole instructions and settings: the shape is kept, not the prose.
fn shortened(line: &str) -> String {
    fn shorten(value: &mut Value) {
        match value {
            Value::String(text) if text.len() > 300 => {
                *text = format!("{}…", text.chars().take(200).collect::<String>());
            }
            Value::Array(list) => list.iter_mut().for_each(shorten),
            Value::Object(map) => map.values_mut().for_each(shorten),
            _ => {}
        }
    }
    let Ok(mut value) = serde_json::from_str::<Value>(line) else { return line.to_owned() };
    let settings = ["world_state", "turn_context"].iter().any(|kind| value["type"] == *kind);
    if settings || value["payload"]["type"] == "thread_settings_applied" {
        let kept = ["type", "turn_id", "thread_id", "cwd", "model"];
        value["payload"].as_object_mut().unwrap().retain(|key, _| kept.contains(&key.as_str()));
    }
    shorten(&mut value);
    format!("{value}\n")
}

fn usage(events: &[AgentEvent]) -> (u64, u64) {
    let mut by_name = BTreeMap::new();
    for event in events {
        if let AgentEvent::Usage(metered) = event {
            by_name.insert(metered.response.clone(), (metered.input, metered.output));
        }
    }
    by_name.values().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

fn calls(events: &[AgentEvent]) -> usize {
    events.iter().filter(|e| matches!(e, AgentEvent::ToolCall { .. })).count()
}

fn session(events: &[AgentEvent]) -> String {
    let id = events.iter().find_map(|e| if let AgentEvent::Session { id, .. } = e { Some(id.clone()) } else { None });
    id.expect("a session")
}

fn code(seen: &Seen) -> Option<Code> {
    seen.end.failure.as_ref().map(|f| f.code)
}

#[test]
#[ignore = "needs the real Codex"]
fn a_first_run_works_and_spends_what_the_server_handed_out() {
    let world = World::new("success", "success");
    let seen = world.run(None);
    world.record("success", &seen);
    assert_eq!(seen.end.failure, None, "{}", seen.stderr);
    assert_eq!(seen.end.result.as_deref(), Some("Done: hello.txt created."));
    assert_eq!((usage(&seen.events), calls(&seen.events)), (world.handed_out(), 2));
    assert_eq!(fs::read_to_string(world.path("repo/hello.txt")).unwrap(), "hello world\n");
    assert!(world.calls().iter().all(|call| call["key"] == true));
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_f5_a_continued_conversation_counts_only_what_is_new() {
    let mut world = World::new("resume", "chat");
    let first = world.run(None);
    let id = session(&first.events);
    assert_eq!(usage(&first.events), (100, 10));
    world.change("success");
    let second = world.run(Some(&id));
    world.record("resume", &second);
    assert_eq!(session(&second.events), id);
    assert_eq!(second.end.failure, None, "{}", second.stderr);
    assert_eq!((usage(&second.events), calls(&second.events)), ((6000, 180), 2));
    // Looked at from outside, both executions are there, and named as each told them.
    let seen = world.inspect(Some(&id), None);
    assert_eq!((usage(&seen.events), calls(&seen.events)), (world.handed_out(), 2));
    let told: Vec<_> = first.events.iter().chain(&second.events).collect();
    let recorded = |e: &&AgentEvent| matches!(e, AgentEvent::Usage(_) | AgentEvent::ToolCall { .. });
    assert!(seen.events.iter().filter(recorded).all(|event| told.contains(&event)));
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_d4_an_unknown_conversation_is_lost_and_costs_nothing() {
    let world = World::new("resume-unknown", "chat");
    let seen = world.run(Some("01234567-89ab-7def-8123-456789abcdef"));
    world.record("resume_unknown", &seen);
    assert_eq!((code(&seen), seen.end.session), (Some(Code::AgentStartFailed), SessionFate::Lost), "{}", seen.stderr);
    assert!(!world.path("requests.jsonl").exists() || world.calls().is_empty());
}

#[test]
#[ignore = "needs the real Codex"]
fn each_failure_of_a_provider_has_its_code() {
    let table = [
        ("http_429_forever", Code::RateLimit),
        ("http_429_quota", Code::QuotaExceeded),
        ("http_400", Code::ValidationError),
        ("http_401", Code::AuthFailed),
        ("http_403", Code::PermissionDenied),
        ("http_404_model", Code::ResourceNotFound),
        ("http_500_forever", Code::TemporaryProviderError),
        ("quota", Code::QuotaExceeded),
        ("quota_with_reset", Code::RateLimit),
        ("rate_limit_told", Code::RateLimit),
        ("context_too_large", Code::ContextTooLarge),
        ("incomplete", Code::AgentFailed),
        ("drop_forever", Code::TemporaryProviderError),
    ];
    let mut wrong = Vec::new();
    for (scenario, expected) in table {
        let world = World::new(scenario, scenario);
        let seen = world.run(None);
        world.record(scenario, &seen);
        let errors = seen.events.iter().filter(|e| matches!(e, AgentEvent::Error(_))).count();
        println!("{scenario}: {:?} calls {}", seen.end.failure, world.calls().len());
        if (code(&seen), errors) != (Some(expected), 1) {
            wrong.push(format!("{scenario}: {:?} {errors}\n{}", seen.end, seen.stdout));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs the real Codex"]
fn a_refused_connection_ends_at_once() {
    let mut world = World::new("refused", "chat");
    world.stop_server();
    let seen = world.run(None);
    world.record("refused", &seen);
    assert_eq!(code(&seen), Some(Code::NetworkTimeout), "{:?}", seen.end);
}

#[test]
#[ignore = "needs the real Codex"]
fn a_limit_that_passes_is_waited_for_by_codex_itself() {
    let world = World::new("http_429_once", "http_429_once");
    let seen = world.run(None);
    world.record("http_429_once", &seen);
    assert_eq!((seen.end.failure, world.calls().len()), (None, 2));
    assert!(seen.events.iter().any(|e| matches!(e, AgentEvent::Warning { text } if text.contains("Reconnecting"))));
}

#[test]
#[ignore = "needs the real Codex"]
fn r_w4_a_killed_execution_can_be_continued_and_nothing_is_counted_twice() {
    let mut world = World::new("killed", "slow_then_finish");
    let before = 1;
    let killed = world.run_until(None, Some(("gates/reached", Signal::KILL)));
    world.record("killed", &killed);
    assert_eq!(killed.process, ProcessEnd::Signalled { signal: 9 });
    assert_eq!(code(&killed), Some(Code::WorkerCrash));
    let id = session(&killed.events);
    let seen = world.inspect(Some(&id), Some(before));
    assert_eq!(seen.progress, Progress::Continuable);
    assert_eq!((usage(&seen.events), calls(&seen.events)), (usage(&killed.events), calls(&killed.events)));
    fs::write(world.path("gates/go"), "").unwrap();
    world.change("slow_then_finish");
    fs::remove_file(world.path("gates/reached")).unwrap();
    let second = world.run(Some(&id));
    world.record("killed_then_continued", &second);
    assert_eq!(second.end.failure, None, "{}", second.stderr);
    let (a, b) = (usage(&killed.events), usage(&second.events));
    assert_eq!((a.0 + b.0, a.1 + b.1), world.handed_out());
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_c4_a_kill_during_a_command_is_no_success() {
    let world = World::new("killed-in-command", "slow_command");
    let killed = world.run_until(None, Some(("repo/reached.txt", Signal::KILL)));
    world.record("killed_in_command", &killed);
    assert_eq!((calls(&killed.events), code(&killed)), (1, Some(Code::WorkerCrash)));
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_d1_a_conversation_whose_id_was_never_recorded_is_found() {
    let world = World::new("unrecorded", "success");
    let now = || i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let began = now();
    let live = world.run(None);
    let seen = world.inspect(None, Some(began));
    assert_eq!(session(&seen.events), session(&live.events));
    assert!(
        matches!(&seen.progress, Progress::Finished(end) if end.failure.is_none() && end.result == live.end.result)
    );
    assert_eq!(usage(&seen.events), usage(&live.events));
    assert!(seen.last_record_at.is_some_and(|at| at >= began));
    assert_eq!(world.inspect(None, Some(now())).progress, Progress::Lost, "begun before");
    let later = world.inspect(Some(&session(&live.events)), Some(now())).progress;
    assert_eq!(later, Progress::Continuable, "a turn of an earlier execution is not this one's end");
}

#[test]
#[ignore = "needs the real Codex"]
fn sub_agents_are_summed_up() {
    let world = World::new("subagent", "subagent");
    let seen = world.run(None);
    world.record("subagent", &seen);
    println!("{:?}\n{}", seen.end, seen.stdout);
    assert_eq!(usage(&seen.events), world.handed_out());
    assert_eq!(calls(&seen.events), 3);
}

#[test]
#[ignore = "needs the real Codex"]
fn tools_that_standard_output_does_not_show_are_counted() {
    for (scenario, expected_calls, expected) in [
        ("invisible_tools", 4, None),
        ("failing_tools", 2, Some(Code::AllToolsFailed)),
        ("web_search", 1, None),
        ("parallel", 3, None),
        ("drop_after_tool", 1, None),
        ("empty_reply", 0, Some(Code::NoResult)),
        ("no_usage", 0, None),
    ] {
        let world = World::new(scenario, scenario);
        let seen = world.run(None);
        world.record(scenario, &seen);
        println!(
            "{scenario}: {:?} {:?}",
            seen.end,
            seen.events.iter().filter(|e| matches!(e, AgentEvent::ToolResult { .. })).collect::<Vec<_>>()
        );
        assert_eq!((calls(&seen.events), code(&seen)), (expected_calls, expected), "{scenario}\n{}", seen.stdout);
        assert_eq!(usage(&seen.events), world.handed_out(), "{scenario}");
    }
}

#[test]
#[ignore = "needs the real Codex"]
fn scripts_of_the_model_count_once_and_succeed_by_what_is_in_them() {
    let mut world = World::new("code_mode", "success");
    world.model = "gpt-6.1-sol";
    let seen = world.run(None);
    world.record("code_mode", &seen);
    assert_eq!((calls(&seen.events), code(&seen)), (2, None), "{}", seen.stdout);
    let mut world = World::new("failing_scripts", "failing_scripts");
    world.model = "gpt-6.1-sol";
    let seen = world.run(None);
    world.record("failing_scripts", &seen);
    assert_eq!((calls(&seen.events), code(&seen)), (2, Some(Code::AllToolsFailed)), "{}", seen.stdout);
}

#[test]
#[ignore = "needs the real Codex"]
fn commands_see_a_temporary_folder_of_their_own_and_no_key() {
    let world = World::new("sandbox", "sandbox");
    let seen = world.run(None);
    println!("{}\n{}", seen.stdout, seen.stderr);
    let results: Vec<_> = seen
        .events
        .iter()
        .filter_map(|e| if let AgentEvent::ToolResult { ok, .. } = e { Some(*ok) } else { None })
        .collect();
    assert_eq!(results, [Some(true), Some(false), Some(true)]);
}

#[test]
#[ignore = "needs the real Codex"]
fn a_program_that_refuses_its_arguments_never_began() {
    let mut world = World::new("bad_flag", "chat");
    world.args = vec!["--no-such-flag".to_owned()];
    let seen = world.run(None);
    world.record("bad_flag", &seen);
    assert_eq!(code(&seen), Some(Code::AgentStartFailed), "{:?}", seen.end);
    println!("{:?}", seen.end);
}

#[test]
#[ignore = "needs the real Codex"]
fn the_users_login_is_used_and_its_configuration_is_not() {
    let mut world = World::new("user_home", "chat");
    world.rules.home = AgentHome::User;
    let home = world.path("home/.codex");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("config.toml"), "approval_policy = \"sometimes\"\n").unwrap();
    let seen = world.run(None);
    assert_eq!(seen.end.failure, None, "{}", seen.stderr);
    assert_eq!(session_files(&home.join("sessions")).len(), 1);
}

#[test]
#[ignore = "needs the real Codex"]
fn the_sandbox_can_be_asked_for_before_a_run() {
    assert_eq!(World::new("probe", "chat").probe(), ProcessEnd::Exited { code: 0 });
}

#[test]
#[ignore = "needs the real Codex"]
fn a_private_home_takes_the_key_that_everybody_sets() {
    let mut world = World::new("key", "chat");
    world.env.remove(&OsString::from("MODEL_KEY"));
    world.env.insert("OPENAI_API_KEY".into(), "secret-key".into());
    world.args = vec!["-c".to_owned(), "model_providers.mock.requires_openai_auth=true".to_owned()];
    world.key = "model_providers.mock.name=mock";
    let seen = world.run(None);
    assert_eq!(seen.end.failure, None, "{}", seen.stderr);
    assert!(world.calls().iter().all(|call| call["key"] == true));
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_d13_a_conversation_that_another_process_holds_is_busy() {
    let mut world = World::new("held", "chat");
    let id = session(&world.run(None).events);
    world.change("slow_then_finish");
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| world.run(Some(&id)));
        wait_for(&world.path("gates/reached"));
        let second = world.run(Some(&id));
        world.record("held", &second);
        assert_eq!((code(&second), second.end.session), (Some(Code::Busy), SessionFate::Held), "{}", second.stderr);
        fs::write(world.path("gates/go"), "").unwrap();
        assert_eq!(holder.join().unwrap().end.failure, None);
    });
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_d8_a_continued_conversation_works_where_it_is_told_to() {
    let mut world = World::new("moved", "chat");
    let id = session(&world.run(None).events);
    world.change("success");
    fs::rename(world.path("repo"), world.path("elsewhere")).unwrap();
    fs::create_dir(world.path("repo")).unwrap();
    world.workspace = "elsewhere";
    assert_eq!(world.run(Some(&id)).end.failure, None);
    assert!(world.path("elsewhere/hello.txt").exists() && !world.path("repo/hello.txt").exists());
}

#[test]
#[ignore = "needs the real Codex"]
fn the_polite_signal_ends_it_at_once_and_the_conversation_goes_on() {
    let mut world = World::new("interrupted", "slow_command");
    let seen = world.run_until(None, Some(("repo/reached.txt", Signal::INT)));
    world.record("interrupted", &seen);
    assert_eq!((seen.process.clone(), code(&seen)), (ProcessEnd::Exited { code: 1 }, Some(Code::Interrupted)));
    let id = session(&seen.events);
    assert_eq!(world.inspect(Some(&id), None).progress, Progress::Continuable);
    world.change("success");
    assert_eq!(world.run(Some(&id)).end.failure, None);
}

#[test]
#[ignore = "needs the real Codex"]
fn r_r2_an_agent_that_is_sent_back_corrects_itself_in_the_same_conversation() {
    let world = World::new("sent_back", "qa_fixed_on_second_round");
    let answer = || fs::read_to_string(world.path("repo/answer.txt")).unwrap();
    let first = world.run(None);
    assert_eq!((first.end.failure, answer().as_str()), (None, "41\n"));
    fs::write(world.path("prompt.md"), "The check is red: expected 42, found 41.\n").unwrap();
    let second = world.run(Some(&session(&first.events)));
    assert_eq!((second.end.failure, answer().as_str()), (None, "42\n"));
    let handed_over =
        world.calls().iter().filter(|call| call["last_input"].as_str().unwrap().contains("check is red")).count();
    assert_eq!(handed_over, 1);
}

#[test]
#[ignore = "needs the real Codex"]
fn fr_a1_an_agent_that_never_answers_is_stopped_by_the_polite_signal() {
    let world = World::new("hang", "hang_request");
    let seen = world.run_until(None, Some(("gates/reached", Signal::INT)));
    assert_eq!(code(&seen), Some(Code::Interrupted), "{:?}", seen.end);
}

#[test]
#[ignore = "needs the real Codex"]
fn r_r4_spending_and_calls_are_told_while_the_agent_works() {
    let world = World::new("endless", "endless_tools");
    let seen = world.run_until(None, Some(("repo/enough", Signal::INT)));
    assert!(usage(&seen.events).0 >= 3000 && calls(&seen.events) >= 2, "{}", seen.stdout);
    assert_eq!(usage(&seen.events), world.handed_out());
}
