//! The results of a batch, written in the order of its inputs, each as soon as all earlier ones
//! are. This module knows the output format, and nothing of the runs.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::types::outcome::{Outcome, Status};
use conclave_runtime::durable_file::{folder_of, sync_folder};
use serde::Serialize;
use serde_json::Value;

use super::input::BatchInput;
use crate::program::error::CliError;
use crate::program::exit;
use crate::session::ending::{as_json, result};
use crate::ui::screen::Screen;
use crate::ui::show::{BAD, FAINT, ODD, one_line, paint, show_path, unwritten};
use crate::ui::stdout;

/// The result of one input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ResultRow {
    pub(crate) index: usize,
    pub(crate) id: Option<Value>,
    pub(crate) status: String,
    pub(crate) content: Option<String>,
    /// The result's value, if it is more than text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Value>,
    /// Calls that are the result or part of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Value>,
    /// The result converted to its declared type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) typed: Option<Value>,
    pub(crate) error: Option<String>,
    /// The text that `run` would print.
    #[serde(skip)]
    text: Option<String>,
    #[serde(skip)]
    pub(crate) code: u8,
}

impl ResultRow {
    fn new(index: usize, input: &BatchInput, status: &str) -> Self {
        let (content, value, typed, error, text) = (None, None, None, None, None);
        let (id, status) = (input.id.clone(), status.to_owned());
        Self {
            index,
            id,
            status,
            content,
            value,
            tools: Vec::new(),
            typed,
            error,
            text,
            code: exit::OK,
        }
    }

    /// The row of a run that ended; `code` is the exit code that `run` would have.
    pub(crate) fn ended(index: usize, input: &BatchInput, outcome: &Outcome, code: u8) -> Self {
        // What a run said before it failed is no result, and a reader of the rows would take it for
        // one.
        let is_kept = outcome.status.is_success();
        let text = result(outcome).filter(|_| is_kept);
        Self {
            content: outcome.content.clone().filter(|_| is_kept),
            value: outcome.value.clone().filter(|_| is_kept),
            tools: outcome.tools.iter().filter(|_| is_kept).map(as_json).collect(),
            typed: outcome.typed.clone().filter(|_| is_kept),
            error: text.is_none().then(|| outcome.reason.clone()),
            text,
            code,
            ..Self::new(index, input, outcome.status.as_str())
        }
    }

    /// The row of a run that failed to start.
    pub(crate) fn failed(index: usize, input: &BatchInput, why: String) -> Self {
        Self {
            error: Some(why),
            code: exit::FAILED,
            ..Self::new(index, input, Status::Error.as_str())
        }
    }

    /// The row of a run that was cancelled or did not start.
    fn cancelled(index: usize, input: &BatchInput, why: &str) -> Self {
        Self { error: Some(why.to_owned()), ..Self::new(index, input, CANCELLED) }
    }

    fn readable(&self) -> String {
        let label = label(self.index, self.id.as_ref());
        let label = paint(FAINT, format_args!("{label:>4}"));
        match (&self.error, &self.text) {
            (Some(error), _) => {
                let style = if self.code == exit::OK { ODD } else { BAD };
                format!("{label}  {} {}", paint(style, &self.status), one_line(error, usize::MAX))
            }
            (None, Some(text)) => format!("{label}  {}", one_line(text, usize::MAX)),
            (None, None) => format!("{label}  {}", paint(FAINT, &self.status)),
        }
    }
}

/// The name of an input for messages: its `id`, or its position from 1. A `#` in front
/// distinguishes a position from an id.
pub(crate) fn label(index: usize, id: Option<&Value>) -> String {
    match id {
        Some(Value::String(id)) => one_line(id, 40),
        Some(id) => id.to_string(),
        None => format!("#{}", index.saturating_add(1)),
    }
}

/// The status of inputs whose runs did not end.
const CANCELLED: &str = "CANCELLED";

