//! Amounts and timestamps in tables, and parsing of timestamps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conclave_core::inspect::amounts::{DAY, HOUR, MINUTE, SECOND, day_of, time};
pub(crate) use conclave_core::inspect::amounts::{
    about, ago, computing, count, downtime, moment, money, thousands, time_of_day, took,
};
use conclave_core::types::ids::Millis;

use crate::program::error::CliError;

/// The current time.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Formats a rough remaining time, rounded up.
pub(crate) fn remaining(ms: u64) -> String {
    let unit = match ms {
        0..SECOND => 1,
        SECOND..MINUTE => SECOND,
        MINUTE..HOUR => MINUTE,
        HOUR..DAY => HOUR,
        _ => DAY,
    };
    about(ms.div_ceil(unit).saturating_mul(unit))
}

/// Formats a [`Duration`] like [`took`].
pub(crate) fn took_for(duration: Duration) -> String {
    if duration < Duration::from_millis(MINUTE) {
        return time(duration);
    }
    took(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Parses the value of `--since` and `--before`: `90s`, `30min`, `2h`, `30d` before `now`, or a day
/// such as `2026-01-31`, which begins in UTC.
///
/// # Errors
/// If the value is neither.
pub(crate) fn parse_moment(option: &str, text: &str, now: Millis) -> Result<Millis, CliError> {
    let wrong = || {
        CliError::usage(format!("{option} {text:?} is no time"))
            .hint("write how long ago, such as 90s, 30min, 2h or 30d, or a day such as 2026-01-31")
    };
    if let Some(day) = parse_day(text) {
        return Ok(Millis(day * DAY));
    }
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit.trim() {
        "s" => SECOND,
        "m" | "min" => MINUTE,
        "h" => HOUR,
        "d" | "day" | "days" => DAY,
        _ => return Err(wrong()),
    };
    Ok(Millis(now.0.saturating_sub(number.saturating_mul(unit))))
}

/// The days between 1970-01-01 and a day.
fn parse_day(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() != 4 || month.len() != 2 || day.len() != 2 {
        return None;
    }
    let date: (u64, u64, u64) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    // The first guess is off by a few days at most. A day that no month has is not found.
    let guess = (date.0.checked_sub(1970)? * 365 + (date.0 - 1969) / 4 + (date.1.max(1) - 1) * 30)
        .saturating_sub(40);
    (guess..guess + 120).find(|days| day_of(*days) == date)
}

/// Parses the value of `--cost`, in micro-US-dollars.
///
/// # Errors
/// If the value is not an amount.
pub(crate) fn parse_usd(text: &str) -> Result<u64, CliError> {
    let wrong = || {
        CliError::usage(format!("--cost {text:?} is no amount of US dollars"))
            .hint("write a number, such as 0.05")
    };
    let (dollars, part) =
        text.trim_start_matches('$').split_once('.').unwrap_or((text.trim_start_matches('$'), ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (dollars.is_empty() && part.is_empty())
        || !is_number(dollars)
        || !is_number(part)
        || part.len() > 6
    {
        return Err(wrong());
    }
    let dollars: u64 = if dollars.is_empty() { 0 } else { dollars.parse().map_err(|_| wrong())? };
    let micro: u64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
    dollars.checked_mul(1_000_000).and_then(|dollars| dollars.checked_add(micro)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        let now = Millis(1_795_000_000_000);
        assert_eq!(moment(Millis(0)), "1970-01-01 00:00:00");
        assert_eq!(moment(Millis(1_709_164_799_000)), "2024-02-28 23:59:59");
        assert_eq!(moment(Millis(1_709_208_000_000)), "2024-02-29 12:00:00");
        for day in
            ["1970-01-01", "2000-02-29", "2024-02-29", "2026-01-31", "2099-12-31", "1999-12-01"]
        {
            let at = parse_moment("--since", day, now).unwrap();
            assert_eq!(moment(at), format!("{day} 00:00:00"));
        }
        assert_eq!(parse_moment("--since", "30d", now).unwrap(), Millis(now.0 - 30 * DAY));
        assert_eq!(parse_moment("--since", "90s", now).unwrap(), Millis(now.0 - 90_000));
        assert_eq!(parse_moment("--since", "99999999999999d", now).unwrap(), Millis(0));
        for wrong in [
            "",
            "d",
            "30",
            "30 years",
            "2026-02-30",
            "2026-13-01",
            "1969-12-31",
            "26-01-01",
            "-3d",
            "3.5h",
            "99999999999999999999d",
        ] {
            let error = parse_moment("--before", wrong, now).unwrap_err().to_string();
            assert!(error.contains("--before") && error.contains("2026-01-31"), "{wrong}: {error}");
        }
    }

    #[test]
    fn amounts_are_in_words() {
        let now = Millis(100 * DAY);
        let before = |ms: u64| ago(Millis(now.0 - ms), now);
        assert_eq!(
            [before(10), before(4_000), before(90_000), before(3 * HOUR), before(DAY)],
            ["just now", "4 s ago", "1 min ago", "3 h ago", "1 day ago"]
        );
        let ten = 10 * MINUTE;
        assert_eq!(
            [
                remaining(ten),
                remaining(ten - 7),
                remaining(ten - MINUTE),
                remaining(59_500),
                remaining(0)
            ],
            ["10 min", "10 min", "9 min", "1 min", "0 ms"]
        );
        assert_eq!(
            [took(12), took(4_200), took(200_000), took(7_500_000)],
            ["12 ms", "4.2 s", "3 min 20 s", "2 h 5 min"]
        );
        assert_eq!(
            [money(0), money(42), money(20_000), money(1_250_000)],
            ["$0", "$0.000042", "$0.0200", "$1.25"]
        );
        assert_eq!(thousands(1_234_567), "1 234 567");
        assert_eq!([count(9_999), count(10_000)], ["9999", "10 000"]);
    }

    #[test]
    fn money_is_read() {
        assert_eq!(parse_usd("0.05").unwrap(), 50_000);
        assert_eq!(parse_usd("$2").unwrap(), 2_000_000);
        assert_eq!(parse_usd(".000001").unwrap(), 1);
        for wrong in ["", ".", "-1", "1e3", "0.0000001", "99999999999999999999", "a"] {
            assert!(parse_usd(wrong).is_err(), "{wrong}");
        }
    }
}
