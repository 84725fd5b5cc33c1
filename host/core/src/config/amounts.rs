//! Amounts of the config: counts, sizes, durations, money. Zero is refused: to forbid something,
//! its grant is left out.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue};
use crate::types::text::{show_duration, show_size};
use crate::types::units::{self, UnitError};
use crate::types::wording::{code, thousands};

/// The range of a factor. Less than 1 would mean less often than the others; larger values are
/// mistakes.
pub(super) const FACTORS: RangeInclusive<f64> = 1.0..=1_000.0;

impl SpannedValue<'_> {
    /// Reads a whole number from `least` to `most`.
    pub(crate) fn whole_number(
        &self,
        reader: &mut ConfigReader,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let DeValue::Integer(integer) = self.value else {
            self.expected(reader, "a whole number");
            return None;
        };
        // A number with more digits than `i128` holds is out of range in any case.
        let number = i128::from_str_radix(integer.as_str(), integer.radix());
        let fallback = if integer.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
        self.within(reader, number.unwrap_or(fallback), least, most, thousands)
    }

    /// Reads bytes, from a text such as `64 MiB`.
    pub(crate) fn size(&self, reader: &mut ConfigReader, least: u64, most: u64) -> Option<u64> {
        self.measured(
            reader,
            units::size,
            "a size such as \"64 MiB\"",
            "B, KiB, MiB, GiB, kB, MB or GB",
            (least, most, show_size),
        )
    }

    /// Reads milliseconds, from a text such as `500 ms`.
    pub(crate) fn duration(&self, reader: &mut ConfigReader, least: u64, most: u64) -> Option<u64> {
        self.measured(
            reader,
            units::duration,
            "a duration such as \"2 s\"",
            "ms, s, min or h",
            (least, most, show_duration),
        )
    }

    /// Reads micro-US-dollars from a number of dollars; at least a millionth of one.
    pub(crate) fn spending(&self, reader: &mut ConfigReader) -> Option<u64> {
        let amount = self.dollars(reader)?;
        if amount == 0 {
            self.reject(
                reader,
                ProblemCode::OutOfRange,
                "must be at least 0.000001",
                "to allow no spending, grant no model".to_owned(),
            );
            return None;
        }
        Some(amount)
    }

    /// Reads micro-US-dollars from a number of dollars; a price may be 0.
    pub(crate) fn dollars(&self, reader: &mut ConfigReader) -> Option<u64> {
        let number: Option<f64> = match self.value {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            _ => {
                self.expected(reader, "a number of US dollars");
                return None;
            }
        };
        let amount = number.and_then(units::micro_usd);
        if amount.is_none() {
            self.reject(
                reader,
                ProblemCode::OutOfRange,
                "must be an amount of US dollars from 0 to a billion",
                None,
            );
        }
        amount
    }

    /// Reads a number in `FACTORS`.
    pub(crate) fn factor(&self, reader: &mut ConfigReader) -> Option<f64> {
        let number: Option<f64> = match self.value {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            _ => {
                self.expected(reader, "a number");
                return None;
            }
        };
        let factor = number.filter(|number| FACTORS.contains(number));
        if factor.is_none() {
            self.reject(
                reader,
                ProblemCode::OutOfRange,
                &format!("must be from {} to {}", FACTORS.start(), FACTORS.end()),
                None,
            );
        }
        factor
    }

    fn measured(
        &self,
        reader: &mut ConfigReader,
        parse: fn(&str) -> Result<u64, UnitError>,
        what: &str,
        known: &str,
        (least, most, show): (u64, u64, fn(u64) -> String),
    ) -> Option<u64> {
        let DeValue::String(text) = self.value else {
            self.expected(reader, what);
            return None;
        };
        match parse(text) {
            Ok(amount) => self.within(reader, i128::from(amount), least, most, show),
            Err(UnitError::TooLarge) => self.within(reader, i128::MAX, least, most, show),
            Err(error) => {
                let units = format!("units are {known}");
                let help = self
                    .example(reader)
                    .map_or(units.clone(), |example| format!("{example}; {units}"));
                self.wrong(reader, &format!("must be {what}: {} {error}", code(text)), help);
                None
            }
        }
    }

    fn within(
        &self,
        reader: &mut ConfigReader,
        amount: i128,
        least: u64,
        most: u64,
        show: fn(u64) -> String,
    ) -> Option<u64> {
        let fitting = u64::try_from(amount).ok().filter(|amount| (least..=most).contains(amount));
        if fitting.is_none() {
            let bound = if amount < i128::from(least) {
                ("at least", show(least))
            } else {
                ("at most", show(most))
            };
            self.reject(
                reader,
                ProblemCode::OutOfRange,
                &format!("must be {} {}", bound.0, bound.1),
                None,
            );
        }
        fitting
    }
}
