//! What a word of a shell line stands for. Best effort, and careful: what only the shell itself could know (a variable that nobody
//! set here, the output of a program) becomes [`UNKNOWN`] in the word, and is never taken for nothing.

use super::lexer::{Fills, skip_piece};

/// Stands in a word for a text that nobody can know before the shell runs.
pub(super) const UNKNOWN: char = '\u{0}';

/// Whoever knows variables, and what a command prints.
pub(super) trait Knows {
    /// The value of a variable, if it was set where we can see it.
    fn variable(&self, name: &str) -> Option<String>;
    /// What a script inside `$(…)` prints, if that can be told. It is also read for what it does.
    fn output(&mut self, script: &str) -> Option<String>;
    /// A file that is there only while the line runs: `<(…)`. Answers its name.
    fn file(&mut self, script: &str) -> String;
}

/// A reader that knows nothing.
struct Nobody;

impl Knows for Nobody {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn output(&mut self, _: &str) -> Option<String> {
        None
    }

    fn file(&mut self, _: &str) -> String {
        UNKNOWN.to_string()
    }
}

/// The words that a written word becomes: one, several, or none.
pub(super) fn expand(written: &str, knows: &mut dyn Knows) -> Vec<String> {
    let text = written.chars().collect();
    let mut reader = Reader { text, at: 0, knows, done: Vec::new(), word: String::new(), begun: false, quoted: false };
    reader.read();
    let Reader { mut done, word, begun, .. } = reader;
    if begun && (!word.is_empty() || done.is_empty()) {
        done.push(word);
    }
    let list = written.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).filter(|list| list.contains(','));
    match list {
        Some(list) if done.len() == 1 => list.split(',').map(plain).collect(),
        _ => done,
    }
}

/// The same as one text: where the shell does not part words.
pub(super) fn whole(written: &str, knows: &mut dyn Knows) -> String {
    expand(written, knows).join(" ")
}

/// A here-document with its variables filled in.
pub(super) fn document(text: &str, fills: Fills, knows: &mut dyn Knows) -> String {
    if fills == Fills::No {
        return text.to_owned();
    }
    let text = text.chars().collect();
    let mut reader = Reader { text, at: 0, knows, done: Vec::new(), word: String::new(), begun: true, quoted: true };
    while let Some(c) = reader.take() {
        match c {
            '$' => reader.dollar(),
            '`' => reader.backquote(),
            c => reader.word.push(c),
        }
    }
    reader.word
}

/// A word without its quotes, its variables unknown.
pub(super) fn plain(written: &str) -> String {
    whole(written, &mut Nobody)
}

/// The words of a text as the shell would part them: for aliases and lists in quotes.
pub(super) fn parted(text: &str) -> Vec<String> {
    let tokens = super::lexer::tokens(text).into_iter();
    let words = tokens.filter_map(|t| if let super::lexer::Token::Word(word) = t { Some(word) } else { None });
    words.flat_map(|word| expand(&word, &mut Nobody)).collect()
}

