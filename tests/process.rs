//! Child processes as they really are: the supervisor against the scripted agent, the shell and the kernel. Tests that
//! need a process of their own (its death, its signals, its memory) are in `process_host.rs`.
#![cfg(feature = "test-fakes")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

mod process_world;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use agentrun::domain::lease::Liveness;
use agentrun::domain::quantity::Millis;
use agentrun::process::identity::liveness;
use agentrun::process::spec::Stdin;
use agentrun::process::{ChildId, Haste, LogFailure, MARKER, StartProblem, Status, StopReport, Supervisor};
use process_world::{DEADLINE, World, is_gone, marked, wait_until};

#[test]
fn output_goes_to_the_files_and_line_by_line_to_the_listener() {
    let world = World::new();
    let end = world.run(world.shell("echo one; echo two >&2; printf three"));
    assert_eq!(end.ending.status, Status::Exited(0));
    assert_eq!(end.lines, ["one", "three"]);
    assert_eq!(fs::read(&end.stdout).unwrap(), b"one\nthree");
    assert_eq!(fs::read(&end.stderr).unwrap(), b"two\n");
    assert_eq!((end.ending.stdout_bytes, end.ending.stderr_bytes), (9, 4));
    assert_eq!((&end.ending.stdout_tail[..], &end.ending.stderr_tail[..]), (&b"one\nthree"[..], &b"two\n"[..]));
    assert_eq!((end.ending.stop, end.ending.leaked, end.ending.truncated), (None, false, false));
}

#[test]
fn a_child_without_output_makes_no_file() {
    let world = World::new();
    let end = world.run(world.command("/bin/true", &[]));
    assert_eq!(end.ending.status, Status::Exited(0));
    assert!(!end.stdout.exists() && !end.stderr.exists());
}

#[test]
fn how_a_child_ended_is_told_exactly() {
    let world = World::new();
    assert_eq!(world.run(world.shell("exit 7")).ending.status, Status::Exited(7));
    assert_eq!(world.run(world.shell("kill -9 $$")).ending.status, Status::Signalled(9));
    assert_eq!(world.run(world.agent("exit:3")).ending.status, Status::Exited(3));
    assert_eq!(world.run(world.agent("kill-self:15")).ending.status, Status::Signalled(15));
}

#[test]
fn a_child_gets_exactly_its_environment_its_folder_and_its_own_session() {
    let world = World::new();
    let mut spec = world.agent("env-to:env,cwd-to:cwd");
    spec.env = vec![("A".into(), "1".into()), (MARKER.into(), "m".into())];
    assert_eq!(world.run(spec).ending.status, Status::Exited(0));
    let env: BTreeSet<_> = fs::read_to_string(world.path("env")).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(env, BTreeSet::from(["A=1".to_owned(), format!("{MARKER}=m")]));
    let cwd = fs::read_to_string(world.path("cwd")).unwrap();
    assert_eq!(cwd, world.folder.canonicalize().unwrap().to_str().unwrap());
    // The agent leads its session; a command only its group.
    let end = world.run(world.shell("cut -d' ' -f 1,5,6 /proc/self/stat; echo $$"));
    let numbers: Vec<&str> = end.lines[0].split(' ').collect();
    assert_eq!(numbers[1], end.lines[1], "the group is the shell's");
    let mut spec = world.shell("cut -d' ' -f 1,5,6 /proc/self/stat; echo $$");
    spec.dies_with_parent = true;
    let end = world.run(spec);
    let numbers: Vec<&str> = end.lines[0].split(' ').collect();
    assert_eq!((numbers[1], numbers[2]), (end.lines[1].as_str(), end.lines[1].as_str()));
}

