//! The stable codes of problems: one for each cause, shown with every problem and in `--json`. Texts
//! may change from version to version, codes may not.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares each code once: its documentation, its variant and its text.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident = $text:literal,)+) => {
        /// The cause of a [`ConfigProblem`](super::ConfigProblem).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ProblemCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $code,)+
        }

        impl ProblemCode {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$code),+];

            /// The code as text: `config/unknown-key`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)+
                }
            }
        }
    };
}

codes! {
    /// The file is not TOML, or the head of a prompt file is not YAML.
    Syntax = "config/syntax",
    /// The table has no such key.
    UnknownKey = "config/unknown-key",
    /// A required key is absent.
    MissingKey = "config/missing-key",
    /// The value has another type.
    WrongType = "config/wrong-type",
    /// The value has the right type, and is not one of those allowed.
    InvalidValue = "config/invalid-value",
    /// A number, a size, a duration or a length is outside its bounds.
    OutOfRange = "config/out-of-range",
    /// The text cannot be a name, or the name is reserved.
    InvalidName = "config/invalid-name",
    /// The same entry or name is written twice.
    Duplicate = "config/duplicate",
    /// Two names look alike.
    SimilarNames = "config/similar-names",
    /// The key cannot be combined with another key, or with its value.
    Conflict = "config/conflict",
    /// A feature that this version does not have.
    Unavailable = "config/unavailable",
    /// A key or a password stands in the file itself.
    PlaintextKey = "config/plaintext-key",
    /// The config has no such plugin.
    UnknownPlugin = "config/unknown-plugin",
    /// The config has no such task.
    UnknownTask = "config/unknown-task",
    /// The config has no such model.
    UnknownModel = "config/unknown-model",
    /// The config has no such channel.
    UnknownChannel = "config/unknown-channel",
    /// The config has no such secret.
    UnknownSecret = "config/unknown-secret",
    /// No task, channel or tool has this name, nor is it a person's or a responder's.
    UnknownRecipient = "config/unknown-recipient",
    /// No plugin has such a tool, or the task does not have it.
    UnknownTool = "config/unknown-tool",
    /// A task reaches itself through its sub-tasks.
    TaskCycle = "config/task-cycle",
    /// The plugin requires a capability that is not granted.
    MissingGrant = "config/missing-grant",
    /// The plugin requires a capability that this host does not offer.
    UnsupportedCapability = "config/unsupported-capability",
    /// A task offers what its agent was not granted.
    NotGranted = "config/not-granted",
    /// The plugin lacks the export that its place in the config requires.
    WrongPluginKind = "config/wrong-plugin-kind",
    /// A setting of the plugin is unknown, missing, or has another type.
    InvalidSetting = "config/invalid-setting",
    /// The plugin itself breaks a rule; its author must correct it.
    InvalidPlugin = "config/invalid-plugin",
    /// The plugin is not at its source.
    MissingPlugin = "config/missing-plugin",
    /// The plugin could not be loaded, or is another one than the config means.
    PluginRefused = "config/plugin-refused",
    /// The machine cannot confine the program of a server.
    NotConfined = "config/not-confined",
    /// The plugin differs from the lock.
    LockMismatch = "config/lock-mismatch",
    /// The plugin is not in the lock.
    NotLocked = "config/not-locked",
    /// The plugin lacks signatures that the config requires.
    Unsigned = "config/unsigned",
    /// The digest of the plugin is revoked.
    Revoked = "config/revoked",
    /// A file that the config names is not there, or cannot be read.
    UnreadableFile = "config/unreadable-file",
    /// A granted folder is not there.
    MissingFolder = "config/missing-folder",
    /// A granted folder holds what no plugin should reach: keys, or files of the host.
    ProtectedFolder = "config/protected-folder",
    /// A key or a secret cannot be read from its source.
    MissingSecret = "config/missing-secret",
    /// This program has no client for the model.
    NoClient = "config/no-client",
    /// Warning: nothing uses this plugin, task or model.
    Unused = "config/unused",
    /// Warning: a tool of a server is not served, or has another name here.
    ForeignTool = "config/foreign-tool",
    /// Warning: the line is valid and changes nothing.
    NoEffect = "config/no-effect",
    /// Warning: nobody reads the result of a background task for sure.
    UnreadResult = "config/unread-result",
    /// Warning: the line exposes a key, or a whole network.
    Insecure = "config/insecure",
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}
