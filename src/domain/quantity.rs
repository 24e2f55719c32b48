//! Times and amounts as people write them (`90s`, `15m`, `200k`, `64MiB`) and as the program keeps them (integers).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A length of time in milliseconds. Written as `250ms`, `90s`, `15m`, `2h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A point in time: milliseconds since the epoch, UTC. Rendered only at the edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtcMs(pub i64);

/// Milliseconds of the boot clock, which counts suspended time and never jumps. Only comparable within one [`BootId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootMs(pub u64);

/// One boot of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

/// The present, read once and passed down: the domain has no clock of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// Wall clock; for people and for records.
    pub utc: UtcMs,
    /// Boot clock; for leases and limits.
    pub boot: BootMs,
    /// The boot to which `boot` belongs.
    pub boot_id: BootId,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

impl Millis {
    /// Whole seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1000)
    }

    /// Whole minutes.
    pub const fn mins(n: u64) -> Self {
        Self(n * 60_000)
    }

    /// The time from `earlier` to `later`, zero when the clock went backwards.
    pub fn between(earlier: UtcMs, later: UtcMs) -> Self {
        Self(u64::try_from(later.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads `250ms`, `90s`, `15m`, `2h`, `7d`. A number without a unit is refused: seconds or minutes is a guess.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError { text: text.to_owned(), expected: "a time such as 90s, 15m or 2h" };
        let units: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(error)?;
        let number: u64 = number.parse().map_err(|_| error())?;
        number.checked_mul(factor).filter(|ms| *ms < u64::from(u32::MAX) * 1000).map(Self).ok_or_else(error)
    }

    /// A length as people say it: the largest unit that fits, rounded down, and the next one.
    pub fn rough(self) -> String {
        let seconds = self.0 / 1000;
        match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => match (seconds / 60, seconds % 60) {
                (minutes, 0) => format!("{minutes}m"),
                (minutes, seconds) => format!("{minutes}m {seconds}s"),
            },
            3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
            _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
        }
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        match ms {
            0 => f.write_str("0s"),
            _ if ms.is_multiple_of(86_400_000) => write!(f, "{}d", ms / 86_400_000),
            _ if ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            _ if ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            _ if ms.is_multiple_of(1000) => write!(f, "{}s", ms / 1000),
            _ => write!(f, "{ms}ms"),
        }
    }
}

impl UtcMs {
    /// This point in time, moved by a length.
    pub fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }

    /// The time of day, for a wait of minutes: `12:03:00 UTC`.
    pub fn clock(self) -> String {
        let second = self.0.div_euclid(1000).rem_euclid(86_400);
        format!("{:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
    }
}

/// Reads `200`, `200k`, `1.5M`: tokens and calls. `200k` is 200,000.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let error = || QuantityError { text: text.to_owned(), expected: "a count such as 60, 200k or 1.5M" };
    let (number, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    scaled(number, factor).ok_or_else(error)
}

/// Reads `64MiB`, `1GiB`, `500kB`, `4096`: bytes.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let error = || QuantityError { text: text.to_owned(), expected: "a size such as 64MiB" };
    let units: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1));
    scaled(number.trim_end(), factor).ok_or_else(error)
}

/// Reads an amount of money into millionths, exactly: `5`, `5.00`, `0.125`.
pub fn parse_micros(text: &str) -> Result<u64, QuantityError> {
    scaled(text, 1_000_000).ok_or_else(|| QuantityError { text: text.to_owned(), expected: "an amount such as 5.00" })
}

/// A decimal number times a power of ten (or of two), without floating point. `None` unless the result is whole.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 || number.ends_with('.') {
        return None;
    }
    let divisor = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()?.checked_mul(factor)? };
    part.is_multiple_of(divisor).then_some(())?;
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(part / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_alike() {
        for (text, ms) in [("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)] {
            assert_eq!(Millis::parse(text).unwrap(), Millis(ms));
            assert_eq!(Millis::parse(&Millis(ms).to_string()).unwrap(), Millis(ms));
        }
        for bad in ["", "5", "m", "-1s", "1.5h", "1 m", "99999999999d", "5M"] {
            assert!(Millis::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_sizes_and_money_are_exact() {
        assert_eq!(parse_count("200k").unwrap(), 200_000);
        assert_eq!(parse_count("1.5M").unwrap(), 1_500_000);
        assert_eq!(parse_bytes("64MiB").unwrap(), 64 << 20);
        assert_eq!(parse_micros("0.125").unwrap(), 125_000);
        for bad in ["", "k", "1.2345k", "1e3", "-4", "1.", ".5", "NaN", "99999999999999999999"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        assert!(parse_micros("0.0000001").is_err());
    }

    #[test]
    fn a_clock_that_went_backwards_gives_no_negative_length() {
        assert_eq!(Millis::between(UtcMs(10), UtcMs(3)), Millis(0));
    }

    #[test]
    fn lengths_read_as_people_say_them() {
        let texts = [(5_400, "5s"), (60_000, "1m"), (61_000, "1m 1s"), (3_660_000, "1h 1m"), (90_000_000, "1d 1h")];
        for (ms, text) in texts {
            assert_eq!(Millis(ms).rough(), text);
        }
    }
}
