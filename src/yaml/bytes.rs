//! From bytes to a text that both YAML parsers read alike: size, encoding, control characters. Knows no YAML yet.

use super::MAX_BYTES;
use super::error::{Position, YamlError};

/// Checks size and encoding and gives the text.
pub(super) fn text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, YamlError> {
    let at_start = |message: String| YamlError::new(Position::start(file), message, None);
    if bytes.len() > MAX_BYTES {
        return Err(at_start(format!("the file has {} bytes; at most {MAX_BYTES} are read", bytes.len())));
    }
    match bytes {
        [0xEF, 0xBB, 0xBF, ..] => {
            return Err(at_start("the file begins with a byte order mark; save it without".into()));
        }
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [0, _, ..] | [_, 0, ..] => {
            return Err(at_start("the file is UTF-16 or UTF-32; save it as UTF-8".into()));
        }
        _ => {}
    }
    let text = std::str::from_utf8(bytes).map_err(|e| invalid_utf8(file, bytes, e.valid_up_to()))?;
    match text.char_indices().find(|(_, c)| refused(*c)) {
        None => Ok(text),
        Some((offset, c)) => {
            let message = format!("the character U+{:04X} is not allowed", u32::from(c));
            Err(YamlError::new(position(file, &text[..offset]), message, Some(text)))
        }
    }
}

/// Control characters, and the three line ends that YAML 1.1 knows and YAML 1.2 does not: with them the two parsers
/// would count other lines, and a person sees one line where a parser sees two.
fn refused(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{2028}' | '\u{2029}' | '\u{FEFF}')
}

fn invalid_utf8(file: &str, bytes: &[u8], valid: usize) -> YamlError {
    let before = std::str::from_utf8(&bytes[..valid]).unwrap_or_default();
    let byte = bytes.get(valid).copied().unwrap_or_default();
    YamlError::new(position(file, before), format!("the byte 0x{byte:02x} is not UTF-8"), None)
}

/// The position after a text.
pub(super) fn position(file: &str, before: &str) -> Position {
    let unified = before.replace("\r\n", "\n").replace('\r', "\n");
    let line_start = unified.rfind('\n').map_or(0, |i| i + 1);
    let line = unified.matches('\n').count() + 1;
    Position { file: file.into(), line, column: unified[line_start..].chars().count() + 1 }
}
