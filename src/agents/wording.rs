//! Foreign text made fit for records and screens: bounded, on one line where needed. Judges nothing.

/// At most `max` bytes of a text, cut at a character, with a mark when something is missing.
pub(crate) fn clip(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let cut = (0..=max).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}…", &text[..cut])
}

/// A text on one line, for people: runs of blanks and control characters become one blank.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    // Only the beginning is looked at: an argument can be a file of many megabytes.
    let head = clip(text, max.saturating_mul(4));
    let words: Vec<&str> =
        head.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    clip(&words.join(" "), max)
}

/// The line of standard error that says best why a program ended: its own last error line, else the last line.
pub(crate) fn telling_line(stderr: &str) -> Option<String> {
    let lines =
        || stderr.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("Reading additional input"));
    let is_error = |l: &&str| l.get(..5).is_some_and(|head| head.eq_ignore_ascii_case("error"));
    lines().rfind(is_error).or_else(|| lines().next_back()).map(|l| one_line(l, 500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_a_character() {
        assert_eq!(clip("äöü", 3), "ä…");
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(one_line("a\n\tb\u{1b}  c", 100), "a b c");
    }

    #[test]
    fn the_error_line_is_told_before_later_chatter() {
        let stderr = "Reading additional input from stdin...\nError: no such thing\n\n  tip: look\n";
        assert_eq!(telling_line(stderr).as_deref(), Some("Error: no such thing"));
        assert_eq!(telling_line("one\ntwo\n").as_deref(), Some("two"));
        assert_eq!(telling_line("Reading additional input from stdin...\n"), None);
    }
}
