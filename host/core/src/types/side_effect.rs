//! What a plugin does to the world while it runs, through an import: a request that leaves, a file
//! or a key that changes. Journalled before it happens and before the plugin learns how it went,
//! under the call and a number of its own, so that a call that is run again does nothing twice.
//! Values are here by digest; a secret is its placeholder.

use serde::{Deserialize, Serialize};

use crate::types::capability::Capability;
use crate::types::denial::Denial;
use crate::types::message::Blob;

/// Something that is about to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "side_effect", rename_all = "kebab-case")]
pub enum SideEffect {
    /// A request, before any secret is put in.
    Fetch {
        method: String,
        url: String,
        headers: Vec<(String, String)>,
        /// Bytes of the body; none when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Digest>,
        /// Names of the secrets that the host puts in.
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
}

impl SideEffect {
    /// The capability that it needs.
    #[must_use]
    pub fn capability(&self) -> Capability {
        match self {
            Self::Fetch { .. } => Capability::Fetch,
            Self::WriteFile { .. } | Self::RemoveFile { .. } => Capability::Files,
            Self::SetKey { .. } | Self::DeleteKey { .. } => Capability::Kv,
        }
    }

    /// What it is done to, for people: an address, a path, a key.
    #[must_use]
    pub fn target(&self) -> &str {
        match self {
            Self::Fetch { url, .. } => url,
            Self::WriteFile { path, .. } | Self::RemoveFile { path } => path,
            Self::SetKey { key, .. } | Self::DeleteKey { key } => key,
        }
    }
}

/// Bytes by what they are, not by what they say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub length: u64,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum SideEffectAnswer {
    /// It is done; what is there now has so many bytes.
    Done { length: u64 },
    /// An answer came; its body is kept as a blob.
    Fetched {
        status: u16,
        headers: Vec<(String, String)>,
        body: Blob,
        /// Where it came from, after redirects.
        url: String,
        /// The address that was connected to last, such as `93.184.216.34:443`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// Refused on the way, such as by a redirect's target.
    Denied { denial: Denial },
    /// It did not happen, or it is not known whether it did. A call that is run again is answered
    /// by the cause; `message` is text for people, and for a plugin whose error carries text.
    Failed { cause: FailureCause, message: String },
}

/// Why a side effect failed, as a code that stays the same when the message beside it is reworded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum FailureCause {
    NotFound,
    NotAFile,
    NotADirectory,
    /// Past a quota of bytes or entries: of a folder, of a store of keys, of what one call may
    /// read.
    Quota {
        limit: u64,
    },
    /// Past a limit of the `fetch` grant, as the plugin is told it: `response_size = 8 MiB`.
    Limit {
        limit: String,
    },
    TimedOut,
    /// What stands behind the import did not answer: a server, a store of keys.
    Unavailable,
    /// The host stopped in between, so it is not known whether it happened.
    Interrupted,
    /// Anything else; the message says it.
    Other,
}
