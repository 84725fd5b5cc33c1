//! Amounts, durations and timestamps as text for people.

use std::time::Duration;

use crate::types::ids::Millis;
use crate::types::limits::TICK_MS;
pub use crate::types::text::show_number as thousands;

/// Milliseconds of a second.
pub const SECOND: u64 = 1_000;
/// Milliseconds of a minute.
pub const MINUTE: u64 = 60 * SECOND;
/// Milliseconds of an hour.
pub const HOUR: u64 = 60 * MINUTE;
/// Milliseconds of a day.
pub const DAY: u64 = 24 * HOUR;

/// Formats bytes: `0.9 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let count_f = count as f64;
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.0} KiB", count_f / 1024.0),
        _ => format!("{:.1} MiB", count_f / 1_048_576.0),
    }
}

/// Formats a duration: `2 ms`, `4.2 s`.
#[must_use]
pub fn time(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

/// Formats a count with its noun: `1 task`, `2 tasks`, `12 345 tasks`.
#[must_use]
pub fn plural(count: u64, one: &str, several: &str) -> String {
    format!("{} {}", self::count(count), if count == 1 { one } else { several })
}

/// Formats an age: `just now`, `3 min ago`, `2 days ago`.
#[must_use]
pub fn ago(at: Millis, now: Millis) -> String {
    let passed = now.since(at);
    match passed {
        0..SECOND => "just now".to_owned(),
        _ => format!("{} ago", about(passed)),
    }
}

/// Formats a rough duration: `3 s`, `5 min`, `2 h`, `40 days`.
#[must_use]
pub fn about(ms: u64) -> String {
    match ms {
        0..SECOND => format!("{ms} ms"),
        SECOND..MINUTE => format!("{} s", ms / SECOND),
        MINUTE..HOUR => format!("{} min", ms / MINUTE),
        HOUR..DAY => format!("{} h", ms / HOUR),
        _ => plural(ms / DAY, "day", "days"),
    }
}

/// Formats a precise duration: `12 ms`, `4.2 s`, `3 min 20 s`.
#[must_use]
pub fn took(ms: u64) -> String {
    match ms {
        0..MINUTE => time(Duration::from_millis(ms)),
        MINUTE..HOUR => format!("{} min {} s", ms / MINUTE, ms % MINUTE / SECOND),
        _ => format!("{} h {} min", ms / HOUR, ms % HOUR / MINUTE),
    }
}

/// Formats the computing time of calls that took `wall_ms` together; `None` if it is too short to be
/// known. It is counted in ticks of ten milliseconds, and a call into which one falls is charged for
/// all of it, so that short calls seem to compute for longer than they take.
#[must_use]
pub fn computing(cpu_ms: u64, wall_ms: u64) -> Option<String> {
    const KNOWN_MIN: u64 = 5 * TICK_MS;
    (cpu_ms >= KNOWN_MIN && cpu_ms <= wall_ms).then(|| took(cpu_ms))
}

/// Formats the time in which no host ran, which is an upper bound unless it is exact.
#[must_use]
pub fn downtime(ms: u64, is_exact: bool) -> String {
    if is_exact { took(ms) } else { format!("at most {}", took(ms)) }
}

/// Formats micro-US-dollars with as many digits as are significant.
#[must_use]
pub fn money(micro_usd: u64) -> String {
    let (dollars, rest) = (micro_usd / 1_000_000, micro_usd % 1_000_000);
    match micro_usd {
        0 => "$0".to_owned(),
        1..100 => format!("$0.{rest:06}"),
        100..1_000_000 => format!("$0.{:04}", rest / 100),
        _ => format!("${dollars}.{:02}", rest / 10_000),
    }
}

/// Formats a count: up to four digits unchanged, longer ones in groups of three.
#[must_use]
pub fn count(number: u64) -> String {
    if number > 9_999 { thousands(number) } else { number.to_string() }
}

/// Formats a timestamp as `2026-01-31 14:05:09` in UTC.
#[must_use]
pub fn moment(at: Millis) -> String {
    let (days, within) = (at.0 / DAY, at.0 % DAY);
    let (year, month, day) = day_of(days);
    format!("{year:04}-{month:02}-{day:02} {}", clock(within))
}

/// Formats the time of day of a timestamp as `14:05:09` in UTC.
#[must_use]
pub fn time_of_day(at: Millis) -> String {
    clock(at.0 % DAY)
}

fn clock(within: u64) -> String {
    let (hours, minutes, seconds) =
        (within / HOUR, within % HOUR / MINUTE, within % MINUTE / SECOND);
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}

/// The year, month and day that are this many days after 1970-01-01. Years are counted from March,
/// so that a leap day is the last day.
#[must_use]
pub fn day_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_that_is_too_short_to_be_known_is_left_out() {
        let cases = [(0, 9_000), (40, 9_000), (60, 55), (60, 60), (1_200, 9_000)];
        let texts = cases.map(|(cpu, wall)| computing(cpu, wall));
        assert_eq!(texts, [None, None, None, Some("60 ms".into()), Some("1.2 s".into())]);
    }

    #[test]
    fn amounts_are_in_words() {
        assert_eq!(
            (bytes(900), bytes(2048), bytes(943_719)),
            ("900 B".into(), "2 KiB".into(), "922 KiB".into())
        );
        assert_eq!(
            (time(Duration::from_micros(40)), time(Duration::from_millis(4200))),
            ("40 µs".into(), "4.2 s".into())
        );
    }
}