/// The destination of rows.
enum Sink {
    /// A file of JSON lines.
    File(PathBuf, BufWriter<File>),
    Json,
    Readable,
}

/// Rows of ended runs that the batch has not accepted yet, by input.
pub(crate) type Staged = Arc<Mutex<BTreeMap<usize, ResultRow>>>;

/// Rows that are held until all earlier ones are written.
pub(crate) struct Results {
    inputs: Arc<Vec<BatchInput>>,
    screen: Arc<Screen>,
    staged: Staged,
    /// Rows in the order of the inputs.
    rows: Vec<Option<ResultRow>>,
    /// The index of the first row that was not written.
    next: usize,
    sink: Sink,
}

impl Results {
    /// # Errors
    /// If the file cannot be created.
    pub(crate) fn new(
        inputs: Arc<Vec<BatchInput>>,
        screen: Arc<Screen>,
        output: Option<&Path>,
        json: bool,
    ) -> Result<Self, CliError> {
        let sink = match output {
            Some(path) => {
                // Rows hold plugins' output, as journals do, so a new file is readable by its owner
                // alone.
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                let file = options.open(path);
                let file = file.map_err(|error| {
                    CliError::usage(format!("{} could not be written: {error}", show_path(path)))
                })?;
                Sink::File(path.to_owned(), BufWriter::new(file))
            }
            None if json => Sink::Json,
            None => Sink::Readable,
        };
        let rows = vec![None; inputs.len()];
        Ok(Self { inputs, screen, staged: Staged::default(), rows, next: 0, sink })
    }

    /// The map into which runs put their rows.
    pub(crate) fn staged(&self) -> Staged {
        Arc::clone(&self.staged)
    }

    /// The rows of runs that ended.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &ResultRow> {
        self.rows.iter().flatten()
    }

    /// Accepts the row of this input, and writes all rows that are in order now.
    ///
    /// # Errors
    /// If the rows cannot be written.
    pub(crate) fn take(&mut self, index: usize) -> Result<(), CliError> {
        let row = lock(&self.staged).remove(&index);
        if let Some(place) = self.rows.get_mut(index) {
            *place = row;
        }
        let due: Vec<ResultRow> =
            self.rows.iter().skip(self.next).map_while(Clone::clone).collect();
        self.next += due.len();
        due.iter().try_for_each(|row| self.write(row))
    }

    /// The number of inputs.
    pub(crate) fn total(&self) -> usize {
        self.inputs.len()
    }

    /// Writes the remaining rows, including those of inputs without an end, with the reason.
    /// Reports the number of the latter on stderr.
    ///
    /// # Errors
    /// If the rows cannot be written.
    pub(crate) fn write_rest(&mut self, why: &str) -> Result<(), CliError> {
        let rest: Vec<Option<ResultRow>> = self.rows.iter().skip(self.next).cloned().collect();
        for (row, index) in rest.into_iter().zip(self.next..) {
            match (row, self.inputs.get(index)) {
                (Some(row), _) => self.write(&row)?,
                (None, Some(input)) if !matches!(self.sink, Sink::Readable) => {
                    self.write(&ResultRow::cancelled(index, input, why))?
                }
                (None, _) => {}
            }
        }
        match &mut self.sink {
            Sink::File(path, file) => finish(path, file).map_err(|error| unwritten(path, &error)),
            Sink::Json | Sink::Readable => stdout::drain(),
        }
    }

    fn write(&mut self, row: &ResultRow) -> Result<(), CliError> {
        let json =
            serde_json::to_string(row).map_err(|error| CliError::internal(error.to_string()));
        match &mut self.sink {
            // Flushed after each line, so that a reader of the file sees all results so far.
            Sink::File(path, file) => writeln!(file, "{}", json?)
                .and_then(|()| file.flush())
                .map_err(|error| unwritten(path, &error)),
            Sink::Json => self.screen.above_status(|| stdout::queue_json(json?)),
            Sink::Readable => self.screen.above_status(|| stdout::queue_styled(row.readable())),
        }
    }
}

