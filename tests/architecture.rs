//! The rules of the house as a test: layers, sizes, one place per danger. What it reads is `src/**` and the table of
//! `src/lib.rs`; what breaks a rule is named with file and line.

#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows test functions only")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Lines of a file without its tests.
const MAX_LINES: usize = 400;

/// The only files that may start a process, and why.
const STARTS_PROCESSES: &[(&str, &str)] = &[
    ("src/process/launch.rs", "every child of a run"),
    ("src/process/probe.rs", "one short question to a program, with a clock of its own"),
    ("src/process/aside.rs", "what is no child of a run: agentrun itself for --detach, the caller's own --on-end"),
];

/// The only files that may write to a terminal or end the program.
const SPEAKS: &[&str] = &["src/cli/say.rs", "src/main.rs"];

struct File {
    path: String,
    text: String,
}

impl File {
    /// Its lines without comments, tests and the numbers of lines: `(number, line)`.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let body = self.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = body.lines().enumerate().map(|(i, line)| (i + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("tests.rs")
    }

    /// `engine` for `src/engine/run.rs`; nothing for what stands in `src` itself.
    fn layer(&self) -> Option<&str> {
        self.path.strip_prefix("src/")?.split_once('/').map(|(layer, _)| layer)
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &str, ending: &str) -> Vec<File> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    found.sort();
    let named = |path: &PathBuf| path.to_str().is_some_and(|p| p.ends_with(ending));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        File { text: read_to_string(&path).unwrap(), path: name }
    };
    found.into_iter().filter(named).map(read).collect()
}

fn sources() -> Vec<File> {
    files_below("src", ".rs")
}

/// Files of the program itself: no tests, no stand-ins for tests.
fn shipped() -> Vec<File> {
    let only_tests = modules_of_tests();
    sources().into_iter().filter(|f| !f.is_test() && !only_tests.contains(&f.path)).collect()
}

/// Files that a `#[cfg(test)] mod name;` brings in.
fn modules_of_tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in sources() {
        let folder = match file.path.strip_suffix("/mod.rs").or_else(|| file.path.strip_suffix("/lib.rs")) {
            Some(folder) => folder.to_owned(),
            None => file.path.trim_end_matches(".rs").to_owned(),
        };
        let mut lines = file.text.lines().peekable();
        while let Some(line) = lines.next() {
            let next = lines.peek().copied().unwrap_or_default();
            let next = next.strip_prefix("pub(crate) ").or(next.strip_prefix("pub ")).unwrap_or(next);
            if let (true, Some(name)) =
                (line == "#[cfg(test)]", next.strip_prefix("mod ").and_then(|n| n.strip_suffix(';')))
            {
                found.insert(format!("{folder}/{name}.rs"));
            }
        }
    }
    found
}

/// The table of `src/lib.rs`: for each layer what it may use. `process::spec` allows that one module.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = read_to_string(root().join("src/lib.rs")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.map(|row| row.trim_end_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|row| row.len() == 4 && row[0].parse::<u8>().is_ok()).collect();
    let name = |cell: &str| cell.trim_matches(['[', ']', '`']).to_owned();
    let all: BTreeSet<String> = rows.iter().map(|row| name(row[1])).collect();
    let allowed = |row: &[&str]| match row[3] {
        "nothing of ours" => BTreeSet::new(),
        "everything but the command line" => {
            all.iter().filter(|layer| !["cli", &name(row[1])].contains(&layer.as_str())).cloned().collect()
        }
        list => list.split(',').map(|word| name(word.trim())).collect(),
    };
    rows.iter().map(|row| (name(row[1]), allowed(row))).collect()
}

/// `crate::engine::observer` → `engine`, `observer`.
fn uses(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let word = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    line.match_indices("crate::").filter(|(at, _)| !line[..*at].ends_with('$')).map(move |(at, found)| {
        let rest = &line[at + found.len()..];
        let (first, rest) = rest.split_at(word(rest));
        let rest = rest.strip_prefix("::").unwrap_or_default();
        (first, &rest[..word(rest)])
    })
}

fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}\n  {}\n", broken.join("\n  "));
}

#[test]
fn a_layer_uses_only_what_the_map_allows() {
    let table = table();
    let layers: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    let mut broken = Vec::new();
    for file in shipped() {
        let Some(layer) = file.layer() else { continue };
        let Some(allowed) = table.get(layer) else {
            broken.push(format!("{}: layer `{layer}` is not in the table of src/lib.rs", file.path));
            continue;
        };
        for (number, line) in file.code() {
            for (used, part) in uses(line).filter(|(used, _)| layers.contains(used) && *used != layer) {
                let ok = allowed.contains(used) || allowed.contains(&format!("{used}::{part}"));
                // A word of the table such as "engine's observer" names one module of a layer.
                let ok = ok || allowed.contains(&format!("{used}'s {part}"));
                if !ok {
                    broken.push(format!("{}:{number}: {layer} may not use {used}: {}", file.path, line.trim()));
                }
            }
        }
        for (number, line) in file.code() {
            if line.contains("use crate::{") {
                broken.push(format!("{}:{number}: `use crate::{{…}}` hides the edges; one line per layer", file.path));
            }
        }
    }
    report("a layer may use only what the table of src/lib.rs names:", &broken);
}

#[test]
fn the_map_knows_every_layer_and_has_no_circle() {
    let table = table();
    let folders: BTreeSet<String> = sources().iter().filter_map(|f| f.layer().map(ToOwned::to_owned)).collect();
    assert_eq!(folders, table.keys().cloned().collect(), "the folders of src and the rows of the table");
    // A layer is settled once all that it uses is; what is never settled uses itself in a circle.
    let mut settled: BTreeSet<&str> = BTreeSet::new();
    while let Some((layer, _)) = table.iter().find(|(layer, allowed)| {
        let needs = allowed.iter().map(|a| a.split([':', '\'']).next().unwrap_or_default());
        !settled.contains(layer.as_str()) && needs.clone().all(|n| settled.contains(n))
    }) {
        settled.insert(layer);
    }
    let all: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    assert_eq!(settled, all, "these layers use each other in a circle, or something that is no layer");
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    let files = sources().into_iter().chain(files_below("tests", ".rs"));
    let broken: Vec<_> = files.filter(|f| !f.text.starts_with("//! ")).map(|f| f.path).collect();
    report("a file begins with `//!`, why it exists and what it does not do:", &broken);
}

#[test]
fn no_file_is_too_long_to_be_one_idea() {
    let lines = |f: &File| f.text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().lines().count();
    let long = shipped().into_iter().map(|f| (lines(&f), f.path)).filter(|(n, _)| *n > MAX_LINES);
    let broken: Vec<_> = long.map(|(n, path)| format!("{path}: {n} lines without its tests")).collect();
    report(&format!("at most {MAX_LINES} lines without tests:"), &broken);
}

/// Lines of code that contain one of the texts, outside the places that may.
fn found(words: &[&str], may: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for file in shipped().iter().filter(|f| !may(&f.path)) {
        for (number, line) in file.code().filter(|(_, line)| words.iter().any(|word| line.contains(word))) {
            broken.push(format!("{}:{number}: {}", file.path, line.trim()));
        }
    }
    broken
}

#[test]
fn one_place_speaks_and_one_ends_the_program() {
    let words = ["println!", "eprintln!", "print!(", "eprint!(", "dbg!(", "process::exit", "io::stdout", "io::stderr"];
    report("only cli/say.rs and main.rs speak or exit:", &found(&words, &|path| SPEAKS.contains(&path)));
}

#[test]
fn one_place_speaks_sql() {
    let in_store = |path: &str| path.starts_with("src/store/");
    let words = ["SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM", "PRAGMA", "BEGIN IMMEDIATE", "VACUUM", "rusqlite"];
    report("SQL stands in src/store alone:", &found(&words, &in_store));
}

