//! Digest: reads a folder through a search plugin and finishes with what it is about. Three steps: list, read, summarise. The
//! summary quotes the sentences that share most with all others, so it says nothing that the folder does not.

mod summary;

use conclave_sdk::{Agent, Error, Result, ToolOutput, Turn, View, call, finish, scratch};
use serde::{Deserialize, Serialize};
use serde_json::json;

use summary::Document;

/// As many reads as one message may ask for without crowding out the other plugins.
const MOST_FILES: usize = 40;

/// What it remembers between reading and summarising: a fresh instance knows nothing.
#[derive(Serialize, Deserialize)]
struct Reading {
    /// How many files the folder has.
    files: usize,
    /// Those that are being read, in the order of the calls.
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
    let mut paths = paths(listed)?;
    let files = paths.len();
    paths.truncate(MOST_FILES);
    let mut reads = paths.iter().map(|path| json!({ "path": path }));
    let Some(first) = reads.next() else { return Ok(finish("The folder is empty.")) };
    let turn = reads.fold(call(&tool.name, first), |turn, arguments| turn.and_call(&tool.name, arguments));
    scratch::set(&Reading { files, paths })?;
    Ok(turn)
}

#[derive(Deserialize)]
struct Listed {
    files: Vec<Listing>,
}

#[derive(Deserialize)]
struct Listing {
    path: String,
}

/// From the structured result, or from the lines `path bytes` where only text arrived.
fn paths(listed: &ToolOutput) -> Result<Vec<String>> {
    if let Some(value) = &listed.value {
        let listed: Listed = serde_json::from_str(value)?;
        return Ok(listed.files.into_iter().map(|file| file.path).collect());
    }
    let path = |line: &str| line.rsplit_once(' ').map(|(path, _)| path.to_owned());
    listed.content.lines().map(|line| path(line).ok_or_else(|| Error::other(format!("no path and size: {line}")))).collect()
}

fn summarised(reading: &Option<Reading>, outputs: &[ToolOutput]) -> String {
    let Some(reading) = reading else { return "I have read files, but no longer know which.".into() };
    let pairs = reading.paths.iter().zip(outputs);
    let documents: Vec<_> =
        pairs.filter(|(_, output)| !output.is_error).map(|(path, output)| Document::new(path, &output.content)).collect();
    match outputs.first() {
        Some(output) if documents.is_empty() => format!("I could not read any of {} files: {}", reading.files, output.content),
        _ => summary::of(reading.files, &documents),
    }
}

conclave_sdk::export!(agent: Digest);

#[cfg(test)]
mod tests {
    use super::{Reading, ToolOutput, paths, summarised};

    fn output(content: &str, value: Option<&str>, is_error: bool) -> ToolOutput {
        ToolOutput { call_id: "1".into(), name: "search.read".into(), content: content.into(), value: value.map(str::to_owned), is_error }
    }

    #[test]
    fn paths_come_from_the_value_or_from_the_lines() {
        let value = r#"{"files":[{"path":"/folder/a b.md","bytes":3}]}"#;
        assert_eq!(paths(&output("", Some(value), false)).ok(), Some(vec!["/folder/a b.md".to_owned()]));
        assert_eq!(paths(&output("/folder/a b.md 3", None, false)).ok(), Some(vec!["/folder/a b.md".to_owned()]));
    }

    #[test]
    fn files_that_could_not_be_read_are_left_out() {
        let reading = || Some(Reading { files: 2, paths: vec!["/folder/a.md".into(), "/folder/b.md".into()] });
        let refused = || output("refused", None, true);
        assert_eq!(summarised(&reading(), &[refused(), refused()]), "I could not read any of 2 files: refused");
        let text = output("The light stands on a rock in the sea.", None, false);
        assert!(summarised(&reading(), &[refused(), text]).contains("(folder/b.md:1)"));
    }
}
