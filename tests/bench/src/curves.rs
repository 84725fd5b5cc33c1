//! How cost grows: each curve measures one cost at several sizes, from one to thousands. The result
//! is a table, JSON, and a picture with a panel for each curve.

mod chart;
mod fit;
mod history;
mod plugins;
mod records;
mod rooms;
mod series;
mod subscribers;
mod table;
mod tasks;
mod tools;

use std::path::{Path, PathBuf};

use conclave_core::config::Config;
use conclave_runtime::{Host, Prepared};

use crate::BenchError;
use crate::conclave::Hosted;
use crate::measure::Effort;

use series::Curve;
pub(crate) use series::Curves;

/// The names of the curves, which the filter of the command line selects from.
const HISTORY: &str = "history of an agent";
const PLUGINS: &str = "plugins in a config";
const TOOLS: &str = "tools of an agent";
const ROOMS: &str = "rooms at once";
const TASKS: &str = "background tasks of a room";
const RECORDS: &str = "records in the store";
const SUBSCRIBERS: &str = "subscribers of a run";

/// What every curve needs.
struct Place<'a> {
    effort: Effort,
    /// The folder of the tests' components.
    guests: &'a Path,
    hosted: Hosted,
}

/// Measures the `wanted` curves, one after the other.
pub(crate) async fn all(
    guests: &Path,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Curves, BenchError> {
    let arguments = serde_json::json!({ "text": "0123456789abcdef".repeat(64) });
    let place = Place { effort, guests, hosted: Hosted::prepare(guests, &arguments).await? };
    let mut curves = Vec::new();
    let mut keep = |curve: Curve| {
        eprintln!("measured: {}", curve.what);
        curves.push(curve);
    };
    if wanted(HISTORY) {
        keep(history::curve(&place).await?);
    }
    if wanted(PLUGINS) {
        keep(plugins::curve(&place).await?);
    }
    if wanted(TOOLS) {
        keep(tools::curve(&place).await?);
    }
    if wanted(ROOMS) {
        keep(rooms::curve(&place).await?);
    }
    if wanted(TASKS) {
        keep(tasks::curve(&place).await?);
    }
    if wanted(RECORDS) {
        keep(records::curve(&place).await?);
    }
    if wanted(SUBSCRIBERS) {
        keep(subscribers::curve(&place).await?);
    }
    Ok(Curves::new(effort == Effort::Quick, curves))
}

impl Place<'_> {
    /// Returns the sizes of a curve. A quick measurement leaves out the largest.
    fn sizes<'a>(&self, sizes: &'a [u64]) -> &'a [u64] {
        match sizes.split_last() {
            Some((_, smaller)) if self.effort == Effort::Quick => smaller,
            _ => sizes,
        }
    }

    /// Returns the number of rounds over all sizes of a curve.
    fn rounds(&self) -> u32 {
        if self.effort == Effort::Quick { 1 } else { 5 }
    }

    /// Returns the folder of the tests' components as an absolute path.
    fn folder(&self) -> Result<PathBuf, BenchError> {
        std::path::absolute(self.guests)
            .map_err(|cause| BenchError::Component { path: self.guests.to_owned(), cause })
    }

    /// Loads a config whose paths start at the folder of the tests' components.
    async fn load(&self, host: &Host, text: &str) -> Result<Prepared, BenchError> {
        let folder = self.folder()?;
        let config = Config::parse("curves.toml", &folder.to_string_lossy(), text)
            .map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        host.load(&config).await.map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Conclave(error.to_string())
}
