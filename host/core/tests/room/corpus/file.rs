//! A file of the corpus: one line for each input, with its hashes.
#![expect(
    clippy::disallowed_methods,
    reason = "the corpus is recorded by the test that compares it; the fence is for decisions"
)]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use conclave_core::protocol::event::Record;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use similar::{Algorithm, ChangeTag};

use super::folded::{Folded, Way};

/// The number of differences that are shown in full.
const SHOWN: usize = 5;
/// The number of lines of each that are shown.
const LINES: usize = 40;
/// Begins the name of an input in a file of texts.
const INPUT: &str = "=== ";

const ORDER: [&str; 9] =
    ["events", "effects", "notices", "outcome", "next", "views", "resume", "texts", "steps"];

#[derive(PartialEq)]
enum Mode {
    Compare,
    Record,
    Text,
}

/// The inputs of one file during the comparison.
pub(crate) struct Source {
    name: &'static str,
    mode: Mode,
    way: Way,
    /// By input. Compared inputs are removed.
    recorded: BTreeMap<String, String>,
    order: Vec<String>,
    lines: Vec<String>,
    /// The hashed texts of the inputs, each behind its name.
    texts: Vec<String>,
    differences: Vec<String>,
}

/// Returns the folder of the corpus.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/corpus")
}

/// A recorded journal: its name, and its records as JSON.
pub(crate) type Journal = (String, Vec<Value>);

/// Returns the recorded journals of the files with this prefix, in order.
pub(crate) fn journals(start: &str) -> Vec<Journal> {
    let folder = folder().join("journals");
    let files = std::fs::read_dir(&folder).expect("journals were recorded");
    let names =
        files.map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
    names.sort();
    let lines = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(folder.join(name)).expect("a journal can be read");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    };
    let mut shared: Vec<Value> = Vec::new();
    for line in lines("shared.jsonl") {
        let line = expand_shared(line, &shared);
        shared.push(line);
    }
    let mut journals: Vec<Journal> = Vec::new();
    for name in &names {
        for line in lines(name) {
            if let Some(journal) = line.get("journal").and_then(Value::as_str) {
                let family = name.trim_end_matches(".jsonl");
                journals.push((format!("{family}: {journal}"), Vec::new()));
            } else {
                let (_, records) = journals.last_mut().expect("a journal begins with its name");
                records.push(expand_shared(line, &shared));
            }
        }
    }
    journals
}

/// Replaces the numbers of shared values by the values.
fn expand_shared(value: Value, shared: &[Value]) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| expand_shared(item, shared)).collect(),
        Value::Object(fields) => match fields.get("$shared").and_then(Value::as_u64) {
            Some(number) => shared[usize::try_from(number).expect("it counts lines")].clone(),
            None => Value::Object(
                fields
                    .into_iter()
                    .map(|(key, value)| (key, expand_shared(value, shared)))
                    .collect(),
            ),
        },
        other => other,
    }
}

impl Source {
    pub(crate) fn open(name: &'static str, way: Way) -> Self {
        let mode = match std::env::var("CONCLAVE_CORPUS").as_deref() {
            Ok("record") => Mode::Record,
            Ok("text") => Mode::Text,
            Ok(other) => panic!("CONCLAVE_CORPUS is `record` or `text`, not `{other}`"),
            Err(_) => Mode::Compare,
        };
        // Snapshots change nothing, so there is nothing of theirs to record.
        let mode = if way == Way::Straight { mode } else { Mode::Compare };
        let text =
            std::fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let recorded: Vec<(String, String)> = lines
            .map(|line| {
                let (input, hashes) =
                    line.split_once("  ").expect("two spaces end an input's name");
                (input.to_owned(), hashes.to_owned())
            })
            .collect();
        Self {
            name,
            mode,
            way,
            order: recorded.iter().map(|(input, _)| input.clone()).collect(),
            recorded: recorded.into_iter().collect(),
            lines: Vec::new(),
            texts: Vec::new(),
            differences: Vec::new(),
        }
    }

    /// Returns the recorded inputs, in the order of the file.
    pub(crate) fn inputs(&self) -> Vec<String> {
        self.order.clone()
    }

