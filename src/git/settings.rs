//! What is taken over from the user's git configuration: a short list of keys that are data, never one that runs code or
//! leads elsewhere (T5, F81). Everything else in any configuration file is as if it were not there.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use git2::{Config, ConfigLevel, Repository};

use super::error::{GitError, Result};

/// Where the user's own git configuration lies. The default knows none, so only the repository's own counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserGit {
    /// The home folder, for `~/` and as the place of `.gitconfig` and `.config`.
    pub home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, where it is set.
    pub xdg_config_home: Option<PathBuf>,
    /// `GIT_CONFIG_GLOBAL`, where it is set: read instead of the files in home.
    pub global: Option<PathBuf>,
    /// The machine's file, usually `/etc/gitconfig`; none with `GIT_CONFIG_NOSYSTEM`.
    pub system: Option<PathBuf>,
}

impl UserGit {
    /// As git would find it from these environment variables.
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let system = path("GIT_CONFIG_SYSTEM").unwrap_or_else(|| "/etc/gitconfig".into());
        Self {
            home: path("HOME"),
            xdg_config_home: path("XDG_CONFIG_HOME"),
            global: path("GIT_CONFIG_GLOBAL"),
            system: variable("GIT_CONFIG_NOSYSTEM").is_none().then_some(system),
        }
    }

    /// `$XDG_CONFIG_HOME/git/<name>` or `~/.config/git/<name>`.
    fn xdg(&self, name: &str) -> Option<PathBuf> {
        let config = self.xdg_config_home.clone().or_else(|| Some(self.home.as_ref()?.join(".config")))?;
        Some(config.join("git").join(name))
    }

    /// The files in the order in which later ones win.
    fn files(&self) -> Vec<(ConfigLevel, PathBuf)> {
        let mut files: Vec<_> = self.system.clone().map(|file| (ConfigLevel::System, file)).into_iter().collect();
        if let Some(global) = &self.global {
            files.push((ConfigLevel::Global, global.clone()));
            return files;
        }
        files.extend(self.xdg("config").map(|file| (ConfigLevel::XDG, file)));
        files.extend(self.home.as_ref().map(|home| (ConfigLevel::Global, home.join(".gitconfig"))));
        files
    }
}

/// Keys that say how bytes on disk are to be read, in git's spelling. None of them names a program or a place.
const DATA_KEYS: [&str; 9] = [
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
    "core.trustctime",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
];

/// What was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    data: Vec<(&'static str, String)>,
    /// The user's own list of files to ignore, which makes "clean" mean what `git status` says.
    excludes: PathBuf,
    attributes: PathBuf,
    /// Whether each ref and object is on the disk when it counts as written: a ref that the database names must not be an
    /// empty file after a power cut.
    durable: bool,
    /// `user.name` and `user.email`, so that an agent's own `git commit` works in the isolated copy.
    pub(super) identity: Option<(String, String)>,
}

impl Settings {
    /// Reads the user's files and the repository's own.
    pub(super) fn read(user: &UserGit, common_dir: &Path, git_dir: &Path) -> Result<Self> {
        let mut files = user.files();
        files.push((ConfigLevel::Local, common_dir.join("config")));
        files.push((ConfigLevel::Worktree, git_dir.join("config.worktree")));
        let mut config = Config::new().map_err(GitError::git("making a configuration"))?;
        for (level, file) in files {
            // Only regular files: a pipe in its place would be waited for without end.
            if file.is_file() {
                let doing = format!("reading `{}`", file.display());
                config.add_file(&file, level, true).map_err(GitError::git(&doing))?;
            }
        }
        let config = config.snapshot().map_err(GitError::git("reading the git configuration"))?;
        let text = |key: &str| config.get_string(key).ok().filter(|value| !value.is_empty());
        let place = |key: &str, default: &str| {
            let set = text(key).map(|value| expand(&value, user.home.as_deref(), common_dir));
            // An absent name, not none at all: else libgit2 looks into the home folder of the process by itself.
            set.or_else(|| user.xdg(default)).unwrap_or_else(|| common_dir.join("info/agentrun-absent"))
        };
        Ok(Self {
            data: DATA_KEYS.iter().filter_map(|key| Some((*key, text(key)?))).collect(),
            excludes: place("core.excludesfile", "ignore"),
            attributes: place("core.attributesfile", "attributes"),
            durable: true,
            identity: text("user.name").zip(text("user.email")),
        })
    }

    /// Nothing of anybody's: for a repository that is only a tool.
    pub(super) fn none() -> Self {
        let absent = PathBuf::from("/dev/null/absent");
        Self { data: Vec::new(), excludes: absent.clone(), attributes: absent, durable: false, identity: None }
    }

    /// Replaces the configuration of an opened repository by this one.
    pub(super) fn replace_in(&self, repository: &Repository) -> Result<()> {
        // libgit2 reads configurations from files only; the snapshot outlives the file.
        let mut file = tempfile::NamedTempFile::new().map_err(GitError::io(std::env::temp_dir()))?;
        file.write_all(self.own_text().as_bytes()).map_err(GitError::io(std::env::temp_dir()))?;
        let config = Config::open(file.path()).and_then(|mut config| config.snapshot());
        let config = config.map_err(GitError::git("making a configuration"))?;
        repository.set_config(&config).map_err(GitError::git("setting the configuration"))
    }

    /// True where something outside a commit may ask for other bytes on disk than in the blob: line ends, mostly.
    pub(super) fn may_convert(&self, common_dir: &Path) -> bool {
        let converts = |(key, value): &(&str, String)| *key == "core.autocrlf" && !value.eq_ignore_ascii_case("false");
        let own = common_dir.join("info/attributes");
        let files = [self.attributes.as_path(), own.as_path(), Path::new("/etc/gitattributes")];
        self.data.iter().any(converts) || files.iter().any(|file| file.exists())
    }

    /// The same for a repository whose writer settles what it wrote by itself.
    pub(super) fn without_sync(&self) -> Self {
        Self { durable: false, ..self.clone() }
    }

    /// True where the checkout leaves files out.
    pub(super) fn is_sparse(&self) -> bool {
        let is_on = |value: &str| matches!(value.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1");
        self.data.iter().any(|(key, value)| *key == "core.sparsecheckout" && is_on(value))
    }

    /// The data keys as a `[core]` section's lines, for the isolated copy's own configuration.
    pub(super) fn data_lines(&self) -> String {
        let line = |(key, value): &(&str, String)| {
            let (_, name) = key.split_once('.').unwrap_or(("", key));
            format!("\t{name} = {}\n", quoted(value))
        };
        self.data.iter().filter(|(key, _)| !key.contains("sparse")).map(line).collect()
    }

    fn own_text(&self) -> String {
        format!(
            "[core]\n\tbare = false\n\tlogallrefupdates = false\n\tfsyncobjectfiles = {}\n{}\texcludesfile = {}\n\tattributesfile = {}\n",
            self.durable,
            self.data_lines(),
            quoted(&self.excludes.to_string_lossy()),
            quoted(&self.attributes.to_string_lossy()),
        )
    }
}

/// A value as a configuration file wants it.
pub(super) fn quoted(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A path as git reads it in a configuration.
fn expand(value: &str, home: Option<&Path>, common_dir: &Path) -> PathBuf {
    match (value.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => common_dir.join(value),
    }
}
