//! The database of many schedules, in memory where the machine has a file system there. Connections are used again: opening
//! one costs more than a commit.

use agentrun::store::Store;
use agentrun::store::fault;

pub(crate) struct Disk {
    idle: Vec<Store>,
    reader: Store,
    /// Past the store, for what the store does not show and for faults on purpose.
    pub raw: rusqlite::Connection,
    dir: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("agentrun.db");
        let reader = Store::open(&path).unwrap();
        let raw = rusqlite::Connection::open(&path).unwrap();
        Self { idle: Vec::new(), reader, raw, dir }
    }

    /// A connection of a worker's own.
    pub(crate) fn take(&mut self) -> Store {
        self.idle.pop().unwrap_or_else(|| Store::open(&self.dir.path().join("agentrun.db")).unwrap())
    }

    pub(crate) fn give_back(&mut self, store: Option<Store>) {
        fault::plan([]);
        self.idle.extend(store);
    }

    pub(crate) fn reader(&self) -> &Store {
        &self.reader
    }

    /// The whole file (I8).
    pub(crate) fn check(&self) {
        self.reader.integrity().unwrap();
    }

    /// Something that no program should do.
    pub(crate) fn sql(&self, statement: &str) {
        self.raw.execute_batch(statement).unwrap();
    }
}
