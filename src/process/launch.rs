//! Starts a child: a [`CommandSpec`] becomes a process. It neither waits for it nor reads from it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, getpid, getppid, set_parent_process_death_signal, setsid};

use super::event::StartProblem;
use super::spec::{CommandSpec, PoliteSignal, Stdin};

/// Starts it; with its pid, which is also its process group, come the reading ends of its standard output and standard
/// error. Signals that agentrun handles or has blocked are back to normal in the child: a handler does not survive the
/// start of a program, and the standard library unblocks everything and restores SIGPIPE.
pub(super) fn launch(spec: &CommandSpec) -> Result<(Pid, OwnedFd, OwnedFd), (StartProblem, String)> {
    let failed = |error: &io::Error| explain(spec, error);
    let stdin = stdin_of(&spec.stdin).map_err(|error| {
        (problem_of(&error), format!("cannot open the standard input of {}: {error}", spec.program.display()))
    })?;
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(&spec.dir).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    if spec.dies_with_parent {
        bind_to_parent(&mut command, spec.stop.polite);
    } else {
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let pipes = (child.stdout.take(), child.stderr.take());
    let (Ok(number), (Some(stdout), Some(stderr))) = (i32::try_from(child.id()), pipes) else {
        return Err((StartProblem::Unwatched, format!("{} has no pid or no pipes", spec.program.display())));
    };
    let Some(pid) = Pid::from_raw(number) else {
        return Err((StartProblem::Unwatched, format!("{} has no pid", spec.program.display())));
    };
    Ok((pid, stdout.into(), stderr.into()))
}

/// A file is opened without blocking and only if it is one: a pipe put in its place would stop the supervisor for ever.
fn stdin_of(stdin: &Stdin) -> io::Result<Stdio> {
    let Stdin::File(path) = stdin else { return Ok(Stdio::null()) };
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", path.display())));
    }
    Ok(Stdio::from(file))
}

/// The kernel ends the child politely when agentrun dies, and the child gets a session of its own, away from the
/// terminal. Both need a fork instead of the quicker way to start a program, so it is only for programs that live long.
/// The signal comes when the *thread* that forked ends (T9); the supervisor's thread lives as long as the process.
fn bind_to_parent(command: &mut Command, polite: PoliteSignal) {
    let parent = getpid();
    let in_child = move || {
        setsid()?;
        set_parent_process_death_signal(Some(polite.signal()))?;
        // The parent may have died before the line above took effect.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(Errno::SRCH)) }
    };
    #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
    // SAFETY: the closure makes three system calls and touches no memory but its own copies: no allocation, no lock.
    unsafe {
        command.pre_exec(in_child);
    }
}

fn problem_of(error: &io::Error) -> StartProblem {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => StartProblem::NotFound,
        Some(Errno::ACCESS | Errno::NOEXEC | Errno::PERM | Errno::ISDIR) => StartProblem::NotExecutable,
        Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => StartProblem::Limit,
        _ => StartProblem::Other,
    }
}

/// "No such file" may mean the program, its interpreter or the folder: says which.
fn explain(spec: &CommandSpec, error: &io::Error) -> (StartProblem, String) {
    let problem = problem_of(error);
    let program = spec.program.display();
    let message = if !is_folder(&spec.dir) {
        format!("cannot start {program} in {}: no such folder", spec.dir.display())
    } else if problem == StartProblem::NotFound && spec.program.exists() {
        format!("cannot start {program}: the interpreter named in its first line is missing")
    } else {
        format!("cannot start {program}: {error}")
    };
    (problem, message)
}

fn is_folder(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_dir())
}
