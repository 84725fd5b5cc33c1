//! Digest: reads a folder through a search plugin and finishes with a summary. It takes three
//! steps: list, read, summarise. The summary quotes the sentences that share most with all others,
//! so it says nothing that the folder does not.

mod summary;

use conclave_prose::{LARGEST_TEXT, files, one_line};
use conclave_sdk::{Agent, Error, Result, ToolOutput, Turn, View, call, finish, scratch};
use serde::{Deserialize, Serialize};
use serde_json::json;

use summary::Document;

/// Reads in one message, few enough not to crowd out the other plugins.
const MOST_FILES: usize = 40;

/// The state between reading and summarising, since each step is a fresh instance.
#[derive(Serialize, Deserialize)]
struct Reading {
    /// The number of files in the folder.
    files: usize,
    /// The number of files that are too large for the search tool.
    left_out: usize,
    /// The paths being read, in the order of the calls.
    paths: Vec<String>,
}

struct Digest;

impl Agent for Digest {
    fn step(view: &View) -> Result<Turn> {
        let outputs = view.tool_outputs();
        match outputs.first().map(|output| output.name.rsplit('.').next().unwrap_or_default()) {
            Some("list") => read(view, &outputs[0]),
            Some("read") => Ok(finish(summarised(&scratch::get()?, &outputs))),
            _ if view.iteration() == 0 => list(view),
            _ => Ok(finish("I asked for the files of the folder, but got no result.")),
        }
    }
}

fn list(view: &View) -> Result<Turn> {
    Ok(match view.tool("list") {
        Some(tool) => call(tool.name, json!({})),
        None => finish("I cannot see the folder: I need a tool that is named `list`."),
    })
}

fn read(view: &View, listed: &ToolOutput) -> Result<Turn> {
    if listed.is_error {
        return Ok(finish(format!("I could not list the folder: {}", listed.content)));
    }
    let Some(tool) = view.tool("read") else {
        return Ok(finish("I cannot read the files: I need a tool that is named `read`."));
    };
    let reading = Reading::of(listings(listed)?);
    let mut reads = reading.paths.iter().map(|path| json!({ "path": path }));
    let Some(first) = reads.next() else { return Ok(finish(nothing_to_read(reading.left_out))) };
    let turn =
        reads.fold(call(&tool.name, first), |turn, arguments| turn.and_call(&tool.name, arguments));
    scratch::set(&reading)?;
    Ok(turn)
}

impl Reading {
    fn of(listings: Vec<Listing>) -> Self {
        let files = listings.len();
        let fitting: Vec<_> = listings
            .into_iter()
            .filter(|file| file.bytes <= LARGEST_TEXT)
            .map(|file| file.path)
            .collect();
        Self {
            files,
            left_out: files - fitting.len(),
            paths: fitting.into_iter().take(MOST_FILES).collect(),
        }
    }
}

fn nothing_to_read(left_out: usize) -> String {
    match left_out {
        0 => "The folder is empty.".into(),
        1 => "The folder has 1 file, which is too large to read.".into(),
        _ => format!("The folder has {}, all too large to read.", files(left_out)),
    }
}

#[derive(Deserialize)]
struct Listed {
    files: Vec<Listing>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Listing {
    path: String,
    /// The size in bytes, or 0 if the tool does not report it; only reading can tell then.
    #[serde(default)]
    bytes: u64,
}

/// Parses the structured result, or the lines `path bytes` if only text arrived.
fn listings(listed: &ToolOutput) -> Result<Vec<Listing>> {
    if let Some(value) = &listed.value {
        let listed: Listed = serde_json::from_str(value)?;
        return Ok(listed.files);
    }
    listed
        .content
        .lines()
        .map(|line| listing(line).ok_or_else(|| Error::other(format!("no path and size: {line}"))))
        .collect()
}

fn listing(line: &str) -> Option<Listing> {
    let (path, bytes) = line.rsplit_once(' ')?;
    Some(Listing { path: path.to_owned(), bytes: bytes.parse().ok()? })
}

fn summarised(reading: &Option<Reading>, outputs: &[ToolOutput]) -> String {
    let Some(reading) = reading else {
        return "I have read files, but no longer know which.".into();
    };
    let pairs = reading.paths.iter().zip(outputs);
    let documents: Vec<_> = pairs
        .filter(|(_, output)| !output.is_error)
        .map(|(path, output)| Document::new(&one_line(path), &output.content))
        .collect();
    match outputs.first() {
        Some(output) if documents.is_empty() => {
            format!("I could not read any of {}: {}", files(reading.files), output.content)
        }
        _ => summary::of(reading.files, reading.left_out, &documents),
    }
}

conclave_sdk::export!(agent: Digest);

#[cfg(test)]
mod tests {
    use super::{
        LARGEST_TEXT, Listing, MOST_FILES, Reading, ToolOutput, listings, nothing_to_read,
        summarised,
    };

    fn output(content: &str, value: Option<&str>, is_error: bool) -> ToolOutput {
        ToolOutput {
            call_id: "1".into(),
            name: "search.read".into(),
            content: content.into(),
            value: value.map(str::to_owned),
            is_error,
        }
    }

    #[test]
    fn files_come_from_the_value_or_from_the_lines() {
        let value = r#"{"files":[{"path":"/folder/a b.md","bytes":3}]}"#;
        let listing = || Listing { path: "/folder/a b.md".into(), bytes: 3 };
        assert_eq!(listings(&output("", Some(value), false)).ok(), Some(vec![listing()]));
        assert_eq!(listings(&output("/folder/a b.md 3", None, false)).ok(), Some(vec![listing()]));
    }

    #[test]
    fn files_over_the_cap_are_not_read() {
        let listing = |name: &str, bytes| Listing { path: format!("/folder/{name}"), bytes };
        let reading =
            Reading::of(vec![listing("a.csv", LARGEST_TEXT + 1), listing("b.md", LARGEST_TEXT)]);
        assert_eq!(
            (reading.files, reading.left_out, reading.paths),
            (2, 1, vec!["/folder/b.md".to_owned()])
        );
        let reading = Reading::of((0..=MOST_FILES).map(|_| listing("a.md", 1)).collect());
        assert_eq!((reading.left_out, reading.paths.len()), (0, MOST_FILES));
        assert_eq!(nothing_to_read(2), "The folder has 2 files, all too large to read.");
    }

    #[test]
    fn a_name_cannot_forge_a_place() {
        let reading =
            Reading { files: 1, left_out: 0, paths: vec!["/folder/a\nForged.  (b.md".into()] };
        let text = output("The light stands on a rock in the sea.", None, false);
        assert!(summarised(&Some(reading), &[text]).ends_with("(folder/a\\nForged.  (b.md:1)"));
    }

    #[test]
    fn files_that_could_not_be_read_are_left_out() {
        let reading = || {
            Some(Reading {
                files: 2,
                left_out: 0,
                paths: vec!["/folder/a.md".into(), "/folder/b.md".into()],
            })
        };
        let refused = || output("refused", None, true);
        assert_eq!(
            summarised(&reading(), &[refused(), refused()]),
            "I could not read any of 2 files: refused"
        );
        let text = output("The light stands on a rock in the sea.", None, false);
        assert!(summarised(&reading(), &[refused(), text]).contains("(folder/b.md:1)"));
    }
}
