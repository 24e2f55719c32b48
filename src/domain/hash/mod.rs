//! What makes two runs the same run: the encoding, the context hash, the fingerprint, and why two differ (R-F1, R-F2, R-F6).
//! `docs/fingerprint.md` describes all of it for an independent program.

pub mod context;
pub mod encoding;
pub mod fingerprint;
