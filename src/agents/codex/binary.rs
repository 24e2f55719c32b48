//! Finds Codex itself. What npm puts on the PATH is a Node launcher: on older Node versions it stays as a parent that
//! does not hand SIGKILL on, so killing it would orphan the agent. The native binary runs alone.

use std::path::{Path, PathBuf};

use super::super::program::{find, is_program};
use super::super::{AgentError, AgentRequest};

/// The program to start: the native binary behind the npm launcher, anything else as it is.
pub(crate) fn program(request: &AgentRequest<'_>) -> Result<PathBuf, AgentError> {
    let name = request.rules.bin.as_deref().unwrap_or("codex");
    let found = find(name, request.env, request.repository)?;
    Ok(native_behind(&found).unwrap_or(found))
}

/// The native binary of an npm package, if `found` is the package's launcher.
fn native_behind(found: &Path) -> Option<PathBuf> {
    let launcher = found.canonicalize().ok()?;
    let is_launcher = launcher.file_name()? == "codex.js" && launcher.parent()?.file_name()? == "bin";
    let package = launcher.parent()?.parent()?;
    let (platform, triple) = platform()?;
    let vendors = [
        // npm nests the platform package, or hoists it beside this one; older packages carried it themselves.
        package.join("node_modules/@openai").join(platform),
        package.parent()?.join(platform),
        package.to_owned(),
    ];
    let mut candidates = vendors.iter().map(|dir| dir.join("vendor").join(triple).join("bin/codex"));
    is_launcher.then(|| candidates.find(|path| is_program(path)))?
}

/// The names under which Codex is packaged for this machine.
fn platform() -> Option<(&'static str, &'static str)> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some(("codex-linux-x64", "x86_64-unknown-linux-musl")),
        ("linux", "aarch64") => Some(("codex-linux-arm64", "aarch64-unknown-linux-musl")),
        ("macos", "x86_64") => Some(("codex-darwin-x64", "x86_64-apple-darwin")),
        ("macos", "aarch64") => Some(("codex-darwin-arm64", "aarch64-apple-darwin")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn put(path: &Path) -> PathBuf {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.canonicalize().unwrap()
    }

    #[test]
    fn the_launcher_leads_to_the_native_binary_nested_or_hoisted() {
        let (platform, triple) = platform().unwrap();
        for place in [format!("@openai/codex/node_modules/@openai/{platform}"), format!("@openai/{platform}")] {
            let dir = tempfile::tempdir().unwrap();
            let modules = dir.path().join("node_modules");
            let launcher = put(&modules.join("@openai/codex/bin/codex.js"));
            std::fs::create_dir_all(modules.join(".bin")).unwrap();
            let link = modules.join(".bin/codex");
            std::os::unix::fs::symlink(&launcher, &link).unwrap();
            assert_eq!(native_behind(&link), None, "without the platform package");
            let native = put(&modules.join(place).join("vendor").join(triple).join("bin/codex"));
            assert_eq!(native_behind(&link), Some(native));
        }
    }

    #[test]
    fn anything_else_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(native_behind(&put(&dir.path().join("codex"))), None);
    }
}
