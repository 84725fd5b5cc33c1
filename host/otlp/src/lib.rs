//! Sends the spans and figures of runs to an OpenTelemetry collector, by OTLP over HTTP. It is an
//! ordinary subscriber of runs and installs nothing: neither a global tracer nor a logger.

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]
#![warn(missing_docs)]

mod client;
mod figures;

use std::sync::Arc;
use std::time::Duration;

use conclave_core::types::ids::RoomId;
use conclave_runtime::subscribe::{Published, Subscriber};
use conclave_runtime::telemetry::SpanSubscriber;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Dispatch;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;

use client::Client;
use figures::Figures;

/// The time in which a collector has to answer a request, and in which the last spans are sent.
const WITHIN: Duration = Duration::from_secs(5);
/// The name of the instrumentation, and of the service unless the environment names another.
const NAME: &str = "conclave";

/// Is called with what is not sent, spans or figures, and the reason.
pub type Report = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// What is sent, and to where.
pub struct ExportOptions {
    /// The address of the collector without a path, such as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Whether texts are sent: arguments and results of tools, answers of models.
    pub has_content: bool,
    /// Whether figures are sent. Some viewers of traces take none.
    pub has_figures: bool,
    /// Is called when requests begin to fail; not again until one succeeded.
    pub report: Report,
}

/// The reason why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The client has no certificates, or cannot be created.
    #[error("no HTTP client can be created: {0}")]
    Client(String),
    /// The address or an `OTEL_…` variable cannot be used.
    #[error("{0}")]
    Settings(#[from] ExporterBuildError),
}

/// An export that is in progress.
pub struct Export {
    spans: SdkTracerProvider,
    figures: SdkMeterProvider,
    subscribers: Vec<Arc<dyn Subscriber>>,
}

impl Export {
    /// Begins to export. Must be called in a runtime of tokio, which sends the requests and has to
    /// live until [`Export::end`] has returned. The variables `OTEL_SERVICE_NAME`,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_EXPORTER_OTLP_HEADERS` are read as the specification of
    /// OpenTelemetry says.
    ///
    /// # Errors
    /// If the address cannot be used, or no client can be created.
    pub fn begin(options: ExportOptions) -> Result<Self, ExportError> {
        let ExportOptions { endpoint, has_content, has_figures, report } = options;
        let base = endpoint.trim_end_matches('/').to_owned();
        let client =
            |what| Client::new(what, Arc::clone(&report), WITHIN).map_err(ExportError::Client);
        let spans = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/traces"))
            .with_timeout(WITHIN)
            .with_http_client(client("spans")?)
            .build()?;
        let figures = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/metrics"))
            .with_timeout(WITHIN)
            .with_http_client(client("figures")?)
            .build()?;
        let spans = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(spans)
            .build();
        let provider = SdkMeterProvider::builder().with_resource(resource());
        // Without an exporter nothing is collected.
        let figures = match has_figures {
            true => provider.with_periodic_exporter(figures).build(),
            false => provider.build(),
        };
        let layer = OpenTelemetryLayer::new(spans.tracer(NAME))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        let spans_of_runs = SpansOfRuns {
            dispatch: Dispatch::new(Registry::default().with(layer)),
            spans: SpanSubscriber::new().with_content(has_content),
        };
        let subscribers: Vec<Arc<dyn Subscriber>> =
            vec![Arc::new(spans_of_runs), Arc::new(Figures::new(&figures.meter(NAME)))];
        Ok(Self { spans, figures, subscribers })
    }

    /// The subscribers that each run has to get.
    #[must_use]
    pub fn subscribers(&self) -> &[Arc<dyn Subscriber>] {
        &self.subscribers
    }

    /// Sends what is left, and ends. It blocks for a few seconds at most, and does not belong on a
    /// thread of the runtime. What could not be sent was reported.
    pub fn end(self) {
        let _ = self.spans.shutdown_with_timeout(WITHIN);
        let _ = self.figures.shutdown_with_timeout(WITHIN);
    }
}

/// What the figures and spans are of.
fn resource() -> Resource {
    let builder = Resource::builder();
    // The default of the specification is no name for people.
    let is_named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
    let builder = if is_named { builder } else { builder.with_service_name(NAME) };
    builder.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build()
}

/// Makes the spans of runs where only this export sees them.
struct SpansOfRuns {
    dispatch: Dispatch,
    spans: SpanSubscriber,
}

impl Subscriber for SpansOfRuns {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        tracing::dispatcher::with_default(&self.dispatch, || self.spans.on(happening));
    }

    fn over(&self, room: &RoomId) {
        tracing::dispatcher::with_default(&self.dispatch, || self.spans.over(room));
    }
}
