//! Plugins, from their bytes to callable code. Grants are not decided here: a loaded plugin has
//! none yet.

mod anatomy;
mod arguments;
mod budget;
mod cache;
mod checked_code;
mod compiler;
mod component;
mod contract;
#[cfg(feature = "download")]
mod download;
mod embed;
pub(crate) mod kinds;
mod load;
mod precompile;
mod probe;
mod program_file;
#[cfg(feature = "registry")]
mod registry;
pub(crate) mod sandboxed;
mod schema;
#[cfg(feature = "registry")]
mod signature;
mod source;
mod weight;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::permissions::manifest::{Manifest, ManifestError};
use conclave_core::setup::{PluginFacts, Provenance};
use conclave_core::types::capability::Capability;
use conclave_core::types::fault::Fault;
use conclave_core::types::plugin_kind::PluginKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wasmtime::component::InstancePre;

use crate::imports::state::CallState;
use crate::sandbox::engine::Engine;
use kinds::Exports;

pub(crate) use arguments::ArgumentChecker;
pub(crate) use load::{each_schema, schemas};

pub use cache::{Cache, CacheError};
pub use compiler::Compiler;
pub use compiler::child::compile_component;
pub use component::{PluginComponent, PrebuiltBytes};
#[cfg(feature = "download")]
pub use download::{DownloadError, Downloads, fetch};
pub use embed::embed;
pub use load::{Loader, inspect};
pub use precompile::{CodeTarget, CompiledComponent, precompile};
pub use program_file::{ProgramFile, ProgramFileError};
#[cfg(feature = "registry")]
pub use registry::{
    Artifact, Login, NoLogins, Package, Registry, RegistryError, RegistryLogins, Signatures,
};
#[cfg(feature = "registry")]
pub use signature::{
    Envelope, SigningKey, SigningKeyError, Statement, Subject, signature_file, signatures_beside,
    signers,
};
pub use source::read_component;

/// Why a component is refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The component is larger than its limit.
    #[error("it has {size}; up to {limit} are taken (its limits.component)")]
    TooLarge {
        /// The size of the component, with its unit.
        size: String,
        /// The limit `component`, with its unit.
        limit: String,
    },
    /// The bytes are no component.
    #[error(
        "it is {kind}. Build it for target wasm32-wasip2, or make a component of it, such as with `jco new`."
    )]
    NotAComponent {
        /// The actual content, such as `a core module, not a component`.
        kind: &'static str,
    },
    /// The component is invalid or truncated; the text is the parser's reason.
    #[error("it is damaged: {0}")]
    Malformed(String),
    /// The component declares more than the host takes from one file, whatever its size.
    #[error(
        "it has more than {limit} {what}, which is the limit for a component of any size. If it is meant to have them, build it as several components."
    )]
    Budget {
        /// What is limited, in the plural.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The component has no manifest.
    #[error(
        "it has no manifest (a custom section `conclave:manifest`). Build it with the SDK, or add one."
    )]
    NoManifest,
    /// The component has several manifests of equal rank.
    #[error(
        "it has {count} manifests in {place}, so it is not clear which one counts. Add one to the outermost component."
    )]
    ManifestTwice {
        /// The number of manifests.
        count: usize,
        /// The part of the component that holds them, for display.
        place: &'static str,
    },
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The component imports an interface that this host lacks.
    #[error("it imports {import}, which this host does not have: {needed}")]
    ForeignImport {
        /// The name of the import, at most 200 characters.
        import: String,
        /// The remedy or the reason, for display.
        needed: &'static str,
    },
    /// The component uses another version of the contract.
    #[error("it was built for another contract: {name}. Build it again with the SDK of this host.")]
    OtherContract {
        /// The import or export of the other version, at most 200 characters.
        name: String,
    },
    /// The component exports no interface of the contract, and no function or program that can be a
    /// tool. The text has the reasons, after a colon; empty if it has no export at all.
    #[error("it exports no interface of the contract, and no function that could be a tool{0}")]
    NothingExported(String),
    /// The manifest requires a capability that this host lacks.
    #[error("it cannot do without `{capability}`{why}, and this host knows no such capability")]
    UnknownCapability {
        /// The capability, as the manifest names it.
        capability: String,
        /// The manifest's reason in parentheses, after a space; empty if it gives none.
        why: String,
    },
    /// Its bytes are a file of the program, which is missing or changed.
    #[error("{0}. Install the program again, together with the files that belong to it.")]
    ProgramFile(#[from] ProgramFileError),
    /// The compiler failed or could not be started; the text is its reason.
    #[error("it cannot be compiled: {0}")]
    Compile(String),
    /// Compiling took longer than its limit.
    #[error("compiling it took longer than {limit} (its limits.compile_time)")]
    CompileTime {
        /// The limit `compile_time`, with its unit.
        limit: String,
    },
    /// Compiling needed more memory than its limit.
    #[error("compiling it took more than {limit} of memory (its limits.compile_memory)")]
    CompileMemory {
        /// The limit `compile_memory`, with its unit.
        limit: String,
    },
    /// An import or export does not have its type in the contract; the text names it.
    #[error("it does not fit the contract: {0}. Build it again with the SDK of this host.")]
    Types(String),
    /// The component faulted while it was started to list its tools.
    #[error("it did not start: {}", .0.message)]
    NotStarted(Fault),
    /// Listing the tools failed, or there are too many; the text is the reason.
    #[error("it cannot say which tools it has: {0}")]
    Listing(String),
    /// A tool has an invalid name, description or schema.
    #[error("its tool `{name}` is not right: {problem}")]
    Tool {
        /// The tool's name, as the component gives it.
        name: String,
        /// The reason, for display.
        problem: String,
    },
    /// Compiling the schemas took too long or panicked; the text is the reason.
    #[error("the input schemas of its tools are refused: {0}")]
    Schemas(String),
}

