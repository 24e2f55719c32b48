//! Follows a shell script as far as it can be told: variables, pipes, files that it writes itself, scripts inside scripts. Every
//! branch is followed, whatever its condition: what could be done counts.

use std::collections::BTreeMap;

use serde_json::Value;

use super::lexer::{Redirect, Token, tokens};
use super::words::{Knows, UNKNOWN, document, expand, whole};
use super::{CommandReading, DATABASE_WRITE, GIT_PUSH, Script, programs};
use crate::domain::policy::decide::Asked;

/// Scripts inside scripts inside scripts: deeper is nothing that people write.
const MAX_DEPTH: u32 = 24;

/// Characters that are followed at most, all scripts together.
const MAX_CHARS: usize = 1 << 20;

/// What flows into a command or out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stream {
    /// Nothing.
    Nothing,
    /// This.
    Text(String),
    /// What stands in a file.
    File(String),
    /// Nobody can say.
    Unknown,
}

/// Words that stand before a command and are none.
const RESERVED: [&str; 14] =
    ["if", "then", "elif", "else", "do", "while", "until", "{", "}", "!", "time", "fi", "done", "esac"];

/// A script under way.
pub(super) struct Shell {
    /// Variables that are known.
    pub(super) vars: BTreeMap<String, String>,
    /// Files that the script has written itself.
    files: BTreeMap<String, String>,
    /// Git's settings, as far as the script makes them.
    pub(super) git: BTreeMap<String, Vec<String>>,
    found: CommandReading,
    depth: u32,
    left: usize,
}

impl Shell {
    pub(super) fn new(vars: &BTreeMap<String, String>) -> Self {
        let mut vars = vars.clone();
        vars.entry("IFS".to_owned()).or_insert_with(|| " ".to_owned());
        let (files, git, found) = (BTreeMap::new(), BTreeMap::new(), CommandReading::default());
        Self { vars, files, git, found, depth: 0, left: MAX_CHARS }
    }

    pub(super) fn reading(self) -> CommandReading {
        self.found
    }

    /// Notes an effect.
    pub(super) fn effect(&mut self, action: &str, values: BTreeMap<String, Value>) {
        let asked = Asked { action: action.to_owned(), values };
        if !self.found.effects.contains(&asked) {
            self.found.effects.push(asked);
        }
    }

    /// Notes an effect of which nothing more can be told.
    pub(super) fn opaque(&mut self, action: &str) {
        self.effect(action, [("opaque".to_owned(), Value::Bool(true))].into());
    }

    /// Notes that something is executed that nobody can read.
    pub(super) fn all_opaque(&mut self) {
        self.opaque(GIT_PUSH);
        self.opaque(DATABASE_WRITE);
    }

    /// Notes a file that is executed; one that the script wrote itself is known.
    pub(super) fn execute(&mut self, script: Script) {
        match self.files.get(&script.path).cloned() {
            Some(text) => {
                let inner = self.deeper(|shell| super::read_script(&text, &script.language, &shell.vars));
                inner.effects.into_iter().for_each(|asked| self.effect(&asked.action, asked.values));
                inner.scripts.into_iter().for_each(|script| self.note(script));
            }
            None => self.note(script),
        }
    }

    fn note(&mut self, script: Script) {
        let known = script.path.contains(UNKNOWN) || self.found.scripts.contains(&script);
        if !known {
            self.found.scripts.push(script);
        }
    }

    /// The text of a stream, if it is known.
    pub(super) fn text(&self, stream: &Stream) -> Option<String> {
        match stream {
            Stream::Text(text) => Some(text.clone()).filter(|text| !text.contains(UNKNOWN)),
            Stream::File(path) => self.files.get(path).cloned(),
            Stream::Nothing | Stream::Unknown => None,
        }
    }

