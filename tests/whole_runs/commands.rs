//! Every command, as scripts and people meet it: documents, exit codes, words, and a first run from nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::world::{Output, World, agent_step, command_step, qa_step};

/// A world with a succeeded and a failed run.
fn two_runs() -> World {
    let world = World::new();
    let code = agent_step("code", "session:s,message:hello there,write:w.txt=w,ok");
    world.task(
        "good",
        &format!("title: Good\nsteps:\n  - context\n{code}{}  - report\n", qa_step("qa", "echo checked")),
    );
    world.task(
        "bad",
        &format!("steps:\n{}{}", agent_step("code", "write:x.txt=x,ok"), qa_step("qa", "echo red; exit 1")),
    );
    assert_eq!((world.start("good").0, world.start("bad").0), (0, 1));
    world
}

/// Whether the document is what its schema in the documentation says.
fn assert_documented(document: &Value, about: &str) {
    let name = document["schema"].as_str().unwrap_or_default();
    let name = name.trim_start_matches("agentrun/").trim_end_matches("/1");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/reference/schemas/{name}.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{about}: {}: {e}", file.display()));
    let schema: Value = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<String> = validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(faults.is_empty(), "{about}: {faults:#?}\n{document:#}");
}

#[test]
fn contract_8_every_document_is_what_its_schema_says() {
    let world = two_runs();
    let mut seen = BTreeSet::new();
    for (args, exit) in [
        (&["start", "good"][..], 0),
        (&["start", "bad"], 1),
        (&["start", "bad", "--dry-run"], 0),
        (&["start", "none"], 16),
        (&["resume", "run_bad_001", "--dry-run"], 0),
        (&["status"], 0),
        (&["status", "--all"], 0),
        (&["show", "good"], 0),
        (&["show", "good", "--budget"], 0),
        (&["show", "good", "--step", "qa"], 0),
        (&["diff", "run_good_001", "run_bad_001"], 0),
        (&["fingerprint", "good"], 0),
        (&["fingerprint", "bad", "--against", "run_good_001"], 0),
        (&["artifact", "list", "good"], 0),
        (&["artifact", "verify", "good"], 0),
        (&["audit", "log", "--run", "good"], 0),
        (&["audit", "verify"], 0),
        (&["explain"], 0),
        (&["explain", "rate_limit"], 0),
        (&["doctor"], 0),
        (&["gc", "--dry-run"], 0),
        (&["init"], 0),
        (&["apply", "good"], 0),
        (&["cancel", "bad"], 0),
        (&["apply", "nothing"], 16),
        (&["cancel", "good"], 8),
        (&["--nonsense"], 2),
    ] {
        let output = world.run(&[args, &["--json"]].concat());
        assert_eq!(output.exit, exit, "{args:?}: {}{}", output.stdout, output.stderr);
        let document = output.json();
        assert_documented(&document, &args.join(" "));
        seen.insert(document["schema"].as_str().unwrap().to_owned());
    }
    assert!(seen.len() >= 14, "{seen:?}");
}

#[test]
fn contract_6_logs_are_text_or_json_lines() {
    let world = two_runs();
    let out = world.run(&["logs", "good", "--step", "qa"]);
    assert_eq!((out.exit, out.stdout.as_str()), (0, "checked\n"));
    let lines = world.run(&["logs", "good", "--json"]).stdout;
    assert!(lines.lines().count() >= 2);
    for line in lines.lines() {
        assert_documented(&serde_json::from_str(line).unwrap(), "logs --json");
    }
    assert_eq!(world.run(&["logs", "good", "--step", "none"]).exit, 16);
}

#[test]
fn contract_6_logs_follow_a_run_to_its_rest() {
    let world = World::new();
    world.command_task(
        "t",
        &format!(
            "echo first; touch {}; while ! test -e {}; do sleep 0.01; done; echo last",
            world.at("in"),
            world.at("go")
        ),
    );
    let running = world.spawn_until(&["start", "t"], "in");
    let following = world.spawn(&["logs", "t", "-f"]);
    world.open("go");
    assert_eq!(running.end().exit, 0);
    let out = following.end();
    assert_eq!((out.exit, out.stdout.as_str()), (0, "first\nlast\n"), "{}", out.stderr);
}

