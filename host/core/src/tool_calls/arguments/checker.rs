//! The walk over schema and value together. Depth and steps are bounded, so that neither a
//! recursive schema nor one with many choices costs more than the value's size allows. Unreached
//! parts are accepted. The value is only read: changes are collected and applied at the end.

use regex::RegexBuilder;
use serde_json::{Map, Value};

use super::Wrong;
use super::lax::{Lax, describe, lax, mismatch};

/// The limit of levels of schema and value.
const DEPTH_MAX: usize = 64;

/// The limit of reported fields: a model needs no more, and each has its whole path.
const WRONG_MAX: usize = 64;

/// The limit of a compiled pattern in bytes, since a few characters can request gigabytes. A
/// pattern with the letters and digits of all languages takes less.
pub const PATTERN_BYTES: usize = 128 << 10;
/// The steps for a pattern, which is compiled for each value.
const PATTERN_FUEL: u64 = 1 << 12;
/// The characters shown of a pattern.
const PATTERN_SHOWN: usize = 80;

/// The steps for any value, and for each part of it.
const FUEL: u64 = 1 << 16;
const FUEL_EACH: u64 = 16;

#[derive(Clone, Copy, Debug)]
enum PathStep<'a> {
    Field(&'a str),
    Index(usize),
}

/// The change of a value.
#[derive(Debug)]
enum ValueChange<'a> {
    Same,
    Put(Value),
    Default(&'a Value),
    Within(Vec<(PathStep<'a>, Self)>),
}

impl ValueChange<'_> {
    /// Both changes; the later one wins where they overlap.
    fn and(self, later: Self) -> Self {
        match (self, later) {
            (first, Self::Same) => first,
            (Self::Within(mut first), Self::Within(later)) => {
                first.extend(later);
                Self::Within(first)
            }
            (_, later) => later,
        }
    }

    fn apply(self, value: &mut Value) {
        match self {
            Self::Same => {}
            Self::Put(new) => *value = new,
            Self::Default(new) => *value = new.clone(),
            Self::Within(changes) => {
                for (step, change) in changes {
                    let place = match (step, &mut *value) {
                        (PathStep::Field(name), Value::Object(fields)) => {
                            Some(fields.entry(name).or_insert(Value::Null))
                        }
                        (PathStep::Index(index), Value::Array(items)) => items.get_mut(index),
                        _ => None,
                    };
                    if let Some(place) = place {
                        change.apply(place);
                    }
                }
            }
        }
    }
}

/// One check of one value. Each step returns the change of the value, `None` if it does not fit.
pub(super) struct Checker<'a> {
    root: &'a Value,
    path: Vec<PathStep<'a>>,
    wrong: Vec<Wrong>,
    fuel: u64,
    /// The number of choices being tried; errors are not reported meanwhile.
    trying: usize,
    /// The number of plain values converted from another type.
    coerced: usize,
    /// Whether what only the validator refuses is reported too: see [`Self::out_of_form`].
    is_strict: bool,
}

impl<'a> Checker<'a> {
    pub(super) fn new(schema: &'a Value, value: &Value) -> Self {
        let fuel = FUEL.saturating_add(weight(value, u64::MAX >> 8).saturating_mul(FUEL_EACH));
        Self {
            root: schema,
            path: Vec::new(),
            wrong: Vec::new(),
            fuel,
            trying: 0,
            coerced: 0,
            is_strict: false,
        }
    }

    pub(super) fn run(mut self, value: &'a Value) -> Result<Value, Vec<Wrong>> {
        match self.check(self.root, value, 0) {
            Some(change) if self.wrong.is_empty() => {
                let mut value = value.clone();
                change.apply(&mut value);
                Ok(value)
            }
            // Once a call cannot be made, its sender gets all that is wrong with it at once.
            _ => {
                let mut strict = Self { is_strict: true, ..Self::new(self.root, value) };
                strict.check(self.root, value, 0);
                let is_complete = strict.wrong.len() >= self.wrong.len();
                Err(if is_complete { strict.wrong } else { self.wrong })
            }
        }
    }

