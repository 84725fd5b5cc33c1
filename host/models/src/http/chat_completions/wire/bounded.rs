//! Lists and values of any size. Only their used parts are kept in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Number;

use super::{CALLS_MAX, CallPiece, WireChoice};

/// The choices of a chunk; one of them is used.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    /// Whether there is a choice.
    pub any: bool,
    /// The first choice with index 0, which is also the default index.
    pub first: Option<WireChoice>,
}

/// Pieces of calls, at most [`CALLS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct BoundedCalls(pub Vec<CallPiece>);

/// A text, or the texts in a list of parts; empty for anything else.
#[derive(Debug, Default)]
pub(crate) struct Content(pub String);

/// The names in a list of models.
#[derive(Debug, Default)]
pub(crate) struct ModelNames(pub Vec<String>);

/// An object; `None` for anything else, which some servers put in its place.
#[derive(Debug, Default)]
pub(crate) struct Object<T>(pub Option<T>);

/// A value that is made from the items of a list, and holds only what is used of them.
pub(crate) trait FromItems: Default {
    type Item: Default;

    /// Adds an item; anything but an object in its place is an empty one. Returns whether there are
    /// not too many calls yet.
    fn add(&mut self, index: i64, item: Self::Item) -> bool;

    /// The value of a text in place of the list.
    fn of_text(_: &str) -> Self {
        Self::default()
    }
}

/// A list that was read into a value; the default for anything else.
#[derive(Debug, Default)]
pub(crate) struct Items<T>(pub T);

/// A value without parts.
#[derive(Debug)]
pub(super) enum Scalar {
    Text(String),
    Number(Number),
    Other,
}

/// Implements `Deserialize` with this visitor.
macro_rules! visited {
    ($type:ty, $visitor:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($visitor)
            }
        }
    };
}

/// Defines the result of visitor methods for unused values.
macro_rules! otherwise {
    ($other:expr; $($method:ident($type:ty)),*) => {
        $(fn $method<E: Error>(self, _: $type) -> Result<Self::Value, E> {
            Ok($other)
        })*
    };
}

