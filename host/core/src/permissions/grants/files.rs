//! `files`: folders of the host, read-only, writable, or as overlays.

use serde::{Deserialize, Serialize};

use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Refused, Rights, TaskScope, has_any,
};
use crate::permissions::paths::{GuestPath, rest_below, suggested_folder, why_no_offer};
use crate::types::denial::{DenialRecord, Layer};
use crate::types::side_effect::SideEffect;
use crate::types::text::show_size;
use crate::types::wording::thousands;

/// Stands in a suggested grant for the folder that the operator has to choose.
pub const CHOSEN_FOLDER: &str = "…";

/// The access to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileMode {
    Read,
    ReadWrite,
    /// Reads the directory. Changes go to an overlay of the run, copy-on-write, until a person
    /// applies or drops them.
    Overlay,
}

impl FileMode {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
            Self::Overlay => "overlay",
        }
    }

    /// The access in words, for display.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read and write",
            Self::Overlay => "read and write an overlay of",
        }
    }

    /// Whether the plugin may write, into the directory or into its overlay.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// The mode that allows what both allow. An overlay allows no writing into the directory
    /// itself.
    fn narrowed_by(self, today: Self) -> Self {
        match (self, today) {
            (Self::Read, _) | (_, Self::Read) => Self::Read,
            (Self::Overlay, _) | (_, Self::Overlay) => Self::Overlay,
            (Self::ReadWrite, Self::ReadWrite) => Self::ReadWrite,
        }
    }
}

/// The grant of one directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileGrant {
    /// The path on the host, absolute: the config resolves it from its own folder.
    pub dir: String,
    /// The path as the operator wrote it, for people.
    #[serde(rename = "shown")]
    pub display_path: String,
    /// The path as the plugin sees it, with the leading slash: `/folder`.
    pub at: String,
    pub mode: FileMode,
    /// The limit in bytes of all files below it after a write, earlier content included. For an
    /// overlay, of the changed files alone.
    #[serde(default = "folder_bytes")]
    pub bytes: u64,
    /// The limit of files and directories below it after a write. For an overlay, of changed and
    /// removed files.
    #[serde(default = "folder_files")]
    pub files: u64,
}

/// The default limit of a writable folder in bytes.
pub const FOLDER_BYTES: u64 = 16 << 20;
/// The default limit of files in a writable folder.
pub const FOLDER_FILES: u64 = 1_000;

fn folder_bytes() -> u64 {
    FOLDER_BYTES
}

fn folder_files() -> u64 {
    FOLDER_FILES
}

/// `docs/`, nearly as the operator wrote it.
pub(crate) fn folder(grant: &FileGrant) -> String {
    let short = match grant.display_path.strip_prefix("./") {
        Some(rest) if !rest.trim_matches('/').is_empty() => rest.trim_end_matches('/'),
        _ => grant.display_path.trim_end_matches('/'),
    };
    format!("{short}/")
}

impl Rights<'_> {
    /// Returns the index of the folder grant that holds a path, and the path below that folder.
    /// Only the text is checked; the folder resolves links on the disk.
    ///
    /// # Errors
    /// The record, if the capability is not requested or not granted, if the path is invalid or
    /// outside every folder, or if the folder is read-only.
    pub fn may_touch<'p>(&self, path: &'p str, writes: bool) -> Result<(usize, &'p str), Refused> {
        self.folder_of(path, writes).map_err(|record| Box::new(DenialRecord { writes, ..*record }))
    }

    /// Whether a side effect changes a file of a folder that is granted as an overlay.
    #[must_use]
    pub fn is_of_overlay(&self, side_effect: &SideEffect) -> bool {
        let (SideEffect::WriteFile { path, .. } | SideEffect::RemoveFile { path }) = side_effect
        else {
            return false;
        };
        let index = self.may_touch(path, true).map(|(index, _)| index);
        let grant = index.ok().and_then(|index| self.grants.files.get(index));
        grant.is_some_and(|grant| grant.mode == FileMode::Overlay)
    }

    fn folder_of<'p>(&self, path: &'p str, writes: bool) -> Result<(usize, &'p str), Refused> {
        let smallest = || self.wider_files(path, writes);
        self.require(Capability::Files, path, smallest)?;
        let parsed = GuestPath::parse(path)
            .map_err(|reason| self.refuse(Capability::Files, path, Layer::Runtime, reason, None))?;
        let by_config =
            |reason: &str| self.refuse(Capability::Files, path, Layer::Config, reason, smallest());
        let found = self.grants.files.iter().enumerate().find(|(_, it)| it.at == parsed.folder);
        let Some((index, folder)) = found else {
            let granted: Vec<&str> =
                self.grants.files.iter().map(|folder| folder.at.as_str()).collect();
            // Which folder is meant, only the operator knows: the suggestion leaves it open.
            let choice = suggested_folder(path).map_or_else(String::new, |name| {
                format!(
                    ": choose the folder that the plugin shall see as /{name}, or, if {} is meant, change its `at`",
                    if granted.len() == 1 { "the granted folder" } else { "a granted folder" }
                )
            });
            return Err(by_config(&format!(
                "{} has files at {} only; this path is outside every granted folder{choice}",
                self.plugin,
                granted.join(", ")
            )));
        };
        if writes && !folder.mode.writes() {
            return Err(by_config(&format!(
                "{} was granted to {} for reading only",
                parsed.folder, self.plugin
            )));
        }
        self.check_scope(Capability::Files, path, |scope| {
            !(writes && scope.read_only)
                && scope.files.as_ref().is_none_or(|names| names.contains(&folder.at))
        })?;
        Ok((index, parsed.rest))
    }

    /// The smallest line of config that would allow a path; `None` if no line should be offered. A
    /// path outside of every granted folder needs one of the operator's choice: `…` stands for it,
    /// because a guessed name need not exist.
    fn wider_files(&self, path: &str, writes: bool) -> Option<String> {
        let name = suggested_folder(path)?;
        let line = |dir: &str, at: &str, mode: FileMode, quotas: &str| {
            format!("{{ dir = {dir:?}, at = {at:?}, mode = {:?}{quotas} }}", mode.as_str())
        };
        let place = format!("/{name}");
        let mode = if writes { FileMode::ReadWrite } else { FileMode::Read };
        let as_it_is = |grant: &FileGrant| {
            let is_usual = grant.mode == FileMode::Read
                || (grant.bytes, grant.files) == (FOLDER_BYTES, FOLDER_FILES);
            let quotas = if is_usual {
                String::new()
            } else {
                format!(", bytes = {:?}, files = {}", show_size(grant.bytes), grant.files)
            };
            line(
                &grant.display_path,
                &grant.at,
                if writes && grant.at == place { mode } else { grant.mode },
                &quotas,
            )
        };
        let mut grants: Vec<String> = self.grants.files.iter().map(as_it_is).collect();
        if self.grants.files.iter().all(|grant| grant.at != place) {
            grants.push(line(CHOSEN_FOLDER, &place, mode, ""));
        }
        Some(self.line(Capability::Files, format_args!("[{}]", grants.join(", "))))
    }
}

