//! The context hash: the meaning of the task, the relevant files at the base commit, and the rules (R-F2).

use serde::{Deserialize, Serialize};

use super::encoding::{Encoder, Sha256Hash};

/// One file that counts, as it stands at the base commit or, where it has uncommitted changes that are meant, on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContextFile {
    /// Relative to the repository's root, with `/`. Bytes that are no UTF-8 are written as `\xNN`.
    pub path: String,
    /// Git's mode in octal: `100644`, `100755`, `120000`, `160000`.
    pub mode: String,
    /// Git's blob id in hex; of the bytes on disk for an uncommitted file; `deleted` for one that is gone.
    pub blob: String,
}

/// The context hash. `files` and `rules` are sorted by path here, so their order does not matter.
pub fn context_hash(meaning: &str, files: &[ContextFile], rules: &[ContextFile]) -> Sha256Hash {
    let mut encoder = Encoder::new("agentrun-context/1");
    encoder.field("task", Some(meaning));
    encoder.field("files", Some(&files_hash(files).hex()));
    encoder.field("rules", Some(&files_hash(rules).hex()));
    encoder.finish()
}

/// The hash of a list of files.
pub fn files_hash(files: &[ContextFile]) -> Sha256Hash {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort();
    let mut encoder = Encoder::new("agentrun-files/1");
    encoder.list("files", sorted.iter().map(|f| format!("{} {} {}", f.mode, f.blob, f.path)));
    encoder.finish()
}