#[test]
fn why_a_child_did_not_start_is_told() {
    let world = World::new();
    let problem = |end: process_world::Ended| match end.ending.status {
        Status::FailedToStart { problem, message } => (problem, message),
        other => panic!("started: {other:?}"),
    };
    fs::write(world.path("plain"), "").unwrap();
    fs::write(world.path("script"), "#!/no/such/interpreter\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(world.path("script")).status().unwrap().success());

    let (kind, message) = problem(world.run(world.command("/no/such/program", &[])));
    assert!(kind == StartProblem::NotFound && message.contains("/no/such/program"), "{message}");
    let (kind, _) = problem(world.run(world.command(world.path("plain").to_str().unwrap(), &[])));
    assert_eq!(kind, StartProblem::NotExecutable);
    let (kind, message) = problem(world.run(world.command(world.path("script").to_str().unwrap(), &[])));
    assert!(kind == StartProblem::NotFound && message.contains("interpreter"), "{message}");
    let mut spec = world.command("/bin/true", &[]);
    spec.dir = world.path("no-folder");
    let (kind, message) = problem(world.run(spec));
    assert!(kind == StartProblem::NotFound && message.contains("no-folder"), "{message}");
    let mut spec = world.command("/bin/cat", &[]);
    assert!(Command::new("mkfifo").arg(world.path("fifo")).status().unwrap().success());
    spec.stdin = Stdin::File(world.path("fifo"));
    let (_, message) = problem(world.run(spec));
    assert!(message.contains("fifo"), "{message}");
}

#[test]
fn fr_a1_standard_input_is_empty_or_exactly_the_file() {
    let world = World::new();
    let end = world.run(world.agent("read-stdin,ok"));
    assert!(end.lines[0].contains("read 0 bytes"), "{:?}", end.lines);
    fs::write(world.path("prompt"), "a prompt").unwrap();
    let mut spec = world.agent("read-stdin,ok");
    spec.stdin = Stdin::File(world.path("prompt"));
    assert!(world.run(spec).lines[0].contains("read 8 bytes"));
}

#[test]
fn f35_a_child_that_never_reads_its_prompt_blocks_nobody() {
    let world = World::new();
    fs::write(world.path("prompt"), vec![b'x'; 10 << 20]).unwrap();
    for script in ["ok", "ignore-stdin,ok", "read-stdin,ok"] {
        let mut spec = world.agent(script);
        spec.stdin = Stdin::File(world.path("prompt"));
        let end = world.run(spec);
        assert_eq!(end.ending.status, Status::Exited(0), "{script}");
    }
}

#[test]
fn f23_bytes_are_kept_exactly() {
    let world = World::new();
    let end = world.run(world.agent("bad-utf8"));
    let expected: &[u8] = b"bad \xff\xfe utf8\nzero \0 byte\nlone \r return\nno last newline";
    assert_eq!(fs::read(&end.stdout).unwrap(), expected);
    assert_eq!(end.ending.stdout_tail, expected);
    assert_eq!(end.lines.len(), 4);
}

#[test]
fn f23_a_line_of_any_length_is_kept_and_a_long_one_only_counted() {
    let world = World::new();
    let end = world.run(world.agent("long-line:8388608,long-line:20000000,result:end"));
    assert_eq!(end.ending.stdout_bytes, 8_388_609 + 20_000_001 + u64::try_from(end.lines[1].len()).unwrap() + 1);
    assert_eq!((end.lines[0].len(), end.too_long), (8_388_608, vec![20_000_000]));
    assert!(end.lines[1].contains("end"));
    assert_eq!(fs::metadata(&end.stdout).unwrap().len(), end.ending.stdout_bytes);
}

#[test]
fn f22_a_flood_is_cut_off_in_the_file_and_read_to_its_end() {
    let world = World::new();
    let mut spec = world.agent("flood-stderr:300000,flood:300000,result:end");
    spec.capture.max_bytes = 100_000;
    let end = world.run(spec);
    assert_eq!(fs::metadata(&end.stdout).unwrap().len(), 100_000);
    assert_eq!(fs::metadata(&end.stderr).unwrap().len(), 100_000);
    assert_eq!(end.ending.stderr_bytes, 300_000);
    assert!(end.ending.truncated && end.lines.last().unwrap().contains("end"));
}

#[test]
fn f25_a_grandchild_that_holds_the_output_does_not_hold_the_step() {
    let world = World::new();
    let begin = Instant::now();
    let end = world.run(world.agent("message:hello,grandchild-holds-stdout"));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(end.ending.status, Status::Exited(0));
    assert_eq!((end.ending.orphans_killed, end.ending.leaked), (1, false));
    assert!(end.lines[0].contains("hello"));
}

#[test]
fn f25_a_pipe_held_from_outside_is_reported_as_leaked() {
    let world = World::new();
    assert!(Command::new("mkfifo").arg(world.path("gate")).status().unwrap().success());
    let mut child = world.spawn(world.shell("echo ready; read line < gate; echo last"));
    child.until_line("ready");
    let pid = child.until_started().pid;
    let held = fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/fd/1")).unwrap();
    let begin = Instant::now();
    fs::write(world.path("gate"), "go\n").unwrap();
    let end = child.end();
    assert!(end.ending.leaked && end.lines.contains(&"last".to_owned()), "{end:?}");
    assert!(begin.elapsed() >= Duration::from_secs(2) && begin.elapsed() < Duration::from_secs(5));
    drop(held);
}

#[test]
fn f31_who_a_child_is_is_told_of_one_that_stays() {
    let world = World::new();
    assert!(Command::new("mkfifo").arg(world.path("gate")).status().unwrap().success());
    let mut stays = world.spawn(world.shell("echo $$; read line < gate"));
    stays.until_line("");
    let told = stays.until_started();
    assert_eq!(stays.lines, [told.pid.to_string()]);
    assert_eq!(liveness(&told), Liveness::Alive);
    fs::write(world.path("gate"), "go\n").unwrap();
    assert_eq!(stays.end().ending.status, Status::Exited(0));
    assert_eq!(liveness(&told), Liveness::Dead);
}

#[test]
fn what_a_child_left_behind_may_finish_its_last_line() {
    let world = World::new();
    // The shell does not wait for the reader at the other end of the pipe it made.
    let end = world.run(world.command("/bin/bash", &["-c", "exec > >(sed s/^/seen:/); echo last"]));
    assert_eq!((end.lines, end.ending.orphans_killed), (vec!["seen:last".to_owned()], 0));
}

#[test]
fn f26_fr_a20_a_daemon_never_outlives_the_end_that_is_told() {
    let world = World::new();
    for round in 0..50 {
        let script = if round % 2 == 0 { "setsid-child,ok" } else { "daemon:hang,ok" };
        let end = world.run(world.agent(script));
        assert_eq!(marked(&world.marker), [0_i32; 0], "round {round}");
        assert_eq!(end.ending.status, Status::Exited(0));
        assert!(end.ending.orphans_killed >= 1 && end.ending.survivors.is_empty(), "round {round}: {end:?}");
    }
}

#[test]
fn fr_a26_the_port_of_a_daemon_is_free_when_the_end_is_told() {
    let world = World::new();
    let end = world.run(world.agent("daemon:listen:port,wait-for:port,ok"));
    assert!(end.ending.orphans_killed >= 1);
    let port: u16 = fs::read_to_string(world.path("port")).unwrap().parse().unwrap();
    assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
}

#[test]
fn f27_fr_a11_a_child_that_ignores_every_request_is_killed_after_its_grace() {
    let world = World::new();
    let mut child = world.spawn(world.agent("ignore-term,message:ready,hang"));
    child.until_line("ready");
    let begin = Instant::now();
    child.stop(Haste::Polite);
    let end = child.end();
    assert_eq!(end.ending.status, Status::Signalled(9));
    assert_eq!(end.ending.stop, Some(StopReport { polite_sent: true, escalated: true, killed: true }));
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(3), "two graces of 200 ms: {took:?}");
    assert!(is_gone(&end.identity.unwrap()));
}

