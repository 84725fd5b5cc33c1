//! Conversion between JSON and the Rust types of arguments and extras.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::era::{Era, Eras, FieldSpec, Presence};
use crate::json::Json;
use crate::text::cut_chars;

/// A type of an argument on the wire.
pub(crate) trait Field: Sized {
    /// The expected type, for an error message.
    const EXPECTED: &'static str;
    fn read(value: &Value) -> Option<Self>;
    fn write(&self) -> Json;
}

impl Field for String {
    const EXPECTED: &'static str = "a string";
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
    fn write(&self) -> Json {
        Json::text(self)
    }
}

impl Field for bool {
    const EXPECTED: &'static str = "true or false";
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(*flag),
            // Models write flags as text; both spellings are unambiguous.
            Value::String(text) => text.to_ascii_lowercase().parse().ok(),
            _ => None,
        }
    }
    fn write(&self) -> Json {
        Json::Leaf(Value::Bool(*self))
    }
}

impl Field for i64 {
    const EXPECTED: &'static str = "a whole number";
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => whole_number(number),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
    fn write(&self) -> Json {
        Json::Leaf(Value::from(*self))
    }
}

/// A whole number, also if it is written as `3.0`.
pub(crate) fn whole_number(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        // Above 2^53 a float does not identify a single integer.
        (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then_some(float as i64)
    })
}

impl Field for Map<String, Value> {
    const EXPECTED: &'static str = "an object";
    fn read(value: &Value) -> Option<Self> {
        value.as_object().cloned()
    }
    fn write(&self) -> Json {
        Json::Leaf(Value::Object(self.clone()))
    }
}

impl Field for Value {
    const EXPECTED: &'static str = "any value";
    fn read(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
    fn write(&self) -> Json {
        Json::Leaf(self.clone())
    }
}

impl<T: Field> Field for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    fn read(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::read(value).map(Some) }
    }
    fn write(&self) -> Json {
        self.as_ref().map_or(Json::Leaf(Value::Null), T::write)
    }
}

impl<T: Field> Field for Vec<T> {
    const EXPECTED: &'static str = "a list";
    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::read).collect()
    }
    fn write(&self) -> Json {
        Json::List(self.iter().map(T::write).collect())
    }
}

impl<T: Field> Field for BTreeMap<String, T> {
    const EXPECTED: &'static str = "an object";
    fn read(value: &Value) -> Option<Self> {
        value.as_object()?.iter().map(|(key, value)| Some((key.clone(), T::read(value)?))).collect()
    }
    fn write(&self) -> Json {
        Json::Leaf(Value::Object(
            self.iter().map(|(key, value)| (key.clone(), value.write().into_value())).collect(),
        ))
    }
}

/// An id of a command or task, which logs write as a number or as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LooseId {
    /// Written as a number.
    Number(i64),
    /// Written as text.
    Text(String),
}

impl LooseId {
    /// The id as a number, if either form is one.
    pub fn number(&self) -> Option<i64> {
        match self {
            LooseId::Number(number) => Some(*number),
            LooseId::Text(text) => text.trim().parse().ok(),
        }
    }
}

impl fmt::Display for LooseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LooseId::Number(number) => write!(f, "{number}"),
            LooseId::Text(text) => f.write_str(text),
        }
    }
}

impl From<i64> for LooseId {
    fn from(number: i64) -> Self {
        LooseId::Number(number)
    }
}

impl From<&str> for LooseId {
    fn from(text: &str) -> Self {
        LooseId::Text(text.to_owned())
    }
}

impl Field for LooseId {
    const EXPECTED: &'static str = "an id: a whole number or a string";
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => whole_number(number).map(LooseId::Number),
            Value::String(text) => Some(LooseId::Text(text.clone())),
            _ => None,
        }
    }
    fn write(&self) -> Json {
        match self {
            LooseId::Number(number) => number.write(),
            LooseId::Text(text) => text.write(),
        }
    }
}

/// Reads the fields of one kind from an object, after checking for unknown and missing names.
pub(crate) struct FieldReader<'a> {
    kind: &'static str,
    eras: Eras,
    form: Option<Era>,
    fields: &'a Map<String, Value>,
}

impl<'a> FieldReader<'a> {
    /// Reports unknown and missing names, all at once (O-006).
    pub(crate) fn new(
        kind: &'static str,
        eras: Eras,
        form: Option<Era>,
        specs: &[FieldSpec],
        fields: &'a Map<String, Value>,
    ) -> Result<FieldReader<'a>, String> {
        let presence = |spec: &FieldSpec| spec.presence(eras, form);
        let known: Vec<&str> = specs
            .iter()
            .filter(|spec| presence(spec) != Presence::Absent)
            .map(|spec| spec.name)
            .collect();
        let required: Vec<&str> = specs
            .iter()
            .filter(|spec| presence(spec) == Presence::Required)
            .map(|spec| spec.name)
            .collect();
        let unknown: Vec<&str> =
            fields.keys().map(String::as_str).filter(|name| !known.contains(name)).collect();
        let missing: Vec<&str> = required
            .iter()
            .copied()
            .filter(|name| fields.get(*name).is_none_or(|value| value.is_null()))
            .collect();
        let mut faults = Vec::new();
        if !unknown.is_empty() {
            faults.push(format!("unknown: {}", list(&unknown)));
        }
        if !missing.is_empty() {
            faults.push(format!("missing: {}", list(&missing)));
        }
        if faults.is_empty() {
            return Ok(FieldReader { kind, eras, form, fields });
        }
        Err(format!(
            "`{kind}` has wrong names ({}). Known are: {}; required are: {}.",
            faults.join("; "),
            list(&known),
            list(&required)
        ))
    }

    /// Returns the field. Uses the default if it is absent, null without a meaning, or unknown to
    /// this era.
    pub(crate) fn take<T: Field>(
        &self,
        spec: &FieldSpec,
        default: impl FnOnce() -> T,
    ) -> Result<T, String> {
        if spec.presence(self.eras, self.form) == Presence::Absent {
            return Ok(default());
        }
        let Some(value) = self.fields.get(spec.name) else { return Ok(default()) };
        match T::read(value) {
            Some(read) => Ok(read),
            None if value.is_null() => Ok(default()),
            None => Err(format!(
                "`{}` of `{}` must be {}, and is {}.",
                spec.name,
                self.kind,
                T::EXPECTED,
                short(value)
            )),
        }
    }
}

