//! F90 (fail closed), the whole documented format, includes, and what is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::config::source::DiskSource;
use crate::domain::budget::{Limits, Price};
use crate::domain::failure::Code;
use crate::domain::policy::{ActionType, AgentHome, BreakerRules, Keep, Right, Verdict};
use crate::domain::quantity::Millis;
use crate::domain::task::Protocol;

/// Files in memory; remembers what was asked for.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, String>,
    asked: RefCell<Vec<String>>,
}

impl Source for Memory {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ConfigError> {
        self.asked.borrow_mut().push(path.to_owned());
        Ok(self.files.get(path).map(|text| text.clone().into_bytes()))
    }

    fn list(&self, _: &str) -> Result<Vec<String>, ConfigError> {
        Ok(Vec::new())
    }
}

fn memory(files: &[(&str, &str)]) -> Memory {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Memory { files, ..Memory::default() }
}

fn load(text: &str) -> Result<LoadedPolicy, ConfigError> {
    load_policy(&memory(&[(POLICY_FILE, text)]))
}

fn fixture() -> LoadedPolicy {
    load_policy(&DiskSource::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config"))).unwrap()
}

#[test]
fn r_p1_r_p4_the_documented_policy_is_read_completely() {
    let loaded = fixture();
    let p = &loaded.policy;
    assert_eq!(p.version, "2026-09-15.1");
    let task = Limits {
        tokens: Some(500_000),
        time: Some(Millis::mins(30)),
        tool_calls: Some(100),
        cost_micros: Some(10_000_000),
        attempts: Some(3),
        ..Limits::default()
    };
    assert_eq!(p.budgets.task, task);
    assert_eq!(p.budgets.attempt, Limits { tool_calls: Some(80), ..Limits::default() });
    assert_eq!((p.retry.jitter_permille, p.retry.per["notification"].attempts), (200, 3));
    let codex = &p.agents["codex"];
    assert_eq!((codex.args.len(), codex.bin.as_deref(), codex.home), (2, Some("codex"), AgentHome::User));
    assert_eq!(codex.price, Some(Price { input: 1_250_000, cached: 125_000, output: 10_000_000 }));
    assert_eq!(codex.env, ["OPENAI_API_KEY", "CODEX_HOME"]);
    assert_eq!(p.agents["our-bot"].protocol, Protocol::Agentrun);
    assert_eq!(p.agents["replay"].protocol, Protocol::Replay, "known agents need no entry");
    assert_eq!((p.concurrency.runs, p.concurrency.providers["openai"]), (Some(2), 4));
    assert_eq!((p.send_budget["default"].max, p.send_budget["default"].per), (3, Millis::mins(5)));
    assert_eq!((p.retention["deploy"], p.retention["inbound"]), (Keep::Release, Keep::For(Millis::mins(48 * 60))));
    assert_eq!((p.retention_start, p.retention_runs), (Millis::mins(24 * 60), Millis::mins(90 * 24 * 60)));
    assert_eq!(p.people.as_ref().unwrap()["alice"].may, [Right::View, Right::Approve]);
    assert_eq!((p.env.len(), p.logs_max), (2, 64 << 20));
    let deploy = p.actions.types[&ActionType::Deploy];
    assert_eq!((deploy.one_try, deploy.expire, deploy.answer), (Millis::mins(5), Millis::mins(30), Millis::secs(8)));
    let ids: Vec<_> = p.rules.iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["no-production-database", "no-force-push", "prod-deploy-is-approved", "staging-is-free"]);
    assert_eq!(p.rules[0].when["environment"], r#"["production","staging"]"#);
    assert_eq!((p.rules[1].verdict, p.rules[1].when["force"].as_str()), (Verdict::Deny, "true"));
    assert_eq!(p.rules[2].when["environment"], "\"production\"");
    assert_eq!(p.rules[2].approval.as_ref().unwrap().approvers, ["release-team"]);
    let sources: Vec<_> = loaded.sources.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(sources, ["policies/base.yml", POLICY_FILE]);
    let place = |key: &str| loaded.place(&["budgets".into(), "task".into(), key.into()]);
    assert_eq!((place("tokens"), place("nothing")), ("automation-policy.yml:3:28".into(), "built-in".into()));
}

#[test]
fn f90_without_a_file_the_built_in_policy_holds_and_a_broken_one_is_an_error() {
    let none = load_policy(&memory(&[])).unwrap();
    assert_eq!((none.policy, none.sources.len()), (Policy::default(), 0));
    for text in ["", "# nothing\n", "---\n", "- a\n", "version: 1\nversion: 2\n", "verison: 1\n", "{}\n", "a: [\n"] {
        let error = load(text).unwrap_err();
        assert_eq!(error.code(), Code::ConfigInvalid, "{text:?}");
        assert!(error.to_string().starts_with("automation-policy.yml:"), "{error}");
    }
    let misnamed = load_policy(&memory(&[("automation-policy.yaml", "version: 1")])).unwrap_err();
    assert_eq!(misnamed.to_string(), "automation-policy.yaml: the policy file is named automation-policy.yml");
}

#[test]
fn f90_a_folder_or_a_link_out_of_the_repository_is_no_missing_policy() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join(POLICY_FILE);
    let outcome = || load_policy(&DiskSource::new(dir.path())).map(|l| l.policy).map_err(|e| e.code());
    assert_eq!(outcome(), Ok(Policy::default()));
    std::fs::create_dir(&at).unwrap();
    assert_eq!(outcome(), Err(Code::ConfigInvalid));
    std::fs::remove_dir(&at).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &at).unwrap();
    assert_eq!(outcome(), Err(Code::ConfigInvalid));
    std::fs::remove_file(&at).unwrap();
    std::os::unix::fs::symlink("gone.yml", &at).unwrap();
    assert_eq!(outcome(), Err(Code::ConfigInvalid));
    std::fs::remove_file(&at).unwrap();
    std::fs::write(&at, "").unwrap();
    assert_eq!(outcome(), Err(Code::ConfigInvalid));
}