#[test]
fn contract_8_an_error_names_the_thing_and_the_next_command() {
    let world = World::new();
    let out = world.run(&["start", "nothing-like-this"]);
    assert_eq!((out.exit, out.stdout.as_str()), (16, ""));
    assert!(out.stderr.starts_with("error[NOT_FOUND]: "), "{}", out.stderr);
    assert!(out.stderr.contains("nothing-like-this"), "{}", out.stderr);
    assert_eq!(out.stderr.matches("hint:").count(), 1, "{}", out.stderr);
    world.task("t", "steps:\n  - key: a\n    kind: comand\n    run: x\n");
    let out = world.run(&["start", "t"]);
    assert_eq!(out.exit, 10);
    assert!(out.stderr.contains("tasks/t.yml:4:11") && out.stderr.contains("command"), "{}", out.stderr);
}

#[test]
fn r_u1_r_u9_init_in_an_empty_repository_gives_something_that_runs() {
    let world = World::empty();
    fs::remove_dir_all(world.repo().join("prompts")).unwrap();
    let (exit, done) = world.json(&["init", "--commit"]);
    assert_eq!(exit, 0, "{done:#}");
    assert!(world.repo().join("automation-policy.yml").exists() && world.repo().join(".ai-runs").is_dir());
    let next = done["next"].as_str().unwrap();
    let task = next.strip_prefix("agentrun start ").unwrap_or_else(|| panic!("{next}"));
    let (exit, run) = world.start(task);
    assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
    let before = world.read("automation-policy.yml");
    world.write("automation-policy.yml", &format!("{before}# mine\n"));
    let (exit, again) = world.json(&["init"]);
    assert_eq!((exit, again["written"].as_array().unwrap().len()), (0, 0), "never overwrites: {again:#}");
    assert!(world.read("automation-policy.yml").ends_with("# mine\n"));
}

#[test]
fn r_u1_init_without_commit_says_what_is_missing() {
    let world = World::empty();
    fs::remove_dir_all(world.repo().join("prompts")).unwrap();
    let (exit, done) = world.json(&["init"]);
    assert_eq!(exit, 0);
    assert!(done["next"].as_str().unwrap().contains("--commit"), "{done:#}");
    let (exit, error) = world.start("hello");
    assert_eq!((exit, error["hint"].as_str().unwrap_or_default().is_empty()), (11, false), "{error:#}");
}

#[test]
fn contract_6_a_detached_start_answers_at_once_and_the_run_goes_on() {
    let world = World::new();
    world.agent_task("t", &format!("touch:{},wait-for:{},ok", world.at("in"), world.at("go")));
    let (exit, run) = world.json(&["start", "t", "--detach"]);
    assert_eq!((exit, &run["run"]), (0, &"run_t_001".into()), "{run:#}");
    crate::world::wait_until("it works", || world.path("in").exists());
    world.open("go");
    crate::world::wait_until("it ends", || world.show("run_t_001")["status"] == "SUCCEEDED");
    world.assert_sound("run_t_001");
}

#[test]
fn contract_6_a_dry_run_begins_nothing() {
    let world = World::new();
    world.agent_task("t", &format!("effect:{},ok", world.at("e")));
    let (exit, plan) = world.json(&["start", "t", "--dry-run"]);
    assert_eq!(exit, 0, "{plan:#}");
    assert!(!world.path("e").exists() && !world.state("state").exists());
}

#[test]
fn contract_6_what_reaches_the_outside_is_told_in_plain_words_before_anything_begins() {
    let world = World::new();
    world.task(
        "ship",
        "steps:\n- { kind: release, release: 'r_{{ run.short_commit }}' }\n\
         - { kind: deploy, environment: production, run: ./deploy.sh, verify: { smoke: ./smoke.sh } }\n\
         - { key: tell, kind: action, type: notification, target: '#news', contract: chat }\n",
    );
    let told = [
        ("release", "names the release r_{{ run.short_commit }}"),
        ("deploy", "brings the release to production by ./deploy.sh"),
        ("deploy_verify", "looks at the result of deploy: ./smoke.sh"),
        ("tell", "notification to #news under the contract chat"),
    ];
    world.write("policies/contracts/chat.yml", "version: v1\nsend: { run: ./tell.sh }\n");
    for args in [&["start", "ship", "--dry-run"][..], &["fingerprint", "ship"]] {
        let text = world.run(args).stdout;
        for (key, what) in told {
            assert!(text.contains(key) && text.contains(what), "{args:?}: {what}\n{text}");
        }
    }
    let (exit, plan) = world.json(&["start", "ship", "--dry-run"]);
    assert_eq!(
        (exit, plan["steps"][2]["kind"].as_str(), plan["steps"][2]["what"].as_str()),
        (0, Some("verify"), Some(told[2].1))
    );
    assert_documented(&plan, "a plan");
}

