//! Writes what a repository needs to begin: a policy, a sample task that runs without an account, a prompt, `.ai-runs/`.
//! Never overwrites.

use std::path::Path;

use super::error::OpsError;
use super::place::Place;
use crate::domain::failure::Code;

/// A file of `init`.
struct Template {
    path: &'static str,
    text: &'static str,
}

const FILES: [Template; 6] = [
    Template { path: "automation-policy.yml", text: include_str!("init/automation-policy.yml") },
    Template { path: "policies/cases/rules.yml", text: include_str!("init/rules.yml") },
    Template { path: "tasks/hello.yml", text: include_str!("init/hello.yml") },
    Template { path: "tasks/hello.events.jsonl", text: include_str!("init/hello.events.jsonl") },
    Template { path: "tasks/hello.patch", text: include_str!("init/hello.patch") },
    Template { path: "prompts/task.md", text: include_str!("init/task.md") },
];

/// What was written and what was there.
#[derive(Debug, Default)]
pub struct Initialized {
    /// New files.
    pub written: Vec<String>,
    /// Files that were there already and stay as they are.
    pub kept: Vec<String>,
    /// The commit, with `--commit`.
    pub commit: Option<String>,
    /// True when the repository has no commit yet, which a run needs.
    pub needs_commit: bool,
}

/// Initializes.
pub fn init(place: &Place, commit: bool) -> Result<Initialized, OpsError> {
    let mut done = Initialized::default();
    for file in &FILES {
        if write_new(&place.repo.root().join(file.path), file.text)? {
            done.written.push(file.path.to_owned());
        } else {
            done.kept.push(file.path.to_owned());
        }
    }
    place.home()?;
    done.needs_commit = place.repo.head().is_err();
    if commit && done.needs_commit {
        let paths: Vec<&str> = FILES.iter().map(|f| f.path).collect();
        done.commit = Some(place.repo.first_commit(&paths, "Begin with agentrun")?);
        done.needs_commit = false;
    }
    Ok(done)
}

/// Writes a file unless something of that name exists.
fn write_new(path: &Path, text: &str) -> Result<bool, OpsError> {
    use std::io::Write as _;
    let io = |e: std::io::Error| OpsError::failed(Code::StoreIo, e.to_string());
    if let Some(parent) = path.parent() {
        fs_err::create_dir_all(parent).map_err(io)?;
    }
    match fs_err::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true).map_err(io),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(io(e)),
    }
}
