//! Steps that reach the outside, read from the documented keys, and their refusals.

use super::*;
use crate::domain::delivery::{
    ActionSpec, DeploySpec, EnvironmentState, VerifySpec, in_words, release_step, verification,
};
use crate::domain::ids::StepKey;
use crate::domain::policy::ActionType;

/// The steps of the contract's example, with a build before them.
const DOCUMENTED: &str = r##"- { key: build, kind: command, run: make }
- key: release
  kind: release
  release: release_{{ run.short_commit }}
  artifacts: [ target/app.tar ]
- key: gate
  kind: approval
  ask: "Ship {{ release.id }} of {{ task.id }}?"
  approvers: [ ops ]
  expires: 4h
- key: deploy
  kind: deploy
  environment: production
  run: ./deploy.sh
  status: [ ./deploy-status.sh, --quiet ]
  verify: { health: "http://127.0.0.1:8080/health", smoke: ./smoke.sh }
  environment_state: [ ./deploy//production.yml, [ ./show-config.sh, production ] ]
  timeout: 5m
  env: { REGION: eu }
- { key: tell, kind: action, type: notification, target: "#releases", account: main, input: { text: "{{ release.id }} is out", count: 5, price: 0.10, silent: false, parts: [ "{{ inputs.ticket }}" ] }, contract: chat }
"##;

fn bodies(task: &TaskSpec) -> Vec<(&str, StepKind)> {
    task.steps.iter().map(|s| (s.key.as_str(), s.kind())).collect()
}

fn step<'t>(task: &'t TaskSpec, key: &str) -> &'t crate::domain::task::StepSpec {
    task.steps.iter().find(|s| s.key.as_str() == key).unwrap()
}

fn needs<'t>(task: &'t TaskSpec, key: &str) -> Vec<&'t str> {
    step(task, key).needs.iter().map(StepKey::as_str).collect()
}

fn deploy<'t>(task: &'t TaskSpec, key: &str) -> &'t DeploySpec {
    let StepBody::Deploy(deploy) = &step(task, key).body else { panic!("{key}") };
    deploy
}

fn verify<'t>(task: &'t TaskSpec, key: &str) -> &'t VerifySpec {
    let StepBody::Verify(verify) = &step(task, key).body else { panic!("{key}") };
    verify
}