#[test]
fn what_the_policy_does_not_say_stays_as_built_in() {
    let policy = load("version: v1\nbudgets: { task: { tokens: 1M } }\n").unwrap().policy;
    let task = Limits { tokens: Some(1_000_000), ..Policy::default().budgets.task };
    assert_eq!(policy.warn_permille, 800);
    assert_eq!(policy.budgets.task, task, "R-R4: the time and attempts that hold with nothing set hold still");
    assert_eq!(Policy { version: "built-in".into(), budgets: Policy::default().budgets, ..policy }, Policy::default());
}

#[test]
fn r_r8_the_breaker_and_the_provider_of_an_agent_are_read() {
    let text = "version: v1\nagents: { codex: { provider: team-a }, bot: { run: [ x ], protocol: text } }\n\
                concurrency: { runs: 1, providers: { team-a: 2, bot: 3 } }\nbreaker: { failures: 2, max: 1h }\n";
    let policy = load(text).unwrap().policy;
    let provider = |name: &str| policy.agents[name].provider(name).map(ToOwned::to_owned);
    assert_eq!(["codex", "bot", "replay"].map(provider), [Some("team-a".into()), Some("bot".into()), None]);
    assert_eq!(Policy::default().agents["codex"].provider("codex"), Some("openai"));
    assert_eq!((policy.concurrency.runs, policy.concurrency.providers["team-a"]), (Some(1), 2));
    let breaker = BreakerRules { failures: 2, max: Millis::mins(60), ..BreakerRules::default() };
    assert_eq!(policy.breaker, breaker);
}

#[test]
fn r_r8_a_wrong_limit_or_breaker_is_refused_by_its_place() {
    for (text, expected) in [
        ("version: v1\nbreaker: { failures: 0 }\n", "2:22: breaker.failures: `0` is not allowed"),
        ("version: v1\nbreaker: { opne: 5m }\n", "2:12: unknown key `opne` in breaker; did you mean `open`?"),
        ("version: v1\nbreaker: { open: 11m }\n", "2:12: `open` 11m must not be longer than `max` 10m"),
        ("version: v1\nconcurrency: { runs: 0 }\n", "2:22: concurrency.runs: `0` is not allowed"),
        (
            "version: v1\nconcurrency: { providers: { opnai: 4 } }\n",
            "2:29: `opnai` is not known; did you mean `openai`?",
        ),
        (
            "version: v1\nagents: { codex: { provider: 'a b' } }\n",
            "2:30: `a b` is no name of a provider: use letters, digits, `-`, `_`, `.`",
        ),
    ] {
        let error = load(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("automation-policy.yml:{expected}")), "{error}");
    }
}

