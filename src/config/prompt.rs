//! Prompt files: front matter with a version, then a template. Read and checked here; rendered by `domain::template`.

use serde::Deserialize;

use super::check::{refused, version};
use super::error::ConfigError;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::task::Prompt;
use crate::domain::template::{self, PromptValues, TemplateError};
use crate::yaml::{Document, MAX_BYTES, Position, YamlError, nearest};

pub use crate::domain::template::{invisible_chars, render_prompt};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "`version`")]
struct FrontMatter {
    version: String,
}

/// Reads a prompt file and checks its template against the values that it can name.
pub fn load_prompt(path: &str, bytes: &[u8], sample: &PromptValues) -> Result<Prompt, ConfigError> {
    let text = text(path, bytes)?;
    let (front, template) = split(path, text)?;
    let version = match front {
        Some(front) => front_version(path, front)?,
        None => content_version(template),
    };
    let first_line = text[..text.len() - template.len()].matches('\n').count();
    template::check(template, sample).map_err(|e| placed(path, text, first_line, &e))?;
    let sha256 = Sha256Hash::of(bytes).hex();
    Ok(Prompt { path: path.to_owned(), version, sha256, template: template.to_owned() })
}

/// A prompt given on the command line: a text, not a template.
pub fn prompt_from_text(text: &str) -> Prompt {
    Prompt {
        path: Prompt::COMMAND_LINE.to_owned(),
        version: content_version(text),
        sha256: Sha256Hash::of(text.as_bytes()).hex(),
        template: text.to_owned(),
    }
}

fn content_version(text: &str) -> String {
    format!("sha256-{}", &Sha256Hash::of(text.as_bytes()).hex()[..12])
}

fn text<'a>(path: &str, bytes: &'a [u8]) -> Result<&'a str, ConfigError> {
    let refuse = |message: &str| Err(ConfigError::unreadable(path, message));
    if bytes.len() > MAX_BYTES {
        return refuse(&format!("it is longer than {MAX_BYTES} bytes"));
    }
    match std::str::from_utf8(bytes) {
        Err(_) => refuse("it is not UTF-8"),
        Ok(text) if text.starts_with('\u{FEFF}') => refuse("it begins with a byte order mark; save it without"),
        Ok(text) if text.contains('\0') => refuse("it contains a NUL character"),
        Ok(text) if text.trim().is_empty() => refuse("it is empty"),
        Ok(text) => Ok(text),
    }
}

/// Front matter (with its first `---`, so that lines count from the file's beginning) and the rest.
fn split<'a>(path: &str, text: &'a str) -> Result<(Option<&'a str>, &'a str), ConfigError> {
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    let Some(first) = lines.next().filter(|line| is_fence(line)) else { return Ok((None, text)) };
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok((Some(&text[..end]), &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err(YamlError::new(Position::start(path), "the front matter has no end: a line `---` is missing", Some(text))
        .into())
}

fn front_version(path: &str, front: &str) -> Result<String, ConfigError> {
    let doc = Document::read(path, front.as_bytes())?;
    let front: FrontMatter = doc.deserialize()?;
    version(&front.version).map_err(|message| refused(&doc, &["version".into()], message))?;
    Ok(front.version)
}

/// An error of the template at its line in the file.
fn placed(path: &str, text: &str, first_line: usize, error: &TemplateError) -> ConfigError {
    let line = first_line + error.line();
    let (column, near) = match error {
        TemplateError::UnknownVariable { name, near, .. } => {
            let found = text.lines().nth(line - 1).and_then(|l| l.find(name).map(|at| l[..at].chars().count() + 1));
            (found.unwrap_or(1), nearest(name, near.iter().map(String::as_str)))
        }
        _ => (1, None),
    };
    let at = Position { file: path.into(), line, column };
    YamlError::new(at, error.to_string(), Some(text)).with_nearest(near).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Prompt, ConfigError> {
        let inputs = [("ticket".to_owned(), "LOGIN-42".to_owned())].into();
        load_prompt("prompts/fix.md", text.as_bytes(), &PromptValues::sample(&inputs))
    }

    #[test]
    fn the_documented_prompt_is_read_and_rendered() {
        let text = include_str!("../../tests/fixtures/config/prompts/fix.md");
        let prompt = load(text).unwrap();
        assert_eq!((prompt.version.as_str(), prompt.path.as_str()), ("v2.4.0", "prompts/fix.md"));
        assert_eq!(prompt.sha256, Sha256Hash::of(text.as_bytes()).hex(), "of the whole file");
        let values = PromptValues::sample(&[("ticket".to_owned(), "L".to_owned())].into());
        assert_eq!(render_prompt(&prompt, &values).unwrap(), "Fix L. Read these first:\n- x\n\n");
    }

    #[test]
    fn r_f5_without_a_version_the_text_names_itself() {
        let plain = load("Fix it.\n").unwrap();
        assert_eq!(plain.version, format!("sha256-{}", &plain.sha256[..12]));
        assert_ne!(plain.version, load("Fix it!\n").unwrap().version);
    }

    #[test]
    fn a_text_of_the_command_line_is_no_template() {
        let prompt = prompt_from_text("Explain {{ user.name }} in {% raw");
        assert_eq!(render_prompt(&prompt, &PromptValues::default()).unwrap(), prompt.template);
    }

    #[test]
    fn errors_name_the_place() {
        let rows = [
            (
                "---\nversion: v1\n---\na\n{{ inputs.tiket }}\n",
                "5:4: unknown variable `inputs.tiket`; did you mean `inputs.ticket`?",
            ),
            ("{{ run.idd }}", "1:4: unknown variable `run.idd`; did you mean `run.id`?"),
            ("a\n{% for x in y %}", "2:1: syntax error: unexpected end"),
            ("a\n\n{{ inputs.ticket | nope }}\n", "3:1: unknown filter"),
            ("---\nversion: v1\ntext: x\n---\nx", "3:1: unknown key `text`; known are version"),
            ("---\nversion: a,b\n---\nx", "2:10: `a,b` is no version"),
            ("---\nversion: sha256-0123456789ab\n---\nx", "2:10: `sha256-0123456789ab` is reserved"),
            ("---\nversion: v1\nx", "1:1: the front matter has no end"),
            ("---\n---\nx", "the file is empty"),
            ("---\nversion: v1\nversion: v2\n---\n", "3:1: duplicate key `version`"),
        ];
        for (text, expected) in rows {
            let shown = load(text).unwrap_err().to_string();
            assert!(shown.starts_with("prompts/fix.md:") && shown.contains(expected), "{text:?}: {shown}");
        }
        for bytes in [&b"\xFF\xFEx"[..], b"", b" \n", b"a\0b", b"\xEF\xBB\xBFx"] {
            assert!(load_prompt("p", bytes, &PromptValues::default()).is_err(), "{bytes:?}");
        }
    }
}