#[test]
fn one_place_names_the_yaml_crates() {
    let words = ["serde_yaml", "saphyr"];
    report("YAML crates are named in src/yaml alone:", &found(&words, &|path| path.starts_with("src/yaml/")));
}

#[test]
fn one_place_opens_git() {
    let words = ["git2::", "git2;"];
    report("libgit2 is used in src/git alone:", &found(&words, &|path| path.starts_with("src/git/")));
}

/// Nothing by which a test can end the program is in a build without the feature.
#[test]
fn failpoints_are_named_in_one_file_that_a_release_does_not_have() {
    let may = |path: &str| path.starts_with("src/failpoints/");
    report("the variables of failpoints are read in src/failpoints alone:", &found(&["AGENTRUN_FAIL"], &may));
    let text = read_to_string(root().join("src/failpoints/mod.rs")).unwrap();
    assert!(text.contains("#[cfg(feature = \"failpoints\")]\nmod armed;"), "armed.rs is behind the feature");
    let manifest = read_to_string(root().join("Cargo.toml")).unwrap();
    let features = manifest.split("[features]").nth(1).unwrap_or_default();
    assert!(!features.lines().any(|line| line.starts_with("default") && line.contains("fail")), "never by default");
}

#[test]
fn one_place_opens_connections() {
    let words = ["TcpStream", "UdpSocket", "hyper::", "rustls"];
    report(
        "connections are opened in src/adapters/http alone:",
        &found(&words, &|path| path.starts_with("src/adapters/http/")),
    );
}

#[test]
fn one_place_starts_processes() {
    let may = |path: &str| STARTS_PROCESSES.iter().any(|(allowed, _)| *allowed == path);
    let words = ["Command::new", "fork(", "posix_spawn", "execve"];
    report("processes are started here and nowhere else:", &found(&words, &may));
    let sources = sources();
    for (path, why) in STARTS_PROCESSES {
        let file = sources.iter().find(|f| f.path == *path);
        assert!(file.is_some_and(|f| f.text.contains("Command::new")), "{path} ({why}) starts nothing any more");
    }
}

#[test]
fn the_core_reads_no_clock_disk_environment_or_chance() {
    let words = [
        "std::fs",
        "fs_err",
        "std::env",
        "SystemTime",
        "Instant::now",
        "Timestamp::now",
        "now_v7",
        "std::process",
        "std::thread",
        "std::net",
    ];
    report("src/domain decides over values alone:", &found(&words, &|path| !path.starts_with("src/domain/")));
}

#[test]
fn hints_match_without_a_wildcard() {
    let text = read_to_string(root().join("src/cli/error.rs")).unwrap();
    let body = text.split("pub fn hint(").nth(1).expect("the function `hint`");
    let body = body.split("\n}\n").next().unwrap_or_default();
    assert!(!body.contains("_ =>"), "a new code must not come without a hint of its own");
}

#[test]
fn the_program_speaks_of_itself_alone() {
    let mut files = sources();
    files.extend(files_below("docs", ".md"));
    files.extend(files_below("tasks", ".yml"));
    files.extend(files_below("prompts", ".md"));
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "automation-policy.yml", "tests/run"] {
        files.push(File { path: name.to_owned(), text: read_to_string(root().join(name)).unwrap() });
    }
    let here = env!("CARGO_MANIFEST_DIR");
    let mut broken = Vec::new();
    for file in &files {
        for (i, line) in file.text.lines().enumerate() {
            let unfinished = ["TODO", "FIXME", "XXX"].iter().any(|word| line.split_whitespace().any(|w| w == *word));
            if line.contains(here) || unfinished {
                broken.push(format!("{}:{}: {}", file.path, i + 1, line.trim()));
            }
        }
    }
    report("no folder of whoever wrote it, nothing left to do in passing:", &broken);
}
