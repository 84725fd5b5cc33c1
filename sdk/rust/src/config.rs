//! The plugin's own settings: its `config` table in the operator's file. In a native unit test they
//! are empty, unless a harness sets them.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

#[cfg(target_family = "wasm")]
use crate::bindings::imports::conclave::plugin::config as import;
use crate::{Error, Result};

/// Returns the settings as a `T`. Fails if they do not have that shape, and names the key.
///
/// ```
/// #[derive(serde::Deserialize)]
/// #[serde(default)]
/// struct Settings {
///     units: String,
/// }
///
/// impl Default for Settings {
///     fn default() -> Self {
///         Self { units: "celsius".into() }
///     }
/// }
///
/// let settings: Settings = conclave_sdk::config::get()?;
/// assert_eq!(settings.units, "celsius");
/// # Ok::<(), conclave_sdk::Error>(())
/// ```
pub fn get<T: DeserializeOwned>() -> Result<T> {
    #[cfg(target_family = "wasm")]
    let text = import::get();
    #[cfg(not(target_family = "wasm"))]
    let text = crate::native::config();
    serde_json::from_str(&text)
        .map_err(|error| Error::Other(format!("the plugin's config: {error}")))
}

/// A duration in a setting, in the operator's notation: `"15 s"`, `"500 ms"`, `"2 min"`, `"1 h"`. A
/// number without a unit is an error, except 0.
///
/// ```
/// use conclave_sdk::config::Span;
///
/// let span: Span = serde_json::from_str("\"15 s\"")?;
/// assert_eq!(span.ms(), 15_000);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// Creates a duration of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Creates a duration of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000)
    }

    /// The milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().ok()?;
        let unit = match text[end..].trim() {
            "" if number == 0 => 1,
            "ms" => 1,
            "s" => 1_000,
            "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.checked_mul(unit).map(Self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let invalid_time = || {
            D::Error::custom(format!(
                "{text:?} is no time: write a whole number and ms, s, min, h or d, such as \"15 s\""
            ))
        };
        Self::parse(&text).ok_or_else(invalid_time)
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn a_span_has_a_unit() {
        let read = |text: &str| Span::parse(text).map(Span::ms);
        assert_eq!(
            ["0", "0 s", "500 ms", "15s", " 2 min ", "1 h"].map(read),
            [0, 0, 500, 15_000, 120_000, 3_600_000].map(Some)
        );
        assert_eq!(
            ["", "15", "s", "-1 s", "1.5 s", "1 week", "99999999999999999 h"].map(read),
            [None; 7]
        );
        let error = serde_json::from_str::<Span>("\"15\"").expect_err("it has no unit").to_string();
        assert!(error.contains("such as \"15 s\""), "{error}");
    }
}