#[test]
fn contract_6_on_end_is_told_once_with_the_runs_document() {
    let world = World::new();
    world.agent_task("t", "ok");
    let command = format!("cat >> {}", world.at("told"));
    let (exit, _) = world.json(&["start", "t", "--on-end", &command]);
    assert_eq!(exit, 0);
    let told: Value = serde_json::from_str(&fs::read_to_string(world.path("told")).unwrap()).unwrap();
    assert_eq!((&told["run"], &told["status"]), (&"run_t_001".into(), &"SUCCEEDED".into()));
    assert_documented(&told, "--on-end");
}

#[test]
fn r_m6_a_request_id_leads_through_the_log_and_is_no_key() {
    let world = World::new();
    world.agent_task("t", "ok");
    let file = ["--request-id", "delivery-7"];
    let (_, first) = world.json(&[&["start", "t"][..], &file].concat());
    assert_eq!(first["request_id"], "delivery-7");
    let (_, second) = world.json(&[&["start", "t", "--new"][..], &file].concat());
    assert_ne!(first["run"], second["run"], "tracing never prevents an execution");
    let (exit, log) = world.json(&["audit", "log", "--request", "delivery-7"]);
    assert_eq!(exit, 0);
    let runs: BTreeSet<_> = log["events"].as_array().unwrap().iter().filter_map(|e| e["run"].as_str()).collect();
    assert_eq!(runs.len(), 2, "{log:#}");
}

