//! The normal form of a 2024-07 timestamp: date and time, optionally with microseconds and a zone
//! (O-005).

/// An ISO-8601 date and time in the stored form of 2024-07; `None` if it is invalid.
pub(crate) fn normalised(text: &str) -> Option<String> {
    let (date, rest) = split_at(text, 10)?;
    check_date(date)?;
    if rest.is_empty() {
        return Some(format!("{date}T00:00:00"));
    }
    let mut chars = rest.chars();
    let separator = chars.next()?;
    if separator.is_ascii_digit() {
        return None;
    }
    let rest = chars.as_str();
    let zone_at = rest.find(['+', '-', 'Z']).unwrap_or(rest.len());
    let (time, zone) = rest.split_at(zone_at);
    Some(format!("{date}T{}{}", normal_time(time)?, normal_zone(zone)?))
}

fn split_at(text: &str, at: usize) -> Option<(&str, &str)> {
    text.is_char_boundary(at).then(|| text.split_at(at))
}

/// Parses exactly `count` digits.
fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

fn check_date(date: &str) -> Option<()> {
    let mut parts = date.splitn(3, '-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (year > 0 && (1..=days).contains(&day)).then_some(())
}

fn normal_time(time: &str) -> Option<String> {
    let (clock, fraction) = match time.split_once(['.', ',']) {
        Some((clock, fraction)) => (clock, fraction),
        None => (time, "0"),
    };
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2).filter(|hour| *hour < 24)?;
    let minute =
        parts.next().map_or(Some(0), |text| digits(text, 2)).filter(|minute| *minute < 60)?;
    let second =
        parts.next().map_or(Some(0), |text| digits(text, 2)).filter(|second| *second < 60)?;
    let is_number = fraction.bytes().all(|byte| byte.is_ascii_digit()) && !fraction.is_empty();
    if parts.next().is_some() || !is_number {
        return None;
    }
    let micros: String = format!("{fraction:0<6}").chars().take(6).collect();
    let micros = if micros == "000000" { String::new() } else { format!(".{micros}") };
    Some(format!("{hour:02}:{minute:02}:{second:02}{micros}"))
}

fn normal_zone(zone: &str) -> Option<String> {
    if zone.is_empty() {
        return Some(String::new());
    }
    if zone == "Z" {
        return Some("+00:00".to_owned());
    }
    let (sign, rest) = split_at(zone, 1)?;
    let (hour, minute) = rest.split_once(':').unwrap_or((rest, "00"));
    let hour = digits(hour, 2).filter(|hour| *hour < 24)?;
    let minute = digits(minute, 2).filter(|minute| *minute < 60)?;
    (sign != "Z").then(|| format!("{sign}{hour:02}:{minute:02}"))
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn times_take_their_normal_form() {
        for (time, expected) in [
            ("2021-08-01T12:00:00", "2021-08-01T12:00:00"),
            ("2021-08-01 12:00", "2021-08-01T12:00:00"),
            ("2024-02-29", "2024-02-29T00:00:00"),
            ("2021-08-01T12:00:00.1", "2021-08-01T12:00:00.100000"),
            ("2021-08-01T12:00:00.000000", "2021-08-01T12:00:00"),
            ("2021-08-01T12:00:00Z", "2021-08-01T12:00:00+00:00"),
            ("2021-08-01T12:00:00-05:30", "2021-08-01T12:00:00-05:30"),
        ] {
            assert_eq!(normalised(time).as_deref(), Some(expected), "{time}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for time in [
            "",
            "now",
            "2021-13-01",
            "2023-02-29",
            "2021-08-01T25:00",
            "2021-08-01T12:00:00.",
            "2021-08-01T1:2",
            "2021-08-0é",
        ] {
            assert_eq!(normalised(time), None, "{time}");
        }
    }
}
