//! The time in which a certificate is valid, read from its DER. The libraries for TLS check it for
//! clients alone.

use conclave_core::types::ids::Millis;
use conclave_server::certificate_der;

use crate::state::machine::Finding;

/// The rest of a certificate's time in which it should be renewed.
const SOON_DAYS: u64 = 21;
const DAY_MS: u64 = 86_400_000;

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    from: Millis,
    until: Millis,
}

/// Rates a validity.
pub(super) fn finding(
    what: &'static str,
    Validity { from, until }: Validity,
    now: Millis,
    hint: &'static str,
) -> Finding {
    let days = |time: u64| time / DAY_MS;
    if until <= now {
        let ago = days(now.since(until));
        return Finding::fail(what, format!("it ended {ago} days ago"), hint);
    }
    if now < from {
        return Finding::fail(
            what,
            "its time has not begun",
            "use the one before; look at the clock",
        );
    }
    match days(until.since(now)) {
        left @ ..SOON_DAYS => Finding::note(what, format!("it ends in {left} days"), hint),
        left => Finding::ok(what, format!("valid for {left} days")),
    }
}

/// Reads the validity of the first certificate of a file in PEM; `None` if it has none.
pub(super) fn validity(pem: &[u8]) -> Option<Validity> {
    let der = certificate_der(pem)?;
    let certificate = Der(&der).of(SEQUENCE)?.0;
    let mut fields = Der(certificate).of(SEQUENCE)?.0;
    // An explicit version, a serial number, an algorithm and an issuer come before.
    if fields.first() == Some(&VERSION) {
        fields = Der(fields).next()?.2;
    }
    for _ in 0..3 {
        fields = Der(fields).next()?.2;
    }
    let (times, _) = Der(fields).of(SEQUENCE)?;
    let (_, from, rest) = Der(times).next()?;
    let (_, until, _) = Der(rest).next()?;
    Some(Validity { from: time(from)?, until: time(until)? })
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The beginning of a value in DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the content of the value, and what follows it.
    fn next(&self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            // The number of bytes that have the length.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            0..=0x7f => (usize::from(first), rest),
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        Some((tag, content, rest))
    }

    /// The content of a value with this tag, and what follows it.
    fn of(&self, tag: u8) -> Option<(&'a [u8], &'a [u8])> {
        let (found, content, rest) = self.next()?;
        (found == tag).then_some((content, rest))
    }
}

/// Reads `YYMMDDHHMMSSZ`, or the same with a year of four digits.
fn time(text: &[u8]) -> Option<Millis> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match text.len() {
        12 => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
        }
        14 => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let number = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (number(0)?, number(2)?);
    let seconds = number(4)? * 3_600 + number(6)? * 60 + number(8)?;
    // Years begin in March here, so that a leap day is the last day of one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    let since_1970 = days.checked_sub(719_469)?;
    Some(Millis(since_1970 * DAY_MS + seconds * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::machine::CheckResult::{Fail, Note, Ok as Well};

    #[test]
    fn times_of_certificates_are_read_in_both_forms() {
        assert_eq!(time(b"700101000000Z"), Some(Millis(0)));
        assert_eq!(time(b"250101000000Z"), Some(Millis(1_735_689_600_000)));
        assert_eq!(time(b"20240229235959Z"), Some(Millis(1_709_251_199_000)));
        assert_eq!(time(b"20500301000000Z"), Some(Millis(2_529_705_600_000)));
        for other in [&b""[..], b"250101000000", b"25010100000Z", b"2x0101000000Z"] {
            assert_eq!(time(other), None);
        }
    }

    #[test]
    fn a_certificate_is_renewed_before_it_ends() {
        let validity = Validity { from: Millis(DAY_MS), until: Millis(100 * DAY_MS) };
        let at = |days: u64| finding("certificate", validity, Millis(days * DAY_MS), "renew").state;
        assert_eq!([at(0), at(1), at(70), at(90), at(100)], [Fail, Well, Well, Note, Fail]);
    }
}
