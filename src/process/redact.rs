//! Keeps secrets out of everything that is written down: each occurrence of a secret, also of its usual encodings and
//! also split over several reads, becomes `[redacted]`. It does not know where secrets come from, and it finds no secret
//! that a program disguised on purpose.

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

/// What stands in the place of a secret.
pub const REDACTED: &[u8] = b"[redacted]";

/// Shorter values are left alone: `true` or `8080` would be found everywhere.
const SHORTEST: usize = 6;

/// Replaces secrets in a stream of bytes.
///
/// What could still become a secret with the next bytes is held back; everything else passes at once, so a complete line
/// never waits for the next one.
#[derive(Debug)]
pub struct Redactor {
    search: Option<Search>,
    held: Vec<u8>,
    /// This many of the held bytes belong to a secret whose replacement is already written.
    covered: usize,
}

#[derive(Debug)]
struct Search {
    automaton: AhoCorasick,
    patterns: Vec<Vec<u8>>,
    longest: usize,
    /// Bytes with which a pattern begins: most positions are ruled out by one look.
    first: Box<[bool; 256]>,
}

impl Redactor {
    /// A redactor for these secrets. Fails only when they are too large to be searched for.
    pub fn new(secrets: &[String]) -> Result<Self, BuildError> {
        let patterns = patterns(secrets);
        let search = if patterns.is_empty() { None } else { Some(Search::new(patterns)?) };
        Ok(Self { search, held: Vec::new(), covered: 0 })
    }

    /// True when there is nothing to look for: the bytes may go their way without it.
    pub fn is_idle(&self) -> bool {
        self.search.is_none()
    }

    /// Takes bytes in and appends to `out` what is certain by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.held.extend_from_slice(bytes);
        let keep_from = self.search.as_ref().map_or(self.held.len(), |search| search.open_end(&self.held));
        self.release(keep_from, out);
    }

    /// The stream is over: what was held back is no secret.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.release(self.held.len(), out);
    }

    /// Writes the held bytes before `keep_from`, with secrets replaced. A secret that begins before it and ends after it
    /// is replaced now; the rest of it is remembered as covered.
    fn release(&mut self, keep_from: usize, out: &mut Vec<u8>) {
        let mut at = 0;
        for (start, end) in self.secret_ranges() {
            if start >= keep_from && start >= self.covered {
                break;
            }
            out.extend_from_slice(&self.held[at..start]);
            if start > 0 || self.covered == 0 {
                out.extend_from_slice(REDACTED);
            }
            at = end;
        }
        if at < keep_from {
            out.extend_from_slice(&self.held[at..keep_from]);
        }
        self.covered = at.saturating_sub(keep_from);
        self.held.drain(..keep_from);
    }

    /// Where secrets stand in the held bytes; overlapping ones are one range.
    fn secret_ranges(&self) -> Vec<(usize, usize)> {
        let mut found = match &self.search {
            Some(search) => search.occurrences(&self.held),
            None => Vec::new(),
        };
        if self.covered > 0 {
            found.push((0, self.covered));
        }
        found.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (start, end) in found {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged
    }
}

impl Search {
    fn new(patterns: Vec<Vec<u8>>) -> Result<Self, BuildError> {
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&patterns)?;
        let mut first = Box::new([false; 256]);
        for pattern in &patterns {
            first[usize::from(pattern[0])] = true;
        }
        let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
        Ok(Self { automaton, patterns, longest, first })
    }

    fn occurrences(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        // Most output holds no secret, and the plain search is the fast one.
        if !self.automaton.is_match(bytes) {
            return Vec::new();
        }
        self.automaton.find_overlapping_iter(bytes).map(|found| (found.start(), found.end())).collect()
    }

    /// The first position from which the bytes up to their end are the beginning of a secret, or the end.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let earliest = bytes.len().saturating_sub(self.longest - 1);
        let is_open = |start: &usize| {
            let rest = &bytes[*start..];
            self.first[usize::from(rest[0])]
                && self.patterns.iter().any(|pattern| pattern.len() > rest.len() && pattern.starts_with(rest))
        };
        (earliest..bytes.len()).find(is_open).unwrap_or(bytes.len())
    }
}

