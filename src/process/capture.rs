//! What a child writes, on its way from the pipe to the disk: redacted, written, then handed over by the line. Memory
//! stays bounded whatever the child does (F22). The pipes themselves are read elsewhere.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use aho_corasick::BuildError;
use rustix::fs::OFlags;

use super::event::LogFailure;
use super::lines::{Line, LineSplitter};
use super::redact::Redactor;

/// How much of the end of a stream is kept for people, in bytes.
const TAIL: usize = 16 << 10;

/// One of the two streams of a child.
#[derive(Debug)]
pub(super) struct Capture {
    redactor: Redactor,
    /// Room for redacted bytes, kept to spare an allocation per read.
    clean: Vec<u8>,
    log: Log,
    tail: VecDeque<u8>,
    lines: Option<LineSplitter>,
    bytes: u64,
}

/// The file that a stream goes to.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: Option<File>,
    /// Bytes that still may be written.
    room: u64,
    truncated: bool,
    failure: Option<LogFailure>,
}

/// What is left to say of a stream when it is over.
#[derive(Debug)]
pub(super) struct Captured {
    /// Bytes read.
    pub(super) bytes: u64,
    /// The end of the stream.
    pub(super) tail: Vec<u8>,
    /// The file holds less than was written.
    pub(super) truncated: bool,
    /// The file could not be written.
    pub(super) failure: Option<LogFailure>,
}

impl Capture {
    /// A stream that goes to the file `path`, at most `max_bytes` of it; with `by_line`, lines are handed over too.
    pub(super) fn new(
        path: PathBuf,
        max_bytes: u64,
        by_line: Option<LineSplitter>,
        secrets: &[String],
    ) -> Result<Self, BuildError> {
        let log = Log { path, file: None, room: max_bytes, truncated: false, failure: None };
        let redactor = Redactor::new(secrets)?;
        Ok(Self { redactor, clean: Vec::new(), log, tail: VecDeque::new(), lines: by_line, bytes: 0 })
    }

    /// Takes bytes in: first to the disk, then line by line to whoever listens.
    pub(super) fn push(&mut self, bytes: &[u8], hand_over: &mut dyn FnMut(Line)) {
        self.bytes += bytes.len() as u64;
        if self.redactor.is_idle() {
            self.pass_on(bytes, hand_over);
        } else {
            let mut clean = std::mem::take(&mut self.clean);
            self.redactor.push(bytes, &mut clean);
            self.pass_on(&clean, hand_over);
            clean.clear();
            self.clean = clean;
        }
    }

    /// The stream is over.
    pub(super) fn finish(mut self, hand_over: &mut dyn FnMut(Line)) -> Captured {
        let mut rest = Vec::new();
        self.redactor.finish(&mut rest);
        self.pass_on(&rest, hand_over);
        if let Some(lines) = &mut self.lines {
            lines.finish(hand_over);
        }
        Captured { bytes: self.bytes, tail: self.tail.into(), truncated: self.log.truncated, failure: self.log.failure }
    }

    fn pass_on(&mut self, bytes: &[u8], hand_over: &mut dyn FnMut(Line)) {
        if bytes.is_empty() {
            return;
        }
        self.log.write(bytes);
        let last = &bytes[bytes.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + last.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.tail.extend(last);
        if let Some(lines) = &mut self.lines {
            lines.push(bytes, hand_over);
        }
    }
}

impl Log {
    /// Writes what there is room for. A failure is remembered and ends the file, not the child: its pipe has to be drained
    /// all the same, and whoever started it decides what a missing log means.
    fn write(&mut self, bytes: &[u8]) {
        let fits = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.truncated |= fits < bytes.len();
        if fits == 0 || self.failure.is_some() {
            return;
        }
        match self.write_all(&bytes[..fits]) {
            Ok(()) => self.room -= fits as u64,
            Err(error) => self.fail(&error),
        }
    }

    /// The file appears with its first byte: a file that stays empty costs as much as one that does not, and two per step
    /// would double the cost of a run of short steps. It is opened without following a link.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
            let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(&self.path)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        let no_space = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let message = format!("cannot write {}: {error}", self.path.display());
        self.failure = Some(LogFailure { no_space, message });
        self.truncated = true;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn capture(path: PathBuf, max_bytes: u64, secrets: &[String]) -> Capture {
        Capture::new(path, max_bytes, Some(LineSplitter::default()), secrets).unwrap()
    }

    #[test]
    fn f22_what_exceeds_the_limit_is_counted_and_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut stream = capture(path.clone(), 10, &[]);
        for _ in 0..1000 {
            stream.push(b"0123456\n", &mut |_| ());
        }
        let captured = stream.finish(&mut |_| ());
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456\n01");
        assert_eq!((captured.bytes, captured.truncated), (8000, true));
        assert!(captured.tail.ends_with(b"0123456\n"));
    }

    #[test]
    fn a_file_appears_with_its_first_byte_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut stream = capture(path.clone(), 10, &[]);
        stream.push(b"", &mut |_| ());
        assert!(!path.exists());
        stream.push(b"x", &mut |_| ());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_tail_is_the_end_of_the_stream() {
        let folder = tempfile::tempdir().unwrap();
        let mut stream = capture(folder.path().join("out"), 0, &[]);
        let all: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        for piece in all.chunks(7001) {
            stream.push(piece, &mut |_| ());
        }
        assert_eq!(stream.finish(&mut |_| ()).tail, all[all.len() - TAIL..]);
    }

    #[test]
    fn fr_l4_secrets_reach_neither_file_nor_line_nor_tail() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut lines = Vec::new();
        let mut stream = capture(path.clone(), 1000, &["canary-value".to_owned()]);
        stream.push(b"one canary", &mut |line| lines.push(line));
        stream.push(b"-value\ntwo", &mut |line| lines.push(line));
        let captured = stream.finish(&mut |line| lines.push(line));
        assert_eq!(lines, [Line::Whole(b"one [redacted]".to_vec()), Line::Whole(b"two".to_vec())]);
        assert_eq!(captured.tail, b"one [redacted]\ntwo");
        assert_eq!(std::fs::read(&path).unwrap(), captured.tail);
    }

    #[test]
    fn f08_a_log_that_cannot_be_written_is_told_and_ends_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = 0;
        let mut stream = capture(folder.path().join("missing").join("out"), 1000, &[]);
        stream.push(b"a\nb\n", &mut |_| lines += 1);
        let captured = stream.finish(&mut |_| lines += 1);
        assert_eq!(lines, 2);
        let failure = captured.failure.unwrap();
        assert!(failure.message.contains("missing/out") && !failure.no_space);
        let full = capture(PathBuf::from("/dev/full"), 1000, &[]);
        let mut full = full;
        full.push(b"a\n", &mut |_| ());
        assert!(full.finish(&mut |_| ()).failure.unwrap().no_space);
    }
}
