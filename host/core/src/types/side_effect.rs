//! Side effects of plugins through imports: a request that is sent, a file or key that changes.
//! Each is journalled before it happens and before the plugin gets its result, under its call and a
//! number. A repeated call therefore does nothing twice. Values appear as digests, secrets as
//! placeholders.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::capability::Capability;
use crate::types::denial::Denial;
use crate::types::message::Blob;
use crate::types::text::show_command;

/// A side effect that is about to happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "side_effect", rename_all = "kebab-case")]
pub enum SideEffect {
    /// A request, before any secret is inserted.
    Fetch {
        method: String,
        url: String,
        headers: Vec<(String, String)>,
        /// The digest of the body; `None` without a body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Digest>,
        /// The names of the secrets that the host inserts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<String>,
    },
    WriteFile {
        path: String,
        offset: u64,
        truncate: bool,
        bytes: Digest,
    },
    RemoveFile {
        path: String,
    },
    SetKey {
        key: String,
        value: Digest,
    },
    DeleteKey {
        key: String,
    },
    /// A program of the machine that starts outside the sandbox.
    RunProgram {
        /// The path of the program.
        program: String,
        arguments: Vec<String>,
        /// The working directory as the plugin sees it; `None` for an empty folder of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
        /// The digest of its standard input; `None` if that is empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Digest>,
    },
}

impl SideEffect {
    /// The capability that it needs.
    #[must_use]
    pub fn capability(&self) -> Capability {
        match self {
            Self::Fetch { .. } => Capability::Fetch,
            Self::WriteFile { .. } | Self::RemoveFile { .. } => Capability::Files,
            Self::SetKey { .. } | Self::DeleteKey { .. } => Capability::Kv,
            Self::RunProgram { .. } => Capability::Exec,
        }
    }

    /// The target for people: an address, a path, a key, a command.
    #[must_use]
    pub fn target(&self) -> Cow<'_, str> {
        match self {
            Self::Fetch { url, .. } => url.into(),
            Self::WriteFile { path, .. } | Self::RemoveFile { path } => path.into(),
            Self::SetKey { key, .. } | Self::DeleteKey { key } => key.into(),
            Self::RunProgram { program, arguments, .. } => show_command(program, arguments).into(),
        }
    }
}

/// Length and digest of bytes, in place of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// The digest in lower-case hexadecimal.
    pub sha256: String,
    pub length: u64,
}

/// The result of a side effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum SideEffectAnswer {
    /// It succeeded; the target now has this length in bytes.
    Done { length: u64 },
    /// A response arrived; its body is stored as a blob.
    Fetched {
        status: u16,
        headers: Vec<(String, String)>,
        body: Blob,
        /// The address of the response, after redirects.
        url: String,
        /// The address of the last connection, such as `93.184.216.34:443`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// A program ended, or was stopped; its output is stored as blobs.
    Ran {
        ending: ProgramEnding,
        stdout: Blob,
        stderr: Blob,
        /// The bytes of output beyond the limit, which were dropped.
        dropped: u64,
    },
    /// It was refused on the way, such as at a redirect's target.
    Denied { denial: Denial },
    /// It did not happen, or that is unknown. A repeated call gets the same cause; `message` is
    /// text for people, and for a plugin whose error carries text.
    Failed { cause: FailureCause, message: String },
}

/// The cause of a failure, as a code that stays stable when the text of the message changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum FailureCause {
    NotFound,
    NotAFile,
    NotADirectory,
    /// A quota of bytes or entries was exceeded: of a folder, of a key-value store, of the reads of
    /// one call.
    Quota {
        limit: u64,
    },
    /// A limit of the `fetch` grant was exceeded; the text for the plugin is
    /// `response_size = 8 MiB`.
    Limit {
        limit: String,
    },
    TimedOut,
    /// The service behind the import did not answer: a server, a key-value store.
    Unavailable,
    /// The host stopped during the side effect, so its result is unknown.
    Interrupted,
    /// Any other cause; the message names it.
    Other,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "kebab-case")]
pub enum ProgramEnding {
    /// It exited with this code.
    Exited { code: u8 },
    /// A signal ended it, such as 11 for an invalid access to memory.
    Killed { signal: u8 },
    /// The host stopped it and all that it started, at a limit such as `timeout = 20 s`.
    Stopped { limit: String },
}

impl fmt::Display for ProgramEnding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(out, "exit code {code}"),
            Self::Killed { signal } => write!(out, "killed by signal {signal}"),
            Self::Stopped { limit } => write!(out, "stopped at its limit {limit}"),
        }
    }
}
