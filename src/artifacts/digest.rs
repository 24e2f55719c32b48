//! Hashes of files, and whether a kept file still is what was recorded (R-S7, F100).

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use rustix::fs::FileType;
use sha2::{Digest as _, Sha256};

use super::ArtifactError;
use super::beneath::{Looked, Root};
use super::run_dir::RunDir;
use crate::domain::artifact::{ArtifactFault, FaultKind};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::record::ArtifactRecord;

/// The hash and size of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digested {
    /// The hash.
    pub sha256: Sha256Hash,
    /// Bytes.
    pub size: u64,
}

/// Of a file of agentrun's own.
pub fn of_file(path: &Path) -> Result<Digested, ArtifactError> {
    let mut file = fs_err::File::open(path).map_err(|e| ArtifactError::io(path, e))?;
    copy(file.file_mut(), &mut io::sink(), u64::MAX).map_err(|e| ArtifactError::io(path, e.0))
}

/// Which of these kept files are missing or changed. An error of the disk is an error, not a fault of the file.
pub fn verify(run: &RunDir, recorded: &[ArtifactRecord]) -> Result<Vec<ArtifactFault>, ArtifactError> {
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let root = match Root::open(run.path()) {
        Ok(root) => Some(root),
        Err(ArtifactError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    let mut faults = Vec::new();
    for record in recorded {
        let what = match &root {
            Some(root) => fault(root, record)?,
            None => Some(FaultKind::Missing),
        };
        faults.extend(what.map(|what| ArtifactFault { path: record.path.clone(), what }));
    }
    Ok(faults)
}

fn fault(root: &Root, record: &ArtifactRecord) -> Result<Option<FaultKind>, ArtifactError> {
    let Looked::At(seen) = root.see(Path::new(&record.path))? else { return Ok(Some(FaultKind::Missing)) };
    if seen.kind() != FileType::RegularFile {
        return Ok(Some(FaultKind::Missing));
    }
    let mut file = seen.read().map_err(|e| ArtifactError::io(&record.path, e))?;
    let found = copy(&mut file, &mut io::sink(), u64::MAX).map_err(|e| ArtifactError::io(&record.path, e.0))?;
    let same = found.sha256 == record.sha256 && found.size == record.size;
    Ok((!same).then_some(FaultKind::Changed { old: record.sha256, new: found.sha256 }))
}

/// Which side of a copy failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

/// Copies at most `limit` bytes and hashes them on the way.
pub(super) fn copy(source: &mut File, target: &mut dyn Write, limit: u64) -> Result<Digested, (io::Error, Side)> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    let mut source = source.take(limit);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(Digested { sha256: Sha256Hash(hash.finalize().into()), size }),
            Ok(n) => {
                hash.update(&buffer[..n]);
                target.write_all(&buffer[..n]).map_err(|e| (e, Side::Target))?;
                size += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err((e, Side::Source)),
        }
    }
}
