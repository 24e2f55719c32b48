//! The bytes of a commit and of a tree taken apart, so that a stranger's objects can be checked before anything uses them.
//! It reads no repository.

use git2::Oid;

/// The tree and the parents of a commit, or nothing where the bytes are no commit.
pub(super) fn commit(bytes: &[u8]) -> Option<(Oid, Vec<Oid>)> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let tree = hex(lines.next()?.strip_prefix(b"tree ")?)?;
    let parents = lines.map_while(|line| line.strip_prefix(b"parent ")).map(hex).collect::<Option<Vec<_>>>()?;
    Some((tree, parents))
}

/// Mode, name and object.
pub(super) type Entry<'b> = (&'b [u8], &'b [u8], Oid);

/// The entries of a tree, or nothing where the bytes are no tree.
pub(super) fn tree(mut bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    const ID_BYTES: usize = 20;
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let name = bytes.get(space + 1..end)?;
        let id = Oid::from_bytes(bytes.get(end + 1..end + 1 + ID_BYTES)?).ok()?;
        entries.push((&bytes[..space], name, id));
        bytes = &bytes[end + 1 + ID_BYTES..];
    }
    Some(entries)
}

/// False for a name that would lead out of its folder or into a `.git`, on this file system or another.
pub(in crate::git) fn is_safe_name(name: &[u8]) -> bool {
    let bare = name.to_ascii_lowercase();
    let bare = bare.trim_ascii_end();
    let bare = &bare[..bare.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1)];
    !bare.is_empty() && !name.contains(&b'/') && !matches!(bare, b".git" | b"git~1")
}

fn hex(text: &[u8]) -> Option<Oid> {
    let text = str::from_utf8(text).ok().filter(|text| text.len() == 40)?;
    Oid::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_w5_names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", ".git", ".GIT", ".git.", ".git ", "git~1", "a/b", ". ."] {
            assert!(!is_safe_name(name.as_bytes()), "`{name}`");
        }
        for name in [".gitignore", "a", "...a", "git", ".github"] {
            assert!(is_safe_name(name.as_bytes()), "`{name}`");
        }
    }

    #[test]
    fn broken_objects_are_no_objects() {
        assert!(commit(b"tree x\n").is_none());
        assert!(tree(b"100644 name").is_none());
        assert!(tree(b"100644 name\0short").is_none());
        assert_eq!(tree(b"").map(|entries| entries.len()), Some(0));
    }
}
