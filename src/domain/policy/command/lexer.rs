//! A shell text in pieces: words as they are written, operators, redirections. What a word stands for is said when its command's
//! turn comes ([`super::words`]), for only then the variables before it are set.

use super::words::plain;

/// One piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word as it is written, with its quotes.
    Word(String),
    /// `;`, `&&`, `|`, `(`, a line end …
    Operator(&'static str),
    /// Input or output that goes elsewhere.
    Redirect(Redirect),
}

/// Where input comes from or output goes; words as they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// `< file`
    From(String),
    /// `<<< word`
    Word(String),
    /// A here-document; with variables in it, or as it stands.
    Document(String, Fills),
    /// `> file`, `>> file`.
    Into(String),
    /// Anything else: of another stream, to another stream.
    Other,
}

/// Whether variables in a here-document are filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fills {
    /// They are.
    Yes,
    /// It stands as it is.
    No,
}

const OPERATORS: [&str; 9] = ["&&", "||", ";;", "|&", ";", "&", "|", "(", ")"];

/// The pieces of a text.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let text = text.replace("\\\n", "").chars().collect();
    Lexer { text, at: 0, pending: Vec::new(), tokens: Vec::new() }.all()
}

/// A here-document whose text begins with the next line.
struct Pending {
    token: usize,
    delimiter: String,
    strips_tabs: bool,
    fills: Fills,
}

struct Lexer {
    text: Vec<char>,
    at: usize,
    pending: Vec<Pending>,
    tokens: Vec<Token>,
}

impl Lexer {
    fn all(mut self) -> Vec<Token> {
        while let Some(c) = self.peek() {
            match c {
                '\n' => {
                    self.at += 1;
                    self.here_documents();
                    self.tokens.push(Token::Operator("\n"));
                }
                c if c.is_whitespace() => self.at += 1,
                '#' => self.skip_comment(),
                _ if self.starts("<(") || self.starts(">(") => self.word(),
                '<' | '>' => self.redirect(),
                '&' if self.starts("&>") => self.redirect(),
                c if c.is_ascii_digit() && self.is_of_a_stream() => self.redirect_of_a_stream(),
                _ => match OPERATORS.iter().find(|op| self.starts(op)) {
                    Some(&op) => {
                        self.at += op.len();
                        self.tokens.push(Token::Operator(op));
                    }
                    None => self.word(),
                },
            }
        }
        self.here_documents();
        self.tokens
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.text.get(self.at + i) == Some(&c))
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    /// `2>`: a redirection of another stream.
    fn is_of_a_stream(&self) -> bool {
        let digits = self.text[self.at..].iter().take_while(|c| c.is_ascii_digit()).count();
        matches!(self.text.get(self.at + digits), Some('<' | '>'))
    }

    fn redirect_of_a_stream(&mut self) {
        let number: String = self.text[self.at..].iter().take_while(|c| c.is_ascii_digit()).collect();
        self.at += number.len();
        self.redirect();
        if let (false, Some(Token::Redirect(redirect))) =
            (["0", "1"].contains(&number.as_str()), self.tokens.last_mut())
        {
            *redirect = Redirect::Other;
        }
    }

    fn redirect(&mut self) {
        let begin = self.at;
        while self.peek().is_some_and(|c| "<>&|".contains(c)) && self.at - begin < 3 {
            self.at += 1;
        }
        let operator: String = self.text[begin..self.at].iter().collect();
        if operator == "<<" {
            return self.here_document();
        }
        let target = self.next_word();
        self.tokens.push(Token::Redirect(match operator.as_str() {
            "<" | "<>" => Redirect::From(target),
            "<<<" => Redirect::Word(target),
            ">" | ">>" | ">|" | "&>" | "&>>" => Redirect::Into(target),
            _ => Redirect::Other,
        }));
    }

    fn next_word(&mut self) -> String {
        while self.peek().is_some_and(|c| c == ' ' || c == '\t') {
            self.at += 1;
        }
        let begin = self.at;
        self.skip_word();
        self.text[begin..self.at].iter().collect()
    }

    fn here_document(&mut self) {
        let strips_tabs = self.peek() == Some('-');
        self.at += usize::from(strips_tabs);
        let written = self.next_word();
        let fills = if written.contains(['\'', '"', '\\']) { Fills::No } else { Fills::Yes };
        self.pending.push(Pending { token: self.tokens.len(), delimiter: plain(&written), strips_tabs, fills });
        self.tokens.push(Token::Redirect(Redirect::Other));
    }

    fn here_documents(&mut self) {
        for Pending { token, delimiter, strips_tabs, fills } in std::mem::take(&mut self.pending) {
            let mut text = String::new();
            while self.at < self.text.len() {
                let line: String = self.text[self.at..].iter().take_while(|c| **c != '\n').collect();
                self.at = (self.at + line.chars().count() + 1).min(self.text.len());
                let line = if strips_tabs { line.trim_start_matches('\t') } else { &line };
                if line == delimiter {
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            self.tokens[token] = Token::Redirect(Redirect::Document(text, fills));
        }
    }

    fn word(&mut self) {
        let begin = self.at;
        self.skip_word();
        // Whatever cannot begin a word is passed over, so that this always ends.
        self.at = self.at.max(begin + 1);
        self.tokens.push(Token::Word(self.text[begin..self.at].iter().collect()));
    }

    fn skip_word(&mut self) {
        while let Some(c) = self.peek() {
            let opens = self.starts("<(") || self.starts(">(");
            if !opens && (c.is_whitespace() || ";|&<>()".contains(c)) {
                break;
            }
            self.at = skip_piece(&self.text, self.at);
        }
    }
}

/// The end of the piece that begins here: a character, a quoted text, `$(…)`, `${…}`, `` `…` ``, `<(…)`.
pub(super) fn skip_piece(text: &[char], at: usize) -> usize {
    let next = text.get(at + 1).copied();
    let end = match (text[at], next) {
        ('\\', _) => at + 2,
        ('$', Some('\'')) => {
            let mut end = at + 2;
            while end < text.len() && text[end] != '\'' {
                end += if text[end] == '\\' { 2 } else { 1 };
            }
            end + 1
        }
        ('\'', _) => closing(text, at + 1, '\''),
        ('"', _) => closing(text, at + 1, '"'),
        ('`', _) => closing(text, at + 1, '`'),
        ('$' | '<' | '>', Some('(')) => closing(text, at + 2, ')'),
        ('$', Some('{')) => closing(text, at + 2, '}'),
        _ => at + 1,
    };
    end.min(text.len())
}

/// Behind what closes a piece that was opened before `at`.
fn closing(text: &[char], at: usize, close: char) -> usize {
    let mut at = at;
    let mut depth = 0_u32;
    while at < text.len() {
        match text[at] {
            c if c == close && depth == 0 => return at + 1,
            _ if close == '\'' => at += 1,
            ')' if close == ')' => {
                depth -= 1;
                at += 1;
            }
            '(' if close == ')' => {
                depth += 1;
                at += 1;
            }
            '\'' if close == '"' => at += 1,
            _ => at = skip_piece(text, at),
        }
    }
    at
}
