//! What a program does with its arguments: shells and interpreters run them, wrappers hand them on, some print them. Of a program
//! that is not known here, whatever looks like a command among its arguments counts as one.

use super::code::{Extent, mentions_push, read};
use super::decode::{base64, hex};
use super::shell::{Shell, Stream, assignment};
use super::words::UNKNOWN;
use super::{GIT_PUSH, Language, Script, database, git};
use crate::domain::policy::condition::{glob, is_glob};

/// Programs that change nothing outside, whatever their arguments say.
const HARMLESS: [&str; 32] = [
    "grep", "rg", "ag", "sed", "awk", "ls", "test", "[", "true", "false", ":", "cd", "pushd", "popd", "pwd", "which",
    "type", "head", "tail", "sort", "uniq", "wc", "diff", "cmp", "mkdir", "touch", "rm", "cp", "mv", "sleep", "read",
    "exit",
];

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish"];

/// Interpreters, and the letter of the option that is followed by a program.
const INTERPRETERS: [(&str, char); 11] = [
    ("python", 'c'),
    ("pypy", 'c'),
    ("perl", 'e'),
    ("ruby", 'e'),
    ("node", 'e'),
    ("nodejs", 'e'),
    ("bun", 'e'),
    ("php", 'r'),
    ("lua", 'e'),
    ("osascript", 'e'),
    ("pwsh", 'c'),
];

/// Whether a program is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// A program with its arguments. Answers what it prints.
pub(super) fn run(shell: &mut Shell, words: &[String], stdin: Stream) -> Stream {
    let Some((program, args)) = words.split_first() else { return Stream::Nothing };
    let name = base_name(program);
    if let Some(printed) = prints(shell, &name, args, &stdin) {
        return printed;
    }
    match name.as_str() {
        name if is_shell(name) => return shell_program(shell, args, stdin),
        "busybox" | "toybox" | "exec" | "command" | "builtin" | "nohup" | "time" => return run(shell, args, stdin),
        "eval" => return evaluated(shell, &args.join(" "), stdin),
        "env" => return env(shell, args, stdin),
        "." | "source" => script_file(shell, args.first(), Language::ByItself),
        "export" | "declare" | "local" | "readonly" | "typeset" => assign(shell, args),
        "unset" => args.iter().for_each(|name| drop(shell.vars.remove(name))),
        "alias" => {
            for text in args.iter().filter_map(|arg| arg.split_once('=')).map(|(_, text)| text.to_owned()) {
                shell.script(&text, Stream::Nothing);
            }
        }
        "trap" => return args.first().map_or(Stream::Nothing, |text| shell.script(text, Stream::Nothing)),
        "xargs" => xargs(shell, args, &stdin),
        "git" | "hub" => git::run(shell, args),
        name if name.starts_with("git-") => {
            git::run(shell, &[&[name["git-".len()..].to_owned()], args].concat());
        }
        name if database::is_client(name) => database::run(shell, (name, args), &stdin),
        name if HARMLESS.contains(&name) => {}
        name => match interpreter(name) {
            Some(letter) => interpreted(shell, (letter, args), stdin),
            None => unknown(shell, words, stdin),
        },
    }
    Stream::Unknown
}

/// A program's name without its folder. A pattern that could be git is git.
fn base_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    if is_glob(name) && glob(name, "git") { "git".to_owned() } else { name.to_owned() }
}

fn interpreter(name: &str) -> Option<char> {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|(known, _)| *known == plain).map(|(_, letter)| *letter)
}

/// Programs whose output can be told.
fn prints(shell: &mut Shell, name: &str, args: &[String], stdin: &Stream) -> Option<Stream> {
    let options = args.iter().take_while(|arg| arg.starts_with('-') && arg.len() > 1).count();
    let text = |text: Option<String>| text.map_or(Stream::Unknown, Stream::Text);
    Some(match name {
        "echo" => text(Some(args[options..].join(" ") + "\n")),
        "printf" => text(Some(printf(args))),
        "cat" | "tee" if args.len() == options || name == "tee" => stdin.clone(),
        "cat" if args.len() == options + 1 => Stream::File(args[options].clone()),
        "cat" => Stream::Unknown,
        "base64" | "base32" | "openssl" => text(shell.text(stdin).and_then(|text| base64(&text))),
        "xxd" => text(shell.text(stdin).and_then(|text| hex(&text))),
        "rev" => text(shell.text(stdin).map(|text| text.trim_end().chars().rev().collect())),
        _ => return None,
    })
}

/// As far as people hide commands with it: the format, its `%s` filled in, its escapes read.
fn printf(args: &[String]) -> String {
    let Some((format, values)) = args.split_first() else { return String::new() };
    let mut values = values.iter();
    let mut text = String::new();
    let mut parts = format.split("%s");
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push_str(values.next().map_or("", String::as_str));
        text.push_str(part);
    }
    for value in values {
        text.push(' ');
        text.push_str(value);
    }
    super::words::plain(&format!("$'{}'", text.replace('\'', "\\'")))
}

fn shell_program(shell: &mut Shell, args: &[String], stdin: Stream) -> Stream {
    let (mut rest, mut takes_text) = (args, false);
    while let Some((option, others)) = rest.split_first().filter(|(first, _)| first.starts_with(['-', '+'])) {
        let letters = if option.starts_with("--") { "" } else { option.as_str() };
        takes_text |= letters.contains('c');
        // `-o pipefail`, `-O extglob`: the word behind them is none of the script's.
        let valued = letters.ends_with(['o', 'O']) || ["--rcfile", "--init-file"].contains(&option.as_str());
        rest = if valued { others.get(1..).unwrap_or_default() } else { others };
        if option == "--" {
            break;
        }
    }
    match rest.first() {
        Some(text) if takes_text => evaluated(shell, text, stdin),
        Some(file) => {
            script_file(shell, Some(file), Language::ByItself);
            Stream::Unknown
        }
        None => fed(shell, stdin),
    }
}