#[test]
fn errors_name_the_place_the_thing_and_what_was_meant() {
    let rows = [
        (
            "version: v1\nbudgets: { task: { tokenz: 5 } }\n",
            "2:20: unknown key `tokenz` in budgets.task; did you mean `tokens`?",
        ),
        ("version: v1\nbudgets: { attempt: { attempts: 5 } }\n", "2:23: unknown key `attempts` in budgets.attempt"),
        ("version: v1\nbudgets: { task: { tokens: 0 } }\n", "2:28: budgets.task.tokens: `0` is not allowed"),
        ("version: v1\nbudgets: { task: { cost: 1e3 } }\n", "2:26: budgets.task.cost: `1e3` is not an amount"),
        ("version: v1\nbudgets: { task: { time: 30 } }\n", "2:26: budgets.task.time: `30` is not a time such as 90s"),
        ("version: v1\ntimeouts: { idel: 5m }\n", "2:13: unknown key `idel` in timeouts; did you mean `idle`?"),
        (
            "version: v1\nleases: { heartbeat: 60s }\n",
            "2:22: `heartbeat` 1m (automation-policy.yml:2:22) must be shorter than `ttl` 1m (built-in)",
        ),
        ("version: v1\nretry: { base: 10m }\n", "2:10: `base` 10m must not be longer than `max` 5m"),
        ("version: v1\nretry: { jitter: 1.5 }\n", "2:18: retry.jitter: `1.5` is not a share"),
        ("version: v1\nretry: { retryable: [ RATE_LIMT ] }\n", "`RATE_LIMT` is not known; did you mean `RATE_LIMIT`?"),
        ("version: v1\nretry: { retryable: [ POLICY_DENIED ] }\n", "2:23: POLICY_DENIED is never tried again"),
        (
            "version: v1\nretry: { per: { notifcation: { attempts: 1 } } }\n",
            "2:17: `notifcation` is not known; did you mean `notification`?",
        ),
        ("version: v1\nagents: { claude: { bin: x } }\n", "2:11: this version does not run `claude` yet"),
        (
            "version: v1\nagents: { x: { run: [a], protocol: gemini } }\n",
            "2:36: this version does not run `gemini` yet",
        ),
        (
            "version: v1\nagents: { x: { run: [a], protocol: agentrn } }\n",
            "2:36: `agentrn` is not known; did you mean `agentrun`?",
        ),
        ("version: v1\nagents: { x: { run: [a] } }\n", "2:14: an agent of your own needs `protocol`"),
        ("version: v1\nagents: { x: { protocol: text } }\n", "2:14: an agent with protocol `text` needs `run`"),
        ("version: v1\nagents: { x: { run: [], protocol: text } }\n", "2:21: `run` must name a program"),
        ("version: v1\nagents: { codex: { run: [a] } }\n", "2:25: `codex` takes `bin`, not `run`"),
        ("version: v1\nagents: { codex: { protocol: text } }\n", "2:30: this agent speaks `codex`"),
        (
            "version: v1\nagents: { codex: { sandbox: none } }\n",
            "2:29: agents.codex.sandbox: `none` is not known; known are read-only",
        ),
        ("version: v1\nagents: { codex: { env: [A, B=C] } }\n", "2:29: `B=C` is no name of an environment variable"),
        ("version: v1\nenv: [AGENTRUN_HOME]\n", "2:7: `AGENTRUN_HOME` is reserved"),
        (
            "version: v1\nactions: { call: 10s }\n",
            "2:18: `call` 10s (automation-policy.yml:2:18) must be shorter than `answer` 8s (built-in)",
        ),
        (
            "version: v1\nactions: { deploi: { try: 1m } }\n",
            "2:12: unknown key `deploi` in actions; did you mean `deploy`?",
        ),
        (
            "version: v1\nactions: { deploy: { try: 1h } }\n",
            "2:27: `try` 1h (automation-policy.yml:2:27) must be shorter than `expire` 15m (built-in)",
        ),
        ("version: v1\nretention: { strat: 5h }\n", "2:14: `strat` is not known; did you mean `start`?"),
        ("version: v1\nretention: { start: release }\n", "2:21: `release` is not a time"),
        ("version: v1\npeople: { a: { may: [aprove] } }\n", "`aprove` is not known; did you mean `approve`?"),
        ("version: v1\nrules: [{ id: a }]\n", "2:9: rule `a` needs exactly one of deny, approve, allow"),
        ("version: v1\nrules: [{ id: a, deny: x, allow: y }]\n", "2:9: rule `a` needs exactly one"),
        ("version: v1\nrules: [{ id: a, denny: x }]\n", "unknown key `denny` in rules[0]; did you mean `deny`?"),
        ("version: v1\nrules: [{ id: a, deny: Git Push }]\n", "2:24: `Git Push` is no action"),
        (
            "version: v1\nrules:\n- { id: a, deny: x }\n- { id: a, allow: x }\n",
            "4:9: rule `a` exists already (automation-policy.yml:3:9)",
        ),
        ("version: v1\nrules: [{ id: a, deny: x, when: { b: [] } }]\n", "a condition without a value never holds"),
        (
            "version: v1\nrules: [{ id: a, deny: x, approval: { expires: 5m } }]\n",
            "2:27: `approval` belongs to a rule with approve, not deny",
        ),
        (
            "version: v1\npeople: { al: { groups: [ops] } }\nrules: [{ id: a, approve: x, approval: { approvers: [opps] } }]\n",
            "3:54: `opps` is neither a person nor a group of `people`; did you mean `ops`?",
        ),
        ("version: a b\n", "1:10: `a b` is no version"),
        ("version: built-in\n", "1:10: `built-in` is reserved"),
        ("env: [A]\n", "1:1: missing key `version`"),
        ("verison: v1\n", "1:1: unknown key `verison`; did you mean `version`?"),
    ];
    for (text, expected) in rows {
        let error = load(text).unwrap_err();
        let shown = error.to_string();
        assert!(
            shown.contains(expected) && shown.starts_with(POLICY_FILE),
            "{text}\nfound    {shown}\nexpected {expected}"
        );
        assert!(error.excerpt().is_some(), "{shown}");
    }
}

