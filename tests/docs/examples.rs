//! The examples of the format pages are read by the program itself.

use std::collections::BTreeMap;

use agentrun::config::{
    ConfigError, Overrides, Source, TaskContext, load_contract, load_policy, load_prompt, load_task,
};
use agentrun::domain::action::contract::{Automatic, Dedupe, Meaning};
use agentrun::domain::action::wording::NAMES;
use agentrun::domain::machine::Word as _;
use agentrun::domain::policy::Policy;
use agentrun::domain::template::PromptValues;

use crate::{files_below, read};

/// Files by name, in memory.
struct Files(BTreeMap<String, String>);

impl Source for Files {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ConfigError> {
        Ok(self.0.get(path).map(|text| text.clone().into_bytes()))
    }

    fn list(&self, _: &str) -> Result<Vec<String>, ConfigError> {
        Ok(Vec::new())
    }
}

/// A fenced block: its info string (`yaml task`), its page, its text.
struct Block {
    info: String,
    page: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    for page in files_below("docs", ".md").into_iter().chain(["README.md".to_owned()]) {
        let text = read(&page);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) {
                let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                found.push(Block { info: info.to_owned(), page: page.clone(), text: format!("{}\n", body.join("\n")) });
            }
        }
    }
    found
}

fn of_kind(kind: &str) -> Vec<Block> {
    let found: Vec<_> = blocks().into_iter().filter(|block| block.info == kind).collect();
    assert!(!found.is_empty(), "no example of kind `{kind}`");
    found
}

fn policy_of(text: &str) -> Result<agentrun::config::LoadedPolicy, ConfigError> {
    let base = "retry: { base: 10s }\n".to_owned();
    load_policy(&Files(
        [("automation-policy.yml".to_owned(), text.to_owned()), ("policies/base.yml".to_owned(), base)].into(),
    ))
}

#[test]
fn policies_of_the_docs_are_read() {
    for block in of_kind("yaml policy") {
        policy_of(&block.text).unwrap_or_else(|e| panic!("{}: {e}\n{}", block.page, block.text));
    }
}

#[test]
fn the_defaults_of_the_docs_are_the_built_in_ones() {
    for block in of_kind("yaml policy-defaults") {
        let loaded = policy_of(&block.text).unwrap_or_else(|e| panic!("{}: {e}", block.page));
        assert_eq!(Policy { version: "built-in".to_owned(), ..loaded.policy }, Policy::default(), "{}", block.page);
    }
}

#[test]
fn tasks_of_the_docs_are_read() {
    // The whole policy of the docs, so that agents of its own are known.
    let policy = policy_of(&of_kind("yaml policy")[0].text).unwrap();
    let overrides = Overrides::default();
    for block in of_kind("yaml task") {
        load_task(
            "tasks/example.yml",
            block.text.as_bytes(),
            &TaskContext { policy: &policy, overrides: &overrides, contracts: None },
        )
        .unwrap_or_else(|e| panic!("{}: {e}\n{}", block.page, block.text));
    }
}

#[test]
fn contracts_of_the_docs_are_read() {
    for block in of_kind("yaml contract") {
        load_contract("policies/contracts/example.yml", block.text.as_bytes())
            .unwrap_or_else(|e| panic!("{}: {e}\n{}", block.page, block.text));
    }
}

/// Every key that a contract can have, every word and every name of a template stands on its page.
#[test]
fn the_page_of_contracts_names_every_word() {
    let page = read("docs/reference/contract.md");
    let keys = "version environment account dedupe key header lifetime automatic irreversible look_first atomic send http run method url \
                headers secret_headers prefix env body form inside answers reference message query settle absent find list more equals \
                contains state at words";
    let words = Meaning::ALL.iter().map(|word| word.word()).chain(Dedupe::ALL.iter().map(|word| word.word()));
    let words = words.chain(Automatic::ALL.iter().map(|word| word.word()));
    let missing: Vec<_> = keys
        .split_whitespace()
        .chain(words)
        .chain(NAMES.iter().copied())
        .filter(|word| !page.contains(&format!("`{word}`")) && !page.contains(&format!("`{word}:")))
        .collect();
    assert!(missing.is_empty(), "docs/reference/contract.md does not name {missing:?}");
}

#[test]
fn prompts_of_the_docs_are_read() {
    let inputs = ["ticket", "request", "name"].map(|name| (name.to_owned(), "x".to_owned())).into();
    for block in of_kind("markdown prompt") {
        load_prompt("prompts/example.md", block.text.as_bytes(), &PromptValues::sample(&inputs))
            .unwrap_or_else(|e| panic!("{}: {e}\n{}", block.page, block.text));
    }
}
