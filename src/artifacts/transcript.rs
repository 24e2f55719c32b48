//! Reads log files for people (F94): what programs wrote is shown with its terminal controls made visible; the files keep
//! them raw. Following a log that grows, its end, or the whole of it; nothing is interpreted here.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::ArtifactError;
use crate::domain::text::neutral;

/// A line without an end is shown in pieces of this size.
const MAX_LINE: u64 = 256 << 10;

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tail {
    /// Neutral text, beginning at a line's start where the log was cut.
    pub text: String,
    /// True when there is more before it.
    pub cut: bool,
    /// Bytes of the whole log.
    pub size: u64,
}

/// The last `max` bytes of a log. One that was never written to does not exist and is empty.
pub fn tail(path: &Path, max: u64) -> Result<Tail, ArtifactError> {
    let Some(mut file) = open(path)? else { return Ok(Tail::default()) };
    read_tail(&mut file, max).map_err(|e| ArtifactError::io(path, e))
}

fn read_tail(file: &mut File, max: u64) -> io::Result<Tail> {
    let size = file.metadata()?.len();
    let from = size.saturating_sub(max);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    let start = match bytes.iter().position(|b| *b == b'\n') {
        Some(end) if from > 0 && end + 1 < bytes.len() => end + 1,
        _ => 0,
    };
    let text = String::from_utf8_lossy(&bytes[start..]);
    Ok(Tail { text: neutral(&text).into_owned(), cut: from > 0, size })
}

/// Follows a log: each call gives what was written since the last one.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    offset: u64,
}

impl Follower {
    /// From the beginning of a log, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), offset: 0 }
    }

    /// Writes whole lines that are new, neutral; with `Rest::Too` also an unfinished last one. Answers how many bytes of
    /// the log that was.
    pub fn copy(&mut self, out: &mut dyn Write, rest: Rest) -> Result<u64, ArtifactError> {
        let Some(file) = open(&self.path)? else { return Ok(0) };
        let before = self.offset;
        self.copy_from(file, out, rest).map_err(|e| ArtifactError::io(&self.path, e))?;
        Ok(self.offset - before)
    }

    fn copy_from(&mut self, mut file: File, out: &mut dyn Write, rest: Rest) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
            let whole = line.ends_with(b"\n") || read as u64 == MAX_LINE;
            if read == 0 || (!whole && rest == Rest::Later) {
                return Ok(());
            }
            out.write_all(neutral(&String::from_utf8_lossy(&line)).as_bytes())?;
            self.offset += read as u64;
        }
    }
}

/// What becomes of a last line that has no end yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// It comes with the next call.
    Later,
    /// It is written as it is: nothing more will come.
    Too,
}

/// The whole log, neutral.
pub fn copy_neutral(path: &Path, out: &mut dyn Write) -> Result<u64, ArtifactError> {
    Follower::new(path).copy(out, Rest::Too)
}

fn open(path: &Path) -> Result<Option<File>, ArtifactError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ArtifactError::io(path, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn f94_a_log_is_shown_neutral_and_stays_raw_on_disk() {
        let raw = b"\x1b]52;c;ZXZpbA==\x07\n\x1b[2Jgone\r\n\x9b31m\xff\n";
        let (_dir, path) = log(raw);
        let mut out = Vec::new();
        assert_eq!(copy_neutral(&path, &mut out).unwrap(), raw.len() as u64);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, "␛]52;c;ZXZpbA==␇\n␛[2Jgone\n\u{fffd}31m\u{fffd}\n");
        assert_eq!(std::fs::read(&path).unwrap(), raw);
    }

    #[test]
    fn a_tail_begins_with_a_whole_line_and_says_that_there_is_more() {
        let (_dir, path) = log(b"first line\nsecond\nthird\n");
        let end = tail(&path, 10).unwrap();
        assert_eq!((end.text.as_str(), end.cut, end.size), ("third\n", true, 24));
        let whole = tail(&path, 1000).unwrap();
        assert_eq!((whole.text.as_str(), whole.cut), ("first line\nsecond\nthird\n", false));
        let (_dir, path) = log(&[b'x'; 100]);
        assert_eq!(tail(&path, 10).unwrap().text, "x".repeat(10), "one long line is still shown");
        assert_eq!(tail(Path::new("/nonexistent/log"), 10).unwrap(), Tail::default());
    }

    #[test]
    fn a_follower_gives_each_line_once_and_none_in_halves() {
        use std::io::Write as _;
        let (_dir, path) = log(b"");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut follower = Follower::new(&path);
        let mut next = |text: &str, rest| {
            file.write_all(text.as_bytes()).unwrap();
            let mut out = Vec::new();
            follower.copy(&mut out, rest).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(next("one\ntw", Rest::Later), "one\n");
        assert_eq!(next("o\nthree", Rest::Later), "two\n");
        assert_eq!(next("", Rest::Too), "three");
        assert_eq!(next("\n", Rest::Too), "\n");
    }
}