#[test]
fn a_child_that_answers_the_polite_signal_is_not_pressed() {
    let world = World::new();
    let mut spec = world.agent("on-int:bye,message:ready,hang");
    spec.stop.grace = Millis(20_000);
    let mut child = world.spawn(spec);
    child.until_line("ready");
    child.stop(Haste::Polite);
    let end = child.end();
    assert_eq!(end.ending.status, Status::Exited(1));
    assert_eq!(end.ending.stop, Some(StopReport { polite_sent: true, escalated: false, killed: false }));
    assert_eq!(fs::read_to_string(world.path("bye")).unwrap(), "interrupted\n");
}

#[test]
fn f28_the_second_request_kills_at_once() {
    let world = World::new();
    let mut spec = world.agent("ignore-term,setsid-child,message:ready,hang");
    spec.stop.grace = Millis(60_000);
    let mut child = world.spawn(spec);
    child.until_line("ready");
    child.stop(Haste::Polite);
    child.stop(Haste::Now);
    let begin = Instant::now();
    let end = child.end();
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(end.ending.status, Status::Signalled(9));
    assert_eq!(end.ending.stop, Some(StopReport { polite_sent: true, escalated: true, killed: true }));
    assert_eq!(marked(&world.marker), [0_i32; 0]);
}

#[test]
fn a_stopped_child_can_still_be_asked_politely() {
    let world = World::new();
    let mut spec = world.shell("trap 'echo bye; exit 5' TERM; echo ready; kill -STOP $$; sleep 60");
    spec.stop.grace = Millis(20_000);
    let mut child = world.spawn(spec);
    child.until_line("ready");
    child.stop(Haste::Polite);
    let end = child.end();
    assert_eq!((end.ending.status, end.lines.last().unwrap().as_str()), (Status::Exited(5), "bye"));
}