#[test]
fn r_p2_a_condition_that_can_never_be_read_is_refused_at_its_place() {
    let rows = [
        (
            "version: v1\nrules: [{ id: a, deny: x, when: { b: { c: d } } }]\n",
            "2:40: no such comparison: `c` is not known",
        ),
        (
            "version: v1\nrules: [{ id: a, deny: x, when: { b: { ovr: 5 } } }]\n",
            "2:40: no such comparison: `ovr` is not known; did you mean `over`?",
        ),
        (
            "version: v1\nrules: [{ id: a, deny: x, when: { b: { over: much } } }]\n",
            "2:38: `much` is no number such as 100 or 99.50",
        ),
        (
            "version: v1\nrules: [{ id: a, deny: x, when: { b: { over: 5, at_most: 5 } } }]\n",
            "2:38: no number is between these: it never holds",
        ),
        ("version: v1\nrules: [{ id: a, deny: x, when: { b: '' } }]\n", "2:38: an empty text is no condition"),
        (
            "version: v1\nrules: [{ id: a, deny: git.push, when: { forse: true } }]\n",
            "2:42: git.push has no such attribute: `forse` is not known; did you mean `force`?",
        ),
        (
            "version: v1\nrules: [{ id: a, deny: git.push, when: { force: yes } }]\n",
            "2:49: `force` of git.push is true or false",
        ),
    ];
    for (text, expected) in rows {
        let shown = load(text).unwrap_err().to_string();
        assert!(shown.contains(expected), "{text}\nfound    {shown}\nexpected {expected}");
    }
    for good in ["{ over: 100 }", "{ over: 1, at_most: 99.50 }", "'release/*'", "[ a, b ]", "100", "true"] {
        assert!(
            load(&format!("version: v1\nrules: [{{ id: a, deny: x, when: {{ b: {good} }} }}]\n")).is_ok(),
            "{good}"
        );
    }
}

#[test]
fn r_r5_the_clocks_of_a_policy_lie_inside_each_other() {
    for (clock, value) in [("call", "15m"), ("step", "25m"), ("attempt", "2h"), ("run", "25m"), ("attempt", "15m")] {
        let error = load(&format!("version: v1\ntimeouts: {{ {clock}: {value} }}\n")).unwrap_err().to_string();
        assert!(error.contains("must be shorter than") && error.contains(clock), "{error}");
        assert!(error.contains("automation-policy.yml:2:") && error.contains("(built-in)"), "{error}");
    }
    assert!(load("version: v1\ntimeouts: { call: 1s, step: 2s, attempt: 3s, run: 4s }\n").is_ok());
}

