//! Programs that are started and not supervised: agentrun itself in the background, and a command of the user's that is
//! told how a run ended. Neither belongs to a run.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Starts a program in a session of its own, with nothing on its streams: closing the terminal or ending the job that
/// started it does not reach it.
pub fn start_detached(program: &Path, args: &[OsString]) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    #[expect(unsafe_code, reason = "a new session can only be made in the child itself")]
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    command.spawn().map(drop)
}

/// Runs `sh -c line` with a text on its standard input, and waits for it.
pub fn tell(line: &str, dir: &Path, text: &[u8]) -> io::Result<ExitStatus> {
    let mut child =
        Command::new("sh").args(["-c", line]).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read is no failure.
        let _ = stdin.write_all(text);
    }
    child.wait()
}
