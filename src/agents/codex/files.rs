//! The session files of one conversation: the main one, and those of the sub-agents that it started, whose spending is
//! in no other count. Finds them, follows them, and tells what is new as one [`Story`].
//!
//! The file is searched by the thread's id, never computed from a date: a conversation that is continued stays in the
//! folder of the day it began.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::super::tail::Tail;
use super::log::{Age, Log, Records, Role, Story};
use super::record::{self, Fact};
use crate::domain::budget::Estimate;

/// The files of a conversation.
#[derive(Debug)]
pub(crate) struct Files {
    sessions: PathBuf,
    since: Option<i64>,
    sizes_before: HashMap<PathBuf, u64>,
    thread: Option<String>,
    family: Option<String>,
    followed: Vec<Followed>,
    foreign: HashSet<PathBuf>,
    /// What they tell.
    pub story: Story,
}

#[derive(Debug)]
struct Followed {
    tail: Tail,
    log: Log,
    role: Role,
    old_bytes: u64,
}

impl Files {
    /// None yet. Records before `since` (milliseconds) belong to earlier executions.
    pub(crate) fn new(home: &Path, since: Option<i64>) -> Self {
        Self {
            sessions: home.join("sessions"),
            since,
            sizes_before: HashMap::new(),
            thread: None,
            family: None,
            followed: Vec::new(),
            foreign: HashSet::new(),
            story: Story::default(),
        }
    }

    /// Everything that stands in any file by now belongs to earlier executions.
    pub(crate) fn forget_the_past(&mut self) {
        let files = self.days(None).into_iter().flat_map(|day| files_in(&day));
        let sizes = files.filter_map(|path| Some((path.clone(), path.metadata().ok()?.len())));
        self.sizes_before = sizes.collect();
    }

    /// Follows this conversation.
    pub(crate) fn follow(&mut self, thread: &str) {
        self.thread = Some(thread.to_owned());
    }

    /// True once the main file is there.
    pub(crate) fn found(&self) -> bool {
        !self.followed.is_empty()
    }

    /// The main file's folder.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.followed.first()?.tail.path().parent().map(Path::to_owned)
    }

    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.followed.iter().map(|f| f.tail.read_to()).sum()
    }

    /// The calls that were under way where the records end, those of sub-agents too.
    pub(crate) fn cut_calls(&self, records: Records) -> Option<Estimate> {
        self.followed.iter().filter_map(|f| f.log.cut_call(records)).reduce(|all, one| all.plus(&one))
    }

    /// Reads what is new into the story.
    pub(crate) fn poll(&mut self) -> io::Result<()> {
        if self.followed.is_empty() {
            let Some(main) = self.main_file() else { return Ok(()) };
            self.add(main, Role::Main);
        }
        self.read()?;
        if self.find_sub_agents() { self.read() } else { Ok(()) }
    }

    fn main_file(&self) -> Option<PathBuf> {
        let end = format!("-{}.jsonl", self.thread.as_ref()?);
        let is_it = |path: &PathBuf| name(path).ends_with(&end);
        self.days(None).into_iter().find_map(|day| files_in(&day).find(is_it))
    }

    fn add(&mut self, path: PathBuf, role: Role) {
        let old_bytes = self.sizes_before.get(&path).copied().unwrap_or(0);
        self.followed.push(Followed { tail: Tail::new(path), log: Log::new(role), role, old_bytes });
    }

    fn read(&mut self) -> io::Result<()> {
        let Self { followed, story, family, since, .. } = self;
        for Followed { tail, log, role, old_bytes } in followed {
            tail.poll(|place, line| {
                log.grow(line.len() as u64);
                let Some(record) = record::read(line) else { return };
                if let (Fact::Meta { session, .. }, Role::Main) = (&record.fact, *role) {
                    family.get_or_insert_with(|| session.clone());
                }
                let before = record.at.zip(*since).is_some_and(|(at, since)| at < since);
                let age = if place < *old_bytes || before { Age::Old } else { Age::New };
                log.take(record, age, story);
            })?;
        }
        Ok(())
    }

    /// Adds files of the same family that came after the main one. True when there was one.
    fn find_sub_agents(&mut self) -> bool {
        let (Some(main), Some(family)) = (self.followed.first(), self.family.clone()) else { return false };
        let (main_day, main_name) = (main.tail.path().parent().map(Path::to_owned), name(main.tail.path()));
        let known: HashSet<&Path> = self.followed.iter().map(|f| f.tail.path()).collect();
        let days = self.days(main_day.as_deref()).into_iter();
        // Names begin with the time, so earlier files cannot be children.
        let later = days.flat_map(|day| files_in(&day)).filter(|path| name(path) > main_name);
        let fresh = later.filter(|path| !known.contains(path.as_path()) && !self.foreign.contains(path));
        let mut children = Vec::new();
        let mut foreign = Vec::new();
        for path in fresh {
            match meta(&path) {
                Some(Fact::Meta { session, .. }) if session == family => children.push(path),
                Some(_) => foreign.push(path),
                // The first line is not whole yet.
                None => {}
            }
        }
        self.foreign.extend(foreign);
        let any = !children.is_empty();
        for path in children {
            self.add(path, Role::Sub);
        }
        any
    }

    /// The conversation that `codex exec` began in this folder between two times, when exactly one did.
    pub(crate) fn begun_in(&self, folder: &Path, from: i64, to: i64) -> Option<String> {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let fits = |path: PathBuf| match first_record(&path)? {
            record::Record { at: Some(at), fact: Fact::Meta { thread, folder: cwd, by_exec: true, .. } }
                if (from..=to).contains(&at) && [folder, &real].contains(&Path::new(&cwd)) =>
            {
                Some(thread)
            }
            _ => None,
        };
        let mut threads = self.days(None).into_iter().flat_map(|day| files_in(&day)).filter_map(fits);
        threads.next().filter(|_| threads.next().is_none())
    }

    /// `sessions/YYYY/MM/DD`, the latest first, none before `from`. Years and months that are over are not opened: a user's
    /// home can hold thousands of files.
    fn days(&self, from: Option<&Path>) -> Vec<PathBuf> {
        let level = |dirs: Vec<PathBuf>, depth: usize| -> Vec<PathBuf> {
            let first = from.and_then(|day| day.ancestors().nth(2 - depth));
            let below = dirs.iter().flat_map(|dir| entries(dir));
            below.filter(|dir| first.is_none_or(|first| dir.as_path() >= first) && dir.is_dir()).collect()
        };
        let mut days = (0..3).fold(vec![self.sessions.clone()], level);
        days.sort_unstable_by(|a, b| b.cmp(a));
        days
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

fn files_in(day: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let is_json_lines = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
    entries(day).filter(move |path| name(path).starts_with("rollout-") && is_json_lines(path))
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn meta(path: &Path) -> Option<Fact> {
    first_record(path).map(|record| record.fact)
}

/// The first line, when it is whole.
fn first_record(path: &Path) -> Option<record::Record> {
    let mut line = Vec::new();
    BufReader::new(File::open(path).ok()?).take(4 << 20).read_until(b'\n', &mut line).ok()?;
    line.ends_with(b"\n").then(|| record::read(&line))?
}
