//! Recordings of the real Codex (made by `codex_live.rs`), read again without it: tokens, tools, codes, and the laws that
//! hold for every stream, whole or broken.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests; the lint knows test functions only")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use agentrun::agents::{self, AgentEnd, InspectRequest, Inspection, Progress, Reader, ReaderRequest, SessionFate};
use agentrun::domain::agent_event::AgentEvent;
use agentrun::domain::failure::Code;
use agentrun::domain::outcome::{ProcessEnd, TimeoutLayer};
use agentrun::domain::policy::{AgentHome, AgentRules};
use agentrun::domain::quantity::{Millis, UtcMs};
use agentrun::domain::task::Protocol;
use proptest::prelude::*;
use serde_json::Value;

/// A home of Codex in which a recording is played.
struct Stage {
    home: tempfile::TempDir,
    rules: AgentRules,
    env: BTreeMap<OsString, OsString>,
}

fn folder(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents/codex").join(case)
}

fn read(case: &str, file: &str) -> String {
    fs::read_to_string(folder(case).join(file)).unwrap()
}

/// The session files of a case, the main one first.
fn sessions(case: &str) -> Vec<(OsString, Vec<u8>)> {
    // A case that ended before Codex began a conversation has no folder of them.
    let folder = fs::read_dir(folder(case).join("sessions")).into_iter().flatten();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap())).collect()
}

fn end_of(case: &str) -> ProcessEnd {
    let meta: Value = serde_json::from_str(&read(case, "meta.json")).unwrap();
    serde_json::from_value(meta["end"].clone()).unwrap()
}

fn thread(case: &str) -> String {
    let line: Value = serde_json::from_str(read(case, "stdout.jsonl").lines().next().unwrap()).unwrap();
    line["thread_id"].as_str().unwrap().to_owned()
}

impl Stage {
    fn new() -> Self {
        let mut rules = AgentRules::known(Protocol::Codex);
        rules.home = AgentHome::Private;
        Self { home: tempfile::tempdir().unwrap(), rules, env: BTreeMap::new() }
    }

    fn append(&self, name: &OsString, bytes: &[u8]) {
        let day = self.home.path().join("sessions/2026/11/30");
        fs::create_dir_all(&day).unwrap();
        let mut file = OpenOptions::new().create(true).append(true).open(day.join(name)).unwrap();
        file.write_all(bytes).unwrap();
    }

    /// All session files of a case, whole.
    fn put(&self, case: &str) {
        for (name, bytes) in sessions(case) {
            self.append(&name, &bytes);
        }
    }

    fn request<'a>(&'a self, session: Option<&'a str>) -> ReaderRequest<'a> {
        let (env, private_home, rules) = (&self.env, self.home.path(), &self.rules);
        ReaderRequest { protocol: Protocol::Codex, session, env, private_home, rules, execution: 1, prompt_bytes: 300 }
    }

    fn reader(&self, session: Option<&str>) -> Box<dyn Reader> {
        agents::reader(&self.request(session))
    }

    fn inspect(&self, session: Option<&str>, started_at: Option<i64>) -> Inspection {
        let (reader, started_at) = (self.request(session), started_at.map(UtcMs));
        let workspace = Path::new("$WORLD/repo");
        agents::inspect(&InspectRequest { reader, workspace, started_at, transcript: None }).unwrap()
    }
}

/// Plays a case as it happened; the first `old_turns` turns of the session file are there before.
fn play(case: &str, old_turns: usize) -> (Stage, Vec<AgentEvent>, AgentEnd) {
    let stage = Stage::new();
    let mut rest = Vec::new();
    for (i, (name, bytes)) in sessions(case).into_iter().enumerate() {
        let old = if i == 0 { bytes_of_turns(&bytes, old_turns) } else { 0 };
        if old > 0 {
            stage.append(&name, &bytes[..old]);
        }
        rest.push((name, bytes[old..].to_vec()));
    }
    let id = (old_turns > 0).then(|| thread(case));
    let mut reader = stage.reader(id.as_deref());
    for (name, bytes) in &rest {
        stage.append(name, bytes);
    }
    let (events, end) = finish(case, reader.as_mut());
    (stage, events, end)
}

fn finish(case: &str, reader: &mut dyn Reader) -> (Vec<AgentEvent>, AgentEnd) {
    let mut events = Vec::new();
    for line in read(case, "stdout.jsonl").lines() {
        events.extend(reader.stdout_line(line.as_bytes()));
    }
    events.extend(reader.side_files());
    let end = reader.finish(&end_of(case), &read(case, "stderr.txt"));
    (events, end)
}

