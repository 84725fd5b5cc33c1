//! The files of granted folders that the arguments of a call name, as they are now: for whoever
//! decides whether the call runs. Looks at the disk, follows no link, and changes nothing.

use std::path::Path;

use conclave_core::permissions::grants::FileGrant;
use conclave_core::permissions::policy_rules::is_odd;
use conclave_core::setup::PluginSetup;
use conclave_core::types::approval::ApprovalRequest;
use conclave_core::types::tool::ToolSpec;
use serde_json::{Map, Value};

use super::diff::{TextChange, as_text, text_change};

/// The names of arguments whose text usually becomes the content of a file. They count for tools
/// whose schema does not say it.
const CONTENTS: [&str; 5] = ["content", "contents", "text", "data", "body"];
/// Bytes of the name of such an argument.
const NAME_MAX: usize = 20;
/// Bytes of a file up to which it is compared with the text that replaces it.
const COMPARED: u64 = 256 * 1024;

/// A path in a granted folder, and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// What is there.
    pub state: FileState,
    /// The folder in the words of the operator, without a slash at its end.
    pub folder: String,
    /// The path below the folder; empty for the folder itself.
    pub rest: String,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The path is written so that it may mean another place.
    Unusual,
    /// A link, which is not followed.
    Link,
    /// A folder.
    Folder,
    /// A file of this size.
    File {
        /// The size in bytes.
        bytes: u64,
    },
    /// Nothing, and the plugin may write there.
    New {
        /// The number of folders between the granted one and the file.
        depth: u64,
    },
    /// Nothing.
    Missing,
}

/// An existing file that a call replaces with one of its arguments.
#[derive(Clone, Debug)]
pub struct ReplacedFile {
    /// The name of that argument.
    pub argument: String,
    /// The difference; without hunks if nothing changes.
    pub change: TextChange,
}

/// The file that an argument names; `None` if it is in no granted folder.
#[must_use]
pub fn named_file(text: &str, files: &[FileGrant]) -> Option<NamedFile> {
    let (grant, rest) = files.iter().find_map(|grant| Some((grant, inside(grant, text)?)))?;
    let folder = grant.display_path.strip_prefix("./").unwrap_or(&grant.display_path);
    let (folder, rest) = (folder.trim_end_matches('/').to_owned(), rest.to_owned());
    if is_odd(text) {
        return Some(NamedFile { state: FileState::Unusual, folder, rest });
    }
    // Links are not followed: showing an approval must not open their targets.
    let state = match std::fs::symlink_metadata(Path::new(&grant.dir).join(&rest)) {
        Ok(found) if found.is_symlink() => FileState::Link,
        Ok(found) if found.is_dir() => FileState::Folder,
        Ok(found) => FileState::File { bytes: found.len() },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && grant.mode.writes() => {
            FileState::New { depth: rest.matches('/').count() as u64 }
        }
        Err(_) => FileState::Missing,
    };
    Some(NamedFile { state, folder, rest })
}

/// The file that the call would replace; `None` unless its arguments name exactly one existing file
/// and one text for it.
#[must_use]
pub fn replaced_file(request: &ApprovalRequest, performer: &PluginSetup) -> Option<ReplacedFile> {
    let fields = request.arguments.as_object()?;
    let tool = request.tool.split_once('.').map(|(_, name)| name);
    let tool = tool.filter(|_| request.executor.is_none());
    let tool = performer.facts.tools.iter().find(|it| Some(it.name.as_str()) == tool);
    let (argument, text) = content_argument(tool, fields)?;
    let change = file_change(fields, &performer.grants.files, text)?;
    Some(ReplacedFile { argument: argument.to_owned(), change })
}

/// Returns the name and the text of the argument that may become the content of a file; `None` if
/// there is not exactly one. A host does not know what a tool does: `contentMediaType` in the tool's
/// schema says it, and the usual names decide otherwise.
fn content_argument<'a>(
    tool: Option<&'a ToolSpec>,
    fields: &'a Map<String, Value>,
) -> Option<(&'a str, &'a str)> {
    let properties = tool.and_then(|tool| tool.input_schema.get("properties")?.as_object());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let declared: Vec<&str> = properties
        .into_iter()
        .flatten()
        .filter(|(_, schema)| schema.get("contentMediaType").is_some())
        .map(|(name, _)| name.as_str())
        // It stands in a row of the program, where a sentence of the plugin's could mislead.
        .filter(|name| (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_plain))
        .collect();
    let names = if declared.is_empty() { &CONTENTS[..] } else { &declared[..] };
    let mut texts = names.iter().filter_map(|name| Some((*name, fields.get(*name)?.as_str()?)));
    let first = texts.next()?;
    texts.next().is_none().then_some(first)
}

/// Returns how a text differs from the existing file that a call would write it to. `None` if the
/// arguments do not name exactly one such file.
fn file_change(fields: &Map<String, Value>, files: &[FileGrant], text: &str) -> Option<TextChange> {
    let paths = fields.values().filter_map(Value::as_str).filter(|text| !is_odd(text));
    let mut writable = paths.filter_map(|text| {
        let grant = files.iter().find(|grant| inside(grant, text).is_some())?;
        grant.mode.writes().then(|| (grant, inside(grant, text).unwrap_or_default()))
    });
    let (grant, rest) = writable.next()?;
    if writable.next().is_some() {
        return None;
    }
    let file = Path::new(&grant.dir).join(rest);
    let found = std::fs::symlink_metadata(&file).ok()?;
    // A link in a folder of the path must not show another file.
    let is_within =
        file.canonicalize().ok()?.starts_with(Path::new(&grant.dir).canonicalize().ok()?);
    if !found.is_file() || found.len() > COMPARED || !is_within {
        return None;
    }
    let bytes = std::fs::read(&file).ok()?;
    Some(text_change(as_text(&bytes)?, text))
}

/// The path relative to a granted folder.
fn inside<'a>(grant: &FileGrant, text: &'a str) -> Option<&'a str> {
    let rest = text.strip_prefix(grant.at.as_str())?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_names_the_content_counts_before_the_usual_names() {
        let schema = json!({ "properties": { "page": { "contentMediaType": "text/markdown" } } });
        let tool = ToolSpec { input_schema: schema, ..ToolSpec::default() };
        let both = json!({ "page": "one", "text": "two" });
        let of_tool = |tool| content_argument(tool, both.as_object()?);
        assert_eq!(of_tool(Some(&tool)), Some(("page", "one")));
        assert_eq!(of_tool(None), Some(("text", "two")));
        let two = json!({ "text": "one", "body": "two" });
        assert_eq!(content_argument(None, two.as_object().unwrap()), None);
    }
}
