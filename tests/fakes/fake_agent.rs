//! A scripted agent for the tests: it does what its script says, step by step, and speaks the agentrun agent protocol on
//! standard output. It has no mind and reaches no network.
//!
//! The script is the first argument or, without one, the variable `FAKE_AGENT`: steps separated by commas, each a word,
//! some with a value after a colon. Within a value `\,` is a comma, `\n` a line break and `\\` a backslash. Relative paths
//! start in the working folder. After the last step it exits with 0. Two minutes after its start, or after as many seconds
//! as `FAKE_AGENT_DEADLINE` says, it exits with 99 whatever it is doing, so that nothing can hang for ever.
//!
//! | step | what it does |
//! | --- | --- |
//! | `session:ID` | says that its conversation is ID; `ok` says `fake-session` |
//! | `echo-session` | continues the conversation in `AGENTRUN_SESSION`, or begins one with a new id |
//! | `message:TEXT` `result:TEXT` | says TEXT; says TEXT as its last word |
//! | `ok` | session, a message, one tool, usage `r1` (1,000 in, 50 out), the result `Done.` |
//! | `ok-text` | prints `Done.` as plain text |
//! | `raw:TEXT` | prints TEXT as a line, as it is |
//! | `stderr:TEXT` | prints TEXT on standard error |
//! | `read-stdin` | reads standard input to its end and says how many bytes there were |
//! | `ignore-stdin` | closes standard input unread |
//! | `usage:N` | reports a response with N input and no output tokens, under a new name |
//! | `usage-many:NxM` | does so N times with M tokens each |
//! | `no-usage` | nothing: says that the lack of usage is meant |
//! | `tool:N` | N tool calls, each with its good result |
//! | `all-tools-failed` | a tool call that fails, then a result |
//! | `tool-open` | a tool call without a result |
//! | `error:CODE` | reports a failure; `error:CODE:S` with S seconds to wait |
//! | `exit0-error-event` | reports `AGENT_FAILED` and exits with 0 |
//! | `exit1-after-result` | a good result, then exit 1 |
//! | `empty-result` | exits with 0 and never says a result |
//! | `exit:N` | exits with N |
//! | `kill-self:SIG` | ends by signal number SIG |
//! | `silent` | says nothing any more, sleeps |
//! | `stall-after-start` | says its session, then `silent` |
//! | `emit-then-hang` | what `ok` says, then `silent` |
//! | `hang` | as `silent` |
//! | `buffer-all` | grows the file `fake-agent.log` for half a second, then says what `ok` says |
//! | `sleep:MS` | waits |
//! | `wait-for:FILE` | waits until FILE exists (at most until the deadline) |
//! | `touch:FILE` | makes an empty FILE |
//! | `write:PATH=TEXT` `append:PATH=TEXT` | writes; folders are made |
//! | `dirty:PATH` | appends a line to PATH |
//! | `cwd-to:FILE` `env-to:FILE` `args-to:FILE` | writes the working folder, the environment, the arguments |
//! | `pid-to:FILE` | writes its pid |
//! | `request:FILE=ARGS` | runs `agentrun action request ARGS`, split at blanks; appends exit status and answer to FILE |
//! | `effect:FILE` | appends one line to FILE: something that must not happen twice |
//! | `die-after-effect` `die-before-effect:FILE` | kills itself; the second one would have written |
//! | `commit-no-push` | commits everything in the working folder with the `git` on its PATH |
//! | `set-git-config:KEY=VALUE` | sets KEY in the repository's configuration with `git` |
//! | `prints-secret:NAME` | says the value of NAME: plain, in base64, and split over two writes |
//! | `flood:BYTES` | prints lines of 1 KiB until BYTES are printed |
//! | `flood-stderr:BYTES` | the same on standard error |
//! | `long-line:BYTES` | prints one line of that length |
//! | `bad-utf8` | prints bytes that are no UTF-8, a zero byte and a lone carriage return, without a last newline |
//! | `close-stdout` | closes standard output and goes on |
//! | `ignore-term` | ignores SIGINT, SIGTERM and SIGHUP from now on |
//! | `on-int:FILE` | on SIGINT writes FILE and exits with 1, as a well-behaved agent does |
//! | `grandchild-holds-stdout` | starts a child that holds both streams open until the deadline, then exits with 0 |
//! | `background-job` | starts a child in the same group that writes `background-job.done` after 10 s |
//! | `setsid-child` | starts, by a double fork, a daemon in a session of its own that lives until the deadline |
//! | `setsid-child-bare` | the same with an empty environment |
//! | `daemon:SCRIPT` | starts this program with SCRIPT as a daemon: its own session, standard streams to nowhere |
//! | `child:SCRIPT` | starts this program with SCRIPT as a child that shares everything |
//! | `listen:FILE` | listens on a free port, writes its number to FILE, then `silent` |
//! | `wrapper-worker` | starts a worker that holds the file `worker.lock` and commits `worker.txt` after 2 s; waits for it |
//! | `fork-many:N` | starts N children that live until the deadline |
//! | `spin` | uses the processor until the deadline |

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);

