//! The state folder: where it lies, whose it is, who may look (contract §2, F98). What stands in it is written by others.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fchmod, fstat, open};
use rustix::io::Errno;

use super::ArtifactError;
use super::atomic::{self, IfExists};
use super::beneath::{FileId, Root};
use super::run_dir::RunDir;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::RunId;

/// The folder's name in a repository.
pub const HOME_NAME: &str = ".ai-runs";

/// Bytes set aside so that the last record can be written when the disk is full (T4).
pub const RESERVE_BYTES: u64 = 256 << 10;

const GITIGNORE: &str = "# State of agentrun: nothing here is for git, this file included.\n*\n";

const README: &str = "\
# The state of agentrun

Everything that agentrun knows about its runs in this repository. It is safe to read, but not to change.

- `state/` holds the database. Do not open, copy or archive the files in it while agentrun runs: use `agentrun` itself.
- `run_<task>_<number>/` holds one run: its report, its logs, what it kept.
- `work/` holds the working copies of runs that are not finished.

`agentrun status` says what is going on, `agentrun gc` deletes what is old.
";

/// An opened state folder: it exists, it is ours, and nobody else can write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// Opens the state folder, making it where there is none.
    pub fn open_or_create(path: &Path) -> Result<Self, ArtifactError> {
        close_fresh_clone(path);
        make_private(path)?;
        let home = Self { root: path.to_owned() };
        make_private(&home.state_dir())?;
        for (name, text) in [(".gitignore", GITIGNORE), ("README.md", README)] {
            let file = path.join(name);
            if file.symlink_metadata().is_err() {
                atomic::write(&file, text.as_bytes(), IfExists::Replace)?;
            }
        }
        Ok(home)
    }

    /// Opens a state folder that is there.
    pub fn open(path: &Path) -> Result<Self, ArtifactError> {
        close_fresh_clone(path);
        match secure(path) {
            Err(ArtifactError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(ArtifactError::NoHome(path.to_owned()))
            }
            Err(e) => Err(e),
            Ok(()) => Ok(Self { root: path.to_owned() }),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the database; no code but SQLite opens what is in it.
    pub fn state_dir(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.state_dir().join("agentrun.db")
    }

    /// The folder of a run, which need not exist yet. One that is a link is refused.
    pub fn run_dir(&self, run: &RunId) -> Result<RunDir, ArtifactError> {
        let path = self.root.join(plain_name(run.as_str())?);
        match path.symlink_metadata() {
            Ok(found) if !found.is_dir() => Err(insecure(&path, "is not a folder")),
            _ => Ok(RunDir::at(path)),
        }
    }

    /// The folder of a run, made where there is none.
    pub fn create_run_dir(&self, run: &RunId) -> Result<RunDir, ArtifactError> {
        let dir = self.run_dir(run)?;
        make_private(dir.path())?;
        Ok(dir)
    }

    /// The isolated working copy of a run. It is made by git, so nothing is checked here.
    pub fn work_dir(&self, run: &RunId) -> Result<PathBuf, ArtifactError> {
        Ok(self.root.join("work").join(plain_name(run.as_str())?))
    }

    /// The folder of all isolated working copies.
    pub fn work_root(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Deletes the folder of a run that retention gave up.
    pub fn remove_run_dir(&self, run: &RunId) -> Result<(), ArtifactError> {
        let dir = self.run_dir(run)?;
        match fs_err::remove_dir_all(dir.path()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(ArtifactError::io(dir.path(), e)),
            _ => Ok(()),
        }
    }

    /// A home of its own for an agent that must not use the user's (`home: private`); made where there is none.
    pub fn private_home(&self, name: &str) -> Result<PathBuf, ArtifactError> {
        let homes = self.root.join("homes");
        make_private(&homes)?;
        let path = homes.join(plain_name(name)?);
        make_private(&path)?;
        Ok(path)
    }

    /// Names of all run folders, for the floor of the next run number (R-M2). Sorted.
    pub fn run_names(&self) -> Result<Vec<String>, ArtifactError> {
        let mut names = Vec::new();
        for entry in fs_err::read_dir(&self.root).map_err(|e| ArtifactError::io(&self.root, e))? {
            let entry = entry.map_err(|e| ArtifactError::io(&self.root, e))?;
            names.extend(entry.file_name().to_str().filter(|n| n.starts_with("run_")).map(ToOwned::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// What the state folder and its database's folder are on disk, whatever path leads to them (T2).
    pub fn identities(&self) -> Result<Vec<FileId>, ArtifactError> {
        [self.root.clone(), self.state_dir()]
            .iter()
            .filter(|path| path.exists())
            .map(|path| Root::open(path).and_then(|root| root.id(path)))
            .collect()
    }

    /// Sets room aside, once.
    pub fn create_reserve(&self) -> Result<(), ArtifactError> {
        let path = self.reserve();
        if path.metadata().is_ok_and(|m| m.len() >= RESERVE_BYTES) {
            return Ok(());
        }
        // Hashes, because a file of zeros takes no room where the file system compresses.
        let hash = |n: u64| Sha256Hash::of(&n.to_be_bytes()).0;
        let bytes: Vec<u8> = (0..RESERVE_BYTES / 32).flat_map(hash).collect();
        atomic::write(&path, &bytes, IfExists::Replace)
    }

    /// Gives the room back: now the last record fits. True when there was some.
    pub fn release_reserve(&self) -> Result<bool, ArtifactError> {
        let path = self.reserve();
        match fs_err::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(ArtifactError::io(path, e)),
        }
    }

    fn reserve(&self) -> PathBuf {
        self.state_dir().join("reserve")
    }
}

/// Makes a folder that only its owner can enter, with its parents, or checks and tightens the one that is there.
pub fn make_private(path: &Path) -> Result<(), ArtifactError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    match builder.create(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            builder.recursive(true).create(path).map_err(|e| ArtifactError::io(path, e))?;
        }
        Err(e) => return Err(ArtifactError::io(path, e)),
    }
    secure(path)
}

/// Ours, no link, not writable by others; readable by others is tightened. Checked on the opened folder, so that nothing
/// can be swapped in between.
fn secure(path: &Path) -> Result<(), ArtifactError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(insecure(path, "is a symbolic link or not a folder")),
        Err(e) => return Err(ArtifactError::io(path, e)),
    };
    let stat = fstat(&fd).map_err(|e| ArtifactError::io(path, e))?;
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me {
        return Err(insecure(path, &format!("belongs to user {}, not to user {me}", stat.st_uid)));
    }
    match stat.st_mode & 0o777 {
        mode if mode & 0o022 != 0 => Err(insecure(path, &format!("can be written by others (mode {mode:03o})"))),
        0o700 => Ok(()),
        _ => match fchmod(&fd, Mode::RWXU) {
            // A read-only file system cannot be tightened, and nothing new can be written to it either.
            Ok(()) | Err(Errno::ROFS) => Ok(()),
            Err(e) => Err(ArtifactError::io(path, e)),
        },
    }
}

/// A repository may keep the two texts of this folder in git. Cloned under the umask 002 of many systems they lie in a
/// folder that the owner's group can write to. Nothing of agentrun's is in it yet that somebody could have put there, so it
/// is closed instead of refused; whatever goes wrong here, [`secure`] finds and says.
fn close_fresh_clone(path: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(fd) = open(path, flags, Mode::empty()) else { return };
    let Ok(stat) = fstat(&fd) else { return };
    let mode = stat.st_mode & 0o777;
    let for_the_group = mode & 0o022 == 0o020 && stat.st_uid == rustix::process::geteuid().as_raw();
    let is_fresh = || {
        let Ok(entries) = rustix::fs::Dir::read_from(&fd) else { return false };
        let names = entries.filter_map(Result::ok).map(|e| e.file_name().to_owned());
        let mut names = names.filter(|name| !matches!(name.to_bytes(), b"." | b".."));
        let mut marked = false;
        names.all(|name| {
            marked |= name.to_bytes() == b".gitignore";
            matches!(name.to_bytes(), b".gitignore" | b"README.md")
        }) && marked
    };
    // Looked at again once it is closed: what was put in meanwhile stays a reason to refuse.
    if for_the_group && is_fresh() && fchmod(&fd, Mode::RWXU).is_ok() && !is_fresh() {
        let _ = fchmod(&fd, Mode::from_raw_mode(mode));
    }
}

/// One name and nothing more: ids come from people too (`show RUN`).
fn plain_name(name: &str) -> Result<&str, ArtifactError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(allowed) && !name.contains("..") {
        Ok(name)
    } else {
        Err(ArtifactError::Escapes { path: name.to_owned() })
    }
}

