//! Checks that policy, task and prompt files share: names, paths, errors at a place of a document.

use super::env_vars::RESERVED_PREFIX;
use super::error::ConfigError;
use crate::yaml::{Document, Seg};

/// An error at the value of a path.
pub(super) fn refused(doc: &Document, path: &[Seg<'_>], message: impl Into<String>) -> ConfigError {
    doc.error(doc.at(path), message).into()
}

/// An error at the key of a path.
pub(super) fn refused_key(doc: &Document, path: &[Seg<'_>], message: impl Into<String>) -> ConfigError {
    doc.error(doc.key_at(path), message).into()
}

/// A path with one part more.
pub(super) fn join<'a>(path: &[Seg<'a>], last: impl Into<Seg<'a>>) -> Vec<Seg<'a>> {
    path.iter().copied().chain([last.into()]).collect()
}

/// A path or glob inside the repository, without `./` and doubled slashes, so that two spellings are one value.
pub(super) fn inner_path(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text.starts_with('~') {
        return Err(format!("`{text}` must be relative to the repository"));
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(format!("`{text}` must not contain `..`"));
    }
    if parts.is_empty() || text.contains(char::is_control) {
        return Err(format!("`{}` is no path", text.escape_debug()));
    }
    Ok(parts.join("/"))
}

/// A glob inside the repository.
pub(super) fn inner_glob(text: &str) -> Result<String, String> {
    let path = inner_path(text)?;
    match globset::Glob::new(&path) {
        Ok(_) => Ok(path),
        Err(e) => Err(format!("`{text}` is no glob: {}", e.kind())),
    }
}

/// The name of an environment variable that users may set or pass.
pub(super) fn env_name(text: &str) -> Result<(), String> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`{text}` is no name of an environment variable"));
    }
    if text.starts_with(RESERVED_PREFIX) {
        return Err(format!("`{text}` is reserved: names with {RESERVED_PREFIX} are agentrun's own"));
    }
    Ok(())
}

/// The name of an input: a name in templates, and in upper case the end of an environment variable.
pub(super) fn input_name(text: &str) -> Result<(), String> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if begins && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(format!("`{text}` is no name of an input: use letters, digits and `_`, at most 64"))
}

/// The name of an environment or a contract: it stands in rules, keys and file names.
pub(super) fn plain_name(text: &str) -> Result<(), String> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if begins && text.len() <= 64 && text.chars().all(allowed) {
        return Ok(());
    }
    Err(format!("`{}` is no name: use letters, digits, `.`, `_`, `-`, at most 64", text.escape_debug()))
}

/// A version: it names one content, and stands in `key=version,…`.
pub(super) fn version(text: &str) -> Result<(), String> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    if !begins || text.len() > 64 || !text.chars().all(allowed) {
        return Err(format!("`{text}` is no version: use letters, digits, `.`, `_`, `+`, `-`, at most 64"));
    }
    if text.starts_with("sha256-") || text == "built-in" {
        return Err(format!("`{text}` is reserved: agentrun gives such versions itself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for (text, path) in [("./a//b.md", "a/b.md"), ("src/**", "src/**"), ("a/", "a"), (".github/x", ".github/x")] {
            assert_eq!(inner_path(text).unwrap(), path);
        }
        for bad in ["", ".", "/etc/passwd", "../x", "a/../../x", "a/..", "~/x", "a\nb"] {
            assert!(inner_path(bad).is_err(), "{bad:?}");
        }
        assert!(inner_glob("a[").is_err());
    }

    #[test]
    fn names_that_are_ours_or_none_are_refused() {
        assert!(env_name("CARGO_HOME").is_ok() && env_name("_x1").is_ok());
        for bad in ["", "1A", "A-B", "A=B", "AGENTRUN_RUN_ID"] {
            assert!(env_name(bad).is_err(), "{bad}");
        }
        assert!(version("2026-09-15.1").is_ok() && version("v2.4.0").is_ok());
        for bad in ["", "a b", "a,b", "k=v", "built-in", "sha256-0123"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
