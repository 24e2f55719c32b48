//! Hashes of files, and whether a kept file still is what was recorded (R-S7, F100).

use std::collections::BTreeMap;
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

/// How many of these files, by path and content, are there and unchanged: where sizes are not known.
pub fn verify_hashes(run: &RunDir, files: &BTreeMap<String, Sha256Hash>) -> Result<usize, ArtifactError> {
    let root = Root::open(run.path())?;
    let mut whole = 0;
    for (path, hash) in files {
        let Looked::At(seen) = root.see(Path::new(path))? else { continue };
        if seen.kind() == FileType::RegularFile
            && let Ok(mut file) = seen.read()
        {
            let found = copy(&mut file, &mut io::sink(), u64::MAX).map_err(|e| ArtifactError::io(path, e.0))?;
            whole += usize::from(found.sha256 == *hash);
        }
    }
    Ok(whole)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifacts::home::Home;
    use crate::domain::ids::RunId;
    use crate::domain::record::ArtifactType;

    fn recorded(run: &RunDir, path: &str, content: &[u8]) -> ArtifactRecord {
        let file = run.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        let (sha256, size) = (Sha256Hash::of(content), content.len() as u64);
        ArtifactRecord { kind: ArtifactType::File, path: path.into(), sha256, size, step: None, attempt: 1 }
    }

    fn run(dir: &tempfile::TempDir) -> RunDir {
        let home = Home::open_or_create(&dir.path().join("home")).unwrap();
        home.create_run_dir(&RunId::recorded("run_1_001")).unwrap()
    }

    #[test]
    fn f100_r_s7_one_changed_byte_is_found_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(&dir);
        let records = [recorded(&run, "artifacts/a/x", b"hello"), recorded(&run, "report.md", b"report")];
        assert_eq!(verify(&run, &records).unwrap(), []);
        std::fs::write(run.file("artifacts/a/x"), b"hellp").unwrap();
        let faults = verify(&run, &records).unwrap();
        let what = FaultKind::Changed { old: Sha256Hash::of(b"hello"), new: Sha256Hash::of(b"hellp") };
        assert_eq!(faults, [ArtifactFault { path: "artifacts/a/x".into(), what }]);
        assert_eq!(faults[0].what.code().entry().exit.code(), 15);
    }

    #[test]
    fn r_s7_missing_files_and_links_to_equal_ones_are_missing() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(&dir);
        let records = [recorded(&run, "a", b"1"), recorded(&run, "b", b"2"), recorded(&run, "c/d", b"3")];
        std::fs::remove_file(run.file("a")).unwrap();
        std::fs::rename(run.file("b"), run.file("real")).unwrap();
        std::os::unix::fs::symlink("real", run.file("b")).unwrap();
        std::fs::rename(run.file("c"), run.file("real-c")).unwrap();
        std::os::unix::fs::symlink("real-c", run.file("c")).unwrap();
        let faults = verify(&run, &records).unwrap();
        assert_eq!(faults.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["a", "b", "c/d"]);
        assert!(faults.iter().all(|f| f.what == FaultKind::Missing));
        std::fs::remove_dir_all(run.path()).unwrap();
        assert_eq!(verify(&run, &records).unwrap().len(), 3, "the whole folder is gone");
    }

    #[test]
    fn a_recorded_path_that_leads_out_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(&dir);
        let mut record = recorded(&run, "a", b"1");
        record.path = "../../secret".into();
        assert_eq!(verify(&run, &[record]).unwrap_err().code(), crate::domain::failure::Code::ArtifactPath);
    }

    #[test]
    fn a_file_is_hashed_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let content = (0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        std::fs::write(dir.path().join("f"), &content).unwrap();
        let found = of_file(&dir.path().join("f")).unwrap();
        assert_eq!(found, Digested { sha256: Sha256Hash::of(&content), size: 800_000 });
    }
}
