//! Reads a file that another process appends to. A line counts when its end is there; a torn one waits, or stays in the
//! middle of the file when its writer died. Memory is bounded: a line that is longer than [`LONGEST`] is passed over.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Longer lines are not kept; the longest known ones hold a prompt of a million characters.
const LONGEST: usize = 16 << 20;

/// A file and how far it was read.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    read_to: u64,
    lines: Lines,
}

impl Tail {
    /// From the file's beginning.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read_to: 0, lines: Lines::default() }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes read so far.
    pub(crate) fn read_to(&self) -> u64 {
        self.read_to
    }

    /// Hands over each line that became whole since the last call, with the place where it begins.
    pub(crate) fn poll(&mut self, mut take: impl FnMut(u64, &[u8])) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut chunk = vec![0; 64 << 10];
        loop {
            let n = match file.read(&mut chunk) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if n == 0 {
                return Ok(());
            }
            self.read_to += n as u64;
            self.lines.push(&chunk[..n], &mut take);
        }
    }
}

/// Bytes in, lines out.
#[derive(Debug, Default)]
struct Lines {
    begins_at: u64,
    pending: Vec<u8>,
    passing_over: bool,
    passed: u64,
}

impl Lines {
    fn push(&mut self, mut bytes: &[u8], take: &mut impl FnMut(u64, &[u8])) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.keep(&bytes[..end]);
            if !self.passing_over {
                take(self.begins_at, &self.pending);
            }
            self.begins_at += self.passed + 1;
            self.pending.clear();
            self.passing_over = false;
            self.passed = 0;
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.passed += bytes.len() as u64;
        if self.pending.len() + bytes.len() > LONGEST {
            self.pending = Vec::new();
            self.passing_over = true;
        }
        if !self.passing_over {
            self.pending.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(chunks: &[&[u8]]) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        let mut lines = Lines::default();
        for chunk in chunks {
            lines.push(chunk, &mut |at, line| out.push((at, line.to_vec())));
        }
        out
    }

    #[test]
    fn a_torn_line_waits_for_its_end() {
        assert_eq!(lines(&[b"ab", b"c\nde"]), [(0, b"abc".to_vec())]);
        assert_eq!(lines(&[b"ab", b"c\nde", b"\n"]), [(0, b"abc".to_vec()), (4, b"de".to_vec())]);
    }

    #[test]
    fn an_endless_line_is_passed_over_and_the_next_one_read() {
        let long = vec![b'x'; LONGEST + 1];
        let place = long.len() as u64 + 1;
        assert_eq!(lines(&[&long, b"\nok\n"]), [(place, b"ok".to_vec())]);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(lines(&[&bytes]), lines(&[&bytes[..cut], &bytes[cut..]]));
        }
    }
}
