//! Why a configuration was refused. Names the place and shows it; the advice stands with the command line.

use crate::domain::failure::Code;
use crate::yaml::{Position, YamlError};

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Something in a file is wrong, at a place.
    #[error("{0}")]
    Refused(Box<YamlError>),
    /// A file exists, and cannot or must not be read.
    #[error("{file}: {message}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        message: String,
    },
    /// There is no such task or file.
    #[error("{message}")]
    NotFound {
        /// What was looked for, and what is like it.
        message: String,
    },
    /// An option of the command line does not fit the files.
    #[error("{option}: {message}")]
    Option {
        /// The option: `--agent`.
        option: &'static str,
        /// Why.
        message: String,
    },
}

impl ConfigError {
    /// A file that exists, and cannot or must not be read.
    pub fn unreadable(file: &str, message: impl Into<String>) -> Self {
        Self::Unreadable { file: file.to_owned(), message: message.into() }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound { message: message.into() }
    }

    pub(super) fn option(option: &'static str, message: impl Into<String>) -> Self {
        Self::Option { option, message: message.into() }
    }

    /// The code of the catalogue.
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(_) | Self::Unreadable { .. } => Code::ConfigInvalid,
            Self::NotFound { .. } => Code::NotFound,
            Self::Option { .. } => Code::Usage,
        }
    }

    /// Where, if it is a place in a file.
    pub fn position(&self) -> Option<&Position> {
        match self {
            Self::Refused(error) => Some(&error.position),
            _ => None,
        }
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> String {
        match self {
            Self::Refused(error) => error.what(),
            Self::Unreadable { message, .. } | Self::NotFound { message } | Self::Option { message, .. } => {
                message.clone()
            }
        }
    }

    /// The line with a caret, if there is one to show.
    pub fn excerpt(&self) -> Option<String> {
        match self {
            Self::Refused(error) => error.excerpt(),
            _ => None,
        }
    }
}

impl From<YamlError> for ConfigError {
    fn from(error: YamlError) -> Self {
        Self::Refused(Box::new(error))
    }
}
