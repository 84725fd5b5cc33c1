//! Values of the component model as JSON, and their types as JSON Schema.

use serde_json::{Map, Number, Value, json};
use wasmtime::component::{Type, Val};

/// Maximum parts of the types of one function. Types may repeat one another, so that a short
/// component can write types of any size.
const PARTS: usize = 2_000;
/// Maximum depth of a type.
const DEPTH: usize = 32;
/// Maximum bytes of all types of a component, as JSON Schema and as WIT. Functions may share types,
/// so that a few bytes for an export can repeat the largest type. In memory they take up to twenty
/// times as many.
pub(super) const WRITTEN: usize = 512 << 10;
/// Bytes of a part besides its names: `{"type":"integer","minimum":0,"maximum":255}`.
const PART: usize = 48;
/// Bytes of a name besides its characters: quotes and a comma.
const NAME: usize = 3;

/// An object of these values.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    // They are moved: `json!` would copy the schema of a part once for each level above it.
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

fn or_null(schema: Value) -> Value {
    object([("anyOf", vec![json!({ "type": "null" }), schema].into())])
}

/// Why a function cannot be a tool.
#[derive(Debug)]
pub(super) struct Unserved(pub(super) String);

/// Writes the types of a component's functions, within limits.
#[derive(Default)]
pub(super) struct TypeWriter {
    parts: usize,
    depth: usize,
    written: usize,
}

impl TypeWriter {
    /// Begins the next function.
    pub(super) fn begin(&mut self) {
        (self.parts, self.depth) = (0, 0);
    }

    /// Whether the types of the component have used up their limit.
    pub(super) fn is_used_up(&self) -> bool {
        self.written > WRITTEN
    }

    /// Counts names before they are written.
    ///
    /// # Errors
    /// If the types of the component become too large.
    pub(super) fn count<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Unserved> {
        let bytes = names.into_iter().map(|name| name.len() + NAME);
        self.add(bytes.fold(0, usize::saturating_add))
    }

    fn add(&mut self, bytes: usize) -> Result<(), Unserved> {
        self.written = self.written.saturating_add(bytes);
        if self.is_used_up() {
            return Err(Unserved(format!("all types together have more than {WRITTEN} bytes")));
        }
        Ok(())
    }

