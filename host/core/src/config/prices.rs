//! The file of model prices, under the names that servers use. A price in the model's own table
//! takes precedence. Reads no file, and has no built-in prices.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::problem::{SourceText, Span};
use super::problem_code::ProblemCode;
use super::reader::ConfigReader;
use super::{Config, ModelConfig, ModelKind, Problems, depth, usage};
use crate::types::ids::ModelName;
use crate::types::units;
use crate::types::wording::{code, suggest};

/// The keys of one model.
const KEYS: [&str; 3] = ["input", "output", "cached_input"];
/// The limit of reported syntax errors.
const SYNTAX_ERRORS: usize = 20;

/// Prices in micro-US-dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    /// The price of input from the provider's cache; `None` for that of other input.
    pub cached_input: Option<u64>,
}

/// Prices of models, by name or pattern: `*` at the end stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Parses a file of prices; `file_name` is shown in problems.
    ///
    /// # Errors
    /// All mistakes, each with its line and column.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Problems> {
        let source = SourceText::new(file_name, text);
        if let Some(span) = depth::too_deep(text) {
            let what = format!("keys and brackets can be nested {} deep at most", depth::DEPTH_MAX);
            return Err(Problems(vec![source.problem(ProblemCode::Syntax, &span, what)]));
        }
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut reader = ConfigReader::new(source);
        for error in errors.iter().take(SYNTAX_ERRORS) {
            reader.error(
                ProblemCode::Syntax,
                &error.span().unwrap_or(0..0),
                format!("not valid TOML: {}", error.message()),
                None,
            );
        }
        let is_whole = errors.is_empty();
        let mut prices = BTreeMap::new();
        for (name, value) in root.get_ref() {
            let Some(table) = value.get_ref().as_table() else {
                let what = format!("{} must be a table", code(name.get_ref()));
                reader.error(
                    ProblemCode::WrongType,
                    &name.span(),
                    what,
                    format!("write the header `[{:?}]`, and its prices below", name.get_ref()),
                );
                continue;
            };
            check_pattern(&mut reader, name.get_ref(), &name.span());
            if let Some(price) = price(&mut reader, name.get_ref(), &name.span(), table, is_whole) {
                prices.insert(name.get_ref().to_string(), price);
            }
        }
        if reader.problems.is_empty() {
            Ok(Self(prices))
        } else {
            Err(Problems(reader.problems).in_order())
        }
    }

    /// The price of a model: that of its name, else of the longest pattern that matches.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        let of_pattern = || {
            let fitting = self.0.iter().filter(|(pattern, _)| {
                pattern.strip_suffix('*').is_some_and(|start| model.starts_with(start))
            });
            fitting.max_by_key(|(pattern, _)| pattern.len()).map(|(_, price)| price)
        };
        self.0.get(model).or_else(of_pattern).copied()
    }
}

fn check_pattern(reader: &mut ConfigReader, name: &str, span: &Span) {
    if name.trim().is_empty() {
        reader.error(
            ProblemCode::InvalidName,
            span,
            "this name is empty: it is no model's",
            "write the model's name at its server".to_owned(),
        );
    } else if name.strip_suffix('*').unwrap_or(name).contains('*') {
        reader.error(
            ProblemCode::InvalidName,
            span,
            format!("{} has a star that is not at its end", code(name)),
            "a star stands for any end of a name".to_owned(),
        );
    }
}

fn price(
    reader: &mut ConfigReader,
    model: &str,
    span: &Span,
    table: &DeTable<'_>,
    is_whole: bool,
) -> Option<Price> {
    for (key, _) in table.iter().filter(|(key, _)| !KEYS.contains(&key.get_ref().as_ref())) {
        let what = format!("unknown key {} in [{model:?}]", code(key.get_ref()));
        reader.error(
            ProblemCode::UnknownKey,
            &key.span(),
            what,
            suggest(key.get_ref(), &KEYS, "keys here"),
        );
    }
    let mut of = |name: &str| {
        let value = table.get(name)?;
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
            DeValue::Integer(integer) if integer.radix() == 10 => {
                integer.as_str().replace('_', "").parse().ok()
            }
            _ => None,
        };
        let amount = number.and_then(units::micro_usd);
        if amount.is_none() {
            let what = format!(
                "{} must be a number of US dollars for a million tokens, from 0 to a billion",
                code(name)
            );
            reader.error(
                ProblemCode::InvalidValue,
                &value.span(),
                what,
                format!("write `{name} = 2.50`"),
            );
        }
        amount
    };
    let (input, output, cached_input) = (of("input"), of("output"), of("cached_input"));
    for name in
        ["input", "output"].into_iter().filter(|name| is_whole && !table.contains_key(*name))
    {
        reader.error(
            ProblemCode::MissingKey,
            span,
            format!("{} is missing in [{model:?}]", code(name)),
            format!("write `{name} = 2.50`"),
        );
    }
    Some(Price { input: input?, output: output?, cached_input })
}

impl Config {
    /// Returns the config with the prices of a file for models without their own, and warnings
    /// about dollar limits without effect.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub fn priced(&self, text: &str) -> Result<(Self, Problems), Problems> {
        let file = self.prices.as_ref().map_or("", |file| file.display_path.as_str());
        let prices = Prices::parse(file, text)?;
        let mut config = self.clone();
        config.models.iter_mut().for_each(|(name, model)| take_price(name, model, &prices));
        let mut warnings = Problems::default();
        usage::check_costs(&config, &mut warnings);
        Ok((config, warnings.in_order()))
    }
}

fn take_price(name: &ModelName, model: &mut ModelConfig, prices: &Prices) {
    let at_server = match &model.kind {
        ModelKind::Server(server) => server.model.as_str(),
        ModelKind::Scripted { .. } | ModelKind::Native => name.as_str(),
    };
    let Some(price) = prices.of(at_server).filter(|_| model.prices.input_price.is_none()) else {
        return;
    };
    (model.prices.input_price, model.prices.output_price) = (Some(price.input), Some(price.output));
    model.prices.cached_input_price = model.prices.cached_input_price.or(price.cached_input);
}
