//! An independent program recomputes fingerprint and context hash: `docs/fingerprint.py`, Python's standard library and
//! git, nothing of agentrun's (R-F1, R-F2). Each change of one component changes exactly that component.

#![expect(clippy::unwrap_used, reason = "helpers of tests; the lint knows test functions only")]

use std::fs::{Permissions, create_dir_all, set_permissions, write};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const POLICY: &str = "version: '1'\n";
const TASK: &str = "task: t1\ntitle: A title\ncontext:\n  files: [ 'src/**', '*.md' ]\n  rules: [ RULES.md ]\nsteps:\n  \
                    - context\n  - { key: qa, kind: qa, run: 'true' }\n";

/// A repository, hermetic: no configuration of whoever runs the test, no run that the test may be part of.
struct World {
    dir: TempDir,
}

impl World {
    /// With these files committed.
    fn new(files: &[(&str, &str)]) -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        world.git(&["init", "-q"]);
        world.write("automation-policy.yml", POLICY);
        world.write("tasks/t1.yml", TASK);
        for (path, text) in files {
            world.write(path, text);
        }
        world.commit();
        world
    }

    fn usual() -> Self {
        Self::new(&[
            ("src/main.rs", "fn main() {}\n"),
            ("src/a/b.rs", ""),
            ("README.md", "# r\n"),
            ("RULES.md", "be kind\n"),
        ])
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("repo").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        create_dir_all(self.path(path).parent().unwrap()).unwrap();
        write(self.path(path), text).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        create_dir_all(self.path("")).unwrap();
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.dir.path());
        command.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(self.path(""));
        for who in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            command.env(format!("{who}_NAME"), "a").env(format!("{who}_EMAIL"), "a@example.org");
            command.env(format!("{who}_DATE"), "2026-01-01T00:00:00Z");
        }
        command
    }

    fn git(&self, arguments: &[&str]) {
        let done = self.command("git").args(arguments).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "c"]);
    }

    /// `agentrun fingerprint … --json`.
    fn document(&self, arguments: &[&str]) -> Value {
        let mut command = self.command(env!("CARGO_BIN_EXE_agentrun"));
        let done = command.args(["fingerprint", "--json"]).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_str(&text).unwrap()
    }

    /// Lets the script judge a document.
    fn judge(&self, document: &Value, arguments: &[&str]) -> Result<String, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fingerprint.py");
        let mut command = self.command("python3");
        command.arg(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(document.to_string().as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// Both judgements: of what the document lists, and of what git says.
    fn checked(&self, arguments: &[&str]) -> Value {
        let document = self.document(arguments);
        let dirty: &[&str] = if arguments.contains(&"--include-dirty") { &["--include-dirty"] } else { &[] };
        let said = self.judge(&document, &[]).unwrap();
        assert!(said.contains(document["fingerprint"].as_str().unwrap()), "{said}");
        self.judge(&document, &[&["--git", "."], dirty].concat()).unwrap();
        document
    }
}

fn component<'d>(document: &'d Value, name: &str) -> &'d Value {
    let all = document["components"].as_array().unwrap();
    &all.iter().find(|c| c["name"] == name).unwrap()["value"]
}

/// The names of the components whose values differ.
fn differing(a: &Value, b: &Value) -> Vec<&'static str> {
    let names = ["task", "base_commit", "prompt_version", "context_hash", "mode", "policy_version"];
    names.into_iter().filter(|name| component(a, name) != component(b, name)).collect()
}

