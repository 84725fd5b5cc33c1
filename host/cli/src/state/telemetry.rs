//! The export of runs to an OpenTelemetry collector, as the variables of OpenTelemetry say: this
//! process has one, which all of its runs share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_otlp::{Export, ExportOptions};
use conclave_runtime::subscribe::Subscriber;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::show::{ODD, printable};
use crate::ui::stderr;

/// The address of the collector; without it nothing is exported.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Turns all of it off.
const DISABLED: &str = "OTEL_SDK_DISABLED";
/// The exporter of figures; `none` for collectors that take none.
const FIGURES: &str = "OTEL_METRICS_EXPORTER";
/// Whether texts are sent too.
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

static EXPORT: Mutex<Option<Export>> = Mutex::new(None);

/// Begins the export, if the environment names a collector.
pub(crate) fn begin(output: OutputArgs) -> Result<(), CliError> {
    let Some(endpoint) = variable(ENDPOINT).filter(|_| !is_true(DISABLED)) else { return Ok(()) };
    let has_content = is_true(CONTENT);
    let collector = printable(&endpoint);
    if !output.result_only() {
        let what = if has_content { "spans with their texts" } else { "spans without texts" };
        stderr::note(format!("{what} go to the collector {collector}"));
    }
    let address = collector.clone();
    let report = move |what: &str, why: &str| {
        let why = printable(why);
        stderr::styled(ODD, format!("the collector {address} gets no {what} at present: {why}"));
    };
    let has_figures = variable(FIGURES).is_none_or(|exporter| exporter.trim() != "none");
    let report = Arc::new(report);
    let options = ExportOptions { endpoint, has_content, has_figures, report };
    let export = Export::begin(options).map_err(|error| {
        CliError::usage(format!("{ENDPOINT}={collector} cannot be used: {error}"))
            .hint("name the collector as http://HOST:PORT, such as http://127.0.0.1:4318")
    })?;
    *lock_export() = Some(export);
    Ok(())
}

/// Adds the subscribers that export.
pub(crate) fn add(subscribers: &mut Vec<Arc<dyn Subscriber>>) {
    if let Some(export) = &*lock_export() {
        subscribers.extend(export.subscribers().iter().cloned());
    }
}

/// Sends the spans and figures that wait. It blocks for some seconds at most, and needs the runtime.
pub(crate) fn end() {
    let export = lock_export().take();
    if let Some(export) = export {
        export.end();
    }
}

fn lock_export() -> MutexGuard<'static, Option<Export>> {
    EXPORT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn is_true(name: &str) -> bool {
    variable(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}
