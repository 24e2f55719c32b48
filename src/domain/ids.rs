//! The names of things. Readable, derived from each other (R-M2), and never taken apart again: what an id is made of
//! stands in columns of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// A task id is 1 to 64 characters of `[A-Za-z0-9._-]`, begins with a letter or digit and has no `..`.
    #[error("task id `{0}` is not allowed: use letters, digits, `.`, `_`, `-`, at most 64, no `..`")]
    Task(String),
    /// A step key is 1 to 64 characters of `[a-z0-9_-]` and begins with a letter or digit.
    #[error("step key `{0}` is not allowed: use lower-case letters, digits, `_`, `-`, at most 64")]
    Step(String),
    /// A release's name is 1 to 128 characters of `[A-Za-z0-9._+-]` and begins with a letter or digit.
    #[error("`{}` is no name of a release: use letters, digits, `.`, `_`, `+`, `-`, at most 128", .0.escape_debug())]
    Release(String),
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Takes an id back that this program wrote earlier (database, manifest). Not for user input.
            pub fn recorded(text: impl Into<String>) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id! {
    /// A task: what is to be done, as the user names it.
    TaskId
}
text_id! {
    /// A step's key: unique within its run.
    StepKey
}
text_id! {
    /// One execution of a task: `run_<task>_<number>`.
    RunId
}
text_id! {
    /// One command or request, for tracing. Never an idempotency key (R-M6).
    RequestId
}
text_id! {
    /// One audit event, chosen before the commit that writes it, so that an unclear commit can be looked up (T1).
    EventId
}
text_id! {
    /// One intended side effect: an operation id, a UUID v7 that agentrun issues.
    ActionId
}
text_id! {
    /// A request for a person's agreement: `apr_` and eight letters.
    ApprovalId
}
text_id! {
    /// A release, as the user names it.
    ReleaseId
}
text_id! {
    /// Eight letters that a person can read out; leads to the internal ids, reveals none of them.
    SupportCode
}

impl TaskId {
    /// Checks a task id given by a user.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if starts_well && text.len() <= 64 && text.chars().all(allowed) && !text.contains("..") {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Task(text.to_owned()))
        }
    }

    /// The form under which two tasks are the same (task ids are unique ignoring case).
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl StepKey {
    /// Checks a step key given by a user.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if starts_well && text.len() <= 64 && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Step(text.to_owned()))
        }
    }
}

impl ReleaseId {
    /// Checks a name that a task's template gave. It stands in keys, and in the environment of commands.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if starts_well && text.len() <= 128 && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::Release(text.to_owned()))
        }
    }
}

impl RunId {
    /// The id of the `number`-th run of a task: three digits at least.
    pub fn of(task: &TaskId, number: u32) -> Self {
        Self(format!("run_{task}_{number:03}"))
    }

    /// The id of one step of this run.
    pub fn step(&self, key: &StepKey) -> String {
        format!("{self}_{key}")
    }
}

impl SupportCode {
    /// Eight letters out of the low halves of eight random bytes; without vowels and look-alikes, so it spells nothing.
    pub fn from_bits(bits: u64) -> Self {
        const LETTERS: &[u8; 16] = b"BCDFGHJKLMNPQRST";
        let text =
            bits.to_le_bytes().iter().map(|byte| char::from(LETTERS[usize::from(byte & 15)])).collect::<String>();
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_m2_ids_derive_from_each_other() {
        let task = TaskId::new("182").unwrap();
        let run = RunId::of(&task, 2);
        assert_eq!(run.as_str(), "run_182_002");
        assert_eq!(run.step(&StepKey::new("qa").unwrap()), "run_182_002_qa");
        assert_eq!(RunId::of(&task, 1234).as_str(), "run_182_1234");
    }

    #[test]
    fn r_m2_task_ids_that_could_leave_their_folder_are_refused() {
        for bad in ["", ".", "..", "a..b", "-x", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(TaskId::new(bad).is_err(), "{bad}");
        }
        for good in ["182", "LOGIN-42", "a.b_c", &"x".repeat(64)] {
            assert!(TaskId::new(good).is_ok(), "{good}");
        }
        assert_eq!(TaskId::new("Ab").unwrap().folded(), TaskId::new("aB").unwrap().folded());
    }

    #[test]
    fn step_keys_are_lower_case() {
        assert!(StepKey::new("deploy_verify-2").is_ok());
        for bad in ["", "QA", "_x", "a.b", "a/b"] {
            assert!(StepKey::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn support_codes_have_eight_letters() {
        assert_eq!(SupportCode::from_bits(0x0123_4567_89ab_cdef).as_str().len(), 8);
        assert_ne!(SupportCode::from_bits(1), SupportCode::from_bits(2));
    }
}