visited!(Choices, ChoicesVisitor);
visited!(BoundedCalls, CallsVisitor);
visited!(ModelNames, NamesVisitor);
visited!(Scalar, ScalarVisitor);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = String::new();
        TextParts { text: &mut text, is_part: false }.deserialize(deserializer)?;
        Ok(Self(text))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    otherwise!(Object(None); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Object(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        IgnoredAny.visit_seq(list).map(|_| Object(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|value| Object(Some(value)))
    }
}

struct ChoicesVisitor;

impl<'de> Visitor<'de> for ChoicesVisitor {
    type Value = Choices;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of choices")
    }

    otherwise!(Choices::default(); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E: Error>(self) -> Result<Choices, E> {
        Ok(Choices::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choices, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Choices::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices, A::Error> {
        let mut choices = Choices::default();
        while choices.first.is_none() {
            let Some(Object(choice)) = list.next_element::<Object<WireChoice>>()? else {
                return Ok(choices);
            };
            choices.any |= choice.is_some();
            choices.first = choice.filter(|choice| choice.index.unwrap_or_default() == 0);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(choices)
    }
}

struct CallsVisitor;

impl<'de> Visitor<'de> for CallsVisitor {
    type Value = BoundedCalls;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list of at most {CALLS_MAX} calls")
    }

    otherwise!(BoundedCalls::default(); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E: Error>(self) -> Result<BoundedCalls, E> {
        Ok(BoundedCalls::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedCalls, A::Error> {
        let mut calls = Vec::new();
        while let Some(Object(call)) = list.next_element::<Object<CallPiece>>()? {
            if calls.len() == CALLS_MAX {
                return Err(A::Error::invalid_length(CALLS_MAX + 1, &self));
            }
            calls.extend(call);
        }
        Ok(BoundedCalls(calls))
    }

    /// Reads one call in place of a list.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BoundedCalls, A::Error> {
        let call = CallPiece::deserialize(MapAccessDeserializer::new(map))?;
        Ok(BoundedCalls(vec![call]))
    }
}

impl<'de, T: FromItems<Item: Deserialize<'de>>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor(PhantomData)).map(Self)
    }
}

struct ItemsVisitor<T>(PhantomData<T>);

impl<'de, T: FromItems<Item: Deserialize<'de>>> Visitor<'de> for ItemsVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list with at most {CALLS_MAX} calls")
    }

    otherwise!(T::default(); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok(T::of_text(text))
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        IgnoredAny.visit_map(map).map(|_| T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        let mut value = T::default();
        let mut index = 0;
        while let Some(Object(item)) = list.next_element::<Object<T::Item>>()? {
            if !value.add(index, item.unwrap_or_default()) {
                return Err(A::Error::invalid_length(CALLS_MAX + 1, &self));
            }
            index += 1;
        }
        Ok(value)
    }
}

struct NamesVisitor;

#[derive(serde::Deserialize)]
struct Named {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = ModelNames;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of models")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ModelNames, A::Error> {
        let mut names = Vec::new();
        while let Some(entry) = list.next_element::<Named>()? {
            names.extend(entry.id.or(entry.name));
        }
        Ok(ModelNames(names))
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    otherwise!(Scalar::Other; visit_bool(bool));

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Number::from_f64(number).map_or(Scalar::Other, Scalar::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Scalar, A::Error> {
        IgnoredAny.visit_seq(list).map(|_| Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Scalar, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Scalar::Other)
    }
}

/// Appends the text of a content, or of one of its parts.
struct TextParts<'a> {
    text: &'a mut String,
    is_part: bool,
}

impl<'de> DeserializeSeed<'de> for TextParts<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextParts<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a content")
    }

    otherwise!((); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        // A bare string is not a valid part.
        if !self.is_part {
            self.text.push_str(text);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.is_part {
            return IgnoredAny.visit_seq(list).map(drop);
        }
        while list.next_element_seed(TextParts { text: &mut *self.text, is_part: true })?.is_some()
        {
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if !self.is_part {
            return IgnoredAny.visit_map(map).map(drop);
        }
        let (mut kind, mut text) = (String::new(), String::new());
        while let Some(name) = map.next_key::<String>()? {
            let field = match name.as_str() {
                "type" => &mut kind,
                "text" => &mut text,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Scalar::Text(text) = map.next_value()? {
                *field = text;
            }
        }
        if !matches!(kind.as_str(), "thinking" | "reasoning") {
            self.text.push_str(&text);
        }
        Ok(())
    }
}

/// Reads a text as it is, and anything else as its JSON text. A parsed tree may take a hundred
/// times the memory.
pub(crate) fn json_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let mut json = String::new();
    JsonText { json: &mut json, is_inner: false }.deserialize(deserializer)?;
    Ok(json)
}

struct JsonText<'a> {
    json: &'a mut String,
    is_inner: bool,
}

impl JsonText<'_> {
    fn inner(&mut self) -> JsonText<'_> {
        JsonText { json: self.json, is_inner: true }
    }

    fn push(self, json: impl fmt::Display) {
        *self.json += &json.to_string();
    }
}

impl<'de> DeserializeSeed<'de> for JsonText<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonText<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.is_inner {
            self.push("null");
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.push(value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.push(number);
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.push(number);
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.push(serde_json::Value::from(number));
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if self.is_inner {
            self.push(serde_json::Value::from(text));
        } else {
            self.json.push_str(text);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.json.push('[');
        let mut is_first = true;
        loop {
            let before = self.json.len();
            if !std::mem::take(&mut is_first) {
                self.json.push(',');
            }
            if list.next_element_seed(self.inner())?.is_none() {
                self.json.truncate(before);
                break;
            }
        }
        self.json.push(']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.json.push('{');
        let mut is_first = true;
        while let Some(name) = map.next_key::<String>()? {
            if !std::mem::take(&mut is_first) {
                self.json.push(',');
            }
            self.inner().push(serde_json::Value::from(name));
            self.json.push(':');
            map.next_value_seed(self.inner())?;
        }
        self.json.push('}');
        Ok(())
    }
}
