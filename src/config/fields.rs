//! The kinds of value that configuration files have, read from the text as it was written: an amount never becomes a
//! float, a time never lacks its unit. Each says in its error what was expected.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::domain::machine::Word;
use crate::domain::quantity::{Millis, parse_bytes, parse_count, parse_micros};
use crate::yaml::nearest;

/// A value that is read from a text.
pub(super) trait FromText: Sized {
    /// Reads it, or says what is wrong.
    fn from_text(text: &str) -> Result<Self, String>;
}

/// A field whose value is read from its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<T>(pub T);

impl<'de, T: FromText> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: FromText> Visitor<'_> for Text<T> {
            type Value = Field<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                T::from_text(text).map(Field).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text(PhantomData))
    }
}

/// A count of at least one. Zero is refused: some programs mean "no limit" by it, others "nothing".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub u64);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub u64);

/// Millionths of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Money(pub u64);

/// Thousandths of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share(pub u32);

fn not_zero(n: u64, text: &str) -> Result<u64, String> {
    if n == 0 { Err(format!("`{text}` is not allowed; at least one, or leave the key out")) } else { Ok(n) }
}

impl FromText for Millis {
    fn from_text(text: &str) -> Result<Self, String> {
        let time = Self::parse(text).map_err(|e| e.to_string())?;
        not_zero(time.0, text).map(Self)
    }
}

impl FromText for Count {
    fn from_text(text: &str) -> Result<Self, String> {
        not_zero(parse_count(text).map_err(|e| e.to_string())?, text).map(Self)
    }
}

impl FromText for Size {
    fn from_text(text: &str) -> Result<Self, String> {
        not_zero(parse_bytes(text).map_err(|e| e.to_string())?, text).map(Self)
    }
}

impl FromText for Money {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_micros(text).map(Self).map_err(|e| e.to_string())
    }
}

impl FromText for Share {
    fn from_text(text: &str) -> Result<Self, String> {
        let micros = parse_micros(text).ok().filter(|m| *m <= 1_000_000 && m % 1000 == 0);
        let permille = micros.and_then(|m| u32::try_from(m / 1000).ok());
        permille.map(Self).ok_or_else(|| format!("`{text}` is not a share such as 0.2, from 0 to 1"))
    }
}

impl<W: Word> FromText for W {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::from_word(text).ok_or_else(|| unknown_word(text, Self::ALL.iter().map(|w| w.word())))
    }
}

/// The message for a word that is none of a closed set.
pub(super) fn unknown_word<'a>(text: &str, words: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(text, words.clone()) {
        Some(near) => format!("`{text}` is not known; did you mean `{near}`?"),
        None => format!("`{text}` is not known; known are {}", words.collect::<Vec<_>>().join(", ")),
    }
}

/// A text, or the longer form with keys. A list is refused: serde would fill the keys from it in the order in which we
/// happen to declare them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextOr<T> {
    /// A text.
    Text(String),
    /// The longer form.
    Keys(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or the longer form with keys")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(entries)).map(TextOr::Keys)
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// A command: a text for the shell, or a list that runs as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextOrList {
    /// A text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for TextOrList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = TextOrList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TextOrList, E> {
                Ok(TextOrList::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<TextOrList, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(TextOrList::List)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The conditions of a rule. What they are comes from the tree, which keeps the texts and the places; here is only said that
/// they are a map.
#[derive(Debug, Default)]
pub(super) struct Conditions;

impl<'de> Deserialize<'de> for Conditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Conditions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("conditions such as `environment: production`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Conditions, A::Error> {
                while entries.next_entry::<String, Condition>()?.is_some() {}
                Ok(Conditions)
            }
        }
        deserializer.deserialize_map(Shape)
    }
}

struct Condition;

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}
