//! Keeps what a step made (R-S7, F86, F87): finds the files that its globs name in the working copy and copies them into
//! the run's folder with their hashes. Everything that is not kept comes back with its reason; nothing is recorded here.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::FileType;

use super::ArtifactError;
use super::atomic::{self, IfExists, Pending};
use super::beneath::{FileId, Looked, Root, Seen, SkipReason};
use super::digest::{self, Digested, Side};
use super::home::{Home, make_private};
use super::run_dir::RunDir;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::record::{ArtifactRecord, ArtifactType};
use crate::domain::task::ArtifactSpec;

/// Larger files are not kept. A file of this size is copied in seconds; a sparse one of a terabyte would take hours.
pub const MAX_BYTES: u64 = 512 << 20;
/// More files are not kept: a glob that names so many was not meant to.
pub const MAX_FILES: usize = 10_000;
/// Folders within folders; deeper ones are not walked.
pub const MAX_DEPTH: usize = 64;

/// What is to be kept, and where.
#[derive(Debug, Clone, Copy)]
pub struct Collection<'a> {
    /// The working copy.
    pub workspace: &'a Path,
    /// The state folder, whose files are never read whatever path leads to them (T2).
    pub home: &'a Home,
    /// The run's folder.
    pub run_dir: &'a RunDir,
    /// The step.
    pub step: &'a StepKey,
    /// The attempt.
    pub attempt: u32,
    /// What the task asks to keep.
    pub wanted: &'a [ArtifactSpec],
    /// What the run has kept so far: recorded files are never replaced.
    pub recorded: &'a [ArtifactRecord],
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// Kept; to be recorded.
    pub kept: Vec<ArtifactRecord>,
    /// Not kept, and why.
    pub skipped: Vec<Skipped>,
    /// Globs without any kept file that are not optional.
    pub missing: Vec<String>,
}

/// A file that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// In the working copy; bytes that are no UTF-8 are shown as U+FFFD.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

impl Collected {
    /// The step's failure, when something that was asked for is not there.
    pub fn failure(&self) -> Option<Failure> {
        let glob = self.missing.first()?;
        let why = match self.skipped.first() {
            Some(Skipped { path, reason }) => format!(" ({path} was skipped: {reason})"),
            None => String::new(),
        };
        Some(Failure::new(Code::ArtifactMissing, format!("no file matches the artifact {glob}{why}")))
    }
}

/// Keeps what `wanted` names. Fails as a whole only for what makes all of it pointless: a glob that leads out of the
/// working copy, a full disk, a kernel that cannot do it safely.
pub fn collect(collection: &Collection<'_>) -> Result<Collected, ArtifactError> {
    collect_up_to(collection, MAX_FILES)
}

fn collect_up_to(collection: &Collection<'_>, max_files: usize) -> Result<Collected, ArtifactError> {
    let wanted = collection.wanted.iter().map(Wanted::read).collect::<Result<Vec<_>, _>>()?;
    if wanted.is_empty() {
        return Ok(Collected::default());
    }
    let mut collector = Collector {
        root: Root::open(collection.workspace)?,
        state: collection.home.identities()?,
        nth: free_nth(collection),
        collection,
        max_files,
        folders: BTreeSet::new(),
        visited: BTreeSet::new(),
        mentioned: BTreeSet::new(),
        out: Collected::default(),
    };
    for wanted in &wanted {
        let before = collector.out.kept.len();
        let already = collector.visited.iter().any(|path| wanted.covers(path));
        collector.keep_all(wanted)?;
        if collector.out.kept.len() == before && !already && !wanted.optional {
            collector.out.missing.push(wanted.text.clone());
        }
    }
    collector.sync_folders()?;
    Ok(collector.out)
}

/// One glob, taken apart: the folder without wildcards that it begins with, and the whole as a matcher.
struct Wanted {
    text: String,
    fixed: String,
    matcher: Option<GlobMatcher>,
    optional: bool,
}

impl Wanted {
    fn read(spec: &ArtifactSpec) -> Result<Self, ArtifactError> {
        let text = spec.glob.trim_end_matches('/').trim_start_matches("./").to_owned();
        let escapes = text.is_empty() || text.starts_with('/') || text.split('/').any(|part| part == "..");
        if escapes || text.contains(['\0', '\\']) {
            return Err(ArtifactError::Escapes { path: spec.glob.clone() });
        }
        let wild = |part: &&str| part.contains(['*', '?', '[', '{']);
        let parts: Vec<_> = text.split('/').collect();
        let fixed = parts.iter().copied().take_while(|part| !wild(part)).collect::<Vec<_>>();
        let matcher = if fixed.len() == parts.len() { None } else { Some(matcher(&text)?) };
        Ok(Self { fixed: fixed.join("/"), matcher, optional: spec.optional, text })
    }

