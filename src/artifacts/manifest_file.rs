//! `manifest.yml` on disk (R-S4): replaced in one step, so that a reader sees an old one or a new one, never half of one.
//! Text in, text out: what YAML is, is known elsewhere.

use std::io;

use super::ArtifactError;
use super::atomic::{self, IfExists};
use super::run_dir::RunDir;

/// A larger file is no manifest of ours.
pub const MAX_BYTES: u64 = 16 << 20;

/// Replaces the manifest of a run by a rendered one.
pub fn write(run: &RunDir, render: &str) -> Result<(), ArtifactError> {
    atomic::write(&run.manifest(), render.as_bytes(), IfExists::Replace)
}

/// The manifest's text; `None` when there is none.
pub fn read(run: &RunDir) -> Result<Option<String>, ArtifactError> {
    let path = run.manifest();
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ArtifactError::io(path, e)),
        Ok(found) if !found.is_file() => {
            return Err(ArtifactError::Insecure { path, why: "is not a regular file".to_owned() });
        }
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(ArtifactError::io(
                path,
                io::Error::new(io::ErrorKind::InvalidData, "too large for a manifest"),
            ));
        }
        Ok(_) => {}
    }
    fs_err::read_to_string(&path).map(Some).map_err(|e| ArtifactError::io(path, e))
}