fn action(task: &TaskSpec) -> &ActionSpec {
    let found = task.steps.iter().find_map(|s| match &s.body {
        StepBody::Action(action) => Some(action),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn r_s1_r_a10_the_documented_delivery_is_read_completely() {
    let task = load(&with_steps(DOCUMENTED)).unwrap();
    let expected = [
        ("build", StepKind::Command),
        ("release", StepKind::Release),
        ("gate", StepKind::Approval),
        ("deploy", StepKind::Deploy),
        ("deploy_verify", StepKind::Verify),
        ("tell", StepKind::Action),
    ];
    assert_eq!(bodies(&task), expected);
    assert_eq!((needs(&task, "deploy_verify"), needs(&task, "tell")), (vec!["deploy"], vec!["deploy_verify"]));
    let release = StepBody::Release { release: "release_{{ run.short_commit }}".into() };
    assert_eq!(step(&task, "release").body, release);
    let StepBody::Approval { ask, terms } = &step(&task, "gate").body else { panic!() };
    assert_eq!((ask.as_str(), terms.expires), ("Ship {{ release.id }} of {{ task.id }}?", Some(Millis::mins(240))));
    assert_eq!(terms.approvers, ["ops"]);
    let deploy = deploy(&task, "deploy");
    assert_eq!((deploy.environment.as_str(), &deploy.release, deploy.rollback), ("production", &None, false));
    assert!(matches!(&deploy.status, Some(CommandLine::List(list)) if list.len() == 2));
    let show = CommandLine::List(vec!["./show-config.sh".into(), "production".into()]);
    let state = [EnvironmentState::File("deploy/production.yml".into()), EnvironmentState::Command(show)];
    assert_eq!(deploy.environment_state, state);
    let (looks, looked_at) = (step(&task, "deploy_verify"), verify(&task, "deploy_verify"));
    assert_eq!(looked_at.health.as_deref(), Some("http://127.0.0.1:8080/health"));
    assert_eq!(looked_at.smoke, Some(CommandLine::Shell("./smoke.sh".into())));
    assert_eq!((looks.timeout, looks.env["REGION"].as_str()), (Some(Millis::mins(5)), "eu"));
    assert_eq!(verification(&task, &step(&task, "deploy").key).unwrap().key, looks.key);
    assert_eq!(release_step(&task, &step(&task, "tell").key).unwrap().key.as_str(), "release");
    let tell = action(&task);
    assert_eq!(
        (tell.action, tell.target.as_str(), tell.account.as_deref()),
        (ActionType::Notification, "#releases", Some("main"))
    );
    let input = serde_json::json!({
        "text": "{{ release.id }} is out", "count": 5, "price": "0.10", "silent": false, "parts": ["{{ inputs.ticket }}"],
    });
    assert_eq!(tell.input, input, "an amount never becomes a float");
    assert!(tell.subject.is_empty(), "the event is filled in when it is sent");
    let back: TaskSpec = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
    assert_eq!((back.meaning(), &back), (task.meaning(), &task), "what is recorded is what was meant");
}

#[test]
fn r_f2_what_an_effect_is_counts_into_the_meaning() {
    let base = load(&with_steps(DOCUMENTED)).unwrap().meaning();
    for (old, new) in [
        ("production\n", "staging\n"),
        ("./smoke.sh", "./smoke2.sh"),
        ("is out", "is there"),
        ("0.10", "0.1"),
        ("#releases", "#news"),
        ("4h", "5h"),
        ("timeout: 5m", "irreversible: true"),
    ] {
        assert_ne!(load(&with_steps(&DOCUMENTED.replace(old, new))).unwrap().meaning(), base, "{old}");
    }
    assert_eq!(load(&with_steps(&DOCUMENTED.replace("timeout: 5m", "timeout: 6m"))).unwrap().meaning(), base);
}

#[test]
fn r_a10_whoever_needs_a_deployment_needs_it_to_be_good() {
    let task = load(&with_steps(
        "- { kind: deploy, environment: e, run: x, release: r1, verify: { smoke: t }, when: \"inputs.ticket == 'a'\" }\n\
         - { kind: command, key: after, run: x, needs: [ deploy ] }\n\
         - { kind: command, key: named, run: x, needs: [ deploy_verify ], when: steps.deploy_verify.state == 'SUCCEEDED' }\n\
         - { kind: deploy, key: back, environment: e, run: x, release: '{{ inputs.ticket }}', rollback: true, when: on_failure, verify: { smoke: t } }\n",
    ))
    .unwrap();
    assert_eq!(needs(&task, "after"), ["deploy", "deploy_verify"]);
    assert_eq!(needs(&task, "named"), ["deploy_verify"]);
    assert_eq!(step(&task, "deploy_verify").when, When::NeedsSucceeded, "it follows its deployment");
    assert_eq!((deploy(&task, "back").rollback, &step(&task, "back_verify").when), (true, &When::OnFailure));
}

#[test]
fn r_a10_a_verify_step_of_its_own_finds_its_deployment() {
    let head = "- { kind: deploy, environment: e, run: x, release: r1 }\n";
    let read = |tail: &str| load(&with_steps(&format!("{head}{tail}")));
    let task =
        read("- { kind: verify, health: 'https://e.example/' }\n- { kind: verify, key: again, smoke: x }\n").unwrap();
    assert_eq!(verify(&task, "verify").of.as_ref().unwrap().as_str(), "deploy");
    assert_eq!(verify(&task, "again").of, None, "one look decides");
    let task = read("- { kind: command, run: x }\n- { kind: verify, of: deploy, smoke: x }\n").unwrap();
    assert_eq!(verify(&task, "verify").of.as_ref().unwrap().as_str(), "deploy");
}

#[test]
fn r_a2_what_identifies_an_intent_comes_from_its_input_or_its_subject() {
    let read = |keys: &str| load(&with_steps(&format!("- {{ kind: action, target: t, run: x, {keys} }}\n")));
    let subject = |keys: &str| action(&read(keys).unwrap()).subject.clone();
    let pairs = |list: &[(&str, &str)]| {
        list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(
        subject("type: pull_request, input: { head: 'fix-{{ inputs.ticket }}' }, subject: { base: main }"),
        pairs(&[("head", "fix-{{ inputs.ticket }}"), ("base", "main")])
    );
    assert_eq!(
        subject("type: feature_flag, input: { flag: dark, value: true }"),
        pairs(&[("flag", "dark"), ("value", "true")])
    );
    assert_eq!(subject("type: migration, input: { version: 12 }"), pairs(&[("version", "12")]));
    assert_eq!(subject("type: export, input: { rows: 5 }"), pairs(&[]));
    assert_eq!(
        subject("type: webhook, subject: { event: '{{ run.commit }}' }"),
        pairs(&[("event", "{{ run.commit }}")])
    );
}

#[test]
fn contracts_that_do_not_exist_are_refused_where_they_are_known() {
    let text = with_steps("- { kind: action, type: generic, target: t, contract: chta }\n");
    let policy = LoadedPolicy::built_in();
    let overrides = Overrides::default();
    let read = |contracts: Option<&[String]>| {
        load_task("tasks/t.yml", text.as_bytes(), &TaskContext { policy: &policy, overrides: &overrides, contracts })
    };
    assert!(read(None).is_ok());
    let error = read(Some(&["chat".to_owned(), "crm".to_owned()])).unwrap_err().to_string();
    assert_eq!(error, "tasks/t.yml:4:55: contract `chta` is not known; did you mean `chat`?");
    let error = read(Some(&[])).unwrap_err().to_string();
    assert!(error.contains("there is no contract `chta`: none stands in policies/contracts/"), "{error}");
    assert!(read(Some(&["chta".to_owned()])).is_ok());
}

/// A task that knows people.
#[test]
fn approvers_are_people_where_there_are_any() {
    let policy = policy("version: v1\npeople: { ann: { groups: [ ops ], may: [ approve ] } }\n");
    let read = |name: &str| {
        load_with(
            &with_steps(&format!("- {{ kind: approval, ask: go?, approvers: [ {name} ] }}\n")),
            &policy,
            &Overrides::default(),
        )
    };
    assert!(read("ann").is_ok() && read("ops").is_ok());
    let error = read("anne").unwrap_err().to_string();
    assert!(
        error.contains("4:44: `anne` is neither a person nor a group") && error.contains("did you mean `ann`?"),
        "{error}"
    );
}

#[test]
fn steps_are_told_in_plain_words() {
    let task = load(&with_steps(DOCUMENTED)).unwrap();
    let said: Vec<_> = task.steps.iter().filter_map(|s| in_words(&s.body)).collect();
    let expected = [
        "names the release release_{{ run.short_commit }}",
        "asks ops: Ship {{ release.id }} of {{ task.id }}? (the answer counts for 4h)",
        "brings the release to production by ./deploy.sh, asks ./deploy-status.sh --quiet",
        "looks at the result of deploy: http://127.0.0.1:8080/health, then ./smoke.sh",
        "notification to #releases as main under the contract chat",
    ];
    assert_eq!(said, expected);
}

/// Steps, from line 4 on, and what is said about them.
const REFUSED: &[(&str, &str)] = &[
    ("- release\n", "4:3: a step of kind release needs `release`"),
    ("- approval\n", "4:3: a step of kind approval needs `ask`"),
    ("- deploy\n", "4:3: a step of kind deploy needs `environment` and `run`"),
    ("- action\n", "4:3: a step of kind action needs `type` and `target`"),
    ("- verify\n", "4:3: to verify needs `health` or `smoke`"),
    ("- { kind: deploy, environment: e, run: x, release: r, verify: {} }\n", "to verify needs `health` or `smoke`"),
    (
        "- { kind: deploy, environment: e, run: x }\n",
        "4:3: step `deploy` has no release to deploy: put a step of kind release before it, or name one with `release`",
    ),
    (
        "- { kind: deploy, environment: e, run: x, needs: [] }\n- { kind: release, release: r }\n",
        "4:3: step `deploy` has no release to deploy",
    ),
    ("- { kind: deploy, environment: e, run: x, rollback: true }\n", "4:53: a rollback needs `release`"),
    ("- { kind: deploy, environment: 'a b', run: x, release: r }\n", "4:32: `a b` is no name"),
    ("- { kind: deploy, enviroment: e, run: x }\n", "4:19: unknown key `enviroment`; did you mean `environment`?"),
    (
        "- { kind: deploy, environment: e, run: 'x {{ release.id }}', release: r }\n",
        "4:40: `{{ release.id }}` is not replaced in commands",
    ),
    ("- { kind: deploy, environment: e, run: x, status: [], release: r }\n", "4:51: `status` must name a program"),
    (
        "- { kind: deploy, environment: e, run: x, release: r, environment_state: [ ../x ] }\n",
        "4:76: `../x` must not contain `..`",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: r, environment_state: [ [ 'a {{ run.id }}' ] ] }\n",
        "is not replaced in commands",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: r, verify: { helth: x } }\n",
        "unknown key `helth` in steps[0].verify; did you mean `health`?",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: r, verify: { health: localhost/up } }\n",
        "4:73: `localhost/up` is no address: write one such as http://",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: r, instance: '{{ run.id }}' }\n",
        "4:65: `instance` is taken as it is written",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: '{{ run.shortcommit }}' }\n",
        "4:52: `release`: unknown variable `run.shortcommit`; did you mean `run.short_commit`?",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: '{{ release.id }}' }\n",
        "4:52: `release`: unknown variable `release.id`: this text names a release itself",
    ),
    ("- { kind: deploy, environment: e, run: x, release: 'a b' }\n", "4:52: `a b` is no name of a release"),
    ("- { kind: release, release: 'v{{ inputs.ticket }} 1' }\n", "4:29: `va 1` is no name of a release"),
    ("- { kind: release, release: '' }\n", "4:29: `release` is empty"),
    ("- { kind: release, release: r, env: { A: b } }\n", "4:32: `env` does not belong to a step of kind release"),
    (
        "- { kind: approval, ask: go, timeout: 5m }\n",
        "4:30: `timeout` does not belong to a step of kind approval; it takes key, kind, needs, when, ask, approvers, expires",
    ),
    (
        "- { kind: approval, ask: 'go {{ release.id }}?' }\n",
        "4:26: `ask`: unknown variable `release.id`: no step of kind release comes before `approval`",
    ),
    ("- { kind: approval, ask: 'go {{ relese }}?' }\n", "4:26: `ask`: unknown variable `relese`"),
    ("- { kind: approval, ask: go, expires: soon }\n", "4:39: steps[0].expires: `soon` is not a time"),
    ("- { kind: command, run: x, ask: go }\n", "4:28: `ask` does not belong to a step of kind command"),
    (
        "- { kind: action, type: notificaton, target: t, run: x }\n",
        "4:25: type `notificaton` is not known; did you mean `notification`?",
    ),
    (
        "- { kind: action, type: deploy, target: t, run: x }\n",
        "4:25: a deployment is a step of its own: `kind: deploy`",
    ),
    ("- { kind: action, type: rollback, target: t, run: x }\n", "4:25: a rollback is a step of its own"),
    (
        "- { kind: action, type: export, target: t }\n",
        "4:3: an action needs `contract`, which says how it is sent, or `run`",
    ),
    ("- { kind: action, type: export, target: t, run: x, input: [ a ] }\n", "4:59: `input` must have keys"),
    ("- { kind: action, type: export, target: t, contract: '../x' }\n", "4:54: `../x` is no name"),
    (
        "- { kind: action, type: export, target: '{{ inputs.tiket }}', run: x }\n",
        "4:41: `target`: unknown variable `inputs.tiket`; did you mean `inputs.ticket`?",
    ),
    (
        "- kind: action\n  type: export\n  target: t\n  run: x\n  input:\n    a:\n    - b: '{{ nope }}'\n",
        "10:10: `input.a.b`: unknown variable `nope`; known are inputs.…, run.…",
    ),
    ("- { kind: action, type: export, target: t, run: x, input: { a: '{{ b' } }\n", "4:64: `input.a`: syntax error"),
    (
        "- { kind: action, type: pull_request, target: t, run: x, input: { head: h } }\n",
        "4:3: an action of type pull_request is identified by `base`: put it into `input` or `subject`",
    ),
    (
        "- { kind: action, type: pull_request, target: t, run: x, input: { head: h, base: b }, subject: { base: c } }\n",
        "4:98: `base` stands in `input` already",
    ),
    (
        "- { kind: action, type: pull_request, target: t, run: x, input: { head: [ h ], base: b } }\n",
        "4:73: `head` identifies the action: it must be a single value",
    ),
    (
        "- { kind: action, type: export, target: t, run: x, subject: { documnet: d } }\n",
        "4:63: `documnet` does not identify an action of type export; what does is document; did you mean `document`?",
    ),
    (
        "- { kind: action, type: export, target: t, run: x, subject: { document: '{{ x }}' } }\n",
        "4:73: `subject.document`: unknown variable `x`",
    ),
    (
        "- { kind: verify, smoke: x, of: deploy }\n",
        "4:33: step `verify` verifies `deploy`, which is no deploy step before it",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: r, verify: { smoke: x } }\n- { kind: verify, smoke: x, of: deploy }\n",
        "5:33: step `deploy` is verified by `deploy_verify` already",
    ),
    (
        "- { kind: deploy, environment: e, run: x, release: r }\n- { kind: verify, smoke: x, of: depoy }\n",
        "did you mean `deploy`?",
    ),
    (
        "- { kind: command, key: deploy_verify, run: x }\n- { kind: deploy, environment: e, run: x, release: r, verify: { smoke: x } }\n",
        "5:63: step key `deploy_verify` is used twice, first in line 4",
    ),
    (
        "- { kind: agent, prompt: p.md }\n- { kind: release, release: r }\n- { kind: qa, run: x, on_fail: { send_back_to: agent } }\n",
        "5:3: step `release` comes after `agent`, which `qa` may send back to work again; let it come after `qa`",
    ),
];

#[test]
fn f95_refusals_of_steps_that_reach_the_outside_name_the_place_and_what_was_meant() {
    for (steps, expected) in REFUSED {
        let text = with_steps(steps);
        let error = load(&text).expect_err(&text);
        let shown = error.to_string();
        assert!(shown.contains(expected), "{text}\nfound    {shown}\nexpected {expected}");
        assert!(shown.starts_with("tasks/t.yml:") && error.excerpt().is_some(), "{shown}");
        assert_eq!(error.code(), Code::ConfigInvalid);
    }
}
