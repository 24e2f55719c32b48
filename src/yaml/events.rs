//! The first pass: events to a tree, refusing every construct by which a text can mean something else than it shows.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::error::{Position, YamlError};
use super::node::{Entry, Node, NodeKind, Style};
use super::{Author, MAX_DEPTH};

/// Reads the one document of a text.
pub(super) fn tree(file: &str, text: &str, author: Author) -> Result<Node, YamlError> {
    let pass = Pass { file: file.into(), text, parser: Parser::new_from_str(text), author };
    pass.document()
}

struct Pass<'a> {
    file: std::sync::Arc<str>,
    text: &'a str,
    parser: Parser<'a, StrInput<'a>>,
    author: Author,
}

impl<'a> Pass<'a> {
    fn document(mut self) -> Result<Node, YamlError> {
        self.refuse_directives()?;
        let root = loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(_), _) => {}
                (Event::StreamEnd, _) => return Err(self.empty()),
                (event, span) => break self.node(event, span, 1)?,
            }
        };
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => break,
                (Event::DocumentEnd, _) => {}
                (_, span) => return Err(self.error(span, "a second document begins here; one file holds one document")),
            }
        }
        match &root.kind {
            NodeKind::Scalar(text, Style::Plain) if is_null(text) => Err(self.empty()),
            NodeKind::Map(_) => Ok(root),
            _ => Err(YamlError::new(root.position, "the file must hold keys and values", Some(self.text))),
        }
    }

    /// `%YAML` and `%TAG` change how the rest is read.
    fn refuse_directives(&self) -> Result<(), YamlError> {
        let content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let first = self.text.split(['\n', '\r']).find(content);
        match first {
            Some(line) if line.starts_with('%') => {
                let offset = line.as_ptr() as usize - self.text.as_ptr() as usize;
                let at = super::bytes::position(&self.file, &self.text[..offset]);
                Err(YamlError::new(at, "directives are not allowed", Some(self.text)))
            }
            _ => Ok(()),
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(e)) => Err(self.scan_error(&e)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, YamlError> {
        if depth > MAX_DEPTH {
            return Err(self.too_deep(span));
        }
        self.refuse_references(&event, span)?;
        let kind = match event {
            Event::Scalar(text, style, ..) => self.scalar(text.into_owned(), style, span)?,
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            _ => return Err(self.error(span, "a value was expected here")),
        };
        Ok(Node { position: self.position(span), kind })
    }

    /// Anchors and aliases make a value stand where it is not written; tags make it something else than it looks.
    fn refuse_references(&self, event: &Event<'a>, span: Span) -> Result<(), YamlError> {
        let (anchor, tag) = match event {
            Event::Alias(_) => return Err(self.error(span, "aliases are not allowed; write the value out")),
            Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor, tag)
            }
            _ => return Ok(()),
        };
        if anchor != 0 {
            return Err(self.error(span, "anchors are not allowed; write the value out where it is used"));
        }
        match tag {
            Some(tag) => Err(self.error(span, format!("tags such as `{tag}` are not allowed"))),
            None => Ok(()),
        }
    }

    fn scalar(&self, text: String, style: ScalarStyle, span: Span) -> Result<NodeKind, YamlError> {
        // A text with NUL ends early wherever it becomes an argument or an environment variable.
        if text.contains('\0') {
            return Err(self.error(span, "a text with a NUL character is not allowed"));
        }
        if style != ScalarStyle::Plain {
            return Ok(NodeKind::Scalar(text, Style::Quoted));
        }
        // YAML 1.1, YAML 1.2 and people disagree about these; a lower-case word or quotes leave no doubt.
        if matches!(text.as_str(), "True" | "TRUE" | "False" | "FALSE") {
            let lower = text.to_ascii_lowercase();
            return Err(self.error(span, format!("`{text}` is ambiguous: write {lower}, or quote it")));
        }
        Ok(NodeKind::Scalar(text, Style::Plain))
    }

    fn list(&mut self, depth: usize) -> Result<NodeKind, YamlError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(NodeKind::List(items));
            }
            let item = self.node(event, span, depth + 1)?;
            if self.lacks_value(&item) {
                return Err(self.error(span, "an item of this list has no value"));
            }
            items.push(item);
        }
    }

    fn map(&mut self, depth: usize) -> Result<NodeKind, YamlError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(NodeKind::Map(entries));
            }
            let key = self.key(event, span)?;
            let position = self.position(span);
            if let Some(first) = seen.insert(key.clone(), position.line) {
                return Err(self.error(span, format!("duplicate key `{key}`, first in line {first}")));
            }
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, depth + 1)?;
            if self.lacks_value(&value) {
                return Err(self.error(span, format!("`{key}` has no value; write one or remove the key")));
            }
            entries.push(Entry { key, position, value });
        }
    }

    /// Keys are visible ASCII text, so that no two of them can look the same (Unicode has several spellings of one
    /// letter) and none of them is read as a number or truth value by another program.
    fn key(&self, event: Event<'a>, span: Span) -> Result<String, YamlError> {
        self.refuse_references(&event, span)?;
        let Event::Scalar(text, style, ..) = event else {
            return Err(self.error(span, "a key must be a text"));
        };
        if style == ScalarStyle::Plain {
            if text == "<<" {
                return Err(self.error(span, "merge keys (`<<`) are not allowed; write the values out"));
            }
            if self.author == Author::Person && (is_null(&text) || is_bool(&text) || is_number(&text)) {
                return Err(self.error(span, format!("the key `{text}` is no text; put it in quotes")));
            }
        }
        let visible = |c: char| c.is_ascii_graphic() || c == ' ';
        let plain = !text.is_empty() && text.trim() == text && text.chars().all(visible);
        if self.author == Author::Person && !plain {
            let text = text.escape_default();
            return Err(self.error(span, format!("the key `{text}` must be visible ASCII text")));
        }
        Ok(text.into_owned())
    }

    fn lacks_value(&self, node: &Node) -> bool {
        let null = matches!(&node.kind, NodeKind::Scalar(text, Style::Plain) if is_null(text));
        null && self.author == Author::Person
    }

    fn position(&self, span: Span) -> Position {
        Position { file: self.file.clone(), line: span.start.line().max(1), column: span.start.col() + 1 }
    }

    fn error(&self, span: Span, message: impl Into<String>) -> YamlError {
        YamlError::new(self.position(span), message, Some(self.text))
    }

    fn scan_error(&self, error: &ScanError) -> YamlError {
        let at = Span::empty(*error.marker());
        match error.info() {
            // The scanner looks ahead, so its own limit can be met before ours.
            info if info.contains("recursion limit") => self.too_deep(at),
            info => self.error(at, format!("not valid YAML: {info}")),
        }
    }

    fn too_deep(&self, span: Span) -> YamlError {
        self.error(span, format!("nested more than {MAX_DEPTH} levels deep"))
    }

    fn empty(&self) -> YamlError {
        YamlError::new(Position::start(&self.file), "the file is empty", None)
    }
}

pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Truth values of YAML 1.1 and 1.2.
fn is_bool(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    matches!(lower.as_str(), "true" | "false" | "yes" | "no" | "on" | "off")
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let special = matches!(digits.to_ascii_lowercase().as_str(), ".inf" | ".nan");
    let radix = digits.starts_with("0x") || digits.starts_with("0o");
    let decimal = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.parse::<f64>().is_ok();
    special || radix || decimal
}