    fn check(
        &mut self,
        schema: &'a Value,
        value: &'a Value,
        depth: usize,
    ) -> Option<ValueChange<'a>> {
        if depth >= DEPTH_MAX || !self.spend(1) {
            return Some(ValueChange::Same);
        }
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(false) => return self.reject("is not allowed here".to_owned()),
            _ => return Some(ValueChange::Same),
        };
        let plain = self.typed(schema, value)?;
        let current = plain.as_ref().unwrap_or(value);
        let mut reasons = Vec::from_iter(self.out_of_list(schema, current));
        if reasons.is_empty() {
            reasons = self.out_of_bounds(schema, current);
            if self.is_strict && self.trying == 0 {
                reasons.extend(self.out_of_form(schema, current));
            }
        }
        let fits = reasons.is_empty();
        for reason in reasons {
            self.reject(reason);
        }
        let inner = match value {
            Value::Object(fields) => self.object(schema, fields, depth),
            Value::Array(items) => self.list(schema, items, depth),
            _ => Some(ValueChange::Same),
        };
        let combined = self.check_combined(schema, value, depth);
        let change = plain.map_or(ValueChange::Same, ValueChange::Put);
        let change = change.and(inner?).and(combined?);
        fits.then_some(change)
    }

    /// Checks `$ref`, `allOf`, `anyOf` and `oneOf`.
    fn check_combined(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &'a Value,
        depth: usize,
    ) -> Option<ValueChange<'a>> {
        let mut change = Some(ValueChange::Same);
        if let Some(target) =
            schema.get("$ref").and_then(Value::as_str).and_then(|reference| self.target(reference))
        {
            change = both(change, self.check(target, value, depth + 1));
        }
        for part in list_of(schema, "allOf") {
            change = both(change, self.check(part, value, depth + 1));
        }
        for key in ["anyOf", "oneOf"] {
            let choices = list_of(schema, key);
            if !choices.is_empty() {
                change = both(change, self.choice(choices, value, depth + 1));
            }
        }
        change
    }

    /// Returns the part of the schema behind a reference, which must be within the schema.
    fn target(&mut self, reference: &str) -> Option<&'a Value> {
        if !self.spend(reference.len() as u64 / 8) {
            return None;
        }
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// Returns the first choice whose type the value has, else the first to which it can be
    /// converted.
    fn choice(
        &mut self,
        choices: &'a [Value],
        value: &'a Value,
        depth: usize,
    ) -> Option<ValueChange<'a>> {
        let is_null = |choice: &&Value| choice.get("type").is_some_and(|kind| kind == "null");
        let mut real = choices.iter().filter(|choice| !is_null(choice));
        if let (Some(only), None) = (real.next(), real.next())
            && !value.is_null()
        {
            // Report the error as if the type were not optional.
            return self.check(only, value, depth);
        }
        let mut second = None;
        for choice in choices {
            let before = self.coerced;
            self.trying += 1;
            let change = self.check(choice, value, depth);
            self.trying -= 1;
            match change {
                Some(change) if self.coerced == before => return Some(change),
                Some(change) => second = second.or(Some(change)),
                None => {}
            }
            self.coerced = before;
        }
        if second.is_none() {
            return self
                .reject(format!("must be of one of the allowed types, not {}", describe(value)));
        }
        self.coerced += 1;
        second
    }

    /// Returns the value converted to an allowed type; `None` if it cannot be converted.
    #[expect(
        clippy::option_option,
        reason = "the outer one says whether it fits, as everywhere here"
    )]
    fn typed(&mut self, schema: &Map<String, Value>, value: &Value) -> Option<Option<Value>> {
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().take(16).filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut instead = kinds.is_empty().then_some(None);
        for kind in &kinds {
            match lax(kind, value) {
                Lax::Same => return Some(None),
                Lax::Instead(value) => instead = instead.or(Some(Some(value))),
                Lax::No => {}
            }
        }
        if let Some(Some(_)) = instead {
            self.coerced += 1;
        }
        if instead.is_none() {
            let kind = kinds.iter().find(|kind| **kind != "null").copied().unwrap_or("null");
            self.reject(mismatch(kind, value));
        }
        instead
    }

    fn object(
        &mut self,
        schema: &'a Map<String, Value>,
        fields: &'a Map<String, Value>,
        depth: usize,
    ) -> Option<ValueChange<'a>> {
        let known = schema.get("properties").and_then(Value::as_object);
        let (mut changes, mut fits) = (Vec::new(), true);
        for (name, part) in known.into_iter().flatten() {
            if !self.spend(1) {
                break;
            }
            let step = PathStep::Field(name);
            match (fields.get(name), part.get("default")) {
                (Some(value), _) => fits &= self.within(step, part, value, depth, &mut changes),
                (None, Some(default)) if self.accepts_default(part, default, depth) => {
                    changes.push((step, ValueChange::Default(default)))
                }
                (None, _) => {}
            }
        }
        for name in list_of(schema, "required").iter().filter_map(Value::as_str) {
            if !self.spend(1) {
                break;
            }
            if fields.contains_key(name) {
                continue;
            }
            let part = known.and_then(|known| known.get(name));
            let default = part.and_then(|part| Some((part, part.get("default")?)));
            let is_filled =
                default.is_some_and(|(part, default)| self.accepts_default(part, default, depth));
            // Without fuel the default was not checked, so the field may be filled.
            if !is_filled && self.fuel > 0 {
                fits = false;
                self.path.push(PathStep::Field(name));
                self.reject("is missing".to_owned());
                self.path.pop();
            }
        }
        if let Some(part @ Value::Object(_)) =
            schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"))
        {
            for (name, value) in fields
                .iter()
                .filter(|(name, _)| !known.is_some_and(|known| known.contains_key(*name)))
            {
                fits &= self.within(PathStep::Field(name), part, value, depth, &mut changes);
            }
        }
        if schema.get("additionalProperties") == Some(&Value::Bool(false))
            && !schema.contains_key("patternProperties")
            && self.is_strict
            && self.trying == 0
        {
            let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
            for name in fields.keys().filter(|name| !is_known(name)) {
                fits = false;
                self.path.push(PathStep::Field(name));
                self.reject("is not allowed here".to_owned());
                self.path.pop();
            }
        }
        fits.then_some(ValueChange::Within(changes))
    }

    fn list(
        &mut self,
        schema: &'a Map<String, Value>,
        items: &'a [Value],
        depth: usize,
    ) -> Option<ValueChange<'a>> {
        let first = list_of(schema, "prefixItems");
        let rest = schema.get("items");
        let (mut changes, mut fits) = (Vec::new(), true);
        for (index, item) in items.iter().enumerate() {
            let Some(part) = first.get(index).or(rest) else { break };
            fits &= self.within(PathStep::Index(index), part, item, depth, &mut changes);
        }
        fits.then_some(ValueChange::Within(changes))
    }

    fn within(
        &mut self,
        step: PathStep<'a>,
        schema: &'a Value,
        value: &'a Value,
        depth: usize,
        changes: &mut Vec<(PathStep<'a>, ValueChange<'a>)>,
    ) -> bool {
        self.path.push(step);
        let change = self.check(schema, value, depth + 1);
        self.path.pop();
        match change {
            Some(ValueChange::Same) => true,
            Some(ValueChange::Within(inner)) if inner.is_empty() => true,
            Some(change) => {
                changes.push((step, change));
                true
            }
            None => false,
        }
    }

    /// Whether the default fits its own type. Some schemas have null for "no default".
    fn accepts_default(&mut self, part: &'a Value, default: &'a Value, depth: usize) -> bool {
        // The default is copied for every value that lacks it.
        if !self.spend(weight(default, self.fuel)) {
            return false;
        }
        let before = self.coerced;
        self.trying += 1;
        let fits = self.check(part, default, depth + 1).is_some();
        self.trying -= 1;
        fits && std::mem::replace(&mut self.coerced, before) == before
    }

    /// Returns the error by `enum` and `const`.
    fn out_of_list(&mut self, schema: &Map<String, Value>, value: &Value) -> Option<String> {
        let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        let (list, only) = match (schema.get("const"), listed) {
            (Some(only), _) => (std::slice::from_ref(only), Some(only)),
            (None, list) => (list?, None),
        };
        let is = |other: &Value| {
            other == value
                || (value.is_number() && other.is_number() && other.as_f64() == value.as_f64())
        };
        let cost = weight(value, self.fuel).saturating_mul(list.len() as u64 + 1);
        if !self.spend(cost) || list.iter().any(is) {
            return None;
        }
        if let Some(only) = only {
            return Some(format!("must be {}", describe(only)));
        }
        let some: Vec<String> = list
            .iter()
            .take(16)
            .map(|value| value.to_string().chars().take(40).collect())
            .collect();
        let more = if list.len() > some.len() { ", …" } else { "" };
        Some(format!("must be one of {}{more}", some.join(", ")))
    }

    /// Returns the errors by the bounds of numbers, texts and lists.
    fn out_of_bounds(&mut self, schema: &Map<String, Value>, value: &Value) -> Vec<String> {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let is_low = |key: &str, amount: f64| bound(key).filter(|bound| amount < *bound);
        let is_high = |key: &str, amount: f64| bound(key).filter(|bound| amount > *bound);
        let length = |amount: f64, [low, high]: [&str; 2], noun: &str| -> Vec<String> {
            let low = is_low(low, amount).map(|bound| format!("must have at least {bound} {noun}"));
            let high =
                is_high(high, amount).map(|bound| format!("must have at most {bound} {noun}"));
            low.or(high).into_iter().collect()
        };
        match value {
            Value::Number(number) => {
                let Some(number) = number.as_f64() else { return Vec::new() };
                let low_or_at = bound("exclusiveMinimum")
                    .filter(|bound| number <= *bound)
                    .map(|bound| format!("must be more than {bound}"));
                let high_or_at = bound("exclusiveMaximum")
                    .filter(|bound| number >= *bound)
                    .map(|bound| format!("must be less than {bound}"));
                let low =
                    is_low("minimum", number).map(|bound| format!("must be at least {bound}"));
                let high =
                    is_high("maximum", number).map(|bound| format!("must be at most {bound}"));
                low.or(high).or(low_or_at).or(high_or_at).into_iter().collect()
            }
            Value::String(text)
                if schema.contains_key("minLength") || schema.contains_key("maxLength") =>
            {
                if !self.spend(text.len() as u64 / 8) {
                    return Vec::new();
                }
                length(text.chars().count() as f64, ["minLength", "maxLength"], "characters")
            }
            Value::Array(items) => length(items.len() as f64, ["minItems", "maxItems"], "items"),
            _ => Vec::new(),
        }
    }

    /// Returns the errors that only the runtime's validator would find (L-114: these parts of a
    /// schema refuse no call here). A pattern that cannot be compiled is left to it.
    fn out_of_form(&mut self, schema: &Map<String, Value>, value: &Value) -> Vec<String> {
        let mut reasons = Vec::new();
        match value {
            Value::String(text) => {
                let Some(pattern) = schema.get("pattern").and_then(Value::as_str) else {
                    return reasons;
                };
                if self.spend(PATTERN_FUEL + text.len() as u64 / 8)
                    && RegexBuilder::new(pattern)
                        .size_limit(PATTERN_BYTES)
                        .build()
                        .is_ok_and(|compiled| !compiled.is_match(text))
                {
                    let excerpt: String = pattern.chars().take(PATTERN_SHOWN).collect();
                    reasons.push(format!("must match the pattern {excerpt}"));
                }
            }
            Value::Number(number) => {
                let step = schema.get("multipleOf").and_then(Value::as_i64);
                let rest = step.zip(number.as_i64()).and_then(|(step, n)| n.checked_rem(step));
                if let (Some(step), true) = (step, rest.is_some_and(|rest| rest != 0)) {
                    reasons.push(format!("must be a multiple of {step}"));
                }
            }
            Value::Array(items) if schema.get("uniqueItems") == Some(&Value::Bool(true)) => {
                let cost = weight(value, self.fuel).saturating_mul(items.len() as u64);
                let is_again = |(index, item): (usize, &Value)| {
                    items.iter().take(index).any(|other| other == item)
                };
                if self.spend(cost) && items.iter().enumerate().any(is_again) {
                    reasons.push("must have no item twice".to_owned());
                }
            }
            Value::Object(fields) => {
                let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
                let amount = fields.len() as u64;
                if let Some(bound) = bound("minProperties").filter(|bound| amount < *bound) {
                    reasons.push(format!("must have at least {bound} fields"));
                }
                if let Some(bound) = bound("maxProperties").filter(|bound| amount > *bound) {
                    reasons.push(format!("must have at most {bound} fields"));
                }
            }
            _ => {}
        }
        reasons
    }

    fn reject(&mut self, reason: String) -> Option<ValueChange<'a>> {
        if self.trying == 0 && self.wrong.len() < WRONG_MAX {
            let steps: Vec<String> = self
                .path
                .iter()
                .map(|step| match step {
                    PathStep::Field(name) => (*name).to_owned(),
                    PathStep::Index(index) => index.to_string(),
                })
                .collect();
            self.wrong.push(Wrong { path: steps.join("."), reason });
        }
        None
    }

    fn spend(&mut self, steps: u64) -> bool {
        let remaining = self.fuel.checked_sub(steps);
        self.fuel = remaining.unwrap_or(0);
        remaining.is_some()
    }
}

fn both<'a>(
    first: Option<ValueChange<'a>>,
    later: Option<ValueChange<'a>>,
) -> Option<ValueChange<'a>> {
    Some(first?.and(later?))
}

fn list_of<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The number of a value's parts and bytes of text; the count stops a little above `most`.
fn weight(value: &Value, most: u64) -> u64 {
    let mut weight = 0_u64;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        weight += 1;
        match value {
            Value::String(text) => weight += text.len() as u64 / 8,
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.values()),
            _ => {}
        }
        if weight > most {
            break;
        }
    }
    weight
}