    fn deeper<T: Default>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> T {
        if self.depth >= MAX_DEPTH {
            self.all_opaque();
            return T::default();
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    /// Follows a script. Answers what it prints.
    pub(super) fn script(&mut self, text: &str, stdin: Stream) -> Stream {
        if text.len() > self.left {
            self.all_opaque();
            return Stream::Unknown;
        }
        self.left -= text.len();
        self.deeper(|shell| Some(shell.follow(text, stdin))).unwrap_or(Stream::Unknown)
    }

    fn follow(&mut self, text: &str, stdin: Stream) -> Stream {
        let (mut printed, mut command, mut incoming) = (Vec::new(), Vec::new(), stdin.clone());
        let all = tokens(text).into_iter().chain([Token::Operator("\n")]);
        for token in all {
            let Token::Operator(operator) = token else {
                command.push(token);
                continue;
            };
            let output = self.command(std::mem::take(&mut command), incoming);
            incoming = match operator {
                // A group in brackets that ends here: what it printed flows on.
                "|" | "|&" if output == Stream::Nothing => joined(std::mem::take(&mut printed)),
                "|" | "|&" => output,
                _ => {
                    printed.push(output);
                    stdin.clone()
                }
            };
        }
        joined(printed)
    }

    /// One command with its redirections.
    fn command(&mut self, pieces: Vec<Token>, stdin: Stream) -> Stream {
        let (mut words, mut stdin, mut target) = (Vec::new(), stdin, None);
        let mut begun = false;
        for piece in pieces {
            match piece {
                Token::Word(written) => {
                    if !begun && self.assigns(&written, &mut words) {
                        continue;
                    }
                    let expanded = expand(&written, self);
                    begun |= !expanded.first().is_none_or(|word| RESERVED.contains(&word.as_str()));
                    words.extend(expanded);
                }
                Token::Redirect(Redirect::From(file)) => stdin = Stream::File(whole(&file, self)),
                Token::Redirect(Redirect::Word(text)) => stdin = Stream::Text(whole(&text, self) + "\n"),
                Token::Redirect(Redirect::Document(text, fills)) => {
                    stdin = Stream::Text(document(&text, fills, self));
                }
                Token::Redirect(Redirect::Into(file)) => target = Some(whole(&file, self)),
                Token::Redirect(Redirect::Other) | Token::Operator(_) => {}
            }
        }
        let output = self.simple(words, stdin);
        let Some(file) = target else { return output };
        if let Some(text) = self.text(&output) {
            self.files.entry(file).or_default().push_str(&text);
        }
        Stream::Nothing
    }

    /// `NAME=value` before a command: kept in the words as one, with its value as it is.
    fn assigns(&mut self, written: &str, words: &mut Vec<String>) -> bool {
        let Some((name, value)) = written.split_once('=').filter(|(name, _)| is_name(name.trim_end_matches('+')))
        else {
            return false;
        };
        let value = whole(value, self);
        words.push(format!("{}={value}", name.trim_end_matches('+')));
        true
    }

    /// A command without redirections: assignments, reserved words, then the program.
    fn simple(&mut self, words: Vec<String>, stdin: Stream) -> Stream {
        let skipped = words.iter().take_while(|word| RESERVED.contains(&word.as_str())).count();
        let words = &words[skipped..];
        match words.first().map(String::as_str) {
            // The names that a loop goes through: known when there is one.
            Some("for" | "select") => {
                if let (Some(name), Some(value)) = (words.get(1), words.get(3)) {
                    let value = if words.len() == 4 { value.clone() } else { UNKNOWN.to_string() };
                    self.set(name, value);
                }
                return Stream::Nothing;
            }
            Some("case" | "function" | "[[") => return Stream::Nothing,
            _ => {}
        }
        self.run(words, stdin)
    }

    /// Sets a variable; one with an unknown value is unknown.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.vars.insert(name.to_owned(), value);
    }

    fn set_all(&mut self, assignments: &[(&str, &str)]) {
        for (name, value) in assignments {
            self.set(name, (*value).to_owned());
        }
    }

    /// A program that the operating system starts: without a shell, `A=b` is no assignment.
    pub(super) fn program(&mut self, words: &[String]) -> Stream {
        programs::run(self, words, Stream::Nothing)
    }

    /// A program with its arguments, after the assignments before it.
    pub(super) fn run(&mut self, words: &[String], stdin: Stream) -> Stream {
        let own = words.iter().take_while(|word| assignment(word).is_some()).count();
        let assignments: Vec<_> = words[..own].iter().filter_map(|word| assignment(word)).collect();
        if own == words.len() {
            self.set_all(&assignments);
            return Stream::Nothing;
        }
        let before = self.vars.clone();
        self.set_all(&assignments);
        let output = self.deeper(|shell| Some(programs::run(shell, &words[own..], stdin))).unwrap_or(Stream::Unknown);
        if own > 0 {
            self.vars = before;
        }
        output
    }
}

impl Knows for Shell {
    fn variable(&self, name: &str) -> Option<String> {
        self.vars.get(name).cloned()
    }

    fn output(&mut self, script: &str) -> Option<String> {
        let output = self.script(script, Stream::Nothing);
        self.text(&output)
    }

    fn file(&mut self, script: &str) -> String {
        let output = self.script(script, Stream::Nothing);
        let Some(text) = self.text(&output) else { return UNKNOWN.to_string() };
        let name = format!("/dev/fd/script-{}", self.files.len());
        self.files.insert(name.clone(), text);
        name
    }
}

/// `NAME=value` as one word.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| is_name(name))
}

fn is_name(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn joined(streams: Vec<Stream>) -> Stream {
    let mut text = String::new();
    for stream in &streams {
        match stream {
            Stream::Nothing => {}
            Stream::Text(more) => text.push_str(more),
            one if streams.iter().filter(|s| **s != Stream::Nothing).count() == 1 => return one.clone(),
            Stream::File(_) | Stream::Unknown => return Stream::Unknown,
        }
    }
    if text.is_empty() { Stream::Nothing } else { Stream::Text(text) }
}