    fn part<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, Unserved>,
    ) -> Result<T, Unserved> {
        self.parts += 1;
        self.depth += 1;
        if self.parts > PARTS || self.depth > DEPTH {
            return Err(Unserved(format!(
                "its types are too large: at most {PARTS} parts, {DEPTH} deep"
            )));
        }
        self.add(PART)?;
        let written = write(self);
        self.depth -= 1;
        written
    }

    /// Counts the parts that a type consists of, before any is written.
    fn count_parts(&mut self, ty: &Type) -> Result<(), Unserved> {
        match ty {
            Type::Record(record) => self.count(record.fields().map(|field| field.name)),
            Type::Variant(variant) => self.count(variant.cases().map(|case| case.name)),
            Type::Enum(names) => self.count(names.names()),
            Type::Flags(flags) => self.count(flags.names()),
            _ => Ok(()),
        }
    }

    /// Returns the JSON Schema of a type.
    ///
    /// # Errors
    /// If the type has no values that JSON can hold, or is too large.
    pub(super) fn schema(&mut self, ty: &Type) -> Result<Value, Unserved> {
        self.part(|writer| writer.schema_of(ty))
    }

    fn schema_of(&mut self, ty: &Type) -> Result<Value, Unserved> {
        self.count_parts(ty)?;
        let integer =
            |least: i64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
        Ok(match ty {
            Type::Bool => json!({ "type": "boolean" }),
            Type::S8 => integer(i8::MIN.into(), 0x7f),
            Type::U8 => integer(0, u8::MAX.into()),
            Type::S16 => integer(i16::MIN.into(), 0x7fff),
            Type::U16 => integer(0, u16::MAX.into()),
            Type::S32 => integer(i32::MIN.into(), 0x7fff_ffff),
            Type::U32 => integer(0, u32::MAX.into()),
            Type::S64 => integer(i64::MIN, 0x7fff_ffff_ffff_ffff),
            Type::U64 => integer(0, u64::MAX),
            Type::Float32 | Type::Float64 => json!({ "type": "number" }),
            Type::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            Type::String => json!({ "type": "string" }),
            Type::List(list) => {
                object([("type", "array".into()), ("items", self.schema(&list.ty())?)])
            }
            Type::Record(record) => {
                let mut properties = Map::new();
                let mut required = Vec::new();
                for field in record.fields() {
                    properties.insert(field.name.to_owned(), self.schema(&field.ty)?);
                    if !matches!(field.ty, Type::Option(_)) {
                        required.push(field.name.to_owned());
                    }
                }
                object([
                    ("type", "object".into()),
                    ("properties", properties.into()),
                    ("required", required.into()),
                    ("additionalProperties", false.into()),
                ])
            }
            Type::Tuple(tuple) => {
                let items =
                    tuple.types().map(|ty| self.schema(&ty)).collect::<Result<Vec<_>, _>>()?;
                let length = items.len();
                object([
                    ("type", "array".into()),
                    ("prefixItems", items.into()),
                    ("minItems", length.into()),
                    ("maxItems", length.into()),
                ])
            }
            Type::Variant(variant) => {
                let mut cases = Vec::new();
                for case in variant.cases() {
                    cases.push(self.case(case.name, case.ty.as_ref())?);
                }
                object([("oneOf", cases.into())])
            }
            Type::Result(result) => {
                let cases = vec![
                    self.case("ok", result.ok().as_ref())?,
                    self.case("err", result.err().as_ref())?,
                ];
                object([("oneOf", cases.into())])
            }
            Type::Enum(names) => json!({ "enum": names.names().collect::<Vec<_>>() }),
            Type::Flags(flags) => {
                let names: Vec<&str> = flags.names().collect();
                json!({ "type": "array", "items": { "enum": names }, "uniqueItems": true })
            }
            Type::Option(option) => match option.ty() {
                // Null would stand for both.
                inner @ Type::Option(_) => or_null(self.case("some", Some(&inner))?),
                inner => or_null(self.schema(&inner)?),
            },
            other => return Err(unserved(other)),
        })
    }

    /// Returns the schema of a case: an object with the name of the case, and its value.
    fn case(&mut self, name: &str, ty: Option<&Type>) -> Result<Value, Unserved> {
        let value = match ty {
            Some(ty) => self.schema(ty)?,
            None => json!({ "type": "null" }),
        };
        Ok(object([
            ("type", "object".into()),
            ("properties", object([(name, value)])),
            ("required", json!([name])),
            ("additionalProperties", false.into()),
        ]))
    }

    /// Returns a type as WIT writes it. Records and the like have no name here, so their parts are
    /// written.
    ///
    /// # Errors
    /// If the type has no values that JSON can hold, or is too large.
    pub(super) fn text(&mut self, ty: &Type) -> Result<String, Unserved> {
        self.part(|writer| writer.text_of(ty))
    }

    fn text_of(&mut self, ty: &Type) -> Result<String, Unserved> {
        self.count_parts(ty)?;
        let word = match ty {
            Type::Bool => "bool",
            Type::S8 => "s8",
            Type::U8 => "u8",
            Type::S16 => "s16",
            Type::U16 => "u16",
            Type::S32 => "s32",
            Type::U32 => "u32",
            Type::S64 => "s64",
            Type::U64 => "u64",
            Type::Float32 => "f32",
            Type::Float64 => "f64",
            Type::Char => "char",
            Type::String => "string",
            Type::List(list) => return Ok(format!("list<{}>", self.text(&list.ty())?)),
            Type::Option(option) => return Ok(format!("option<{}>", self.text(&option.ty())?)),
            Type::Tuple(tuple) => {
                let parts =
                    tuple.types().map(|ty| self.text(&ty)).collect::<Result<Vec<_>, _>>()?;
                return Ok(format!("tuple<{}>", parts.join(", ")));
            }
            Type::Record(record) => {
                let mut fields = Vec::new();
                for field in record.fields() {
                    fields.push(format!("{}: {}", field.name, self.text(&field.ty)?));
                }
                return Ok(format!("record {{ {} }}", fields.join(", ")));
            }
            Type::Variant(variant) => {
                let mut cases = Vec::new();
                for case in variant.cases() {
                    cases.push(match &case.ty {
                        Some(ty) => format!("{}({})", case.name, self.text(ty)?),
                        None => case.name.to_owned(),
                    });
                }
                return Ok(format!("variant {{ {} }}", cases.join(", ")));
            }
            Type::Result(result) => {
                let mut side = |ty: Option<Type>| match ty {
                    Some(ty) => self.text(&ty),
                    None => Ok("_".to_owned()),
                };
                return Ok(format!("result<{}, {}>", side(result.ok())?, side(result.err())?));
            }
            Type::Enum(names) => {
                return Ok(format!("enum {{ {} }}", names.names().collect::<Vec<_>>().join(", ")));
            }
            Type::Flags(flags) => {
                return Ok(format!("flags {{ {} }}", flags.names().collect::<Vec<_>>().join(", ")));
            }
            other => return Err(unserved(other)),
        };
        Ok(word.to_owned())
    }
}