/// Where the turn after the first `turns` begins.
fn bytes_of_turns(bytes: &[u8], turns: usize) -> usize {
    let mut seen = 0;
    let mut at = 0;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        seen += usize::from(line.windows(14).any(|w| w == b"\"task_started\""));
        if seen > turns {
            return if turns == 0 { 0 } else { at };
        }
        at += line.len();
    }
    panic!("no turn {turns}");
}

fn usage(events: &[AgentEvent]) -> (u64, u64) {
    let metered = |event: &AgentEvent| match event {
        AgentEvent::Usage(metered) => Some((metered.response.clone(), (metered.input, metered.output))),
        _ => None,
    };
    let by_name: BTreeMap<_, _> = events.iter().filter_map(metered).collect();
    by_name.values().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

fn calls(events: &[AgentEvent]) -> usize {
    events.iter().filter(|e| matches!(e, AgentEvent::ToolCall { .. })).count()
}

fn handed_out(case: &str) -> (u64, u64) {
    let log = read(case, "requests.jsonl");
    let tokens = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["tokens"].clone());
    tokens.fold((0, 0), |a, t| (a.0 + t["in"].as_u64().unwrap_or(0), a.1 + t["out"].as_u64().unwrap_or(0)))
}

#[test]
fn r_r1_every_recorded_end_has_its_code_and_its_count_of_tools() {
    let table = [
        ("success", 2, None),
        ("code_mode", 2, None),
        ("parallel", 3, None),
        ("web_search", 1, None),
        ("subagent", 3, None),
        ("invisible_tools", 4, None),
        ("drop_after_tool", 1, None),
        ("http_429_once", 0, None),
        ("no_usage", 0, None),
        ("failing_tools", 2, Some(Code::AllToolsFailed)),
        ("failing_scripts", 2, Some(Code::AllToolsFailed)),
        ("empty_reply", 0, Some(Code::NoResult)),
        ("interrupted", 1, Some(Code::Interrupted)),
        ("killed", 1, Some(Code::WorkerCrash)),
        ("killed_in_command", 1, Some(Code::WorkerCrash)),
        ("http_429_forever", 0, Some(Code::RateLimit)),
        ("rate_limit_told", 0, Some(Code::RateLimit)),
        ("quota_with_reset", 0, Some(Code::RateLimit)),
        ("quota", 0, Some(Code::QuotaExceeded)),
        ("http_429_quota", 0, Some(Code::QuotaExceeded)),
        ("http_400", 0, Some(Code::ValidationError)),
        ("http_401", 0, Some(Code::AuthFailed)),
        ("http_403", 0, Some(Code::PermissionDenied)),
        ("http_404_model", 0, Some(Code::ResourceNotFound)),
        ("http_500_forever", 0, Some(Code::TemporaryProviderError)),
        ("drop_forever", 0, Some(Code::TemporaryProviderError)),
        ("refused", 0, Some(Code::NetworkTimeout)),
        ("context_too_large", 0, Some(Code::ContextTooLarge)),
        ("incomplete", 0, Some(Code::AgentFailed)),
        ("bad_flag", 0, Some(Code::AgentStartFailed)),
    ];
    for (case, tools, code) in table {
        let (_stage, events, end) = play(case, 0);
        assert_eq!((calls(&events), end.failure.map(|f| f.code)), (tools, code), "{case}");
    }
}

#[test]
fn r_r4_tokens_are_what_the_models_server_handed_out() {
    for entry in fs::read_dir(folder("")).unwrap() {
        let case = entry.unwrap().file_name().into_string().unwrap();
        if sessions(&case).is_empty() || !folder(&case).join("requests.jsonl").exists() {
            continue;
        }
        let (stage, events, _) = play(&case, 0);
        let id = sessions(&case)[0].0.to_string_lossy()[28..64].to_owned();
        let seen = stage.inspect(Some(&id), None);
        assert_eq!(usage(&seen.events), handed_out(&case), "{case}, from outside");
        if !matches!(case.as_str(), "resume" | "killed_then_continued" | "held") {
            assert_eq!(usage(&events), handed_out(&case), "{case}, live");
        }
    }
}

#[test]
fn fr_f5_a_continued_conversation_tells_only_what_is_new() {
    let (_stage, events, end) = play("resume", 1);
    assert_eq!((usage(&events), calls(&events), end.failure), ((6000, 180), 2, None));
    let (_stage, events, end) = play("killed_then_continued", 1);
    assert_eq!(end.failure, None);
    let before = usage(&play("killed", 0).1);
    let (a, b) = (usage(&events), handed_out("killed_then_continued"));
    assert_eq!((a.0 + before.0, a.1 + before.1), b);
}

