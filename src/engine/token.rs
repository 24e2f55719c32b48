//! The secret by which a program inside a run shows that it belongs to the present attempt: 128 random bits, new with every
//! claim. The database holds its hash alone; nothing prints it.

use rustix::rand::{GetRandomFlags, getrandom};

use super::error::EngineError;
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;

/// The secret of one attempt.
#[derive(Clone)]
pub struct RunToken(String);

impl RunToken {
    /// A new one. Fails where the machine gives no random bits.
    pub fn new() -> Result<Self, EngineError> {
        let mut bits = [0_u8; 16];
        let failed = |error: rustix::io::Errno| {
            EngineError::failed(Code::EnvUnsupported, format!("the machine gives no random bits: {error}"))
        };
        // So few bytes come whole or not at all.
        getrandom(&mut bits[..], GetRandomFlags::empty()).map_err(failed)?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bits))))
    }

    /// What the database holds.
    pub fn hash(&self) -> Sha256Hash {
        Sha256Hash::of(self.0.as_bytes())
    }

    /// The secret itself, for the environment of the attempt's own programs.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for RunToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_never_the_same_and_never_shown() {
        let (one, two) = (RunToken::new().unwrap(), RunToken::new().unwrap());
        assert_eq!(one.reveal().len(), 32);
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(one.hash(), Sha256Hash::of(one.reveal().as_bytes()));
        assert!(!format!("{one:?}").contains(one.reveal()));
    }
}
