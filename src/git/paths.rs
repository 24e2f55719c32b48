//! Paths as git has them (bytes with `/`) and as people and records have them (text). It opens nothing.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The text of a path: bytes that are no UTF-8 are written as `\xNN`.
pub(super) fn text(path: &[u8]) -> String {
    if let Ok(text) = str::from_utf8(path) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(path.len() + 8);
    for chunk in path.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// The bytes as a path of this system.
pub(super) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The bytes of a path of this system.
pub(super) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Git's mode in octal, as `ContextFile` has it.
pub(super) fn mode_text(mode: u32) -> String {
    format!("{mode:06o}")
}

/// True when `path` is one of the prefixes, or below one that ends with `/`.
pub(super) fn is_below(path: &[u8], prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        let prefix = prefix.as_bytes();
        path == prefix || (prefix.ends_with(b"/") && path.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_stay_visible() {
        assert_eq!(text("a/ü".as_bytes()), "a/ü");
        assert_eq!(text(b"a\xff/b"), "a\\xff/b");
        assert_eq!(mode_text(0o100_644), "100644");
        assert_eq!(mode_text(0), "000000");
    }

    #[test]
    fn a_prefix_is_a_folder_or_the_whole_name() {
        assert!(is_below(b"tasks/1.yml", &["tasks/"]));
        assert!(is_below(b"automation-policy.yml", &["automation-policy.yml"]));
        assert!(!is_below(b"automation-policy.yml.bak", &["automation-policy.yml"]));
        assert!(!is_below(b"tasks2/1.yml", &["tasks/"]));
    }
}