#[test]
fn fr_d4_d13_a_refusal_to_continue_says_what_became_of_the_conversation() {
    let lost = (SessionFate::Lost, Code::AgentStartFailed);
    let cases = [("resume_unknown", lost), ("resume_empty", lost), ("held", (SessionFate::Held, Code::Busy))];
    for (case, (fate, code)) in cases {
        let stage = Stage::new();
        let mut reader = stage.reader(Some("01234567-89ab-7def-8123-456789abcdef"));
        let (events, end) = finish(case, reader.as_mut());
        assert_eq!((events, end.session, end.failure.map(|f| f.code)), (vec![], fate, Some(code)), "{case}");
    }
}

#[test]
fn another_conversation_than_the_wanted_one_is_a_failure_at_once() {
    let stage = Stage::new();
    let mut reader = stage.reader(Some("01234567-89ab-7def-8123-456789abcdef"));
    let line = r#"{"type":"thread.started","thread_id":"01a22dbc-63a1-7f53-9a32-a4f02e45edc6"}"#;
    let events = reader.stdout_line(line.as_bytes());
    assert!(matches!(&events[..], [AgentEvent::Error(f)] if f.code == Code::AgentStartFailed), "{events:?}");
    let end = reader.finish(&ProcessEnd::Exited { code: 0 }, "");
    assert_eq!((end.session, end.failure.map(|f| f.code)), (SessionFate::Lost, Some(Code::AgentStartFailed)));
}

#[test]
fn a_quota_says_when_it_is_full_again_where_a_record_says_it() {
    let wait = |case: &str| play(case, 0).2.failure.unwrap().retry_after;
    assert_eq!(wait("quota"), None);
    assert_eq!(wait("rate_limit_told"), Some(Millis(500)));
    // 2100-01-01 in the headers of the recorded replies.
    assert!(wait("quota_with_reset").is_some_and(|ms| ms > Millis::mins(60 * 24 * 365)));
}

#[test]
fn without_a_session_file_standard_output_is_the_source() {
    let stage = Stage::new();
    let (events, end) = finish("success", stage.reader(None).as_mut());
    assert_eq!((usage(&events), calls(&events), end.failure), ((6000, 180), 2, None));
    let results: Vec<_> = events.iter().filter(|e| matches!(e, AgentEvent::ToolResult { .. })).collect();
    assert_eq!(results.len(), 2);
    // The total of the conversation, under a name by which a later total replaces it.
    let (events, _) = finish("resume", stage.reader(None).as_mut());
    assert_eq!(usage(&events), (6100, 190));
    let (_, end) = finish("http_429_forever", stage.reader(None).as_mut());
    assert_eq!(end.failure.map(|f| f.code), Some(Code::RateLimit));
}

#[test]
fn r_w4_what_an_unseen_execution_left_is_named_as_the_live_reader_named_it() {
    for case in ["success", "killed", "killed_in_command", "subagent", "invisible_tools", "code_mode"] {
        let (stage, events, _) = play(case, 0);
        let seen = stage.inspect(Some(&thread(case)), Some(0));
        let named = |events: &[AgentEvent]| {
            let counts = |e: &&AgentEvent| matches!(e, AgentEvent::Usage(_) | AgentEvent::ToolCall { .. });
            let mut named: Vec<_> = events.iter().filter(counts).map(|e| format!("{e:?}")).collect();
            named.sort();
            named
        };
        assert_eq!(named(&seen.events), named(&events), "{case}");
    }
}

#[test]
fn r_w4_only_a_turn_that_was_over_is_finished() {
    let progress = |case: &str, started_at| {
        let stage = Stage::new();
        stage.put(case);
        stage.inspect(Some(&thread(case)), started_at).progress
    };
    let Progress::Finished(end) = progress("success", None) else { panic!("not finished") };
    assert_eq!((end.result.as_deref(), end.failure), (Some("Done: hello.txt created."), None));
    assert_eq!(progress("killed", None), Progress::Continuable);
    assert_eq!(progress("killed_in_command", None), Progress::Continuable);
    assert_eq!(progress("interrupted", None), Progress::Continuable);
    for (case, code) in [("http_401", Code::AuthFailed), ("empty_reply", Code::NoResult)] {
        let Progress::Finished(end) = progress(case, None) else { panic!("{case}: not finished") };
        assert_eq!(end.failure.map(|f| f.code), Some(code), "{case}");
    }
    // A finished turn of an earlier execution is not the end of this one.
    assert_eq!(progress("success", Some(i64::MAX)), Progress::Continuable);
    let unknown = Stage::new().inspect(Some("01234567-89ab-7def-8123-456789abcdef"), None);
    assert_eq!((unknown.progress, unknown.events), (Progress::Lost, vec![]));
    // Killed between making the file and its first word: Codex does not go on with such a conversation.
    let (name, _) = sessions("success").remove(0);
    let stage = Stage::new();
    stage.append(&name, b"");
    assert_eq!(stage.inspect(Some(&thread("success")), None).progress, Progress::Lost);
}

