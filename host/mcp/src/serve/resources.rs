//! What clients may read: files that the operator names, each with its address, and with `--runs`
//! the journals and objects of the runs of this process. An address that nothing here decides for
//! is refused.

mod watch;

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conclave_core::types::ids::RoomId;
use conclave_core::types::text::show_size;
use conclave_runtime::blobs::Blobs;
use conclave_runtime::journal::Journals;
use conclave_runtime::message::Blob;
use rmcp::model::{CompletionInfo, Resource, ResourceContents, ResourceTemplate};

pub(super) use watch::Watch;

/// Maximum bytes of what is read at once.
const MOST: u64 = 4 << 20;
/// The runs of this process that are listed, the newest ones.
const RUNS: usize = 256;
/// Maximum entries of a folder that are looked at to complete a value.
const ENTRIES: usize = 4_096;
const RUN: &str = "conclave:runs/";
const JOURNAL: &str = "/journal";
const OBJECT: &str = "/objects/";

/// A file, or with `{name}` in both parts a family of files in one folder, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedFile {
    uri: AddressPattern,
    path: AddressPattern,
}

/// A text with at most one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressPattern {
    before: String,
    variable: Option<String>,
    after: String,
}

impl AddressPattern {
    fn parse(text: &str) -> Option<Self> {
        let Some((before, rest)) = text.split_once('{') else {
            return (!text.contains('}')).then(|| Self {
                before: text.to_owned(),
                variable: None,
                after: String::new(),
            });
        };
        let (variable, after) = rest.split_once('}')?;
        let is_name = !variable.is_empty()
            && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_one = is_name && !after.contains(['{', '}']);
        is_one.then(|| Self {
            before: before.to_owned(),
            variable: Some(variable.to_owned()),
            after: after.to_owned(),
        })
    }

    fn with(&self, value: &str) -> String {
        match self.variable {
            Some(_) => format!("{}{value}{}", self.before, self.after),
            None => self.before.clone(),
        }
    }

    /// The value of the variable in a text; `Some("")` for the text of a pattern without one.
    fn value<'a>(&self, text: &'a str) -> Option<&'a str> {
        if self.variable.is_none() {
            return (text == self.before).then_some("");
        }
        text.strip_prefix(&self.before)?.strip_suffix(&self.after)
    }
}

impl ServedFile {
    /// Reads `URI=PATH`. A relative path starts at the folder.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let (uri, path) = text.split_once('=').ok_or("write URI=PATH")?;
        let scheme = uri.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        if !is_scheme || uri.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("{uri:?} is no address such as notes://plan"));
        }
        if scheme == "conclave" {
            return Err("addresses of `conclave:` are those of runs".to_owned());
        }
        let one = "has more than one `{name}`, or one that is no name";
        let uri = AddressPattern::parse(uri).ok_or_else(|| format!("{uri:?} {one}"))?;
        let path = folder.join(path).display().to_string();
        let path = AddressPattern::parse(&path).ok_or_else(|| format!("{path:?} {one}"))?;
        if uri.variable != path.variable {
            return Err("the address and the path need the same `{name}`".to_owned());
        }
        if path.after.contains('/') {
            return Err("`{name}` belongs into the last part of the path".to_owned());
        }
        Ok(Self { uri, path })
    }

    /// Decides whether an address is one of these files, and returns its path.
    fn covers(&self, uri: &str) -> Option<PathBuf> {
        let value = decoded(self.uri.value(uri)?)?;
        if self.uri.variable.is_none() {
            return Some(PathBuf::from(self.path.with("")));
        }
        // A part of a name, so it can neither leave the folder nor name a hidden file.
        let is_part = !value.is_empty()
            && !value.starts_with('.')
            && !value.contains(|c: char| matches!(c, '/' | '\\') || c.is_control());
        is_part.then(|| PathBuf::from(self.path.with(&value)))
    }

    fn name(&self) -> String {
        let path =
            self.path.variable.as_ref().map_or_else(String::new, |name| format!("{{{name}}}"));
        let path = format!("{}{path}{}", self.path.before, self.path.after);
        let name = Path::new(&path).file_name();
        name.map_or_else(|| path.clone(), |name| name.to_string_lossy().into_owned())
    }
}

/// Why nothing is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The operator serves nothing at this address, or nothing is there.
    NotServed,
    /// It is there, and cannot be read.
    Failed(String),
}

/// A run of this process, and the attachments of its result.
struct ServedRun {
    id: RoomId,
    objects: Vec<Blob>,
}

/// Everything that clients may read.
pub(super) struct Resources {
    files: Vec<ServedFile>,
    /// `None` if runs are not served.
    runs: Option<Mutex<VecDeque<ServedRun>>>,
    journals: Arc<dyn Journals>,
    blobs: Arc<dyn Blobs>,
}