impl Grant for Vec<FileGrant> {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_touch(request.target, request.writes).map(drop)
    }

    fn remains(scope: &TaskScope, writes: bool) -> Option<bool> {
        Some(has_any(&scope.files) && !(writes && scope.read_only))
    }

    fn why_no_line(target: Option<&str>, _layer: Layer) -> Option<String> {
        let why = why_no_offer(target?)
            .unwrap_or("a granted folder covers the path, and the file itself is refused");
        Some(format!("{why}: no grant is suggested"))
    }

    /// Returns the directories that both grant, by the names under which the plugin sees them. The
    /// deepest grant above a name decides about it, in each list; both must lead to the same
    /// directory of the host, because another directory under the same name is another grant.
    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let deepest = |grants: &'_ [FileGrant], at: &str| {
            let above = grants.iter().filter(|grant| rest_below(&grant.at, at).is_some());
            above.max_by_key(|grant| grant.at.len()).cloned()
        };
        let directory = |grant: &FileGrant, at: &str| {
            let rest = rest_below(&grant.at, at).unwrap_or_default();
            format!("{}/{rest}", grant.dir.trim_end_matches('/')).trim_end_matches('/').to_owned()
        };
        let mut found: Vec<FileGrant> = Vec::new();
        for grant in self.iter().chain(today) {
            let (Some(one), Some(other)) = (deepest(self, &grant.at), deepest(today, &grant.at))
            else {
                continue;
            };
            let is_known = found.iter().any(|known| known.at == grant.at);
            if is_known || directory(&one, &grant.at) != directory(&other, &grant.at) {
                continue;
            }
            found.push(FileGrant {
                mode: one.mode.narrowed_by(other.mode),
                bytes: one.bytes.min(other.bytes),
                files: one.files.min(other.files),
                ..grant.clone()
            });
        }
        Some(found)
    }

    fn needs_approval(&self) -> bool {
        // A person reads the changes of an overlay before they reach the folder.
        self.iter().any(|grant| grant.mode == FileMode::ReadWrite)
    }

    fn acts(&self) -> bool {
        self.iter().any(|grant| grant.mode.writes())
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let in_mode = |mode: FileMode, text: &dyn Fn(&FileGrant) -> String| {
            let folders = self.iter().filter(|grant| grant.mode == mode).map(text);
            folders.collect::<Vec<_>>().join(", ")
        };
        let with_quota = |grant: &FileGrant| {
            let size = show_size(grant.bytes);
            format!("{} ({size}, {} files)", folder(grant), thousands(grant.files))
        };
        let summary = [
            (FileMode::Read, in_mode(FileMode::Read, &folder)),
            (FileMode::ReadWrite, in_mode(FileMode::ReadWrite, &with_quota)),
            (FileMode::Overlay, in_mode(FileMode::Overlay, &with_quota)),
        ];
        let summary = summary.into_iter().filter(|(_, folders)| !folders.is_empty());
        let granted: Vec<String> = self
            .iter()
            .map(|it| format!("{} {} at {}", it.mode.describe(), it.display_path, it.at))
            .collect();
        let writable = self.iter().find(|folder| folder.mode.writes());
        let quota = writable.filter(|_| request.writes).map_or_else(String::new, |folder| {
            let size = show_size(folder.bytes);
            format!(", and while the folder has less than {size} in {} files", folder.files)
        });
        GrantTexts {
            summary: summary
                .map(|(mode, folders)| format!("{} {folders}", mode.describe()))
                .collect(),
            effect: format!("write {}", in_mode(FileMode::ReadWrite, &folder)),
            granted: granted.join("; "),
            entry: self.iter().position(|folder| {
                let rest = request.target.strip_prefix(&folder.at);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
            bounds: Some(format!("as long as no link on the disk leads out of the folder{quota}")),
        }
    }
}
