//! `Retry-After`: seconds, or a date.

use jiff::fmt::rfc2822;

use crate::domain::quantity::{Millis, UtcMs};

/// How long the other side wants to be left alone; `None` for what is neither.
pub(super) fn read(value: &str, present: UtcMs) -> Option<Millis> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Millis(seconds.saturating_mul(1000)));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Millis::between(present, UtcMs(at.as_millisecond())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f61_seconds_and_dates_are_read() {
        let present = UtcMs(1_445_412_420_000);
        for (text, wanted) in [
            ("120", Some(120_000)),
            (" 0 ", Some(0)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(60_000)),
            ("Wed, 21 Oct 2015 07:26:00 GMT", Some(0)),
            ("soon", None),
            ("-5", None),
            ("1.5", None),
        ] {
            assert_eq!(read(text, present), wanted.map(Millis), "{text}");
        }
    }
}