impl LoadError {
    fn too_slow() -> Self {
        Self::Schemas(format!("compiling them took more than {} s", load::COMPILING.as_secs()))
    }
}

/// The facts of a component that are known without running it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The manifest that the component embeds.
    pub manifest: Manifest,
    /// The kinds of plugin that its exports implement.
    pub kinds: BTreeSet<PluginKind>,
    /// Whether it exports nothing of the contract, so that its functions and its program are served
    /// as tools.
    pub is_plain: bool,
    /// Whether the component has a manifest of its own. `manifest` of one without asks for what its
    /// imports can use.
    pub has_manifest: bool,
    /// Names, as the component has them.
    pub imports: Vec<String>,
    /// Imports of authority that the manifest does not ask for. A call of them is refused.
    pub unasked: Vec<UnaskedImport>,
    /// Names of the exports, with their versions.
    pub exports: Vec<String>,
    /// In lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// An import of authority that the manifest does not ask for, and which cannot be granted
/// therefore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnaskedImport {
    /// The name, as the component has it.
    pub import: String,
    /// The capability to ask for; `None` if no plugin can have it.
    pub capability: Option<Capability>,
    /// Whether it is an interface of WASI, which a language's library imports also for code that
    /// never runs.
    pub is_wasi: bool,
}

/// The origin of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    /// It was compiled for this load.
    Compiled,
    /// It was read from a [`Cache`].
    Cache,
    /// It was made when the program was built: see [`PluginComponent::prebuilt`].
    Program,
}

impl CodeOrigin {
    /// Whether the code was there before the load.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self != Self::Compiled
    }
}

/// A loaded component, which can be called with the grants of a config.
pub struct LoadedPlugin {
    engine: Engine,
    code: InstancePre<CallState>,
    exports: Exports,
    arguments: ArgumentChecker,
    facts: PluginFacts,
    inspection: Inspection,
    origin: CodeOrigin,
    notes: Vec<String>,
    took: Duration,
}

impl LoadedPlugin {
    /// The facts for the core.
    #[must_use]
    pub fn facts(&self) -> &PluginFacts {
        &self.facts
    }

    /// Returns the same plugin with the place that its bytes came from.
    #[must_use]
    pub(crate) fn with_provenance(mut self, provenance: Provenance) -> Self {
        self.facts.provenance = provenance;
        self
    }

    /// The facts that are known without running it.
    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// Returns where its code came from.
    #[must_use]
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }

    /// Returns notes for the operator, such as a manipulated cache entry. Usually empty.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The functions of a component that is not built for the contract which cannot be tools, with
    /// the reasons.
    #[must_use]
    pub fn unserved(&self) -> &[String] {
        self.exports.plain().map_or(&[], |plain| &plain.unserved)
    }

    /// The duration of the load.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn code(&self) -> &InstancePre<CallState> {
        &self.code
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.exports
    }

    pub(crate) fn tool_index(&self, name: &str) -> Option<usize> {
        self.facts.tools.iter().position(|tool| tool.name == name)
    }

    /// Checks arguments of at most so many bytes against the schema of a tool. Returns their
    /// JSON text.
    ///
    /// # Errors
    /// The problems, in words for the model.
    pub(crate) async fn check_arguments(
        &self,
        tool: usize,
        arguments: &Arc<Value>,
        most: u64,
    ) -> Result<String, String> {
        self.arguments.check(tool, arguments, most).await
    }
}

impl fmt::Debug for LoadedPlugin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LoadedPlugin")
            .field("name", &self.facts.manifest.name)
            .field("sha256", &self.facts.sha256)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