#[test]
fn r_f1_r_f2_another_program_finds_the_same_hashes() {
    let usual = World::usual();
    let document = usual.checked(&["t1"]);
    let paths: Vec<_> =
        document["context"]["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["README.md", "RULES.md", "src/a/b.rs", "src/main.rs"]);
    assert_eq!(document["context"]["rules"].as_array().unwrap().len(), 1);
    assert_eq!(component(&document, "prompt_version"), &Value::Null, "a task without an agent has no prompt");

    let empty = World::new(&[]);
    assert_eq!(empty.checked(&["t1"])["context"]["files"].as_array().unwrap().len(), 0);

    // A prompt of the command line: its text is part of the task's meaning and names the version.
    let document = usual.checked(&["--prompt", "Grüße\n\"quoted\" \\ and {{ braces }}", "--qa", "true"]);
    assert!(component(&document, "prompt_version").as_str().unwrap().starts_with("sha256-"));
}

#[test]
fn r_f2_unusual_names_modes_links_and_submodules_are_the_same_for_both() {
    let world = World::usual();
    world.write("src/ünï cödé \"q\".rs", "x");
    world.write("src/tab\there.rs", "x");
    std::fs::write(world.path("src").join(std::ffi::OsStr::from_bytes(b"bad\xff.rs")), "x").unwrap();
    world.write("src/run.sh", "#!/bin/sh\n");
    set_permissions(world.path("src/run.sh"), Permissions::from_mode(0o755)).unwrap();
    symlink("main.rs", world.path("src/link.rs")).unwrap();
    symlink("../../outside", world.path("src/out.rs")).unwrap();
    world.commit();
    world.git(&["update-index", "--add", "--cacheinfo", "160000,0123456789012345678901234567890123456789,src/sub"]);
    world.git(&["commit", "-q", "-m", "sub"]);
    create_dir_all(world.path("src/sub")).unwrap();
    let document = world.checked(&["t1"]);
    let files = document["context"]["files"].to_string();
    for part in ["160000", "120000", "100755", "bad\\\\xff.rs", "tab\\there"] {
        assert!(files.contains(part), "{part}: {files}");
    }
}

#[test]
fn r_f2_globs_mean_the_same_for_both() {
    let rows: &[(&str, &[&str])] = &[
        ("src/*", &["src/a.rs", "src/b.txt"]),
        ("src/**", &["src/a.rs", "src/b.txt", "src/x/a.rs", "src/x/y/c.rs"]),
        ("**/a.rs", &["a.rs", "src/a.rs", "src/x/a.rs"]),
        ("src/**/c.rs", &["src/x/y/c.rs"]),
        ("src/**/a.rs", &["src/a.rs", "src/x/a.rs"]),
        (
            "**",
            &[
                "[odd].txt",
                "a.rs",
                "automation-policy.yml",
                "src/a.rs",
                "src/b.txt",
                "src/x/a.rs",
                "src/x/y/c.rs",
                "tasks/t1.yml",
            ],
        ),
        ("src/?.rs", &["src/a.rs"]),
        ("src/[ab].*", &["src/a.rs", "src/b.txt"]),
        ("src/[!a].*", &["src/b.txt"]),
        ("{a.rs,src/b.*}", &["a.rs", "src/b.txt"]),
        ("\\[odd\\].txt", &["[odd].txt"]),
        ("*.rs", &["a.rs"]),
        ("nothing/**", &[]),
    ];
    let files = ["a.rs", "src/a.rs", "src/b.txt", "src/x/a.rs", "src/x/y/c.rs", "[odd].txt"].map(|path| (path, "x"));
    for (glob, expected) in rows {
        let world = World::new(&files);
        let list = serde_json::json!([glob]);
        world.write("tasks/t1.yml", &format!("task: t1\ncontext: {{ files: {list} }}\nsteps: [ context ]\n"));
        let document = world.checked(&["t1"]);
        let found: Vec<_> =
            document["context"]["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
        assert_eq!(&found, expected, "{glob}");
    }
}

#[test]
fn r_f2_uncommitted_files_that_are_meant_count_as_they_are_on_disk() {
    let world = World::usual();
    let clean = world.checked(&["t1"]);
    world.write("src/main.rs", "fn main() { changed() }\n");
    world.write("outside.txt", "counts too: it is part of what the run begins with\n");
    world.write("new/tool.sh", "#!/bin/sh\n");
    set_permissions(world.path("new/tool.sh"), Permissions::from_mode(0o755)).unwrap();
    symlink("main.rs", world.path("src/link")).unwrap();
    std::fs::remove_file(world.path("src/a/b.rs")).unwrap();
    world.git(&["add", "outside.txt"]);
    let dirty = world.checked(&["t1", "--include-dirty"]);
    assert_eq!(differing(&clean, &dirty), ["context_hash"]);
    assert!(dirty["context"]["files"].to_string().contains("deleted"));
    // Left out on purpose, they do not count, and agentrun's own files never do.
    let ignored = world.checked(&["t1", "--ignore-dirty"]);
    assert_eq!(differing(&clean, &ignored), [""; 0]);
}

#[test]
fn r_f1_each_component_changes_exactly_itself() {
    let world = World::usual();
    let before = world.checked(&["t1"]);
    let task = |text: &str| world.write("tasks/t1.yml", text);
    let expect = |names: &[&str]| {
        let after = world.checked(&["t1"]);
        assert_eq!(differing(&before, &after), names);
        assert_ne!(before["fingerprint"], after["fingerprint"], "{names:?}");
    };
    task(&TASK.replace("run: 'true'", "run: 'false'"));
    expect(&["context_hash"]);
    task(&format!("mode: review\n{TASK}"));
    // The mode is a component of its own, and part of what the task means.
    expect(&["context_hash", "mode"]);
    task(TASK);
    world.write("automation-policy.yml", "version: '2'\n");
    expect(&["policy_version"]);
    world.write("automation-policy.yml", POLICY);
    world.git(&["commit", "-q", "--allow-empty", "-m", "another commit, the same files"]);
    expect(&["base_commit"]);
    world.git(&["reset", "-q", "--soft", "HEAD~1"]);
    let again = world.checked(&["t1"]);
    assert_eq!(before, again, "and back to where it was");

    task(&TASK.replace("task: t1", "task: t2"));
    let other = world.checked(&["t2"]);
    assert_eq!(differing(&before, &other), ["task", "context_hash"]);
}

#[test]
fn r_f2_wording_and_limits_change_nothing() {
    let world = World::usual();
    let before = world.checked(&["t1"]);
    let reordered = "# a comment\nsteps:\n    -   context\n    -   run: \"true\"\n        kind: qa\n        key: qa\n        timeout: 5m\n\
                     context: { rules: [RULES.md], files: ['src/**', \"*.md\"] }\ntitle: Another title\n\
                     budget: { task: { tokens: 5k, time: 10m } }\ntask: t1\n";
    world.write("tasks/t1.yml", reordered);
    assert_eq!(before, world.checked(&["t1"]));
}

#[test]
fn r_f1_a_prompts_version_is_a_component() {
    let world = World::usual();
    let agent = "task: t1\nsteps:\n  - { key: a, kind: agent, agent: { name: replay, events: e.jsonl }, prompt: prompts/p.md }\n";
    world.write("tasks/t1.yml", agent);
    world.write("prompts/p.md", "---\nversion: v1\n---\nDo it.\n");
    let one = world.checked(&["t1"]);
    assert_eq!(component(&one, "prompt_version"), "v1");
    world.write("prompts/p.md", "---\nversion: v2\n---\nDo it.\n");
    let two = world.checked(&["t1"]);
    assert_eq!(differing(&one, &two), ["prompt_version"]);
    assert_ne!(one["fingerprint"], two["fingerprint"]);
}

#[test]
fn the_script_notices_what_is_not_so() {
    let world = World::usual();
    let whole = world.document(&["t1"]);
    let mut forged = whole.clone();
    forged["context"]["files"][0]["blob"] = "0".repeat(40).into();
    assert!(world.judge(&forged, &[]).unwrap_err().contains("context_hash: the document says"));
    let mut forged = whole.clone();
    forged["components"][4]["value"] = "review".into();
    assert!(world.judge(&forged, &[]).unwrap_err().contains("fingerprint: the document says"));
    // A list that leaves out a file, with hashes that fit the list, is caught by git alone.
    world.write("src/later.rs", "x");
    world.commit();
    let mut other = world.document(&["t1"]);
    other["context"]["files"] = whole["context"]["files"].clone();
    assert!(world.judge(&other, &["--git", "."]).unwrap_err().contains("git says"));
}
