//! The kind of file system that a folder lies on, and whether the records may lie there (F16). The write-ahead log of the
//! database needs memory that all its readers share and locks that all of them see, which is so on one machine's own disks
//! and nowhere else. Nothing is written to find out.

use std::path::Path;

use super::ArtifactError;

/// What is refused, by the number that `statfs` gives. Everything else is taken: new local file systems come up more often
/// than new network ones.
const REFUSED: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x0102_1997, "9p"),
    // One number for all of them: a network, a folder of another machine's, or a program with locks of its own making.
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x786f_4256, "a folder shared by VirtualBox"),
    (0xbacb_acbc, "a folder shared by VMware"),
    (0x7c7c_6673, "a folder shared by Parallels"),
];

/// Well-known local ones, for `doctor`.
const KNOWN: &[(u64, &str)] = &[
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x794c_7630, "overlayfs"),
    (0x0102_1994, "tmpfs"),
    (0xca45_1a4e, "bcachefs"),
];

/// A kind of file system, as the kernel numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem(pub u64);

impl FileSystem {
    /// Of a folder, or of the nearest one above it that exists.
    pub fn of(path: &Path) -> Result<Self, ArtifactError> {
        let mut at = path;
        loop {
            match rustix::fs::statfs(if at.as_os_str().is_empty() { Path::new(".") } else { at }) {
                Ok(found) => return Ok(Self(magic(found.f_type))),
                Err(rustix::io::Errno::NOENT) => match at.parent() {
                    Some(parent) => at = parent,
                    None => return Err(ArtifactError::io(path, rustix::io::Errno::NOENT)),
                },
                Err(error) => return Err(ArtifactError::io(at, error)),
            }
        }
    }

    /// Its name, or its number.
    pub fn name(self) -> String {
        let known = REFUSED.iter().chain(KNOWN).find(|(number, _)| *number == self.0);
        known.map_or_else(|| format!("type {:#x}", self.0), |(_, name)| (*name).to_owned())
    }

    /// Refuses what the records cannot lie on.
    pub fn check(self, path: &Path) -> Result<(), ArtifactError> {
        if REFUSED.iter().any(|(number, _)| *number == self.0) {
            return Err(ArtifactError::FileSystem { path: path.to_owned(), name: self.name() });
        }
        Ok(())
    }
}

/// The kernel's number is one of 32 bits, in a field whose width and sign are the machine's.
#[expect(clippy::cast_sign_loss, reason = "it is a number of 32 bits")]
fn magic(field: rustix::fs::FsWord) -> u64 {
    field as u64 & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::Code;

    #[test]
    fn f16_networks_are_refused_and_disks_are_not() {
        let path = Path::new("/somewhere");
        for (number, name) in REFUSED {
            let error = FileSystem(*number).check(path).unwrap_err();
            assert_eq!(error.code(), Code::EnvFsUnsupported);
            assert!(error.to_string().contains(name) && error.to_string().contains("/somewhere"), "{error}");
        }
        for (number, _) in KNOWN {
            FileSystem(*number).check(path).unwrap();
        }
        FileSystem(0x1234).check(path).unwrap();
        assert_eq!(FileSystem(0x1234).name(), "type 0x1234");
    }

    #[test]
    fn f16_a_folder_that_is_not_there_yet_lies_where_it_would_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let here = FileSystem::of(dir.path()).unwrap();
        assert_eq!(FileSystem::of(&dir.path().join("not/yet/.ai-runs")).unwrap(), here);
        assert_eq!(FileSystem::of(Path::new("/proc/self/nothing")).unwrap(), FileSystem(0x9fa0));
        FileSystem::of(Path::new("not-yet")).unwrap().check(Path::new("x")).unwrap();
    }
}