fn unserved(ty: &Type) -> Unserved {
    let what = match ty {
        Type::Own(_) | Type::Borrow(_) => "a resource, which lives no longer than a call",
        Type::Future(_) | Type::Stream(_) => "a stream or a future",
        _ => "a type that JSON has no values for",
    };
    Unserved(format!("it takes or returns {what}"))
}

/// Returns the value of a type that JSON stands for.
///
/// # Errors
/// If the value does not have the type, in words for a model.
pub(super) fn from_json(value: &Value, ty: &Type) -> Result<Val, String> {
    let integer = || {
        // A larger float is whole, and not the only integer that it stands for.
        let is_float = value.as_f64().is_some_and(|float| float.fract() == 0.0);
        let what = if is_float { "an integer in digits" } else { "an integer" };
        integer(value).ok_or_else(|| wrong(value, what))
    };
    let ranged = |what: &str| wrong(value, what);
    let text = || value.as_str().ok_or_else(|| wrong(value, "a string"));
    let items = || value.as_array().ok_or_else(|| wrong(value, "an array"));
    Ok(match ty {
        Type::Bool => Val::Bool(value.as_bool().ok_or_else(|| wrong(value, "a boolean"))?),
        Type::S8 => Val::S8(integer()?.try_into().map_err(|_| ranged("a number of 8 bits"))?),
        Type::U8 => Val::U8(integer()?.try_into().map_err(|_| ranged("a number from 0 to 255"))?),
        Type::S16 => Val::S16(integer()?.try_into().map_err(|_| ranged("a number of 16 bits"))?),
        Type::U16 => {
            Val::U16(integer()?.try_into().map_err(|_| ranged("a number from 0 to 65535"))?)
        }
        Type::S32 => Val::S32(integer()?.try_into().map_err(|_| ranged("a number of 32 bits"))?),
        Type::U32 => {
            Val::U32(integer()?.try_into().map_err(|_| ranged("a positive number of 32 bits"))?)
        }
        Type::S64 => Val::S64(integer()?.try_into().map_err(|_| ranged("a number of 64 bits"))?),
        Type::U64 => {
            Val::U64(integer()?.try_into().map_err(|_| ranged("a positive number of 64 bits"))?)
        }
        #[expect(clippy::cast_possible_truncation, reason = "the type has that precision")]
        Type::Float32 => {
            let number = value.as_f64().map(|number| number as f32).filter(|it| it.is_finite());
            Val::Float32(number.ok_or_else(|| wrong(value, "a number of 32 bits"))?)
        }
        Type::Float64 => Val::Float64(value.as_f64().ok_or_else(|| wrong(value, "a number"))?),
        Type::Char => {
            let mut chars = text()?.chars();
            match (chars.next(), chars.next()) {
                (Some(only), None) => Val::Char(only),
                _ => return Err(wrong(value, "a single character")),
            }
        }
        Type::String => Val::String(text()?.to_owned()),
        Type::List(list) => {
            let ty = list.ty();
            let values = items()?.iter().map(|item| from_json(item, &ty));
            Val::List(values.collect::<Result<_, _>>()?)
        }
        Type::Record(record) => {
            let fields = value.as_object().ok_or_else(|| wrong(value, "an object"))?;
            let read = record.fields().map(|field| {
                let value = fields.get(field.name).unwrap_or(&Value::Null);
                let read = from_json(value, &field.ty);
                Ok((field.name.to_owned(), read.map_err(|why| format!("`{}`: {why}", field.name))?))
            });
            Val::Record(read.collect::<Result<_, String>>()?)
        }
        Type::Tuple(tuple) => {
            let (items, types) = (items()?, tuple.types());
            if items.len() != types.len() {
                return Err(wrong(value, "an array of another length"));
            }
            let values = items.iter().zip(types).map(|(item, ty)| from_json(item, &ty));
            Val::Tuple(values.collect::<Result<_, _>>()?)
        }
        Type::Variant(variant) => {
            let (name, inner) = case(value)?;
            let known = variant.cases().find(|case| case.name == name);
            let Some(known) = known else { return Err(format!("there is no case `{name}`")) };
            Val::Variant(name.to_owned(), payload(inner, known.ty.as_ref())?)
        }
        Type::Result(result) => match case(value)? {
            ("ok", inner) => Val::Result(Ok(payload(inner, result.ok().as_ref())?)),
            ("err", inner) => Val::Result(Err(payload(inner, result.err().as_ref())?)),
            (other, _) => return Err(format!("there is no case `{other}`")),
        },
        Type::Enum(names) => {
            let name = text()?;
            if !names.names().any(|known| known == name) {
                return Err(format!("there is no case `{name}`"));
            }
            Val::Enum(name.to_owned())
        }
        Type::Flags(flags) => {
            let mut set = Vec::new();
            for item in items()? {
                let name = item.as_str().ok_or_else(|| wrong(item, "a string"))?;
                if !flags.names().any(|known| known == name) {
                    return Err(format!("there is no flag `{name}`"));
                }
                set.push(name.to_owned());
            }
            Val::Flags(set)
        }
        Type::Option(option) => match (value, option.ty()) {
            (Value::Null, _) => Val::Option(None),
            (value, inner @ Type::Option(_)) => {
                let (_, payload) = case(value)?;
                Val::Option(Some(Box::new(from_json(payload, &inner)?)))
            }
            (value, inner) => Val::Option(Some(Box::new(from_json(value, &inner)?))),
        },
        _ => return Err("its type has no values in JSON".to_owned()),
    })
}

