//! What stands in the hand-written pages: links, and commands that can be typed.

use agentrun::cli::args::Args;
use agentrun::cli::error::hint;
use agentrun::domain::failure::Code;
use agentrun::domain::machine::Word as _;
use clap::Parser as _;

use crate::{files_below, read, root};

fn pages() -> Vec<String> {
    let mut pages = files_below("docs", ".md");
    pages.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests/agents/README.md"]
            .map(ToOwned::to_owned),
    );
    // The packaged crate comes without the recordings of real agents and what is said about them.
    pages.retain(|page| root().join(page).exists());
    pages
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with("mailto:") || target.contains(' ') {
                continue;
            }
            if target.contains("tests/agents/") && !root().join("tests/agents").exists() {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file =
                if path.is_empty() { root().join(&page) } else { root().join(&page).parent().unwrap().join(path) };
            let found = std::fs::read_to_string(&file).unwrap_or_default();
            if !file.exists() || (!anchor.is_empty() && !anchors(&found).contains(&anchor.to_owned())) {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The names that headings have as targets of links.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let name = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(name).collect()
}

/// Words of a shell line as far as the docs need them: quotes, no variables. What follows a pipe is another program's.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => (quote, open) = (Some(c), true),
            (' ', None) if open || !word.is_empty() => {
                words.push(std::mem::take(&mut word));
                open = false;
            }
            (' ', None) => {}
            ('#', None) if word.is_empty() => break,
            ('|' | '>' | ';' | '&', None) => break,
            (c, _) => word.push(c),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Why a line that begins with `agentrun` cannot be typed.
fn refusal(line: &str) -> Option<String> {
    let error = Args::try_parse_from(words(line)).err()?;
    error.use_stderr().then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

#[test]
fn commands_of_the_docs_can_be_typed() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        for block in text.split("```").skip(1).step_by(2).filter(|block| block.starts_with("sh\n")) {
            for line in block.lines().map(|line| line.trim_start_matches("$ ")) {
                let line = line
                    .strip_prefix("cargo run --release -- ")
                    .map_or(line.to_owned(), |rest| format!("agentrun {rest}"));
                if line.starts_with("agentrun ") {
                    seen += 1;
                    broken.extend(refusal(&line).map(|why| format!("{page}: {line}: {why}")));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(seen > 20, "only {seen} commands were found");
}

/// Commands that hints name and this version does not have; each is listed as missing in the README.
const NOT_YET: &[&str] = &["reconcile"];

#[test]
fn commands_of_the_hints_can_be_typed() {
    let mut broken = Vec::new();
    for code in Code::ALL {
        let hint = hint(*code).replace("{run}", "run_1_001");
        let Some((_, command)) = hint.split_once("agentrun ") else { continue };
        let command = command.split([',', ';', ')']).next().unwrap_or_default().trim();
        if !command.starts_with(char::is_lowercase)
            || command.starts_with("that ")
            || command.starts_with('\'')
            || NOT_YET.iter().any(|word| command.starts_with(word))
        {
            continue;
        }
        let line = format!("agentrun {command}").replace("VALUE", "1");
        broken.extend(refusal(&line).map(|why| format!("{}: {line}: {why}", code.word())));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_dependency_is_explained() {
    let manifest = read("Cargo.toml");
    let page = read("docs/decisions/dependencies.md");
    let names = |section: &str| {
        let part = manifest.split(&format!("\n[{section}]\n")).nth(1).unwrap().split("\n[").next().unwrap().to_owned();
        part.lines().filter_map(|l| l.split_once(" = ")).map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let all = names("dependencies").into_iter().chain(names("dev-dependencies"));
    let missing: Vec<_> = all.filter(|name| !page.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/decisions/dependencies.md does not explain {missing:?}");
}
