//! What programs inside a run ask for: recorded by them, carried out by the run that holds the right, once.

use std::fs;

use serde_json::Value;

use crate::world::{World, agent_step, command_step, wait_until};

/// A world with a contract under which notifications may be asked for, and scripts of the provider's side: each send is a
/// line on the ledger.
pub fn world(rules: &str) -> World {
    let world = World::new();
    let ledger = world.at("ledger");
    world.write(
        "scripts/send.sh",
        &format!("#!/bin/sh\necho \"$AGENTRUN_IDEMPOTENCY_KEY\" >> {ledger}\necho '{{\"reference\":\"n-1\"}}'\n"),
    );
    world.write(
        "scripts/status.sh",
        &format!("#!/bin/sh\ngrep -qxF \"$AGENTRUN_IDEMPOTENCY_KEY\" {ledger} || exit 1\n"),
    );
    make_executable(&world, "scripts/send.sh");
    make_executable(&world, "scripts/status.sh");
    contract(&world, "notify", "actions: [ notification ]\ndedupe: key\nsend: { run: [ ./scripts/send.sh ] }\n");
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "scripts"]);
    world.policy(&[("rules", rules)]);
    world
}

fn make_executable(world: &World, path: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(world.repo().join(path), fs::Permissions::from_mode(0o755)).unwrap();
}

fn contract(world: &World, name: &str, text: &str) {
    world.write(&format!("policies/contracts/{name}.yml"), &format!("version: \"1\"\nenvironment: test\n{text}"));
}

pub const FREE: &str = "[ { id: free, allow: notification } ]";
pub const ASKED: &str = "[ { id: asked, approve: notification } ]";

/// The script of an agent that asks so often for the same, and is done.
fn asks(world: &World, times: usize, args: &str) -> String {
    let one = format!("request:{}={args},", world.at("answers"));
    format!("session:s1,{}usage:10,result:Done.", one.repeat(times))
}

fn answers(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.path("answers")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const NOTE: &str = "--type notification --target ops --subject event=e1";

#[test]
fn r_a2_what_is_asked_for_twice_and_by_a_new_run_is_done_once() {
    let world = world(FREE);
    world.agent_task("t", &asks(&world, 2, NOTE));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}\n{:?}", answers(&world));
    let (exit, run) = world.json(&["start", "t", "--new"]);
    assert_eq!(exit, 0, "{run:#}");
    let answers = answers(&world);
    assert_eq!(answers.len(), 4, "{answers:#?}");
    for (n, answer) in answers.iter().enumerate() {
        let document = &answer["document"];
        assert_eq!((&answer["exit"], &document["answer"]), (&0.into(), &"done".into()), "{n}: {answer:#}");
        assert_eq!(document["duplicate"], n > 0, "{n}: {answer:#}");
        assert_eq!(document["id"], answers[0]["document"]["id"], "one record");
    }
    assert_eq!(world.lines("ledger"), 1, "sent once");
    world.assert_sound("run_t_001");
    world.assert_sound("run_t_002");
}

#[test]
fn r_p3_what_the_policy_denies_is_on_record_and_answered_so() {
    let world = world("[ { id: no, deny: notification } ]");
    world.agent_task("t", &asks(&world, 1, NOTE));
    let (exit, _) = world.start("t");
    assert_eq!(exit, 0, "the agent went on");
    let answer = &answers(&world)[0];
    assert_eq!((&answer["exit"], &answer["document"]["code"]), (&5.into(), &"POLICY_DENIED".into()), "{answer:#}");
    assert!(world.has_event("run_t_001", "action.refused", "rule `no` says deny"));
    assert_eq!(world.lines("ledger"), 0);
}

#[test]
fn r_a2_what_no_contract_lets_a_program_ask_for_is_refused_naming_what_would_let_it() {
    let world = world(FREE);
    let export = "--type export --target x --subject document=d";
    let named = "--type export --target x --subject document=d --contract notify";
    let odd = "--type notification --target ops";
    let script = format!(
        "session:s1,request:{0}={export},request:{0}={named},request:{0}={odd},usage:10,result:Done.",
        world.at("answers")
    );
    world.agent_task("t", &script);
    assert_eq!(world.start("t").0, 0);
    let answers = answers(&world);
    let code = |n: usize| answers[n]["document"]["code"].as_str().unwrap().to_owned();
    assert_eq!((code(0), code(1)), ("POLICY_DENIED".to_owned(), "POLICY_DENIED".to_owned()), "{answers:#?}");
    assert_eq!(code(2), "VALIDATION_ERROR");
    assert!(answers[2]["document"]["message"].as_str().unwrap().contains("`event`"), "{answers:#?}");
}

#[test]
fn r_a9_what_waits_for_a_person_parks_the_run_and_says_so_at_once() {
    let world = world(ASKED);
    world.agent_task("t", &asks(&world, 2, NOTE));
    let output = world.run(&["start", "t", "--json"]);
    let run = output.json();
    assert_eq!((output.exit, &run["status"]), (3, &"WAITING_APPROVAL".into()), "{run:#}");
    assert!(output.stderr.contains("waits for a person: notification to ops"), "{}", output.stderr);
    for answer in answers(&world) {
        let document = &answer["document"];
        assert_eq!((&answer["exit"], &document["answer"]), (&3.into(), &"waits_for_person".into()), "{answer:#}");
        assert!(document["approval"].as_str().unwrap().starts_with("apr_"), "{answer:#}");
        assert!(document["advice"].as_str().unwrap().contains("do not ask again"));
    }
    assert_eq!(world.lines("ledger"), 0);
}