#[test]
fn r_m6_r_a16_a_key_is_found_in_the_log_and_stands_in_no_file() {
    let world = World::new();
    world.agent_task("t", "ok");
    world.json(&["start", "t", "--idempotency-key", "very-secret-key"]);
    let (_, log) = world.json(&["audit", "log", "--key", "very-secret-key"]);
    assert!(!log["events"].as_array().unwrap().is_empty(), "{log:#}");
    let found = world.command("grep").args(["-rl", "very-secret-key", ".ai-runs"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "hashes only");
}

#[test]
fn fr_l4_a_secret_that_an_agent_prints_is_in_no_file() {
    let mut world = World::new();
    let canary = "hush-canary-0123456789";
    world.vars.push(("MY_TOKEN".to_owned(), canary.to_owned()));
    let agents = format!(
        "{{ fake: {{ run: [ \"{}\" ], protocol: agentrun, env: [ MY_TOKEN ] }} }}",
        env!("CARGO_BIN_EXE_fake-agent")
    );
    world.policy(&[("agents", &agents), ("env", "[ MY_TOKEN ]")]);
    let step = command_step("say", "echo $MY_TOKEN; echo $MY_TOKEN >&2");
    world.task("t", &format!("steps:\n{}{step}", agent_step("code", "session:s,prints-secret:MY_TOKEN,ok")));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    let found = world.command("grep").args(["-rlF", canary, ".ai-runs"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn r_m7_audit_verify_finds_every_kind_of_tampering() {
    for (what, sql) in [
        ("edited", "UPDATE event SET reason = 'nothing' WHERE seq = (SELECT max(seq) - 3 FROM event)"),
        ("deleted", "DELETE FROM event WHERE seq = (SELECT max(seq) - 3 FROM event)"),
        ("cut", "DELETE FROM event WHERE seq > (SELECT max(seq) - 3 FROM event)"),
    ] {
        let world = World::new();
        world.command_task("t", "true");
        assert_eq!(world.start("t").0, 0);
        let database = rusqlite::Connection::open(world.state("state/agentrun.db")).unwrap();
        // Whoever edits the file can drop what guards it, too.
        let triggers: Vec<String> = {
            let mut names = database.prepare("SELECT name FROM sqlite_master WHERE type = 'trigger'").unwrap();
            let found = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
            found.collect()
        };
        for name in triggers {
            database.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        let changed = database.execute(sql, []).unwrap();
        assert!(changed >= 1, "{what}");
        drop(database);
        let (exit, found) = world.json(&["audit", "verify"]);
        assert_eq!(exit, 13, "{what}: {found:#}");
        assert!(world.run(&["audit", "verify"]).stdout.contains("run_t_001"), "{what}");
    }
}

#[test]
fn contract_6_diff_names_what_differs() {
    let world = two_runs();
    let out = world.run(&["diff", "run_good_001", "run_bad_001", "--patch"]);
    assert_eq!(out.exit, 0, "{}", out.stderr);
    assert!(out.stdout.contains("w.txt") && out.stdout.contains("x.txt"), "{}", out.stdout);
    assert_eq!(world.run(&["diff", "run_good_001", "run_none_001"]).exit, 16);
    world.run(&["resume", "run_bad_001"]);
    let (exit, attempts) = world.json(&["diff", "run_bad_001@1", "run_bad_001@2"]);
    assert_eq!(exit, 0, "R-S7: {attempts:#}");
}

#[test]
fn contract_6_explain_knows_every_code() {
    let world = World::new();
    let (_, all) = world.json(&["explain"]);
    let codes: Vec<String> = all
        .to_string()
        .split('"')
        .filter(|w| w.chars().all(|c| c.is_ascii_uppercase() || c == '_') && w.len() > 3)
        .map(ToOwned::to_owned)
        .collect();
    assert!(codes.len() > 30, "{codes:?}");
    for code in ["RATE_LIMIT", "qa_failed", "STORE_FULL"] {
        let out = world.run(&["explain", code]);
        assert_eq!(out.exit, 0, "{code}");
        assert!(out.stdout.contains(&code.to_uppercase()), "{}", out.stdout);
    }
    assert_ne!(world.run(&["explain", "NO_SUCH"]).exit, 0);
}

#[test]
fn contract_6_completions_and_manual_pages() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let out = world.run(&["completions", shell]);
        assert!(out.exit == 0 && out.stdout.contains("agentrun"), "{shell}");
    }
    let out = world.run(&["man"]);
    assert!(out.exit == 0 && out.stdout.contains(".TH"), "{}", out.stdout);
    assert_eq!(world.run(&["man", "--out", &world.at("man")]).exit, 0);
    assert!(fs::read_dir(world.path("man")).unwrap().count() > 15);
    for args in [&["--help"][..], &["--version"], &["start", "--help"], &["help"]] {
        let out = world.run(args);
        assert!(out.exit == 0 && !out.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn contract_6_gc_tells_before_it_deletes() {
    let world = two_runs();
    let (exit, told) = world.json(&["gc", "--dry-run", "--older-than", "0s"]);
    assert_eq!(exit, 0, "{told:#}");
    assert!(world.state("run_good_001").is_dir());
    assert_eq!(world.run(&["gc", "--older-than", "0s"]).exit, 0);
    assert!(!world.state("run_good_001").exists() && world.state("run_bad_001").is_dir());
    assert_eq!(world.git(&["show", "agentrun/run_good_001:w.txt"]), "w", "never a branch");
    let (exit, log) = world.json(&["audit", "verify"]);
    assert_eq!(exit, 0, "{log:#}");
}

#[test]
fn contract_6_minus_c_works_from_elsewhere() {
    let world = World::new();
    world.command_task("t", "true");
    let mut call = world.agentrun(&["-C", world.repo().to_str().unwrap(), "start", "t", "--json"]);
    call.current_dir(world.home());
    let out = Output::of(call);
    assert_eq!(out.exit, 0, "{}", out.stdout);
}

#[test]
fn f98_state_is_private_and_a_folder_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.command_task("t", "true");
    assert_eq!(world.start("t").0, 0);
    let open: Vec<String> = walk(&world.state(""))
        .into_iter()
        .filter(|path| {
            fs::symlink_metadata(path).unwrap().permissions().mode() & 0o077 != 0 && !path.contains("/work/")
        })
        .filter(|path| !path.ends_with(".gitignore") && !path.ends_with("README.md"))
        .collect();
    assert_eq!(open, Vec::<String>::new());
    fs::set_permissions(world.state(""), fs::Permissions::from_mode(0o777)).unwrap();
    let (exit, error) = world.start("t");
    fs::set_permissions(world.state(""), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(exit, 15, "{error:#}");
}

fn walk(dir: &Path) -> Vec<String> {
    let mut found = vec![dir.display().to_string()];
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let is_dir = entry.file_type().unwrap().is_dir();
        found.extend(if is_dir { walk(&path) } else { vec![path.display().to_string()] });
    }
    found
}
