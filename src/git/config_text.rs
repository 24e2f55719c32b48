//! The keys and values in the text of a git configuration file, and which of them can run code or lead elsewhere. It
//! follows no include: what a file says itself is all that is asked here.

/// One `key = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// `section.name` or `section.Subsection.name`; section and name in lower case.
    pub(super) key: String,
    /// The value; empty for a key without one (which git reads as true).
    pub(super) value: String,
}

/// Reads the text. Lines that are no configuration are passed over: git itself would refuse the file.
pub(super) fn entries(text: &[u8]) -> Vec<Entry> {
    let text = String::from_utf8_lossy(text);
    let mut section = String::new();
    let mut entries = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut rest = line.trim_start();
        if let Some(header) = rest.strip_prefix('[') {
            let Some((name, after)) = section_name(header) else { continue };
            section = name;
            rest = after.trim_start();
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            continue;
        }
        let (name, raw) = rest.split_once('=').unwrap_or((rest, ""));
        let mut raw = raw.to_owned();
        while is_continued(&raw) {
            raw.pop();
            raw.push_str(lines.next().unwrap_or(""));
        }
        entries.push(Entry { key: format!("{section}.{}", name.trim().to_ascii_lowercase()), value: value(&raw) });
    }
    entries
}

/// True when git runs what the key's value says, or takes it as another place to look: the keys that an agent must not set.
pub(super) fn is_dangerous(key: &str) -> bool {
    const EXACT: [&str; 28] = [
        "core.fsmonitor",
        "core.hookspath",
        "core.sshcommand",
        "core.editor",
        "core.pager",
        "core.askpass",
        "core.gitproxy",
        "core.worktree",
        "core.attributesfile",
        "core.excludesfile",
        "core.alternaterefscommand",
        "core.bare",
        "diff.external",
        "sequence.editor",
        "interactive.difffilter",
        "credential.helper",
        "include.path",
        "init.templatedir",
        "gpg.program",
        "uploadpack.packobjectshook",
        "sendemail.sendmailcmd",
        "sendemail.tocmd",
        "sendemail.cccmd",
        "web.browser",
        "http.proxy",
        "http.sslverify",
        "commit.template",
        "gc.recentobjectshook",
    ];
    const SECTIONS: [&str; 8] = ["alias", "filter", "pager", "includeif", "url", "protocol", "hook", "extensions"];
    const LAST_WORDS: [&str; 22] = [
        "command",
        "cmd",
        "textconv",
        "driver",
        "program",
        "helper",
        "update",
        "uploadpack",
        "receivepack",
        "proxy",
        "vcs",
        "url",
        "pushurl",
        "path",
        "defaultkeycommand",
        "sslverify",
        "sslcert",
        "smtpserver",
        "process",
        "clean",
        "smudge",
        "promisor",
    ];
    let section = key.split('.').next().unwrap_or(key);
    let last = key.rsplit('.').next().unwrap_or(key);
    EXACT.contains(&key) || SECTIONS.contains(&section) || LAST_WORDS.contains(&last)
}

/// Reads `name]…` or `name "sub"]…`; answers the section and what follows the bracket.
fn section_name(header: &str) -> Option<(String, &str)> {
    let Some((name, sub)) = header.split_once('"').filter(|(name, _)| !name.contains(']')) else {
        let (name, after) = header.split_once(']')?;
        return Some((name.trim().to_ascii_lowercase(), after));
    };
    let mut subsection = String::new();
    let mut chars = sub.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => subsection.extend(chars.next().map(|(_, c)| c)),
            '"' => {
                let (_, after) = sub[at + 1..].split_once(']')?;
                return Some((format!("{}.{subsection}", name.trim().to_ascii_lowercase()), after));
            }
            c => subsection.push(c),
        }
    }
    None
}

/// True when a value goes on in the next line.
fn is_continued(raw: &str) -> bool {
    raw.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// The value without quotes, escapes and comment.
fn value(raw: &str) -> String {
    let mut out = String::new();
    let mut is_quoted = false;
    let mut chars = raw.trim().chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => is_quoted = !is_quoted,
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c) => out.push(c),
                None => {}
            },
            '#' | ';' if !is_quoted => break,
            c => out.push(c),
        }
    }
    if is_quoted { out } else { out.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<(String, String)> {
        entries(text.as_bytes()).into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    #[test]
    fn a_configuration_is_read_like_git_reads_it() {
        let text = "[core]\n\tbare = false ; no\n  FsMonitor = \"a;b\" # c\n[filter \"Lfs\"] clean = x\\\n y\n[a \"q\\\"]b\"]\nflag\n[Old.Style]\nk=1\n";
        let expected = [
            ("core.bare", "false"),
            ("core.fsmonitor", "a;b"),
            ("filter.Lfs.clean", "x y"),
            ("a.q\"]b.flag", ""),
            ("old.style.k", "1"),
        ];
        assert_eq!(keys(text), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn keys_that_run_code_are_known() {
        for key in [
            "core.fsmonitor",
            "filter.x.clean",
            "alias.st",
            "merge.ours.driver",
            "diff.z.textconv",
            "submodule.s.update",
        ] {
            assert!(is_dangerous(key), "{key}");
        }
        for key in ["core.filemode", "branch.main.remote", "user.name", "branch.main.merge", "gc.auto"] {
            assert!(!is_dangerous(key), "{key}");
        }
    }
}