/// A shell that reads its script from what flows into it.
fn fed(shell: &mut Shell, stdin: Stream) -> Stream {
    if let Some(text) = shell.text(&stdin) {
        return shell.script(&text, Stream::Nothing);
    }
    match stdin {
        Stream::Nothing => {}
        Stream::File(path) => script_file(shell, Some(&path), Language::ByItself),
        Stream::Text(_) | Stream::Unknown => shell.all_opaque(),
    }
    Stream::Unknown
}

/// A text that is run as a script; nobody can read one that is not known at all.
fn evaluated(shell: &mut Shell, text: &str, stdin: Stream) -> Stream {
    if text.trim().starts_with(UNKNOWN) {
        shell.all_opaque();
    }
    shell.script(text, stdin)
}

fn script_file(shell: &mut Shell, path: Option<&String>, language: Language) {
    if let Some(path) = path {
        shell.execute(Script { path: path.clone(), language });
    }
}

fn assign(shell: &mut Shell, args: &[String]) {
    for (name, value) in args.iter().filter_map(|arg| assignment(arg)) {
        shell.set(name, value.to_owned());
    }
}

/// `env [options] [NAME=value …] program`, and `env -S "program …"`.
fn env(shell: &mut Shell, args: &[String], stdin: Stream) -> Stream {
    for (i, arg) in args.iter().enumerate() {
        if let Some(text) = arg.strip_prefix("-S").or_else(|| arg.strip_prefix("--split-string=")) {
            let text = [&[text.to_owned()], &args[i + 1..]].concat().join(" ");
            return shell.script(&text, stdin);
        }
    }
    let mut rest = args;
    while let Some((first, others)) = rest.split_first().filter(|(first, _)| first.starts_with('-')) {
        let valued = ["-u", "-C", "--unset", "--chdir"].contains(&first.as_str());
        rest = if valued { others.get(1..).unwrap_or_default() } else { others };
    }
    shell.run(rest, stdin)
}

/// What flows in becomes arguments.
fn xargs(shell: &mut Shell, args: &[String], stdin: &Stream) {
    let known = shell.text(stdin);
    let added = known.map_or_else(|| vec![UNKNOWN.to_string()], |text| super::words::parted(&text));
    let begins = args.iter().position(|arg| !arg.starts_with('-')).unwrap_or(args.len());
    // The value of an option such as `-n 1` is no program.
    let begins = begins + args[begins..].iter().take_while(|arg| arg.parse::<u32>().is_ok() || *arg == "{}").count();
    shell.run(&[&args[begins..], &added].concat(), Stream::Nothing);
}

fn interpreted(shell: &mut Shell, (letter, args): (char, &[String]), stdin: Stream) {
    let short = |arg: &String| arg.starts_with('-') && !arg.starts_with("--") && arg.contains(letter);
    let long =
        |arg: &String| ["--eval", "--print", "eval", "-Command"].contains(&arg.as_str()) || arg.starts_with("--eval=");
    if args.iter().any(|arg| short(arg) || long(arg)) {
        return read(shell, &args.join("\n"), Extent::Inline);
    }
    // A module of its own: `python -m pytest`.
    if args.iter().any(|arg| arg == "-m") {
        return;
    }
    match args.iter().find(|arg| !arg.starts_with('-')) {
        Some(file) => script_file(shell, Some(file), Language::Program),
        None => match (shell.text(&stdin), stdin) {
            (Some(text), _) => read(shell, &text, Extent::Inline),
            (None, Stream::File(path)) => script_file(shell, Some(&path), Language::Program),
            (None, Stream::Nothing) => {}
            (None, _) => shell.all_opaque(),
        },
    }
}

/// A program that nothing is known of: `sudo`, `timeout`, `docker exec`, a script of the repository.
fn unknown(shell: &mut Shell, words: &[String], stdin: Stream) {
    let (program, args) = (words[0].as_str(), &words[1..]);
    if program.contains(UNKNOWN) && args.iter().any(|arg| arg == "push" || arg.contains("send-pack")) {
        shell.opaque(GIT_PUSH);
    }
    if let Some(at) = args.iter().position(|word| is_command(word, args)) {
        shell.run(&args[at..], stdin.clone());
    }
    for text in args.iter().filter(|arg| arg.contains(char::is_whitespace)) {
        let names_client = || text.split_whitespace().any(|word| database::is_client(&base_name(word)));
        if mentions_push(text, Extent::Inline) || names_client() {
            shell.script(text, Stream::Nothing);
        }
    }
    if program == "ssh" && stdin != Stream::Nothing {
        fed(shell, stdin);
    }
    if program.contains('/') {
        script_file(shell, Some(&words[0]), Language::ByItself);
    }
}

/// Whether a command seems to begin here, among the arguments of another.
fn is_command(word: &str, args: &[String]) -> bool {
    let name = base_name(word);
    let pushes = || args.iter().any(|arg| arg == "push" || arg.contains("alias.") || arg == "send-pack");
    let wraps = ["env", "xargs", "eval", "nohup"].contains(&name.as_str());
    let is_git = name == "git" || name.starts_with("git-");
    wraps || (is_git && pushes()) || is_shell(&name) || database::is_client(&name) || interpreter(&name).is_some()
}