fn insecure(path: &Path, why: &str) -> ArtifactError {
    ArtifactError::Insecure { path: path.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::Code;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn run(text: &str) -> RunId {
        RunId::recorded(text)
    }

    #[test]
    fn f98_everything_made_is_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/.ai-runs");
        let home = Home::open_or_create(&path).unwrap();
        let run_dir = home.create_run_dir(&run("run_1_001")).unwrap();
        home.private_home("codex").unwrap();
        home.create_reserve().unwrap();
        atomic::write(&run_dir.file("report.md"), b"x", IfExists::Replace).unwrap();
        let folders = ["", "state", "run_1_001", "homes", "homes/codex"];
        let files = [".gitignore", "README.md", "state/reserve", "run_1_001/report.md"];
        assert!(folders.iter().all(|f| mode(&path.join(f)) == 0o700));
        assert!(files.iter().all(|f| mode(&path.join(f)) == 0o600));
        assert_eq!(Home::open(&path).unwrap(), home);
        assert_eq!(home.run_names().unwrap(), ["run_1_001"]);
    }

    #[test]
    fn f98_a_readable_folder_is_tightened_and_a_writable_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".ai-runs");
        std::fs::create_dir(&path).unwrap();
        for (before, refused) in [(0o755, false), (0o750, false), (0o777, true), (0o770, true), (0o702, true)] {
            set_mode(&path, before);
            for opened in [Home::open_or_create(&path), Home::open(&path)] {
                match opened {
                    Err(e) => assert!(refused && e.code() == Code::InsecureHome, "{before:o} {e}"),
                    Ok(_) => assert!(!refused, "{before:o}"),
                }
            }
            assert_eq!(mode(&path), if refused { before } else { 0o700 });
        }
    }

    #[test]
    fn f98_a_foreign_folder_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".ai-runs");
        std::fs::create_dir(&path).unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            eprintln!("SKIPPED f98_a_foreign_folder_is_refused: needs root");
            return;
        }
        let error = Home::open_or_create(&path).unwrap_err();
        assert_eq!(error.code(), Code::InsecureHome);
        assert!(error.to_string().contains("belongs to user 12345"), "{error}");
    }

    #[test]
    fn f98_links_in_the_place_of_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("elsewhere");
        std::fs::create_dir(&target).unwrap();
        let linked = dir.path().join("linked");
        symlink(&target, &linked).unwrap();
        assert_eq!(Home::open_or_create(&linked).unwrap_err().code(), Code::InsecureHome);

        let home = Home::open_or_create(&dir.path().join("home")).unwrap();
        symlink(&target, home.root().join("run_1_001")).unwrap();
        assert_eq!(home.run_dir(&run("run_1_001")).unwrap_err().code(), Code::InsecureHome);
        assert_eq!(home.create_run_dir(&run("run_1_001")).unwrap_err().code(), Code::InsecureHome);
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
        std::fs::remove_dir(home.state_dir()).unwrap();
        symlink(&target, home.state_dir()).unwrap();
        assert_eq!(Home::open_or_create(home.root()).unwrap_err().code(), Code::InsecureHome);
    }

    #[test]
    fn r_m2_no_id_leads_out_of_the_state_folder() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open_or_create(&dir.path().join("home")).unwrap();
        for bad in ["", "..", "../x", "/etc", "run_1/../../x", "run_a..b", "run_1\0", ".git"] {
            assert_eq!(home.run_dir(&run(bad)).unwrap_err().code(), Code::ArtifactPath, "{bad}");
            assert!(home.work_dir(&run(bad)).is_err() && home.private_home(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn git_sees_nothing_of_it_and_the_users_own_words_stay() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open_or_create(dir.path().join(".ai-runs").as_path()).unwrap();
        std::fs::write(home.root().join("README.md"), "mine").unwrap();
        Home::open_or_create(home.root()).unwrap();
        assert_eq!(std::fs::read_to_string(home.root().join("README.md")).unwrap(), "mine");
        let repository = git2::Repository::init(dir.path()).unwrap();
        for (path, ignored) in
            [("state/agentrun.db", true), ("run_1_001", true), (".gitignore", true), ("README.md", true)]
        {
            let path = Path::new(".ai-runs").join(path);
            assert_eq!(repository.is_path_ignored(&path).unwrap(), ignored, "{}", path.display());
        }
    }

    #[test]
    fn t4_the_reserve_holds_room_until_it_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open_or_create(&dir.path().join("home")).unwrap();
        home.create_reserve().unwrap();
        home.create_reserve().unwrap();
        let found = home.state_dir().join("reserve").metadata().unwrap();
        assert!(found.len() == RESERVE_BYTES && found.blocks() * 512 >= RESERVE_BYTES, "no sparse file");
        assert!(home.release_reserve().unwrap());
        assert!(!home.release_reserve().unwrap());
    }

    #[test]
    fn a_state_folder_that_is_not_there_is_not_made_by_looking() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".ai-runs");
        assert_eq!(Home::open(&path).unwrap_err().code(), Code::NotFound);
        assert!(!path.exists());
    }
}
