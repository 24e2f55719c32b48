//! A program of the repository carries it out, or says what became of it (contract §13). It gets the request as a file and
//! the key in its environment; the last line of its output that is a JSON object is its answer, its exit code the verdict.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::find::plain;
use super::verdict::{self, Codes, Said, refused, unclear, unknown};
use super::{Call, Files, Machine};
use crate::domain::action::contract::Meaning;
use crate::domain::action::{Answer, Reading};
use crate::domain::failure::Code;
use crate::domain::policy::ActionType;
use crate::domain::quantity::Millis;
use crate::domain::task::CommandLine;
use crate::process::lookup::find_program;
use crate::process::spec::{Capture, CommandSpec, Lines, PoliteSignal, Stdin, StopRule};
use crate::process::{ChildEvent, Ending, Haste, StartProblem, Status};

/// How often a call looks whether it must stop.
const LOOK: Duration = Duration::from_millis(20);

/// Exit codes by which a program can say that nothing happened. Above are those of shells and signals.
const OWN_CODES: std::ops::RangeInclusive<i32> = 1..=63;

/// How a program ended.
struct Ran {
    ending: Ending,
    /// Why it was stopped.
    cut: Option<Cut>,
    /// The object that it printed last.
    said: Map<String, Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Time,
    Stop,
}

/// Carries it out.
pub(super) fn send(call: &Call<'_>, run: &CommandLine) -> Answer {
    match start(call, run) {
        Ok(ran) => outcome(call, &ran),
        Err((code, message)) => refused(code, message),
    }
}

/// Asks about it.
pub(super) fn ask(call: &Call<'_>, run: &CommandLine) -> Reading {
    let ran = match start(call, run) {
        Ok(ran) => ran,
        Err((_, message)) => return unclear(message),
    };
    match (&ran.ending.status, ran.cut) {
        (Status::Exited(0), None) => reading(&ran.said),
        (status, cut) => unclear(format!("the status command {}", told(status, cut, call.limit))),
    }
}

fn reading(said: &Map<String, Value>) -> Reading {
    let text = |name: &str| said.get(name).and_then(plain).map(|text| verdict::shown(&text));
    let reference = text("reference");
    if let Some(matches) = said.get("matches") {
        match matches.as_u64() {
            Some(0 | 1) => {}
            Some(matches) => return Reading::Several { matches },
            None => return unclear("the status command printed `matches` that is no number"),
        }
    }
    match text("state").as_deref() {
        Some("succeeded") => Reading::Succeeded { reference },
        Some("in_progress") => Reading::InProgress { reference },
        Some("failed") => Reading::Failed { message: text("message").unwrap_or_else(|| "it failed".to_owned()) },
        Some("not_found") => Reading::NotFound,
        Some(other) => unclear(format!("the status command printed the state `{other}`, which means nothing")),
        None => unclear("the status command printed no object with a `state`"),
    }
}

fn outcome(call: &Call<'_>, ran: &Ran) -> Answer {
    let status = &ran.ending.status;
    let words = format!("the command {}", told(status, ran.cut, call.limit));
    if let Status::FailedToStart { message, problem } = status {
        let code = match problem {
            StartProblem::NotFound | StartProblem::NotExecutable => Code::CommandNotFound,
            StartProblem::Limit | StartProblem::Other => Code::EnvLimit,
            StartProblem::Unwatched => return unknown(Code::EnvLimit, message.clone()),
        };
        return refused(code, message.clone());
    }
    match (status, ran.cut) {
        (Status::Exited(code), None) => exited(call, *code, &ran.said),
        // Nobody knows how it ended: it may have been with 0.
        (Status::Vanished, _) => unknown(Code::WorkerCrash, words),
        (_, cut) => {
            let code = match cut {
                Some(Cut::Time) => Code::ToolTimeout,
                Some(Cut::Stop) => Code::Interrupted,
                None => Code::WorkerCrash,
            };
            let ended_well = *status == Status::Exited(0);
            let code_of_nothing = if cut == Some(Cut::Stop) { Code::WorkerCrash } else { code };
            if call.contract.atomic && !ended_well { refused(code_of_nothing, words) } else { unknown(code, words) }
        }
    }
}

