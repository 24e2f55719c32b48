//! Processes (architecture §6): nobody is left over, nobody holds a run, and a signal leaves a run that goes on.

use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::world::{Running, World, agent_step, command_step, idle_steps, qa_step, states, step, wait_until};

fn quick() -> World {
    let world = World::new();
    world.policy(&[("timeouts", "{ call: 10ms, grace: 300ms, exit: 1s }")]);
    world
}

#[test]
fn f25_r_r9_a_grandchild_that_holds_the_output_does_not_hold_the_run() {
    let world = quick();
    world.task(
        "t",
        &format!(
            "steps:\n{}{}",
            agent_step("code", "ok,grandchild-holds-stdout"),
            command_step("work", "sleep 60 & echo done")
        ),
    );
    let began = Instant::now();
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    world.assert_sound("run_t_001");
}

#[test]
fn f26_daemons_are_found_and_ended_before_the_run_is_over() {
    let world = quick();
    world.agent_task("t", "setsid-child,setsid-child,ok");
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert!(world.living().is_empty(), "the terminal state comes last");
    assert!(world.has_event("run_t_001", "warning.raised", "orphans_killed="));
    world.assert_sound("run_t_001");
}

#[test]
fn fr_a19_the_worker_below_a_wrapper_is_gone_with_it_and_commits_nothing_later() {
    let world = quick();
    world.task("t", &format!("steps:\n{}    timeout: 400ms\n", agent_step("code", "session:s,wrapper-worker")));
    world.policy(&[("timeouts", "{ call: 10ms, grace: 300ms, exit: 1s }"), ("budgets", "{ task: { attempts: 1 } }")]);
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"MODEL_TIMEOUT".into()), "{run:#}");
    assert!(world.living().is_empty());
    world.assert_sound("run_t_001");
}

#[test]
fn f27_fr_k5_a_child_that_ignores_signals_is_killed_before_the_run_says_stopped() {
    let world = quick();
    world.agent_task("t", &format!("ignore-term,touch:{},silent", world.at("in")));
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    running.signal(Signal::TERM);
    let out = running.end();
    assert_eq!(out.exit, 143, "{}", out.stderr);
    assert!(world.living().is_empty(), "not stopped until it is proved");
    let run = out.json();
    assert_eq!(run["status"], "INTERRUPTED");
    assert!(world.has_event("run_t_001", "warning.raised", "kill_escalated=true"));
}

#[test]
fn f28_r_r9_signals_leave_a_run_that_goes_on() {
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let world = quick();
        let script =
            format!("effect:{},write:w.txt=w,touch:{},wait-for:{},ok", world.at("e"), world.at("in"), world.at("go"));
        world.task(
            "t",
            &format!(
                "steps:\n{}{}{}",
                command_step("first", &format!("echo x >> {}", world.at("f"))),
                agent_step("code", &script),
                qa_step("qa", "test -e w.txt")
            ),
        );
        let running = world.spawn_until(&["start", "t", "--json"], "in");
        running.signal(signal);
        let out = running.end();
        assert_eq!(out.exit, exit, "{}\n{}", out.stdout, out.stderr);
        let run = out.json();
        assert_eq!((&run["status"], &run["code"]), (&"INTERRUPTED".into(), &"INTERRUPTED".into()));
        assert_eq!(run["next"], "agentrun resume run_t_001");
        assert!(world.living().is_empty());
        let (shown, status) = world.json(&["status", "run_t_001"]);
        assert_eq!((shown, &status["runs"][0]["meaning"]), (0, &"can_be_retried".into()));
        world.open("go");
        let (exit, run) = world.json(&["resume", "run_t_001"]);
        assert_eq!((exit, &run["status"]), (0, &"SUCCEEDED".into()), "{run:#}");
        assert_eq!((world.lines("f"), world.lines("e")), (1, 2));
        assert_eq!(run["usage"]["failed_attempts"], 0, "R-R4: a signal uses no attempt up");
        world.assert_sound("run_t_001");
    }
}

#[test]
fn f28_a_second_signal_kills_at_once_and_the_state_is_the_same() {
    let world = World::new();
    world.policy(&[("timeouts", "{ grace: 60s }")]);
    world.agent_task("t", &format!("ignore-term,touch:{},silent", world.at("in")));
    let mut running = world.spawn_until(&["start", "t", "--json"], "in");
    let began = Instant::now();
    running.signal(Signal::INT);
    wait_until("agentrun ends", || {
        // The second press counts once the first was heard.
        std::thread::sleep(Duration::from_millis(100));
        if !running.is_over() {
            running.signal(Signal::INT);
        }
        running.is_over()
    });
    let out = running.end();
    assert!(began.elapsed() < Duration::from_secs(30), "no grace was waited");
    assert_eq!((out.exit, &out.json()["status"]), (130, &"INTERRUPTED".into()));
    world.assert_sound("run_t_001");
}

