//! The agentrun agent protocol (contract §12), read through the same door as every agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use agentrun::agents::{self, AgentEnd, AgentError, AgentRequest, InspectRequest, Progress, Reader, ReaderRequest};
use agentrun::domain::agent_event::{AgentEvent, Metered};
use agentrun::domain::budget::Certainty;
use agentrun::domain::failure::Code;
use agentrun::domain::outcome::ProcessEnd;
use agentrun::domain::policy::AgentRules;
use agentrun::domain::quantity::Millis;
use agentrun::domain::task::{AgentSpec, CommandLine, Protocol};
use agentrun::process::spec::{PoliteSignal, Stdin};
use proptest::prelude::*;

fn request(rules: &AgentRules, execution: u32) -> ReaderRequest<'_> {
    static EMPTY: BTreeMap<OsString, OsString> = BTreeMap::new();
    ReaderRequest {
        protocol: Protocol::Agentrun,
        session: None,
        env: &EMPTY,
        private_home: Path::new("/none"),
        rules,
        execution,
        prompt_bytes: 300,
    }
}

fn reader() -> Box<dyn Reader> {
    agents::reader(&request(&AgentRules::known(Protocol::Agentrun), 7))
}

fn read(lines: &[&str], exit: i32) -> (Vec<AgentEvent>, AgentEnd) {
    let mut reader = reader();
    let events = lines.iter().flat_map(|line| reader.stdout_line(line.as_bytes())).collect();
    (events, reader.finish(&ProcessEnd::Exited { code: exit }, ""))
}

fn code(lines: &[&str], exit: i32) -> Option<Code> {
    read(lines, exit).1.failure.map(|f| f.code)
}

fn usages(lines: &[&str]) -> Vec<Metered> {
    let metered = |event| if let AgentEvent::Usage(metered) = event { Some(metered) } else { None };
    read(lines, 0).0.into_iter().filter_map(metered).collect()
}

const DONE: &str = r#"{"type":"result","status":"completed","text":"Done."}"#;

#[test]
fn every_line_of_the_contract_is_understood() {
    let (events, end) = read(
        &[
            r#"{"type":"session","id":"abc","model":"m1"}"#,
            r#"{"type":"message","text":"I will look around first."}"#,
            r#"{"type":"tool_call","id":"t1","name":"shell","input":{"command":"ls"}}"#,
            r#"{"type":"tool_result","id":"t1","ok":true}"#,
            r#"{"type":"usage","response":"r1","input":1000,"cached":10,"output":50,"cost_usd":0.01}"#,
            r#"{"type":"of_tomorrow"}"#,
            "noise",
            DONE,
        ],
        0,
    );
    let metered = Metered {
        response: "7/r1".into(),
        input: 1000,
        cached: 10,
        output: 50,
        cost_micros: Some(10_000),
        certainty: Certainty::Told,
    };
    let expected = [
        AgentEvent::Session { id: "abc".into(), model: Some("m1".into()) },
        AgentEvent::Message { text: "I will look around first.".into() },
        AgentEvent::ToolCall {
            id: "7/t1".into(),
            name: "shell".into(),
            summary: "ls".into(),
            command: Some(CommandLine::Shell("ls".into())),
        },
        AgentEvent::ToolResult { id: "7/t1".into(), ok: Some(true) },
        AgentEvent::Usage(metered),
        AgentEvent::Result { text: "Done.".into() },
    ];
    assert_eq!(events, expected);
    assert_eq!((end.result.as_deref(), end.failure, end.warnings), (Some("Done."), None, vec![]));
}

