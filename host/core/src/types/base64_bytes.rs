//! Bytes that are Base64 in JSON, with padding: a third more than the bytes, where a list of numbers
//! takes almost four times as much.

use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

pub(crate) fn deserialize<'de, B, D>(deserializer: D) -> Result<B, D::Error>
where
    B: From<Vec<u8>>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(Base64Visitor(PhantomData))
}

/// Decodes the text without a copy of it.
struct Base64Visitor<B>(PhantomData<B>);

impl<B: From<Vec<u8>>> Visitor<'_> for Base64Visitor<B> {
    type Value = B;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("bytes as Base64 with padding")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<B, E> {
        STANDARD.decode(text).map(B::from).map_err(E::custom)
    }
}

/// The same for bytes that may be absent.
pub(crate) mod option {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field")]
    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        #[derive(Deserialize)]
        struct Bytes(#[serde(with = "super")] Vec<u8>);
        Ok(Option::<Bytes>::deserialize(deserializer)?.map(|bytes| bytes.0))
    }
}
