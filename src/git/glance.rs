//! A glance at a working copy: which paths can differ from the index at all. It asks for the state of files with a thread
//! per processor, as `git status` does and libgit2 does not; what it cannot be sure of it names, and libgit2 then looks at
//! those paths alone. So it only ever saves time: a difference is found, and told, by libgit2.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use git2::{Index, IndexEntry};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawMode, Stat};

/// With more suspects than this, libgit2 looks at everything.
const MANY: usize = 1_000;

/// Below this many files threads cost more than they save.
const FEW: usize = 2_000;

/// The modification time of a file, in seconds and nanoseconds.
type Moment = (i64, i64);

/// When the index file was last written; to be asked before the index is read, so that it is never too late.
pub(super) fn written_at(index: &Path) -> Option<Moment> {
    fs::stat(index).ok().map(|stat| modified(&stat))
}

/// The paths that may differ from the index, or that it does not know. `None` when libgit2 should look at everything.
pub(super) fn suspects(root: &Path, index: &Index, written_at: Moment) -> Option<Vec<Vec<u8>>> {
    let entries: Vec<IndexEntry> = index.iter().collect();
    let folders = Folder::all(&entries)?;
    let look =
        Look { root, written_at, folders: &folders, next: AtomicUsize::new(0), found: Mutex::new(Some(Vec::new())) };
    let threads = if entries.len() < FEW { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| look.work());
        }
        look.work();
    });
    let found = look.found.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    (found.len() <= MANY).then_some(found)
}

/// A folder as the index has it.
struct Folder<'e> {
    path: &'e [u8],
    files: HashMap<&'e [u8], &'e IndexEntry>,
    folders: HashSet<&'e [u8]>,
}

impl<'e> Folder<'e> {
    /// Every folder of the index. `None` where an entry is of an unusual kind: in conflict, or another repository.
    fn all(entries: &'e [IndexEntry]) -> Option<Vec<Self>> {
        /// The bits of an entry's flags that say which side of a conflict it is.
        const STAGE: u16 = 0x3000;
        const COMMIT: u32 = 0o160_000;
        let mut folders: HashMap<&[u8], Self> = HashMap::new();
        Self::known(&mut folders, b"");
        for entry in entries {
            if entry.flags & STAGE != 0 || entry.mode == COMMIT {
                return None;
            }
            let (path, name) = split(&entry.path);
            Self::known(&mut folders, path).files.insert(name, entry);
        }
        Some(folders.into_values().collect())
    }

    /// The folder of that path, which is entered with all those above it.
    fn known<'m>(folders: &'m mut HashMap<&'e [u8], Self>, path: &'e [u8]) -> &'m mut Self {
        if !path.is_empty() && !folders.contains_key(path) {
            let (parent, name) = split(path);
            Self::known(folders, parent).folders.insert(name);
        }
        folders.entry(path).or_insert_with(|| Self { path, files: HashMap::new(), folders: HashSet::new() })
    }
}

/// The folder of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(end) => (&path[..end], &path[end + 1..]),
        None => (b"", path),
    }
}

/// Work that several threads share.
struct Look<'l> {
    root: &'l Path,
    written_at: Moment,
    folders: &'l [Folder<'l>],
    next: AtomicUsize,
    /// `None` once something unusual was met.
    found: Mutex<Option<Vec<Vec<u8>>>>,
}

impl Look<'_> {
    fn work(&self) {
        let mut suspects = Some(Vec::new());
        while let (Some(folder), Some(found)) =
            (self.folders.get(self.next.fetch_add(1, Ordering::Relaxed)), &mut suspects)
        {
            if self.folder(folder, found).is_none() {
                suspects = None;
            }
        }
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *all = all.take().zip(suspects).map(|(mut all, suspects)| {
            all.extend(suspects);
            all
        });
    }

    /// Looks at one folder. `None` when something is unusual, or there are many suspects.
    fn folder(&self, folder: &Folder<'_>, suspects: &mut Vec<Vec<u8>>) -> Option<()> {
        let at = self.root.join(OsStr::from_bytes(folder.path));
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let open = fs::open(&at, flags, Mode::empty()).ok()?;
        let mut seen = 0;
        for found in fs::Dir::read_from(&open).ok()? {
            let found = found.ok()?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") || (name == b".git" && folder.path.is_empty()) {
                continue;
            }
            if let Some(entry) = folder.files.get(name) {
                seen += 1;
                let stat = fs::statat(&open, found.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
                if !self.is_as_recorded(entry, &stat) {
                    suspects.push(entry.path.clone());
                }
            } else if name == b".git" || folder.folders.contains(name) && found.file_type() != FileType::Directory {
                return None;
            } else if !folder.folders.contains(name) {
                suspects.push(join(folder.path, name));
            }
        }
        if seen < folder.files.len() {
            let is_gone = |name: &&[u8]| fs::statat(&open, *name, AtFlags::SYMLINK_NOFOLLOW).is_err();
            let gone = folder.files.iter().filter(|(name, _)| is_gone(name));
            suspects.extend(gone.map(|(_, entry)| entry.path.clone()));
        }
        (suspects.len() <= MANY).then_some(())
    }

    /// True when everything that git remembers of a file is as it was, and it was remembered after its last change.
    fn is_as_recorded(&self, entry: &IndexEntry, stat: &Stat) -> bool {
        let of = |time: &git2::IndexTime| (i64::from(time.seconds()), i64::from(time.nanoseconds()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "git keeps the lower 32 bits")]
        let same_file = (entry.ino, entry.file_size) == (stat.st_ino as u32, stat.st_size as u32);
        same_file
            && of(&entry.mtime) == modified(stat)
            && of(&entry.ctime) == (signed(stat.st_ctime), signed(stat.st_ctime_nsec))
            && (entry.uid, entry.gid) == (stat.st_uid, stat.st_gid)
            && entry.mode == mode_of(stat.st_mode)
            && modified(stat) < self.written_at
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn modified(stat: &Stat) -> Moment {
    (signed(stat.st_mtime), signed(stat.st_mtime_nsec))
}

/// The kernel's types for times differ from machine to machine.
fn signed(time: impl TryInto<i64>) -> i64 {
    time.try_into().unwrap_or(i64::MAX)
}

/// Git's mode of a file.
fn mode_of(mode: RawMode) -> u32 {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile if mode & 0o100 != 0 => 0o100_755,
        FileType::RegularFile => 0o100_644,
        FileType::Symlink => 0o120_000,
        _ => 0,
    }
}
