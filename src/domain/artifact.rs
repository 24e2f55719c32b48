//! What can be wrong with a kept file (R-S7, F100). Finding it out touches the disk and is not done here.

use super::failure::Code;
use super::hash::encoding::Sha256Hash;

/// A kept file that is no longer what was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactFault {
    /// Relative to the run's folder, as recorded.
    pub path: String,
    /// What is wrong.
    pub what: FaultKind,
}

/// What is wrong with a kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// There is no regular file at its path.
    Missing,
    /// Its content differs.
    Changed {
        /// As recorded.
        old: Sha256Hash,
        /// As found.
        new: Sha256Hash,
    },
}

impl FaultKind {
    /// The code of resume for it (contract §11).
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "ARTIFACT_MISSING",
            Self::Changed { .. } => "ARTIFACT_CHANGED",
        }
    }

    /// The code that `artifact verify` ends with: evidence that changed is a security stop (F100).
    pub fn code(&self) -> Code {
        match self {
            Self::Missing => Code::StateCorrupt,
            Self::Changed { .. } => Code::ArtifactChanged,
        }
    }
}

impl std::fmt::Display for ArtifactFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            FaultKind::Missing => write!(f, "artifact {} is missing", self.path),
            FaultKind::Changed { old, new } => {
                write!(f, "artifact {} was changed: recorded {old}, found {new}", self.path)
            }
        }
    }
}
