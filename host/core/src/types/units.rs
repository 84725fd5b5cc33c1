//! Sizes, durations and money as people write them. A number without a unit is ambiguous, so it is
//! refused.

/// The limit of a duration in milliseconds: thirty days. Longer ones would overflow the clocks that
/// count them down.
pub(crate) const DURATION_MAX: u64 = 30 * 24 * 60 * 60 * 1000;

const SIZES: [(&str, u64); 8] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];
const DURATIONS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

/// The error for a text that is not a size or not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnitError {
    #[error("begins with no number")]
    NoNumber,
    #[error("is not a whole number of its unit; take a smaller unit")]
    Fraction,
    #[error("has no unit")]
    NoUnit,
    #[error("has the unit `{0}`, which is none")]
    UnknownUnit(String),
    #[error("is too large")]
    TooLarge,
}

/// The units of sizes and those of durations, for documentation.
pub(crate) fn names() -> (impl Iterator<Item = &'static str>, impl Iterator<Item = &'static str>) {
    (SIZES.iter().map(|(name, _)| *name), DURATIONS.iter().map(|(name, _)| *name))
}

/// Returns the bytes of a size such as `64 MiB`.
///
/// # Errors
/// The part that is missing or unknown; `TooLarge` past 2⁶³ bytes.
pub(crate) fn size(text: &str) -> Result<u64, UnitError> {
    measure(text, &SIZES).and_then(|bytes| {
        if bytes > i64::MAX as u64 { Err(UnitError::TooLarge) } else { Ok(bytes) }
    })
}

/// Returns the milliseconds of a duration such as `500 ms`.
///
/// # Errors
/// The part that is missing or unknown; `TooLarge` past thirty days.
pub(crate) fn duration(text: &str) -> Result<u64, UnitError> {
    measure(text, &DURATIONS)
        .and_then(|ms| if ms > DURATION_MAX { Err(UnitError::TooLarge) } else { Ok(ms) })
}

/// The micro-US-dollars of an amount in dollars; `None` if it is negative, not a number, or more
/// than a billion dollars.
pub(crate) fn micro_usd(dollars: f64) -> Option<u64> {
    let micro = (dollars * 1e6).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked"
    )]
    (0.0..=1e15).contains(&micro).then_some(micro as u64)
}

fn measure(text: &str, units: &[(&str, u64)]) -> Result<u64, UnitError> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(UnitError::NoNumber);
    }
    if rest.starts_with(['.', ',']) {
        return Err(UnitError::Fraction);
    }
    let number: u64 = number.replace('_', "").parse().map_err(|_| UnitError::TooLarge)?;
    let unit = rest.trim_start();
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| UnitError::UnknownUnit(shorten(unit)))?;
    number.checked_mul(*factor).ok_or(UnitError::TooLarge)
}

fn shorten(unit: &str) -> String {
    unit.chars().take(16).map(super::wording::plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::text::{show_duration, show_size};

    #[test]
    fn sizes_are_read() {
        let cases = [
            ("64 MiB", Ok(64 << 20)),
            ("64MiB", Ok(64 << 20)),
            ("1 MB", Ok(1_000_000)),
            ("1_000 B", Ok(1000)),
            ("2 GiB", Ok(2 << 30)),
            ("3 kB", Ok(3000)),
            (" 5 KB ", Ok(5000)),
            ("0 B", Ok(0)),
            ("64", Err(UnitError::NoUnit)),
            ("MiB", Err(UnitError::NoNumber)),
            ("-1 MiB", Err(UnitError::NoNumber)),
            ("_1 MiB", Err(UnitError::NoNumber)),
            ("", Err(UnitError::NoNumber)),
            ("1.5 MiB", Err(UnitError::Fraction)),
            ("64 M", Err(UnitError::UnknownUnit("M".into()))),
            ("64 mib", Err(UnitError::UnknownUnit("mib".into()))),
            ("99999999999999999999 B", Err(UnitError::TooLarge)),
            ("9223372036854775808 B", Err(UnitError::TooLarge)),
            ("18446744073709551615 GiB", Err(UnitError::TooLarge)),
        ];
        for (text, expected) in cases {
            assert_eq!(size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn durations_are_read() {
        let cases = [
            ("500 ms", Ok(500)),
            ("2 s", Ok(2000)),
            ("5 min", Ok(300_000)),
            ("1 h", Ok(3_600_000)),
            ("720 h", Ok(DURATION_MAX)),
            ("721 h", Err(UnitError::TooLarge)),
            ("5 m", Err(UnitError::UnknownUnit("m".into()))),
            ("5", Err(UnitError::NoUnit)),
        ];
        for (text, expected) in cases {
            assert_eq!(duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn money_is_counted_in_millionths() {
        assert_eq!(
            (micro_usd(0.2), micro_usd(0.000_001), micro_usd(0.000_000_1)),
            (Some(200_000), Some(1), Some(0))
        );
        assert_eq!(
            (micro_usd(-0.1), micro_usd(f64::NAN), micro_usd(f64::INFINITY), micro_usd(1e10)),
            (None, None, None, None)
        );
    }

    #[test]
    fn a_shown_unit_reads_back() {
        for bytes in [1, 1023, 1024, 64 << 20, (1 << 30) + 1] {
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }
        for ms in [1, 999, 1000, 60_000, 3_600_000] {
            assert_eq!(duration(&show_duration(ms)), Ok(ms));
        }
    }
}
