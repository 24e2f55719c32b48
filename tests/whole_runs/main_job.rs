//! The main job as a user does it: one command, and what it leaves.

use crate::world::{World, agent_step, qa_step, step};

fn whole_task(world: &World) {
    let code = agent_step("code", "read-stdin,write:hello.txt=hello,ok");
    let qa = qa_step("qa", "test \"$(cat hello.txt)\" = hello && echo fine");
    world.task("182", &format!("title: Say hello\nsteps:\n  - context\n{code}{qa}  - report\n"));
}

#[test]
fn r_s1_context_agent_qa_and_report_end_in_a_branch_a_patch_and_reports() {
    let world = World::new();
    whole_task(&world);
    let (exit, run) = world.start("182");
    assert_eq!((exit, &run["status"], &run["exit"]), (0, &"SUCCEEDED".into(), &0.into()), "{run:#}");
    assert_eq!(run["run"], "run_182_001");
    assert_eq!((&run["via"], &run["reused"], &run["phase"]), (&"new".into(), &false.into(), &"QA_PASSED".into()));
    assert_eq!(run["outcome"], serde_json::json!({"process": "exited", "verification": "passed", "success": true}));
    assert_eq!(run["usage"]["tokens"], 1050);
    assert_eq!(run["usage"]["tool_calls"], 1);
    // R-W2: the developer's checkout is not touched, the work comes home as branch and patch.
    assert!(!world.repo().join("hello.txt").exists());
    assert_eq!(world.git(&["show", "agentrun/run_182_001:hello.txt"]), "hello");
    for name in ["report.md", "report.html", "result.json", "junit.xml", "manifest.yml", "artifacts/changes.patch"] {
        assert!(world.state(&format!("run_182_001/{name}")).is_file(), "{name}");
    }
    assert!(!world.state("work/run_182_001").exists(), "the copy goes when its changes are safe");
    let shown = world.git(&["status", "--porcelain", "-uall", "--", "src", ".ai-runs"]);
    assert_eq!(shown, "", "the folder ignores itself");
    world.assert_sound("run_182_001");
}

#[test]
fn r_s3_checkpoints_carry_their_names_and_commits() {
    let world = World::new();
    whole_task(&world);
    let (_, run) = world.start("182");
    let names: Vec<_> = run["checkpoints"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["CONTEXT_PREPARED", "CODE_GENERATED", "QA_PASSED", "report"]);
    let commit = run["checkpoints"][1]["commit"].as_str().unwrap();
    assert_eq!(world.git(&["show", &format!("{commit}:hello.txt")]), "hello");
}

#[test]
fn r_s4_the_manifest_says_what_the_record_says() {
    let world = World::new();
    whole_task(&world);
    let (_, run) = world.start("182");
    let manifest = std::fs::read_to_string(world.state("run_182_001/manifest.yml")).unwrap();
    assert!(manifest.starts_with("manifestVersion: 1\n"), "{manifest}");
    for (key, value) in [("runId", "run"), ("baseCommit", "base_commit"), ("contextHash", "context_hash")] {
        let line = format!("{key}: {}", run[value].as_str().unwrap());
        assert!(manifest.contains(&line), "{line}\n{manifest}");
    }
    for key in ["generation:", "fence:", "taskSpecHash:", "completedSteps:", "nextStep:", "artifacts:", "lockfiles:"] {
        assert!(manifest.contains(key), "{key}\n{manifest}");
    }
}

#[test]
fn r_u1_people_are_told_what_happened_what_it_cost_and_what_to_do_next() {
    let world = World::new();
    whole_task(&world);
    let told = world.run(&["start", "182"]);
    assert_eq!(told.exit, 0, "{}", told.stderr);
    assert!(told.stdout.contains("run_182_001"), "{}", told.stdout);
    assert!(told.stdout.contains("agentrun show") || told.stderr.contains("agentrun show"), "{}", told.stdout);
    assert!(!told.stdout.contains('\u{1b}') && !told.stderr.contains('\u{1b}'), "no colour when piped");
    let quiet = world.run(&["start", "182", "--quiet"]);
    assert_eq!((quiet.exit, quiet.stderr.as_str()), (0, ""));
}

#[test]
fn contract_6_a_prompt_alone_is_a_task() {
    let world = World::new();
    let script = "fake";
    let (exit, run) = world.json(&["start", "--prompt", "Say hello", "--qa", "true", "--agent", script]);
    // The scripted agent without a script says nothing: no result, no success.
    assert_eq!((exit, &run["code"]), (1, &"NO_RESULT".into()), "{run:#}");
    assert_eq!(step(&run, "qa")["state"], "BLOCKED");
}

#[test]
fn contract_10_a_step_sees_the_allow_list_and_its_own_variables_alone() {
    let mut world = World::new();
    world.vars = [("SECRET_TOKEN", "hush"), ("RUSTFLAGS", "-g"), ("CI_JOB", "7")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .to_vec();
    let file = world.at("env");
    let steps = format!(
        "inputs: {{ ticket: \"L-1; touch {}\" }}\nsteps:\n{}{}    env: {{ OWN: mine }}\n",
        world.at("spliced"),
        agent_step("code", &format!("env-to:{file}-agent,ok")),
        crate::world::command_step("look", &format!("env > {file}-command")),
    );
    world.task("e", &steps);
    let (exit, run) = world.start("e");
    assert_eq!(exit, 0, "{run:#}");
    let (agent, command) = (std::fs::read_to_string(world.path("env-agent")).unwrap(), {
        std::fs::read_to_string(world.path("env-command")).unwrap()
    });
    for text in [&agent, &command] {
        assert!(!text.contains("hush") && !text.contains("CI_JOB"), "{text}");
        for own in
            ["AGENTRUN_RUN_ID=run_e_001", "AGENTRUN_ATTEMPT=1", "AGENTRUN_STEP=", "AGENTRUN_REQUEST_ID=", "HOME="]
        {
            assert!(text.contains(own), "{own}: {text}");
        }
    }
    assert!(command.contains("RUSTFLAGS=-g") && !agent.contains("RUSTFLAGS"));
    assert!(command.contains("AGENTRUN_INPUT_TICKET=L-1; touch") && command.contains("OWN=mine"), "{command}");
    assert!(!world.path("spliced").exists(), "F95: data is no program");
}

#[test]
fn fr_d8_steps_start_in_the_root_of_the_working_copy_wherever_agentrun_was_called() {
    let world = World::new();
    let (agent, command) = (world.at("agent-cwd"), world.at("command-cwd"));
    let look = crate::world::command_step("look", &format!("pwd > {command}"));
    world.task("w", &format!("steps:\n{}{look}", agent_step("code", &format!("cwd-to:{agent},ok"))));
    let mut call = world.agentrun(&["start", "w", "--json"]);
    call.current_dir(world.repo().join("src"));
    assert_eq!(crate::world::Output::of(call).exit, 0);
    let copy = world.state("work/run_w_001").display().to_string();
    assert_eq!(std::fs::read_to_string(world.path("agent-cwd")).unwrap().trim_end(), copy);
    assert_eq!(std::fs::read_to_string(world.path("command-cwd")).unwrap().trim_end(), copy);
}