#[test]
fn fr_d23_ctrl_c_in_every_kind_of_step_then_resume() {
    let line =
        |world: &World| format!("touch {}; while ! test -e {}; do sleep 0.01; done", world.at("in"), world.at("go"));
    for kind in ["command", "qa"] {
        let world = quick();
        world.task(
            "t",
            &format!("steps:\n  - key: work\n    kind: {kind}\n    run: {}\n", serde_json::json!(line(&world))),
        );
        let running = world.spawn_until(&["start", "t"], "in");
        running.signal(Signal::INT);
        assert_eq!(running.end().exit, 130, "{kind}");
        assert_eq!(step(&world.show("run_t_001"), "work")["state"], "PENDING");
        world.open("go");
        assert_eq!(world.json(&["resume", "run_t_001"]).0, 0, "{kind}");
        world.assert_sound("run_t_001");
    }
}

#[test]
fn r_r9_a_signal_between_two_attempts_ends_the_wait() {
    let world = World::new();
    world.policy(&[("retry", "{ base: 1h, max: 1h, jitter: 0, total: 3h }")]);
    world.agent_task("t", &format!("touch:{},error:NETWORK_TIMEOUT", world.at("in")));
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    wait_until("it waits", || world.json(&["status", "t"]).1["runs"][0]["status"] == "RETRYING");
    running.signal(Signal::INT);
    let out = running.end();
    assert_eq!((out.exit, &out.json()["status"]), (130, &"RETRYING".into()), "{}", out.stderr);
    let (exit, told) = world.json(&["resume", "t"]);
    assert_eq!(exit, 18, "it says when: {told:#}");
}

#[test]
fn f37_two_hundred_steps_leave_no_zombie() {
    let world = World::new();
    let steps = idle_steps(199);
    let gate = command_step(
        "gate",
        &format!("touch {}; while ! test -e {}; do sleep 0.01; done", world.at("in"), world.at("go")),
    );
    world.task("t", &format!("steps:\n{steps}{gate}"));
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    let pid = running.pid();
    // Field 4 of stat is the parent; what follows the name's bracket is safe to split.
    let parent =
        |stat: &str| stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
    let stats = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| std::fs::read_to_string(e.unwrap().path().join("stat")).ok());
    let children: Vec<String> = stats.filter(|stat| parent(stat) == Some(pid)).collect();
    assert_eq!(children.len(), 1, "only the step at work: {children:?}");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open < 64, "{open} descriptors");
    world.open("go");
    let out = running.end();
    assert_eq!(out.exit, 0, "{}", out.stderr);
    assert!(states(&out.json()).iter().all(|(_, state)| state == "SUCCEEDED"));
    world.assert_sound("run_t_001");
}

#[test]
fn f22_a_flood_is_capped_and_the_memory_is_not_its_size() {
    let world = World::new();
    world.policy(&[("logs", "{ max: 1MiB }")]);
    world.task(
        "t",
        &format!(
            "steps:\n{}{}",
            command_step("flood", "yes 0123456789012345678901234567890123456789 | head -c 80000000"),
            command_step(
                "gate",
                &format!("touch {}; while ! test -e {}; do sleep 0.01; done", world.at("in"), world.at("go"))
            )
        ),
    );
    let running = world.spawn_until(&["start", "t", "--json"], "in");
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let peak: u64 =
        status.lines().find(|l| l.starts_with("VmHWM")).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 64 << 10, "{peak} KiB");
    world.open("go");
    assert_eq!(running.end().exit, 0);
    let kept = std::fs::metadata(world.state("run_t_001/attempt-1/flood.stdout")).unwrap().len();
    assert!(kept <= (1 << 20) + 4096, "{kept}");
    assert!(world.has_event("run_t_001", "warning.raised", "truncated=true"));
}

#[test]
fn f23_bytes_that_are_no_text_are_kept_as_they_are() {
    let world = World::new();
    let code = agent_step("code", "session:s,bad-utf8,raw:,ok");
    let command = command_step("bytes", "printf '\\377\\000\\r\\033[31mred'; head -c 3000000 /dev/zero | tr '\\0' x");
    world.task("t", &format!("steps:\n{code}{command}"));
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    let kept = std::fs::read(world.state("run_t_001/attempt-1/bytes.stdout")).unwrap();
    assert!(kept.starts_with(b"\xff\0\r\x1b[31mred") && kept.len() == 3_000_011, "{}", kept.len());
    let shown = world.agentrun(&["logs", "run_t_001", "--step", "bytes"]).output().unwrap();
    assert!(!shown.stdout.contains(&0x1b), "F94: nothing controls the terminal");
    let raw = world.agentrun(&["logs", "run_t_001", "--step", "bytes", "--raw"]).output().unwrap();
    assert_eq!(raw.stdout, kept);
}

