//! One closed transition table per life cycle (R-M4). From it come the check in Rust, the `WHERE state IN (…)` of the
//! conditional update, the diagram in the docs and the test over all pairs.

use std::fmt::Debug;

/// A word that is stored: the state of something, or what happens to it.
pub trait Word: Copy + Eq + Debug + 'static {
    /// All words, in the order of the documentation.
    const ALL: &'static [Self];

    /// The word as it stands in the database, in JSON and in the docs.
    fn word(self) -> &'static str;

    /// What the word means: the sentences that stand beside it in the code, for the reference.
    fn meaning(self) -> &'static str;

    /// The word back from its text; `None` for a text of a newer or damaged database.
    fn from_word(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|w| w.word() == text)
    }
}

/// One row of a table: from this state, by this event, to that state.
#[derive(Debug, Clone, Copy)]
pub struct Row<S: 'static, E> {
    /// States from which the event is allowed.
    pub from: &'static [S],
    /// What happens.
    pub event: E,
    /// The state afterwards.
    pub to: S,
    /// A condition beyond the state, in words; the caller of the store establishes it in the same transaction.
    pub needs: Option<&'static str>,
}

/// A life cycle: its name and its rows.
#[derive(Debug, Clone, Copy)]
pub struct Machine<S: 'static, E: 'static> {
    /// What the machine is about: `run`, `step`, `attempt`.
    pub name: &'static str,
    /// The state in which a record is born.
    pub initial: S,
    /// The table. At most one row per event; an event with two targets would need two names.
    pub rows: &'static [Row<S, E>],
}

/// The refusal of a transition, with both sides named (INVALID_STATE).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{machine} in state {state} cannot take {event}")]
pub struct Refused {
    /// The machine's name.
    pub machine: &'static str,
    /// The state found.
    pub state: String,
    /// The event refused.
    pub event: String,
}

impl<S: Word, E: Word> Machine<S, E> {
    /// The state after `event`, or the refusal.
    pub fn next(&self, state: S, event: E) -> Result<S, Refused> {
        let row = self.rows.iter().find(|row| row.event == event && row.from.contains(&state));
        row.map(|row| row.to).ok_or_else(|| self.refusal(state.word(), event))
    }

    /// The states from which `event` is allowed: the `IN (…)` of the conditional update.
    pub fn sources(&self, event: E) -> &'static [S] {
        self.rows.iter().find(|row| row.event == event).map_or(&[], |row| row.from)
    }

    /// Where `event` leads; `None` for an event that no row names.
    pub fn target(&self, event: E) -> Option<S> {
        self.rows.iter().find(|row| row.event == event).map(|row| row.to)
    }

    /// The refusal for a state as it was found in the record.
    pub fn refusal(&self, state: &str, event: E) -> Refused {
        Refused { machine: self.name, state: state.to_owned(), event: event.word().to_owned() }
    }

    /// True when no row leads out of `state`.
    pub fn is_final(&self, state: S) -> bool {
        !self.rows.iter().any(|row| row.from.contains(&state))
    }

    /// The diagram of the docs.
    pub fn mermaid(&self) -> String {
        use std::fmt::Write as _;
        let mut out = format!("stateDiagram-v2\n    [*] --> {}\n", self.initial.word());
        for row in self.rows {
            for from in row.from {
                let needs = row.needs.map(|n| format!(" ({n})")).unwrap_or_default();
                let _ = writeln!(out, "    {} --> {}: {}{needs}", from.word(), row.to.word(), row.event.word());
            }
        }
        for state in S::ALL.iter().filter(|s| self.is_final(**s)) {
            let _ = writeln!(out, "    {} --> [*]", state.word());
        }
        out
    }
}

/// Declares an enum of words with their texts.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[doc = $vdoc:literal])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $($(#[doc = $vdoc])* #[serde(rename = $text)] $variant),+
        }

        impl $crate::domain::machine::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($vdoc),*)),+
                }
                .trim()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::domain::machine::Word::word(*self))
            }
        }
    };
}
