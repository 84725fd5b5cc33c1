//! The figures of runs as instruments of OpenTelemetry: durations and tokens of model calls,
//! durations of tool calls and turns, refusals, ended runs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{CallId, Millis, ModelName, RoomId};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use conclave_runtime::telemetry::names;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

/// Bounds of tokens, as the conventions name them.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Bounds of seconds, as the conventions name them.
const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bounds of the seconds of tools, whose calls may take microseconds.
const TOOL_SECONDS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0];
/// Model calls whose answer is waited for. More are not measured.
const CALLS: usize = 4096;

/// Measures runs.
pub(crate) struct Figures {
    model_seconds: Histogram<f64>,
    tokens: Histogram<u64>,
    tool_seconds: Histogram<f64>,
    refusals: Counter<u64>,
    ends: Counter<u64>,
    /// When each open model call began.
    open: Mutex<HashMap<ModelCallId, (ModelName, Millis)>>,
}

/// A model call: its room, the call that sent it, and its number in that call.
type ModelCallId = (RoomId, CallId, u32);

impl Figures {
    pub(crate) fn new(meter: &Meter) -> Self {
        let seconds = |name, about, bounds: &[f64]| {
            meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(about)
                .with_boundaries(bounds.to_vec())
                .build()
        };
        Self {
            model_seconds: seconds(
                "gen_ai.client.operation.duration",
                "The duration of model calls.",
                &SECONDS,
            ),
            tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("The tokens of model calls, as the server counts them.")
                .with_boundaries(TOKENS.to_vec())
                .build(),
            tool_seconds: seconds(
                "gen_ai.execute_tool.duration",
                "The duration of tool calls in their sandboxes.",
                &TOOL_SECONDS,
            ),
            refusals: meter
                .u64_counter("conclave.refusals")
                .with_description("Uses of a capability that were refused.")
                .build(),
            ends: meter
                .u64_counter("conclave.tasks.ended")
                .with_description("Ended tasks, by their status.")
                .build(),
            open: Mutex::default(),
        }
    }

    fn notice(&self, room: &RoomId, at: Millis, notice: &Notice) {
        match notice {
            Notice::ModelCalled { call, ordinal, model, .. } => {
                let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                if open.len() < CALLS {
                    open.insert((room.clone(), *call, *ordinal), (model.clone(), at));
                }
            }
            Notice::ModelAnswered { call, ordinal, usage, error, .. } => {
                let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
                let began = open.remove(&(room.clone(), *call, *ordinal));
                drop(open);
                let Some((model, began)) = began else { return };
                let mut about = vec![
                    KeyValue::new(names::OPERATION, "chat"),
                    KeyValue::new(names::REQUEST_MODEL, model.to_string()),
                ];
                for (kind, count) in
                    [("input", usage.input_tokens), ("output", usage.output_tokens)]
                {
                    let kind = KeyValue::new("gen_ai.token.type", kind);
                    let about: Vec<KeyValue> = about.iter().cloned().chain([kind]).collect();
                    self.tokens.record(count, &about);
                }
                if error.is_some() {
                    about.push(KeyValue::new(names::ERROR, "_OTHER"));
                }
                self.model_seconds.record(seconds(at.0.saturating_sub(began.0) * 1000), &about);
            }
            Notice::ToolAnswered { call: Some(_), name, is_error, report, .. } => {
                let mut about = vec![
                    KeyValue::new(names::OPERATION, "execute_tool"),
                    KeyValue::new(names::TOOL, name.clone()),
                ];
                if *is_error {
                    about.push(KeyValue::new(names::ERROR, "_OTHER"));
                }
                self.tool_seconds.record(seconds(report.wall_us), &about);
            }
            Notice::Denied { plugin, record, .. } => {
                let about = [
                    KeyValue::new("conclave.plugin", plugin.to_string()),
                    KeyValue::new(
                        "conclave.capability",
                        record.denial.capability.as_str().to_owned(),
                    ),
                    KeyValue::new("conclave.layer", record.layer.as_str().to_owned()),
                ];
                self.refusals.add(1, &about);
            }
            Notice::TaskEnded { task, status, .. } => {
                let about = [
                    KeyValue::new(names::TASK, task.to_string()),
                    KeyValue::new("conclave.status", status.as_str()),
                ];
                self.ends.add(1, &about);
            }
            _ => {}
        }
    }
}

impl Subscriber for Figures {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice } = &happening.what {
            self.notice(&happening.room, happening.at, notice);
        }
    }

    fn over(&self, room: &RoomId) {
        let is_of = |name: &RoomId| name.run() == room.run();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(name, ..), _| !is_of(name));
    }
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "no call takes 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
