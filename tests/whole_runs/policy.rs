//! Rules over commands: what they deny is never started, what an agent tries of it is said, and the other side stays as it was.

use std::fs;

use serde_json::Value;

use crate::world::{World, agent_step, command_step, qa_step};

const RULES: &str = "\n- { id: no-force-push, deny: git.push, when: { force: true } }\n\
                     - { id: no-deleted-branch, deny: git.push, when: { delete: true } }\n\
                     - { id: no-production-database, deny: database.write, when: { environment: production } }\n\
                     - { id: main-is-asked, approve: git.push, when: { branch: guarded } }";

/// A world with a bare remote that is one commit ahead: a forced push of the checkout would take that commit away.
fn world() -> World {
    let world = World::new();
    world.git(&["init", "-q", "--bare", &world.at("remote.git")]);
    let remote = world.path("remote.git");
    world.git_in(&remote, &["config", "receive.denyDeleteCurrent", "ignore"]);
    world.write("push.sh", &format!("#!/bin/sh\ngit push -f {} HEAD:main\n", world.at("remote.git")));
    world.git(&["add", "push.sh"]);
    world.git(&["commit", "-q", "-m", "script"]);
    world.git(&["commit", "-q", "--allow-empty", "-m", "ahead"]);
    world.git(&["push", "-q", &world.at("remote.git"), "main"]);
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    world.policy(&[("rules", RULES)]);
    world
}

fn refs(world: &World) -> String {
    world.git_in(&world.path("remote.git"), &["for-each-ref"])
}

