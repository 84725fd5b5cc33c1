//! The plugin's settings as the operator wrote them: the `config` import, and `wasi:config/store` for
//! components that were not built for Conclave. Both read the plugin's own `config` and nothing
//! else.

use serde_json::{Map, Value};
use wasmtime::component::{Linker, Val};
use wasmtime::{Result, StoreContextMut};

use crate::imports::bindings::plugin::config;

/// The draft versions of `wasi:config/store` that toolchains import. Drafts are not compatible by
/// their numbers, so each is named; all have the same two functions.
pub(crate) const STORES: [&str; 3] = [
    "wasi:config/store@0.2.0-draft",
    "wasi:config/store@0.2.0-draft-2024-09-27",
    "wasi:config/store@0.2.0-rc.1",
];

import_view! {
    /// The `config` import of a call.
    ConfigImport
}

impl config::Host for ConfigImport<'_> {
    fn get(&mut self) -> Result<String> {
        self.core.enter()?;
        Ok(self.core.plugin.config.clone())
    }
}

impl ConfigImport<'_> {
    /// Returns the settings as texts, by their names.
    fn settings(&mut self) -> Result<Map<String, Value>> {
        self.core.enter()?;
        let settings: Value = serde_json::from_str(&self.core.plugin.config).unwrap_or_default();
        Ok(match settings {
            Value::Object(settings) => settings,
            _ => Map::new(),
        })
    }
}

/// Links `wasi:config/store`. Its functions never fail, so that their error needs no type here.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> ConfigImport<'_>,
) -> Result<()> {
    for store in STORES {
        let mut store = linker.instance(store)?;
        store.func_new("get", move |mut store: StoreContextMut<'_, T>, _, params, results| {
            let settings = view(store.data_mut()).settings()?;
            let [Val::String(key)] = params else { return Err(other_types("get")) };
            let found = settings.get(key.as_str()).map(|value| Box::new(text(value)));
            answer(results, Val::Option(found))
        })?;
        store.func_new("get-all", move |mut store: StoreContextMut<'_, T>, _, _, results| {
            let settings = view(store.data_mut()).settings()?;
            let pair = |(key, value): (&String, &Value)| {
                Val::Tuple(vec![Val::String(key.clone()), text(value)])
            };
            answer(results, Val::List(settings.iter().map(pair).collect()))
        })?;
    }
    Ok(())
}

/// A setting as a text: a text as it is, and any other value as JSON.
fn text(value: &Value) -> Val {
    Val::String(match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    })
}

fn answer(results: &mut [Val], value: Val) -> Result<()> {
    let [result] = results else { return Err(other_types("get")) };
    *result = Val::Result(Ok(Some(Box::new(value))));
    Ok(())
}

/// The component declares the function with other types than the proposal has.
fn other_types(function: &str) -> wasmtime::Error {
    wasmtime::Error::msg(format!("wasi:config/store.{function} is imported with other types"))
}