fn main() {
    let script = std::env::args().nth(1).or_else(|| std::env::var("FAKE_AGENT").ok()).unwrap_or_default();
    let seconds = std::env::var("FAKE_AGENT_DEADLINE").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    std::thread::spawn(move || {
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        end(99)
    });
    let mut agent = Agent { deadline, responses: 0, tools: 0 };
    for step in steps(&script) {
        let (word, value) = step.split_once(':').unwrap_or((&step, ""));
        if let Err(error) = agent.take(word, value) {
            let _ = writeln!(io::stderr(), "fake-agent: {word}: {error}");
            end(98);
        }
    }
    end(0)
}

/// Splits at commas; a backslash takes the meaning off the next character.
fn steps(script: &str) -> Vec<String> {
    let (mut steps, mut step) = (Vec::new(), String::new());
    let mut letters = script.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' => steps.push(std::mem::take(&mut step)),
            '\\' => match letters.next() {
                Some('n') => step.push('\n'),
                Some(other) => step.push(other),
                None => step.push('\\'),
            },
            other => step.push(other),
        }
    }
    steps.push(step);
    steps.into_iter().filter(|step| !step.trim().is_empty()).map(|step| step.trim_start().to_owned()).collect()
}

struct Agent {
    deadline: Instant,
    responses: u64,
    tools: u64,
}

impl Agent {
    fn take(&mut self, word: &str, value: &str) -> io::Result<()> {
        match word {
            "session" => say(&json!({"type": "session", "id": value, "model": "fake-1"})),
            "echo-session" => {
                let id = std::env::var("AGENTRUN_SESSION").ok().filter(|id| !id.is_empty());
                let id = id.unwrap_or_else(|| format!("fake-{}", std::process::id()));
                say(&json!({"type": "session", "id": id, "model": "fake-1"}))
            }
            "message" => say(&json!({"type": "message", "text": value})),
            "result" => say(&json!({"type": "result", "status": "completed", "text": value})),
            "ok" => self.ok(),
            "ok-text" => print_line(b"Done."),
            "raw" => print_line(value.as_bytes()),
            "stderr" => writeln!(io::stderr(), "{value}"),
            "usage" => self.usage(number(value)?, 0),
            "usage-many" => {
                let (times, tokens) = pair(value, 'x')?;
                (0..number(times)?).try_for_each(|_| self.usage(number(tokens)?, 0))
            }
            "no-usage" => Ok(()),
            "tool" => (0..number(value)?).try_for_each(|_| self.tool(Some(true))),
            "tool-open" => self.tool(None),
            "all-tools-failed" => {
                self.tool(Some(false))?;
                say(&json!({"type": "result", "status": "completed", "text": "Every tool failed."}))
            }
            "error" => report_error(value),
            _ => self.end_or_wait(word, value),
        }
    }

    fn end_or_wait(&mut self, word: &str, value: &str) -> io::Result<()> {
        match word {
            "exit0-error-event" => report_error("AGENT_FAILED").map(|()| end(0)),
            "exit1-after-result" => self.ok().map(|()| end(1)),
            "empty-result" => end(0),
            "exit" => end(i32::try_from(number(value)?).unwrap_or(97)),
            "kill-self" => kill_self(i32::try_from(number(value)?).unwrap_or(9)),
            "silent" | "hang" => self.take("sleep", "86400000"),
            "stall-after-start" => {
                self.take("session", "fake-session")?;
                self.take("silent", "")
            }
            "emit-then-hang" => {
                self.ok()?;
                self.take("silent", "")
            }
            "buffer-all" => self.buffer_all(),
            "sleep" => {
                self.sleep(Duration::from_millis(number(value)?));
                Ok(())
            }
            "wait-for" => {
                self.wait_for(Path::new(value));
                Ok(())
            }
            "spin" => loop {
                std::hint::spin_loop();
            },
            "die-after-effect" | "die-before-effect" => kill_self(9),
            "ignore-term" => ignore_signals(),
            "on-int" => on_interrupt(value.to_owned()),
            _ => self.touch_files(word, value),
        }
    }

