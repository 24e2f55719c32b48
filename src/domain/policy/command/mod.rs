//! Reads a command line before it is run, and names the effects in it that rules can speak of: a push, a write into a database
//! (R-P3, F91). A guard rail, no wall: a program can do anything that it has the rights for, and what cannot be read is said
//! to be `opaque` where it shows that it matters, and is not seen where it does not show.
//!
//! - `lexer` and `words` read the shell's language; `shell` follows a script as far as it can be told
//! - `programs` knows wrappers and interpreters; `git` and `database` know their programs; `code` looks into other languages,
//!   `decode` through encodings

mod code;
mod database;
mod decode;
mod git;
mod lexer;
mod programs;
mod shell;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use serde_json::Value;

use super::decide::Asked;
use crate::domain::task::CommandLine;

/// A push to a git remote.
pub const GIT_PUSH: &str = "git.push";

/// A statement that changes a database.
pub const DATABASE_WRITE: &str = "database.write";

/// The attributes that are told of each.
pub const ATTRIBUTES: [(&str, &[&str]); 2] = [
    (GIT_PUSH, &["force", "delete", "mirror", "remote", "branch", "opaque"]),
    (DATABASE_WRITE, &["environment", "host", "database", "client", "opaque"]),
];

/// Those of them that are true or false.
pub const SWITCHES: [&str; 4] = ["force", "delete", "mirror", "opaque"];

/// What a command line would do, as far as it can be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandReading {
    /// The effects in it, each once.
    pub effects: Vec<Asked>,
    /// Files that it would execute: whoever can, reads them, too ([`read_script`]).
    pub scripts: Vec<Script>,
}

/// A file that would be executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// As the command names it.
    pub path: String,
    /// What stands in it.
    pub language: Language,
}

/// What a script is written in.
#[derive(Debug, Clone, PartialEq)]
pub enum Language {
    /// What its first line says; a shell script without one.
    ByItself,
    /// Something other than a shell.
    Program,
    /// SQL, for this connection.
    Sql(BTreeMap<String, Value>),
}

/// Reads a command line, with the environment that it will have.
pub fn read_command(line: &CommandLine, vars: &BTreeMap<String, String>) -> CommandReading {
    let mut shell = shell::Shell::new(vars);
    match line {
        CommandLine::Shell(text) => shell.script(&known(text), shell::Stream::Nothing),
        CommandLine::List(words) => shell.program(&words.iter().map(|word| known(word)).collect::<Vec<_>>()),
    };
    shell.reading()
}

/// Reads the text of a script.
pub fn read_script(text: &str, language: &Language, vars: &BTreeMap<String, String>) -> CommandReading {
    let mut shell = shell::Shell::new(vars);
    let text = &known(text);
    match language {
        Language::Sql(connection) => database::statements(&mut shell, text, connection),
        Language::ByItself if is_of_a_shell(text) => {
            shell.script(text, shell::Stream::Nothing);
        }
        Language::Program | Language::ByItself => code::read(&mut shell, text, code::Extent::File),
    }
    shell.reading()
}

impl Script {
    /// What counts where nobody could read the file.
    pub fn unread(&self) -> Option<Asked> {
        let Language::Sql(connection) = &self.language else { return None };
        let opaque = [("opaque".to_owned(), Value::Bool(true))];
        Some(Asked {
            action: DATABASE_WRITE.to_owned(),
            values: connection.clone().into_iter().chain(opaque).collect(),
        })
    }
}

/// A text as it was given: what stands for the unknown is none of its letters.
fn known(text: &str) -> String {
    text.replace(words::UNKNOWN, "")
}

fn is_of_a_shell(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("#!") {
        Some(program) => program.split(['/', ' ']).any(programs::is_shell),
        None => true,
    }
}
