//! The plugin's own settings: its `config` table in the operator's file. In a native unit test it is empty.

use serde::de::DeserializeOwned;

use crate::bindings::imports::conclave::plugin::config as import;
use crate::{Error, Result};

/// The settings in the shape of `T`. Fails when they do not have it, and names the key.
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
    let text = if cfg!(target_family = "wasm") { import::get() } else { "{}".to_owned() };
    serde_json::from_str(&text).map_err(|error| Error::Other(format!("the plugin's config: {error}")))
}