    fn touch_files(&mut self, word: &str, value: &str) -> io::Result<()> {
        match word {
            "touch" => write(value, b"", false),
            "write" => pair(value, '=').and_then(|(path, text)| write(path, text.as_bytes(), false)),
            "append" => pair(value, '=').and_then(|(path, text)| write(path, text.as_bytes(), true)),
            "dirty" => write(value, b"changed by the fake agent\n", true),
            "effect" => write(value, format!("effect {}\n", std::process::id()).as_bytes(), true),
            "cwd-to" => write(value, std::env::current_dir()?.as_os_str().as_encoded_bytes(), false),
            "pid-to" => write(value, std::process::id().to_string().as_bytes(), false),
            "args-to" => write(value, std::env::args().collect::<Vec<_>>().join("\n").as_bytes(), false),
            "env-to" => {
                let lines =
                    std::env::vars_os().map(|(name, value)| format!("{}={}\n", name.display(), value.display()));
                write(value, lines.collect::<String>().as_bytes(), false)
            }
            "commit-no-push" => {
                git(&["add", "-A"])?;
                let who = ["-c", "user.name=fake", "-c", "user.email=fake@example.invalid"];
                git(&[&who[..], &["commit", "-q", "--allow-empty", "-m", "committed by the fake agent"]].concat())
            }
            "set-git-config" => pair(value, '=').and_then(|(key, text)| git(&["config", key, text])),
            _ => self.print(word, value),
        }
    }

    fn print(&mut self, word: &str, value: &str) -> io::Result<()> {
        match word {
            "read-stdin" => {
                let mut bytes = Vec::new();
                io::stdin().read_to_end(&mut bytes)?;
                say(&json!({"type": "message", "text": format!("read {} bytes", bytes.len())}))
            }
            "ignore-stdin" => Ok(rustix::stdio::dup2_stdin(nowhere()?)?),
            "close-stdout" => Ok(rustix::stdio::dup2_stdout(nowhere()?)?),
            "prints-secret" => print_secret(value),
            "flood" => flood(&mut io::stdout().lock(), number(value)?),
            "flood-stderr" => flood(&mut io::stderr().lock(), number(value)?),
            "long-line" => print_line(&vec![b'x'; usize::try_from(number(value)?).unwrap_or(0)]),
            "bad-utf8" => print(b"bad \xff\xfe utf8\nzero \0 byte\nlone \r return\nno last newline"),
            "request" => request(value),
            _ => self.start_others(word, value),
        }
    }