/// It ended by itself.
fn exited(call: &Call<'_>, code: i32, printed: &Map<String, Value>) -> Answer {
    let text = |name: &str| printed.get(name).and_then(plain);
    let nothing_happened = text("effect").as_deref() == Some("none");
    let seconds = printed.get("retry_after_s").and_then(Value::as_u64);
    let said = Said {
        status: format!("the command exited with {code}"),
        reference: text("reference").map(|text| verdict::shown(&text)),
        message: text("message"),
        retry_after: seconds.map(|seconds| Millis(seconds.saturating_mul(1000))),
    };
    let codes = Codes { refused: Code::CommandFailed, unknown: Code::OutcomeUnknown };
    let by_contract = u16::try_from(code).ok().and_then(|code| call.contract.answers.get(&code)).copied();
    let meaning = match (code, text("state").as_deref()) {
        _ if by_contract.is_some() => by_contract.unwrap_or(Meaning::Unknown),
        (0, None | Some("succeeded")) if !nothing_happened => Meaning::Succeeded,
        (0, Some("already_done")) if !nothing_happened => Meaning::AlreadyDone,
        (0, Some("in_progress")) if !nothing_happened => Meaning::InProgress,
        // It says two things at once.
        (0, _) => Meaning::Unknown,
        (code, _) if nothing_happened && OWN_CODES.contains(&code) => match printed.get("retryable") {
            Some(Value::Bool(true)) => Meaning::RefusedForNow,
            _ => Meaning::Refused,
        },
        _ if call.contract.atomic => Meaning::Refused,
        _ => Meaning::Unknown,
    };
    verdict::answer(meaning, said, codes)
}

fn told(status: &Status, cut: Option<Cut>, limit: Millis) -> String {
    match (status, cut) {
        (_, Some(Cut::Time)) => format!("did not end within {limit}"),
        (_, Some(Cut::Stop)) => "was stopped".to_owned(),
        (Status::Exited(code), None) => format!("exited with {code}"),
        (Status::Signalled(signal), None) => format!("was ended by signal {signal}"),
        (Status::Vanished, None) => "ended, and nobody saw how".to_owned(),
        (Status::FailedToStart { message, .. }, None) => format!("did not start: {message}"),
    }
}

/// What a program prints that only tells something: an error where it does not end well.
pub(super) fn output(machine: &Machine<'_>, run: &CommandLine, limit: Millis) -> Result<Vec<u8>, String> {
    let spec = spec(machine, run, Vec::new()).map_err(|(_, message)| message)?;
    let Ran { ending, cut, .. } = wait(machine, limit, spec);
    match (&ending.status, cut) {
        (Status::Exited(0), None) if ending.truncated => Err("it printed more than is kept".to_owned()),
        (Status::Exited(0), None) => {
            let stdout = machine.files.stdout;
            let read = if ending.stdout_bytes == 0 { Ok(Vec::new()) } else { std::fs::read(stdout) };
            read.map_err(|e| format!("{}: {e}", stdout.display()))
        }
        (status, cut) => Err(format!("it {}", told(status, cut, limit))),
    }
}

/// Starts the program and waits for its end. An error proves that it never ran.
fn start(call: &Call<'_>, run: &CommandLine) -> Result<Ran, (Code, String)> {
    if call.machine.stop.load(Ordering::Relaxed) {
        return Err((Code::WorkerCrash, "it was stopped before it began".to_owned()));
    }
    let spec = spec(call.machine, run, own_vars(call))?;
    let request = call.machine.files.request;
    write_request(call, request)
        .map_err(|e| (Code::StoreIo, format!("cannot write the request to {}: {e}", request.display())))?;
    let ran = wait(call.machine, call.limit, spec);
    // It is kept elsewhere, for as long as it is needed.
    let _ = std::fs::remove_file(request);
    Ok(ran)
}

