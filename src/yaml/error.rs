//! Where something stands and what is wrong with it. Says it in one line; shows it in an excerpt. Gives no advice.

use std::fmt;
use std::sync::Arc;

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The file, as the user names it.
    pub file: Arc<str>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Position {
    /// The beginning of a file.
    pub fn start(file: &str) -> Self {
        Self { file: file.into(), line: 1, column: 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a text was refused. As text: `tasks/182.yml:7:3: unknown key `promt`; did you mean `prompt`?`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}{}", suggestion(nearest.as_deref()))]
pub struct YamlError {
    /// Where.
    pub position: Position,
    /// What, in lower case.
    pub message: String,
    /// The valid name that is most like the one found.
    pub nearest: Option<String>,
    /// The line, for the excerpt.
    line: Option<String>,
}

/// A value that cannot be written as YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value cannot be written as YAML: {0}")]
pub struct RenderError(pub String);

/// The end of a message that names the nearest valid name.
pub(super) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

impl YamlError {
    /// An error at a place; `text` is the whole file, for the excerpt.
    pub fn new(position: Position, message: impl Into<String>, text: Option<&str>) -> Self {
        let line = text.and_then(|t| nth_line(t, position.line)).map(ToOwned::to_owned);
        Self { position, message: shown(&message.into()), nearest: None, line }
    }

    /// The same error, with the nearest valid name.
    #[must_use]
    pub fn with_nearest(self, nearest: Option<&str>) -> Self {
        Self { nearest: nearest.map(ToOwned::to_owned), ..self }
    }

    /// The message with the nearest name, without the place.
    pub fn what(&self) -> String {
        format!("{}{}", self.message, suggestion(self.nearest.as_deref()))
    }

    /// The line with a caret below the place; `None` where no line can be shown.
    pub fn excerpt(&self) -> Option<String> {
        let line = self.line.as_deref()?;
        let number = self.position.line.to_string();
        let (shown, column) = window(line, self.position.column);
        let pad = " ".repeat(number.len());
        Some(format!("{number} | {shown}\n{pad} | {}^", " ".repeat(column - 1)))
    }
}

/// At most 400 characters, without control characters: a message quotes what stands in a file, and a file must be able
/// neither to write to a terminal nor to fill it.
fn shown(message: &str) -> String {
    let clean = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let short: String = message.chars().take(400).map(clean).collect();
    if message.chars().nth(400).is_some() { format!("{short}…") } else { short }
}

/// Lines end as YAML says: `\n`, `\r\n`, `\r`.
fn nth_line(text: &str, number: usize) -> Option<&str> {
    let mut rest = text;
    for _ in 1..number {
        let end = rest.find(['\n', '\r'])?;
        let width = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + width..];
    }
    Some(&rest[..rest.find(['\n', '\r']).unwrap_or(rest.len())])
}

/// At most 100 characters around the column, with the column in the shown text. Control characters become blanks: an
/// excerpt must not be able to write to a terminal, and a tab would move the caret.
fn window(line: &str, column: usize) -> (String, usize) {
    const WIDTH: usize = 100;
    let first = column.saturating_sub(WIDTH / 2).saturating_sub(1);
    let first = if column <= WIDTH / 2 + 1 { 0 } else { first };
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let shown: String = line.chars().skip(first).take(WIDTH).map(clean).collect();
    (shown, (column - first).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_p1_an_error_names_file_line_column_and_shows_the_place() {
        let at = Position { file: "tasks/182.yml".into(), line: 2, column: 3 };
        let error = YamlError::new(at, "unknown key `promt`", Some("a: 1\n  promt: x\r\nb: 2\n"));
        let error = error.with_nearest(Some("prompt"));
        assert_eq!(error.to_string(), "tasks/182.yml:2:3: unknown key `promt`; did you mean `prompt`?");
        assert_eq!(error.excerpt().unwrap(), "2 |   promt: x\n  |   ^");
    }

    #[test]
    fn an_excerpt_is_short_and_moves_no_cursor() {
        let line = format!("{}\tx\u{1b}[31m", "y".repeat(5000));
        let error = YamlError::new(Position { file: "f".into(), line: 1, column: 5002 }, "m", Some(&line));
        let excerpt = error.excerpt().unwrap();
        let (shown, caret) = excerpt.split_once('\n').unwrap();
        assert!(shown.len() < 120 && !excerpt.contains(['\t', '\u{1b}']));
        assert_eq!(shown.as_bytes()[caret.len() - 1], b'x');
        let message = format!("`\u{1b}[2J{}`", "z".repeat(5000));
        let error = YamlError::new(Position::start("f"), message, None).to_string();
        assert!(error.starts_with("f:1:1: `\\u{1b}[2Jzz") && error.chars().count() < 450, "{error}");
    }
}
