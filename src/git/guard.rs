//! A print of everything in a git folder that can run code or lead elsewhere, and what changed between two prints (F81 to
//! F83). It keeps digests only: a configuration may hold tokens.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{GitError, Result};
use super::repo::Repo;
use super::{beneath, config_text, paths};
use crate::domain::hash::encoding::Sha256Hash;

/// The print. It can be kept with a run's record and compared after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardPrint {
    /// File below the git folder, or `.git` for the pointer: digest of what it is and holds.
    files: BTreeMap<String, String>,
    /// `<file> <key>` of a configuration: digest of its values in order.
    keys: BTreeMap<String, String>,
}

/// One thing that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// In words: `config: core.fsmonitor was added`.
    pub what: String,
    /// True when git may run it, or look elsewhere because of it.
    pub is_dangerous: bool,
}

impl Repo {
    /// The print of the user's git folders.
    pub fn guard(&self) -> Result<GuardPrint> {
        let mut print = GuardPrint::of(self.common_dir())?;
        if self.git_dir() != self.common_dir() {
            print.add_files(self.git_dir(), "worktree/", &["config.worktree", "commondir", "gitdir"])?;
        }
        print.add_pointer(self.root())?;
        Ok(print)
    }
}

impl GuardPrint {
    /// The print of one git folder and of the git folders of submodules in it.
    pub(super) fn of(git_dir: &Path) -> Result<Self> {
        let mut print = Self::default();
        print.add_folder(git_dir, "", 0)?;
        Ok(print)
    }

    /// Adds what `.git` in a working copy is: a folder, or a file with a path.
    pub(super) fn add_pointer(&mut self, root: &Path) -> Result<()> {
        self.add(&root.join(".git"), ".git".to_owned())
    }

    fn add_folder(&mut self, git_dir: &Path, prefix: &str, depth: u32) -> Result<()> {
        /// Submodules in submodules, deeper than anybody has them.
        const MAX_DEPTH: u32 = 8;
        const FILES: [&str; 8] = [
            "config",
            "config.worktree",
            "commondir",
            "info/attributes",
            "info/exclude",
            "info/grafts",
            "objects/info/alternates",
            "objects/info/http-alternates",
        ];
        self.add_files(git_dir, prefix, &FILES)?;
        for name in names(&git_dir.join("hooks"))? {
            // Git never runs those.
            if !name.ends_with(".sample") {
                self.add(&git_dir.join("hooks").join(&name), format!("{prefix}hooks/{name}"))?;
            }
        }
        self.add_modules(&git_dir.join("modules"), &format!("{prefix}modules/"), depth.min(MAX_DEPTH))
    }

    /// A submodule's name may have slashes, so its git folder may lie deeper.
    fn add_modules(&mut self, folder: &Path, prefix: &str, depth: u32) -> Result<()> {
        const MAX_DEPTH: u32 = 8;
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        for name in names(folder)? {
            let module = folder.join(&name);
            if module.join("HEAD").is_file() {
                self.add_folder(&module, &format!("{prefix}{name}/"), depth + 1)?;
            } else if module.is_dir() {
                self.add_modules(&module, &format!("{prefix}{name}/"), depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_files(&mut self, git_dir: &Path, prefix: &str, names: &[&str]) -> Result<()> {
        for name in names {
            let path = git_dir.join(name);
            self.add(&path, format!("{prefix}{name}"))?;
            if name.starts_with("config") {
                self.add_keys(&path, &format!("{prefix}{name}"));
            }
        }
        Ok(())
    }

    /// Adds what stands at a path: nothing, a folder, a link and what it leads to, a file with its contents.
    fn add(&mut self, path: &Path, name: String) -> Result<()> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if beneath::is_absent(&error) => return Ok(()),
            Err(error) => return Err(GitError::io(path)(error)),
        };
        let mut seen = Vec::new();
        if found.is_symlink() {
            let target = fs::read_link(path).map_err(GitError::io(path))?;
            seen.extend_from_slice(b"link ");
            seen.extend_from_slice(target.as_os_str().as_bytes());
            seen.push(0);
        }
        if found.is_dir() {
            seen.extend_from_slice(b"folder");
        } else {
            // Git runs a hook only where it is executable, so that counts.
            seen.extend_from_slice(format!("{:o} ", found.mode() & 0o111).as_bytes());
            match beneath::read_regular(path) {
                Ok(bytes) => seen.extend_from_slice(&bytes),
                Err(error) => seen.extend_from_slice(error.kind().to_string().as_bytes()),
            }
        }
        self.files.insert(name, Sha256Hash::of(&seen).hex());
        Ok(())
    }

    fn add_keys(&mut self, path: &Path, name: &str) {
        let mut values: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for entry in config_text::entries(&beneath::read_regular(path).unwrap_or_default()) {
            let value = values.entry(entry.key).or_default();
            value.extend_from_slice(entry.value.as_bytes());
            value.push(0);
        }
        let digest = |(key, value): (String, Vec<u8>)| (format!("{name} {key}"), Sha256Hash::of(&value).hex());
        self.keys.extend(values.into_iter().map(digest));
    }
}

/// What changed between two prints, in words; what git may run, or be led elsewhere by, ends with `(runs code)`.
pub fn tampering(before: &GuardPrint, after: &GuardPrint) -> Vec<String> {
    let text = |change: Change| change.what + if change.is_dangerous { " (runs code)" } else { "" };
    changes(before, after).into_iter().map(text).collect()
}

/// What changed between two prints. A configuration is named key by key where that tells the difference.
pub fn changes(before: &GuardPrint, after: &GuardPrint) -> Vec<Change> {
    let mut changes = Vec::new();
    let keys = differences(&before.keys, &after.keys);
    for (file, how) in differences(&before.files, &after.files) {
        let of_file = keys.iter().filter_map(|(key, how)| Some((key.strip_prefix(file)?.strip_prefix(' ')?, how)));
        let named: Vec<_> = of_file
            .map(|(key, how)| Change {
                what: format!("{file}: {key} {how}"),
                is_dangerous: config_text::is_dangerous(key),
            })
            .collect();
        if named.is_empty() {
            // A comment or the order in a configuration; anything else that is looked at can run code or lead elsewhere.
            let is_dangerous = !file.contains("config") && !file.ends_with("info/exclude");
            changes.push(Change { what: format!("{file} {how}"), is_dangerous });
        }
        changes.extend(named);
    }
    changes
}

/// The keys that are new, gone or have another value, and which of these.
fn differences<'m>(
    before: &'m BTreeMap<String, String>,
    after: &'m BTreeMap<String, String>,
) -> Vec<(&'m str, &'static str)> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.as_str(), "was removed"));
    let come = after.iter().filter_map(|(key, value)| match before.get(key) {
        None => Some((key.as_str(), "was added")),
        Some(old) if old != value => Some((key.as_str(), "was changed")),
        Some(_) => None,
    });
    gone.chain(come).collect()
}

/// The names in a folder, sorted; none where there is no folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if beneath::is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(GitError::io(folder)(error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| paths::text(entry.file_name().as_bytes()));
    let mut names = entries.map(name).collect::<io::Result<Vec<_>>>().map_err(GitError::io(folder))?;
    names.sort();
    Ok(names)
}
