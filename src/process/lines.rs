//! Cuts a stream of bytes into lines, in bounded memory. Whether a line means anything is not its business.

/// A longer line is counted, not kept: no protocol needs it, and memory has to stay bounded.
pub(super) const LONGEST_LINE: usize = 8 << 20;

/// What a buffer may keep between two lines.
const USUAL_LINE: usize = 64 << 10;

/// One line, as it can be handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Its bytes, without the newline.
    Whole(Vec<u8>),
    /// Only its length in bytes.
    TooLong(u64),
}

/// The line that is being collected.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    collected: Vec<u8>,
    /// Bytes of the current line beyond those that are collected.
    dropped: u64,
}

impl LineSplitter {
    /// Takes bytes in and hands each line over that they complete.
    pub(super) fn push(&mut self, bytes: &[u8], hand_over: &mut dyn FnMut(Line)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.collect(&rest[..end]);
            hand_over(self.take());
            rest = &rest[end + 1..];
        }
        self.collect(rest);
    }

    /// The stream is over: a last line may lack its newline.
    pub(super) fn finish(&mut self, hand_over: &mut dyn FnMut(Line)) {
        if !self.collected.is_empty() || self.dropped > 0 {
            hand_over(self.take());
        }
    }

    fn collect(&mut self, bytes: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.collected.len());
        let kept = bytes.len().min(room);
        self.collected.extend_from_slice(&bytes[..kept]);
        self.dropped += (bytes.len() - kept) as u64;
    }

    fn take(&mut self) -> Line {
        if self.dropped == 0 {
            return Line::Whole(std::mem::take(&mut self.collected));
        }
        let bytes = self.collected.len() as u64 + std::mem::take(&mut self.dropped);
        self.collected.clear();
        self.collected.shrink_to(USUAL_LINE);
        Line::TooLong(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<Line> {
        let mut splitter = LineSplitter::default();
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece, &mut |line| lines.push(line));
        }
        splitter.finish(&mut |line| lines.push(line));
        lines
    }

    #[test]
    fn f23_bytes_are_kept_as_they_are() {
        let whole = |bytes: &[u8]| Line::Whole(bytes.to_vec());
        assert_eq!(
            lines_of(&[b"a\xff\0\rb", b"c\r\n\n", b"last"]),
            [whole(b"a\xff\0\rbc\r"), whole(b""), whole(b"last")]
        );
        assert_eq!(lines_of(&[b"", b"x\n"]), [whole(b"x")]);
        assert_eq!(lines_of(&[]), []);
    }

    #[test]
    fn f23_a_line_that_is_too_long_is_counted() {
        let long = vec![b'x'; LONGEST_LINE];
        assert_eq!(lines_of(&[&long, b"\n"]), [Line::Whole(long.clone())]);
        let expected = [Line::TooLong(LONGEST_LINE as u64 + 3), Line::Whole(b"y".to_vec())];
        assert_eq!(lines_of(&[&long, b"xxx\ny"]), expected);
    }
}
