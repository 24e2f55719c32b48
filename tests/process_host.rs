//! Child processes of a process that can be killed, signalled and measured: a second run of this test program plays
//! agentrun. Nothing else here starts a supervisor, so what a killed host leaves behind is adopted by nobody, as in life.
#![cfg(feature = "test-fakes")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test may fail where it stands")]

mod process_world;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use agentrun::domain::lease::Liveness;
use agentrun::domain::quantity::Millis;
use agentrun::domain::record::Identity;
use agentrun::process::identity::liveness;
use agentrun::process::leftovers::end_leftovers;
use agentrun::process::signals::{Hangup, Press, StopSignals, harden_self};
use agentrun::process::spec::{CommandSpec, Lines};
use agentrun::process::{Haste, Status};
use process_world::{World, marked, wait_until};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

// ---------------------------------------------------------------------------------------------------------------------
// The side that plays agentrun.

#[test]
#[ignore = "is started by the other tests"]
fn host() {
    let Ok(part) = std::env::var("PROCESS_HOST") else { return };
    let (part, value) = part.split_once(':').unwrap_or((&part, ""));
    if part == "hardened" {
        harden_self().unwrap();
    }
    let (folder, marker) = (std::env::var("PROCESS_FOLDER").unwrap(), std::env::var("PROCESS_MARKER").unwrap());
    let world = World::within(folder.into(), marker);
    match part {
        "agent" => play_agent(&world, &world.agent(value)),
        "detached" => play_detached(&world, &world.agent(value)),
        "many" => play_many(&world, value.parse().unwrap()),
        "flood" => play_flood(&world, value, &[]),
        "flood-redacted" => play_flood(&world, value, &["a-secret-value-1", "another/secret+value", "third\"secret"]),
        "hardened" => play_hardened(&world),
        "pair" => play_pair(&world),
        "limited" => play_limited(&world),
        "measure" => play_measure(&world, value.parse().unwrap(), false),
        "measure-bound" => play_measure(&world, value.parse().unwrap(), true),
        other => panic!("no part `{other}`"),
    }
}

/// One agent, and stop signals that stop it.
fn play_agent(world: &World, spec: &CommandSpec) {
    play_with(world, spec, Hangup::Stops);
}

fn play_detached(world: &World, spec: &CommandSpec) {
    play_with(world, spec, Hangup::IsIgnored);
}

fn play_with(world: &World, spec: &CommandSpec, hangup: Hangup) {
    std::thread::scope(|scope| {
        let mut child = world.spawn(spec.clone());
        let (wishes, inbox) = std::sync::mpsc::channel();
        let signals = StopSignals::listen(hangup, move |signal| {
            println!("HOST signal {:?} {:?}", signal.kind, signal.press);
            let _ = wishes.send(signal.press);
        });
        if let Some(identity) = child.until_told() {
            println!("HOST started {}", serde_json::to_string(&identity).unwrap());
        }
        let id = child.id;
        scope.spawn(move || {
            while let Ok(press) = inbox.recv() {
                world.supervisor.stop(id, if press == Press::Again { Haste::Now } else { Haste::Polite });
            }
        });
        let end = child.end();
        drop(signals);
        let killed = end.ending.orphans_killed;
        println!(
            "HOST ended {:?} orphans {killed} lines {:?} stop {:?}",
            end.ending.status, end.lines, end.ending.stop
        );
    });
}

fn play_many(world: &World, count: usize) {
    world.run(world.command("/bin/true", &[]));
    let before = open_files();
    for _ in 0..count {
        assert_eq!(world.run(world.command("/bin/true", &[])).ending.status, Status::Exited(0));
    }
    let begin = Instant::now();
    while open_files() != before && begin.elapsed() < Duration::from_secs(5) {
        std::thread::yield_now();
    }
    println!("HOST files {} {} children {}", before, open_files(), children_of_self());
}

fn play_flood(world: &World, value: &str, secrets: &[&str]) {
    let mut spec = world.agent(&format!("flood:{value},result:end"));
    spec.capture.max_bytes = 16 << 20;
    spec.capture.lines = Lines::Keep;
    spec.capture.secrets = secrets.iter().map(|secret| (*secret).to_owned()).collect();
    let begin = Instant::now();
    let end = world.run(spec);
    let took = begin.elapsed();
    assert!(end.ending.truncated && end.ending.stdout_bytes >= value.parse().unwrap());
    assert_eq!(fs::metadata(end.stdout).unwrap().len(), 16 << 20);
    println!("HOST peak {} KiB in {} ms", peak_memory(), took.as_millis());
}