    /// Compares the behavior on these records with the recorded one.
    pub(crate) fn check(&mut self, input: &str, records: &[Record]) {
        assert!(!input.contains("  "), "two spaces end an input's name: {input}");
        let folded = Folded::of(records, self.way);
        let hashes = folded.hashes();
        let line = ORDER.map(|hash| format!("{hash}={}", hashes[hash])).join(" ");
        self.lines.push(format!("{input}  {line}\n"));
        match self.mode {
            Mode::Record => self.texts.push(format!("{INPUT}{input}\n{}\n", folded.text())),
            Mode::Text => {
                let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus").join(self.name);
                std::fs::create_dir_all(&folder).expect("a folder for the texts");
                let file = input.replace(|letter: char| !letter.is_alphanumeric(), "-");
                std::fs::write(folder.join(file), folded.text()).expect("a text is written");
            }
            Mode::Compare => match self.recorded.remove(input) {
                Some(recorded) if recorded == line => {}
                Some(recorded) => {
                    let before = recorded_text(self.name, input);
                    self.differences.push(difference(input, &recorded, &line, &folded, before));
                }
                None => self.differences.push(format!("- {input}\n    is not recorded\n")),
            },
        }
    }

    pub(crate) fn close(self) {
        let Self { name, mode, way, recorded, lines, texts, mut differences, .. } = self;
        if mode == Mode::Record {
            let head = format!(
                "# Hashes of what comes of each input; see README.md. {} inputs.\n",
                lines.len()
            );
            std::fs::write(folder().join(format!("{name}.txt")), head + &lines.concat())
                .expect("it is written");
            // What comes of a seed says nothing to a reader, and would be most of the texts.
            if !lines.iter().all(|line| line.starts_with("seed ")) {
                std::fs::write(texts_file(name), compressed(&texts.concat()))
                    .expect("it is written");
            }
            return;
        }
        if mode == Mode::Text {
            return;
        }
        if way == Way::Straight {
            let leftover = recorded.keys();
            differences
                .extend(leftover.map(|input| format!("- {input}\n    is recorded, and gone\n")));
        }
        assert!(
            differences.is_empty(),
            "{} of {} inputs of tests/data/corpus/{name}.txt differ:\n{}\
             Read tests/data/corpus/README.md before you record the corpus anew.",
            differences.len(),
            lines.len(),
            differences.iter().take(SHOWN).cloned().collect::<String>()
        );
    }
}

fn texts_file(name: &str) -> PathBuf {
    folder().join(format!("{name}.texts.gz"))
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).expect("a vector takes it")
}

/// The recorded text of an input; `None` for a seed.
fn recorded_text(name: &str, input: &str) -> Option<String> {
    let file = std::fs::read(texts_file(name)).ok()?;
    let mut text = String::new();
    GzDecoder::new(&file[..]).read_to_string(&mut text).expect("the texts are compressed");
    let (_, behind) = text.split_once(&format!("{INPUT}{input}\n"))?;
    Some(behind.split(&format!("\n{INPUT}")).next().unwrap_or_default().to_owned())
}

/// Names the hashes that differ, and shows the lines that do. Without a recorded text it shows the
/// first step that differs.
fn difference(
    input: &str,
    recorded: &str,
    line: &str,
    folded: &Folded,
    before: Option<String>,
) -> String {
    let differ: Vec<&str> = recorded
        .split(' ')
        .zip(line.split(' '))
        .filter(|(before, now)| before != now)
        .filter_map(|(_, now)| Some(now.split_once('=')?.0))
        .collect();
    let text = match before {
        Some(before) => changed_lines(before.trim_end(), folded.text().trim_end()),
        None => first_step(recorded, line, folded),
    };
    let lines: String = text.lines().take(LINES).map(|line| format!("    {line}\n")).collect();
    format!("- {input}\n    differ: {}\n{lines}", differ.join(", "))
}

/// The lines that are only in one of the texts, behind `-` or `+`.
fn changed_lines(before: &str, now: &str) -> String {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let mut changed = String::new();
    for operation in similar::capture_diff_slices(Algorithm::Myers, &before, &now) {
        for change in operation.iter_changes(&before, &now) {
            let mark = match change.tag() {
                ChangeTag::Equal => continue,
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            changed += &format!("{mark} {}\n", change.value());
        }
    }
    changed
}

fn first_step(recorded: &str, line: &str, folded: &Folded) -> String {
    let steps = |line: &'_ str| {
        line.rsplit_once("steps=").map(|(_, steps)| steps.to_owned()).unwrap_or_default()
    };
    let (before, now) = (steps(recorded), steps(line));
    let same = before
        .as_bytes()
        .chunks(2)
        .zip(now.as_bytes().chunks(2))
        .take_while(|(before, now)| before == now);
    let first = same.count();
    match folded.steps.get(first) {
        Some(step) => step.text(first),
        None if before == now => String::new(),
        None => format!("step {first} is gone\n"),
    }
}
