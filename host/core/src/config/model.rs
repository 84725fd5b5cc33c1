//! `[models.NAME]`: how a model is reached and what it costs.

use std::collections::BTreeMap;

use super::reader::{Reader, Table};
use super::{ConfigPath, ModelConfig, ModelKind, names};
use crate::ids::ModelName;
use crate::setup::ModelSetup;

/// Kinds of later versions.
const LATER_KINDS: [&str; 1] = ["openai"];

pub(crate) fn read_all(reader: &mut Reader, folder: &str, root: &Table<'_>) -> BTreeMap<ModelName, ModelConfig> {
    let mut models = BTreeMap::new();
    for (name, span, table) in root.named(reader, "models", "models.NAME") {
        super::plugin::check_name(reader, "models", name, &span);
        models.insert(ModelName::from(name), read(reader, folder, table));
    }
    models
}

fn read(reader: &mut Reader, folder: &str, table: Table<'_>) -> ModelConfig {
    let nothing = ModelKind::Scripted { replies: ConfigPath { shown: String::new(), path: String::new() } };
    if let Some(item) = table.get("kind")
        && let Some(kind) = item.value.as_str()
        && LATER_KINDS.contains(&kind)
    {
        // Its other keys are of that later version too: one problem says it all.
        reader.unavailable(&item.span, &format!("kind = \"{kind}\""), "this version has `kind = \"scripted\"` only".to_owned());
        return ModelConfig { kind: nothing, prices: ModelSetup::default() };
    }
    let table = table.checked(reader);
    if let Some(item) = table.require(reader, "kind") {
        item.choice(reader, &["scripted"]);
    }
    let replies = table.require(reader, "replies").and_then(|item| super::plugin::path(reader, &item, folder));
    let kind = replies.map_or(nothing, |replies| ModelKind::Scripted { replies });
    ModelConfig { kind, prices: prices(reader, &table) }
}

fn prices(reader: &mut Reader, table: &Table<'_>) -> ModelSetup {
    let (input, output) = (table.get("input_price"), table.get("output_price"));
    if let (Some(item), None) | (None, Some(item)) = (&input, &output) {
        let other = if input.is_some() { "output_price" } else { "input_price" };
        reader.absence(&item.key_span, format!("a price needs both halves: `{other}` is missing"), format!("write `{other} = 0.00`"));
    }
    ModelSetup { input_price: input.and_then(|item| item.dollars(reader)), output_price: output.and_then(|item| item.dollars(reader)) }
}

/// A path of the config joined to its folder.
pub(crate) fn config_path(folder: &str, shown: &str) -> ConfigPath {
    ConfigPath { shown: shown.to_owned(), path: names::join(folder, shown) }
}