    /// Without a wildcard it names one file, or a folder with everything in it.
    fn covers(&self, path: &str) -> bool {
        match &self.matcher {
            Some(matcher) => matcher.is_match(path),
            None => path.strip_prefix(&self.fixed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

fn matcher(glob: &str) -> Result<GlobMatcher, ArtifactError> {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    let glob = built.map_err(|e| ArtifactError::Glob { glob: glob.to_owned(), why: e.kind().to_string() })?;
    Ok(glob.compile_matcher())
}

/// The first folder of the step in which nothing is recorded. What an unrecorded crash left there may be replaced.
fn free_nth(collection: &Collection<'_>) -> u32 {
    let taken = |nth: &u32| {
        let folder = RunDir::artifact_name(collection.step, *nth, "");
        collection.recorded.iter().any(|record| record.path.starts_with(&folder))
    };
    (1..u32::MAX).find(|nth| !taken(nth)).unwrap_or(u32::MAX)
}

struct Collector<'a> {
    collection: &'a Collection<'a>,
    root: Root,
    state: Vec<FileId>,
    nth: u32,
    max_files: usize,
    /// Folders that were written to.
    folders: BTreeSet<PathBuf>,
    /// Files that were kept, by their path in the working copy.
    visited: BTreeSet<String>,
    /// Files that were skipped, so that two globs do not name one twice.
    mentioned: BTreeSet<String>,
    out: Collected,
}

impl Collector<'_> {
    fn keep_all(&mut self, wanted: &Wanted) -> Result<(), ArtifactError> {
        if let Some((path, reason)) = self.barrier(&wanted.fixed)? {
            self.skip(&path, reason);
            return Ok(());
        }
        let mut folders = vec![(wanted.fixed.clone(), 0)];
        while let Some((path, depth)) = folders.pop() {
            if self.out.kept.len() >= self.max_files {
                self.skip(&wanted.text, SkipReason::TooMany);
                return Ok(());
            }
            let start = if path.is_empty() { "." } else { &path };
            let seen = match self.root.see(Path::new(start))? {
                Looked::Absent => continue,
                Looked::Skip(reason) => {
                    self.skip(&path, reason);
                    continue;
                }
                Looked::At(seen) => seen,
            };
            if seen.kind() != FileType::Directory {
                if wanted.covers(&path) {
                    self.keep(&path, &seen)?;
                }
            } else if self.state.contains(&seen.id()) {
                self.skip(&path, SkipReason::State);
            } else if depth > MAX_DEPTH {
                self.skip(&path, SkipReason::TooDeep);
            } else {
                self.list(&path, &seen, wanted, |child| folders.push((child, depth + 1)))?;
            }
        }
        Ok(())
    }

    /// Whether a glob begins inside a folder that a walk would not have entered.
    fn barrier(&self, fixed: &str) -> Result<Option<(String, SkipReason)>, ArtifactError> {
        let ends = fixed.match_indices('/').map(|(i, _)| i).chain([fixed.len()]);
        for prefix in ends.map(|end| &fixed[..end]).filter(|prefix| !prefix.is_empty()) {
            if is_git(prefix.rsplit('/').next().unwrap_or_default().as_bytes()) {
                return Ok(Some((prefix.to_owned(), SkipReason::Git)));
            }
            match self.root.see(Path::new(prefix))? {
                Looked::At(seen) if self.state.contains(&seen.id()) => {
                    return Ok(Some((prefix.to_owned(), SkipReason::State)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Entries are pushed in reverse order of their names, so that a stack takes them in order. What is no folder and is
    /// not wanted is not looked at.
    fn list(
        &mut self,
        path: &str,
        seen: &Seen,
        wanted: &Wanted,
        mut push: impl FnMut(String),
    ) -> Result<(), ArtifactError> {
        let Ok(mut dir) = seen.list() else {
            self.skip(path, SkipReason::Unreadable);
            return Ok(());
        };
        let mut entries = Vec::new();
        while let Some(entry) = dir.read() {
            let entry = entry.map_err(|e| ArtifactError::io(path, e))?;
            let name = entry.file_name().to_bytes();
            if !is_git(name) && !matches!(name, b"." | b"..") {
                let may_be_folder = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
                entries.push((name.to_vec(), may_be_folder));
            }
        }
        entries.sort_unstable_by(|a, b| b.cmp(a));
        for (name, may_be_folder) in entries {
            let name = String::from_utf8(name).map_err(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
            let plain = name.as_ref().is_ok_and(|n| !n.chars().any(char::is_control));
            let name = name.unwrap_or_else(|lossy| lossy);
            let child = if path.is_empty() { name } else { format!("{path}/{name}") };
            match (plain, may_be_folder || wanted.covers(&child)) {
                (true, true) => push(child),
                (false, true) => self.skip(&child, SkipReason::OddName),
                (_, false) => {}
            }
        }
        Ok(())
    }

    fn keep(&mut self, path: &str, seen: &Seen) -> Result<(), ArtifactError> {
        if self.visited.contains(path) {
            return Ok(());
        }
        let too_large = (seen.size() > MAX_BYTES).then_some(SkipReason::TooLarge);
        if let Some(reason) = seen.unfit().or(too_large) {
            self.skip(path, reason);
            return Ok(());
        }
        let name = RunDir::artifact_name(self.collection.step, self.nth, path);
        match self.copy(&name, seen)? {
            Err(reason) => self.skip(path, reason),
            Ok(Digested { sha256, size }) => {
                self.visited.insert(path.to_owned());
                let step = Some(self.collection.step.clone());
                let attempt = self.collection.attempt;
                self.out.kept.push(ArtifactRecord {
                    kind: ArtifactType::File,
                    path: name,
                    sha256,
                    size,
                    step,
                    attempt,
                });
            }
        }
        Ok(())
    }

    fn copy(&mut self, name: &str, seen: &Seen) -> Result<Result<Digested, SkipReason>, ArtifactError> {
        let Ok(mut source) = seen.read() else { return Ok(Err(SkipReason::Unreadable)) };
        let target = self.collection.run_dir.path().join(name);
        self.prepare_folder(&target)?;
        let mut pending = Pending::create(&target)?;
        let digested = match digest::copy(&mut source, &mut pending, MAX_BYTES + 1) {
            Ok(digested) => digested,
            Err((_, Side::Source)) => return Ok(Err(SkipReason::Unreadable)),
            Err((e, Side::Target)) => return Err(ArtifactError::io(&target, e)),
        };
        if !unchanged(&source, seen, digested.size).map_err(|e| ArtifactError::io(&target, e))? {
            return Ok(Err(SkipReason::Changed));
        }
        // Nothing recorded stands in this folder (`free_nth`), so whatever is there is litter of a crash.
        pending.commit_unsynced(IfExists::Replace)?;
        Ok(Ok(digested))
    }

    fn prepare_folder(&mut self, target: &Path) -> Result<(), ArtifactError> {
        let Some(folder) = target.parent().filter(|folder| !self.folders.contains(*folder)) else { return Ok(()) };
        make_private(folder)?;
        // The entries of the folders above are new as well, up to the run's own.
        let above = folder.ancestors().take_while(|f| f.starts_with(self.collection.run_dir.path()));
        self.folders.extend(above.map(Path::to_owned));
        Ok(())
    }

    fn sync_folders(&self) -> Result<(), ArtifactError> {
        let sync = |folder: &PathBuf| atomic::sync_folder(folder).map_err(|e| ArtifactError::io(folder, e));
        self.folders.iter().try_for_each(sync)
    }

    fn skip(&mut self, path: &str, reason: SkipReason) {
        if self.out.skipped.len() < self.max_files && self.mentioned.insert(path.to_owned()) {
            self.out.skipped.push(Skipped { path: path.to_owned(), reason });
        }
    }
}

/// A repository inside the working copy is git's; file systems that fold case fold this name too.
fn is_git(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// True when the file is still what it was when it was looked at, and was read whole.
fn unchanged(file: &std::fs::File, seen: &Seen, read: u64) -> io::Result<bool> {
    let now = rustix::fs::fstat(file)?;
    let same_time = now.st_mtime == seen.stat.st_mtime && now.st_mtime_nsec == seen.stat.st_mtime_nsec;
    Ok(same_time && now.st_size == seen.stat.st_size && read == seen.size())
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