    fn start_others(&mut self, word: &str, value: &str) -> io::Result<()> {
        let rest = self.deadline.saturating_duration_since(Instant::now()).as_secs();
        match word {
            "grandchild-holds-stdout" => {
                Command::new("sleep").arg(rest.to_string()).spawn()?;
                end(0)
            }
            "background-job" => shell("sleep 10 && touch background-job.done").spawn().map(drop),
            "setsid-child" => shell(&format!("setsid sleep {rest} >/dev/null 2>&1 & ")).status().map(drop),
            "setsid-child-bare" => shell(&format!("env -i setsid sleep {rest} >/dev/null 2>&1 & ")).status().map(drop),
            "daemon" => {
                let program = std::env::current_exe()?;
                let mut daemon = Command::new("setsid");
                daemon.arg(program).arg(value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                daemon.spawn().map(drop)
            }
            "child" => Command::new(std::env::current_exe()?).arg(value).spawn().map(drop),
            "listen" => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
                write(&format!("{value}.new"), listener.local_addr()?.port().to_string().as_bytes(), false)?;
                fs::rename(format!("{value}.new"), value)?;
                self.take("silent", "")
            }
            "wrapper-worker" => {
                let worker = "exec 9>worker.lock && flock 9 && touch worker.started && sleep 2 && touch worker.txt";
                shell(worker).status().map(drop)
            }
            "fork-many" => (0..number(value)?)
                .try_for_each(|_| Command::new("sleep").arg(rest.to_string()).stdin(Stdio::null()).spawn().map(drop)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no such step")),
        }
    }

    fn ok(&mut self) -> io::Result<()> {
        self.take("session", "fake-session")?;
        self.take("message", "I will look around first.")?;
        self.tool(Some(true))?;
        self.usage(1000, 50)?;
        self.take("result", "Done.")
    }

    fn usage(&mut self, input: u64, output: u64) -> io::Result<()> {
        self.responses += 1;
        let response = format!("r{}", self.responses);
        say(&json!({"type": "usage", "response": response, "input": input, "cached": 0, "output": output}))
    }

    fn tool(&mut self, ok: Option<bool>) -> io::Result<()> {
        self.tools += 1;
        let id = format!("t{}", self.tools);
        say(&json!({"type": "tool_call", "id": id, "name": "shell", "input": {"command": "ls"}}))?;
        match ok {
            Some(ok) => say(&json!({"type": "tool_result", "id": id, "ok": ok})),
            None => Ok(()),
        }
    }

    fn buffer_all(&mut self) -> io::Result<()> {
        for _ in 0..10 {
            write("fake-agent.log", b"still at it\n", true)?;
            self.sleep(Duration::from_millis(50));
        }
        self.ok()
    }

    fn wait_for(&self, path: &Path) {
        while !path.exists() {
            self.sleep(LOOK);
        }
    }

    /// Sleeps, but never past the deadline.
    fn sleep(&self, length: Duration) {
        let left = self.deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(length.min(left));
        if length >= left {
            end(99)
        }
    }
}

/// Without a word: an agent that is told to exit does not panic about a closed pipe first.
#[expect(clippy::exit, reason = "the script says when and how it exits")]
fn end(code: i32) -> ! {
    std::process::exit(code)
}

fn say(event: &serde_json::Value) -> io::Result<()> {
    print_line(event.to_string().as_bytes())
}

fn print_line(line: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn report_error(value: &str) -> io::Result<()> {
    let (code, wait) = value.split_once(':').unwrap_or((value, ""));
    let mut event = json!({"type": "error", "code": code, "message": format!("the fake agent reports {code}")});
    if let Ok(seconds) = wait.parse::<u64>() {
        event["retry_after_s"] = json!(seconds);
    }
    say(&event)
}

fn flood(out: &mut dyn Write, mut bytes: u64) -> io::Result<()> {
    let mut block = vec![b'.'; 64 << 10];
    for end in (1023..block.len()).step_by(1024) {
        block[end] = b'\n';
    }
    while bytes > 0 {
        let part = usize::try_from(bytes).unwrap_or(usize::MAX).min(block.len());
        out.write_all(&block[..part])?;
        bytes -= part as u64;
    }
    out.flush()
}

/// The second time in two writes, with a pause in which the first half can arrive alone.
fn print_secret(name: &str) -> io::Result<()> {
    let secret = std::env::var(name).map_err(io::Error::other)?;
    say(&json!({"type": "message", "text": format!("the secret is {secret}")}))?;
    say(&json!({"type": "message", "text": format!("in base64 {}", base64(secret.as_bytes()))}))?;
    let (head, tail) = secret.split_at(secret.len() / 2);
    print(format!("{{\"type\":\"message\",\"text\":\"{head}").as_bytes())?;
    std::thread::sleep(Duration::from_millis(30));
    print(format!("{tail}\"}}\n").as_bytes())?;
    writeln!(io::stderr(), "and on stderr {secret}")
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |index| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..=three.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * place)) as usize & 63]));
        }
        text.extend(std::iter::repeat_n('=', 3 - three.len()));
    }
    text
}

fn write(path: &str, bytes: &[u8], append: bool) -> io::Result<()> {
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(append).truncate(!append);
    options.open(path)?.write_all(bytes)
}

fn git(args: &[&str]) -> io::Result<()> {
    let status = Command::new("git").args(args).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("git {args:?}: {status}"))) }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(|error| io::Error::other(format!("`{text}`: {error}")))
}

fn pair(text: &str, sign: char) -> io::Result<(&str, &str)> {
    text.split_once(sign).ok_or_else(|| io::Error::other(format!("`{text}` has no `{sign}`")))
}

/// Asks for a side effect as an agent would, and keeps the answer: exit status and document.
fn request(value: &str) -> io::Result<()> {
    let (file, args) = pair(value, '=')?;
    let agentrun = std::env::current_exe()?.with_file_name("agentrun");
    let args = ["action", "request", "--json"].into_iter().chain(args.split_whitespace());
    let out = Command::new(agentrun).args(args).stdin(Stdio::null()).output()?;
    let answer = json!({
        "exit": out.status.code(), "document": serde_json::from_slice::<serde_json::Value>(&out.stdout).ok(),
        "stderr": String::from_utf8_lossy(&out.stderr),
    });
    write(file, format!("{answer}\n").as_bytes(), true)
}

fn kill_self(signal: i32) -> ! {
    let _ = Command::new("kill").args([format!("-{signal}"), std::process::id().to_string()]).status();
    // The signal may take a moment, or may be ignored.
    std::thread::sleep(Duration::from_secs(5));
    end(97)
}

fn nowhere() -> io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// A handler that does nothing stays in place when the runtime that made it is gone.
fn ignore_signals() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .try_for_each(|kind| signal(kind).map(drop))
}

fn on_interrupt(file: String) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut interrupts = signal(SignalKind::interrupt())?;
    drop(inside);
    std::thread::spawn(move || {
        runtime.block_on(interrupts.recv());
        let _ = write(&file, b"interrupted\n", true);
        end(1)
    });
    Ok(())
}