/// A list of names for a sentence; "none" if it is empty.
pub(crate) fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A value short enough for an error message.
pub(crate) fn short(value: &Value) -> String {
    cut_chars(&value.to_string(), 60).into_owned()
}

/// Declares the kinds of one family: a struct per kind, the enum over them, and the tables for
/// reader and writer.
macro_rules! kinds {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $wire:literal) => { $wire };
    (
        $(#[$enum_doc:meta])* $family:ident;
        $(
            $(#[$doc:meta])* $variant:ident = $kind:literal $eras:ident {
                $( $(#[$fdoc:meta])* $field:ident $(as $wire:literal)? : $ty:ty = $default:expr, $old:ident $new:ident; )*
            }
        )*
    ) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $variant {
                $( $(#[$fdoc])* pub $field: $ty, )*
            }

            impl Default for $variant {
                fn default() -> Self {
                    $variant { $( $field: $default, )* }
                }
            }

            impl From<$variant> for $family {
                fn from(it: $variant) -> $family {
                    $family::$variant(it)
                }
            }

            impl $variant {
                const SPECS: &'static [FieldSpec] = &[
                    $( FieldSpec {
                        name: kinds!(@name $field $($wire)?),
                        old: crate::era::Presence::$old,
                        new: crate::era::Presence::$new,
                    }, )*
                ];

                fn from_fields(form: Option<Era>, fields: &serde_json::Map<String, Value>) -> Result<Self, String> {
                    let reader = crate::field::FieldReader::new($kind, crate::era::$eras, form, Self::SPECS, fields)?;
                    let mut specs = Self::SPECS.iter();
                    $( let $field: $ty = match specs.next() {
                        Some(spec) => reader.take(spec, || $default)?,
                        None => $default,
                    }; )*
                    let _ = (&reader, &mut specs);
                    Ok($variant { $( $field, )* })
                }

                fn to_fields(&self, form: Option<Era>) -> Vec<(&'static str, Json)> {
                    let written: Vec<Json> = vec![ $( crate::field::Field::write(&self.$field), )* ];
                    Self::SPECS
                        .iter()
                        .zip(written)
                        .filter(|(spec, _)| spec.presence(crate::era::$eras, form) != crate::era::Presence::Absent)
                        .map(|(spec, json)| (spec.name, json))
                        .collect()
                }
            }
        )*

        $(#[$enum_doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $family {
            $( $(#[$doc])* $variant($variant), )*
        }

        impl $family {
            /// All kinds by their discriminators, in the order of the specification.
            pub const KINDS: &'static [&'static str] = &[ $( $kind, )* ];

            /// The discriminator.
            pub fn kind(&self) -> &'static str {
                match self { $( $family::$variant(_) => $kind, )* }
            }

            /// Whether an event of this kind can be decoded in that era.
            pub fn kind_in(kind: &str, era: Era) -> bool {
                match kind { $( $kind => crate::era::$eras.has(Some(era)), )* _ => false }
            }

            /// The names of all fields of a kind in that era, and of the required ones in `.1`.
            /// `None` if the era does not have the kind.
            pub fn fields_of(kind: &str, era: Era) -> Option<(Vec<&'static str>, Vec<&'static str>)> {
                let (specs, eras): (&[FieldSpec], crate::era::Eras) = match kind {
                    $( $kind => ($variant::SPECS, crate::era::$eras), )*
                    _ => return None,
                };
                if !eras.has(Some(era)) {
                    return None;
                }
                let names = |is_included: &dyn Fn(crate::era::Presence) -> bool| {
                    specs.iter().filter(|spec| is_included(spec.presence(eras, Some(era)))).map(|spec| spec.name).collect()
                };
                Some((
                    names(&|presence| presence != crate::era::Presence::Absent),
                    names(&|presence| presence == crate::era::Presence::Required),
                ))
            }

            fn read_kind(kind: &str, form: Option<Era>, fields: &serde_json::Map<String, Value>) -> Option<Result<Self, String>> {
                match kind {
                    $( $kind if crate::era::$eras.has(form) => Some($variant::from_fields(form, fields).map($family::$variant)), )*
                    _ => None,
                }
            }

            fn write_fields(&self, form: Option<Era>) -> Vec<(&'static str, Json)> {
                match self { $( $family::$variant(it) => it.to_fields(form), )* }
            }
        }
    };
}
pub(crate) use kinds;
