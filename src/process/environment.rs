//! Which variables a child gets (contract §10): an allow-list, applied to a given environment. Everything else is
//! withheld, agentrun's own secrets first of all. Values are not looked at.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// What every child gets.
pub const ALWAYS: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TERM", "TMPDIR"];

/// What commands get besides: toolchains, proxies and certificates. An entry that ends in `*` stands for all that begin so.
pub const FOR_COMMANDS: &[&str] = &[
    // Proxies and certificates.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "ftp_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    // Where caches and settings are.
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    // Compilers.
    "CC",
    "CXX",
    "AR",
    "LD",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "MAKEFLAGS",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "CMAKE_PREFIX_PATH",
    "SOURCE_DATE_EPOCH",
    // Rust, Go, Java and Android.
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "GOFLAGS",
    "GOPROXY",
    "GOTOOLCHAIN",
    "JAVA_HOME",
    "MAVEN_HOME",
    "M2_HOME",
    "MAVEN_OPTS",
    "GRADLE_HOME",
    "GRADLE_USER_HOME",
    "GRADLE_OPTS",
    "ANDROID_HOME",
    "ANDROID_SDK_ROOT",
    "DOTNET_ROOT",
    "NUGET_PACKAGES",
    // JavaScript.
    "NVM_DIR",
    "NVM_BIN",
    "NODE_PATH",
    "NODE_OPTIONS",
    "NODE_ENV",
    "PNPM_HOME",
    "VOLTA_HOME",
    "FNM_DIR",
    "BUN_INSTALL",
    "DENO_DIR",
    "COREPACK_HOME",
    "npm_config_cache",
    "npm_config_registry",
    "YARN_CACHE_FOLDER",
    "PLAYWRIGHT_BROWSERS_PATH",
    // Python and Ruby.
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "PIP_INDEX_URL",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "POETRY_HOME",
    "RBENV_ROOT",
    "RBENV_VERSION",
    "GEM_HOME",
    "GEM_PATH",
    "BUNDLE_PATH",
    "BUNDLE_GEMFILE",
    // Everything else that builds ask for.
    "CI",
    "FORCE_COLOR",
    "NO_COLOR",
    "COLUMNS",
    "NIX_PATH",
    "NIX_PROFILES",
    "NIX_SSL_CERT_FILE",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "HOMEBREW_PREFIX",
];

/// For whom an environment is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// An agent: the base list alone.
    Agent,
    /// A command of a step: toolchains, proxies and certificates too.
    Command,
}

/// The part of `environment` that a child may see: the lists above, and the variables named in `extra` exactly.
pub fn allowed(
    environment: &BTreeMap<OsString, OsString>,
    audience: Audience,
    extra: &[String],
) -> BTreeMap<OsString, OsString> {
    let listed = |name: &OsStr| {
        let for_commands = audience == Audience::Command && on_list(FOR_COMMANDS, name);
        on_list(ALWAYS, name) || for_commands || extra.iter().any(|wanted| name == OsStr::new(wanted))
    };
    environment.iter().filter(|(name, _)| listed(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn on_list(list: &[&str], name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == entry.as_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(audience: Audience, extra: &[&str]) -> Vec<String> {
        let given =
            ["PATH", "LC_ALL", "LC_TIME", "HTTPS_PROXY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "path", "PATHX"];
        let given = given.iter().map(|name| (OsString::from(name), OsString::from("v"))).collect();
        let extra: Vec<String> = extra.iter().map(|name| (*name).to_owned()).collect();
        allowed(&given, audience, &extra).into_keys().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_not_listed_is_withheld() {
        assert_eq!(names(Audience::Agent, &[]), ["LC_ALL", "LC_TIME", "PATH"]);
        assert_eq!(names(Audience::Command, &[]), ["HTTPS_PROXY", "LC_ALL", "LC_TIME", "PATH"]);
    }

    #[test]
    fn extra_names_are_exact() {
        assert_eq!(
            names(Audience::Agent, &["GITHUB_TOKEN", "ABSENT", "AWS_*"]),
            ["GITHUB_TOKEN", "LC_ALL", "LC_TIME", "PATH"]
        );
    }

    #[test]
    fn no_list_names_a_secret() {
        for name in ALWAYS.iter().chain(FOR_COMMANDS) {
            let is_secret =
                ["TOKEN", "SECRET", "PASSWORD", "_KEY", "CREDENTIAL"].iter().any(|word| name.contains(word));
            assert!(!is_secret, "{name}");
        }
    }
}