impl Resources {
    pub(super) fn new(
        files: Vec<ServedFile>,
        serves_runs: bool,
        journals: Arc<dyn Journals>,
        blobs: Arc<dyn Blobs>,
    ) -> Self {
        Self { files, runs: serves_runs.then(Mutex::default), journals, blobs }
    }

    /// Whether there can be any.
    pub(super) fn is_served(&self) -> bool {
        !self.files.is_empty() || self.runs.is_some()
    }

    /// Adds a run that begins.
    pub(super) fn add_run(&self, id: &RoomId) {
        let Some(runs) = &self.runs else { return };
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS {
            runs.pop_front();
        }
        runs.push_back(ServedRun { id: id.clone(), objects: Vec::new() });
    }

    /// Adds the attachments of a run's result.
    pub(super) fn add_objects(&self, id: &RoomId, objects: &[Blob]) {
        let Some(runs) = &self.runs else { return };
        let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.iter_mut().find(|run| run.id == *id) {
            run.objects = objects.to_vec();
        }
    }

    /// The single resources, files first.
    pub(super) fn list(&self) -> Vec<Resource> {
        let files = self.files.iter().filter(|file| file.uri.variable.is_none()).map(|file| {
            Resource::new(file.uri.with(""), file.name())
                .with_mime_type(media_type(Path::new(&file.path.with("")), None))
        });
        let mut resources: Vec<Resource> = files.collect();
        let Some(runs) = &self.runs else { return resources };
        let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
        for run in runs.iter().rev() {
            let journal = Resource::new(format!("{RUN}{}{JOURNAL}", run.id), run.id.to_string());
            resources.push(journal.with_description("The journal.").with_mime_type(LINES));
            resources.extend(run.objects.iter().map(|blob| {
                let uri = format!("{RUN}{}{OBJECT}{}", run.id, blob.sha256);
                let name = blob.name.clone().unwrap_or_else(|| blob.sha256.clone());
                Resource::new(uri, name)
                    .with_mime_type(blob.media_type.clone())
                    .with_size(blob.length)
            }));
        }
        resources
    }

    pub(super) fn templates(&self) -> Vec<ResourceTemplate> {
        let families = self.files.iter().filter_map(|file| {
            let variable = file.uri.variable.as_ref()?;
            let uri = file.uri.with(&format!("{{{variable}}}"));
            Some(ResourceTemplate::new(uri, file.name()))
        });
        let journals = self.runs.as_ref().map(|_| {
            ResourceTemplate::new(format!("{RUN}{{run}}{JOURNAL}"), "the journal of a run")
                .with_mime_type(LINES)
        });
        families.chain(journals).collect()
    }

    /// The file at an address, if it is one.
    pub(super) fn file(&self, uri: &str) -> Option<PathBuf> {
        self.files.iter().find_map(|file| file.covers(uri))
    }

    /// Whether an address is served.
    pub(super) fn serves(&self, uri: &str) -> bool {
        self.file(uri).is_some() || self.run(uri).is_some()
    }

    /// The run at an address, and its object there; `None` for its journal.
    fn run(&self, uri: &str) -> Option<(RoomId, Option<Blob>)> {
        let runs = self.runs.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = uri.strip_prefix(RUN)?;
        let find = |id: &str| runs.iter().find(|run| run.id.to_string() == id);
        if let Some(id) = rest.strip_suffix(JOURNAL) {
            return Some((find(id)?.id.clone(), None));
        }
        let (id, sha256) = rest.split_once(OBJECT)?;
        let run = find(id)?;
        let object = run.objects.iter().find(|blob| blob.sha256 == sha256)?;
        Some((run.id.clone(), Some(object.clone())))
    }

    /// Returns the contents of the resource at an address.
    pub(super) async fn read(&self, uri: &str) -> Result<ResourceContents, Unread> {
        if let Some(path) = self.file(uri) {
            let address = uri.to_owned();
            let read = move || read_file(&path, &address);
            // Off the event loop, because the file may be on a server.
            return tokio::task::spawn_blocking(read)
                .await
                .unwrap_or_else(|error| Err(Unread::Failed(error.to_string())));
        }
        match self.run(uri).ok_or(Unread::NotServed)? {
            (id, None) => self.journal(&id, uri).await,
            (_, Some(blob)) => self.object(&blob, uri).await,
        }
    }

    async fn journal(&self, id: &RoomId, uri: &str) -> Result<ResourceContents, Unread> {
        let records = self.journals.records(id).await;
        let records = records.map_err(|_| Unread::Failed("it cannot be read now".to_owned()))?;
        let mut lines = String::new();
        for record in records.ok_or(Unread::NotServed)? {
            // The room's secret is no part of this form.
            let line = serde_json::to_string(&record);
            lines.push_str(&line.map_err(|error| Unread::Failed(error.to_string()))?);
            lines.push('\n');
            check_length(lines.len() as u64)?;
        }
        Ok(ResourceContents::text(lines, uri).with_mime_type(LINES))
    }