struct Reader<'k> {
    text: Vec<char>,
    at: usize,
    knows: &'k mut dyn Knows,
    done: Vec<String>,
    word: String,
    begun: bool,
    quoted: bool,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(c) = self.take() {
            match c {
                '<' | '>' if self.peek() == Some('(') => {
                    let script = self.inner(1, 1);
                    let name = self.knows.file(&script);
                    self.word.push_str(&name);
                }
                '\'' => self.single(),
                '"' => self.double(),
                '\\' => {
                    let next = self.take();
                    self.word.extend(next);
                }
                '$' if self.peek() == Some('\'') => self.ansi(),
                // A text to be translated: its quotes follow.
                '$' if self.peek() == Some('"') => {}
                '$' => self.dollar(),
                '`' => self.backquote(),
                c => self.word.push(c),
            }
            self.begun |= !matches!(c, '$' | '`') || !self.word.is_empty();
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    /// What stands inside the piece of which `taken` characters were read and `open` more open it. Goes behind it.
    fn inner(&mut self, taken: usize, open: usize) -> String {
        let end = skip_piece(&self.text, self.at - taken);
        let from = (self.at + open).min(end);
        let closed = end > from && matches!(self.text[end - 1], ')' | '}' | '`');
        let inner = self.text[from..if closed { end - 1 } else { end }].iter().collect();
        self.at = end;
        inner
    }

    fn single(&mut self) {
        while let Some(c) = self.take().filter(|c| *c != '\'') {
            self.word.push(c);
        }
    }

    fn double(&mut self) {
        self.quoted = true;
        while let Some(c) = self.take().filter(|c| *c != '"') {
            match c {
                '\\' => match self.take() {
                    Some(next) if "$`\"\\".contains(next) => self.word.push(next),
                    next => self.word.extend(['\\'].into_iter().chain(next)),
                },
                '$' => self.dollar(),
                '`' => self.backquote(),
                c => self.word.push(c),
            }
        }
        self.quoted = false;
    }

    /// `$'…'` with its escapes.
    fn ansi(&mut self) {
        self.at += 1;
        while let Some(c) = self.take().filter(|c| *c != '\'') {
            if c != '\\' {
                self.word.push(c);
                continue;
            }
            let (radix, most) = match self.take() {
                Some('x') => (16, 2),
                Some('u') => (16, 4),
                Some('0'..='7') => {
                    self.at -= 1;
                    (8, 3)
                }
                other => {
                    self.word.extend(other.map(|c| match c {
                        'n' => '\n',
                        't' => '\t',
                        c => c,
                    }));
                    continue;
                }
            };
            let rest = self.text[self.at..].iter();
            let digits: String = rest.take_while(|c| c.is_digit(radix)).take(most).collect();
            self.at += digits.len();
            self.word.extend(u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32));
        }
    }

    /// What follows a `$`.
    fn dollar(&mut self) {
        let name = |text: &[char]| text.iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect::<String>();
        match self.peek() {
            Some('(') if self.text.get(self.at + 1) == Some(&'(') => {
                let _ = self.inner(1, 1);
                self.put(None);
            }
            Some('(') => {
                let script = self.inner(1, 1);
                let output = self.knows.output(&script);
                self.put(output.map(|text| text.trim_end_matches('\n').to_owned()));
            }
            Some('{') => {
                let inner: Vec<char> = self.inner(1, 1).chars().collect();
                let name = name(&inner);
                let rest: String = inner[name.chars().count()..].iter().collect();
                let plain = rest.is_empty() || rest.starts_with(":-") || rest.starts_with('-');
                let value = self.knows.variable(&name).filter(|_| plain);
                self.put(value);
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let name = name(&self.text[self.at..]);
                self.at += name.chars().count();
                let value = self.knows.variable(&name);
                self.put(value);
            }
            Some(c) if c.is_ascii_digit() || "@*#?$!-".contains(c) => {
                self.at += 1;
                self.put(None);
            }
            _ => self.word.push('$'),
        }
    }

    fn backquote(&mut self) {
        let script = self.inner(1, 0).replace("\\`", "`");
        let output = self.knows.output(&script);
        self.put(output.map(|text| text.trim_end_matches('\n').to_owned()));
    }

    /// Puts a value into the word; without quotes around it, its blanks part words.
    fn put(&mut self, value: Option<String>) {
        let Some(value) = value else { return self.word.push(UNKNOWN) };
        if self.quoted {
            return self.word.push_str(&value);
        }
        let mut parts = value.split(char::is_whitespace);
        self.word.push_str(parts.next().unwrap_or_default());
        for part in parts {
            if !self.word.is_empty() {
                self.done.push(std::mem::take(&mut self.word));
            }
            self.word.push_str(part);
        }
    }
}