/// The sixteen ways of F91: name, what the step runs, its environment.
fn ways(world: &World) -> Vec<(&'static str, String, &'static str)> {
    let remote = world.at("remote.git");
    let plain = format!("git push -f {remote} HEAD:main");
    let hidden = {
        // As `base64` writes it; the program reads it back by itself.
        let out = world.command("sh").args(["-c", &format!("printf '%s' '{plain}' | base64 -w0")]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let lease = world.git_in(&world.path("remote.git"), &["rev-parse", "main"]);
    let env = "{ GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: alias.x, GIT_CONFIG_VALUE_0: 'push -f' }";
    let python =
        format!("import subprocess; subprocess.run(['git', 'push', '-f', '{remote}', 'HEAD:main'], check=True)");
    vec![
        ("-f", plain.clone(), ""),
        ("lease", format!("git push --force-with-lease=main:{lease} {remote} HEAD:main"), ""),
        ("+ref", format!("git push {remote} +HEAD:main"), ""),
        ("mirror", format!("git push --mirror {remote}"), ""),
        ("delete", format!("git push {remote} :main"), ""),
        ("alias by -c", format!("git -c alias.x='push -f' x {remote} HEAD:main"), ""),
        ("env", format!("env GIT_TRACE=0 nice timeout 60 {plain}"), ""),
        ("sh -c", format!("sh -c '{plain}'"), ""),
        ("encoded", format!("echo {hidden} | base64 -d | sh"), ""),
        ("file", "sh ./push.sh".to_owned(), ""),
        ("sixty", format!("{}{plain}", "true; ".repeat(60)), ""),
        ("python", format!("python3 -c \"{python}\""), ""),
        ("https", "git push -f https://me:secret@127.0.0.1:9/x.git HEAD:main".to_owned(), ""),
        ("other remote", format!("git remote add backup {remote} && git push -f backup HEAD:main"), ""),
        ("by config", format!("git -c remote.b.url={remote} -c remote.b.push=+HEAD:refs/heads/main push b"), ""),
        ("GIT_*", format!("git x {remote} HEAD:main"), env),
    ]
}

fn task_of(world: &World, id: &str, line: &str, env: &str) {
    let env = if env.is_empty() { String::new() } else { format!("    env: {env}\n") };
    world.task(id, &format!("steps:\n{}{env}", command_step("work", line)));
}

#[test]
fn f91_a_forced_push_in_sixteen_ways_is_denied_before_it_starts() {
    let world = world();
    let before = refs(&world);
    for (n, (name, line, env)) in ways(&world).into_iter().enumerate() {
        let id = format!("w{n}");
        task_of(&world, &id, &format!("touch {}; {line}", world.at(&id)), env);
        let (exit, run) = world.start(&id);
        assert_eq!((exit, &run["code"]), (5, &"POLICY_DENIED".into()), "{name}: {run:#}");
        assert!(!world.path(&id).exists(), "{name}: nothing of it was started");
        assert_eq!(refs(&world), before, "{name}");
        let events = world.events(&format!("run_{id}_001"));
        let denied: Vec<_> = events.iter().filter(|e| e["kind"] == "policy.denied").collect();
        assert_eq!(denied.len(), 1, "{name}: {events:#?}");
        let rule = if name == "delete" { "no-deleted-branch" } else { "no-force-push" };
        let body = &denied[0]["body"];
        assert_eq!((&body["rule"], &body["action"]), (&rule.into(), &"git.push".into()), "{name}");
        assert!(!events.iter().any(|e| e.to_string().contains("me:secret")), "{name}");
        assert!(run["steps"][0]["message"].as_str().unwrap().contains(rule), "{name}: {run:#}");
    }
    world.assert_sound("run_w0_001");
}

/// Without the rule every one of them would have reached the other side: the test above can fail.
#[test]
fn f91_the_same_ways_change_the_remote_where_no_rule_denies_them() {
    let world = world();
    world.policy(&[]);
    let (before, ahead) = (refs(&world), world.git_in(&world.path("remote.git"), &["rev-parse", "main"]));
    for (n, (name, line, env)) in ways(&world).into_iter().enumerate().filter(|(_, way)| way.0 != "https") {
        let id = format!("w{n}");
        task_of(&world, &id, &line, env);
        let (exit, run) = world.start(&id);
        assert_eq!(exit, 0, "{name}: {run:#}");
        assert_ne!(refs(&world), before, "{name}");
        // As it was: also what the mirror brought along goes.
        for line in refs(&world).lines() {
            world.git_in(&world.path("remote.git"), &["update-ref", "-d", line.split('\t').nth(1).unwrap()]);
        }
        world.git_in(&world.path("remote.git"), &["update-ref", "refs/heads/main", &ahead]);
        assert_eq!(refs(&world), before, "{name}");
    }
}

#[test]
fn r_p3_a_production_database_is_not_written_and_a_check_is_stopped_like_a_command() {
    let world = world();
    // A client of our own on PATH would tell whether it was started.
    world.task(
        "t",
        &format!(
            "steps:\n{}",
            qa_step("check", &format!("touch {}; psql -h db.prod -c 'DROP TABLE t'", world.at("mark")))
        ),
    );
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (5, &"POLICY_DENIED".into()), "{run:#}");
    assert_eq!(run["outcome"]["verification"], "failed");
    assert!(!world.path("mark").exists());
    let event = world.events("run_t_001").into_iter().find(|e| e["kind"] == "policy.denied").unwrap();
    assert_eq!(event["body"]["attributes"]["host"], "db.prod", "{event:#}");
}

#[test]
fn r_p2_a_rule_that_asks_stops_a_command_and_what_no_rule_names_goes() {
    let world = world();
    let remote = world.at("remote.git");
    world.command_task("asked", &format!("git push {remote} HEAD:guarded"));
    let (exit, run) = world.start("asked");
    assert_eq!((exit, &run["code"]), (5, &"POLICY_DENIED".into()), "{run:#}");
    assert!(run["steps"][0]["message"].as_str().unwrap().contains("cannot be approved"), "{run:#}");
    world
        .command_task("free", &format!("git push -q {remote} HEAD:refs/heads/free && ls && echo 'git push -f' > note"));
    let (exit, run) = world.start("free");
    assert_eq!(exit, 0, "{run:#}");
    assert!(refs(&world).contains("refs/heads/free"));
}

/// An agent holds its own tools: what it tries is seen and said, and what stops it is that the copy has no remote and the
/// other side refuses.
#[test]
fn f91_what_an_agent_tries_is_said_and_the_remote_stays_as_it_was() {
    let world = world();
    let remote = world.at("remote.git");
    world.git_in(&world.path("remote.git"), &["config", "receive.denyNonFastForwards", "true"]);
    let tries = [
        "git push -f".to_owned(),
        "git push --force origin HEAD:main".to_owned(),
        format!("git push -f {remote} HEAD:main"),
        "sh ./push.sh".to_owned(),
        format!("{}git push -f {remote} HEAD:main", "true && ".repeat(60)),
    ];
    let mut script = "echo '{\"type\":\"session\",\"id\":\"s\"}'\n".to_owned();
    for (n, line) in tries.iter().enumerate() {
        let input = serde_json::json!({ "type": "tool_call", "id": n.to_string(), "name": "shell", "input": { "command": line } });
        script.push_str(&format!("echo '{input}'\n{line} >> {} 2>&1\n", world.at("tried")));
        script.push_str(&format!("echo '{{\"type\":\"tool_result\",\"id\":\"{n}\",\"ok\":true}}'\n"));
    }
    script.push_str("echo '{\"type\":\"result\",\"status\":\"completed\",\"text\":\"Done.\"}'\n");
    fs::write(world.path("agent.sh"), script).unwrap();
    let agents = format!("{{ bot: {{ run: [ sh, \"{}\" ], protocol: agentrun }} }}", world.at("agent.sh"));
    world.policy(&[("rules", RULES), ("agents", &agents)]);
    world.task("t", &format!("steps:\n{}", agent_step("code", "x").replace("name: fake", "name: bot")));
    let before = refs(&world);
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(refs(&world), before);
    let is_try = |e: &&Value| e["kind"] == "warning.raised" && e["body"]["rule"] == "no-force-push";
    let events = world.events("run_t_001");
    assert_eq!(events.iter().filter(is_try).count(), tries.len(), "{events:#?}");
    let tried = fs::read_to_string(world.path("tried")).unwrap();
    assert!(tried.contains("No configured push destination"), "{tried}");
    assert!(tried.contains("non-fast-forward"), "{tried}");
}

#[test]
fn the_isolated_copy_has_no_remote_to_push_to() {
    let world = world();
    world.git(&["remote", "add", "origin", &world.at("remote.git")]);
    world.git(&["fetch", "-q", "origin"]);
    world.command_task(
        "t",
        &format!(
            "git remote > {}; git config --local --get-regexp 'remote|url|branch' >> {0} || true",
            world.at("remotes")
        ),
    );
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(fs::read_to_string(world.path("remotes")).unwrap(), "");
}

const CASES: &str = "cases:\n\
    - { name: forced, command: git push -f, expect: deny, rule: no-force-push }\n\
    - { name: asked, action: deploy, with: { environment: production }, expect: approve }\n\
    - { name: wrong, action: export, expect: allow }\n\
    - { name: wrong rule, command: git push -f, expect: deny, rule: no-deleted-branch }\n";

#[test]
fn r_p3_policy_test_proves_rules_and_names_the_line_of_what_fails() {
    let world = world();
    world.write("policies/cases/a.yml", CASES);
    let out = world.run(&["policy", "test"]);
    assert_eq!(out.exit, 1, "{}{}", out.stdout, out.stderr);
    for expected in [
        "policies/cases/a.yml:4: wrong: expected allow, found approve",
        "policies/cases/a.yml:5: wrong rule",
        "2 cases passed, 2 failed",
    ] {
        assert!(out.stdout.contains(expected), "{expected}: {}", out.stdout);
    }
    let (exit, tested) = world.json(&["policy", "test"]);
    assert_eq!((exit, &tested["passed"], &tested["failed"]), (1, &2.into(), &2.into()), "{tested:#}");
    world.write("policies/cases/b.yml", "cases:\n- { name: x, action: deploy, expect: alow }\n");
    let out = world.run(&["policy", "test"]);
    assert_eq!(out.exit, 10);
    assert!(
        out.stderr.contains("policies/cases/b.yml:2:") && out.stderr.contains("did you mean `allow`"),
        "{}",
        out.stderr
    );
    world.write("one.yml", &format!("{}\n", CASES.lines().take(3).collect::<Vec<_>>().join("\n")));
    let out = world.run(&["policy", "test", "one.yml"]);
    assert_eq!((out.exit, out.stdout.as_str()), (0, "2 cases passed, 0 failed\n"), "{}", out.stderr);
    assert!(!world.state("").exists(), "nothing is written");
}

#[test]
fn r_p3_policy_explain_says_which_rule_decides_and_which_did_not_fit() {
    let world = world();
    let (exit, explained) = world.json(&["policy", "explain", "--command", "sh push.sh"]);
    assert_eq!((exit, &explained["decision"]["rule"]), (0, &"no-force-push".into()), "{explained:#}");
    let rules = explained["effects"][0]["rules"].as_array().unwrap();
    assert_eq!((&rules[1]["fits"], &rules[1]["conditions"][0]["held"]), (&false.into(), &"does_not_hold".into()));
    let (exit, explained) = world.json(&["policy", "explain", "database.write", "--attr", "environment=staging"]);
    assert_eq!((exit, &explained["decision"]["verdict"]), (0, &"approve".into()), "{explained:#}");
    assert_eq!(world.run(&["policy", "explain"]).exit, 2);
}

#[test]
fn r_a20_policy_check_lists_the_types_and_names_what_is_missing() {
    let world = world();
    world.policy(&[
        ("rules", RULES),
        ("retry", "{ per: { deploy: { attempts: 2 } } }"),
        ("retention", "{ deploy: release }"),
    ]);
    let (exit, checked) = world.json(&["policy", "check"]);
    assert_eq!(exit, 0, "{checked:#}");
    let deploy = &checked["types"][0];
    assert_eq!(
        (&deploy["type"], &deploy["class"], &deploy["tries"]),
        (&"deploy".into(), &"long_job".into(), &2.into())
    );
    assert_eq!((&deploy["retention"], &deploy["approval"]["verdict"]), (&"release".into(), &"approve".into()));
    let missing: Vec<_> = deploy["missing"].as_array().unwrap().iter().map(|m| m["key"].as_str().unwrap()).collect();
    assert_eq!(missing, ["actions.deploy", "send_budget.deploy", "a rule for deploy"]);
    assert!(world.run(&["policy", "check"]).stdout.contains("remark: there are no cases"));
    // The policy of another revision.
    world.git(&["add", "automation-policy.yml"]);
    world.git(&["commit", "-q", "-m", "policy"]);
    world.write("automation-policy.yml", "version: [\n");
    assert_eq!(world.run(&["policy", "check"]).exit, 10);
    let (exit, checked) = world.json(&["policy", "check", "--policy-ref", "HEAD"]);
    assert_eq!((exit, &checked["policy_ref"]), (0, &"HEAD".into()));
}

#[test]
fn f90_without_a_policy_effects_are_denied_and_a_broken_one_is_no_default() {
    let world = world();
    let path = world.repo().join("automation-policy.yml");
    fs::remove_file(&path).unwrap();
    let (exit, explained) = world.json(&["policy", "explain", "notification"]);
    assert_eq!((exit, &explained["decision"]["verdict"]), (0, &"deny".into()), "{explained:#}");
    for broken in ["", "version: v1\nrules: [ { id: a, deny: git.push, when: { forse: true } } ]\n"] {
        fs::write(&path, broken).unwrap();
        for args in [&["policy", "check"][..], &["policy", "explain", "deploy"], &["policy", "test"]] {
            assert_eq!(world.run(args).exit, 10, "{broken:?} {args:?}");
        }
    }
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/nowhere", &path).unwrap();
    assert_eq!(world.run(&["policy", "check"]).exit, 10);
}

#[test]
fn r_p3_what_init_writes_proves_itself_and_so_do_the_rules_of_this_repository() {
    let world = World::empty();
    fs::remove_file(world.repo().join("prompts/do.md")).unwrap();
    assert_eq!(world.run(&["init"]).exit, 0);
    let out = world.run(&["policy", "test"]);
    assert_eq!(out.exit, 0, "{}{}", out.stdout, out.stderr);
    let own = world.run(&["-C", env!("CARGO_MANIFEST_DIR"), "policy", "test"]);
    assert_eq!(own.exit, 0, "{}{}", own.stdout, own.stderr);
}