fn spec(
    machine: &Machine<'_>,
    run: &CommandLine,
    own: Vec<(OsString, OsString)>,
) -> Result<CommandSpec, (Code, String)> {
    let shell = [OsString::from("sh"), OsString::from("-c")];
    let line: Vec<OsString> = match run {
        CommandLine::Shell(line) => shell.into_iter().chain([OsString::from(line)]).collect(),
        CommandLine::List(list) => list.iter().map(OsString::from).collect(),
    };
    let (program, args) = line.split_first().ok_or_else(|| (Code::ConfigInvalid, "the command is empty".to_owned()))?;
    let path = machine.vars.get(OsStr::new("PATH")).map(OsString::as_os_str);
    let program = find_program(program, path, machine.dir).map_err(|e| (Code::CommandNotFound, e.to_string()))?;
    let mut vars = machine.vars.clone();
    vars.extend(own);
    let Files { stdout, stderr, max_bytes, .. } = machine.files;
    Ok(CommandSpec {
        program,
        args: args.to_vec(),
        env: vars.into_iter().collect(),
        dir: machine.dir.to_path_buf(),
        stdin: Stdin::Empty,
        stop: StopRule { polite: PoliteSignal::Terminate, grace: machine.grace },
        dies_with_parent: false,
        capture: Capture {
            stdout: stdout.to_path_buf(),
            stderr: stderr.to_path_buf(),
            max_bytes,
            lines: Lines::HandOver,
            secrets: machine.secrets.to_vec(),
        },
    })
}

/// What a command that acts sees beside the variables of every command of a run.
fn own_vars(call: &Call<'_>) -> Vec<(OsString, OsString)> {
    let mut vars: Vec<(&str, OsString)> = vec![
        ("AGENTRUN_REQUEST", call.machine.files.request.into()),
        ("AGENTRUN_IDEMPOTENCY_KEY", call.key.into()),
        ("AGENTRUN_OPERATION", call.operation.as_str().into()),
        ("AGENTRUN_FENCE", call.fence.to_string().into()),
    ];
    vars.extend(call.reference.map(|reference| ("AGENTRUN_REFERENCE", reference.into())));
    if matches!(call.request.kind, ActionType::Deploy | ActionType::Rollback) {
        vars.push(("AGENTRUN_ENVIRONMENT", call.request.target.as_str().into()));
        vars.extend(call.request.subject.get("release").map(|release| ("AGENTRUN_RELEASE", release.into())));
    }
    vars.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// The request with key and operation, for its owner alone.
fn write_request(call: &Call<'_>, path: &Path) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(&call.wording())?;
    bytes.push(b'\n');
    // One that a killed call left behind is not written into: it may have been opened.
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(&bytes)
}

fn wait(machine: &Machine<'_>, limit: Millis, spec: CommandSpec) -> Ran {
    let (events, inbox) = channel();
    let mut said = Map::new();
    let sink = Box::new(move |event: ChildEvent| match event {
        ChildEvent::Line(line) => {
            if let Some(object) = object(&line) {
                said = object;
            }
        }
        ChildEvent::Ended(ending) => drop(events.send((ending, std::mem::take(&mut said)))),
        _ => {}
    });
    let deadline = Instant::now() + Duration::from_millis(limit.0);
    machine.supervisor.spawn(machine.child, spec, sink);
    let mut cut = None;
    loop {
        match inbox.recv_timeout(LOOK) {
            Ok((ending, said)) => return Ran { ending, cut, said },
            Err(RecvTimeoutError::Timeout) if cut.is_none() => {
                cut = if machine.stop.load(Ordering::Relaxed) {
                    Some(Cut::Stop)
                } else {
                    (Instant::now() >= deadline).then_some(Cut::Time)
                };
                if cut.is_some() {
                    machine.supervisor.stop(machine.child, Haste::Polite);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ran { ending: vanished(), cut, said: Map::new() },
        }
    }
}

fn object(line: &[u8]) -> Option<Map<String, Value>> {
    let line = line.trim_ascii();
    if !line.starts_with(b"{") {
        return None;
    }
    serde_json::from_slice(line).ok()
}

/// The supervisor is gone, and with it whoever could say more.
fn vanished() -> Ending {
    Ending {
        status: Status::Vanished,
        stop: None,
        leaked: false,
        orphans_killed: 0,
        survivors: Vec::new(),
        stdout_bytes: 0,
        stderr_bytes: 0,
        truncated: false,
        log_failure: None,
        stdout_tail: Vec::new(),
        stderr_tail: Vec::new(),
    }
}