#[test]
fn a_torn_line_in_the_middle_of_the_file_is_passed_over() {
    let (name, bytes) = sessions("killed_then_continued").remove(0);
    let cut = bytes_of_turns(&bytes, 1);
    let stage = Stage::new();
    stage.append(&name, &bytes[..cut]);
    stage.append(&name, b"{\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"event_m\n");
    stage.append(&name, &bytes[cut..]);
    let seen = stage.inspect(Some(&thread("killed_then_continued")), None);
    assert_eq!(usage(&seen.events), handed_out("killed_then_continued"));
}

#[test]
fn a_response_id_that_comes_again_is_another_response() {
    let stage = Stage::new();
    let (name, bytes) = sessions("resume").remove(0);
    // A provider that numbers its replies anew in each process.
    let text = String::from_utf8(bytes).unwrap();
    let text = text.lines().map(|line| match line.split_once("\"response_id\":\"") {
        Some((head, tail)) => format!("{head}\"response_id\":\"resp_1{}\n", &tail[tail.find('"').unwrap()..]),
        None => format!("{line}\n"),
    });
    stage.append(&name, text.collect::<String>().as_bytes());
    assert_eq!(usage(&stage.inspect(Some(&thread("resume")), None).events), handed_out("resume"));
}

#[test]
fn f46_an_impossible_figure_is_estimated_and_said() {
    for odd in ["-1000", "1e300", "\"many\"", "null"] {
        let stage = Stage::new();
        for (name, bytes) in sessions("killed_in_command") {
            let text = String::from_utf8(bytes).unwrap();
            let text = text.replace("\"input_tokens\":1000", &format!("\"input_tokens\":{odd}"));
            stage.append(&name, text.as_bytes());
        }
        let seen = stage.inspect(Some(&thread("killed_in_command")), None);
        assert_eq!(usage(&seen.events), (20_000, 100), "{odd}");
        let warned = |e: &AgentEvent| matches!(e, AgentEvent::Warning { text } if text.contains("AGENT_USAGE_INVALID"));
        assert!(seen.events.iter().any(warned), "{odd}");
    }
}

#[test]
fn a_clock_that_runs_out_in_a_command_is_a_tool_timeout() {
    let timeout = ProcessEnd::TimedOut { layer: TimeoutLayer::Idle };
    for (case, code) in [("killed_in_command", Code::ToolTimeout), ("killed", Code::ModelTimeout)] {
        let stage = Stage::new();
        stage.put(case);
        let mut reader = stage.reader(None);
        read(case, "stdout.jsonl").lines().for_each(|line| drop(reader.stdout_line(line.as_bytes())));
        assert_eq!(reader.finish(&timeout, "").failure.map(|f| f.code), Some(code), "{case}");
    }
}

/// Events of a case whose session files grow in pieces of these sizes, with a look after each.
fn in_pieces(case: &str, sizes: &[usize]) -> Vec<String> {
    let stage = Stage::new();
    let mut reader = stage.reader(None);
    let first = read(case, "stdout.jsonl").lines().next().unwrap().to_owned();
    let mut events = reader.stdout_line(first.as_bytes());
    let mut sizes = sizes.iter().copied().cycle();
    for (name, bytes) in sessions(case) {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
            stage.append(&name, piece);
            events.extend(reader.side_files());
            rest = tail;
        }
    }
    events.iter().map(|e| format!("{e:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn how_the_session_files_grow_does_not_matter(sizes in proptest::collection::vec(1usize..9000, 1..8)) {
        for case in ["success", "subagent", "killed_then_continued"] {
            prop_assert_eq!(in_pieces(case, &sizes), in_pieces(case, &[]), "{}", case);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..20),
        case in prop_oneof![Just("success"), Just("web_search"), Just("subagent"), Just("http_401")],
        at in any::<prop::sample::Index>(),
        flip in any::<u8>(),
    ) {
        let stage = Stage::new();
        let mut reader = stage.reader(None);
        let mut lines: Vec<Vec<u8>> = read(case, "stdout.jsonl").lines().map(|l| l.as_bytes().to_vec()).collect();
        let damaged = at.get_mut(&mut lines);
        let place = at.index(damaged.len());
        damaged[place] ^= flip;
        for line in lines.iter().chain(&noise) {
            reader.stdout_line(line);
        }
        for (name, mut bytes) in sessions(case) {
            let place = at.index(bytes.len());
            bytes[place] ^= flip;
            bytes.extend(noise.concat());
            stage.append(&name, &bytes);
        }
        reader.side_files();
        reader.finish(&ProcessEnd::Exited { code: i32::from(flip) }, &String::from_utf8_lossy(&noise.concat()));
        stage.inspect(Some(&thread(case)), None);
        stage.inspect(None, Some(1_796_000_000_000));
    }
}