fn play_hardened(world: &World) {
    let limit = Rlimit { current: Some(64 << 10), maximum: getrlimit(Resource::Fsize).maximum };
    // The file size limit is the agent's as well, which prints more than that to a pipe only.
    setrlimit(Resource::Fsize, limit).unwrap();
    let end = world.run(world.shell(
        "umask; grep SigIgn /proc/self/status; : > made; ulimit -f unlimited 2>/dev/null; head -c 200000 /dev/zero",
    ));
    println!("HOST umask {} {}", end.lines[0], end.lines[1]);
    println!("HOST log {:?}", end.ending.log_failure);
    println!("HOST mode {:o}", fs::metadata(world.path("made")).unwrap().mode() & 0o777);
    fs::write(world.path("own"), "").unwrap();
    println!("HOST own {:o}", fs::metadata(world.path("own")).unwrap().mode() & 0o777);
    println!("HOST large {:?}", fs::write(world.path("large"), vec![0; 100_000]).unwrap_err().kind());
    println!("HOST dumpable {:?}", rustix::process::dumpable_behavior().unwrap());
    let orphans = world.run(world.agent("setsid-child,ok")).ending.orphans_killed;
    println!("HOST still finds {orphans} of {}", orphans as usize + children_of_self());
}

/// A child with a daemon that nobody can claim, and a short one that ends meanwhile.
fn play_pair(world: &World) {
    let long = world.spawn(world.agent("setsid-child-bare,touch:ready,wait-for:gate,ok"));
    wait_until("the daemon runs", || world.path("ready").exists());
    wait_until("it is adopted", || children_of_self() == 2);
    // The short one has a daemon that carries its marker, and that one has a child that nothing but its parent gives away.
    let deep = "env -i setsid sleep 60 & touch deep; exec sleep 60";
    let script = format!("setsid sh -c '{deep}' >/dev/null 2>&1 & until [ -e deep ]; do sleep 0.01; done");
    let short = world.run(world.shell(&script));
    println!("HOST short orphans {} children {}", short.ending.orphans_killed, children_of_self());
    fs::write(world.path("gate"), "").unwrap();
    let orphans = long.end().ending.orphans_killed;
    println!("HOST long orphans {orphans} children {}", children_of_self());
}

fn play_limited(world: &World) {
    let files = u64::try_from(open_files()).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    for room in 0..9 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files + room), maximum }).unwrap();
        let status = world.run(world.command("/bin/true", &[])).ending.status;
        assert!(matches!(status, Status::Exited(0) | Status::FailedToStart { .. }));
        println!("HOST room {status:?} children {}", children_of_self());
    }
}

/// With `bound`, the child is started as agents are: by a fork.
fn play_measure(world: &World, count: usize, bound: bool) {
    let (mut plain, mut supervised) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut spec = world.command("/bin/true", &[]);
        spec.dies_with_parent = bound;
        let begin = Instant::now();
        // Without a group of its own: with one, the supervisor would take it for an orphan.
        let mut command = Command::new(&spec.program);
        command.env_clear().envs(spec.env.iter().cloned()).current_dir(&spec.dir);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        assert!(command.spawn().unwrap().wait_with_output().unwrap().status.success());
        plain.push(begin.elapsed());
        let begin = Instant::now();
        let end = world.run(spec);
        supervised.push(begin.elapsed());
        assert_eq!(end.ending.status, Status::Exited(0));
    }
    plain.sort_unstable();
    supervised.sort_unstable();
    let (plain, supervised) = (plain[count / 2], supervised[count / 2]);
    println!(
        "HOST plain {plain:?} supervised {supervised:?} ratio {:.3}",
        supervised.as_secs_f64() / plain.as_secs_f64()
    );
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children_of_self() -> usize {
    let own = i32::try_from(std::process::id()).unwrap();
    let stats =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(1) == Some(&own.to_string()))
        .count()
}

/// The most memory that was ever in use, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

// ---------------------------------------------------------------------------------------------------------------------
// The side that watches.

struct Host {
    process: Child,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
    marker: String,
}

impl Host {
    fn plays(part: &str) -> Self {
        Self::started(part, |_| ())
    }

