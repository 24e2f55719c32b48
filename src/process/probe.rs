//! A short question to a program: its version, whether its sandbox works. Outside of any run, so without supervision, but
//! with empty input, a bounded wait and an end. It stays in agentrun's own process group: there a supervisor, which may be at
//! work in this process, leaves a child's exit status to whoever asked for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Exit code 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Asks. A program that does not answer in time is killed.
pub fn probe(
    program: &Path,
    args: &[OsString],
    env: &BTreeMap<OsString, OsString>,
    patience: Duration,
) -> io::Result<Probe> {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, receiver) = channel();
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    std::thread::spawn(move || {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        // What is not text is no answer.
        let _ = out.as_mut().map(|o| o.read_to_string(&mut stdout));
        let _ = err.as_mut().map(|e| e.read_to_string(&mut stderr));
        let _ = sender.send((stdout, stderr));
    });
    let Ok((stdout, stderr)) = receiver.recv_timeout(patience) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} did not answer", program.display())));
    };
    Ok(Probe { success: child.wait()?.success(), stdout, stderr })
}