#[test]
fn without_a_result_line_the_agent_has_not_finished() {
    assert_eq!(code(&[r#"{"type":"message","text":"All done!"}"#], 0), Some(Code::NoResult));
    assert_eq!(code(&[r#"{"type":"result","status":"completed","text":" "}"#], 0), Some(Code::NoResult));
    assert_eq!(code(&[r#"{"type":"result","status":"failed","text":"no"}"#], 0), Some(Code::AgentFailed));
    assert_eq!(code(&[], 3), Some(Code::AgentStartFailed));
    assert_eq!(code(&[DONE], 3), None, "FR-C7");
}

#[test]
fn fr_c1_an_error_line_is_a_failure_whatever_follows() {
    let limit = r#"{"type":"error","code":"RATE_LIMIT","message":"slow down","retry_after_s":30}"#;
    let (events, end) = read(&[limit, DONE], 0);
    let failure = end.failure.unwrap();
    assert_eq!((failure.code, failure.retry_after), (Code::RateLimit, Some(Millis::secs(30))));
    assert_eq!(events[0], AgentEvent::Error(failure));
}

#[test]
fn an_agent_may_only_give_codes_that_are_its_own() {
    let error = |code: &str| format!(r#"{{"type":"error","code":"{code}","message":"x"}}"#);
    assert_eq!(code(&[&error("AUTH_FAILED")], 1), Some(Code::AuthFailed));
    for foreign in ["STATE_CORRUPT", "OUTCOME_UNKNOWN", "CANCELED", "NO_SUCH_CODE", "auth_failed", ""] {
        assert_eq!(code(&[&error(foreign)], 1), Some(Code::AgentFailed), "{foreign}");
    }
    let quota = r#"{"type":"error","code":"QUOTA_EXCEEDED","message":"x","retry_after_s":5}"#;
    assert_eq!(code(&[quota], 1), Some(Code::RateLimit), "R-R1: a quota with a known end");
    let odd = r#"{"type":"error","code":"RATE_LIMIT","message":"x","retry_after_s":-5}"#;
    assert_eq!(read(&[odd], 1).1.failure.unwrap().retry_after, None);
}

#[test]
fn f46_impossible_usage_is_estimated_and_said() {
    let wrong = [
        r#"{"type":"usage","response":"a","input":-5,"output":10}"#,
        r#"{"type":"usage","response":"a","input":NaN,"output":10}"#,
        r#"{"type":"usage","response":"a","input":1e300,"output":10}"#,
        r#"{"type":"usage","response":"a","input":18446744073709551615,"output":10}"#,
        r#"{"type":"usage","response":"a","input":1.5,"output":10}"#,
        r#"{"type":"usage","response":"a","input":"many","output":10}"#,
        r#"{"type":"usage","response":"a","output":10}"#,
    ];
    for line in wrong {
        let (events, end) = read(&[line, DONE], 0);
        let [AgentEvent::Usage(metered), AgentEvent::Warning { text }, _] = &events[..] else {
            panic!("{line}: {events:?}");
        };
        assert_eq!((metered.input, metered.output), (20_000, 10), "{line}");
        assert!(text.starts_with("AGENT_USAGE_INVALID"), "{text}");
        assert_eq!((end.failure, end.warnings.len()), (None, 1), "{line}");
    }
    // The estimate is no less than what the agent has shown before.
    let big = r#"{"type":"usage","response":"a","input":90000,"output":10}"#;
    assert_eq!(usages(&[big, r#"{"type":"usage","response":"b","input":-1,"output":1}"#])[1].input, 90_000);
}

#[test]
fn f46_counters_never_shrink_and_a_doubtful_cache_counts_as_none() {
    let lines = [
        r#"{"type":"usage","response":"a","input":100,"cached":90,"output":50,"cost_usd":0.5}"#,
        r#"{"type":"usage","response":"a","input":80,"cached":10,"output":60,"cost_usd":0.4}"#,
    ];
    let last = usages(&lines).pop().unwrap();
    let kept = Metered {
        response: "7/a".into(),
        input: 100,
        cached: 10,
        output: 60,
        cost_micros: Some(500_000),
        certainty: Certainty::Told,
    };
    assert_eq!(last, kept);
    let doubtful = r#"{"type":"usage","response":"a","input":100,"cached":200,"output":50,"cost_usd":-1}"#;
    let metered = usages(&[doubtful]).remove(0);
    assert_eq!((metered.cached, metered.cost_micros), (0, None), "an unknown cost is never 0");
}

#[test]
fn fr_c2_nothing_but_failed_tools_proves_nothing() {
    let call = r#"{"type":"tool_call","id":"a","name":"shell"}"#;
    let failed = r#"{"type":"tool_result","id":"a","ok":false}"#;
    assert_eq!(code(&[call, failed, DONE], 0), Some(Code::AllToolsFailed));
}

#[test]
fn r_w4_what_was_kept_of_the_output_tells_how_far_it_got() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stdout");
    let rules = AgentRules::known(Protocol::Agentrun);
    let progress = |text: &str| {
        fs::write(&path, text).unwrap();
        let transcript = Some(path.as_path());
        let reader = request(&rules, 7);
        let request = InspectRequest { reader, workspace: dir.path(), started_at: None, transcript };
        agents::inspect(&request).unwrap()
    };
    let session = r#"{"type":"session","id":"abc"}"#;
    assert_eq!(progress("").progress, Progress::Lost);
    assert_eq!(progress(&format!("{session}\n")).progress, Progress::Continuable);
    let usage = r#"{"type":"usage","response":"r1","input":1,"output":1}"#;
    let whole = progress(&format!("{session}\n{usage}\n{DONE}\n"));
    assert!(matches!(&whole.progress, Progress::Finished(end) if end.failure.is_none()));
    assert!(matches!(&whole.events[1], AgentEvent::Usage(metered) if metered.response == "7/r1"));
    // A last line that was torn is no result.
    assert_eq!(progress(&format!("{session}\n{DONE}")).progress, Progress::Continuable);
}

/// A request for an agent of this protocol; what varies is in `agent` and `rules`.
fn command(agent: &AgentSpec, rules: &AgentRules, session: Option<&str>) -> Result<agents::AgentCommand, AgentError> {
    let env = BTreeMap::from([(OsString::from("PATH"), OsString::from("/usr/bin:/bin"))]);
    agents::command(&AgentRequest {
        agent,
        rules,
        workspace: Path::new("/state/work/run"),
        repository: Path::new("/repo"),
        prompt_file: Path::new("/state/prompt.md"),
        session,
        private_home: Path::new("/state/home"),
        env: &env,
        own_program: Path::new("/bin/agentrun"),
        tools: None,
    })
}

fn agent(protocol: Protocol) -> AgentSpec {
    let args = vec!["--more".to_owned()];
    AgentSpec { name: "bot".to_owned(), protocol, model: None, args, events: None, patch: None }
}

#[test]
fn a_program_gets_its_prompt_and_its_session() {
    let mut rules = AgentRules::known(Protocol::Agentrun);
    assert_eq!(command(&agent(Protocol::Agentrun), &rules, None).unwrap_err().code(), Code::ConfigInvalid);
    rules.run = vec!["sh".to_owned(), "bot.sh".to_owned()];
    let command = command(&agent(Protocol::Agentrun), &rules, Some("abc")).unwrap();
    assert!(command.program.ends_with("bin/sh"));
    assert_eq!(command.args, ["bot.sh", "--more"]);
    let env: Vec<_> = command.env.iter().map(|(k, v)| (k.to_str().unwrap(), v.to_str().unwrap())).collect();
    assert_eq!(env, [("AGENTRUN_PROMPT_FILE", "/state/prompt.md"), ("AGENTRUN_SESSION", "abc")]);
    assert_eq!(command.stdin, Stdin::File(PathBuf::from("/state/prompt.md")));
    assert_eq!(command.polite, PoliteSignal::Terminate);
}

#[test]
fn a_missing_program_is_named() {
    let mut rules = AgentRules::known(Protocol::Text);
    rules.run = vec!["no-such-bot".to_owned()];
    let error = command(&agent(Protocol::Text), &rules, None).unwrap_err();
    assert_eq!(error.code(), Code::CommandNotFound);
    assert!(error.to_string().contains("no-such-bot"));
}

#[test]
fn a_replay_is_agentrun_itself_with_paths_of_the_repository() {
    let rules = AgentRules::known(Protocol::Replay);
    assert_eq!(command(&agent(Protocol::Replay), &rules, None).unwrap_err().code(), Code::ConfigInvalid);
    let mut agent = agent(Protocol::Replay);
    agent.args.clear();
    (agent.events, agent.patch) = (Some("demo/events.jsonl".to_owned()), Some("demo/fix.patch".to_owned()));
    let command = command(&agent, &rules, None).unwrap();
    assert_eq!(command.program, Path::new("/bin/agentrun"));
    let args = ["replay-agent", "--events", "/repo/demo/events.jsonl", "--patch", "/repo/demo/fix.patch"];
    assert_eq!(command.args, args);
}

/// Lines that look like the protocol, with anything in them.
fn line() -> impl Strategy<Value = String> {
    let kind = prop_oneof![
        Just("session"),
        Just("message"),
        Just("tool_call"),
        Just("tool_result"),
        Just("usage"),
        Just("error"),
        Just("result")
    ];
    let value = prop_oneof![
        any::<f64>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        ".{0,12}".prop_map(|s| serde_json::Value::from(s).to_string()),
        Just("null".to_owned()),
        Just("[{}]".to_owned()),
    ];
    (kind, proptest::collection::vec(value, 6)).prop_map(|(kind, v)| {
        format!(
            r#"{{"type":"{kind}","id":{0},"response":{0},"input":{1},"cached":{2},"output":{3},"cost_usd":{4},"text":{5},"retry_after_s":{1},"status":{0},"code":{5},"ok":{4}}}"#,
            v[0], v[1], v[2], v[3], v[4], v[5]
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f46_no_line_makes_a_counter_shrink_or_wrap(lines in proptest::collection::vec(line(), 0..20), noise in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut reader = reader();
        let mut known: BTreeMap<String, Metered> = BTreeMap::new();
        for line in &lines {
            for event in reader.stdout_line(line.as_bytes()) {
                let AgentEvent::Usage(now) = event else { continue };
                prop_assert!(now.cached <= now.input && now.input <= 100_000_000 && now.output <= 100_000_000);
                if let Some(before) = known.get(&now.response) {
                    prop_assert!(now.input >= before.input && now.output >= before.output);
                }
                known.insert(now.response.clone(), now);
            }
        }
        reader.stdout_line(&noise);
        reader.finish(&ProcessEnd::Vanished, "");
    }
}
