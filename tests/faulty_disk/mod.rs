//! A disk that fails on demand (`shim.c`), for the real program and for any other process that a test starts. It needs the C
//! compiler that SQLite is built with, and nothing else: no rights, no mounts, no tracing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Errors of the operating system, by number.
pub const EIO: &str = "5";
pub const EAGAIN: &str = "11";
pub const EFBIG: &str = "27";
pub const ENOSPC: &str = "28";
pub const EROFS: &str = "30";

/// Which calls fail, and how.
#[derive(Debug, Clone)]
pub struct Rule {
    op: &'static str,
    part: String,
    first: u32,
    last: u32,
    action: &'static str,
    gate: String,
    until: String,
}

impl Rule {
    /// Every such call on a path that contains `part` fails with this error.
    pub fn every(op: &'static str, part: &str, action: &'static str) -> Self {
        let part = part.to_owned();
        Self { op, part, first: 1, last: 0, action, gate: "-".to_owned(), until: "-".to_owned() }
    }

    /// The n-th such call alone.
    pub fn nth(op: &'static str, part: &str, nth: u32, action: &'static str) -> Self {
        Self { first: nth, last: nth, ..Self::every(op, part, action) }
    }

    /// From the n-th such call on.
    pub fn from(self, first: u32) -> Self {
        Self { first, ..self }
    }

    /// Only once this file exists.
    pub fn once(self, gate: &Path) -> Self {
        Self { gate: gate.display().to_string(), ..self }
    }

    /// Until the program removes a file whose path contains this.
    pub fn until_removed(self, part: &str) -> Self {
        Self { until: part.to_owned(), ..self }
    }

    fn line(&self) -> String {
        let Self { op, part, first, last, action, gate, until } = self;
        format!("{op} {part} {first} {last} {action} {gate} {until}")
    }
}

/// The command on such a disk.
pub fn on_disk(command: &mut Command, rules: &[Rule]) {
    let lines: Vec<String> = rules.iter().map(Rule::line).collect();
    command.env("LD_PRELOAD", shim()).env("FAULTY_DISK", lines.join("\n"));
}

/// The command on a disk that only writes down what is done: `op path [path]`.
pub fn traced(command: &mut Command, log: &Path) {
    command.env("LD_PRELOAD", shim()).env("FAULTY_DISK_LOG", log);
}

/// The shim, compiled when it is first needed.
pub fn shim() -> &'static Path {
    static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
        const SOURCE: &str = include_str!("shim.c");
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let print = SOURCE.bytes().fold(5381_u64, |sum, byte| sum.wrapping_mul(33) ^ u64::from(byte));
        let whole = folder.join(format!("faulty_disk-{print:x}.so"));
        if !whole.exists() {
            let part = folder.join(format!("faulty_disk-{}.c", std::process::id()));
            std::fs::write(&part, SOURCE).unwrap();
            let made = part.with_extension("so");
            let built =
                Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&made, &part]).arg("-ldl").output();
            let built = built.unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            std::fs::rename(&made, &whole).unwrap();
            std::fs::remove_file(&part).unwrap();
        }
        whole
    });
    &SHIM
}
