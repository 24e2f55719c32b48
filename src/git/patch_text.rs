//! The text of a patch cut into one section per file and put the way libgit2 reads it. git writes three things that
//! libgit2 does not understand: bare names with spaces, the tab behind them, and empty files. It changes no line of
//! contents.

/// The first line of a file's section. Lines of contents begin with a sign or a space, so none of them is taken for it.
const HEADER: &[u8] = b"diff --git ";

/// The sections of a patch. What stands before the first (the words of a mail) is left out.
pub(super) fn sections(patch: &[u8]) -> Vec<Vec<u8>> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in lines(patch) {
        if line.starts_with(HEADER) {
            starts.push(at);
        }
        at += line.len();
    }
    if starts.is_empty() {
        return vec![patch.to_vec()];
    }
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    starts.iter().zip(ends).map(|(start, end)| complete(quote(&patch[*start..end]))).collect()
}

/// Puts names with a space in quotes, in `diff --git a/x y b/x y` and the two lines below it.
fn quote(section: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(section.len() + 64);
    let mut is_bare = false;
    for line in lines(section) {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if let Some((old, new)) = text.strip_prefix(HEADER).and_then(names) {
            is_bare = !old.starts_with(b"\"") && old.contains(&b' ');
            if is_bare {
                out.extend([HEADER, b"\"", old, b"\" \"", new, b"\"\n"].concat());
                continue;
            }
        }
        is_bare &= !text.starts_with(b"@@");
        match text.split_at_checked(4) {
            Some((sign @ (b"--- " | b"+++ "), name)) if is_bare && name != b"/dev/null" => {
                out.extend([sign, b"\"", name.strip_suffix(b"\t").unwrap_or(name), b"\"\n"].concat());
            }
            _ => out.extend_from_slice(line),
        }
    }
    out
}

/// Adds the names of a new or deleted empty file, which git leaves out as there are no lines to show.
fn complete(mut section: Vec<u8>) -> Vec<u8> {
    let has = |start: &[u8]| lines(&section).any(|line| line.starts_with(start));
    let is_open = lines(&section).last().is_some_and(|line| line.starts_with(b"index "));
    let header = lines(&section).next().and_then(|line| line.strip_prefix(HEADER)?.strip_suffix(b"\n"));
    let Some((old, new)) = header.and_then(names).filter(|_| is_open) else { return section };
    let named = if has(b"new file mode ") {
        [b"--- /dev/null\n+++ ", new, b"\n"].concat()
    } else if has(b"deleted file mode ") {
        [b"--- ", old, b"\n+++ /dev/null\n"].concat()
    } else {
        Vec::new()
    };
    section.extend(named);
    section
}

/// The two halves of `a/x b/x`, where both name the same file.
fn names(header: &[u8]) -> Option<(&[u8], &[u8])> {
    let middle = header.len() / 2;
    let (old, new) = (header.get(..middle)?, header.get(middle + 1..)?);
    let tail = |name: &'_ [u8], side: u8| -> Option<usize> {
        let start = usize::from(name.starts_with(b"\""));
        (name.get(start..start + 2)? == [side, b'/']).then_some(start + 2)
    };
    let (from_old, from_new) = (tail(old, b'a')?, tail(new, b'b')?);
    (header[middle] == b' ' && old[from_old..] == new[from_new..]).then_some((old, new))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(patch: &str) -> Vec<String> {
        sections(patch.as_bytes()).into_iter().map(|section| String::from_utf8(section).unwrap()).collect()
    }

    #[test]
    fn names_with_spaces_are_quoted_and_contents_are_not() {
        let patch = "diff --git a/x y b/x y\nindex 1..2\n--- a/x y\t\n+++ b/x y\t\n@@ -1 +1 @@\n--- a\t\n+++ b\n";
        let expected =
            "diff --git \"a/x y\" \"b/x y\"\nindex 1..2\n--- \"a/x y\"\n+++ \"b/x y\"\n@@ -1 +1 @@\n--- a\t\n+++ b\n";
        assert_eq!(texts(patch), [expected]);
    }

    #[test]
    fn each_file_is_a_section_and_empty_ones_get_their_names() {
        let patch = "From: ann\n\ndiff --git a/e b/e\nnew file mode 100644\nindex 0..e\ndiff --git \"a/f\\t\" \"b/f\\t\"\ndeleted file mode 100644\nindex e..0\n";
        let expected = [
            "diff --git a/e b/e\nnew file mode 100644\nindex 0..e\n--- /dev/null\n+++ b/e\n",
            "diff --git \"a/f\\t\" \"b/f\\t\"\ndeleted file mode 100644\nindex e..0\n--- \"a/f\\t\"\n+++ /dev/null\n",
        ];
        assert_eq!(texts(patch), expected);
    }

    #[test]
    fn a_rename_is_left_as_it_is() {
        let patch = "diff --git a/x y b/z\nsimilarity index 100%\nrename from x y\nrename to z\n";
        assert_eq!(texts(patch), [patch]);
    }
}
