//! Makes foreign text harmless to look at (F94): what agents, tools and repositories wrote is shown, never obeyed. It
//! does not escape for Markdown or HTML, which each report does for itself.

use std::borrow::Cow;

/// Text in which nothing moves a cursor, hides, reorders or links: each such character is replaced by one that can be
/// seen. Line ends and tabs stay, `CR LF` becomes a line end, and colour sequences, which change nothing but colour, go.
pub fn neutral(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = if c == '\r' && after.starts_with('\n') {
            after
        } else if let Some(after) = after_colour(rest) {
            after
        } else {
            push_visible(&mut out, c);
            after
        };
    }
    Cow::Owned(out)
}

/// The same for a place that has one line only: line ends and tabs are made visible too.
pub fn neutral_line(text: &str) -> Cow<'_, str> {
    match neutral(text) {
        plain if !plain.contains(['\n', '\t']) => plain,
        lines => Cow::Owned(lines.replace('\n', "␊").replace('\t', "␉")),
    }
}

/// How many characters of a text cannot be seen or change how others are seen, for a warning beside it (F95).
pub fn hidden_characters(text: &str) -> usize {
    text.chars().filter(|c| !c.is_control() && !is_harmless(*c)).count()
}

/// At most `max` characters; a cut is marked.
pub fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    if text.chars().nth(max).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = text.chars().take(max.saturating_sub(1)).collect::<String>();
    Cow::Owned(format!("{kept}…"))
}

fn is_harmless(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || is_hidden(c))
}

/// Characters that reorder or cannot be seen. The joiners U+200C and U+200D stay: scripts and emoji need them.
fn is_hidden(c: char) -> bool {
    matches!(
        u32::from(c),
        0x00AD
            | 0x061C
            | 0x180E
            | 0x200B
            | 0x200E
            | 0x200F
            | 0x2028
            | 0x2029
            | 0x202A..=0x202E
            | 0x2060..=0x206F
            | 0xFEFF
            | 0xFFF9..=0xFFFB
            | 0xE0000..=0xE0FFF
    )
}

fn push_visible(out: &mut String, c: char) {
    use std::fmt::Write as _;
    match u32::from(c) {
        _ if is_harmless(c) => out.push(c),
        code @ 0..=0x1f => out.push(char::from_u32(0x2400 + code).unwrap_or('\u{fffd}')),
        0x7f => out.push('␡'),
        code => {
            let _ = write!(out, "<U+{code:04X}>");
        }
    }
}

/// What follows a colour sequence (`ESC [ … m`) at the beginning of `text`.
fn after_colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !(c.is_ascii_digit() || matches!(c, ';' | ':')))?;
    parameters[end..].strip_prefix('m')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn f94_the_terminal_corpus_is_neutral_and_still_readable() {
        let corpus = [
            ("\u{1b}]52;c;ZXZpbA==\u{7}", "␛]52;c;ZXZpbA==␇"),
            ("\u{1b}]8;;http://evil\u{1b}\\text", "␛]8;;http://evil␛\\text"),
            ("\u{1b}]0;title\u{7}x", "␛]0;title␇x"),
            ("\u{1b}[2Jgone", "␛[2Jgone"),
            ("\u{1b}[1A\u{1b}[2Kok", "␛[1A␛[2Kok"),
            ("\u{1b}Pq#0\u{1b}\\", "␛Pq#0␛\\"),
            ("\u{9b}31mred", "<U+009B>31mred"),
            ("failed\rpassed", "failed␍passed"),
            ("a\u{8}b\u{7f}", "a␈b␡"),
            ("abc\u{202e}txt.exe", "abc<U+202E>txt.exe"),
            ("hi\u{e0041}\u{e0042}", "hi<U+E0041><U+E0042>"),
            ("zero\u{200b}width", "zero<U+200B>width"),
        ];
        for (raw, shown) in corpus {
            assert_eq!(neutral(raw), shown);
        }
    }

    #[test]
    fn f94_colours_go_and_ordinary_text_stays_as_it_is() {
        assert_eq!(neutral("\u{1b}[1;31merror\u{1b}[0m: no\r\nnext\tline"), "error: no\nnext\tline");
        assert_eq!(neutral("\u{1b}[8mhidden\u{1b}[m"), "hidden");
        assert!(matches!(neutral("grüße 👩\u{200d}💻 日本"), Cow::Borrowed(_)));
        assert_eq!(neutral("\u{1b}[31"), "␛[31", "a sequence cut off at the end is no colour");
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(neutral_line("a\nb\tc"), "a␊b␉c");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(hidden_characters("a\u{202e}b\u{200b}\n"), 2);
    }

    proptest! {
        #[test]
        fn f94_nothing_that_a_terminal_obeys_gets_through(text in any::<String>()) {
            prop_assert!(neutral(&text).chars().all(is_harmless));
            prop_assert!(neutral_line(&text).chars().all(|c| !c.is_control()));
        }
    }
}