#[test]
fn f24_a_reader_that_leaves_stops_nothing() {
    let world = World::new();
    world.agent_task("t", &format!("message:hello,touch:{},wait-for:{},ok", world.at("in"), world.at("go")));
    for args in [vec!["start", "t"], vec!["start", "t", "--new", "--json"]] {
        let _ = std::fs::remove_file(world.path("in"));
        let _ = std::fs::remove_file(world.path("go"));
        let mut child = world.agentrun(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        wait_until("it works", || world.path("in").exists());
        world.open("go");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}");
    }
    assert_eq!(world.show("run_t_002")["status"], "SUCCEEDED");
    // Commands that answer: a reader that leaves is no fault either.
    let mut child = world.agentrun(&["man"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn f35_an_agent_that_reads_no_prompt_is_no_obstacle() {
    let world = World::new();
    world.write("prompts/do.md", &"long ".repeat(40_000));
    world.agent_task("t", "ignore-stdin,ok");
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    world.agent_task("u", "ok");
    assert_eq!(world.start("u").0, 0);
}

#[test]
fn f39_fr_f23_a_run_inside_a_run_is_refused() {
    let world = World::new();
    let agentrun = env!("CARGO_BIN_EXE_agentrun");
    world.command_task("inner", "true");
    let line = format!(
        "{agentrun} -C {} start inner --json > {}; echo $? > {}",
        world.repo().display(),
        world.at("out"),
        world.at("exit")
    );
    world.command_task("t", &line);
    assert_eq!(world.start("t").0, 0);
    assert_eq!(std::fs::read_to_string(world.path("exit")).unwrap(), "7\n");
    assert!(std::fs::read_to_string(world.path("out")).unwrap().contains("NESTED_RUN"));
}

#[test]
fn fr_a16_work_in_the_background_of_an_agent_that_ended_is_ended_and_said() {
    let world = quick();
    world.task(
        "t",
        &format!("steps:\n{}{}", agent_step("code", "background-job,ok"), qa_step("qa", "test -e background-job.done")),
    );
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["code"]), (1, &"QA_FAILED".into()), "{run:#}");
    assert!(world.has_event("run_t_001", "warning.raised", "orphans_killed="), "{:#?}", world.events("run_t_001"));
    world.assert_sound("run_t_001");
}

/// A job of a CI runner: a shell that calls agentrun, as its last command or not.
fn ci_job(world: &World, line: &str) -> Running {
    let mut shell = world.command("sh");
    shell.args(["-c", line]).env("AGENTRUN", env!("CARGO_BIN_EXE_agentrun")).env("CI", "true");
    world.spawn_command(shell)
}

/// A finished step with an effect, then an agent that waits for a gate.
fn cancelled_job(world: &World) {
    let script = format!("echo-session,touch:{},wait-for:{},usage:100,ok", world.at("in"), world.at("go"));
    let prepare = command_step("prepare", &format!("echo x >> {}", world.at("prepared")));
    world.task("t", &format!("steps:\n{prepare}{}", agent_step("code", &script)));
}

#[test]
fn f30_a_cancel_that_reaches_the_shell_alone_and_then_kills_all_is_gone_on_with_by_the_next_job() {
    let world = World::new();
    cancelled_job(&world);
    let mut job = ci_job(&world, "\"$AGENTRUN\" start t; exit $?");
    job.reaches(&world.path("in"));
    job.signal(Signal::TERM);
    for pid in world.living() {
        // Some are gone with their parents already.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    wait_until("the runner has killed everything", || world.living().is_empty());
    world.open("go");
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["status"], &run["run"]), (0, &"SUCCEEDED".into(), &"run_t_001".into()), "{run:#}");
    assert_eq!((world.lines("prepared"), &run["attempt"]), (1, &2.into()), "no effect is repeated");
    world.assert_sound("run_t_001");
}

#[test]
fn f30_a_cancel_that_reaches_agentrun_leaves_a_run_to_go_on_with() {
    let world = World::new();
    cancelled_job(&world);
    let mut job = ci_job(&world, "exec \"$AGENTRUN\" start t --json");
    job.reaches(&world.path("in"));
    job.signal(Signal::INT);
    let out = job.end();
    assert_eq!((out.exit, &out.json()["status"]), (130, &"INTERRUPTED".into()), "{}", out.stderr);
    assert!(world.living().is_empty());
    world.open("go");
    let (exit, run) = world.start("t");
    assert_eq!((exit, &run["run"], world.lines("prepared")), (0, &"run_t_001".into(), 1), "{run:#}");
    world.assert_sound("run_t_001");
}
