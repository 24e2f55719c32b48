//! Files that a run keeps in its folder: written whole, with the hash that is recorded of them.

use super::error::EngineError;
use super::held::Held;
use super::host::Host;
use crate::artifacts::atomic::{self, IfExists};
use crate::artifacts::home::make_private;
use crate::artifacts::run_dir::RunDir;
use crate::domain::hash::encoding::Sha256Hash;

/// A file that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Relative to the run's folder.
    pub path: String,
    /// Its content.
    pub sha256: Sha256Hash,
    /// Bytes.
    pub size: u64,
}

/// Keeps bytes as `artifacts/<name>` of the held run.
pub fn keep(host: &Host<'_>, held: &Held, name: &str, bytes: &[u8]) -> Result<Kept, EngineError> {
    let dir = host.home.run_dir(&held.hold.run)?;
    make_private(&dir.file("artifacts"))?;
    write(&dir, &format!("artifacts/{name}"), bytes)
}

/// Writes a file at a path relative to the run's folder, replacing an older one.
pub fn write(dir: &RunDir, path: &str, bytes: &[u8]) -> Result<Kept, EngineError> {
    atomic::write(&dir.file(path), bytes, IfExists::Replace)?;
    Ok(Kept { path: path.to_owned(), sha256: Sha256Hash::of(bytes), size: bytes.len() as u64 })
}
