//! The only writer to standard output and standard error. Standard output carries the one result; everything else goes to
//! standard error. A reader that went away ends the printing, never the run (F24).

use std::io::{IsTerminal as _, Write};

use serde_json::Value;

use crate::report::document;

/// The two streams.
#[derive(Debug)]
pub struct Say {
    out_open: bool,
    err_open: bool,
    /// Whether colours are wanted at all.
    pub colours: bool,
    /// Whether chatter is wanted.
    pub chatty: bool,
}

impl Say {
    /// Both streams open, colours as the terminal allows.
    pub fn new() -> Self {
        Self { out_open: true, err_open: true, colours: true, chatty: true }
    }

    /// Whether standard output is a terminal that may have colours.
    pub fn colour_out(&self) -> bool {
        self.colours && std::io::stdout().is_terminal()
    }

    /// Whether standard error is a terminal that may have colours.
    pub fn colour_err(&self) -> bool {
        self.colours && std::io::stderr().is_terminal()
    }

    /// The result, with a newline at its end.
    pub fn result(&mut self, text: &str) {
        let newline = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        self.out(format!("{text}{newline}").as_bytes());
    }

    /// The result as JSON.
    pub fn json(&mut self, value: &Value) {
        self.out(format!("{}\n", document::pretty(value).trim_end()).as_bytes());
    }

    /// One line of a stream of JSON.
    pub fn json_line(&mut self, value: &Value) {
        self.out(format!("{}\n", document::line(value).trim_end()).as_bytes());
    }

    /// Bytes of a result.
    pub fn out(&mut self, bytes: &[u8]) {
        if !self.out_open {
            return;
        }
        let mut stream = std::io::stdout().lock();
        self.out_open = stream.write_all(bytes).and_then(|()| stream.flush()).is_ok();
    }

    /// Whether somebody still reads standard output.
    pub fn is_read(&self) -> bool {
        self.out_open
    }

    /// A message that must be seen: errors, and what `--quiet` does not hide.
    pub fn note(&mut self, text: &str) {
        if !self.err_open {
            return;
        }
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        let mut stream = std::io::stderr().lock();
        self.err_open = stream.write_all(format!("{text}{newline}").as_bytes()).is_ok();
    }

    /// A message that `--quiet` hides.
    pub fn chat(&mut self, text: &str) {
        if self.chatty {
            self.note(text);
        }
    }
}

/// One line while a run works, beside what moves. A reader of standard error that went away is no reason to stop.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Whether standard error is a terminal, so that something may move there.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether a question can be put and answered: standard input and standard error are a terminal.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && is_watched()
}

/// Puts a question; only `y` or `yes` is a yes.
pub fn agrees(question: &str) -> bool {
    let mut stream = std::io::stderr().lock();
    let _ = write!(stream, "{question} [y/N] ").and_then(|()| stream.flush());
    let mut answer = String::new();
    let is_read = std::io::stdin().read_line(&mut answer).is_ok();
    is_read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Where the diagnostic log goes.
pub fn log() -> std::io::Stderr {
    std::io::stderr()
}

/// Standard output as it is, for a recording that is played: there a broken stream must show.
pub fn recording() -> impl Write {
    std::io::stdout().lock()
}

impl Default for Say {
    fn default() -> Self {
        Self::new()
    }
}
