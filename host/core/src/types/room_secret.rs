//! The secret of a room, from which the randomness of its calls is derived. It is journalled, so
//! that a repeated call gets the same bytes. It leaves the host in no other way: no code here
//! prints or serialises it implicitly.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// Thirty-two bytes that the host drew for one room. `Debug` hides them and there is no
/// `Serialize`: writers of journals call [`to_hex`](Self::to_hex) explicitly, and every other
/// writer of an event leaves them out.
#[derive(Clone, PartialEq, Eq)]
pub struct RoomSecret([u8; Self::LENGTH]);

impl RoomSecret {
    /// The length of a secret in bytes.
    pub const LENGTH: usize = 32;
    /// The replacement for the secret in records for subscribers.
    pub const WITHHELD: Self = Self([0; Self::LENGTH]);

    /// The secret of these bytes, which come from the operating system's randomness.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes, to derive others from.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// The journal's form: 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect()
    }

    fn from_hex(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .chars()
            .map_while(|digit| digit.to_digit(16))
            .filter_map(|digit| digit.try_into().ok())
            .collect();
        let is_lower = !text.contains(|character: char| character.is_ascii_uppercase());
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        (is_lower && text.len() == 2 * Self::LENGTH).then_some(())?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for RoomSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RoomSecret(withheld)")
    }
}

impl<'de> Deserialize<'de> for RoomSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The text itself stays out of the error: it may be a mistyped secret.
        Self::from_hex(&text)
            .ok_or_else(|| de::Error::custom("a room's secret is 64 lower-case hexadecimal digits"))
    }
}

/// Serialisation for the room's own state, which only the host stores.
pub(crate) mod in_state {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::RoomSecret;

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        secret: &Option<RoomSecret>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        secret.as_ref().map(RoomSecret::to_hex).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<RoomSecret>, D::Error> {
        Option::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_from_hexadecimal_digits_and_nothing_else() {
        let secret = RoomSecret::new(std::array::from_fn(|index| {
            (index as u8).wrapping_mul(37).wrapping_add(201)
        }));
        let written = secret.to_hex();
        assert_eq!(
            serde_json::from_value::<RoomSecret>(written.clone().into()).expect("it reads"),
            secret
        );
        let wrong = [
            String::new(),
            written[..62].to_owned(),
            format!("{written}00"),
            written.to_uppercase(),
            "g".repeat(64),
            "é".repeat(32),
        ];
        for text in wrong {
            let error = serde_json::from_value::<RoomSecret>(text.clone().into())
                .expect_err("it is none")
                .to_string();
            assert!(text.is_empty() || !error.contains(&text), "{error}");
        }
    }

    #[test]
    fn debug_shows_nothing_of_it() {
        let text =
            format!("{:?} {:#?}", RoomSecret::new([171; 32]), Some(RoomSecret::new([171; 32])));
        assert!(!text.contains("ab") && !text.contains("171"), "{text}");
    }
}
