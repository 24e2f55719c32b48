//! Times and amounts as they are written: RFC 3339 with `Z` for programs, UTC beside local time for people, counts with
//! groups. An unknown amount is said to be unknown, never 0.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Number, Value};

use crate::domain::budget::LimitKind;
use crate::domain::quantity::{Millis, UtcMs};

/// RFC 3339 with `Z`, in milliseconds.
pub fn utc(at: UtcMs) -> String {
    format!("{:.3}", timestamp(at))
}

/// The same for JSON, where it may be absent.
pub fn utc_or_null(at: Option<UtcMs>) -> Value {
    at.map_or(Value::Null, |at| Value::String(utc(at)))
}

/// For people: `2026-09-15 10:00:00Z`, and with a zone that differs from UTC `(12:00:00 local)` after it.
pub fn for_people(at: UtcMs, zone: &TimeZone) -> String {
    let timestamp = timestamp(at);
    let utc = timestamp.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    let local = timestamp.to_zoned_datetime(zone.clone());
    if local.offset().is_zero() {
        return utc;
    }
    let same_day = local.date() == timestamp.to_zoned_datetime(TimeZone::UTC).date();
    let form = if same_day { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    format!("{utc} ({} local)", local.strftime(form))
}

fn timestamp(at: UtcMs) -> Timestamp {
    let ends = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(at.0).unwrap_or(ends)
}

/// A count with its noun: `1 file`, `2 files`.
pub fn counted(n: u64, noun: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(n))
}

/// Millionths of a dollar as a JSON number; unknown is null.
pub fn usd_or_null(micros: Option<u64>) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "exact to the millionth below nine billion dollars")]
    let number = micros.and_then(|m| Number::from_f64(m as f64 / 1_000_000.0));
    number.map_or(Value::Null, Value::Number)
}

/// Money for people: `0.42 USD`, `0.0013 USD`.
pub fn usd(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = format!("{:0<2}", fraction.trim_end_matches('0'));
    format!("{whole}.{fraction} USD")
}

/// A count with groups of three: `98,765`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a binary unit.
pub fn bytes(n: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, size)| n >= *size) {
        Some((unit, size)) => format!("{}.{} {unit}", n / size, n % size * 10 / size),
        None => format!("{n} B"),
    }
}

/// An amount of one kind of limit.
pub fn of_kind(kind: LimitKind, n: u64) -> String {
    match kind {
        LimitKind::Time => Millis(n).rough(),
        LimitKind::Cost => usd(n),
        LimitKind::Tokens | LimitKind::TotalTokens | LimitKind::ToolCalls | LimitKind::Attempts => count(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_z() {
        assert_eq!(utc(UtcMs(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(UtcMs(1_789_466_400_123)), "2026-09-15T10:00:00.123Z");
        assert!(utc(UtcMs(i64::MAX)).ends_with('Z'), "a damaged time is still a time");
    }

    #[test]
    fn one_file_is_no_files() {
        assert_eq!([0, 1, 2000].map(|n| counted(n, "file")), ["0 files", "1 file", "2,000 files"]);
    }

    #[test]
    fn r_u4_people_see_utc_and_local_time() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(for_people(UtcMs(1_789_466_400_123), &zone), "2026-09-15 10:00:00Z (12:00:00 local)");
        assert_eq!(for_people(UtcMs(1_789_466_400_123), &TimeZone::UTC), "2026-09-15 10:00:00Z");
        let late = UtcMs(1_789_466_400_123 + 13 * 3_600_000);
        assert_eq!(for_people(late, &zone), "2026-09-15 23:00:00Z (2026-09-16 01:00:00 local)");
    }

    #[test]
    fn amounts_are_exact_and_unknown_is_not_zero() {
        assert_eq!(usd_or_null(None), Value::Null);
        assert_eq!(usd_or_null(Some(0)).to_string(), "0.0");
        assert_eq!(usd_or_null(Some(420_001)).to_string(), "0.420001");
        assert_eq!(
            (usd(420_000), usd(5_000_000), usd(1)),
            ("0.42 USD".into(), "5.00 USD".into(), "0.000001 USD".into())
        );
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!(
            (bytes(1023), bytes(1536), bytes(512 << 20)),
            ("1023 B".into(), "1.5 KiB".into(), "512.0 MiB".into())
        );
    }
}