/// Flushes all rows to the disk, if the file is on one.
fn finish(path: &Path, file: &mut BufWriter<File>) -> std::io::Result<()> {
    file.flush()?;
    // A pipe or a terminal cannot be synced.
    if file.get_ref().metadata()?.is_file() {
        file.get_ref().sync_all()?;
        sync_folder(folder_of(path))?;
    }
    Ok(())
}

fn lock(staged: &Staged) -> MutexGuard<'_, BTreeMap<usize, ResultRow>> {
    staged.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a row until the batch accepts it.
pub(crate) fn put(staged: &Staged, row: ResultRow) {
    lock(staged).insert(row.index, row);
}

#[cfg(test)]
mod tests {
    use conclave_core::types::message::ToolCall;
    use serde_json::{Map, json};

    use super::*;
    use crate::ui::screen::Verbosity;

    fn input(id: Option<Value>) -> BatchInput {
        BatchInput { id, text: "When?".to_owned(), inputs: Map::new() }
    }

    #[test]
    fn rows_are_written_in_input_order_as_soon_as_possible() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let inputs = Arc::new(vec![input(None), input(Some(json!("b"))), input(Some(json!(7)))]);
        let mut results =
            Results::new(Arc::clone(&inputs), Screen::new(Verbosity::Quiet), Some(&path), false)
                .unwrap();
        let success = Outcome {
            content: Some("In 1844.".to_owned()),
            ..Outcome::new(Status::Done, "it says so")
        };
        put(&results.staged(), ResultRow::ended(1, &inputs[1], &success, exit::OK));
        results.take(1).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        put(
            &results.staged(),
            ResultRow::ended(
                0,
                &inputs[0],
                &Outcome::new(Status::Stalled, "nobody knew"),
                exit::FAILED,
            ),
        );
        results.take(0).unwrap();
        let first_two = "{\"index\":0,\"id\":null,\"status\":\"STALLED\",\"content\":null,\"error\":\"nobody knew\"}\n{\"index\":1,\"id\":\"b\",\"status\":\"DONE\",\"content\":\"In 1844.\",\"error\":null}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), first_two);
        put(&results.staged(), ResultRow::ended(2, &inputs[2], &success, exit::OK));
        results.write_rest("Ctrl-C").unwrap();
        let last = "{\"index\":2,\"id\":7,\"status\":\"CANCELLED\",\"content\":null,\"error\":\"Ctrl-C\"}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{first_two}{last}"));
    }

    #[test]
    fn a_result_without_text_is_a_result() {
        let row = |change: &dyn Fn(&mut Outcome)| {
            let mut outcome = Outcome::new(Status::Done, "it says so");
            change(&mut outcome);
            let row = ResultRow::ended(0, &input(None), &outcome, exit::OK);
            (
                anstream::adapter::strip_str(&row.readable()).to_string(),
                serde_json::to_value(&row).unwrap(),
            )
        };
        let call = ToolCall::new("desk.report", json!({ "mark": 5 }));
        let (text, json) = row(&|outcome| outcome.tools = vec![call.clone()]);
        assert_eq!(text, r##"  #1  {"arguments":{"mark":5},"name":"desk.report"}"##);
        assert_eq!(
            (&json["tools"], &json["error"]),
            (&json!([{ "name": "desk.report", "arguments": { "mark": 5 } }]), &Value::Null)
        );
        let (text, json) = row(&|outcome| outcome.typed = Some(json!(42)));
        assert_eq!(
            (text.as_str(), &json["typed"], &json["error"]),
            ("  #1  42", &json!(42), &Value::Null)
        );
        let (text, json) = row(&|outcome| outcome.value = Some(json!([1])));
        assert_eq!(
            (text.as_str(), &json["value"], json.get("tools")),
            ("  #1  [1]", &json!([1]), None)
        );
    }
}