#[test]
fn a_sandbox_with_its_own_process_numbers_is_emptied() {
    let world = World::new();
    let probe = Command::new("unshare").args(["-Urpf", "true"]).stderr(std::process::Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return; // This machine allows no such sandbox.
    }
    for haste in [None, Some(Haste::Polite), Some(Haste::Now)] {
        let inside = "setsid sleep 60 & env -i setsid sleep 60 & echo ready; read line < gate";
        let _ = fs::remove_file(world.path("gate"));
        assert!(Command::new("mkfifo").arg(world.path("gate")).status().unwrap().success());
        let outside = format!("unshare -Urpf setsid sh -c '{inside}' & echo $!; wait");
        let mut child = world.spawn(world.shell(&outside));
        child.until_line("ready");
        wait_until("the sandbox is full", || marked(&world.marker).len() >= 4);
        match haste {
            None => fs::write(world.path("gate"), "go\n").unwrap(),
            Some(haste) => child.stop(haste),
        }
        let end = child.end();
        assert!(end.ending.survivors.is_empty() && !end.ending.leaked, "{end:?}");
        assert_eq!(marked(&world.marker), [0_i32; 0]);
    }
}

#[test]
fn fr_a19_the_worker_goes_with_its_wrapper_and_commits_nothing() {
    let world = World::new();
    let child = world.spawn(world.agent("wrapper-worker,ok"));
    wait_until("the worker holds its lock", || world.path("worker.started").exists());
    child.stop(Haste::Polite);
    child.end();
    let lock = Command::new("flock").arg("-n").arg(world.path("worker.lock")).arg("true").status().unwrap();
    assert!(lock.success(), "the next attempt gets the lock at once");
    assert_eq!(marked(&world.marker), [0_i32; 0]);
    assert!(!world.path("worker.txt").exists());
}

#[test]
fn f36_two_hundred_processes_are_gone_within_two_seconds() {
    let world = World::new();
    let mut child = world.spawn(world.agent("fork-many:100,daemon:fork-many:100\\,hang,message:ready,hang"));
    child.until_line("ready");
    wait_until("all of them run", || marked(&world.marker).len() >= 202);
    let begin = Instant::now();
    child.stop(Haste::Now);
    let end = child.end();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(marked(&world.marker), [0_i32; 0]);
    assert!(end.ending.survivors.is_empty());
}

#[test]
fn f36_processes_that_keep_forking_lose_the_race() {
    let world = World::new();
    let mut child = world.spawn(world.shell("while :; do sleep 0.01 & done & echo ready; wait"));
    child.until_line("ready");
    child.stop(Haste::Now);
    let end = child.end();
    assert!(end.ending.survivors.is_empty(), "{end:?}");
    assert_eq!(marked(&world.marker), [0_i32; 0]);
}

