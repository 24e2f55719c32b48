//! `manifest.yml` on disk (R-S4): replaced in one step, so that a reader sees an old one or a new one, never half of one.

use std::io;

use super::ArtifactError;
use super::atomic::{self, IfExists};
use super::run_dir::RunDir;
use crate::domain::manifest::Manifest;
use crate::yaml;

/// A larger file is no manifest of ours.
pub const MAX_BYTES: u64 = 16 << 20;

/// Replaces the manifest of a run.
pub fn write(run: &RunDir, manifest: &Manifest) -> Result<(), ArtifactError> {
    let text = yaml::render(manifest).map_err(|e| broken(run, &e))?;
    atomic::write(&run.manifest(), text.as_bytes(), IfExists::Replace)
}

/// The manifest; `None` when there is none.
pub fn read(run: &RunDir) -> Result<Option<Manifest>, ArtifactError> {
    let Some(text) = read_text(run)? else { return Ok(None) };
    let document = yaml::Document::read_with("manifest.yml", text.as_bytes(), yaml::Author::Program);
    document.and_then(|d| d.deserialize()).map(Some).map_err(|e| broken(run, &e))
}

fn broken(run: &RunDir, why: &dyn std::fmt::Display) -> ArtifactError {
    ArtifactError::Damaged { path: run.manifest(), why: why.to_string() }
}

/// Moves the manifest out of the way of a new one, under a name that no other has.
pub fn set_aside(run: &RunDir) -> Result<(), ArtifactError> {
    let from = run.manifest();
    let free =
        (1..).map(|n| run.file(&format!("manifest.yml.before-{n}"))).find(|path| path.symlink_metadata().is_err());
    match free.map(|to| fs_err::rename(&from, to)) {
        Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => Err(ArtifactError::io(from, e)),
        _ => Ok(()),
    }
}

fn read_text(run: &RunDir) -> Result<Option<String>, ArtifactError> {
    let path = run.manifest();
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ArtifactError::io(path, e)),
        Ok(found) if !found.is_file() => {
            return Err(ArtifactError::Insecure { path, why: "is not a regular file".to_owned() });
        }
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(ArtifactError::Damaged { path, why: "too large for a manifest".to_owned() });
        }
        Ok(_) => {}
    }
    fs_err::read_to_string(&path).map(Some).map_err(|e| ArtifactError::io(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::home::Home;
    use crate::domain::failure::Code;
    use crate::domain::ids::RunId;

    #[test]
    fn r_s4_the_manifest_is_replaced_whole_and_a_link_is_no_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open_or_create(&dir.path().join("home")).unwrap();
        let run = home.create_run_dir(&RunId::recorded("run_1_001")).unwrap();
        assert_eq!(read(&run).unwrap(), None);
        let first = Manifest::of(&crate::domain::sample::view(crate::domain::run::RunStatus::Succeeded));
        let second = Manifest { generation: first.generation + 1, ..first.clone() };
        write(&run, &first).unwrap();
        write(&run, &second).unwrap();
        assert_eq!(read(&run).unwrap(), Some(second));
        let text = std::fs::read_to_string(run.manifest()).unwrap();
        assert!(text.starts_with("manifestVersion: 1\ngeneration: "), "{text}");
        std::fs::remove_file(run.manifest()).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", run.manifest()).unwrap();
        assert_eq!(read(&run).unwrap_err().code(), Code::InsecureHome);
    }
}
