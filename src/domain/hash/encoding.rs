//! The length-prefixed encoding under every hash. No two different values have the same bytes: names and values carry
//! their lengths, lists their counts, and an absent value differs from an empty one.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256. As text: 64 hex digits; with `Display` after `sha256:`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Hash(pub [u8; 32]);

impl Sha256Hash {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 hex digits.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
    }

    /// Reads 64 hex digits, with or without `sha256:` before them.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Sha256Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Sha256Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no SHA-256")))
    }
}

/// Feeds a hash field by field.
pub struct Encoder(Sha256);

impl Encoder {
    /// Begins with the domain word, which names the kind and version of what is hashed.
    pub fn new(domain: &str) -> Self {
        let mut encoder = Self(Sha256::new());
        encoder.bytes(domain.as_bytes());
        encoder
    }

    /// A field with a value, or without one.
    pub fn field(&mut self, name: &str, value: Option<&str>) {
        self.bytes(name.as_bytes());
        match value {
            None => self.0.update([0]),
            Some(value) => {
                self.0.update([1]);
                self.bytes(value.as_bytes());
            }
        }
    }

    /// A field with a list of byte strings.
    pub fn list(&mut self, name: &str, items: impl ExactSizeIterator<Item: AsRef<[u8]>>) {
        self.bytes(name.as_bytes());
        self.0.update([2]);
        self.0.update((items.len() as u64).to_be_bytes());
        for item in items {
            self.bytes(item.as_ref());
        }
    }

    /// The hash of everything fed.
    pub fn finish(self) -> Sha256Hash {
        Sha256Hash(self.0.finalize().into())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(fields: &[(String, Option<String>)]) -> Sha256Hash {
        let mut encoder = Encoder::new("test/1");
        for (name, value) in fields {
            encoder.field(name, value.as_deref());
        }
        encoder.finish()
    }

    #[test]
    fn absent_differs_from_empty_and_boundaries_count() {
        let field = |n: &str, v: Option<&str>| (n.to_owned(), v.map(ToOwned::to_owned));
        assert_ne!(hash(&[field("a", None)]), hash(&[field("a", Some(""))]));
        assert_ne!(hash(&[field("ab", Some("c"))]), hash(&[field("a", Some("bc"))]));
    }

    proptest! {
        #[test]
        fn r_f1_different_fields_have_different_hashes(
            a in prop::collection::vec((".{0,3}", prop::option::of(".{0,3}")), 0..4),
            b in prop::collection::vec((".{0,3}", prop::option::of(".{0,3}")), 0..4),
        ) {
            prop_assert_eq!(a == b, hash(&a) == hash(&b));
        }

        #[test]
        fn a_hash_is_read_back(bytes in prop::array::uniform32(any::<u8>())) {
            let hash = Sha256Hash(bytes);
            prop_assert_eq!(Sha256Hash::parse(&hash.hex()), Some(hash));
            prop_assert_eq!(Sha256Hash::parse(&hash.to_string()), Some(hash));
        }
    }
}