#[test]
fn r_a7_a_lost_answer_makes_the_run_unknown_and_is_never_sent_again() {
    let world = world(FREE);
    // It acts, and dies before it can say so.
    world.write("scripts/send.sh", &format!("#!/bin/sh\necho x >> {}\nkill -9 $$\n", world.at("ledger")));
    world.git(&["commit", "-qam", "another script"]);
    contract(&world, "notify", "actions: [ notification ]\nsend: { run: [ ./scripts/send.sh ] }\n");
    world.agent_task("t", &asks(&world, 2, NOTE));
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"]), (4, &"OUTCOME_UNKNOWN".into()), "{run:#}");
    for answer in answers(&world) {
        assert_eq!((&answer["exit"], &answer["document"]["answer"]), (&4.into(), &"unknown".into()), "{answer:#}");
        assert!(answer["document"]["advice"].as_str().unwrap().contains("do not repeat it"));
    }
    assert_eq!(world.lines("ledger"), 1);
}

#[test]
fn r_a2_only_a_program_of_the_present_attempt_may_ask() {
    let world = world(FREE);
    let note: Vec<&str> = ["action", "request"].into_iter().chain(NOTE.split(' ')).collect();
    let (exit, refused) = world.json(&note);
    assert_eq!((exit, &refused["code"]), (2, &"USAGE".into()), "{refused:#}");
    world.agent_task("t", &format!("session:s1,env-to:{},usage:10,result:Done.", world.at("env")));
    assert_eq!(world.start("t").0, 0);
    let env = fs::read_to_string(world.path("env")).unwrap();
    let var = |name: &str| env.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap().to_owned();
    let names = ["AGENTRUN_RUN_ID", "AGENTRUN_TOKEN", "AGENTRUN_HOME"];
    let mut world = world;
    world.vars.extend(names.map(|name| (name.to_owned(), var(name))));
    let (exit, refused) = world.json(&note);
    assert_eq!((exit, &refused["code"]), (1, &"PERMISSION_DENIED".into()), "the run is at rest: {refused:#}");
    // With all of it in hand, nothing else is granted.
    let (_, refused) = world.json(&["start", "t", "--new"]);
    assert_eq!(refused["code"], "NESTED_RUN", "{refused:#}");
    let (_, refused) = world.json(&["resume", "run_t_001"]);
    assert_eq!(refused["code"], "NESTED_RUN", "{refused:#}");
}

#[test]
fn r_a2_a_token_of_an_earlier_attempt_is_refused_and_no_token_is_written_anywhere() {
    let world = world(FREE);
    // The first attempt keeps its variables and fails; the second asks with the old ones.
    let line = format!(
        "if [ -e {0} ]; then touch {1}; while [ ! -e {2} ]; do sleep 0.02; done; else printf %s \"$AGENTRUN_TOKEN\" > {0}; \
         echo $AGENTRUN_TOKEN; exit 1; fi",
        world.at("token"),
        world.at("second"),
        world.at("go")
    );
    world.command_task("t", &line);
    assert_eq!(world.start("t").0, 1);
    let token = fs::read_to_string(world.path("token")).unwrap();
    assert_eq!(token.len(), 32);
    let running = world.spawn_until(&["resume", "run_t_001"], "second");
    let mut asks = world.agentrun(&["action", "request", "--json"]);
    asks.args(NOTE.split(' ')).env("AGENTRUN_RUN_ID", "run_t_001").env("AGENTRUN_TOKEN", &token);
    let refused = crate::world::Output::of({
        asks.env("AGENTRUN_HOME", world.state(""));
        asks
    });
    assert_eq!((refused.exit, &refused.json()["code"]), (1, &"PERMISSION_DENIED".into()), "{refused:?}");
    world.open("go");
    assert_eq!(running.end().exit, 0);
    assert_eq!(files_with(&world.state(""), token.as_bytes()), Vec::<std::path::PathBuf>::new());
}

/// Files below a folder that hold these bytes.
pub fn files_with(folder: &std::path::Path, bytes: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let text = fs::read(entry.path()).unwrap_or_default();
                if text.windows(bytes.len()).any(|window| window == bytes) {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}

#[test]
fn r_a6_what_is_asked_for_goes_on_after_the_agent_has_ended() {
    let world = world(FREE);
    world.write(
        "scripts/send.sh",
        &format!(
            "#!/bin/sh\ntouch {0}\nwhile [ ! -e {1} ]; do sleep 0.02; done\necho x >> {2}\n",
            world.at("sending"),
            world.at("go"),
            world.at("ledger")
        ),
    );
    world.git(&["commit", "-qam", "another script"]);
    let script = format!("session:s1,request:{}={NOTE} --no-wait,usage:10,result:Done.", world.at("answers"));
    let after = command_step("after", &format!("touch {}", world.at("after")));
    world.task("t", &format!("steps:\n{}{after}", agent_step("code", &script)));
    let running = world.spawn_until(&["start", "t"], "sending");
    wait_until("the next step", || world.path("after").exists());
    let answer = &answers(&world)[0];
    assert_eq!((&answer["exit"], &answer["document"]["answer"]), (&7.into(), &"in_progress".into()), "{answer:#}");
    world.open("go");
    assert_eq!(running.end().exit, 0);
    assert_eq!(world.lines("ledger"), 1);
    world.assert_sound("run_t_001");
}
