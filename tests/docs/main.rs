//! The documentation against the program: generated pages are what the program would generate now, examples load,
//! commands that are shown can be typed, links lead somewhere. `AGENTRUN_BLESS=1 cargo test --test docs` writes the
//! generated pages anew.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; the lint knows test functions only"
)]

mod examples;
mod machines;
mod pages;
mod promises;
mod reference;

use std::path::PathBuf;

/// A generated page: where it stands and what it must say.
struct Page {
    path: &'static str,
    text: String,
}

const BANNER: &str =
    "<!-- Generated from the program. Change the source, then: AGENTRUN_BLESS=1 cargo test --test docs -->\n\n";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the project.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Files below a folder with this ending, relative to the project, sorted.
fn files_below(folder: &str, ending: &str) -> Vec<String> {
    fn walk(folder: &std::path::Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("node_modules") {
                walk(&path, found);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    let names = found.iter().map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

/// Text that stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[test]
fn r_u8_generated_pages_are_what_the_program_says() {
    let pages = reference::pages().into_iter().chain(machines::pages()).chain(promises::pages());
    let bless = std::env::var_os("AGENTRUN_BLESS").is_some_and(|v| !v.is_empty() && v != "0");
    let mut stale = Vec::new();
    for page in pages {
        let wanted = format!("{BANNER}{}\n", page.text.trim_end());
        let path = root().join(page.path);
        if std::fs::read_to_string(&path).is_ok_and(|found| found == wanted) {
            continue;
        }
        if bless {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, wanted).unwrap();
        } else {
            stale.push(page.path);
        }
    }
    assert!(stale.is_empty(), "not what the program says: {stale:?}\nrun: AGENTRUN_BLESS=1 cargo test --test docs");
}