/// An integer, also one that is written as `1.0`.
fn integer(value: &Value) -> Option<i128> {
    if let Some(number) = value.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = value.as_u64() {
        return Some(number.into());
    }
    // Beyond this a float does not hold every integer.
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= 9e15)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and in range")]
    Some(float as i128)
}

fn wrong(value: &Value, what: &str) -> String {
    let is = match value {
        Value::Null => "missing or null".to_owned(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        value => value.to_string(),
    };
    format!("it must be {what}, and is {is}")
}

/// Returns the name and the value of the only field.
fn case(value: &Value) -> Result<(&str, &Value), String> {
    let fields = value.as_object().filter(|fields| fields.len() == 1);
    fields
        .and_then(|fields| fields.iter().next())
        .map(|(name, inner)| (name.as_str(), inner))
        .ok_or_else(|| wrong(value, "an object with one field, the name of a case"))
}

fn payload(inner: &Value, ty: Option<&Type>) -> Result<Option<Box<Val>>, String> {
    ty.map(|ty| from_json(inner, ty).map(Box::new)).transpose()
}

/// A value as JSON, in the form that `from_json` reads. A number that JSON lacks is its name
/// as a string.
pub(super) fn to_json(value: &Val) -> Value {
    let boxed =
        |inner: &Option<Box<Val>>| inner.as_ref().map_or(Value::Null, |inner| to_json(inner));
    let case = |name: &str, inner: &Option<Box<Val>>| json!({ name: boxed(inner) });
    match value {
        Val::Bool(value) => json!(value),
        Val::S8(value) => json!(value),
        Val::U8(value) => json!(value),
        Val::S16(value) => json!(value),
        Val::U16(value) => json!(value),
        Val::S32(value) => json!(value),
        Val::U32(value) => json!(value),
        Val::S64(value) => json!(value),
        Val::U64(value) => json!(value),
        // Through its text, so that 0.1 stays 0.1.
        Val::Float32(value) => number(f64::from(*value), value.to_string().parse().ok()),
        Val::Float64(value) => number(*value, Some(*value)),
        Val::Char(value) => json!(value),
        Val::String(value) => json!(value),
        Val::List(items) | Val::Tuple(items) | Val::FixedLengthList(items) => {
            items.iter().map(to_json).collect()
        }
        Val::Record(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), to_json(value)))
            .collect::<Map<_, _>>()
            .into(),
        Val::Variant(name, inner) => case(name, inner),
        Val::Enum(name) => json!(name),
        Val::Option(Some(inner)) if matches!(**inner, Val::Option(_)) => {
            json!({ "some": to_json(inner) })
        }
        Val::Option(inner) => boxed(inner),
        Val::Result(Ok(inner)) => case("ok", inner),
        Val::Result(Err(inner)) => case("err", inner),
        Val::Flags(names) => json!(names),
        // No function with such a type is served.
        Val::Map(_) | Val::Resource(_) | Val::Future(_) | Val::Stream(_) | Val::ErrorContext(_) => {
            Value::Null
        }
    }
}

fn number(value: f64, written: Option<f64>) -> Value {
    match written.and_then(Number::from_f64) {
        Some(number) => Value::Number(number),
        None => json!(value.to_string()),
    }
}