#[test]
fn f38_a_child_outlives_the_thread_that_asked_for_it() {
    let world = World::new();
    let mut child = std::thread::scope(|scope| {
        scope.spawn(|| world.spawn(world.agent("message:ready,wait-for:gate,ok"))).join().unwrap()
    });
    child.until_line("ready");
    fs::write(world.path("gate"), "").unwrap();
    assert_eq!(child.end().ending.status, Status::Exited(0));
}

#[test]
fn fr_l4_a_secret_reaches_neither_file_nor_line_nor_tail() {
    let world = World::new();
    let secret = "canary/0f3\"9a+x";
    let mut spec = world.agent("prints-secret:CANARY,ok");
    spec.env.push(("CANARY".into(), secret.into()));
    spec.capture.secrets = vec![secret.to_owned(), "abc".to_owned()];
    let end = world.run(spec);
    assert_eq!(end.ending.status, Status::Exited(0), "{end:?}");
    let mut written = fs::read(&end.stdout).unwrap();
    written.extend(fs::read(&end.stderr).unwrap());
    written.extend(&end.ending.stdout_tail);
    written.extend(&end.ending.stderr_tail);
    written.extend(end.lines.concat().bytes());
    let text = String::from_utf8(written).unwrap();
    for form in [secret, "canary/0f3", "Y2FuYXJ5LzBmMyI5YSt4"] {
        assert!(!text.contains(form), "{form} in {text}");
    }
    assert!(text.matches("[redacted]").count() >= 8);
    assert!(end.lines.iter().any(|line| line.contains("Done.")));
}

#[test]
fn changes_in_a_watched_folder_are_told() {
    let world = World::new();
    fs::create_dir(world.path("records")).unwrap();
    let mut child = world.spawn(world.agent("message:ready,wait-for:gate,append:records/a=1,wait-for:gate2,ok"));
    child.until_line("ready");
    world.supervisor.watch(child.id, world.path("no-such-folder"));
    child.until_files_changed();
    world.supervisor.watch(child.id, world.path("records"));
    child.until_files_changed();
    fs::write(world.path("gate"), "").unwrap();
    child.until_files_changed();
    wait_until("it is written", || world.path("records/a").exists());
    fs::write(world.path("gate2"), "").unwrap();
    assert_eq!(child.end().ending.status, Status::Exited(0));
}

#[test]
fn activity_is_the_last_byte_on_either_stream() {
    let world = World::new();
    let mut child = world.spawn(world.agent("wait-for:gate,stderr:hello,wait-for:gate2,message:ready,wait-for:gate3"));
    child.until_started();
    assert_eq!(child.activity.last(), None);
    fs::write(world.path("gate"), "").unwrap();
    wait_until("it spoke", || child.activity.last().is_some());
    let first = child.activity.last();
    assert!(first <= Some(agentrun::process::identity::boot_ms()));
    std::thread::sleep(Duration::from_millis(5));
    fs::write(world.path("gate2"), "").unwrap();
    child.until_line("ready");
    assert!(child.activity.last() > first);
    fs::write(world.path("gate3"), "").unwrap();
    child.end();
}

#[test]
fn a_log_that_cannot_be_written_is_told() {
    let world = World::new();
    let mut spec = world.agent("ok");
    spec.capture.stdout = "/dev/full".into();
    let end = world.run(spec);
    assert_eq!(end.ending.status, Status::Exited(0));
    assert!(matches!(end.ending.log_failure, Some(LogFailure { no_space: true, .. })), "{end:?}");
    assert!(end.lines.iter().any(|line| line.contains("Done.")));
}

#[test]
fn children_of_others_keep_their_status() {
    let world = World::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                assert_eq!(world.run(world.shell("true & exit 0")).ending.orphans_killed, 0);
            }
        });
        scope.spawn(|| {
            for _ in 0..100 {
                assert_eq!(Command::new("/bin/sh").args(["-c", "exit 9"]).status().unwrap().code(), Some(9));
            }
        });
    });
}