    async fn object(&self, blob: &Blob, uri: &str) -> Result<ResourceContents, Unread> {
        check_length(blob.length)?;
        let (blobs, digest) = (Arc::clone(&self.blobs), blob.sha256.clone());
        let read = tokio::task::spawn_blocking(move || blobs.read(&digest)).await;
        match read {
            Ok(Ok(Some(bytes))) => Ok(contents(&bytes, uri, blob.media_type.clone())),
            Ok(Ok(None)) => Err(Unread::NotServed),
            // The cause is the operator's, and may name a server.
            _ => Err(Unread::Failed("it cannot be read now".to_owned())),
        }
    }

    /// The values of a template's variable that begin with a text.
    pub(super) fn complete(&self, template: &str, name: &str, prefix: &str) -> CompletionInfo {
        let is_it = |file: &&ServedFile| {
            file.uri.variable.as_deref() == Some(name)
                && file.uri.with(&format!("{{{name}}}")) == template
        };
        let Some(file) = self.files.iter().find(is_it) else { return CompletionInfo::default() };
        let before = Path::new(&file.path.before);
        let is_folder = file.path.before.ends_with('/');
        let folder = if is_folder { Some(before) } else { before.parent() };
        let start = before.file_name().filter(|_| !is_folder);
        let start = start.map(|start| start.to_string_lossy()).unwrap_or_default();
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        let mut values: Vec<String> = entries
            .into_iter()
            .flatten()
            .take(ENTRIES)
            .flatten()
            .filter_map(|entry| {
                let entry = entry.file_name().into_string().ok()?;
                let value = entry.strip_prefix(&*start)?.strip_suffix(&file.path.after)?;
                let is_one = value.starts_with(prefix) && !value.is_empty();
                (is_one && !value.starts_with('.')).then(|| value.to_owned())
            })
            .collect();
        values.sort_unstable();
        values.truncate(CompletionInfo::MAX_VALUES);
        CompletionInfo::new(values).unwrap_or_default()
    }
}

/// The media type of journals.
const LINES: &str = "application/x-ndjson";

fn check_length(length: u64) -> Result<(), Unread> {
    let too_long = || Unread::Failed(format!("it has more than {}", show_size(MOST)));
    if length <= MOST { Ok(()) } else { Err(too_long()) }
}

/// The file at a path, with the links of its folder resolved. A link in the folder leads nowhere:
/// clients read files of the operator's pattern, and a plugin may have made the link.
fn real_path(path: &Path) -> Option<PathBuf> {
    let real = path.parent()?.canonicalize().ok()?.join(path.file_name()?);
    let metadata = real.symlink_metadata().ok()?;
    metadata.is_file().then_some(real)
}

fn read_file(path: &Path, uri: &str) -> Result<ResourceContents, Unread> {
    let real = real_path(path).ok_or(Unread::NotServed)?;
    let failed = |error: std::io::Error| Unread::Failed(error.kind().to_string());
    let metadata = real.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Unread::NotServed);
    }
    check_length(metadata.len())?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    File::open(&real)
        .and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    check_length(bytes.len() as u64)?;
    let media_type = media_type(&real, Some(&bytes));
    Ok(contents(&bytes, uri, media_type.to_owned()))
}

fn contents(bytes: &[u8], uri: &str, media_type: String) -> ResourceContents {
    let is_media = ["image/", "audio/", "video/"].iter().any(|kind| media_type.starts_with(kind));
    let text = std::str::from_utf8(bytes).ok().filter(|_| !is_media);
    match text {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::blob(STANDARD.encode(bytes), uri),
    }
    .with_mime_type(media_type)
}

/// The media type by the name of a file, or by its bytes where they are known.
fn media_type(path: &Path, bytes: Option<&[u8]>) -> &'static str {
    let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("md") => "text/markdown",
        Some("html" | "htm") => "text/html",
        Some("csv") => "text/csv",
        Some("json") => "application/json",
        Some("jsonl" | "ndjson") => LINES,
        Some("pdf") => "application/pdf",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("svg") => "image/svg+xml",
        Some("wav") => "audio/wav",
        Some("mp3") => "audio/mpeg",
        Some("ogg") => "audio/ogg",
        Some("txt" | "log" | "toml" | "yaml" | "yml") => "text/plain",
        _ if bytes.is_some_and(|bytes| std::str::from_utf8(bytes).is_ok()) => "text/plain",
        _ => "application/octet-stream",
    }
}

/// The text behind `%20`; `None` if it is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let pair = bytes.get(index + 1..index + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match byte.filter(|_| bytes[index] == b'%') {
            Some(byte) => {
                decoded.push(byte);
                index += 3;
            }
            None => {
                decoded.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests;