/// The forms in which each secret is looked for.
fn patterns(secrets: &[String]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for secret in secrets.iter().filter(|secret| secret.chars().count() >= SHORTEST) {
        let bytes = secret.as_bytes();
        all.push(bytes.to_vec());
        all.extend(in_json(secret));
        for kept in ["-._~", "-_.!~*'()"] {
            all.push(in_url(bytes, kept, "0123456789ABCDEF"));
            all.push(in_url(bytes, kept, "0123456789abcdef"));
        }
        for alphabet in [*b"+/", *b"-_"] {
            all.extend((0..3).map(|offset| in_base64(bytes, offset, alphabet)));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// As it stands inside a JSON text: a key in PEM form is one line there.
fn in_json(secret: &str) -> Option<Vec<u8>> {
    let quoted = serde_json::to_string(secret).ok()?;
    Some(quoted.as_bytes().get(1..quoted.len() - 1)?.to_vec())
}

/// As it stands in a URL. Encoders differ in which marks they leave alone and in the case of their digits.
fn in_url(bytes: &[u8], kept: &str, digits: &str) -> Vec<u8> {
    let digit = |value: u8| digits.as_bytes()[usize::from(value)];
    let mut out = Vec::new();
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(byte) {
            out.push(*byte);
        } else {
            out.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}

/// As it stands within a longer base64 text (`user:secret`), `offset` bytes after a multiple of three: only the letters
/// that the neighbours cannot change.
fn in_base64(bytes: &[u8], offset: usize, last_two: [u8; 2]) -> Vec<u8> {
    let letter = |value: u8| match value {
        0..26 => b'A' + value,
        26..52 => b'a' + value - 26,
        52..62 => b'0' + value - 52,
        62 => last_two[0],
        _ => last_two[1],
    };
    let bit = |index: usize| {
        let index = index - 8 * offset;
        (bytes[index / 8] >> (7 - index % 8)) & 1
    };
    let from = (8 * offset).div_ceil(6);
    let to = 8 * (offset + bytes.len()) / 6;
    (from..to).map(|at| letter((6 * at..6 * at + 6).fold(0, |value, index| value << 1 | bit(index)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redact_in(secrets: &[&str], pieces: &[&[u8]]) -> String {
        let secrets: Vec<String> = secrets.iter().map(|secret| (*secret).to_owned()).collect();
        let mut redactor = Redactor::new(&secrets).unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            redactor.push(piece, &mut out);
        }
        redactor.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fr_l4_a_secret_split_over_two_writes_is_found() {
        assert_eq!(redact_in(&["s3cr3t-value"], &[b"a s3cr", b"3t-value b"]), "a [redacted] b");
        assert_eq!(redact_in(&["s3cr3t-value"], &[b"s3cr", b"3t-valu", b"!"]), "s3cr3t-valu!");
    }

    #[test]
    fn fr_l4_the_usual_encodings_are_found() {
        let secret = "p&ss w0rd/\"x\"";
        for form in ["p%26ss%20w0rd%2F%22x%22", "p%26ss%20w0rd%2f%22x%22", "p&ss w0rd/\\\"x\\\""] {
            assert_eq!(redact_in(&[secret], &[b"<", form.as_bytes(), b">"]), "<[redacted]>", "{form}");
        }
        // `secret-canary` alone, after `u:` and after `me:`; what is left of it are letters shared with neighbours.
        for text in ["c2VjcmV0LWNhbmFyeQ==", "dTpzZWNyZXQtY2FuYXJ5", "bWU6c2VjcmV0LWNhbmFyeTo="] {
            let redacted = redact_in(&["secret-canary"], &[text.as_bytes()]);
            assert!(redacted.contains("[redacted]") && redacted.len() < 20, "{text} became {redacted}");
        }
    }

    #[test]
    fn short_values_are_left_alone() {
        assert_eq!(redact_in(&["12345", "", "true"], &[b"12345 true"]), "12345 true");
    }

    #[test]
    fn overlapping_secrets_leave_nothing_behind() {
        assert_eq!(redact_in(&["abcdef", "abcdef123456"], &[b"abcdef", b"123456."]), "[redacted].");
        assert_eq!(redact_in(&["xxabcd", "abcdyyzz"], &[b"-xxabcd", b"yyzz-"]), "-[redacted]-");
        assert_eq!(redact_in(&["aaaaaa"], &[&[b'a'; 1000], &[b'a'; 1000], b"b"]), "[redacted]b");
    }

    #[test]
    fn a_complete_line_does_not_wait() {
        let mut redactor = Redactor::new(&["s3cr3t-value".to_owned()]).unwrap();
        let mut out = Vec::new();
        redactor.push(b"{\"type\":\"message\"}\n", &mut out);
        assert_eq!(out, b"{\"type\":\"message\"}\n");
    }

    proptest! {
        /// However the bytes are cut, the result is the same as in one piece, and no secret is in it.
        #[test]
        fn fr_l4_cuts_change_nothing(text in "[ab]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..6)) {
            let secrets = ["aababb", "babbaaab", "aaaaaa"];
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let whole = redact_in(&secrets, &[text.as_bytes()]);
            prop_assert_eq!(&redact_in(&secrets, &pieces), &whole);
            prop_assert!(secrets.iter().all(|secret| !whole.contains(secret)));
        }
    }
}