#[test]
fn includes_come_first_and_the_own_file_wins() {
    let files = [
        (POLICY_FILE, "version: v2\ninclude: [policies/a.yml, policies/b.yml]\ntimeouts: { step: 10m }\n"),
        ("policies/a.yml", "include: [policies/c.yml]\ntimeouts: { step: 9m, idle: 1m }\nenv: [A]\n"),
        ("policies/b.yml", "include: [policies/c.yml]\ntimeouts: { idle: 2m }\nenv: [B]\n"),
        ("policies/c.yml", "timeouts: { grace: 3s }\nrules: [{ id: r, deny: x }]\n"),
    ];
    let loaded = load_policy(&memory(&files)).unwrap();
    let t = loaded.policy.timeouts;
    assert_eq!((t.step, t.idle, t.grace), (Millis::mins(10), Millis::mins(2), Millis::secs(3)));
    assert_eq!((loaded.policy.env, loaded.policy.rules.len()), (vec!["B".to_owned()], 1));
    let order: Vec<_> = loaded.sources.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(order, ["policies/c.yml", "policies/a.yml", "policies/b.yml", POLICY_FILE]);
}

#[test]
fn includes_that_leave_turn_or_are_broken_are_refused() {
    let root = |path: &str| format!("version: v1\ninclude: [ {path} ]\n");
    for (path, expected) in [
        ("../x.yml", "automation-policy.yml:2:12: `../x.yml` must not contain `..`"),
        ("/etc/x.yml", "automation-policy.yml:2:12: `/etc/x.yml` must be relative"),
        ("gone.yml", "automation-policy.yml:2:12: there is no file `gone.yml`"),
        ("./automation-policy.yml", "include each other: automation-policy.yml → automation-policy.yml"),
        ("a.yml", "a.yml:1:12: the files include each other: automation-policy.yml → a.yml → b.yml → a.yml"),
        ("c.yml", "c.yml:1:1: unknown key `agnets`; did you mean `agents`?"),
        ("d.yml", "d.yml:1:1: the file is empty"),
    ] {
        let own = root(path);
        let files = [
            (POLICY_FILE, own.as_str()),
            ("a.yml", "include: [ b.yml ]\n"),
            ("b.yml", "include: [ a.yml ]\n"),
            ("c.yml", "agnets: {}\n"),
            ("d.yml", ""),
        ];
        let shown = load_policy(&memory(&files)).unwrap_err().to_string();
        let expected = expected.replace("a.yml:1:12: the files", "b.yml:1:12: the files");
        assert!(shown.contains(&expected), "found    {shown}\nexpected {expected}");
    }
}

#[test]
fn r_f5_the_content_hash_follows_the_content_alone() {
    let base = "version: v1\nenv: [A]\ntimeouts: { step: 10m, idle: 1m }\n";
    let hash = |text: &str| load(text).unwrap().sha256;
    for same in [
        "# hello\nenv: [ 'A' ]\nversion: v1\ntimeouts:\n  idle: 1m\n  step: 10m\n",
        "---\nversion: \"v1\"\nenv:\n- A\ntimeouts: {idle: 1m, step: 10m}\n",
    ] {
        assert_eq!(hash(base), hash(same));
    }
    for other in [base.replace("10m", "11m"), base.replace("[A]", "[B]"), format!("{base}concurrency: {{ runs: 1 }}\n")]
    {
        assert_ne!(hash(base), hash(&other));
    }
    let split =
        [(POLICY_FILE, "version: v1\ninclude: [b.yml]\nenv: [A]\n"), ("b.yml", "timeouts: { step: 10m, idle: 1m }\n")];
    assert_eq!(load_policy(&memory(&split)).unwrap().sha256, hash(base), "how it is divided into files does not count");
}

#[test]
fn f90_nothing_but_policy_files_is_asked_for() {
    let files = memory(&[(POLICY_FILE, "version: v1\ninclude: [policies/a.yml]\n"), ("policies/a.yml", "env: [A]\n")]);
    load_policy(&files).unwrap();
    assert_eq!(*files.asked.borrow(), [POLICY_FILE, "policies/a.yml"]);
}
