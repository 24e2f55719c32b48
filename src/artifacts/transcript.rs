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