    fn started(part: &str, adapt: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = format!("host-{}", folder.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["host", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("PROCESS_HOST", part).env("PROCESS_FOLDER", folder.path()).env("PROCESS_MARKER", &marker);
        command.stdout(Stdio::piped()).stdin(Stdio::piped());
        adapt(&mut command);
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output, folder, marker }
    }

    /// The rest of the next line that begins with this word.
    fn says(&mut self, word: &str) -> String {
        let begin = format!("HOST {word} ");
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the host never said `{word}`");
            if let Some(at) = line.find(&begin) {
                return line[at + begin.len()..].trim_end().to_owned();
            }
        }
    }

    fn agent(&mut self) -> Identity {
        serde_json::from_str(&self.says("started")).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn wait_for(&self, name: &str) {
        wait_until(name, || Path::exists(&self.path(name)));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        end_leftovers(&self.marker, &[], Millis(0));
    }
}

#[test]
fn fr_a1_an_open_standard_input_of_ours_is_not_the_childs() {
    // The pipe that is the host's standard input stays open until the host is dropped.
    let mut host = Host::plays("agent:read-stdin,ok");
    assert!(host.says("ended").contains("read 0 bytes"));
}

#[test]
fn f22_memory_stays_small_while_a_child_floods() {
    let mut host = Host::plays("flood:268435456");
    let said = host.says("peak");
    let kib: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(kib < 64 << 10, "{said}");
}

#[test]
fn f12_a_limit_of_the_system_is_told_as_one() {
    let mut host = Host::plays("limited");
    let said: Vec<String> = (0..9).map(|_| host.says("room")).collect();
    assert!(said[0].contains("Limit") && said[8].contains("Exited(0)"), "{said:#?}");
    assert!(said.iter().all(|line| line.contains("children 0")), "nothing half-started is left: {said:#?}");
}

#[test]
fn f37_a_thousand_short_children_leave_no_zombie_and_no_open_file() {
    let mut host = Host::plays("many:1000");
    let said = host.says("files");
    let words: Vec<&str> = said.split(' ').collect();
    assert_eq!((words[0], words[3]), (words[1], "0"), "{said}");
}

#[test]
fn fr_a20_a_daemon_without_environment_is_found_as_an_orphan() {
    let mut host = Host::plays("agent:setsid-child-bare,ok");
    let said = host.says("ended");
    assert!(said.starts_with("Exited(0) orphans 1"), "{said}");
}

#[test]
fn fr_a20_what_nobody_can_claim_goes_with_the_last_child() {
    let mut host = Host::plays("pair");
    assert_eq!(host.says("short"), "orphans 2 children 2");
    assert_eq!(host.says("long"), "orphans 1 children 0");
}

#[test]
fn f28_one_ctrl_c_asks_and_the_second_kills() {
    let mut host = Host::plays("agent:on-int:bye,touch:ready,hang");
    host.wait_for("ready");
    host.agent();
    host.signal(Signal::INT);
    assert_eq!(host.says("signal"), "Interrupt First");
    assert!(host.says("ended").starts_with("Exited(1)"));
    assert!(host.path("bye").exists());

    let mut host = Host::plays("agent:ignore-term,touch:ready,hang");
    host.wait_for("ready");
    host.agent();
    host.signal(Signal::INT);
    assert_eq!(host.says("signal"), "Interrupt First");
    host.signal(Signal::INT);
    assert_eq!(host.says("signal"), "Interrupt Again");
    assert!(host.says("ended").starts_with("Signalled(9)"));
}

#[test]
fn f29_a_hangup_stops_unless_the_run_is_detached() {
    let mut host = Host::plays("agent:touch:ready,hang");
    host.wait_for("ready");
    host.agent();
    host.signal(Signal::HUP);
    assert_eq!(host.says("signal"), "Hangup First");
    host.says("ended");

    let mut host = Host::plays("detached:touch:ready,hang");
    host.wait_for("ready");
    host.agent();
    host.signal(Signal::HUP);
    host.signal(Signal::TERM);
    assert_eq!(host.says("signal"), "Terminate First", "the hangup before it was not told");
    host.says("ended");
}

#[test]
fn f29_nohup_is_respected() {
    let under_nohup = |command: &mut Command| {
        let mut nohup = Command::new("nohup");
        nohup.arg(command.get_program()).args(command.get_args());
        nohup.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        nohup.stdout(Stdio::piped()).stdin(Stdio::piped()).stderr(Stdio::null());
        *command = nohup;
    };
    let mut host = Host::started("agent:touch:ready,hang", under_nohup);
    host.wait_for("ready");
    host.agent();
    host.signal(Signal::HUP);
    host.signal(Signal::TERM);
    assert_eq!(host.says("signal"), "Terminate First");
    host.says("ended");
}

#[test]
fn t9_an_agent_is_asked_to_stop_when_agentrun_is_killed() {
    let mut host = Host::plays("agent:on-int:bye,touch:ready,hang");
    host.wait_for("ready");
    let agent = host.agent();
    host.kill();
    host.wait_for("bye");
    wait_until("the agent is gone", || liveness(&agent) == Liveness::Dead);
}

#[test]
fn f31_fr_j1_fr_j2_leftovers_of_killed_hosts_are_found_and_ended() {
    // One that is recorded; daemons that only their marker gives away; a bare one that descends from the recorded one.
    let script = "agent:ignore-term,daemon:ignore-term\\,hang,child:ignore-term\\,touch:ready\\,hang,wait-for:ready,touch:all,hang";
    let mut hosts: Vec<Host> = (0..10).map(|_| Host::plays(script)).collect();
    for host in &mut hosts {
        host.wait_for("all");
        let agent = host.agent();
        host.kill();
        assert_eq!(liveness(&agent), Liveness::Alive);
        assert!(marked(&host.marker).len() >= 3);
    }
    let bystander = Host::plays("agent:touch:ready,hang");
    bystander.wait_for("ready");
    for host in &hosts {
        let begin = Instant::now();
        let left = end_leftovers(&host.marker, &[], Millis(20));
        assert!(left.ended >= 3 && left.survivors.is_empty(), "{left:?}");
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert_eq!(marked(&host.marker), [0_i32; 0]);
    }
    assert!(!marked(&bystander.marker).is_empty());
}

#[test]
fn f31_a_recorded_leftover_without_a_marker_is_ended_with_its_descendants() {
    let mut bare = Command::new("/bin/sh");
    bare.env_clear().args(["-c", "sleep 60 & sleep 60"]).process_group(0);
    let mut child = bare.spawn().unwrap();
    let identity = identity_of(child.id());
    wait_until("both sleep", || descendants_of(child.id()) == 2);
    let left = std::thread::scope(|scope| {
        // Its parent, this test, has to reap it, or it never counts as gone.
        scope.spawn(|| child.wait().unwrap());
        end_leftovers("no-such-marker", std::slice::from_ref(&identity), Millis(2000))
    });
    assert_eq!((left.ended, left.survivors.len(), left.strangers), (3, 0, 0));
}

#[test]
fn f32_fr_j5_fr_j7_a_stranger_with_a_recorded_pid_lives() {
    let mut stranger = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
    let recorded = Identity { start_ticks: 1, ..identity_of(stranger.id()) };
    let left = end_leftovers("no-such-marker", &[recorded], Millis(0));
    assert_eq!((left.ended, left.strangers), (0, 1));
    assert_eq!(stranger.try_wait().unwrap(), None);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn t4_t10_a_hardened_process_keeps_its_ways_to_itself() {
    let mut host = Host::started("hardened", |command| {
        // The umask that a user has; a child must see it again.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "umask 027; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdout(Stdio::piped()).stdin(Stdio::piped());
        *command = shell;
    });
    let said = host.says("umask");
    let (umask, ignored) = said.split_once(" SigIgn:").unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    let of = |signal: Signal| 1_u64 << (signal.as_raw() - 1);
    assert_eq!((umask, ignored & (of(Signal::XFSZ) | of(Signal::PIPE))), ("0027", 0));
    let log = host.says("log");
    assert!(log.contains("no_space: true"), "{log}");
    assert_eq!(host.says("mode"), "640");
    assert_eq!(host.says("own"), "600");
    assert_eq!(host.says("large"), "FileTooLarge");
    assert_eq!(host.says("dumpable"), "NotDumpable");
    assert_eq!(host.says("still"), "finds 1 of 1");
}

/// Not a test but a measurement: `cargo test --release --features test-fakes --test process_host measure -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn measure_a_short_child_and_a_large_flood() {
    for part in ["measure:500", "measure:500", "measure:500", "measure-bound:500"] {
        println!("{part}: plain {}", Host::plays(part).says("plain"));
    }
    for part in ["flood:1073741824", "flood-redacted:1073741824"] {
        println!("{part}: peak {}", Host::plays(part).says("peak"));
    }
}

fn identity_of(pid: u32) -> Identity {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    let boot_id = agentrun::process::identity::boot_id().unwrap();
    Identity { pid: i32::try_from(pid).unwrap(), start_ticks: ticks, boot_id }
}

fn descendants_of(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_ascii_whitespace().count()
}