#[test]
fn two_supervisors_do_not_see_each_others_children() {
    let (one, two) = (World::new(), World::new());
    let mut other = two.spawn(two.agent("setsid-child,message:ready,wait-for:gate,ok"));
    other.until_line("ready");
    wait_until("the agent and its daemon are there", || marked(&two.marker).len() == 2);
    let id = other.id;
    assert_eq!(one.run(one.agent("setsid-child,ok")).ending.status, Status::Exited(0));
    one.supervisor.stop(id, Haste::Now);
    drop(one);
    assert_eq!(marked(&two.marker).len(), 2, "what belongs to the other one still runs");
    fs::write(two.path("gate"), "").unwrap();
    assert_eq!(other.end().ending.status, Status::Exited(0));
    assert_eq!(marked(&two.marker), [0_i32; 0]);
}

#[test]
fn what_two_children_with_one_marker_left_behind_goes_with_the_last_of_them() {
    let world = World::new();
    let marked_alike = |script: &str| {
        let mut spec = world.agent(script);
        spec.env.retain(|(name, _)| name != MARKER);
        spec.env.push((MARKER.into(), format!("{}/same", world.marker).into()));
        spec
    };
    let mut long = world.spawn(marked_alike("setsid-child,message:ready,wait-for:gate,ok"));
    long.until_line("ready");
    assert_eq!(marked(&world.marker).len(), 2, "the agent and its daemon");
    assert_eq!(world.run(marked_alike("ok")).ending.orphans_killed, 0);
    assert_eq!(marked(&world.marker).len(), 2);
    fs::write(world.path("gate"), "").unwrap();
    assert_eq!(long.end().ending.status, Status::Exited(0));
    assert_eq!(marked(&world.marker), [0_i32; 0]);
}

#[test]
fn a_stopped_child_takes_along_what_only_its_parent_gives_away() {
    let world = World::new();
    let other = world.spawn(world.agent("wait-for:gate,ok"));
    let mut child = world.spawn(world.shell("env -i setsid sleep 60 & echo pid $!; wait"));
    child.until_line("pid ");
    let pid = child.lines[0].trim_start_matches("pid ").to_owned();
    let name = format!("/proc/{pid}/comm");
    wait_until("it has become sleep", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
    child.stop(Haste::Now);
    child.end();
    assert!(fs::read_to_string(&name).is_err(), "it is gone, although another child still runs");
    fs::write(world.path("gate"), "").unwrap();
    assert_eq!(other.end().ending.status, Status::Exited(0));
}

#[test]
fn a_dropped_supervisor_leaves_nobody_behind() {
    let world = World::new();
    let mut child = world.spawn(world.agent("ignore-term,setsid-child,message:ready,hang"));
    child.until_line("ready");
    let (events, marker) = (child.events, world.marker.clone());
    drop(world);
    assert_eq!(marked(&marker), [0_i32; 0]);
    assert!(events.iter().all(|event| !matches!(event, agentrun::process::ChildEvent::Ended(_))));
}

#[test]
fn many_children_at_once_are_kept_apart() {
    let world = World::new();
    let children: Vec<_> = (0..40).map(|n| world.spawn(world.shell(&format!("echo line {n}; exit {n}")))).collect();
    for (n, child) in children.into_iter().enumerate() {
        let end = child.end();
        assert_eq!(end.ending.status, Status::Exited(i32::try_from(n).unwrap()));
        assert_eq!(end.lines, [format!("line {n}")]);
    }
}

#[test]
fn orders_for_nobody_are_ignored() {
    let supervisor = Supervisor::start().unwrap();
    supervisor.stop(ChildId(77), Haste::Now);
    supervisor.watch(ChildId(77), "/".into());
    let world = World::new();
    let child = world.spawn(world.command("/bin/true", &[]));
    let id = child.id;
    assert_eq!(child.end().ending.status, Status::Exited(0));
    world.supervisor.stop(id, Haste::Now);
    assert!(world.run(world.command("/bin/true", &[])).ending.status == Status::Exited(0) && DEADLINE.as_secs() > 0);
}
